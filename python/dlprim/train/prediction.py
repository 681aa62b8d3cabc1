"""Trained models out of their checkpoints: architecture and weights, to predict with."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlprim.arguments.arrays import Array, FloatArray, converted, viewed
from dlprim.arguments.floats import name_of, widened
from dlprim.arguments.locks import Lock
from dlprim.files import replaced
from dlprim.model_file import WRONG, reason_of
from dlprim.nn import Module
from dlprim.nn.initial import undrawn
from dlprim.train import checkpoint
from dlprim.train.config import LANGUAGE, RECURRENT, TrainConfig
from dlprim.train.data import MissingDataError, images_of, rows_of, values_of
from dlprim.train.fit.asking import predict
from dlprim.train.flags import PROGRAM
from dlprim.train.folder import FILE, CheckpointError
from dlprim.train.models import build
from dlprim.train.modes import in_mode
from dlprim.train.npz import DamagedFileError, read_array, read_arrays
from dlprim.train.progress import warn
from dlprim.train.tasks import enlarged_size, seeded

_BATCH = 128  # images that are computed at a time, so that activations stay small


class TrainedModel:
    """A model in inference mode: called with an array, it returns float32 logits.

    Models of images take (N, C, H, W) or (N, C) of the values that they were trained on: uint8 is
    scaled to -1 to 1, all else is taken as it is, and what the training enlarged or repeated over
    channels is treated alike. The result is (N, classes). Models of text take integers (T, N),
    places in ``dlprim.train.text.ALPHABET`` that each sequence begins with; the result is
    (T, N, classes), of the character behind each.

    Several Python threads may call it; one at a time computes, on all of dlprim's threads.

    Attributes
    ----------
    module : Module
        The layers with their weights, whose ``forward(x, training=False)`` is called.
    config : TrainConfig
        The settings of the run.
    classes : int
    """

    def __init__(
        self,
        module: Module,
        config: TrainConfig,
        channels: int,
        classes: int,
        inputs: Mapping[str, Any] | None = None,
    ) -> None:
        self.module, self.config, self.classes = module, config, classes
        self._channels = channels  # of images; values of a row
        self._inputs = inputs or {}  # of the training, as `Dataset.inputs`; {} if not known
        self._lock = Lock()  # the mode of a module is that of all threads

    def __call__(self, x: ArrayLike) -> FloatArray:
        """The logits of each class.

        A RuntimeWarning says where values lie far outside those of the training, as pixels of 0 to
        255 do that are not uint8, or images have another size.

        Raises
        ------
        TypeError
            x is no array of numbers; for models of text, of integers.
        ValueError
            x has not the shape that the model takes, or a value that is not finite or no character.
        """
        doubts: list[str] = []
        dst = self.logits(_as_array(x), "x", doubts.append)
        for doubt in doubts:
            warnings.warn(doubt, RuntimeWarning, stacklevel=2)
        return dst

    def logits(self, x: Array, name: str, doubt: Callable[[str], None]) -> FloatArray:
        """As a call; messages say ``name`` instead of x, and ``doubt`` takes the warnings."""
        if self.config.model in LANGUAGE:
            return self._of_text(x, name)
        if x.dtype.kind not in "iuf" and name_of(x.dtype) != "bfloat16":
            raise TypeError(f"{name} has dtype {x.dtype}, expected integers or floats")
        if x.ndim not in (2, 4) or x[:1].size == 0 < x.shape[0]:
            raise ValueError(
                f"{name} has the shape {x.shape}, expected (N, C) or (N, C, H, W) with extents "
                "above 0"
            )
        try:
            values = values_of(x, name)
            src = self._prepared(values, name)
        except MissingDataError as error:
            raise ValueError(str(error)) from error
        self._compare(values, name, doubt)
        with self._lock:
            return widened(predict(self.module, src, batch_size=_BATCH))

    def _prepared(self, src: FloatArray, name: str) -> FloatArray:
        """As the training made its images."""
        if self.config.model != "mlp":
            return images_of(src, self._channels, enlarged_size(self.config), name)
        shape = self._inputs.get("shape", ())
        if src.ndim == 4 and len(shape) == 3 and list(src.shape[1:]) != list(shape):
            wanted = ", ".join(map(str, shape))
            raise ValueError(
                f"{name} has the shape {src.shape}, expected (N, {wanted}) as in training"
            )
        rows = rows_of(src)
        if rows.shape[1] != self._channels:
            raise ValueError(
                f"{name} has {rows.shape[1]} values per sample, expected {self._channels} as in "
                "training"
            )
        return rows

    def _compare(self, src: FloatArray, name: str, doubt: Callable[[str], None]) -> None:
        """Says where images are unlike those of the training, though the model takes them."""
        if not self._inputs or src.size == 0:
            return
        least, most = self._inputs["least"], self._inputs["most"]
        margin = (most - least or 1.0) + 4 * self.config.noise
        if src.min() < least - margin or src.max() > most + margin:
            doubt(
                f"{name} holds values from {src.min():g} to {src.max():g}, those of the training "
                f"were {least:g} to {most:g}: expected values of the same scale (of integers only "
                "uint8 is scaled)"
            )
        if self.config.model != "mlp" and not enlarged_size(self.config):
            sizes = [_sides(it) for it in (src.shape[1:], self._inputs["shape"])]
            if sizes[0] != sizes[1]:
                own, trained = (" x ".join(map(str, it)) for it in sizes)
                doubt(f"{name} has images of {own} pixels, those of the training had {trained}")

    def _of_text(self, x: Array, name: str) -> FloatArray:
        if x.dtype.kind not in "iu":
            raise TypeError(f"{name} has dtype {x.dtype}, expected integers: places of characters")
        if x.ndim != 2 or x.size == 0:
            raise ValueError(
                f"{name} has the shape {x.shape}, expected (T, N) with extents above 0"
            )
        if x.min() < 0 or x.max() >= self.classes:
            other = x.min() if x.min() < 0 else x.max()
            raise ValueError(f"{name} holds {other}, expected 0 to {self.classes - 1}")
        places = x.astype(np.int64)
        if self.config.model not in RECURRENT:
            return np.ascontiguousarray(self._inferred(places.T).swapaxes(0, 1))
        return self._inferred(places).reshape(*x.shape, self.classes)

    def _inferred(self, src: Array) -> FloatArray:
        with self._lock, in_mode(self.module, False):
            return widened(self.module(src))


def load(folder: str | os.PathLike[str]) -> TrainedModel:
    """The model of the checkpoint that ``python -m dlprim.train --checkpoint folder`` wrote.

    Raises
    ------
    CheckpointError
        There is none, it is damaged, or its arrays are not those of its model.
    """
    path = Path(folder) / FILE
    if not path.exists():
        raise CheckpointError(
            f"{path} does not exist: expected a folder that python -m dlprim.train --checkpoint "
            "wrote to"
        )
    description, arrays = checkpoint.read(path)
    config = checkpoint.stored_config(description)
    prefix = "model/"
    state = {it.removeprefix(prefix): arrays[it] for it in arrays if it.startswith(prefix)}
    first, last = next(iter(state.values()), None), next(reversed(state.values()), None)
    if first is None or last is None or first.ndim < 2 or last.ndim != 1:
        raise CheckpointError(f"{path} holds no weights of a model")
    inputs = description.get("inputs") or {}
    channels, classes = first.shape[1], last.size  # a filter or matrix comes first, a bias last
    shape: tuple[int, ...] = (channels,)
    if config.model == "gpt":
        classes = first.shape[0]
    if config.model == "vit":
        channels, side = 3, enlarged_size(config) or _sides(inputs.get("shape", (0,)))[0]
        shape = (channels, side, side)
    try:
        with undrawn(state.values()):
            module = build(config, shape, classes, seeded(config.seed, 1))
        module.load_state_dict(state)
    except WRONG as error:
        raise CheckpointError(f"{path} does not fit the model: {reason_of(error)}") from error
    return TrainedModel(module, config, channels, classes, inputs)


def _as_array(x: Any) -> Array:
    """The argument x, of numbers as far as one can see."""
    if isinstance(x, np.ndarray) or hasattr(x, "__dlpack__"):
        return viewed("x", x, "numbers")
    return converted("x", x)


def _sides(shape: Sequence[int]) -> tuple[int, ...]:
    """Height and width of an image, (C, H, W) or the pixels of a square."""
    return tuple(shape[1:]) if len(shape) == 3 else (math.isqrt(shape[0]),) * 2


def predict_file(model: TrainedModel, source: Path, target: Path | None) -> NDArray[np.intp]:
    """The class of each image of a file.

    Parameters
    ----------
    model : TrainedModel
        Of images.
    source : Path
        An .npy file, or an .npz file with the array ``images``.
    target : Path, optional
        Where the logits are written to, an .npy file.

    Raises
    ------
    MissingDataError
        The file cannot be read or holds no such array.
    TypeError, ValueError
        Its images do not fit the model, or the model is one of text.
    OSError
        The target cannot be written.
    """
    if model.config.model in LANGUAGE:
        raise ValueError(
            f"--predict: the checkpoint is of the model {model.config.model}, expected a model of "
            "images"
        )
    try:
        if source.suffix == ".npy":
            images, name = read_array(source), str(source)
        else:
            arrays = read_arrays(source)
            if "images" not in arrays:
                raise MissingDataError(f"{source} holds {sorted(arrays)}, expected 'images'")
            images, name = arrays["images"], f"{source}: images"
    except (OSError, DamagedFileError) as error:
        raise MissingDataError(f"{source} cannot be read: {error}") from error
    logits = model.logits(images, name, lambda doubt: warn(PROGRAM, doubt))
    if target is not None:
        with replaced(target) as file:
            np.save(file, logits, allow_pickle=False)
    return np.asarray(logits.argmax(axis=1))
