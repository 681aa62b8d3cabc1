"""What a run learnt, used afterwards: `dlprim.train.load` and `--predict`."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from dlprim.train import CheckpointError, checkpoint, load, main, prediction
from dlprim.train.config import TrainConfig
from dlprim.train.folder import FILE
from dlprim.train.modes import in_mode
from dlprim.train.sampling import sample

pytestmark = pytest.mark.any_level

SHORT = ("--epochs", "1", "--steps", "2", "--batch-size", "8")
CNN = ("--model", "cnn", "--hidden", "8", "--image-size", "6", "--lr", "0.02", *SHORT)


def images(count: int = 40) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Of one channel: dark ones of class 0, bright ones of class 1, in turns."""
    random = np.random.default_rng(0)
    found = random.integers(0, 40, (count, 1, 4, 4)) + 200 * (np.arange(count) % 2).reshape(
        -1, 1, 1, 1
    )
    return found.astype(np.uint8)


def trained(folder: Path, *flags: str, src: Any = None) -> Path:
    """The folder of a checkpoint of a run on those images."""
    src = images() if src is None else src
    path = folder / "data.npz"
    np.savez(path, images=src, labels=np.arange(len(src)) % 2)
    assert main([*flags, "--data", str(path), "--checkpoint", str(folder / "kept")]) == 0
    return folder / "kept"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_perceptron_predicts_what_it_learnt(tmp_path: Path, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    flags = ("--hidden", "16", "--epochs", "3", "--batch-size", "8", "--dtype", dtype)
    model = load(trained(tmp_path, *flags))
    logits = model(images())
    assert (logits.shape, logits.dtype) == ((40, 2), np.float32)
    np.testing.assert_array_equal(logits.argmax(axis=1), np.arange(40) % 2)
    scaled = images() / 127.5 - 1
    np.testing.assert_allclose(model(scaled.reshape(40, 16).tolist()), logits, atol=1e-6)
    assert model(images(0)).shape == (0, 2)
    assert model.config.hidden == (16,)


def test_model_has_the_weights_and_statistics_of_the_run(tmp_path: Path) -> None:
    folder = trained(tmp_path, *CNN)
    model = load(str(folder))
    with np.load(folder / FILE) as file:
        for name, array in model.module.state_dict().items():
            np.testing.assert_array_equal(array, file[f"model/{name}"])
    one = np.concatenate([model(image[None]) for image in images()])
    np.testing.assert_allclose(model(images()), one, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="x: images have 2 channels, expected 1 or 1"):
        model(np.zeros((3, 2, 4, 4)))


def test_residual_network_takes_images_as_the_training_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits are enlarged and repeated over three channels; such a checkpoint has 200 MB."""
    config = TrainConfig(model="resnet50", data="digits", hidden=())
    state = nn.resnet50(classes=3).state_dict()
    arrays = {f"model/{name}": array for name, array in state.items()}
    monkeypatch.setattr(checkpoint, "read", lambda path: ({"config": asdict(config)}, arrays))
    (tmp_path / FILE).touch()
    model = load(tmp_path)
    seen: list[tuple[int, ...]] = []

    def forward_seen(x: Any) -> Any:
        seen.append(x.shape)
        return np.zeros((len(x), 3), np.float32)

    monkeypatch.setattr(model.module, "forward", forward_seen)
    assert model(images(1)).shape == (1, 3)
    assert seen == [(1, 3, 64, 64)]


@pytest.mark.parametrize("cell", ["lstm", "gru", "gpt"])
def test_language_model_gives_the_character_behind_each(cell: str, tmp_path: Path) -> None:
    kept = ("--checkpoint", str(tmp_path))
    sizes = ("--layers", "1", "--hidden", "8", "--length", "8")
    assert main(["--model", cell, *sizes, *SHORT, *kept]) == 0
    model = load(tmp_path)
    text = np.arange(12).reshape(6, 2)
    logits = model(text)
    assert logits.shape == (6, 2, model.classes)
    np.testing.assert_array_equal(model(text), logits)  # no state is carried to the next call
    np.testing.assert_allclose(model(text[:3]), logits[:3], atol=1e-5)
    written = sample(model.module, "def ", 12, seed=0)
    assert (written[:4], len(written)) == ("def ", 16)
    for x, said in ((text + 90, "x holds 101, expected 0 to 96"), (text[0], "expected .T, N.")):
        with pytest.raises(ValueError, match=said):
            model(x)
    with pytest.raises(TypeError, match="x has dtype float64, expected integers"):
        model(text / 2)


def test_vision_transformer_takes_images_as_they_were_trained(tmp_path: Path) -> None:
    sizes = ("--layers", "1", "--hidden", "8", "--shift", "0")
    model = load(trained(tmp_path, "--model", "vit", *sizes, *SHORT))
    x = images(3)
    found = model(x)
    assert found.shape == (3, model.classes)
    np.testing.assert_allclose(model(x[1:]), found[1:], atol=1e-5)


def test_what_does_not_fit_the_model_is_refused(tmp_path: Path) -> None:
    model = load(trained(tmp_path, "--hidden", "4", *SHORT))
    cases: list[tuple[Any, type[Exception], str]] = [
        (np.zeros((2, 15)), ValueError, "x has 15 values per sample, expected 16"),
        (np.zeros(16), ValueError, r"x has the shape \(16,\), expected \(N, C\)"),
        (np.zeros((2, 1, 0, 4)), ValueError, r"x has the shape \(2, 1, 0, 4\)"),
        (np.full((1, 16), np.nan), ValueError, r"x\[0, 0\] is nan, expected finite"),
        ([["a"]], TypeError, "x has dtype <U1, expected integers or floats"),
    ]
    for x, kind, said in cases:
        with pytest.raises(kind, match=said):
            model(x)


def test_python_threads_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is that of a module: a thread that ends would set it for those that still run."""
    made, inside = load(trained(tmp_path, "--hidden", "4", *SHORT)), []

    @contextmanager
    def watched(module: nn.Module, training: bool) -> Iterator[None]:
        inside.append(1)
        time.sleep(0.01)
        assert len(inside) == 1
        with in_mode(module, training):
            yield
        inside.pop()

    monkeypatch.setattr(prediction, "in_mode", watched)
    for model in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        with ThreadPoolExecutor(3) as threads:
            for logits in threads.map(model, [images()] * 6):
                assert logits.shape == (40, 2)


def test_checkpoint_that_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"checkpoint\.npz does not exist: expected a folder"):
        load(tmp_path)
    folder = trained(tmp_path, "--hidden", "4", *SHORT)
    path = folder / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="is damaged or no checkpoint"):
        load(folder)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(CheckpointError, match=r"is no checkpoint of dlprim\.train"):
        load(folder)
    path.write_bytes(whole)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{it: array for it, array in arrays.items() if it != "model/0.bias"})
    with pytest.raises(CheckpointError, match=r"does not fit the model: .*0\.bias is missing"):
        load(folder)
    np.savez(path, description=arrays["description"])
    with pytest.raises(CheckpointError, match="holds no weights of a model"):
        load(folder)


