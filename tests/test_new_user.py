"""The day of a new user: what README and the user pages say, in the order in which one does it.

Each test runs blocks of a page as they stand there and judges what came of them; the page is
wrong where a test fails. The C++ example of README is in test_cpp.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from code_blocks import ROOT, Block, blocks_of, run_python, trainings
from dlprim import nn
from mpi_launch import launch

pytestmark = [pytest.mark.any_level, pytest.mark.slow]

if not (ROOT / "docs").is_dir():
    pytest.skip(f"{ROOT} holds no documents", allow_module_level=True)

PROGRAM = ("-m", "dlprim.train")


def block(page: str, section: str, place: int = 0, language: str = "python") -> Block:
    """A block of a section, by its place among those of its language."""
    found = [
        it for it in blocks_of(ROOT / page) if (it.section, it.language) == (section, language)
    ]
    return found[place]


def printed_by(folder: Path, *arguments: str) -> str:
    """What a Python program prints that is started in the folder."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("README.md", "Begin"), tmp_path, monkeypatch)
    assert names["y"].shape == (8, 128, 56, 56)
    assert names["dx"].shape == names["x"].shape
    assert names["dw"].shape == names["w"].shape


def test_own_network_learns_digits_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = "A convolutional network on digits"
    names = run_python(block("docs/loop.md", section), tmp_path, monkeypatch)
    assert names["accuracy"] > 0.93
    model, images = names["model"], names["images"][names["held_out"]]
    nn.save(model, tmp_path / "digits.dlprim")
    again = nn.load(tmp_path / "digits.dlprim")
    again.eval()
    np.testing.assert_array_equal(again(images), model(images))


def test_own_network_takes_steps_as_one_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the model that the section in front of it trains."""
    before = block("docs/loop.md", "A convolutional network on digits")
    step = block("docs/loop.md", "The same as one network")
    whole = before._replace(text=f"{before.text.replace('range(5)', 'range(1)')}\n{step.text}")
    names = run_python(whole, tmp_path, monkeypatch)
    assert np.isfinite(names["loss"])
    assert names["step"].norm > 0


def test_own_recurrent_classifier_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/loop.md", "An LSTM classifier"), tmp_path, monkeypatch)
    assert names["accuracy"] > 0.9


def test_classifier_reads_the_last_state_of_short_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = "Sequences of different lengths"
    names = run_python(block("docs/loop.md", section), tmp_path, monkeypatch)
    assert names["accuracy"] > 0.95
    states, lengths = names["states"], names["lengths"]
    assert not states[-1, lengths < names["T"]].any()


@pytest.mark.parametrize(("section", "most"), [("Regression", 0.01), ("A loss of your own", 0.1)])
def test_regression(
    section: str, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run_python(block("docs/loop.md", section), tmp_path, monkeypatch)
    assert names["loss"] < most


@pytest.mark.parametrize("section", ["Probabilities", "Freezing layers"])
def test_short_recipes(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/loop.md", section), tmp_path, monkeypatch)
    if section == "Probabilities":
        np.testing.assert_allclose(names["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_own_loop_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = block("docs/loop.md", "Resuming your own loop")
    begun = whole._replace(text=whole.text.replace("while epoch < 6", "while epoch < 2"))
    assert begun.text != whole.text
    found = {}
    for name, programs in {"at once": [whole], "resumed": [begun, whole]}.items():
        folder = tmp_path / name
        folder.mkdir()
        for program in programs:
            found[name] = run_python(program, folder, monkeypatch)["kept"]
    assert found["at once"]["epoch"] == found["resumed"]["epoch"] == 6
    for name, value in found["at once"]["model"].items():
        np.testing.assert_array_equal(value, found["resumed"]["model"][name])


def test_every_block_of_the_loop_is_judged() -> None:
    """test_code_blocks.py leaves this page to the tests above, each of one section."""
    sections = [it.section for it in blocks_of(ROOT / "docs/loop.md")]
    source = Path(__file__).read_text()
    assert len(set(sections)) == len(sections)
    assert [it for it in sections if f'"{it}"' not in source] == []


@pytest.mark.parametrize(
    "section", ["A layer with parameters", "Branches", "A model that can be saved"]
)
def test_own_layers(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/own-layer.md", section), tmp_path, monkeypatch)
    assert set(names["model"].state_dict()) > {"fc.weight", "fc.bias"}


def test_saving_loading_and_predicting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/predict.md", "A model of your own"), tmp_path, monkeypatch)
    assert (tmp_path / "model.dlprim").is_file()
    assert names["classes"].shape == (5,)


@pytest.mark.parametrize(
    "section", ["Into a model", "With another head", "Without PyTorch at hand", "Into functions"]
)
def test_weights_of_pytorch(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_python(block("docs/pytorch.md", section), tmp_path, monkeypatch)


def test_program_trains_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets: Any = pytest.importorskip(
        "sklearn.datasets", reason="the digits are part of scikit-learn"
    )
    section = "What the program trained"
    (flags,) = trainings(block("docs/predict.md", section, language="sh").text)
    printed_by(tmp_path, *PROGRAM, *flags)
    names = run_python(block("docs/predict.md", section), tmp_path, monkeypatch)
    digits = datasets.load_digits()
    assert (names["classes"] == digits.target[:20]).mean() > 0.8
    np.save(tmp_path / "images.npy", digits.data[:20] / 8 - 1)
    np.savez(tmp_path / "images.npz", images=digits.data[:20] / 8 - 1)
    shell = block("docs/predict.md", "From the shell", language="sh")
    first, second = trainings(shell.text)
    printed = printed_by(tmp_path, *PROGRAM, *first).split()
    assert printed == [str(it) for it in names["classes"]]
    printed_by(tmp_path, *PROGRAM, *second)
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), names["logits"])


def test_own_loop_on_two_ranks(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(block("docs/distributed.md", "In your own loop").text)
    run = launch(2, str(path))
    assert run.returncode == 0, run.stderr
    texts = (printed_by(tmp_path, path.name), run.stdout)
    found = [re.fullmatch(r"ranks: (\d), loss: ([\d.]+)\n", text) for text in texts]
    alone, together = (it.groups() if it else () for it in found)
    assert (alone[0], together[0]) == ("1", "2")
    assert float(together[1]) == pytest.approx(float(alone[1]), rel=1e-2)
