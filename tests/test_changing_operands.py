"""Arrays of indices that another thread writes to while a call reads them.

A call computes with the indices that it has checked, or refuses what it finds: what lies behind the
table and behind the result is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.any_level

ROWS, WIDTH, COUNT, CALLS = 600, 64, 20000, 200
BEHIND = 2 * ROWS - 1  # the last row of twice as many
RANDOM = np.random.default_rng(0)
INDICES = RANDOM.integers(0, ROWS, COUNT)


def before_and_behind(value: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of ones, as many of a value behind them, and both together."""
    both = np.ones((2 * ROWS, WIDTH), np.float32)
    both[ROWS:] = value
    return both[:ROWS], both[ROWS:], both


def call_while_they_change(indices: np.ndarray, other: int, call: Callable[[], None]) -> None:
    """Many times; what refuses an index says which."""
    ended, last = Event(), indices[-100:]
    valid = last.copy()

    def change() -> None:
        while not ended.is_set():
            last[:] = other
            last[:] = valid

    writer = Thread(target=change)
    writer.start()
    try:
        for _ in range(CALLS):
            try:
                call()
            except (ValueError, IndexError) as error:
                assert str(other) in str(error)  # noqa: PT017
    finally:
        ended.set()
        writer.join()


def test_embedding() -> None:
    table, _, _ = before_and_behind(np.nan)
    indices = INDICES.copy()
    call_while_they_change(
        indices, BEHIND, lambda: np.testing.assert_array_equal(dlprim.embedding(indices, table), 1)
    )


def test_gradient_of_an_embedding() -> None:
    out, behind, _ = before_and_behind(7)
    indices, dy = INDICES.copy(), np.ones((COUNT, WIDTH), np.float32)
    expected = np.repeat(np.bincount(INDICES, minlength=ROWS)[:, None], WIDTH, axis=1)

    def call() -> None:
        dlprim.embedding_backward(dy, indices, ROWS, out=out)
        np.testing.assert_array_equal(out, expected)

    call_while_they_change(indices, BEHIND, call)
    np.testing.assert_array_equal(behind, 7)


def test_targets_of_a_loss() -> None:
    logits, _, _ = before_and_behind(np.nan)
    out, behind, _ = before_and_behind(7)
    targets = RANDOM.integers(0, WIDTH, ROWS)
    expected = dlprim.softmax_cross_entropy(logits, targets).dx

    def call() -> None:
        loss, dx = dlprim.softmax_cross_entropy(logits, targets, out=out)
        assert np.isfinite(loss)
        np.testing.assert_array_equal(dx, expected)

    call_while_they_change(targets, ROWS * WIDTH, call)
    np.testing.assert_array_equal(behind, 7)


def test_places_in_a_formula() -> None:
    table, _, _ = before_and_behind(np.nan)
    indices = INDICES.copy()
    (lookup,) = dlprim.define(
        "def lookup(float(V,K) table, int64(N) at) -> (y) { y(n,k) = table(at(n),k) }"
    )

    def call() -> None:
        assert not np.isnan(lookup(table, indices)).any()

    call_while_they_change(indices, BEHIND, call)
