"""States: inputs that a run changes, in place where that can be done and right in any case."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import _core
from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.text import parse, text_of
from dlprim.graph.verify import verify
from networks import drawn

Array = np.ndarray[Any, Any]


def copies(arrays: Sequence[Array]) -> list[Array]:
    return [it.copy() for it in arrays]


def check(graph: Graph, arrays: Sequence[Array], compiled: CompiledGraph | None = None) -> None:
    """Two runs of it give what the interpreter gives, and change the same arrays."""
    verify(graph)
    compiled = compiled or compile_graph(graph)
    expected, given = copies(arrays), copies(arrays)
    for _ in range(2):
        right, found = interpret(graph, expected), compiled.run(given)
        for one, other in zip([*right, *expected], [*found, *given], strict=True):
            np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-5)


def mean_and_scaled() -> tuple[Builder, Value, Value, Value]:
    b = Builder()
    x, s = b.input("x", (8, 5), "float32"), b.input("s", (5,), "float32")
    mean = b.reduce("mean", x, (0,))
    kept = ("multiply", ("number", 0.9), ("input", 0))
    moved = b.map(("add", kept, ("multiply", ("number", 0.1), ("input", 1))), s, mean)
    return b, x, s, moved


def test_a_map_of_a_state_is_made_where_it_lies() -> None:
    b, x, s, moved = mean_and_scaled()
    graph = b.graph([b.apply("subtract", x, s)], {s: moved})
    compiled = compile_graph(graph)
    assert "changed" not in compiled.explain()
    check(graph, [drawn(8, 5), drawn(5)], compiled)


def test_readers_of_what_a_state_was_and_of_what_it_becomes() -> None:
    b, x, s, moved = mean_and_scaled()
    old, new = b.apply("subtract", x, s), b.apply("subtract", x, moved)
    both = b.apply("add", s, moved)
    check(b.graph([old, new, both, moved, s], {s: moved}), [drawn(8, 5), drawn(5)])


def test_views_of_a_state_are_what_it_was() -> None:
    b = Builder()
    x, w = b.input("x", (4, 3), "float32"), b.input("w", (3, 6), "float32")
    turned = b.transpose(w, (1, 0))
    step = b.apply("add", w, b.matmul(b.transpose(x, (1, 0)), b.constant(drawn(4, 6))))
    y = b.matmul(x, b.transpose(b.apply("exp", turned), (1, 0)))
    check(b.graph([y, turned, b.reshape(w, (18,))], {w: step}), [drawn(4, 3), drawn(3, 6)])


def test_two_states_change_places_and_one_becomes_a_constant() -> None:
    b = Builder()
    one, other, third = (b.input(name, (3,), "float32") for name in "abc")
    zeros = b.constant(np.zeros(3, np.float32))
    graph = b.graph([one], {one: other, other: one, third: zeros})
    check(graph, [drawn(3), drawn(3, seed=1), drawn(3, seed=2)])


def test_two_states_become_one_value_and_one_stays() -> None:
    b = Builder()
    one, other, third = (b.input(name, (3,), "float32") for name in "abc")
    both = b.apply("add", one, other)
    graph = b.graph([], {one: both, other: both, third: third})
    arrays = [drawn(3), drawn(3, seed=1), drawn(3, seed=2)]
    check(graph, arrays)
    arrays[2].flags.writeable = False  # which no step writes
    compile_graph(graph).run(arrays)


def test_a_counter_that_nobody_else_reads() -> None:
    b = Builder()
    count = b.input("count", (), "int64")
    graph = b.graph([], {count: b.map(("add", ("input", 0), ("number", 1.0)), count)})
    array = np.array(41, np.int64)
    assert compile_graph(graph).run([array]) == []
    assert array == 42
    check(graph, [array])


def test_a_run_that_refuses_an_index_leaves_states_as_they_were() -> None:
    """Whatever the order is in which the graph has its nodes."""
    b = Builder()
    s, table = b.input("s", (4,), "float32"), b.input("table", (3, 4), "float32")
    places = b.input("places", (2,), "int64")
    moved = b.apply("add", s, b.constant(drawn(4)))
    rows = b.gather(table, places, 0)
    late = b.gather(b.apply("add", table, moved), places, 0)  # and behind the change
    for outputs in ([rows], [rows, late]):
        graph = b.graph(outputs, {s: moved})
        compiled = compile_graph(graph)
        arrays = [drawn(4), drawn(3, 4), np.array([0, 3])]
        before = copies(arrays)
        with pytest.raises(IndexError, match="index 3"):
            compiled.run(arrays)
        for one, other in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(one, other)
        check(graph, [*arrays[:2], np.array([0, 2])], compiled)


def test_a_call_of_python_that_raises_leaves_states_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Builder()
    s, x = b.input("s", (4,), "float32"), b.input("x", (4, 4), "float32")
    moved = b.apply("add", s, b.constant(drawn(4)))
    (found,) = b.call("determinant", [x], [((), "float32")])
    graph = b.graph([found], {s: moved})
    compiled = compile_graph(graph)
    assert ": call(" in compiled.explain()
    check(graph, [drawn(4), drawn(4, 4)], compiled)
    array = drawn(4)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np.linalg, "det", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled.run([array, drawn(4, 4)])
    np.testing.assert_array_equal(array, drawn(4))


def test_arrays_of_states_are_checked_before_anything_runs() -> None:
    b, x, s, moved = mean_and_scaled()
    compiled = compile_graph(b.graph([b.apply("subtract", x, s)], {s: moved}))
    array = drawn(5)
    whole = np.zeros(45, np.float32)
    refused: list[tuple[Array, Array, str]] = [
        (drawn(8, 5), drawn(10)[::2], "not C-contiguous"),
        (drawn(8, 5), drawn(6), "expected float32"),
        (whole[:40].reshape(8, 5), whole[38:43], "share memory"),
        (whole[3:43].reshape(8, 5), whole[:5], "share memory"),
    ]
    fixed = array.copy()
    fixed.flags.writeable = False
    refused.append((drawn(8, 5), fixed, "read-only"))
    for given, state, reason in refused:
        before = state.copy()
        with pytest.raises(ValueError, match=reason):
            compiled.run([given, state])
        assert compiled.run_if_exact((given, state)) is None
        np.testing.assert_array_equal(state, before)
    # Arrays side by side are apart.
    compiled.run([whole[:40].reshape(8, 5), whole[40:]])


def test_a_state_is_no_constant_and_no_other_state() -> None:
    b = Builder()
    one, other = b.input("a", (3,), "float32"), b.input("b", (3,), "float32")
    fixed = drawn(2048)
    constant = b.constant(fixed[:3])
    graph = b.graph(
        [], {one: b.apply("add", one, constant), other: b.apply("subtract", other, constant)}
    )
    compiled = compile_graph(graph)
    array = drawn(3)
    with pytest.raises(ValueError, match="share memory"):
        compiled.run([array, array])
    assert compiled.run_if_exact((array, array)) is None
    compiled.run([array, array.copy()])
    with pytest.raises(ValueError, match="a constant"):
        compiled.run([fixed[2:5], array])


def test_graphs_whose_states_are_wrong_are_none() -> None:
    b = Builder()
    x, y = b.input("x", (3,), "float32"), b.input("y", (4,), "float32")
    with pytest.raises(ValueError, match="expected its shape"):
        verify(b.graph([], {x: y}))
    with pytest.raises(ValueError, match="no input"):
        verify(b.graph([], {b.apply("exp", x): x}))
    lost = Value("lost", (3,), np.dtype(np.float32))
    with pytest.raises(ValueError, match="nothing defines"):
        verify(b.graph([], {x: lost}))


def test_states_in_text() -> None:
    b, x, s, moved = mean_and_scaled()
    graph = b.graph([b.apply("subtract", x, s)], {s: moved})
    again = parse(text_of(graph))
    assert text_of(again) == text_of(graph)
    arrays = [drawn(8, 5), drawn(5)]
    expected, given = copies(arrays), copies(arrays)
    np.testing.assert_array_equal(interpret(again, given)[0], interpret(graph, expected)[0])
    np.testing.assert_array_equal(given[1], expected[1])


def drawn_graph(generator: np.random.Generator) -> tuple[Graph, list[Array]]:
    """Nodes on states and inputs, some of which become what nodes make."""
    b = Builder()
    inputs = [b.input(f"x{it}", (4, 4), "float32") for it in range(4)]
    values = list(inputs)
    for _ in range(int(generator.integers(2, 12))):
        one, other = (values[it] for it in generator.integers(len(values), size=2))
        kind = generator.integers(6)
        if kind == 0:
            values.append(b.matmul(one, other))
        elif kind == 1:
            values.append(b.transpose(one, (1, 0)))
        elif kind == 2:
            values.append(b.slice(b.concat([one, other], 0), (2, 0), (4, 4), (1, 1)))
        elif kind == 3:
            rows = b.constant(generator.integers(4, size=4))
            values.append(b.gather(one, rows, 0))
        else:
            half = ("multiply", ("number", 0.5), ("add", ("input", 0), ("input", 1)))
            values.append(b.map(half, one, other))
    states = {
        state: values[int(generator.integers(len(values)))]
        for state in inputs
        if generator.random() < 0.7
    }
    outputs = [values[it] for it in generator.integers(len(values), size=2)]
    return b.graph(outputs, states), [drawn(4, 4, seed=it) for it in range(4)]


@pytest.mark.parametrize("seed", range(60))
def test_drawn_graphs_change_states_as_the_interpreter_does(seed: int) -> None:
    graph, arrays = drawn_graph(np.random.default_rng(seed))
    check(graph, [it * np.float32(0.3) for it in arrays])


def training_graph() -> tuple[Graph, list[Array]]:
    """A linear layer's step of SGD with momentum, by update nodes."""
    b = Builder()
    settings = b.input("settings", (3,), "float64")
    limit = b.input("limit", (), "float64")
    w, v = b.input("w", (256, 130), "float32"), b.input("v", (256, 130), "float32")
    x = b.input("x", (64, 256), "float32")
    y = b.matmul(x, w)
    loss = b.reduce("mean", b.apply("multiply", y, y), (0, 1))
    diff = b.map(("multiply", ("number", 2 / y.size), ("input", 0)), y)
    g = b.matmul(b.transpose(x, (1, 0)), diff)
    norm, factor = b.emit("clip", [limit, g])
    operands = [settings, None, factor, w, g, v, None, None, None]
    made = b.emit("update", operands, rule="nesterov", places=(0,))
    arrays = [np.array([0.1, 0.9, 0.01]), np.array(0.5), drawn(256, 130), drawn(256, 130, seed=1)]
    return b.graph([loss, norm], dict(zip((w, v), made, strict=True))), [*arrays, drawn(64, 256)]


