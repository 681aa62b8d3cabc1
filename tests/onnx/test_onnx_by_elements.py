"""Choices, scans, sequences, and results whose shapes follow from computed elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from drawing import RNG

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.parser", reason="onnx parses the models that are read here")
parts: Any = import_module("part_models")
check, drawn, model = parts.check, parts.drawn, parts.model


# ---------------------------------------------------------------- choices


def test_a_choice_by_computed_floats_runs_one_branch() -> None:
    net = model("""(float[1,n] x, float[n,1] w) => (float[1,1] y) {
        s = MatMul(x, w)
        zero = Constant<value = float {0}>()
        c = Greater(s, zero)
        y = If(c) <then_branch = a () => (float[1,1] u) { q = MatMul(x, w) u = Sigmoid(q) },
                   else_branch = b () => (float[1,1] v) { v = Identity(s) }>
    }""")
    for size in (3, 1536, 5000):
        for _ in range(4):
            x, w = drawn(1, size), drawn(size, 1)
            s = x.astype(np.float64) @ w
            np.testing.assert_allclose(net(x, w), 1 / (1 + np.exp(-s)) if s > 0 else s, rtol=1e-3)


def test_other_arrays_compile_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model("""(float[n] x) => (float[n] y) {
        m = ReduceSum<keepdims = 0>(x)
        zero = Constant<value = float {0}>()
        c = Greater(m, zero)
        y = If(c) <then_branch = a () => (float[n] u) { u = Neg(x) },
                   else_branch = b () => (float[n] v) { v = Abs(x) }>
    }""")
    x = np.abs(drawn(9))
    check(net(x), -x)
    check(net(-x), x)
    monkeypatch.setattr("dlprim.onnx.parts.part.compile_graph", None)
    for _ in range(20):
        x = drawn(9)
        check(net(x), -x if x.sum() > 0 else np.abs(x))


def test_choices_in_choices_capture_and_give_constants() -> None:
    net = model("""(float[n] x, bool a, bool b) => (float[n] y) {
        k = Constant<value = float {2}>()
        xs = Mul(x, k)
        y = If(a) <
            then_branch = p () => (float[n] u) {
                u = If(b) <then_branch = q () => (float[n] s) { s = Add(xs, k) },
                           else_branch = r () => (float[n] t) { t = Identity(x) }>
            },
            else_branch = o () => (float[n] v) { v = Constant<value = float[3] {1, 2, 3}>() }>
    }""")
    x = drawn(3)
    for a, b, right in (
        (True, True, 2 * x + 2),
        (True, False, x),
        (False, True, np.array([1, 2, 3])),
    ):
        y = net(x, np.array(a), np.array(b))
        check(y, right)
        assert not np.shares_memory(x, y)


# ---------------------------------------------------------------- scans

SCAN = """(float[4] h, float[{}] x, float[4,4] w) => (float[4] y, float[{}] ys) {{
    y, ys = Scan(h, x) <num_scan_inputs = 1 {}, body = b (float[4] a, float[4] e)
        => (float[4] an, float[4] s) {{
        r = MatMul(a, w)
        m = Add(r, e)
        an = Tanh(m)
        s = Mul(an, e)
    }}>
}}"""


@pytest.mark.parametrize("steps", [1, 7, 100])
def test_scans_run_along_any_axis_in_both_directions(steps: int) -> None:
    h, x, w = drawn(4), drawn(steps, 4), drawn(4, 4)

    def right(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        state, made = h.astype(np.float64), []
        for row in rows:
            state = np.tanh(state @ w + row)
            made.append(state * row)
        return state, np.stack(made)

    check(model(SCAN.format("t,4", "t,4", ""))(h, x, w), right(x))
    turned = ", scan_input_axes = [1], scan_input_directions = [1]"
    turned += ", scan_output_axes = [1], scan_output_directions = [1]"
    state, made = right(x[::-1])
    check(
        model(SCAN.format("4,t", "4,t", turned))(h, np.ascontiguousarray(x.T), w),
        (state, made[::-1].T),
    )


# ---------------------------------------------------------------- sequences


def test_sequences_are_made_changed_and_joined() -> None:
    net = model("""(float[n,4] x) => (float[m,4] y, int64 k, float[4] last) {
        s = SplitToSequence<axis = 0, keepdims = 0>(x)
        z = Constant<value = int64 {0}>()
        minus = Constant<value = int64 {-1}>()
        t = SequenceErase(s, z)
        first = SequenceAt(s, z)
        twice = Add(first, first)
        u = SequenceInsert(t, twice)
        k = SequenceLength(u)
        last = SequenceAt(u, minus)
        y = ConcatFromSequence<axis = 0, new_axis = 1>(u)
    }""")
    for n in (2, 5):
        x = drawn(n, 4)
        check(net(x), (np.concatenate([x[1:], 2 * x[:1]]), np.array(n), 2 * x[0]))


def test_models_take_and_give_sequences_and_what_may_be_missing() -> None:
    split = model("(float[n,4] x) => (seq(float[k,4]) y) { k = Constant<value = int64 {2}>() "
                  "y = SplitToSequence<axis = 0>(x, k) }")  # fmt: skip
    x = drawn(5, 4)
    listed = split(x)
    assert [it.shape for it in listed] == [(2, 4), (2, 4), (1, 4)]
    assert split.outputs["y"].kind == "sequence"
    joined = model(
        "(seq(float[k,4]) s) => (float[n,4] y) { r = ConcatFromSequence<axis = 0>(s) y = Abs(r) }"
    )
    check(joined(listed), np.abs(x))
    with pytest.raises(TypeError, match="input 's' is of type ndarray, expected a list of arrays"):
        joined(x)
    there = model("(optional(float[n]) o) => (bool y) { y = OptionalHasElement(o) }")
    assert there(drawn(3))
    assert not there(None)


def test_lists_where_arrays_are_expected_are_refused_by_name() -> None:
    net = model("(seq(float[n]) s) => (float[n] y) { y = Neg(s) }")
    with pytest.raises(dlprim.onnx.ModelError, match=r"\(Neg, opset .*'s' is a sequence of 2"):
        net([drawn(2), drawn(2)])


# ---------------------------------------------------------------- shapes from elements

RELU = "(float[n,64] x) => ({}) {{ u = Relu(x) {} }}"
FOLLOWING: dict[str, tuple[str, str, Callable[[np.ndarray], Any]]] = {
    "NonZero": ("int64[2,k] y", "y = NonZero(u)", lambda u: np.stack(np.nonzero(u))),
    "Compress": (
        "float[k,64] y",
        "ax = Constant<value = int64[1] {1}>() m = ReduceMax<keepdims = 0>(u, ax) "
        "t = Constant<value = float {2.5}>() "
        "c = Greater(m, t) s = Compress<axis = 0>(u, c) y = Exp(s)",
        lambda u: np.exp(u[u.max(axis=1) > 2.5].astype(np.float64)),
    ),
    "Range": (
        "float[k] y",
        "m = ReduceMax<keepdims = 0>(u) z = Constant<value = float {0}>() "
        "o = Constant<value = float {0.5}>() r = Range(z, m, o) y = Cos(r)",
        lambda u: np.cos(np.arange(0, u.max(), 0.5)),
    ),
    "Slice": (
        "float[k,64] y, int64 rows",
        "m = ReduceMax<keepdims = 0>(u) k = Cast<to = 7>(m) a = Constant<value = int64[1] {0}>() "
        "e = Unsqueeze(k, a) s = Slice(u, a, e, a) y = Exp(s) "
        "sh = Shape(s) z = Constant<value = int64 {0}>() rows = Gather(sh, z)",
        lambda u: (np.exp(u[: int(u.max())].astype(np.float64)), min(len(u), int(u.max()))),
    ),
    "TopK": (
        "float[n,k] y",
        "m = ReduceMax<keepdims = 0>(u) k = Cast<to = 7>(m) a = Constant<value = int64[1] {0}>() "
        "e = Unsqueeze(k, a) y, places = TopK(u, e)",
        lambda u: -np.sort(-u, axis=1)[:, : int(u.max())],
    ),
    "Unique": ("float[k] y", "y = Unique(u)", lambda u: np.unique(u)),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_shapes_that_follow_from_computed_elements(name: str) -> None:
    output, nodes, right = FOLLOWING[name]
    net = model(RELU.format(output, nodes))
    for n in (4, 100, 7, 2000):
        x = drawn(n, 64)
        check(net(x), right(np.maximum(x, 0)))


def test_nothing_is_compiled_for_shapes_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model(
        "(float[n] x, int64[k] s) => (float[p,q] y) "
        "{ a = Tanh(x) b = Reshape(a, s) y = MatMul(b, b) }"
    )
    for n in (3, 4, 5):
        net(drawn(n * n), np.array([n, n]))
    monkeypatch.setattr("dlprim.onnx.parts.part.compile_graph", None)
    for n in (2, 9, 17):
        x = drawn(n * n)
        a = np.tanh(x.astype(np.float64)).reshape(n, n)
        check(net(x, np.array([n, -1])), a @ a)


def test_a_detector_suppresses_boxes() -> None:
    net = model("""(float[1,n,4] b, float[1,1,n] x) => (float[k,4] y) {
        s = Sigmoid(x)
        most = Constant<value = int64[1] {20}>()
        iou = Constant<value = float[1] {0.4}>()
        least = Constant<value = float[1] {0.3}>()
        p = NonMaxSuppression(b, s, most, iou, least)
        two = Constant<value = int64[1] {2}>()
        g = Gather<axis = 1>(p, two)
        ax = Constant<value = int64[1] {1}>()
        places = Squeeze(g, ax)
        z = Constant<value = int64[1] {0}>()
        boxes = Squeeze(b, z)
        y = Gather<axis = 0>(boxes, places)
    }""")
    for n in (5, 700):
        low = RNG.random((n, 2), np.float32) * 3
        boxes = np.concatenate([low, low + RNG.random((n, 2), np.float32)], -1)
        x = drawn(n)
        check(net(boxes[None], x[None, None]), boxes[suppressed(boxes, x, 20, 0.4)])


def suppressed(boxes: np.ndarray, x: np.ndarray, most: int, iou: float) -> Sequence[int]:
    """As the operator's text says, box by box."""
    kept: list[int] = []
    for place in np.argsort(-x, kind="stable"):
        if len(kept) == most or 1 / (1 + np.exp(-float(x[place]))) <= 0.3:
            break
        a = boxes[place].astype(np.float64)
        for b in boxes[kept].astype(np.float64):
            sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
            shared = np.prod(np.maximum(sides, 0))
            if shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared) > iou:
                break
        else:
            kept.append(int(place))
    return kept


