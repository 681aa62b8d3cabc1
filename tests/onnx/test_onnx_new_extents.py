"""Numbers that follow from shapes: networks that hold them are compiled once for all extents."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with it")

from extent_networks import IMAGES, ROWS, compilations, model

pytestmark = pytest.mark.any_level
_EXTENTS = (12, 20, 28, 36, 44, 52)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_new_lengths_are_compiled_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((2, n, 6), dtype=np.float32) for n in _EXTENTS]
    # The first as it is, and the second with its recording, which serves all others.
    assert compilations(model(ROWS[name], "2,n,6"), inputs, monkeypatch) == (2, 1)


@pytest.mark.parametrize("name", IMAGES)
def test_images_of_new_sizes_are_compiled_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((1, 3, n, 9), dtype=np.float32) for n in _EXTENTS]
    assert compilations(model(IMAGES[name], "1,3,n,9"), inputs, monkeypatch) == (2, 1)


@pytest.mark.parametrize("name", [*ROWS, *IMAGES])
def test_any_extents_give_what_a_new_model_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other remainders, where a recording may not hold."""
    random = np.random.default_rng(1)
    steps, shape = (ROWS[name], (2, 0, 6)) if name in ROWS else (IMAGES[name], (1, 3, 0, 9))
    inputs = [
        random.standard_normal([it or n for it in shape], dtype=np.float32)
        for n in (7, 13, 8, 31, 3, 64, 33, 5)
    ]
    text = ",".join(str(it or "n") for it in shape)
    compilations(model(steps, text), inputs, monkeypatch)
