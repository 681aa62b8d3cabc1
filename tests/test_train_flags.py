"""Flags that do not fit each other or the data are refused by name, before the first step."""

from __future__ import annotations

import pytest

from dlprim.train import main

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
