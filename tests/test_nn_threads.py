"""One model, several Python threads: passes take turns, also where some of them fail."""

import threading
from typing import Any

import numpy as np
import pytest

from dlprim import nn


def images(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


class Slow(nn.Flatten):
    """Stops inside of a pass until another thread had its chance."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.goes_on = threading.Event(), threading.Event()
        self.fails = False

    def forward(self, x: Any, training: bool | None = None) -> Any:
        if self.fails:
            self.fails = False
            raise ValueError("this pass fails")
        self.inside.set()
        self.goes_on.wait(0.3)
        return super().forward(x, training)


def test_pass_that_fails_leaves_buffers_of_other_threads_alone() -> None:
    stop = Slow()
    model = nn.Sequential({"pack": nn.Pack(), "conv": nn.Conv2d(3, 4, 3), "flat": stop})
    x, failures, results = images(2, 3, 8, 8), [], []
    expected = model.forward(x, False)
    stop.inside.clear()

    def good() -> None:
        results.append(model.forward(x, False))

    def bad() -> None:
        stop.inside.wait()
        stop.fails = True
        try:
            model.forward(x + 1, False)
        except ValueError as error:
            failures.append(str(error))

    workers = [threading.Thread(target=good), threading.Thread(target=bad)]
    for it in workers:
        it.start()
    for it in workers:
        it.join()
    # Whichever of the two came to the flag first failed, and nothing else did.
    assert failures == ["this pass fails"]
    np.testing.assert_array_equal(results[0], expected)
    assert model.context.buffers.in_use == 0


def test_many_threads_share_a_model() -> None:
    model = nn.Sequential(
        {"pack": nn.Pack(), "a": nn.Conv2d(3, 8, 3), "b": nn.Conv2d(8, 8, 3), "f": nn.Flatten()}
    )
    good, bad = images(2, 3, 12, 12), images(2, 3, 4, 4)  # too small for the second convolution
    expected, wrong = model.forward(good, False), []

    def infer() -> None:
        for _ in range(150):
            y = model.forward(good, False)
            if not np.array_equal(y, expected):
                wrong.append(np.abs(y - expected).max())

    def fail() -> None:
        for _ in range(150):
            with pytest.raises(ValueError, match="padded input"):
                model.forward(bad, False)

    workers = [threading.Thread(target=it) for it in (infer, infer, fail)]
    errors: list[Any] = []
    before, threading.excepthook = threading.excepthook, errors.append
    try:
        for it in workers:
            it.start()
        for it in workers:
            it.join()
    finally:
        threading.excepthook = before
    assert (wrong, errors) == ([], [])


def test_buffers_between_passes_are_one_threads_at_a_time() -> None:
    buffers = nn.Context().buffers
    array = buffers.take((4, 4), np.float32)
    assert (buffers.thread, buffers.owner) == (0, None)
    buffers.give(array)
    assert buffers.thread == 0
    with pytest.raises(TypeError, match="no dtype"):
        buffers.take((4, 4), "no dtype")
    assert buffers.thread == 0
    assert buffers.take((4, 4), np.float32) is array
