"""Hostile and damaged models: a sentence, never a crash, a hang or much memory."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.any_level

# Without the package this very folder passes for one named `onnx`: ask for a module in it.
pytest.importorskip("onnx.parser", reason="onnx makes the models that are read here")
files: Any = import_module("hostile_files")
small: Any = import_module("small_models")
import_module("dlprim.onnx")

Outcome = dict[str, Any]
WORKER = Path(__file__).parent / "hostile_worker.py"
_MUTATIONS = 1000


def outcomes(paths: list[Path], shapes: list[tuple[int, ...]]) -> list[Outcome]:
    """What became of each; a worker that dies is followed by another for the rest."""
    found: list[Outcome] = []
    while len(found) < len(paths):
        rest = paths[len(found) :]
        done = subprocess.run(
            [sys.executable, str(WORKER), json.dumps(shapes)],
            input="".join(f"{path}\n" for path in rest),
            capture_output=True,
            text=True,
            check=False,
        )
        found += [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode:
            assert len(found) < len(paths), done.stderr
            words = f"exit status {done.returncode}: {done.stderr[-400:]}"
            found.append({"path": "", "kind": "died", "words": words, "seconds": 0})
    return found


@pytest.fixture(scope="module")
def fates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    paths = files.write(tmp_path_factory.mktemp("hostile"))
    return dict(zip(paths, outcomes(list(paths.values()), [(2, 4)]), strict=True))


def is_sentence(words: str) -> bool:
    return len(words.split()) >= 5


@pytest.mark.parametrize("name", files.REFUSED)
def test_it_is_refused_in_a_sentence(name: str, fates: dict[str, Outcome]) -> None:
    fate = fates[name]
    assert fate["kind"] == "refused", fate["words"]
    assert is_sentence(fate["words"]), fate["words"]


@pytest.mark.parametrize("name", files.SURVIVED)
def test_what_has_a_meaning_runs_or_is_refused(name: str, fates: dict[str, Outcome]) -> None:
    fate = fates[name]
    assert fate["kind"] in {"ran", "refused"}, fate["words"]
    assert fate["kind"] == "ran" or is_sentence(fate["words"]), fate["words"]


def test_the_sound_ones_run(fates: dict[str, Outcome]) -> None:
    for name in ("external", "unsorted", "ten_thousand_nodes", "nothing_used"):
        assert fates[name]["kind"] == "ran", f"{name}: {fates[name]['words']}"


@pytest.mark.parametrize("name", ["residual", "attention"])
def test_damaged_bytes_are_refused_or_run(name: str, tmp_path: Path) -> None:
    arrays = small.inputs(name, 2)
    model = small.model(name).SerializeToString()
    paths = []
    for number, damaged in enumerate(files.mutations(model, _MUTATIONS // 2)):
        paths.append(tmp_path / f"{number}.onnx")
        paths[-1].write_bytes(damaged)
    shapes = [array.shape for array in arrays.values()]
    for fate in outcomes(paths, shapes):
        assert fate["kind"] in {"ran", "refused"}, fate
        assert fate["kind"] == "ran" or is_sentence(fate["words"]), fate