# ---------------------------------------------------------------- --predict


def test_program_predicts_from_both_kinds_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(tmp_path, "--hidden", "4", *SHORT)
    np.save(tmp_path / "images.npy", images())
    capsys.readouterr()
    said = []
    for name in ("data.npz", "images.npy"):
        target = tmp_path / f"of_{name}.npy"
        flags = ("--predict", str(tmp_path / name), "--output", str(target))
        assert main(["--checkpoint", str(folder), *flags]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        said.append([int(line) for line in captured.out.splitlines()])
        logits = np.load(target)
        np.testing.assert_array_equal(logits, load(folder)(images()))
        assert said[-1] == logits.argmax(axis=1).tolist()
    assert said[0] == said[1]
    assert [it.name for it in folder.iterdir()] == [FILE]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--predict", "x.npy"), "--predict: expected --checkpoint DIR too"),
        (("--predict", "x.txt"), "--predict: expected FILE.npz or FILE.npy, got 'x.txt'"),
        (("--output", "y.npy"), "--output: expected --predict FILE too"),
        (("--predict", "x.npy", "--checkpoint", "c", "--output", "y"), "expected FILE.npy"),
        (("--predict", "x.npy", "--checkpoint", "c", "--eval"), "expected without --eval"),
        (("--predict", "x.npy", "--checkpoint", "c", "--json", "-"), "expected without --json"),
        (("--predict", "x.npy", "--checkpoint", "c", "--output", "no/y.npy"), "cannot be written"),
    ],
)
def test_flags_that_do_not_go_with_a_prediction(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(flags)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_files_that_cannot_be_predicted_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(tmp_path, "--hidden", "4", *SHORT)
    np.savez(tmp_path / "other.npz", pixels=images())
    np.save(tmp_path / "wide.npy", np.zeros((2, 15)))
    (tmp_path / "text.npy").write_text("text")
    cases = {
        "missing.npy": "missing.npy cannot be read",
        "text.npy": "text.npy cannot be read",
        "other.npz": "other.npz holds ['pixels'], expected 'images'",
        "wide.npy": "wide.npy has 15 values per sample, expected 16",
    }
    for name, said in cases.items():
        capsys.readouterr()
        assert main(["--checkpoint", str(folder), "--predict", str(tmp_path / name)]) == 1
        captured = capsys.readouterr()
        assert said in captured.err
        assert (captured.out, captured.err.count("\n")) == ("", 1)
