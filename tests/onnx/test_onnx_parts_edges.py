"""Models in parts where their features meet: threads, constants, texts, lists in wrong places."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.parser", reason="onnx parses the models that are read here")
parts: Any = import_module("part_models")
executor: Any = import_module("dlprim.onnx.parts.executor")
check, drawn, model = parts.check, parts.drawn, parts.model


# ---------------------------------------------------------------- loops without a condition


def test_a_loop_needs_no_condition() -> None:
    net = model("""(int64 trips, float[4] x) => (float[4] y) {
        y = Loop(trips, "", x) <body = b (int64 i, bool ci, float[4] a) => (bool co, float[4] an) {
            co = Identity(ci)
            an = Add(a, a)
        }>
    }""")
    x = drawn(4)
    check(net(np.array(3), x), 8 * x)


def test_a_loop_needs_no_count() -> None:
    net = model("""(bool c, float[1] x) => (float[1] y) {
        y = Loop("", c, x) <body = b (int64 i, bool ci, float[1] a) => (bool co, float[1] an) {
            most = Constant<value = float[1] {9}>()
            an = Add(a, a)
            co = Less(an, most)
        }>
    }""")
    check(net(np.array(True), np.ones(1, np.float32)), np.full(1, 16))


# ---------------------------------------------------------------- threads


def test_threads_call_a_model_first_together() -> None:
    """All of them find at once that its steps do not fit into one network."""
    text = """(float[n] x) => (int64[1,k] y, float[m] t, float[k] z) {
        y = NonZero(x)
        r = Relu(x)
        count = Shape(y)
        one = Constant<value = int64[1] {1}>()
        k = Gather<axis = 0>(count, one)
        t = Tile(r, k)
        z = Compress(r, r_is)
        zero = Constant<value = float {0}>()
        r_is = Greater(x, zero)
    }"""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            wrong = _called_together(model(text))
            assert not wrong, wrong
    finally:
        sys.setswitchinterval(before)


def _called_together(net: dlprim.onnx.OnnxModel) -> list[BaseException]:
    wrong: list[BaseException] = []
    start = threading.Barrier(4)

    def call() -> None:
        start.wait()
        try:
            for count in (2, 3, 5):
                x = np.arange(count, dtype=np.float32)
                places = np.arange(1, count).reshape(1, -1)
                check(net(x), (places, np.tile(x, count - 1), x[1:]))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return wrong


# ---------------------------------------------------------------- results are the caller's


def test_results_share_no_memory_with_constants() -> None:
    net = model("""(float[4] x) => (int64[1,k] y, float[2] z, seq(float[2]) s) {
        y = NonZero(x)
        k = Constant<value_floats = [1.0, 2.0]>()
        z = Identity(k)
        s = SequenceConstruct(k, k)
    }""")
    for _ in range(2):
        _, z, s = net(drawn(4))
        arrays = [z, *s]
        for array in arrays:
            np.testing.assert_array_equal(array, [1, 2])
            array[...] = 9


# ---------------------------------------------------------------- texts in lists and in loops

TEXTS = np.array(["b", "a", "c"], object)
REPEATED = """(string[3] x, int64 n) => (string[k,3] y) {
    y = Loop(n, "") <body = b (int64 i, bool ci) => (bool co, string[3] row) {
        co = Identity(ci)
        row = Identity(x)
    }>
}"""


def test_lists_hold_texts() -> None:
    net = model("""(string[3] x) => (string[n] y, seq(string[3]) s) {
        e = SequenceEmpty<dtype = 8>()
        one = SequenceInsert(e, x)
        s = SequenceInsert(one, x)
        y = ConcatFromSequence<axis = 0>(s)
    }""")
    y, s = net(TEXTS)
    np.testing.assert_array_equal(y, [*TEXTS, *TEXTS])
    np.testing.assert_array_equal(s, [TEXTS, TEXTS])


def test_optional_values_are_lists() -> None:
    net = model("""(string[3] x) => (bool y, seq(string[3]) z) {
        s = SequenceConstruct(x, x)
        y = OptionalHasElement(s)
        z = OptionalGetElement(s)
    }""")
    y, z = net(TEXTS)
    assert y
    np.testing.assert_array_equal(z, [TEXTS, TEXTS])


@pytest.mark.parametrize("count", [0, 2])
def test_loops_give_texts(count: int) -> None:
    y = model(REPEATED)(TEXTS, np.array(count))
    assert y.dtype == object
    np.testing.assert_array_equal(y, np.tile(TEXTS, (count, 1)))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("s = SequenceConstruct(x, x) y = NonZero(s)", "NonZero.*input 0 is a sequence of 2"),
        ("s = SequenceConstruct(x, x) y = Compress(s, x)", "Compress.*input 0 is a sequence of 2"),
        ("s = SequenceConstruct(x, x) y = Compress(x, s)", "Compress.*input 1 is a sequence of 2"),
        ("s = SequenceConstruct(x, t) y = Identity(s)", "string is given for a sequence of float"),
        ("s = SequenceConstruct(x) y = SequenceConstruct(s, s)", "a sequence of 1 is given"),
        ("s = SequenceConstruct(x) y = SplitToSequence(s)", "a sequence of 1 is given"),
        ("s = SequenceConstruct(x) y = SequenceAt(s, t)", "input 1 is of string"),
        ("s = SequenceConstruct(x) y = ConcatFromSequence<axis = 0>(x)", "expected a sequence"),
    ],
)
def test_what_is_given_in_the_wrong_place_is_refused(nodes: str, message: str) -> None:
    net = model(f"(float[4] x, string[1] t) => (y) {{ {nodes} }}")
    with pytest.raises(dlprim.onnx.ModelError, match=message):
        net(drawn(4), np.array(["1"], object))


def test_texts_are_texts_in_every_call() -> None:
    net = model("(string[3] x, string[1] other) => (bool[3] y) { y = Equal(x, other) }")
    other = np.array(["a"])
    np.testing.assert_array_equal(net(TEXTS, other), [False, True, False])
    with pytest.raises(TypeError, match="input 'x' has dtype timedelta64, expected str"):
        net(np.zeros(3, "m8"), np.zeros(1, "m8"))


# ---------------------------------------------------------------- many parts


def test_steps_that_ask_side_by_side_are_found_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A detector has some for each class; to find one after the other takes minutes."""
    found, part_from = [], executor.Executor.part_from
    monkeypatch.setattr(
        executor.Executor, "part_from", lambda *given: found.append(1) or part_from(*given)
    )
    rows = [
        f"g{i} = Mul(x, k{i}) n{i} = NonZero(g{i}) f{i} = Cast<to = 1>(n{i})\n" for i in range(40)
    ]
    constants = [f"k{i} = Constant<value = float {{{i % 2}}}>()\n" for i in range(40)]
    names = ", ".join(f"f{i}" for i in range(40))
    text = f"(float[3] x) => (y) {{ {''.join(constants + rows)} y = Concat<axis = 1>({names}) }}"
    x = np.array([1, 0, 2], np.float32)
    check(model(text)(x), np.tile([[0.0, 2.0]], 20))
    assert len(found) < 4


