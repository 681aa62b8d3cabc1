"""What `import dlprim` brings, shows and does not do by itself."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import pytest

import dlprim
from conftest import RunPython

pytestmark = pytest.mark.any_level


def test_dir_shows_what_is_public() -> None:
    names = dir(dlprim)
    submodules = {"distributed", "llm", "nn", "onnx", "optim", "testing", "tracing", "train"}
    assert {name for name in names if not name.startswith("__")} == submodules | {
        name for name in dlprim.__all__ if not name.startswith("__")
    }
    assert set(dlprim.__all__) <= set(names)
    for name in names:
        assert hasattr(dlprim, name)


def test_submodules_are_there_when_asked_for(run_python: RunPython) -> None:
    run = run_python(
        "import sys, dlprim\n"
        "names = ('nn', 'optim', 'train', 'distributed', 'testing', 'tracing', 'onnx', 'llm')\n"
        "assert not any(f'dlprim.{name}' in sys.modules for name in names)\n"
        "for name in names: assert getattr(dlprim, name).__name__ == f'dlprim.{name}'\n"
        "assert dlprim.nn.Linear and dlprim.optim.SGD\n"
    )
    assert run.returncode == 0, run.stderr


def test_other_names_are_missing() -> None:
    with pytest.raises(AttributeError, match=r"^module 'dlprim' has no attribute 'convolution'"):
        dlprim.convolution  # type: ignore[attr-defined]  # noqa: B018


def test_threads_without_with_are_no_silent_nothing() -> None:
    before = dlprim.get_num_threads()
    expected = r"^dlprim\.threads\(2\) was never entered and has set nothing, expected `with dlprim"
    with pytest.warns(RuntimeWarning, match=expected):
        dlprim.threads(2)  # nobody holds it
    assert dlprim.get_num_threads() == before
    with pytest.raises(ValueError, match=r"^n is 0, expected 1 to 1024 threads"):
        dlprim.threads(0)


def test_threads_in_a_block_or_around_a_function() -> None:
    before = dlprim.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dlprim.threads(3) as given:
            assert given is None
            assert dlprim.get_num_threads() == 3

        @dlprim.threads(2)
        def inside() -> int:
            return dlprim.get_num_threads()

        assert inside() == inside() == 2
        del inside
        gc.collect()
    assert dlprim.get_num_threads() == before
    with (held := dlprim.threads(2)), held:
        assert "threads(2)" in repr(held)
    assert dlprim.get_num_threads() == before


@pytest.mark.parametrize("value", ["maybe", "2", "off", " 1"])
def test_unknown_value_of_dlprim_tune_is_refused(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path))
    monkeypatch.setenv("DLPRIM_TUNE", value)
    with pytest.raises(ValueError, match=rf"^DLPRIM_TUNE is '{value}', expected 0, .* or 1$"):
        dlprim.Linear((2, 3), 4)
