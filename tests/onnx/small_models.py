"""Small models written by hand as ONNX's text, with drawn weights: they need `onnx` and no more.

One for each kind of network that an importer meets; `run` is ONNX's own reference of them.
"""

from __future__ import annotations

import numpy as np
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import onnx.reference

_TEXT = {
    "residual": """(float[n,3,8,8] x) => (float[n,6] y) {
        c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0, b0)
        normed = BatchNormalization<epsilon=0.001>(c, gamma, beta, mean, var)
        r = Relu(normed)
        d = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=2>(r, w1)
        s = Add(d, r)
        t = Relu(s)
        m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(t)
        g = GlobalAveragePool(m)
        f = Flatten(g)
        y = Gemm<transB=1>(f, w2, b2)
    }""",
    "mlp": """(float[n,7] x) => (float[n,5] y, float[n,9] hidden) {
        a = MatMul(x, w0)
        b = Add(a, b0)
        hidden = Gelu(b)
        c = Gemm<alpha=0.5, transB=1>(hidden, w1, b1)
        y = Softmax<axis=1>(c)
    }""",
    "attention": """(float[n,s,8] x, bool[n,1,1,s] mask) => (float[n,s,8] y) {
        normed = LayerNormalization<axis=-1>(x, gamma, beta)
        q0 = MatMul(normed, wq)
        k0 = MatMul(normed, wk)
        v0 = MatMul(normed, wv)
        q1 = Reshape(q0, heads)
        k1 = Reshape(k0, heads)
        v1 = Reshape(v0, heads)
        q = Transpose<perm=[0,2,1,3]>(q1)
        k = Transpose<perm=[0,2,3,1]>(k1)
        v = Transpose<perm=[0,2,1,3]>(v1)
        s0 = MatMul(q, k)
        s1 = Mul(s0, scale)
        s2 = Where(mask, s1, least)
        p = Softmax<axis=-1>(s2)
        o0 = MatMul(p, v)
        o1 = Transpose<perm=[0,2,1,3]>(o0)
        o = Reshape(o1, joined)
        y = Add(x, o)
    }""",
    "lstm": """(float[6,n,4] x) => (float[6,1,n,5] y, float[1,n,5] last) {
        y, last, cell = LSTM<hidden_size=5>(x, w, r, b)
    }""",
    "quantized": """(float[n,3,6,6] x) => (float[n,4,4,4] y) {
        xq = QuantizeLinear(x, sx, zx)
        xd = DequantizeLinear(xq, sx, zx)
        wd = DequantizeLinear<axis=0>(w, sw, zw)
        bd = DequantizeLinear<axis=0>(b, sb, zb)
        c = Conv<kernel_shape=[3,3]>(xd, wd, bd)
        cq = QuantizeLinear(c, sy, zy)
        y = DequantizeLinear(cq, sy, zy)
    }""",
    "pools": """(float[n,2,7,7] x) => (float[n,2,4,4] y) {
        a = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(x)
        b = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)
        c = Sub(a, b)
        y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(c)
    }""",
    "numbers": """(float[n,3] x) => (float[n,3] y) {
        s = ReduceSum<keepdims=0>(x)
        d = Mul(s, two)
        q = Mul(d, d)
        y = Add(x, q)
    }""",
    "shapes": """(float[n,4,6] x) => (float[m,k] y) {
        shape = Shape(x)
        first = Gather(shape, zero)
        many = Unsqueeze(first, zeros)
        open = Constant<value_ints=[-1]>()
        joined = Concat<axis=0>(many, open)
        flat = Reshape(x, joined)
        even = Slice(flat, zeros, end, ones, two)
        y = Concat<axis=1>(even, flat)
    }""",
}
_SHAPES = {
    "residual": {
        "w0": (6, 3, 3, 3), "b0": (6,), "gamma": (6,), "beta": (6,), "mean": (6,), "var": (6,),
        "w1": (6, 3, 3, 3), "w2": (6, 6), "b2": (6,),
    },
    "mlp": {"w0": (7, 9), "b0": (9,), "w1": (5, 9), "b1": (5,)},
    "attention": {"wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "gamma": (8,), "beta": (8,)},
    "lstm": {"w": (1, 20, 4), "r": (1, 20, 5), "b": (1, 40)},
    "quantized": {},
    "pools": {},
    "numbers": {},
    "shapes": {},
}  # fmt: skip
NAMES = tuple(_TEXT)


def _constants(name: str, random: np.random.Generator) -> dict[str, np.ndarray]:
    """What of the weights has values that matter."""
    if name == "attention":
        heads, joined = np.array([0, 0, 2, 4]), np.array([0, 0, 8])
        scale, least = np.float32(0.5), np.float32(-1e9)
        return {"heads": heads, "joined": joined, "scale": scale, "least": least}
    if name == "residual":
        return {"var": random.uniform(0.5, 2, 6).astype(np.float32)}
    if name == "numbers":
        return {"two": np.float32(2)}
    if name == "shapes":
        ints = {"zero": 0, "zeros": [0], "end": [24], "ones": [1], "two": [2]}
        return {key: np.array(value, np.int64) for key, value in ints.items()}
    if name == "quantized":
        scales = random.uniform(0.01, 0.02, 4).astype(np.float32)
        sx, sy = np.float32(0.03), np.float32(0.05)
        return {
            "w": random.integers(-127, 128, (4, 3, 3, 3), np.int8), "sw": scales,
            "zw": np.zeros(4, np.int8), "b": random.integers(-999, 999, 4, np.int32),
            "sb": scales * sx, "zb": np.zeros(4, np.int32), "sx": sx, "zx": np.uint8(117),
            "sy": sy, "zy": np.uint8(128),
        }  # fmt: skip
    return {}


def parsed(text: str, name: str = "model") -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 20]> ' + name + text)


def model(name: str) -> onnx.ModelProto:
    made = parsed(_TEXT[name], name)
    random = np.random.default_rng(len(name))
    weights = {
        key: random.standard_normal(shape, np.float32) * 0.5 for key, shape in _SHAPES[name].items()
    } | _constants(name, random)
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(value), key) for key, value in weights.items()
    )
    onnx.checker.check_model(made)
    return made


def inputs(name: str, batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(batch)
    shape = {
        "residual": (batch, 3, 8, 8), "mlp": (batch, 7), "attention": (batch, 5, 8),
        "lstm": (6, batch, 4), "quantized": (batch, 3, 6, 6), "shapes": (batch, 4, 6),
        "pools": (batch, 2, 7, 7), "numbers": (batch, 3),
    }[name]  # fmt: skip
    arrays = {"x": random.standard_normal(shape, np.float32)}
    if name == "attention":
        arrays["mask"] = np.arange(5)[None] <= np.arange(batch)[:, None] + 1
        arrays["mask"] = arrays["mask"].reshape(batch, 1, 1, 5)
    return arrays


def run(made: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX's reference says."""
    return list(onnx.reference.ReferenceEvaluator(made).run(None, arrays))
