"""Models in parts where their features meet: threads, constants, texts, lists in wrong places."""

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
