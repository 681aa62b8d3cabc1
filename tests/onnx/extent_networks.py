"""Small networks with operators that take numbers from shapes, and how often they are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.numpy_helper
import pytest
from small_models import parsed

import dlprim.onnx
from dlprim.graph import networks
from dlprim.onnx.parts import part

Array = np.ndarray[Any, Any]

# With an input x (2, n, 6), or (1, 3, n, 9) of images, whose n is another in each call.
_SHAPE = "shape = Shape(x)  n = Gather(shape, i1)  n1 = Unsqueeze(n, a0)"
_IMAGE = "s = Shape(x)  hw = Slice(s, a2, a4)"
ROWS = {
    "Range": f"""{_SHAPE} r = Range(i0, n, i1)  f = Cast<to=1>(r)  c = Unsqueeze(f, a1)
        y = Add(x, c)""",
    "Range of floats": f"""{_SHAPE} m = Cast<to=1>(n)  r = Range(f0, m, f1)  c = Unsqueeze(r, a1)
        y = Mul(x, c)""",
    "TopK": f"{_SHAPE} h = Div(n1, a2)  v, i = TopK<axis=1>(x, h)  y = Relu(v)",
    "Trilu": f"""{_SHAPE} nn = Concat<axis=0>(n1, n1)  o = ConstantOfShape(nn)  e = Add(o, f1)
        t = Trilu<upper=0>(e)  y = MatMul(t, x)""",
    "a mask of bool": f"""{_SHAPE} r = Range(i0, n, i1)  c = Unsqueeze(r, a1)  m = LessOrEqual(r, c)
        z = MatMul(x, w)  k = Transpose<perm=[0,2,1]>(x)  p = MatMul(x, k)
        q = Where(m, p, least)  a = Softmax<axis=-1>(q)  y = MatMul(a, z)""",
    "a mask of floats": f"""{_SHAPE} nn = Concat<axis=0>(n1, n1)  o = Expand(least, nn)
        t = Trilu(o, i1)  m = Unsqueeze(t, a0)  k = Transpose<perm=[0,2,1]>(x)  p = MatMul(x, k)
        q = Add(p, m)  a = Softmax<axis=-1>(q)  y = MatMul(a, x)""",
    "a mask that is scattered": f"""{_SHAPE} nn = Concat<axis=0>(n1, n1)  e = Expand(false, nn)
        r = Range(i0, n, i1)  c = Unsqueeze(r, a1)  g = Greater(r, c)  m = Or(e, g)
        k = Transpose<perm=[0,2,1]>(x)  p = MatMul(x, k)  q = Where(m, least, p)
        a = Softmax<axis=-1>(q)  y = MatMul(a, x)""",
    "ConstantOfShape": f"""{_SHAPE} o = ConstantOfShape(shape)  c = Concat<axis=1>(x, o)
        y = Relu(c)""",
    "Expand": f"{_SHAPE} t = Concat<axis=0>(n1, a1)  e = Expand(row, t)  y = Add(x, e)",
    "Expand of an input": f"""{_SHAPE} t = Concat<axis=0>(n1, a1, a1)  u = ReduceSum<keepdims=1>(x)
        e = Expand(u, t)  y = Relu(e)""",
    "Where of a shape": f"""{_SHAPE} t = Concat<axis=0>(m1, n1, m1)  e = Equal(t, m1)
        o = ConstantOfShape<value=int64[1] {{1}}>(a3)  u = Where(e, o, t)  z = Expand(x, u)
        y = Relu(z)""",
    "Slice": f"{_SHAPE} h = Div(n1, a2)  c = Slice(x, h, n1, a1)  y = Relu(c)",
    "Slice of a table": f"{_SHAPE} t = Slice(table, a0, n1, a0)  y = Add(x, t)",
    "Pad": f"""{_SHAPE} h = Mod(n1, a4)  p = Concat<axis=0>(a0, h, a0, a0, n1, a0)  c = Pad(x, p)
        y = Relu(c)""",
    "Pad by reflection": f"""{_SHAPE} h = Sub(n1, a1)  p = Concat<axis=0>(a0, h, a0, a0, a1, a0)
        c = Pad<mode="reflect">(x, p)  y = Relu(c)""",
    "Tile": f"{_SHAPE} p = Concat<axis=0>(a1, a1, n1)  c = Tile(x, p)  y = Relu(c)",
    "CumSum": f"""{_SHAPE} o = ConstantOfShape<value=int64[1] {{1}}>(n1)  r = CumSum(o, i0)
        f = Cast<to=1>(r)  c = Unsqueeze(f, a1)  y = Add(x, c)""",
    "CumSum of an input": "c = CumSum(x, i1)  y = Relu(c)",
    "OneHot": f"""{_SHAPE} r = Range(i0, n, i1)  e = OneHot(r, n, values)  z = MatMul(e, x)
        y = Relu(z)""",
    "EyeLike": """k0 = Slice(x, a0, a1, a0)  k = Squeeze(k0, a0)  q = Transpose(k)
        z = MatMul(k, q)  e = EyeLike(z)  y = Add(z, e)""",
    "GatherND": f"""{_SHAPE} h = Sub(n1, a1)  p = Concat<axis=0>(a1, h)  g = GatherND(x, p)
        y = Add(x, g)""",
    "Gather of the last": f"{_SHAPE} h = Sub(n1, a1)  g = Gather<axis=1>(x, h)  y = Add(x, g)",
    "ScatterND": f"""{_SHAPE} r = Range(i0, n, i1)  c = Unsqueeze(r, a1)
        z = Transpose<perm=[1,0,2]>(x)  h = ScatterND(z, c, z)  y = Relu(h)""",
    "a mean by hand": f"""{_SHAPE} m = Cast<to=1>(n)  u = ReduceSum<keepdims=1>(x, a1)
        c = Div(u, m)  y = Sub(x, c)""",
    "a scale by the length": f"""{_SHAPE} m = Cast<to=1>(n)  r = Sqrt(m)  d = Reciprocal(r)
        y = Mul(x, d)""",
    "NonZero": f"""{_SHAPE} r = Range(i0, n, i1)  t = Mod(r, a2)  z = NonZero(t)
        q = Squeeze(z, a0)  y = Gather<axis=1>(x, q)""",
    "Compress": f"""{_SHAPE} r = Range(i0, n, i1)  t = Mod(r, a2)  b = Cast<to=9>(t)
        y = Compress<axis=1>(x, b)""",
    "Compress of a range": f"""{_SHAPE} r = Range(i0, n, i1)  t = Mod(r, a2)  b = Cast<to=9>(t)
        q = Compress<axis=0>(r, b)  y = Gather<axis=1>(x, q)""",
    "Unique": f"""{_SHAPE} r = Range(i0, n, i1)  t = Mod(r, a4)  u = Unique(t)  v = Cast<to=1>(u)
        s = ReduceSum(v)  y = Add(x, s)""",
    "HannWindow": f"{_SHAPE} w0 = HannWindow(n)  c = Unsqueeze(w0, a1)  y = Mul(x, c)",
    "bytes": f"{_SHAPE} m = Cast<to=2>(n)  k = Cast<to=1>(m)  y = Add(x, k)",
    "halves": f"{_SHAPE} m = Cast<to=10>(n)  k = Cast<to=1>(m)  q = Mul(k, f15)  y = Add(x, q)",
    "bounds of Clip": f"{_SHAPE} m = Cast<to=1>(n)  d = Reciprocal(m)  y = Clip(x, d, m)",
    "sines of positions": f"""{_SHAPE} r = Range(i0, n, i1)  f = Cast<to=1>(r)  c = Unsqueeze(f, a1)
        a = MatMul(c, row)  u = Sin(a)  v = Cos(a)  p = Mul(x, u)  q = Mul(x, v)  y = Add(p, q)""",
    "Split": f"""{_SHAPE} h = Div(n1, a2)  t = Sub(n1, h)  c = Concat<axis=0>(h, t)
        l, r = Split<axis=1>(x, c)  y = Concat<axis=1>(r, l)""",
    "Reshape": f"""{_SHAPE} h = Mul(n1, a2)  p = Concat<axis=0>(h, a3, m1)  c = Reshape(x, p)
        y = Relu(c)""",
    "GreaterOrEqual of lengths": f"""{_SHAPE} r = Range(i0, n, i1)
        l = ReduceSum<keepdims=0>(x, b12)  c = Unsqueeze(l, a1)  f = Cast<to=1>(r)
        m = Less(f, c)  e = Unsqueeze(m, a2)  y = Where(e, x, least)""",
    "Size": """n = Size(x)  m = Cast<to=1>(n)  u = ReduceSum<keepdims=0>(x)  v = Div(u, m)
        y = Sub(x, v)""",
    "ReverseSequence": f"""{_SHAPE} l = Expand(n1, a2)
        y0 = ReverseSequence<batch_axis=0,time_axis=1>(x, l)  y = Relu(y0)""",
    "LSTM with lengths": f"""{_SHAPE} t0 = Transpose<perm=[1,0,2]>(x)  l0 = Expand(n1, a2)
        l = Cast<to=6>(l0)  h, last, cell = LSTM<hidden_size=5>(t0, lw, lr, lb, l)  y = Relu(h)""",
    "DepthToSpace": f"""{_SHAPE} z = MatMul(x, w)  t = Transpose<perm=[0,2,1]>(z)
        p = Concat<axis=0>(a2, b4, n1, a1)  c = Reshape(t, p)  y0 = DepthToSpace<blocksize=2>(c)
        y = Relu(y0)""",
}  # fmt: skip
IMAGES = {
    "Resize by scales, nearest": """c = Conv<pads=[1,1,1,1]>(x, conv)
        r = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">
        (c, "", scales)  y = Relu(r)""",
    "Resize by scales, linear": 'c = Conv<pads=[1,1,1,1]>(x, conv)  r = Resize<mode="linear">'
    '(c, "", scales)  y = Relu(r)',
    "Resize by scales, cubic": 'c = Conv<pads=[1,1,1,1]>(x, conv)  r = Resize<mode="cubic">'
    '(c, "", scales)  y = Relu(r)',
    "Resize by 2": """r = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",
        nearest_mode="floor">(x, "", twice)  y = Relu(r)""",
    "Resize by sizes": f"""{_IMAGE} c = Conv<pads=[1,1,1,1],strides=[2,2]>(x, conv)
        t = Shape(c)  nc = Slice(t, a0, a2)  p = Concat<axis=0>(nc, hw)
        r = Resize<mode="linear">(c, "", "", p)  y = Relu(r)""",
    "Resize by sizes, nearest": f"""{_IMAGE} c = Conv<pads=[1,1,1,1],strides=[2,2]>(x, conv)
        t = Shape(c)  nc = Slice(t, a0, a2)  p = Concat<axis=0>(nc, hw)
        r = Resize<mode="nearest">(c, "", "", p)  y = Relu(r)""",
    "Resize by sizes, aligned": f"""{_IMAGE} c = Conv<pads=[1,1,1,1],strides=[2,2]>(x, conv)
        t = Shape(c)  nc = Slice(t, a0, a2)  p = Concat<axis=0>(nc, hw)
        r = Resize<mode="linear",coordinate_transformation_mode="align_corners">(c, "", "", p)
        y = Relu(r)""",
    "Resize by sizes, cubic": f"""{_IMAGE} c = Conv<pads=[1,1,1,1],strides=[2,2]>(x, conv)
        t = Shape(c)  nc = Slice(t, a0, a2)  p = Concat<axis=0>(nc, hw)
        r = Resize<mode="cubic">(c, "", "", p)  y = Relu(r)""",
    "Resize, antialiased": f"""{_IMAGE} h = Div(hw, a2)  t = Slice(s, a0, a2)
        p = Concat<axis=0>(t, h)  r = Resize<mode="linear",antialias=1>(x, "", "", p)
        y = Relu(r)""",
    "Resize by floats of a shape": f"""{_IMAGE} f = Cast<to=1>(hw)  g = Mul(f, f15)  k = Floor(g)
        h = Cast<to=7>(k)  t = Slice(s, a0, a2)  p = Concat<axis=0>(t, h)
        r = Resize<mode="linear">(x, "", "", p)  y = Relu(r)""",
    "Resize by computed scales": f"""{_IMAGE} c = Conv<pads=[1,1,1,1],strides=[2,2]>(x, conv)
        t = Shape(c)  q = Slice(t, a2, a4)  f = Cast<to=1>(hw)  g = Cast<to=1>(q)  d = Div(f, g)
        p = Concat<axis=0>(ones2, d)  r = Resize<mode="nearest">(c, "", p)  y = Relu(r)""",
    "Upsample": 'c = Conv<pads=[1,1,1,1]>(x, conv)  r = Resize<mode="nearest">(c, "", twice)  '
    "y = Conv<pads=[1,1,1,1]>(r, conv2)",
    "GlobalAveragePool": "c = Conv(x, conv)  g = GlobalAveragePool(c)  y = Relu(g)",
    "AveragePool": """c = AveragePool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(x)
        y = Relu(c)""",
    "MaxPool with ceil_mode": "c = MaxPool<kernel_shape=[3,3],strides=[2,2],ceil_mode=1>(x)  "
    "y = Relu(c)",
    "Conv of SAME": 'c = Conv<auto_pad="SAME_UPPER",strides=[2,2]>(x, conv)  y = Relu(c)',
    "ConvTranspose": "c = ConvTranspose<strides=[2,2]>(x, back)  y = Relu(c)",
    "InstanceNormalization": "c = InstanceNormalization(x, g3, b3)  y = Relu(c)",
    "crops": f"""{_IMAGE} c = ConvTranspose<strides=[2,2]>(x, back)  z = Slice(c, a00, hw, b23)
        y = Concat<axis=1>(x, z)""",
    "pads to a multiple": f"""{_IMAGE} m = Mod(hw, a4)  d = Sub(a4, m)  e = Mod(d, a4)
        p = Concat<axis=0>(a00, a00, a00, e)  z = Pad(x, p)  y = Relu(z)""",
    "a border of wide rows": """t = Concat<axis=3>(x, x, x)  z = Pad(t, border)  y = Relu(z)""",
    "windows": f"""{_IMAGE} h = Slice(s, a2, a3)  k = Mul(h, a1)
        t = Concat<axis=0>(a1, a3, k, a3, a3)  v = Reshape(x, t)
        u = Transpose<perm=[0,2,3,4,1]>(v)  y = Relu(u)""",
    "GridSample": f"""{_IMAGE} t = Concat<axis=0>(a1, a3, hw)  g = AffineGrid(theta, t)
        z = GridSample(x, g)  y = Relu(z)""",
}  # fmt: skip


def _constants() -> dict[str, Array]:
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> Array:
        return random.standard_normal(shape, dtype=np.float32)

    numbers = {f"a{it}": np.array([it]) for it in range(5)}
    numbers |= {f"i{it}": np.array(it) for it in range(3)}
    numbers |= {"m1": np.array([-1]), "b12": np.array([1, 2]), "b4": np.array([4])}
    numbers |= {"border": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    numbers |= {"a00": np.array([0, 0]), "b23": np.array([2, 3])}
    floats = {f"f{it}": np.float32(it) for it in range(2)} | {"f15": np.float32(1.5)}
    floats |= {"least": np.float32(-3e38), "ones2": np.ones(2, np.float32)}
    floats |= {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    floats |= {"twice": np.array([1, 1, 2, 2], np.float32)}
    arrays = {"w": drawn(6, 4), "row": drawn(1, 6), "table": drawn(200, 6), "values": drawn(2)}
    arrays |= {"lw": drawn(1, 20, 6), "lr": drawn(1, 20, 5), "lb": drawn(1, 40)}
    arrays |= {"conv": drawn(16, 3, 3, 3), "conv2": drawn(8, 16, 3, 3), "back": drawn(3, 4, 2, 2)}
    arrays |= {"g3": drawn(3), "b3": drawn(3), "theta": drawn(1, 2, 3), "false": np.array(False)}
    return numbers | floats | arrays


def model(steps: str, shape: str) -> onnx.ModelProto:
    """The network of x, with the constants that its steps name."""
    made = parsed(f"(float[{shape}] x) => (y) {{ {steps} }}".replace("(y)", "(float[p] y)"))
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].type.tensor_type.ClearField("shape")
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(it), name)
        for name, it in _constants().items()
        if name in read
    )
    return made


def compilations(
    made: onnx.ModelProto, inputs: Sequence[Array], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """How often the network is compiled, and recorded, for inputs; results are a new model's."""
    counts = [0, 0]

    def counted(at: int, function: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            counts[at] += 1
            return function(*args, **named)

        return call

    kept = dlprim.onnx.load(made)
    for x in inputs:
        with monkeypatch.context() as patch:
            patch.setattr(part, "compile_graph", counted(0, part.compile_graph))
            patch.setattr(networks, "Recording", counted(1, networks.Recording))
            found = kept(x)
        np.testing.assert_array_equal(found, dlprim.onnx.load(made)(x), f"{x.shape}")
    return counts[0], counts[1]
