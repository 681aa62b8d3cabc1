"""Runs of whole networks: what they refuse, from many threads at once, and what they leave."""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from network_cases import FLOATS, SmallConvNet, core, formula, normal


def calling(
    function: Callable[..., Any], *shapes: tuple[int, ...], results: int = 1
) -> core.Network:
    """A network of a function on inputs, each result like the first input."""
    network = core.Network()
    inputs = [network.input(shape, FLOATS) for shape in shapes]
    outputs = [network.temporary(shapes[0], FLOATS) for _ in range(results)]
    network.call(function, inputs, outputs, "ours")
    network.finish(outputs)
    return network


def test_functions_in_python() -> None:
    x, z = normal(3, 4), normal(3, 4)
    (y,) = calling(np.subtract, (3, 4), (3, 4)).run([x, z])
    np.testing.assert_array_equal(y, x - z)
    both = calling(lambda x: (x[::-1], x + 1), (3, 4), results=2).run([x])
    np.testing.assert_array_equal(both, [x[::-1], x + 1])


def test_functions_may_keep_what_they_get() -> None:
    kept: list[np.ndarray] = []
    network = calling(lambda x: kept.append(x) or x, (1000,))
    given = [normal(1000) for _ in range(3)]
    for x in given:
        network.run([x])
    np.testing.assert_array_equal(kept, given)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (np.zeros((3, 4)), r"step ours returned float64 \(3, 4\), expected float32 \(3, 4\)"),
        (np.zeros(3, np.float32), r"step ours returned float32 \(3,\), expected float32 \(3, 4\)"),
        ((), "step ours returned 0 arrays, expected 1"),
        (None, "step ours returned object"),
    ],
)
def test_functions_that_return_something_else(result: Any, sentence: str) -> None:
    network = calling(lambda _: result, (3, 4))
    with pytest.raises(ValueError, match=sentence):
        network.run([normal(3, 4)])


def test_functions_that_raise_leave_the_network_usable() -> None:
    def careful(x: np.ndarray) -> np.ndarray:
        if x[0] < 0:
            raise KeyError("below zero")
        return x * 2

    network = calling(careful, (3,))
    for _ in range(3):
        with pytest.raises(KeyError, match="below zero"):
            network.run([np.full(3, -1, np.float32)])
        with pytest.raises(KeyError, match="below zero"):
            network.profile([np.full(3, -1, np.float32)])
        np.testing.assert_array_equal(network.run([np.ones(3, np.float32)])[0], [2, 2, 2])


def test_functions_may_run_networks() -> None:
    inner = SmallConvNet()
    network = inner.network()

    def twice(x: np.ndarray) -> np.ndarray:
        return network.run([x])[0][:, :3] + network.run([x])[0][:, :3]

    x = normal(*inner.shape)
    (y,) = calling(twice, inner.shape).run([x])
    np.testing.assert_allclose(y, 2 * inner.expected(x)[:, :3], 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("x", "error", "sentence"),
    [
        (np.zeros((2, 3)), TypeError, r"input x is float64 \(2, 3\), expected float32 \(2, 3\)"),
        (normal(3, 2), ValueError, r"input x is float32 \(3, 2\), expected float32 \(2, 3\)"),
        (normal(2, 3).astype(">f4"), TypeError, "input x is >f4"),
        ([1, 2], TypeError, "input x is of type list, expected a NumPy array of float32"),
        (np.ma.masked_less(normal(2, 3), 0), TypeError, "input x is of type MaskedArray"),
        (None, TypeError, "input x is of type NoneType"),
    ],
)
def test_wrong_inputs(x: Any, error: type[Exception], sentence: str) -> None:
    network = core.Network()
    network.finish([network.input((2, 3), FLOATS, "x")])
    with pytest.raises(error, match=sentence):
        network.run([x])
    with pytest.raises(TypeError, match="2 arrays were given, expected 1"):
        network.run([x, x])


def test_inputs_that_are_not_contiguous_are_copied() -> None:
    network = core.Network()
    network.finish([network.input((2, 3), FLOATS)])
    for x in (normal(3, 2).T, normal(2, 6)[:, ::2], normal(2, 3)[::-1], unaligned(normal(2, 3))):
        np.testing.assert_array_equal(network.run([x])[0], x)


def unaligned(x: np.ndarray) -> np.ndarray:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    made: np.ndarray = memory[1:].view(x.dtype).reshape(x.shape)
    made[...] = x
    return made