# ---------------------------------------------------------------- what the core keeps


def test_models_are_freed() -> None:
    """The core has what Python planned, and asks Python again: no circle keeps them."""
    net = model("""(float[n] x, bool c) => (float[n] y) {
        y = If(c) <then_branch = a () => (float[n] u) { u = Neg(x) },
                   else_branch = b () => (float[n] v) { v = Abs(x) }>
    }""")
    x = drawn(3)
    for _ in range(2):
        check(net(x, np.array(True)), -x)
        check(net(x, np.array(False)), np.abs(x))
    executor_of_it = weakref.ref(net._executor)
    del net
    gc.collect()
    assert executor_of_it() is None


def test_a_default_and_an_array_like_it_have_networks_of_their_own() -> None:
    onnx: Any = import_module("onnx")
    helper, value = onnx.helper, np.array([1, 2, 3], np.float32)
    ports = [helper.make_tensor_value_info(it, 1, [3]) for it in "xwy"]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        ports[:2],
        ports[2:],
        [onnx.numpy_helper.from_array(value, "w")],
    )
    opsets = [helper.make_opsetid("", 9)]
    whole = helper.make_model(graph, opset_imports=opsets, ir_version=4)
    net = dlprim.onnx.load(whole.SerializeToString())
    x, other = drawn(3), np.array([4, 5, 6], np.float32)
    for _ in range(3):
        check(net.run({"x": x})[0], x * value)
        check(net.run({"x": x, "w": other})[0], x * other)
        check(net(x), x * value)


def test_an_array_of_which_only_the_extents_are_read_decides() -> None:
    net = model("""(float[n] x, float[m] y) => (int64[1] z, float[m] w) {
        z = Shape(x)
        w = Neg(y)
    }""")
    for n in (2, 3, 3, 2, 5):
        for m in (4, 4, 6):
            y = np.arange(m, dtype=np.float32)
            z, w = net(np.zeros(n, np.float32), y)
            assert z.tolist() == [n]
            assert np.array_equal(w, -y)


def test_threads_meet_many_shapes_of_a_model_in_parts() -> None:
    net = model("""(float[n] x) => (float[k] z) {
        r = Mul(x, x)
        one = Constant<value = float {1}>()
        more = Greater(r, one)
        kept = Compress(x, more)
        z = Neg(kept)
    }""")
    wrong: list[object] = []

    def call(seed: int) -> None:
        random = np.random.default_rng(seed)
        for count in random.integers(1, 60, 60):
            x = random.standard_normal(count).astype(np.float32)
            if not np.array_equal(net(x), -x[x * x > 1]):
                wrong.append(count)

    threads = [threading.Thread(target=call, args=(it,)) for it in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
