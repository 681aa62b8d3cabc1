"""Streams of shapes: a network that was compiled for some gives all others what a new one would."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with it")

import onnx.numpy_helper
import streamed_models

import dlprim.onnx
from dlprim.graph import networks
from dlprim.graph.recording import Recording

STREAMS = {
    "words": [(1, 7), (1, 9), (2, 9), (3, 17), (1, 2), (1, 1), (4, 4), (2, 64), (0, 5), (2, 65),
              (16, 4), (4, 16), (1, 299), (5, 3)],
    "lines": [(1, 40), (1, 44), (1, 57), (2, 33), (3, 64), (1, 100), (1, 8), (4, 19), (1, 5)],
    "images": [(1, 16, 16), (1, 24, 20), (2, 16, 16), (2, 33, 17), (9, 8, 8), (1, 64, 48),
               (3, 5, 7), (1, 1, 9), (8, 24, 20)],
    "resized": [(1, 8, 8), (1, 9, 11), (2, 6, 6), (1, 5, 8)],
}  # fmt: skip


@pytest.mark.any_level
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("name", STREAMS)
def test_every_shape_gets_what_a_new_model_gives(name: str, dtype: str | None) -> None:
    made = streamed_models.model(name)
    kept = dlprim.onnx.load(made, dtype=dtype)
    for extents in STREAMS[name]:
        arrays = streamed_models.inputs(name, *extents)
        expected = dlprim.onnx.load(made, dtype=dtype).run(arrays)
        for found, due in zip(kept.run(arrays), expected, strict=True):
            np.testing.assert_array_equal(found, due, f"{extents}")


@pytest.mark.any_level
@pytest.mark.parametrize("name", ["words", "lines", "images"])
def test_shapes_that_are_alike_are_compiled_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings = []

    class Counted(Recording):
        def __init__(self) -> None:
            super().__init__()
            recordings.append(self)

    monkeypatch.setattr(networks, "Recording", Counted)
    model = dlprim.onnx.load(streamed_models.model(name))
    for extent in range(40, 60):
        extents = (2, extent, 48) if name == "images" else (2, extent)
        model.run(streamed_models.inputs(name, *extents))
    # Such as a rest of rows beside pieces, or a padding that is there or not.
    assert len(recordings) <= 4


@pytest.mark.parametrize("kept", [1, 32])
def test_shapes_from_many_threads(kept: int) -> None:
    """With 1, networks are dropped while other threads run them."""
    made = streamed_models.model("words")
    model = dlprim.onnx.load(made, kept_shapes=kept)
    shapes = [(n, s) for n in (1, 2, 3) for s in range(3, 40, 3)]
    expected = {
        it: dlprim.onnx.load(made).run(streamed_models.inputs("words", *it)) for it in shapes
    }
    faults: list[Any] = []

    def call(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(40):
            extents = draw.choice(shapes)
            found = model.run(streamed_models.inputs("words", *extents))
            if not all(map(np.array_equal, found, expected[extents])):
                faults.append(extents)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert faults == []


def test_children_of_fork_make_networks_of_their_own() -> None:
    made = streamed_models.model("words")
    model = dlprim.onnx.load(made)
    arrays = {it: streamed_models.inputs("words", 2, it) for it in range(5, 12)}
    expected = {it: dlprim.onnx.load(made).run(arrays[it])[0] for it in (9, 10, 11)}
    for steps in (5, 6, 7, 8):
        model.run(arrays[steps])
    child = os.fork()
    if child == 0:
        right = all(np.array_equal(model.run(arrays[it])[0], expected[it]) for it in expected)
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(model.run(arrays[9])[0], expected[9])


# A thread of the parent is about to make a network, holds what it locked, and never goes on.
_HELD = """
import os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
import streamed_models
import dlprim.onnx
from dlprim.onnx.parts.part import Part

model = dlprim.onnx.load(streamed_models.model("words"))
made, parent, begun, ended = Part._network, os.getpid(), threading.Event(), threading.Event()

