"""Flags that do not fit each other or the data are refused by name, before the first step."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.train import main
from dlprim.train.config import TrainConfig
from dlprim.train.tasks import TextTask
from dlprim.train.text import Corpus

pytestmark = pytest.mark.any_level

LSTM = ("--model", "lstm")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--model", "resnet50", "--hidden", "3"), "--hidden: the model resnet50 "),
        (("--layers", "3"), "--layers: the model mlp with the data digits does not use it"),
        (("--length", "3"), "--length: the model mlp "),
        (("--image-size", "3"), "--image-size: the model mlp with the data digits "),
        (("--shift", "1"), "--shift: the model mlp "),
        (("--algorithm", "direct"), "--algorithm: the model mlp "),
        ((*LSTM, "--momentum", "0.5"), "--momentum: the model lstm "),
        ((*LSTM, "--noise", "0.5"), "--noise: the model lstm "),
        (("--model", "gpt", "--hidden", "3", "4"), "--hidden: expected one number for gpt"),
        (("--model", "vit", "--momentum", "0.5"), "--momentum: the model vit "),
        ((*LSTM, "--hidden", "3", "4"), "--hidden: expected one number for lstm"),
    ],
)
def test_flag_without_effect_is_refused(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(flags)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"argument {said}" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ("--model", "cnn", "--data", "synthetic", "--image-size", "9", "--shift", "9"),
            "--shift 9: expected less than a side of the images, 9 x 9 pixels",
        ),
        ((*LSTM, "--length", "300000"), "--length 300000: expected at most "),
        ((*LSTM, "--batch-size", "500000", "--length", "1"), "--batch-size 500000: expected at "),
        ((*LSTM, "--batch-size", "10000000"), "--batch-size 10000000: expected at most "),
    ],
)
def test_flag_beyond_the_data_is_refused(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, "--hidden", "1", "--epochs", "1", "--steps", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_longest_sequence_is_not_refused() -> None:
    letters = np.arange(60) % 90
    for batch_size, length in ((3, 19), (30, 1), (1, 59)):
        config = TrainConfig(model="lstm", data="text", batch_size=batch_size, length=length)
        task = TextTask(Corpus(letters, letters), config)
        assert task.batch(0)[0].shape == (length, batch_size)
        assert task.batch(0)[1].size == length * batch_size
