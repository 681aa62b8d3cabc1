"""What a run shows while it works: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import types

import pytest

from dlprim.train import main

pytestmark = pytest.mark.any_level

NOISE = ("--data", "synthetic", "--image-size", "4", "--hidden", "8", "--batch-size", "16")
SHORT = (*NOISE, "--lr", "0.02", "--epochs", "2", "--steps", "3")


def on_a_terminal(*flags: str) -> str:
    """What the program writes to one."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 100))
    command = [sys.executable, "-m", "dlprim.train", *SHORT, *flags]
    with subprocess.Popen(command, stdout=its, stderr=subprocess.PIPE, text=True) as run:
        os.close(its)
        parts = []
        try:
            while part := os.read(ours, 4096):
                parts.append(part)
        except OSError:  # which is how Linux says that nobody writes any more
            pass
        os.close(ours)
        assert run.stderr is not None
        assert run.stderr.read() == ""
    assert run.returncode == 0
    return b"".join(parts).decode()


def test_terminal_has_a_bar_and_the_lines_of_epochs() -> None:
    pytest.importorskip("tqdm", reason="it draws the bars that are looked at")
    text = on_a_terminal()
    assert "\r" in text.replace("\r\n", "")
    assert "/6 [" in text  # of 2 epochs with 3 steps
    for epoch in (1, 2):
        assert text.count(f"epoch {epoch}/2 ") == 1
    assert text.splitlines()[-1].startswith("memory at most")


def test_elsewhere_lines_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SHORT) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "\r" not in captured.out
    assert "/6" not in captured.out


def test_a_notebook_has_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose output is no terminal, but replaces lines as one does."""
    pytest.importorskip("tqdm", reason="it draws the bars that are looked at")
    shell = type("ZMQInteractiveShell", (), {})()
    notebook = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert main(SHORT) == 0
    out = capsys.readouterr().out
    assert "/6 [" in out
    assert out.count("epoch ") == 2


def test_terminal_without_tqdm_has_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(SHORT) == 0
    out = capsys.readouterr().out
    assert "\r" not in out
    assert out.count("epoch ") == 2
