"""Refusals name arguments as the caller passed them, and names are PyTorch's where it has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn, optim, testing

pytestmark = pytest.mark.any_level


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


IMAGE, FILTER = (1, 2, 4, 4), (3, 2, 3, 3)
MODEL = nn.Sequential(nn.Linear(3, 4))

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "kernel": (lambda: dlprim.MaxPool2d(IMAGE, 2**63), "kernel holds 9223"),
    "pool stride": (lambda: dlprim.AvgPool2d(IMAGE, 2, 2**70), "stride holds 1180"),
    "pool padding": (lambda: dlprim.MaxPool2d(IMAGE, 2, 2, True), "padding is True"),
    "pool pair": (lambda: dlprim.MaxPool2d(IMAGE, (2, 2, 2)), r"kernel is \(2, 2, 2\), expected"),
    "stride": (lambda: dlprim.conv2d(ones(*IMAGE), ones(*FILTER), stride=0), "stride is 0"),
    "padding": (lambda: dlprim.Conv2d(IMAGE, FILTER, padding=-1), "padding is -1"),
    "a flag": (lambda: dlprim.conv2d(ones(*IMAGE), ones(*FILTER), padding=True), "padding is True"),
    "shape": (lambda: dlprim.Conv2d((1, 2), FILTER), r"x_shape is \(1, 2\)"),
    "filters": (lambda: dlprim.Conv2d(IMAGE, (3, 2, 3, "a")), "w_shape holds 'a'"),
    "last": (lambda: dlprim.MLP((2, 3), [4], final_activation="x"), "final_activation is 'x'"),
    "width": (lambda: dlprim.MLP((2, 3), [4, -1]), r"widths\[1\] is -1"),
    "widths": (lambda: dlprim.MLP((2, 3), "45"), "widths is '45'"),  # type: ignore[arg-type]
    "layout": (
        lambda: dlprim.conv2d(ones(*IMAGE), ones(*FILTER), layout=ones(3)),  # type: ignore[arg-type]
        r"layout is an array of shape \(3,\)",
    ),
    "accuracy": (
        lambda: dlprim.Conv2d(IMAGE, FILTER, accuracy=ones(3)),  # type: ignore[arg-type]
        r"accuracy is an array of shape \(3,\)",
    ),
    "cell": (lambda: nn.Recurrent(ones(3), 4, 4), "cell is an array"),  # type: ignore[arg-type]
    "progress": (lambda: dlprim.tune(dlprim.Linear((4, 4), 4), progress=1), "progress is 1"),  # type: ignore[arg-type]
    "passes": (lambda: dlprim.tune(dlprim.Linear((4, 4), 4), passes=1), "passes is 1"),  # type: ignore[arg-type]
    "path": (lambda: dlprim.tune(dlprim.Linear((4, 4), 4), path=1), "path is 1"),  # type: ignore[arg-type]
    "sequences": (
        lambda: nn.LSTM(3, 4)(ones(2, 3)),
        r"x of LSTM has shape \(2, 3\), .*\(T, N, 3\)",
    ),
    "rows": (lambda: nn.Embedding(3, 4)(ones(2)), "x of Embedding has dtype float32"),
    "images": (lambda: nn.Conv2d(3, 4, 1)(ones(2, 3)), r"x of Conv2d has shape \(2, 3\)"),
    "features": (lambda: nn.Flatten()(ones()), "x of Flatten has no axis"),
    "rate": (lambda: optim.SGD([ones(3)], -1), "lr is -1"),
    "old rate": (
        lambda: optim.AdamW([ones(3)], learning_rate=1),  # type: ignore[call-arg]
        "AdamW has no argument learning_rate, expected lr",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_what_was_passed(case: str) -> None:
    call, words = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        call()


def test_keywords_are_those_of_pytorch() -> None:
    assert optim.SGD(MODEL.parameters(), lr=0.5).learning_rate == 0.5
    assert optim.AdamW(MODEL.parameters(), lr=0.5, betas=(0.5, 0.5), eps=0.25).eps == 0.25
    assert nn.BatchNorm2d(4, eps=0.25, momentum=0.5).eps == 0.25


def test_other_modules_say_what_is_theirs() -> None:
    assert set(optim.__all__) == {
        "LAMB",
        "SGD",
        "Adam",
        "AdamW",
        "RMSprop",
        "clip_grad_norm",
        "clip_grad_value",
        "schedules",
    }
    assert set(testing.__all__) == {"fma_peak", "read_bandwidth"}


def test_a_single_image_has_a_summary() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    assert model.summary((1, 3, 3, 3)).multiply_adds == 4 * 27
    with pytest.raises(ValueError, match="more than one value"):
        model.forward(ones(1, 3, 3, 3), training=True)


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop])
def test_versions_change_behind_the_update(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in front of it is taken by who packs meanwhile, of values that are old or half new."""
    layer = nn.Linear(3, 4)
    optimizer, versions = kind(layer.parameters(), 0.1), []
    monkeypatch.setattr(dlprim._core, "update", lambda *_: versions.append(layer.weight.version))
    optimizer.step()
    assert layer.weight.version != versions[0]


def test_channels_of_a_layer_in_a_model_are_named() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 1))
    for training in (True, False):
        with pytest.raises(ValueError, match=r"^x of Conv2d '1' has shape \(1, 2, 3, 3\)"):
            model.forward(ones(1, 2, 3, 3), training=training)
