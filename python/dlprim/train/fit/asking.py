"""`dlprim.nn.predict`: what a model gives for more samples than one pass takes."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.nn import Module
from dlprim.train.fit.batches import as_operand, each, lengths_of
from dlprim.train.loop import called
from dlprim.train.modes import in_mode


def predict(model: Module, x: Any, *, batch_size: int = 256) -> Any:
    """What a model gives in inference, batch by batch.

    Parameters
    ----------
    model : Module
        Afterwards in the mode that it was in.
    x : array, or a tuple or dict of arrays
        Whose first axis are the samples; float64 is converted to float32.
    batch_size : int
        Samples that are computed at a time.

    Returns
    -------
    ndarray, or a tuple, list or dict as the model gives
        The results of all samples; each array along its first axis.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range, or the model does not take x, or gives
        a number where an array of several samples was expected.
    """
    require_module(model)
    size = integer("batch_size", batch_size, 1)
    given = each(x, as_operand)
    lengths = lengths_of(given)
    if len(lengths) != 1:
        raise ValueError(f"x has {sorted(lengths)} samples, expected as many in each array")
    samples = lengths.pop()
    with in_mode(model, False):
        parts = [slice(begin, begin + size) for begin in range(0, max(samples, 1), size)]
        found = [called(model, each(given, itemgetter(it))) for it in parts]
    return _joined(found)


def require_module(model: Any) -> None:
    if not isinstance(model, Module):
        raise TypeError(f"model is of type {type(model).__name__}, expected a dlprim.nn.Module")


def _joined(parts: list[Any]) -> Any:
    """Results of batches as one, nested as each of them is."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: _joined([it[name] for it in parts]) for name in first}
    if isinstance(first, tuple | list):
        entries = [_joined(list(it)) for it in zip(*parts, strict=True)]
        kind: Any = type(first)
        return kind(*entries) if hasattr(first, "_fields") else kind(entries)
    arrays = [np.asarray(it) for it in parts]
    if len(arrays) > 1 and arrays[0].ndim == 0:
        raise ValueError(
            "model gives a number for each batch, expected arrays whose first axis are the "
            "samples; batch_size = len(x) takes all samples at once"
        )
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