def network(self, arrays):
    if os.getpid() == parent:
        begun.set()
        ended.wait()
    return made(self, arrays)

Part._network = network
thread = threading.Thread(target=model.run, args=(streamed_models.inputs("words", 2, 5),))
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    model.run(streamed_models.inputs("words", 2, 6))
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ended.set()
thread.join()
sys.exit(code != 0)
"""


def test_a_child_of_fork_does_not_wait_for_a_thread_that_makes_a_network() -> None:
    folder = str(Path(__file__).parent)
    ran = subprocess.run([sys.executable, "-c", _HELD, folder], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.any_level
def test_a_model_that_refuses_a_shape_says_why_and_goes_on() -> None:
    model = dlprim.onnx.load(streamed_models.model("words"))
    for steps in (5, 6, 7):
        model.run(streamed_models.inputs("words", 1, steps))
    with pytest.raises(dlprim.onnx.ModelError, match="301"):
        model.run(streamed_models.inputs("words", 1, 301))
    assert model.run(streamed_models.inputs("words", 1, 8))[0].shape == (1, 8, 64)


@pytest.mark.any_level
def test_as_many_shapes_are_kept_as_somebody_says() -> None:
    made = streamed_models.model("words")
    model = dlprim.onnx.load(made, kept_shapes=3)
    for steps in range(2, 12):
        model.run(streamed_models.inputs("words", 1, steps))
    assert len(model._executor.whole.networks._kept) == 3
    with pytest.raises(ValueError, match="kept_shapes is 0, expected at least 1"):
        dlprim.onnx.load(made, kept_shapes=0)
    with pytest.raises(TypeError, match="kept_shapes is of type float"):
        dlprim.onnx.load(made, kept_shapes=2.0)  # type: ignore[arg-type]


# What follows from shapes alone: the steps, in front of a slice that ends there.
_ARITHMETIC = {
    "bytes that wrap": "u = Cast<to=2>(s)  e = Cast<to=7>(u)",
    "products that wrap": """i = Cast<to=6>(s)  m = Mul(i, many)  d = Div(m, many)
        e = Cast<to=7>(d)""",
    "sums that wrap": "e = Add(s, huge)",
    "an extreme": "r = ReduceMax<keepdims=1>(s)  e = Identity(r)",
    "a choice": "c = Less(s, twenty)  e = Where(c, s, twenty)",
}


@pytest.mark.any_level
@pytest.mark.parametrize("steps", _ARITHMETIC.values(), ids=list(_ARITHMETIC))
def test_arithmetic_on_extents_is_that_of_their_type(steps: str) -> None:
    made = streamed_models.parsed(
        "(float[n,m] x) => (float[n,k] y) { s0 = Shape<start=1>(x)  s = Identity(s0) "
        + steps
        + " y = Slice(x, zero, e, one) }"
    )
    numbers = {"many": np.array([2**25], np.int32), "huge": np.array([2**63 - 4])}
    numbers |= {name: np.array([it]) for name, it in (("twenty", 20), ("zero", 0), ("one", 1))}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(it, name) for name, it in numbers.items()
    )
    kept = dlprim.onnx.load(made)
    for extents in ((2, 3), (2, 4), (2, 5), (3, 60), (2, 300), (4, 301), (1, 19), (5, 21)):
        x = np.arange(np.prod(extents), dtype=np.float32).reshape(extents)
        np.testing.assert_array_equal(kept(x), dlprim.onnx.load(made)(x), f"{extents}")


_CONSTANT = {
    "a causal mask": """(float[b,h,s,16] q) => (float[b,h,s,16] y) {
        shape = Shape(q)  n = Slice(shape, two, three)
        t = Slice(table, zeros, ends, places)
        u = Slice(t, zero, n, three)  m = Slice(u, zero, n, two)
        k = Transpose<perm=[0,1,3,2]>(q)  p = MatMul(q, k)
        c = Where(m, p, least)  a = Softmax<axis=-1>(c)  y = MatMul(a, q) }""",
    "lengths": """(float[t,n,4] x) => (float[t,1,n,5] y) {
        shape = Shape(x)  n = Slice(shape, one, two)  t0 = Slice(shape, zero, one)
        t1 = Cast<to=6>(t0)  lengths = Expand(t1, n)
        y, last, cell = LSTM<hidden_size=5>(x, w, r, b, lengths) }""",
    "weights of a norm": """(float[n,m,8] x) => (float[n,m,8] y) {
        shape = Shape(x)  k = Slice(shape, one, three)  g = Expand(scale, k)
        y = LayerNormalization<axis=1>(x, g) }""",
    "zeros": """(float[n,m,8] x) => (float[n,m,8] y) {
        shape = Shape(x)  z = ConstantOfShape(shape)  u = Transpose<perm=[0,2,1]>(z)
        p = MatMul(x, u)  v = MatMul(p, x)  y = Add(v, x) }""",
}


@pytest.mark.any_level
@pytest.mark.parametrize("text", _CONSTANT.values(), ids=list(_CONSTANT))
def test_constants_of_unknown_extents_decide_as_in_a_new_model(text: str) -> None:
    random = np.random.default_rng(0)
    made = streamed_models.parsed(text)
    arrays = {name: np.array([it]) for it, name in enumerate(("zero", "one", "two", "three"))}
    arrays |= {"zeros": np.array([0, 0]), "ends": np.array([1, 1]), "places": np.array([0, 1])}
    arrays |= {"table": np.tri(40, dtype=bool)[None, None], "least": np.float32(-1e30)}
    arrays |= {"scale": random.standard_normal((1, 8)).astype(np.float32)}
    for name, shape in (("w", (1, 20, 4)), ("r", (1, 20, 5)), ("b", (1, 40))):
        arrays[name] = random.standard_normal(shape).astype(np.float32)
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(it), name) for name, it in arrays.items()
    )
    port = made.graph.input[0]
    rank = len(port.type.tensor_type.shape.dim)
    kept = dlprim.onnx.load(made)
    for n, m in ((2, 3), (2, 4), (3, 5), (2, 7), (1, 9), (4, 4), (2, 31), (5, 2), (2, 32)):
        last = port.type.tensor_type.shape.dim[-1].dim_value
        x = random.standard_normal((n, *(2,) * (rank - 3), m, last)).astype(np.float32)
        np.testing.assert_array_equal(kept(x), dlprim.onnx.load(made)(x), f"{x.shape}")


@pytest.mark.any_level
def test_what_data_decide_is_bounded() -> None:
    made = streamed_models.parsed(
        "(float[n] x, int64[k] s) => (float[p,q] y) { y = Reshape(x, s) }"
    )
    model = dlprim.onnx.load(made, kept_shapes=4)
    for n in range(1, 20):
        assert model(np.ones(2 * n, np.float32), np.array([2, n])).shape == (2, n)
    assert model._executor.whole is None  # the node runs alone, and nothing is made for it


@pytest.mark.any_level
def test_what_cannot_be_recorded_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    made = streamed_models.parsed(
        "(float[n,m] x) => (float[n,m] y) { s = Shape(x)  n = Gather(s, one)"
        "  r = Range(zero, n, one)  f = Cast<to=1>(r)  p = NonZero(f)  q = Squeeze(p)"
        "  g = Cast<to=1>(q)  h = Pad(g, front)  y = Add(x, h) }"
    )
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(it), name)
        for it, name in ((0, "zero"), (1, "one"), ([1, 0], "front"))
    )
    tried = []

    class Counted(Recording):
        def __init__(self) -> None:
            super().__init__()
            tried.append(self)

    monkeypatch.setattr(networks, "Recording", Counted)
    model = dlprim.onnx.load(made)
    for n in range(3, 40):
        x = np.ones((2, n), np.float32)
        np.testing.assert_array_equal(model(x), x + np.arange(n, dtype=np.float32))
    assert len(tried) <= 4
