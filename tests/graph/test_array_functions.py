"""Functions of arrays in the core, beside what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from dlprim import _core
from dlprim.graph import gradient, interpret
from dlprim.graph.builder import Builder
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.operators.operator import CALLS
from drawing import RNG

pytestmark = pytest.mark.any_level
assert dlprim.onnx  # whose operators fill the table of calls

Results = list[tuple[tuple[int, ...], Any]]


def called(
    function: str, arrays: list[np.ndarray], results: Results, atol: float = 0, **attributes: Any
) -> list[np.ndarray]:
    """In a network, whose only step is one of the core; the same as NumPy gives."""
    build = Builder()
    values = [build.input(f"x{at}", it.shape, it.dtype) for at, it in enumerate(arrays)]
    graph = compile_graph(build.graph(build.call(function, values, results, **attributes)))
    made = graph.run(arrays)
    assert graph.steps() == (1, 0)
    named = {**attributes, "results": tuple((shape, np.dtype(it).name) for shape, it in results)}
    for one, right in zip(made, CALLS[function].compute(arrays, named), strict=True):
        assert one.dtype == right.dtype
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=atol)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("extents", "taps"), [((5, 7), 2), ((9,), 4), ((3, 4, 5), 1), ((6, 2), 4)])
@pytest.mark.parametrize(("places", "channels"), [(1, 3), (150, 20)])
def test_sums_of_rows_between_pixels(
    extents: tuple[int, ...], taps: int, dtype: str, places: int, channels: int
) -> None:
    """Places before, between and behind pixels, among them what is no number."""
    x = RNG.standard_normal((2, *extents, channels)).astype(dtype)
    pairs = []
    for end in extents:
        for _ in range(taps):
            where = RNG.uniform(-2, end + 1, (2, places, 1))
            where[RNG.random(where.shape) < 0.1] = RNG.choice([np.nan, np.inf, -np.inf, -1, end])
            pairs += [where.astype(dtype), RNG.standard_normal(where.shape).astype(dtype)]
    result = [((2, places, channels), dtype)]
    with np.errstate(invalid="ignore"):
        called("weighted_rows", [x, *pairs], result, 1e-4, taps=taps)


@pytest.mark.parametrize("function", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "int8"])
def test_places_of_ends(function: str, dtype: str) -> None:
    for shape, axis in (((3, 7), 1), ((2, 300, 5), 1), ((4, 1000), 1), ((90, 3, 40), 0), ((5,), 0)):
        x = RNG.integers(0, 60, shape).astype(dtype)  # with equal ones
        ends = x.min() if function == "argmin" else x.max()
        for last in (False, True):
            rest = (*shape[:axis], *shape[axis + 1 :])
            (y,) = called(function, [x], [(rest, np.int64)], axis=axis, last=last)
            if not rest:
                assert y == np.flatnonzero(x == ends)[-1 if last else 0]


@pytest.mark.parametrize("last", [False, True])
def test_what_is_no_number_is_the_farthest(last: bool) -> None:
    for shape, axis in (((6, 200), 1), ((200, 64), 0), ((6, 203), 1)):
        x = RNG.standard_normal(shape).astype(np.float32)
        x[RNG.random(shape) < 0.01] = np.nan
        x[-1, -1] = np.nan
        x[RNG.random(shape) < 0.1] = -np.inf
        rest = (shape[1 - axis],)
        called("argmax", [x], [(rest, np.int64)], axis=axis, last=last)


def run_while_one_changes(
    graph: CompiledGraph, x: np.ndarray, at: Any, others: list[int]
) -> Iterator[np.ndarray]:
    """Results while another thread writes elements of x by turns."""
    ended = Event()

    def change() -> None:
        while not ended.is_set():
            for other in others:
                x[at] = other

    writer = Thread(target=change)
    writer.start()
    try:
        for _ in range(300):
            yield graph.run([x])[0]
    finally:
        ended.set()
        writer.join()


@pytest.mark.parametrize("last", [False, True])
def test_places_of_ends_stay_inside_while_elements_change(last: bool) -> None:
    x = np.zeros((1, 1 << 16), np.int32)
    build = Builder()
    value = build.input("x", x.shape, x.dtype)
    how = {"axis": 1, "last": last}
    graph = compile_graph(build.graph(build.call("argmax", [value], [((1,), np.int64)], **how)))
    # Not the element that the search ends at.
    at = (0, slice(1, None)) if last else (0, slice(None, -1))
    for y in run_while_one_changes(graph, x, at, [1, 2, 3]):
        assert 0 <= y[0] < x.size


def test_rows_of_one_element_stay_their_own_while_places_change() -> None:
    x = np.full(1 << 12, 3)
    build = Builder()
    value = build.input("x", x.shape, x.dtype)
    graph = compile_graph(build.graph(build.call("one_hot", [value], [((x.size, 7), np.float32)])))
    for y in run_while_one_changes(graph, x, slice(None), [3, 8]):
        assert y.sum(axis=1).max() <= 1


def test_elements_are_found_among_keys() -> None:
    for keys in (np.array([3]), np.arange(50) * 3 - 20, np.array([-(2**63), 0, 5, 2**63 - 1])):
        x = RNG.choice(np.concatenate([keys, keys[:-1] + 1]), (40, 5))
        places = RNG.permutation(keys.size)
        (y,) = called("look_up", [x, keys, places], [(x.shape, np.int64)])
        known = dict(zip(keys.tolist(), places.tolist(), strict=True))
        assert y.reshape(-1).tolist() == [known.get(it, keys.size) for it in x.reshape(-1).tolist()]
    for dtype in (np.float32, np.float64):
        keys = np.array([-np.inf, -1.5, 0.25, 3, np.nan], dtype)
        x = np.array([[0.25, np.nan, 7, -np.inf], [-0.0, np.inf, 3, -1.5]], dtype)
        (y,) = called("look_up", [x, keys, np.arange(5)], [(x.shape, np.int64)])
        assert y.tolist() == [[2, 4, 5, 0], [5, 5, 3, 1]]


def test_rows_of_one_element() -> None:
    x = RNG.integers(0, 8, (6, 3))  # 7 is none of them
    (y,) = called("one_hot", [x], [((6, 3, 7), np.float32)])
    np.testing.assert_array_equal(y, np.eye(8, 7, dtype=np.float32)[x])


@pytest.mark.parametrize("n", [1, 2, 5, 33, 64])
def test_inverses(n: int) -> None:
    x = RNG.standard_normal((3, 2, n, n))
    x[0, 0] = x[0, 0][::-1]  # no pivot is where it would be
    x[1, 1, :, 0] = 0
    for dtype in (np.float32, np.float64):
        given = x.astype(dtype)
        (y,) = called("inverse", [given], [(x.shape, dtype)])
        assert np.isnan(y[1, 1]).all()
        product = y[0, 0].astype(np.float64) @ given[0, 0]
        np.testing.assert_allclose(product, np.eye(n), atol=2e-2 if dtype == np.float32 else 1e-8)


def test_hashes_of_words_of_both_sizes() -> None:
    for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64):
        x = RNG.integers(0, 1 << 30, (7, 9)).astype(dtype)
        called("murmur3", [x], [(x.shape, np.uint32)], seed=4294967295)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_runs_of_tokens(dtype: Any) -> None:
    for size in (1, 2, 5, 12):
        tokens = RNG.integers(0, 3, (5, 12)).astype(dtype)
        scores = RNG.standard_normal((5, 4)).astype(np.float32)
        called("repeated_ngrams", [tokens, scores], [(scores.shape, np.float32)], size=size)
    with pytest.raises(IndexError, match="a token is 7, expected one of 4 scores"):
        called("repeated_ngrams", [tokens + 7 - tokens, scores], [((5, 4), np.float32)], size=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("function", ["running_sum", "running_product"])
def test_running_totals(function: str, dtype: Any) -> None:
    for shape, axis in (((3, 40), 1), ((4, 7, 5), 1), ((6,), 0), ((5, 3), 0)):
        for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True)):
            x = RNG.integers(-3, 4, shape).astype(dtype)
            how = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
            called(function, [x], [(shape, dtype)], **how)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_products_of_integers(dtype: str) -> None:
    for left, right in (((3, 4), (4, 5)), ((2, 3, 7, 4), (4, 5)), ((3, 1, 7, 4), (2, 4, 33))):
        a = RNG.integers(-(2**31), 2**31 - 1, left).astype(dtype)
        b = RNG.integers(-(2**31), 2**31 - 1, right).astype(dtype)
        build = Builder()
        y = build.matmul(build.input("a", left, dtype), build.input("b", right, dtype))
        graph = compile_graph(build.graph([y]))
        assert graph.steps()[1] == 0
        np.testing.assert_array_equal(graph.run([a, b])[0], a @ b)


def test_elements_are_taken_along_any_axis() -> None:
    for dtype in (np.float32, np.float64, np.int64, np.uint8, bool):
        x = RNG.integers(0, 2, (4, 6, 5)).astype(dtype)
        for axis, places in ((1, RNG.integers(-6, 6, (3, 2))), (2, np.array([4, 0, -5], np.int32))):
            build = Builder()
            values = build.input("x", x.shape, dtype), build.input("p", places.shape, places.dtype)
            graph = compile_graph(build.graph([build.gather(*values, axis)]))
            assert graph.steps() == (1, 0)
            np.testing.assert_array_equal(graph.run([x, places])[0], np.take(x, places, axis))
            with pytest.raises(IndexError, match=f"index {x.shape[axis]} is outside"):
                graph.run([x, np.full_like(places, x.shape[axis])])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 5, 8), (2, 3, 6, 8)]),
        ("bqhd,bkhd->bhqk", [(2, 17, 4, 8), (2, 19, 4, 8)]),
        ("bij->bi", [(2, 3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ii->i", [(4, 4)]),
        ("ab,ab->", [(3, 4), (3, 4)]),
        ("bn,anm,bm->ba", [(3, 4), (5, 4, 6), (3, 6)]),
    ],
)
def test_sums_of_products_by_letters(equation: str, shapes: list[tuple[int, ...]]) -> None:
    build = Builder()
    arrays = [RNG.standard_normal(it).astype(np.float32) for it in shapes]
    values = [build.input(f"x{at}", it.shape, it.dtype) for at, it in enumerate(arrays)]
    graph = compile_graph(build.graph(build.emit("einsum", values, equation=equation)))
    assert graph.steps() == (1, 0)
    due = np.einsum(equation, *(it.astype(float) for it in arrays))
    np.testing.assert_allclose(graph.run(arrays)[0], due, rtol=1e-5, atol=1e-5)


def test_channels_are_normalised_alone() -> None:
    x = RNG.standard_normal((2, 5, 7, 9)).astype(np.float32) * 3 + 100
    weight, bias = RNG.standard_normal((2, 5)).astype(np.float32)
    build = Builder()
    operands = [build.input("x", x.shape, x.dtype), build.constant(weight), build.constant(bias)]
    graph = compile_graph(build.graph(build.emit("group_norm", operands, groups=5, epsilon=1e-3)))
    assert graph.steps() == (1, 0)
    wide = x.astype(float)
    due = wide - wide.mean((2, 3), keepdims=True)
    due /= np.sqrt((due**2).mean((2, 3), keepdims=True) + 1e-3)
    due = due * weight[:, None, None] + bias[:, None, None]
    np.testing.assert_allclose(graph.run([x])[0], due, rtol=1e-4, atol=1e-4)


def test_no_box_is_kept_where_fewer_than_none_are_asked_for() -> None:
    boxes = RNG.uniform(0, 1, (1, 5000, 4)).astype(np.float32)
    scores = RNG.uniform(0, 1, (1, 1, 5000)).astype(np.float32)
    for most in (0, -1, -20, -(2**62)):
        assert len(_core.kept_boxes(boxes, scores, most, 0.5, 0.0, False)) == 0


def test_few_boxes_of_many_are_the_best_in_order() -> None:
    """Nothing overlaps, so that scores alone decide; of equal ones, and of two zeros, the first."""
    places = np.arange(3000, dtype=np.float32)[:, None]
    boxes = np.concatenate([places, places, places + 0.5, places + 0.5], 1)[None]
    for scores in (
        RNG.standard_normal(3000),
        RNG.integers(0, 5, 3000),
        np.where(RNG.random(3000) < 0.5, -0.0, 0.0),
        np.exp(RNG.uniform(-80, 80, 3000)) * RNG.choice([-1, 1], 3000),
        np.append(RNG.random(2999), np.inf),
        np.append(RNG.random(2999), np.nan),
    ):
        line = scores.astype(np.float32)
        counted = np.flatnonzero(line > -1e30)
        due = counted[np.argsort(-line[counted], kind="stable")]
        for most in (1, 10, 700, 5000):
            found = _core.kept_boxes(boxes, line.reshape(1, 1, -1), most, 0.5, -1e30, False)
            np.testing.assert_array_equal(found[:, 2], due[:most])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "int64"])
@pytest.mark.parametrize("shape", [(), (0,), (9,), (4, 0, 3), (5, 7), (2, 3, 4, 5)])
def test_places_of_what_is_not_zero(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.asarray(RNG.integers(-1, 2, shape)).astype(dtype)
    if x.dtype.kind == "f":
        x = np.where(x < 0, -0.0, x).astype(dtype)
    line = x if shape else x.reshape(1)  # a single number lies along one axis
    due = [at for at in np.ndindex(line.shape) if line[at]]
    found = _core.nonzero_places(x)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.reshape(due, (len(due), line.ndim)).T)


def test_places_of_an_array_that_lies_otherwise() -> None:
    x = RNG.integers(0, 2, (6, 8)).astype(np.float32)
    turned = x.T[::2]
    np.testing.assert_array_equal(_core.nonzero_places(turned), np.nonzero(turned))
    with pytest.raises(TypeError, match="numbers of at most 8 bytes"):
        _core.nonzero_places(x.astype(np.complex64))
    with pytest.raises(TypeError, match="native byte order"):
        _core.nonzero_places(x.astype(">f4"))


def test_gradients_of_weights_do_not_read_beside_the_pixels() -> None:
    b = Builder()
    x = b.input("x", (1, 3, 4, 2), "float32")
    pairs = [b.input(name, (1, 2, 1), "float32") for name in ("y", "weight y", "x", "weight x")]
    made = b.call("weighted_rows", [x, *pairs], [((1, 2, 2), np.dtype(np.float32))], taps=1)
    graph = b.graph(made)
    joint = gradient(graph, graph.outputs, [pairs[1], pairs[3]])
    rows = np.ones(x.shape, np.float32)
    rows[0, 1, 0] = np.nan
    one = np.ones((1, 2, 1), np.float32)
    down, across = (np.array(it, np.float32).reshape(1, 2, 1) for it in ((1, 2), (9, 1)))
    arrays = [rows, down, one, across, one, np.ones((1, 2, 2), np.float32)]
    for found in interpret(joint, arrays)[1:]:
        np.testing.assert_array_equal(found.ravel(), [0, 2])