@pytest.mark.parametrize("is_centered", [0, 1])
def test_boxes_of_several_images_and_classes(is_centered: int) -> None:
    net = model(f"""(float[n,s,4] b, float[n,c,s] x, int64 most) => (int64[k,3] y) {{
        iou = Constant<value = float {{0.3}}>()
        least = Constant<value = float {{-0.5}}>()
        y = NonMaxSuppression<center_point_box = {is_centered}>(b, x, most, iou, least)
    }}""")
    for n, c, s, most in ((1, 1, 1, 5), (2, 3, 400, 7), (1, 2, 900, 3), (2, 1, 90, 1000)):
        middle, size = RNG.random((n, s, 2)) * 4, RNG.random((n, s, 2))
        corners = np.concatenate([middle - size / 2, middle + size / 2], -1)
        flipped = np.where(RNG.random((n, s, 1)) < 0.5, corners, corners[..., [2, 3, 0, 1]])
        boxes = np.concatenate([middle, size], -1) if is_centered else flipped
        scores = np.round(RNG.standard_normal((n, c, s)), 1)  # some are equal
        due = [
            (image, kind, place)
            for image, kind in np.ndindex(n, c)
            for place in best_of(corners[image], scores[image, kind], most)
        ]
        given = boxes.astype(np.float32), scores.astype(np.float32), np.array(most)
        np.testing.assert_array_equal(net(*given), np.array(due).reshape(-1, 3))


def best_of(corners: np.ndarray, scores: np.ndarray, most: int) -> list[int]:
    kept: list[int] = []
    for place in np.argsort(-scores.astype(np.float32), kind="stable"):
        if len(kept) == most or scores[place] <= -0.5:
            break
        a, others = corners[place], corners[kept]
        sides = np.minimum(a[2:], others[:, 2:]) - np.maximum(a[:2], others[:, :2])
        shared = np.maximum(sides, 0).prod(-1)
        whole = (a[2:] - a[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(-1) - shared
        if (shared <= 0.3 * whole).all():
            kept.append(int(place))
    return kept
