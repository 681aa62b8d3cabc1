"""One model, several Python threads, also where passes of some of them fail."""

import copy
import threading
from typing import Any

import numpy as np
import pytest

from dlprim import nn


def images(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


class Slow(nn.Module):
    """Stops where it is traced until another thread had its chance."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.goes_on = threading.Event(), threading.Event()

    def forward(self, x: Any) -> Any:
        if self.inside.is_set():
            raise ValueError("this pass fails")
        self.inside.set()
        self.goes_on.wait(0.3)
        return x * 2


@pytest.mark.parametrize("training", [False, True])
def test_a_trace_that_fails_leaves_passes_of_other_threads_alone(training: bool) -> None:
    stop = Slow()
    model = nn.Sequential({"conv": nn.Conv2d(3, 4, 3), "stop": stop, "flat": nn.Flatten()})
    x, failures, results = images(2, 3, 8, 8), [], []
    expected = 2 * copy.deepcopy(model.conv)(x).reshape(2, -1)

    def good() -> None:
        results.append(model.forward(x, training=training))

    def bad() -> None:
        stop.inside.wait()
        try:
            model.forward(images(2, 3, 9, 9), training=training)
        except ValueError as error:
            failures.append(str(error))

    workers = [threading.Thread(target=good), threading.Thread(target=bad)]
    for it in workers:
        it.start()
    for it in workers:
        it.join()
    assert failures == ["this pass fails"]
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-6)
    stop.inside.clear()
    np.testing.assert_array_equal(model.forward(x, training=training), results[0])


def test_many_threads_share_a_model() -> None:
    model = nn.Sequential({"a": nn.Conv2d(3, 8, 3), "b": nn.Conv2d(8, 8, 3), "f": nn.Flatten()})
    good, bad = images(2, 3, 12, 12), images(2, 3, 4, 4)  # too small for the second convolution
    expected, wrong = model.forward(good, training=False), []

    def infer() -> None:
        for _ in range(150):
            y = model.forward(good, training=False)
            if not np.array_equal(y, expected):
                wrong.append(np.abs(y - expected).max())

    def fail() -> None:
        for _ in range(150):
            with pytest.raises(ValueError, match=r"in Conv2d 'b': w covers 3 elements"):
                model.forward(bad, training=False)

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
