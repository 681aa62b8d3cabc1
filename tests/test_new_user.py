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
    names = run_python(block("README.md", "dlprim"), tmp_path, monkeypatch)
    assert names["y"].shape == (8, 128, 56, 56)
    assert names["dx"].shape == names["x"].shape
    assert names["dw"].shape == names["w"].shape
    assert names["loss"] > 0


def test_own_network_learns_digits_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run_python(block("docs/fit.md", "The loop by hand"), tmp_path, monkeypatch)
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
    before = block("docs/fit.md", "The loop by hand")
    step = block("docs/fit.md", "One step in one call")
    whole = before._replace(text=f"{before.text.replace('range(5)', 'range(1)')}\n{step.text}")
    names = run_python(whole, tmp_path, monkeypatch)
    assert np.isfinite(names["loss"])
    assert names["step"].norm > 0


def test_digits_are_trained_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/fit.md", "One call"), tmp_path, monkeypatch)
    assert names["history"]["val_accuracy"][-1] > 0.93
    np.testing.assert_allclose(names["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_long_training_stops_early_or_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/fit.md", "Long trainings"), tmp_path, monkeypatch)
    assert names["history"].best["loss"] < names["history"]["loss"][0]
    assert (tmp_path / "run.npz").is_file()


def test_estimator_is_searched_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/fit.md", "With scikit-learn"), tmp_path, monkeypatch)
    assert names["score"] > 0.85


def test_recurrent_classifier_reads_last_states_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run_python(block("docs/nn.md", "Recurrent layers"), tmp_path, monkeypatch)
    assert names["history"]["val_accuracy"][-1] > 0.95
    model, x, lengths = names["model"], names["x"], names["lengths"]
    states = model.lstm.forward(x, training=False, lengths=lengths)
    assert not states[lengths < names["T"], -1].any()
    assert (tmp_path / "model.dlprim").is_file()
    np.testing.assert_array_equal(names["again"](x, lengths), model(x, lengths))
    assert names["classes"].shape == (5,)


def test_loss_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/fit.md", "Losses and regression"), tmp_path, monkeypatch)
    assert names["loss"] < 0.1
    assert names["step"](names["x"], names["target"]) < 0.1


def test_another_head_learns_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/fit.md", "Fine-tuning"), tmp_path, monkeypatch)
    after = names["model"].state_dict()
    assert (after["fc.weight"] != names["head"]["fc.weight"]).any()


def test_own_loop_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (ROOT / "examples" / "nn" / "resume.py").read_text()
    whole = Block("resume.py", "", 0, "python", program)
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


def test_every_block_on_training_is_judged() -> None:
    """test_code_blocks.py leaves this page to the tests above, each of one section."""
    sections = [it.section for it in blocks_of(ROOT / "docs/fit.md")]
    source = Path(__file__).read_text()
    assert len(set(sections)) == len(sections)
    assert [it for it in sections if f'"{it}"' not in source] == []


@pytest.mark.parametrize("section", ["Your own layer", "Recurrent layers"])
def test_own_layers(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_python(block("docs/nn.md", section), tmp_path, monkeypatch)
    assert set(names["model"].state_dict()) > {"fc.weight", "fc.bias"}


def test_weights_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_python(block("docs/torch.md", "Load weights"), tmp_path, monkeypatch)


def test_program_trains_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets: Any = pytest.importorskip(
        "sklearn.datasets", reason="the digits are part of scikit-learn"
    )
    section = "Predict with a checkpoint"
    (flags,) = trainings(block("docs/training.md", section, language="sh").text)
    printed_by(tmp_path, *PROGRAM, *flags)
    names = run_python(block("docs/training.md", section), tmp_path, monkeypatch)
    digits = datasets.load_digits()
    assert (names["classes"] == digits.target[:20]).mean() > 0.8
    np.save(tmp_path / "images.npy", digits.data[:20] / 8 - 1)
    np.savez(tmp_path / "images.npz", images=digits.data[:20] / 8 - 1)
    shell = block("docs/training.md", section, 1, language="sh")
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
