"""Streams of shapes: a network that was compiled for some gives all others what a new one would."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with it")

import streamed_models

import dlprim.onnx
from dlprim.graph import networks
from dlprim.graph.extents import Recording

STREAMS = {
    "words": [(1, 7), (1, 9), (2, 9), (3, 17), (1, 2), (1, 1), (4, 4), (2, 64), (0, 5), (2, 65),
              (16, 4), (4, 16), (1, 299), (5, 3)],
    "lines": [(1, 40), (1, 44), (1, 57), (2, 33), (3, 64), (1, 100), (1, 8), (4, 19), (1, 5)],
    "images": [(1, 16, 16), (1, 24, 20), (2, 16, 16), (2, 33, 17), (9, 8, 8), (1, 64, 48),
               (3, 5, 7), (1, 1, 9), (8, 24, 20)],
    "resized": [(1, 8, 8), (1, 9, 11), (2, 6, 6), (1, 5, 8)],
}  # fmt: skip


@pytest.mark.any_level
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("name", STREAMS)
def test_every_shape_gets_what_a_new_model_gives(name: str, dtype: str | None) -> None:
    made = streamed_models.model(name)
    kept = dlprim.onnx.load(made, dtype=dtype)
    for extents in STREAMS[name]:
        arrays = streamed_models.inputs(name, *extents)
        expected = dlprim.onnx.load(made, dtype=dtype).run(arrays)
        for found, due in zip(kept.run(arrays), expected, strict=True):
            np.testing.assert_array_equal(found, due, f"{extents}")


@pytest.mark.any_level
@pytest.mark.parametrize("name", ["words", "lines", "images"])
def test_shapes_that_are_alike_are_compiled_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings = []

    class Counted(Recording):
        def __init__(self) -> None:
            super().__init__()
            recordings.append(self)

    monkeypatch.setattr(networks, "Recording", Counted)
    model = dlprim.onnx.load(streamed_models.model(name))
    for extent in range(40, 60):
        extents = (2, extent, 48) if name == "images" else (2, extent)
        model.run(streamed_models.inputs(name, *extents))
    # Such as a rest of rows beside pieces, or a padding that is there or not.
    assert len(recordings) <= 4


def test_shapes_from_many_threads() -> None:
    made = streamed_models.model("words")
    model = dlprim.onnx.load(made)
    shapes = [(n, s) for n in (1, 2, 3) for s in range(3, 40, 3)]
    expected = {
        it: dlprim.onnx.load(made).run(streamed_models.inputs("words", *it)) for it in shapes
    }
    faults: list[Any] = []

    def call(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(40):
            extents = draw.choice(shapes)
            found = model.run(streamed_models.inputs("words", *extents))
            if not all(map(np.array_equal, found, expected[extents])):
                faults.append(extents)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert faults == []


@pytest.mark.any_level
def test_a_model_that_refuses_a_shape_says_why_and_goes_on() -> None:
    model = dlprim.onnx.load(streamed_models.model("words"))
    for steps in (5, 6, 7):
        model.run(streamed_models.inputs("words", 1, steps))
    with pytest.raises(dlprim.onnx.ModelError, match="301"):
        model.run(streamed_models.inputs("words", 1, 301))
    assert model.run(streamed_models.inputs("words", 1, 8))[0].shape == (1, 8, 64)


@pytest.mark.any_level
def test_as_many_shapes_are_kept_as_somebody_says() -> None:
    made = streamed_models.model("words")
    model = dlprim.onnx.load(made, kept_shapes=3)
    for steps in range(2, 12):
        model.run(streamed_models.inputs("words", 1, steps))
    assert len(model._networks._kept) == 3
    with pytest.raises(ValueError, match="kept_shapes is 0, expected at least 1"):
        dlprim.onnx.load(made, kept_shapes=0)
    with pytest.raises(TypeError, match="kept_shapes is of type float"):
        dlprim.onnx.load(made, kept_shapes=2.0)  # type: ignore[arg-type]
