"""Models that meet inputs of many shapes, as exporters write them: with arithmetic on shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper
import onnx.numpy_helper
from small_models import parsed

Arrays = dict[str, np.ndarray[Any, Any]]

_WORDS = """(int64[b,s] ids, int64[b,s] mask) => (float[b,s,64] y, float[b,64] pooled) {
    words = Gather(table, ids)
    shape = Shape(ids)
    b0 = Gather(shape, first)
    s0 = Gather(shape, second)
    b1 = Unsqueeze(b0, zero)
    s1 = Unsqueeze(s0, zero)
    places = Slice(positions, zero, s1, one)
    x = Add(words, places)
    m0 = Unsqueeze(mask, lead)
    m1 = Cast<to=1>(m0)
    m2 = Sub(ones, m1)
    m = Mul(m2, least)
    split = Concat<axis=0>(b1, s1, heads)
    q0 = MatMul(x, wq)
    k0 = MatMul(x, wk)
    v0 = MatMul(x, wv)
    q1 = Reshape(q0, split)
    k1 = Reshape(k0, split)
    v1 = Reshape(v0, split)
    q = Transpose<perm=[0,2,1,3]>(q1)
    k = Transpose<perm=[0,2,3,1]>(k1)
    v = Transpose<perm=[0,2,1,3]>(v1)
    p0 = MatMul(q, k)
    p1 = Div(p0, four)
    p2 = Add(p1, m)
    p = Softmax<axis=-1>(p2)
    c0 = MatMul(p, v)
    c1 = Transpose<perm=[0,2,1,3]>(c0)
    joined = Concat<axis=0>(b1, s1, channels)
    c = Reshape(c1, joined)
    o = MatMul(c, wo)
    r = Add(x, o)
    n = LayerNormalization(r, gamma, beta)
    f0 = MatMul(n, w1)
    f1 = Relu(f0)
    f = MatMul(f1, w2)
    y = Add(n, f)
    pooled = ReduceMean<keepdims=0>(y, one)
}"""

_LINES = """(float[n,3,16,w] x) => (float[n,t,20] y) {
    c0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0, b0)
    r0 = Relu(c0)
    p0 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r0)
    c1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,1]>(p0, w1, b1)
    r1 = Relu(c1)
    rows = ReduceMean<keepdims=0>(r1, two)
    steps = Transpose<perm=[2,0,1]>(rows)
    s = LSTM<hidden_size=8, direction="bidirectional">(steps, w, r, b)
    t0 = Transpose<perm=[0,2,1,3]>(s)
    shape = Shape(t0)
    lead = Slice(shape, zero, two)
    all = Concat<axis=0>(lead, rest)
    t1 = Reshape(t0, all)
    l = MatMul(t1, wo)
    y0 = Softmax<axis=-1>(l)
    y = Transpose<perm=[1,0,2]>(y0)
}"""

_IMAGES = """(float[n,3,h,w] x) => (float[n,5] y) {
    c0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x, w0)
    n0 = BatchNormalization(c0, a0, a1, a2, a3)
    r0 = Relu(n0)
    c1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(r0, w1)
    s1 = Add(c1, r0)
    r1 = Relu(s1)
    c2 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=32>(r1, w2)
    g = GlobalAveragePool(c2)
    f = Flatten(g)
    y = MatMul(f, wo)
}"""


def _drawn(random: np.random.Generator, **shapes: tuple[int, ...]) -> Arrays:
    scale = {name: np.prod(shape[1:] or (4,)) ** -0.5 for name, shape in shapes.items()}
    return {
        name: (random.standard_normal(shape) * scale[name]).astype(np.float32)
        for name, shape in shapes.items()
    }


def _constants(name: str) -> Arrays:
    random = np.random.default_rng(0)
    if name == "words":
        square = dict.fromkeys(("wq", "wk", "wv", "wo"), (64, 64))
        drawn = _drawn(
            random, **square, table=(50, 64), positions=(1, 300, 64), w1=(64, 128), w2=(128, 64)
        )
        numbers = {"first": 0, "second": 1, "zero": [0], "one": [1], "lead": [1, 2]}
        numbers |= {"heads": [4, 16], "channels": [64]}
        floats = {"ones": 1.0, "least": -1e4, "four": 4.0}
        ends = {"gamma": np.ones(64, np.float32), "beta": np.zeros(64, np.float32)}
        integers = {key: np.array(it, np.int64) for key, it in numbers.items()}
        return {**drawn, **integers, **{k: np.float32(v) for k, v in floats.items()}, **ends}
    if name == "lines":
        shapes = {"w0": (16, 3, 3, 3), "b0": (16,), "w1": (32, 16, 3, 3), "b1": (32,)}
        shapes |= {"w": (2, 32, 32), "r": (2, 32, 8), "b": (2, 64), "wo": (16, 20)}
        lists = {"zero": [0], "two": [2], "rest": [-1]}
        integers = {key: np.array(it, np.int64) for key, it in lists.items()}
        return {**_drawn(random, **shapes), **integers}
    if name == "resized":
        return {**_drawn(random, w0=(8, 3, 3, 3)), "scales": np.array([1, 1, 2, 1.5], np.float32)}
    shapes = {"w0": (32, 3, 3, 3), "w1": (32, 32, 3, 3), "w2": (32, 1, 3, 3), "wo": (32, 5)}
    norms = {f"a{i}": np.abs(random.standard_normal(32)).astype(np.float32) for i in range(4)}
    return {**_drawn(random, **shapes), **norms}


_RESIZED = """(float[n,3,h,w] x) => (float[n,8,p,q] y) {
    c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0)
    r = Resize<mode="linear">(c, "", scales)
    y = Relu(r)
}"""

_TEXTS = {"words": _WORDS, "lines": _LINES, "images": _IMAGES, "resized": _RESIZED}


def model(name: str) -> onnx.ModelProto:
    made = parsed(_TEXTS[name])
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(it), key) for key, it in _constants(name).items()
    )
    return made


def inputs(name: str, *extents: int) -> Arrays:
    random = np.random.default_rng(sum(extents))
    if name == "words":
        mask = random.random(extents) < 0.8
        return {"ids": random.integers(0, 50, extents), "mask": mask.astype(np.int64)}
    n, *plane = extents
    shape = (n, 3, *((16, *plane) if name == "lines" else plane))
    return {"x": random.standard_normal(shape).astype(np.float32)}
