"""Loops of many runs, which the core makes in one call."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.parser", reason="onnx parses the models that are read here")
parts: Any = import_module("part_models")
model = parts.model


@pytest.mark.parametrize("changed", ["pn = Identity(q)", "pn = Identity(p)", "pn = Add(p, p)"])
def test_states_of_loops_of_many_runs(changed: str) -> None:
    net = model(f"""(int64 trips, int64[2] a, int64[2] b)
        => (int64[2] ya, int64[2] yb, int64[k,2] ys, int64[k] js) {{
        c = Constant<value = bool {{1}}>()
        ya, yb, ys, js = Loop(trips, c, a, b) <body = f (int64 i, bool ci, int64[2] p, int64[2] q)
            => (bool co, int64[2] pn, int64[2] qn, int64[2] s, int64 j) {{
            co = Identity(ci)
            {changed}
            qn = Add(p, q)
            s = Identity(p)
            j = Mul(i, i)
        }}>
    }}""")
    rule = {"q": lambda p, q: q, "p": lambda p, q: p, "p, p": lambda p, q: p + p}
    onward = rule[changed.partition("(")[2].rstrip(")")]
    for trips in (0, 5, 50, 5):
        p, q = np.array([1, 2]), np.array([0, -1])
        rows = []
        given = p.copy(), q.copy()
        for _ in range(trips):
            rows.append(p)
            p, q = onward(p, q), p + q
        due = (p, q, np.array(rows).reshape(-1, 2), np.arange(trips) ** 2)
        for one, right in zip(net(np.array(trips), *given), due, strict=True):
            np.testing.assert_array_equal(one, right)


def test_a_loop_of_many_runs_ends_by_its_condition_and_by_what_fails() -> None:
    net = model("""(float[2,3] table, float most, int64 trips) => (float total, float[k] ys) {
        c = Constant<value = bool {1}>()
        z = Constant<value = float {0}>()
        total, ys = Loop(trips, c, z) <body = f (int64 i, bool ci, float s)
            => (bool co, float sn, float y) {
            z0 = Constant<value = int64 {0}>()
            one = Constant<value = int64 {1}>()
            flat = Reshape(table, shape)
            y = Gather<axis = 0>(flat, i)
            sn = Add(s, y)
            co = Less(sn, most)
        }>
        shape = Constant<value = int64[1] {-1}>()
    }""")
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(3):
        total, ys = net(table, np.array(6, np.float32), np.array(100))
        assert total == 6
        np.testing.assert_array_equal(ys, [0, 1, 2, 3])
        with pytest.raises(dlprim.onnx.ModelError, match="index 6 is outside of 6 rows"):
            net(table, np.array(100, np.float32), np.array(100))


def test_threads_share_runs_of_loops_that_few_shapes_are_kept_of() -> None:
    net = model(
        """(int64 trips, float[n] a) => (float[n] y) {
        c = Constant<value = bool {1}>()
        y = Loop(trips, c, a) <body = f (int64 i, bool ci, float[n] p) => (bool co, float[n] pn) {
            co = Identity(ci)
            pn = Add(p, a)
        }>
    }""",
        kept_shapes=1,
    )
    trips = np.array(3)
    errors: list[BaseException] = []

    def run(extent: int) -> None:
        a = np.arange(extent, dtype=np.float32)
        try:
            for _ in range(40):
                np.testing.assert_array_equal(net(trips, a), 4 * a)
        except BaseException as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(extent,)) for extent in (2, 3, 5, 7)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert errors == []