def test_an_update_changes_its_parameter_in_place_and_for_any_number_of_threads() -> None:
    graph, arrays = training_graph()
    compiled = compile_graph(graph)
    assert "copy" not in compiled.explain()
    check(graph, arrays, compiled)
    results = []
    for threads in (1, 2, 4):
        with dlprim.threads(threads):
            given = copies(arrays)
            found = [it for _ in range(3) for it in compiled.run(given)]
            results.append([*found, *given])
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_threads_of_python_on_one_network_with_states_of_their_own() -> None:
    graph, arrays = training_graph()
    compiled = compile_graph(graph)
    alone = copies(arrays)
    for _ in range(10):
        compiled.run(alone)
    given = [copies(arrays) for _ in range(8)]

    def run(own: list[Array]) -> None:
        for _ in range(10):
            compiled.run(own)

    threads = [threading.Thread(target=run, args=(own,)) for own in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for own in given:
        for one, other in zip(own, alone, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_network_in_bfloat16_has_states_of_float32() -> None:
    graph, arrays = training_graph()
    compiled = compile_graph(graph, dtype="bfloat16")
    expected, given = copies(arrays), copies(arrays)
    interpret(graph, expected)
    compiled.run(given)
    np.testing.assert_allclose(given[2], expected[2], rtol=2e-2, atol=2e-3)


def test_a_loop_and_pieces_take_no_network_that_changes_states() -> None:
    body = _core.Network()
    state = body.state((3,), np.float32)
    made = body.next_of(state)
    body.copy(body.constant(np.zeros(3, np.float32)), made)
    body.finish([])
    network = _core.Network()
    x = network.input((2, 3), np.float32)
    with pytest.raises(ValueError, match="states"):
        network.pieces(body, None, [x], [])
    with pytest.raises(ValueError, match="states"):
        network.repeat(body, ([x], []), ([], []), False)
