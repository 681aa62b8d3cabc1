"""Files of layers with right checksums and wrong contents: refused in a sentence, at once."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forged_files
from dlprim import model_file, nn
from test_nn_saving import MODELS, require_refused

pytestmark = pytest.mark.any_level


def lstm_of(**arguments: Any) -> dict[str, Any]:
    return {"kind": "LSTM", "own": True, "training": True, "arguments": arguments}


FORGED: dict[str, Callable[[Any], Any]] = {
    "a thousand million layers": lambda it: it.update(model=lstm_of(C=1, K=1, layers=10**9)),
    "wide layers": lambda it: it.update(model=lstm_of(C=10**6, K=10**6)),
    "a wide norm": lambda it: it["model"].update(kind="BatchNorm2d", arguments={"C": 10**10}),
    "wide rows": lambda it: it["model"].update(
        kind="LayerNorm", arguments={"normalized_shape": [10**5, 10**5]}
    ),
    "groups": lambda it: it["model"].update(
        kind="GroupNorm", arguments={"groups": 1, "channels": 10**10}
    ),
    "slopes": lambda it: it["model"].update(kind="PReLU", arguments={"num_parameters": 10**10}),
    "an integer beyond all": lambda it: it["model"]["arguments"].update(C=10**400),
    "no elements": lambda it: it["arrays"]["bias"].update(dtype="V0"),
    "70 axes": lambda it: it["arrays"]["bias"].update(shape=[*[1] * 70, 3]),
    "no rows of endless length": lambda it: it["arrays"]["bias"].update(shape=[0, 2**70]),
    "half a place": lambda it: it["arrays"]["bias"].update(place=0.5),
    "objects": lambda it: it["arrays"]["bias"].update(dtype="O"),
    "records": lambda it: it["arrays"]["bias"].update(dtype="i4,i4"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_files_are_refused_quickly_and_in_little_memory(case: str, tmp_path: Path) -> None:
    """A file of 1 KB took all memory, or never ended."""
    path = tmp_path / "it"
    nn.save(nn.Linear(2, 3), path)
    header, arrays = forged_files.parts_of(model_file.LAYERS, path)
    FORGED[case](header)
    forged_files.put(model_file.LAYERS, path, header, arrays)
    tracemalloc.start()
    try:
        require_refused(path, path.read_bytes(), "does not describe|damaged|what no array")
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()


def test_headers_that_are_nested_without_end_are_refused(tmp_path: Path) -> None:
    text = b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b', "arrays": {}, "bytes": 0}'
    forged_files.put(model_file.LAYERS, tmp_path / "it", text, b"")
    require_refused(tmp_path / "it", (tmp_path / "it").read_bytes(), "is damaged: its header")


@pytest.mark.parametrize("name", MODELS)
def test_drawn_changes_with_right_checksums(name: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    nn.save(MODELS[name][0](), path)
    header, arrays = forged_files.parts_of(model_file.LAYERS, path)
    for seed in range(60):
        forged = forged_files.changed(header, np.random.default_rng(seed))
        forged_files.put(model_file.LAYERS, path, forged, arrays)
        with contextlib.suppress(nn.ModelFileError):
            assert isinstance(nn.load(path), nn.Module)