def test_given_results() -> None:
    network = core.Network()
    x = network.input((2, 3), FLOATS, "x")
    y = network.temporary((2, 3), FLOATS)
    network.copy(x, y)
    fixed = normal(2, 3)
    network.finish([y, x, network.constant(fixed)])
    given, out = normal(2, 3), np.empty((2, 3), np.float32)
    results = network.run([given], [out, None, None])
    assert results[0] is out
    np.testing.assert_array_equal(out, given)
    read_only = np.empty((2, 3), np.float32)
    read_only.flags.writeable = False
    for wrong, sentence in (
        (given, r"out\[1\] shares memory with input x"),
        (out, r"out\[1\] shares memory with out\[0\]"),
        (fixed, r"out\[1\] shares memory with a constant"),
        (read_only, r"out\[1\] is read-only"),
        (np.empty((3, 2), np.float32).T, r"out\[1\] is not C-contiguous"),
        (np.empty((3, 2), np.float32), r"out\[1\] is float32 \(3, 2\), expected float32 \(2, 3\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            network.run([given], [out, wrong, None])
    with pytest.raises(TypeError, match="out has 1 arrays, expected 3"):
        network.run([given], [out])


def test_what_cannot_be_built() -> None:
    network = core.Network()
    x, t = network.input((4, 4), FLOATS, "x"), network.temporary((4, 4), FLOATS)
    for sentence, wrong in {
        "there is no value 7, expected one of the 2": lambda: network.copy(7, t),
        r"step 0 \(copy\) reads value 1, which no step before it": lambda: network.copy(t, t),
        r"writes value 0, which is an input or a constant": lambda: network.copy(x, x),
        "reaches from byte 4 to 68, expected a view within its bytes 0 to 64": lambda: network.view(
            x, (4, 4), FLOATS, offset=4
        ),
        "strides has 1 elements, expected one for each of the 2 axes": lambda: network.view(
            x, (4, 4), FLOATS, (4,)
        ),
        r"a copy is from float32 \(4, 4\) to int32 \(4, 4\)": lambda: network.copy(
            x, network.temporary((4, 4), np.int32)
        ),
        r"a value is float32 \(-1,\), expected extents": lambda: network.temporary((-1,), FLOATS),
        "a result reads value 1, which no step before it has written": lambda: network.finish([t]),
    }.items():
        with pytest.raises(ValueError, match=sentence):
            wrong()
    with pytest.raises(TypeError, match="a value is of dtype object, expected numbers"):
        network.input((2,), object)
    with pytest.raises(ValueError, match="the network is not finished"):
        network.run([normal(4, 4)])
    network.copy(x, t)
    network.finish([t])
    assert network.run([np.eye(4, dtype=np.float32)])[0].trace() == 4
    with pytest.raises(ValueError, match="the network is finished: nothing can be added"):
        network.copy(x, t)


def test_steps_refuse_values_of_other_primitives() -> None:
    small = SmallConvNet()
    network, first = core.Network(), small.first._core
    src = network.input(first.shapes["src"], FLOATS)
    plain = network.input(small.shape, FLOATS)
    dst = network.temporary(first.shapes["dst"], FLOATS)
    weights = network.constant(small.first.pack_weights(small.w1))
    others = network.constant(small.second.pack_weights(small.w2))
    bias = network.constant(small.bias)
    tensors = {"src": src, "weights": weights, "bias": bias, "dst": dst}
    for sentence, change in {
        r"step c \(conv2d\): src is float32 \(2, 3, 12, 12\), expected float32": {"src": plain},
        r"step c \(conv2d\): weights is float32": {"weights": others},
        "bias is missing: the convolution was made with bias=True": {"bias": -1},
        r"step c \(conv2d\): dst is missing, expected a value": {"dst": -1},
        r"step c \(conv2d\): it was given .*'scale': 5.* does not take all": {"scale": bias},
    }.items():
        with pytest.raises(ValueError, match=sentence):
            network.conv2d(first, "c", **{**tensors, **change})
    halves = core.Formula(core.Definition("y(i) = 2 * x(i)"), [normal(4)], {}, {}, ["float32"])
    whole = network.input((4,), ml_dtypes.bfloat16)
    with pytest.raises(ValueError, match=r"x is bfloat16 \(4,\), an array of shape \(4,\)"):
        network.formula(halves, [whole], [network.temporary((4,), FLOATS)])
    with pytest.raises(ValueError, match=r"an operand of relu is float32 .*, expected 12 elements"):
        network.rows("relu", "float32", (3, 4), [src, src])


def test_threads_share_a_network() -> None:
    small = SmallConvNet()
    network = small.network()
    inputs = [normal(*small.shape) for _ in range(8)]
    expected = [network.run([x])[0] for x in inputs]
    start = threading.Barrier(8)

    def run(x: np.ndarray) -> list[np.ndarray]:
        start.wait()
        return [network.run([x])[0] for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        for results, wanted in zip(pool.map(run, inputs), expected, strict=True):
            for result in results:
                np.testing.assert_array_equal(result, wanted)


def test_the_same_bits_for_any_number_of_threads() -> None:
    small = SmallConvNet()
    network, x = small.network(), normal(*small.shape)
    results = []
    for count in (1, 2, 3):
        with dlprim.threads(count):
            results.append(network.run([x])[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_temporaries_share_memory() -> None:
    network = core.Network()
    value = network.input((1000,), FLOATS)
    twice = formula("y(i) = x(i) + x(i)", normal(1000))
    for _ in range(20):
        made = network.temporary((1000,), FLOATS)
        network.formula(twice, [value], [made])
        value = made
    network.finish([value])
    assert network.peak_bytes == network.live_bytes == 2 * 4032
    x = normal(1000)
    np.testing.assert_array_equal(network.run([x])[0], x * np.float32(2**20))


def resident() -> int:
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.large
def test_memory_does_not_grow() -> None:
    small = SmallConvNet()
    network, x = small.network(), normal(*small.shape)
    failing, large = calling(lambda _: np.zeros(1), (50_000,)), normal(50_000)

    def some_runs() -> None:
        for _ in range(1000):
            network.run([x])
        for _ in range(100):
            with pytest.raises(ValueError, match="returned"):
                failing.run([large])

    some_runs()
    before = resident()
    some_runs()
    assert resident() - before < 1 << 20


def test_what_a_network_needs_lives_as_long_as_it() -> None:
    small = SmallConvNet()
    network, x = small.network(), normal(*small.shape)
    expected = small.expected(x)
    del small
    gc.collect()
    np.testing.assert_allclose(network.run([x])[0], expected, 1e-4, 1e-4)


ADD = "y(i,j) = a(i,j) + b(i,j)"


def grown(network: core.Network, rng: np.random.Generator, known: list[tuple[int, Any]]) -> None:
    """One more value of (4, 6), from some of those that are known with their values."""
    (one, x), (other, z) = (known[int(rng.integers(len(known)))] for _ in range(2))
    made = network.temporary((4, 6), FLOATS)
    kind = int(rng.integers(5))
    if kind == 0:
        network.formula(formula(ADD, x, z), [one, other], [made])
        known.append((made, x + z))
    elif kind == 1:
        network.rows("relu", "float32", (4, 6), [one, made])
        known.append((made, np.maximum(x, 0)))
    elif kind == 2:  # the halves of two arrays, side by side
        halves = [network.view(made, (4, 3), FLOATS, (24, 4), offset) for offset in (0, 12)]
        sources = [network.view(it, (4, 3), FLOATS, (24, 4)) for it in (one, other)]
        for source, half in zip(sources, halves, strict=True):
            network.copy(source, half)
        known.append((made, np.concatenate([x[:, :3], z[:, :3]], 1)))
    elif kind == 3:  # transposed, and seen in the old shape
        network.copy(network.view(one, (6, 4), FLOATS, (4, 24)), network.view(made, (6, 4), FLOATS))
        known.append((made, np.ascontiguousarray(x.T).reshape(4, 6)))
    else:
        network.call(lambda a, b: a - b, [one, other], [made])
        known.append((made, x - z))


@pytest.mark.parametrize("seed", range(40))
def test_drawn_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network, x = core.Network(), normal(4, 6)
    known = [(network.input((4, 6), FLOATS), x)]
    for _ in range(int(rng.integers(1, 40))):
        # Mostly of late ones, so that the others die.
        recent = known[-int(rng.integers(1, 6)) :]
        before = len(recent)
        grown(network, rng, recent)
        known += recent[before:]
    results = [known[int(rng.integers(len(known)))] for _ in range(int(rng.integers(1, 4)))]
    network.finish([value for value, _ in results])
    for _ in range(2):
        for result, (_, expected) in zip(network.run([x]), results, strict=True):
            np.testing.assert_array_equal(result, expected)
