"""Models in parts: loops, and what models do that are no single network."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim
import dlprim.onnx

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.parser", reason="onnx parses the models that are read here")
streamed: Any = import_module("streamed_models")
parts: Any = import_module("part_models")
check, drawn, model = parts.check, parts.drawn, parts.model

LOOP = """(int64 trips, float[4] x) => (float[4] y, float[k,4] ys) {
    c = Constant<value = bool {1}>()
    y, ys = Loop(trips, c, x) <body = b (int64 i, bool ci, float[4] a)
        => (bool co, float[4] an, float[4] s) {
        co = Identity(ci)
        half = Constant<value = float {0.5}>()
        m = Mul(a, half)
        an = Tanh(m)
        s = Identity(an)
    }>
}"""


# ---------------------------------------------------------------- loops


@pytest.mark.parametrize("trips", [0, 1, 3, 40])
def test_a_loop_of_a_given_count(trips: int) -> None:
    x = drawn(4)
    states, state = [], x.astype(np.float64)
    for _ in range(trips):
        state = np.tanh(state / 2)
        states.append(state)
    check(model(LOOP)(np.array(trips), x), (state, np.reshape(states, (trips, 4))))


def test_a_loop_of_a_constant_count_is_part_of_the_network() -> None:
    text = LOOP.replace("int64 trips, ", "").replace(
        "c =", "trips = Constant<value = int64 {3}>()\n c =", 1
    )
    net, x = model(text), drawn(4)
    y, ys = net(x)
    check((y, ys), model(LOOP)(np.array(3), x))
    assert "Loop" not in net.explain()
    assert net._executor.whole is not None


def test_a_loop_ends_by_its_condition() -> None:
    net = model(
        """(float[4] x) => (float[4] y, int64 n) {
        c = Constant<value = bool {1}>()
        zero = Constant<value = int64 {0}>()
        y, n = Loop("", c, x, zero) <body = b (int64 i, bool ci, float[4] a, int64 k)
            => (bool co, float[4] an, int64 kn) {
            half = Constant<value = float {0.5}>()
            one = Constant<value = int64 {1}>()
            an = Mul(a, half)
            kn = Add(k, one)
            most = ReduceMax<keepdims = 0>(an)
            least = Constant<value = float {0.01}>()
            co = Greater(most, least)
        }>
    }""".replace('""', "")
    )
    check(net(np.full(4, 1, np.float32)), (np.full(4, 2.0**-7), np.array(7)))


def test_loops_in_loops_capture_outer_values() -> None:
    net = model("""(float[4] x, int64 a, int64 b) => (float[4] y) {
        c = Constant<value = bool {1}>()
        k = Mul(x, x)
        y = Loop(a, c, x) <body = o (int64 i, bool ci, float[4] s) => (bool co, float[4] so) {
            co = Identity(ci)
            so = Loop(b, ci, s) <body = p (int64 j, bool cj, float[4] u) => (bool ck, float[4] v) {
                ck = Identity(cj)
                jf = Cast<to = 1>(j)
                jk = Mul(jf, k)
                w = Add(u, jk)
                v = Tanh(w)
            }>
        }>
    }""")
    x = drawn(4)
    for a, b in ((3, 4), (2, 0), (0, 3)):
        state = x.astype(np.float64)
        for _ in range(a):
            for j in range(b):
                state = np.tanh(state + j * x.astype(np.float64) ** 2)
        check(net(x, np.array(a), np.array(b)), state)


def test_states_grow_and_choices_are_in_loops() -> None:
    net = model("""(float[n,4] x, int64 a) => (float[m,4] y) {
        c = Constant<value = bool {1}>()
        y = Loop(a, c, x) <body = o (int64 i, bool ci, float[k,4] s) => (bool co, float[l,4] so) {
            co = Identity(ci)
            m = ReduceSum<keepdims = 0>(s)
            zero = Constant<value = float {0}>()
            g = Greater(m, zero)
            w = If(g) <then_branch = p () => (float[n,4] u) { u = Neg(x) },
                       else_branch = q () => (float[n,4] v) { v = Abs(x) }>
            so = Concat<axis = 0>(s, w)
        }>
    }""")
    for n, a in ((2, 6), (3, 20), (1, 1)):
        x = drawn(n, 4)
        state = x
        for _ in range(a):
            state = np.concatenate([state, -x if state.sum() > 0 else np.abs(x)])
        check(net(x, np.array(a)), state)


def test_a_recurrent_network_as_converters_write_it() -> None:
    """The count follows from a shape, and the condition from counters."""
    net = model("""(float[b,t,3] x, float[3,4] w, float[4,4] u) => (float[b,4] h, float[t,b,4] ys) {
        xt = Transpose<perm = [1,0,2]>(x)
        sh = Shape(xt)
        zero = Constant<value = int64 {0}>()
        one = Constant<value = int64 {1}>()
        ax = Constant<value = int64[1] {0}>()
        steps = Gather(sh, zero)
        bi = Gather(sh, one)
        bu = Unsqueeze(bi, ax)
        four = Constant<value = int64[1] {4}>()
        hs = Concat<axis = 0>(bu, four)
        h0 = ConstantOfShape(hs)
        go = Less(zero, steps)
        h, ys = Loop(steps, go, h0) <body = body (int64 i, bool c, float[b,4] hp)
            => (bool co, float[b,4] hn, float[b,4] out) {
            xi = Gather(xt, i)
            a = MatMul(xi, w)
            q = MatMul(hp, u)
            s = Add(a, q)
            hn = Tanh(s)
            out = Identity(hn)
            k1 = Constant<value = int64 {1}>()
            i1 = Add(i, k1)
            co = Less(i1, steps)
        }>
    }""")
    w, u = drawn(3, 4), drawn(4, 4) / 4
    for b, t in ((2, 5), (1, 90), (3, 2)):
        x = drawn(b, t, 3)
        h, states = np.zeros((b, 4)), []
        for step in range(t):
            h = np.tanh(x[:, step].astype(np.float64) @ w + h @ u)
            states.append(h)
        check(net(x, w, u), (h, np.stack(states)))


ENDLESS = """(float[4] x) => (float[4] y, float[k,4] ys) {
    n = Constant<value = int64 {4611686018427387904}>()
    c = Constant<value = bool {1}>()
    y, ys = Loop(n, c, x) <body = b (int64 i, bool ci, float[4] a)
        => (bool co, float[4] an, float[4] s) {
        co = Identity(ci)
        an = Neg(a)
        s = Identity(an)
    }>
}"""


def test_endless_loops_stop_where_memory_ends() -> None:
    with pytest.raises(dlprim.onnx.ModelError, match=r"Loop.*would take .* \(max_bytes\)"):
        model(ENDLESS, max_bytes=1 << 16)(drawn(4))
    collected = """(float[4] x) => (int64 n) {
        c = Constant<value = bool {1}>()
        e = SequenceEmpty()
        s = Loop(, c, e) <body = b (int64 i, bool ci, seq(float[4]) q)
            => (bool co, seq(float[4]) r) {
            co = Identity(ci)
            r = SequenceInsert(q, x)
        }>
        n = SequenceLength(s)
    }"""
    with pytest.raises(dlprim.onnx.ModelError, match=r"a sequence would take .* \(max_bytes\)"):
        model(collected, max_bytes=1 << 16)(drawn(4))


def test_endless_loops_are_interrupted() -> None:
    text = ENDLESS.replace(", float[4] s)", ")").replace("s = Identity(an)", "")
    text = (
        text.replace(", float[k,4] ys)", ")")
        .replace("y, ys", "y")
        .replace("Identity(ci)", "Not(no)")
    )
    text = text.replace("co =", "no = Constant<value = bool {0}>()\n co =")
    net = model(text)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            net(drawn(4))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def nested(depth: int) -> str:
    text = "y0 = Neg(x)"
    for level in range(1, depth + 1):
        text = (
            f"y{level} = If(c) <then_branch = t{level} () => (float[n] y{level - 1}) {{ {text} }},"
            f" else_branch = e{level} () => (float[n] z{level}) {{ z{level} = Identity(x) }}>"
        )
    return f"(float[n] x, bool c) => (float[n] y{depth}) {{ {text} }}"


def test_bodies_nest_deeply() -> None:
    x = drawn(3)
    check(model(nested(31))(x, np.array(True)), -x)


# ---------------------------------------------------------------- models of parts


def test_parts_are_explained_profiled_and_kept_in_files(tmp_path: Any) -> None:
    net, x = model(LOOP), drawn(4)
    net(np.array(3), x)
    lines = net.explain().splitlines()
    assert any("Loop" in line for line in lines)
    assert any(line.startswith("  for inputs") for line in lines)
    assert lines[-1].startswith("steps in Python: 1 of ")  # the loop
    assert net.profile(np.array(3), x).steps
    net.save(tmp_path / "loop.dlprim")
    check(dlprim.load(tmp_path / "loop.dlprim")(np.array(3), x), net(np.array(3), x))


def test_parts_are_computed_in_other_types_and_in_8_bits() -> None:
    made = streamed.parsed("""(float[n,64] x) => (float[k,64] y) {
        u = MatMul(x, w)
        ax = Constant<value = int64[1] {1}>()
        m = ReduceMax<keepdims = 0>(u, ax)
        t = Constant<value = float {1}>()
        c = Greater(m, t)
        s = Compress<axis = 0>(u, c)
        y = MatMul(s, w)
    }""")
    w = drawn(64, 64) / 8
    onnx: Any = import_module("onnx")
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    x = drawn(40, 64)
    right = dlprim.onnx.load(made)(x)
    u = x.astype(np.float64) @ w
    np.testing.assert_allclose(right, u[u.max(axis=1) > 1] @ w, rtol=1e-3, atol=1e-4)
    half = dlprim.onnx.load(made, dtype="bfloat16")(x)
    assert half.dtype == np.float32
    assert np.abs(half - right).max() < 0.1
    small = dlprim.quantize(dlprim.onnx.load(made), calibration=[drawn(30, 64) for _ in range(3)])
    assert len(small.table.layers) == 2
    assert np.abs(small(x) - right).max() < 0.05 * np.abs(right).max()


def test_threads_share_a_model_of_parts() -> None:
    net = model(LOOP)
    x = drawn(4)
    right = {trips: net(np.array(trips), x) for trips in range(1, 9)}
    wrong: list[int] = []

    def run(trips: int) -> None:
        for _ in range(20):
            y, ys = net(np.array(trips), x)
            if not (np.array_equal(y, right[trips][0]) and np.array_equal(ys, right[trips][1])):
                wrong.append(trips)

    threads = [threading.Thread(target=run, args=(trips,)) for trips in right]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
