"""`--plot` draws what epochs achieved, and says before the first step what it lacks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlprim.train import main

pytestmark = pytest.mark.any_level

SHORT = (
    *("--data", "synthetic", "--image-size", "4", "--hidden", "8", "--batch-size", "16"),
    *("--lr", "0.02", "--epochs", "2", "--steps", "3"),
)


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*SHORT, *flags])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_loss_and_accuracy_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it draws")
    path = tmp_path / "run.svg"
    assert main([*SHORT, "--plot", str(path)]) == 0
    assert all(name in path.read_text() for name in ("train loss", "test accuracy", "epoch"))


def test_what_it_lacks_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--plot: expected FILE.png or FILE.svg" in refusal(capsys, "--plot", "run.txt")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = str(tmp_path / "run.png")
    assert "drawing needs matplotlib: pip install matplotlib" in refusal(capsys, "--plot", path)
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="it draws")
    path = str(tmp_path / "nowhere" / "run.png")
    assert "run.png cannot be written" in refusal(capsys, "--plot", path)
