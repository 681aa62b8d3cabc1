"""What a trained model says of images unlike those of its training, which it could take."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim.train import TrainedModel, load, main
from dlprim.train.folder import FILE

pytestmark = pytest.mark.any_level

SHORT = ("--epochs", "1", "--steps", "2", "--batch-size", "8")
CNN = ("--model", "cnn", "--hidden", "4", "--lr", "0.02", *SHORT)
RANGE = "x holds values from 0 to 255, those of the training were -1 to 1: expected values of the"


def pixels() -> np.ndarray[Any, np.dtype[np.uint8]]:
    found = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4))
    found[0, 0, 0, :2] = 0, 255
    return found.astype(np.uint8)


def trained(folder: Path, *flags: str, src: Any = None) -> TrainedModel:
    src = pixels() if src is None else src
    np.savez(folder / "data.npz", images=src, labels=np.arange(len(src)) % 2)
    where = ("--data", str(folder / "data.npz"), "--checkpoint", str(folder))
    assert main([*flags, *where]) == 0
    return load(folder)


@pytest.mark.parametrize("flags", [("--hidden", "4", *SHORT), CNN], ids=["mlp", "cnn"])
def test_pixels_that_are_not_scaled(
    flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained(tmp_path, *flags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logits = model(pixels())
        model(pixels() / 127.5 - 1 + np.random.default_rng(1).normal(0, 0.4, (20, 1, 4, 4)))
        model(pixels()[:0].astype(np.int64))
    for wrong in (pixels().astype(np.int64), pixels().astype(np.float32)):
        with pytest.warns(RuntimeWarning, match=RANGE):
            assert model(wrong).shape == logits.shape
    np.save(tmp_path / "x.npy", pixels().astype(np.int64))
    capsys.readouterr()
    assert main(["--checkpoint", str(tmp_path), "--predict", str(tmp_path / "x.npy")]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert f"warning: {tmp_path / 'x.npy'} holds values from 0 to 255" in captured.err
    assert captured.out.count("\n") == 20


def test_digits_as_scikit_learn_has_them(tmp_path: Path) -> None:
    digits = (
        pytest.importorskip("sklearn.datasets", reason="the digits are part of scikit-learn")
        .load_digits()
        .data
    )
    assert main(["--hidden", "4", *SHORT, "--checkpoint", str(tmp_path)]) == 0
    model = load(tmp_path)
    with pytest.warns(RuntimeWarning, match="x holds values from 0 to 16, .* were -1 to 1"):
        model(digits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(digits / 8 - 1)


def test_images_of_another_size(tmp_path: Path) -> None:
    model = trained(tmp_path, *CNN)
    for wrong, said in ((np.zeros((2, 1, 5, 7)), "5 x 7"), (np.zeros((2, 9)), "3 x 3")):
        with pytest.warns(RuntimeWarning, match=f"x has images of {said} pixels, .* had 4 x 4"):
            model(wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(np.zeros((2, 16)))


def test_enlarged_images_may_have_any_size(tmp_path: Path) -> None:
    model = trained(tmp_path, *CNN, "--image-size", "6")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(np.zeros((2, 1, 5, 7)))


def test_axes_in_another_order_are_refused(tmp_path: Path) -> None:
    """A perceptron would read the values of a row in the wrong places."""
    model = trained(tmp_path, "--hidden", "4", *SHORT, src=np.zeros((20, 3, 4, 2), np.uint8))
    assert model(np.zeros((1, 24))).shape == (1, 2)
    with pytest.raises(ValueError, match=r"\(1, 4, 2, 3\), expected \(N, 3, 4, 2\) as in train"):
        model(np.zeros((1, 4, 2, 3)))


def test_arrays_of_other_kinds(tmp_path: Path) -> None:
    model = trained(tmp_path, "--hidden", "4", *SHORT)
    with pytest.raises(TypeError, match="x is a masked array"):
        model(np.ma.array(pixels(), mask=pixels() > 100))
    with pytest.raises(TypeError, match="x cannot be viewed as a NumPy array"):
        model([[1, 2], [3]])
    bfloat16 = pytest.importorskip(
        "ml_dtypes", reason="it has the type of bfloat16 arrays"
    ).bfloat16
    values = (pixels() / 127.5 - 1).astype(bfloat16)
    np.testing.assert_array_equal(model(values), model(values.astype(np.float32)))


def test_checkpoints_of_version_0_1_do_not_say_what_they_were_given(tmp_path: Path) -> None:
    trained(tmp_path, "--hidden", "4", *SHORT)
    with np.load(tmp_path / FILE) as file:
        arrays = dict(file)
    description = json.loads(arrays["description"].tobytes())
    del description["inputs"]
    arrays["description"] = np.frombuffer(json.dumps(description).encode(), np.uint8)
    np.savez(tmp_path / FILE, **arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(tmp_path)(pixels().astype(np.int64)).shape == (20, 2)
    assert main(["--checkpoint", str(tmp_path), "--resume"]) == 0
