"""Files of a user's own: what no run can come of is refused on loading, by name."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim.train import main
from dlprim.train.data import MissingDataError, load_npz
from drawing import RNG

pytestmark = pytest.mark.any_level

IMAGES = RNG.standard_normal((60, 1, 4, 4), dtype=np.float32)
LABELS = np.arange(60) % 3


def changed(array: np.ndarray[Any, Any], place: Any, value: Any) -> np.ndarray[Any, Any]:
    found = array.copy()
    found[place] = value
    return found


CASES: dict[str, tuple[Any, Any, str]] = {
    "one sample": (IMAGES[:1], LABELS[:1], "labels holds no class more than 2 times, expected 3"),
    "one of each": (IMAGES[:3], LABELS[:3], "a fifth is held out for the test"),
    "two of each": (IMAGES[:6], LABELS[:6], "labels holds no class more than 2 times"),
    "NaN": (changed(IMAGES, (5, 0, 2, 3), np.nan), LABELS, r"images\[5, 0, 2, 3\] is nan"),
    "infinity": (changed(IMAGES, (5, 0, 2, 3), -np.inf), LABELS, r"images\[5, 0, 2, 3\] is -inf"),
    "large": (changed(IMAGES, (1, 0, 0, 0), 1e30), LABELS, r"is 1\S*e\+30, expected finite"),
    "larger": (IMAGES.astype(np.float64) * 1e300, LABELS, "finite numbers of at most 1e"),
    "no channel": (IMAGES[:, :0], LABELS, r"shape \(60, 0, 4, 4\), expected extents above 0"),
    "no row": (IMAGES[:, :, :0], LABELS, r"shape \(60, 1, 0, 4\)"),
    "no column": (IMAGES[..., :0], LABELS, r"shape \(60, 1, 4, 0\)"),
    "no value": (IMAGES.reshape(60, 16)[:, :0], LABELS, r"shape \(60, 0\)"),
    "channels last": (
        np.zeros((60, 8, 9, 3), np.uint8),
        LABELS,
        r"images is uint8 \(60, 8, 9, 3\), which looks like channels last, .*transpose\(0, 3, 1, 2",
    ),
    "grey last": (np.zeros((60, 8, 8, 1)), LABELS, r"\(60, 8, 8, 1\), which looks like channels l"),
    "label 1e9": (IMAGES, changed(LABELS, 5, 10**9), "labels holds 1000000000, expected classes"),
    "label 2^63": (IMAGES, changed(LABELS, 5, 2**63 - 1), "labels holds 9223372036854775807"),
    "label 2^64": (
        IMAGES,
        changed(LABELS.astype(np.uint64), 5, np.uint64(2**64 - 1)),
        "labels holds 18446744073709551615, expected classes from 0 to 999999",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_arrays_without_a_run_in_them_are_refused(case: str, tmp_path: Path) -> None:
    images, labels, expected = CASES[case]
    path = tmp_path / "odd.npz"
    np.savez(path, images=images, labels=labels)
    with pytest.raises(MissingDataError, match=rf"odd\.npz: .*{expected}"):
        load_npz(path, np.random.default_rng(0))


@pytest.mark.parametrize("shape", [(60, 3, 8, 8), (60, 16, 100, 1), (60, 3, 4, 3), (60, 8, 8, 8)])
def test_channels_in_front_are_taken(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "front.npz"
    np.savez(path, images=np.zeros(shape, np.float32), labels=LABELS)
    assert load_npz(path, np.random.default_rng(0)).train_src.shape[1:] == shape[1:]


def test_few_samples_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "few.npz"
    np.savez(path, images=IMAGES[:7], labels=LABELS[:7])
    flags = ("--data", str(path), "--epochs", "2", "--hidden", "4")
    assert main([*flags, "--batch-size", "3"]) == 0
    assert main([*flags, "--model", "cnn"]) == 0


def test_entries_that_are_no_arrays_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images.npy", b"not numpy")
        file.writestr("labels", "hello")
    assert main(["--data", str(path)]) == 1
    error = capsys.readouterr().err
    assert "other.npz cannot be read as an .npz file: its entry 'images' is no array" in error
    assert error.count("\n") == 1


def test_changed_data_under_the_same_path_are_not_resumed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, kept = tmp_path / "images.npz", ("--checkpoint", str(tmp_path / "kept"))
    np.savez(path, images=IMAGES, labels=LABELS)
    flags = ("--data", str(path), "--model", "cnn", "--hidden", "4", "--epochs", "1")
    assert main([*flags, *kept]) == 0
    np.savez_compressed(path, images=IMAGES, labels=LABELS)  # other bytes, the same data
    assert main([*kept, "--resume"]) == 0
    capsys.readouterr()
    np.savez(path, images=changed(IMAGES, (5, 0, 2, 3), 0.5), labels=LABELS)
    assert main([*kept, "--resume"]) == 1
    assert f"is of a run on other data than {path} holds now\n" in capsys.readouterr().err
    assert main([*kept, "--eval"]) == 0
    assert "what is tested may be what it was trained on" in capsys.readouterr().err
