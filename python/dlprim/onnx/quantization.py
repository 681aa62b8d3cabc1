"""Static quantisation of models: calibration inputs in, a model that computes in 8 bits out."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from dlprim.arguments.scalars import flag, real
from dlprim.graph import Graph
from dlprim.graph.quantization import Settings, calibrate
from dlprim.onnx.model import OnnxModel

_CALLS = (
    "a list (or another iterable) with the inputs of some dozens of calls that are like those of "
    "use: for each its array, a tuple of arrays, or a dict of arrays by name"
)
_METHODS = ("minmax", "percentile", "entropy")


def quantize(
    model: OnnxModel,
    calibration: Iterable[Any],
    *,
    method: Literal["minmax", "percentile", "entropy"] = "minmax",
    percentile: float = 99.99,
    symmetric: bool = False,
    exclude: Iterable[str] = (),
    max_error: float = 0.1,
) -> OnnxModel:
    """The model with its layers multiplying in 8 bits, where that loses little.

    Convolutions, products with constant weights and both products of attention are quantised, and
    what is between them as far as it can be: weights per channel, symmetric in int8, arrays per
    tensor. Other products of two computed arrays, masks, softmax, norms and tables stay in floats.

    Parameters
    ----------
    model : OnnxModel
        It stays as it is.
    calibration : iterable of ndarray, tuple or mapping
        Inputs that are like those of use, some dozens: for each call of the model its only array,
        its arrays in order, or by name.
    method : "minmax", "percentile" or "entropy"
        What the range of an array holds: all elements; without what lies beyond a percentile; or
        what keeps most information.
    percentile : float
        For that method: per cent of the elements below the upper bound, and above the lower one.
    symmetric : bool
        Whether arrays are int8 around zero; otherwise they are uint8 with a zero point.
    exclude : iterable of str
        Names of nodes that stay in floats.
    max_error : float
        Layers stay in floats whose result moves further than this part of its norm when they alone
        are quantised.

    Returns
    -------
    OnnxModel
        Its ``table`` says which arrays and layers are quantised, and the layers' errors.

    Raises
    ------
    TypeError, ValueError
        The model or a setting is not one, calibration has no inputs or such as the model refuses,
        or no layer can be quantised.
    """
    if not isinstance(model, OnnxModel):
        raise TypeError(f"model is of type {type(model).__name__}, expected an OnnxModel")
    if model.table is not None:
        raise ValueError("model is quantised already, expected one that is not")
    settings = _settings(method, percentile, symmetric, exclude, max_error)
    _require_calls(calibration)
    graphs: OrderedDict[Any, Graph] = OrderedDict()
    batches = [batch for it in calibration for batch in model.traced(_given(model, it), graphs)]
    if not batches:
        raise ValueError(f"calibration has no inputs, expected {_CALLS}")
    return model.quantized(calibrate(batches, settings), graphs.values())


def _require_calls(calibration: Any) -> None:
    """TypeError for what holds one call's inputs and not those of several."""
    kind = type(calibration).__name__
    if getattr(calibration, "ndim", None) is not None or hasattr(calibration, "__array__"):
        kind = f"an array of shape {getattr(calibration, 'shape', '?')}"
    elif isinstance(calibration, Mapping):
        kind = f"a mapping of {', '.join(map(str, calibration))}"
    elif isinstance(calibration, Iterable) and not isinstance(calibration, str | bytes):
        return
    raise TypeError(f"calibration is {kind}, expected {_CALLS}; that of one call is [inputs]")


def _settings(
    method: Any, percentile: Any, symmetric: Any, exclude: Any, max_error: Any
) -> Settings:
    if not isinstance(method, str) or method not in _METHODS:
        raise ValueError(f"method is {method!r}, expected one of {', '.join(_METHODS)}")
    percent, error = real("percentile", percentile), real("max_error", max_error)
    if not 50 < percent <= 100:
        raise ValueError(f"percentile is {percent}, expected more than 50 and at most 100")
    if math.isnan(error) or error < 0:
        raise ValueError(f"max_error is {error}, expected at least 0")
    if isinstance(exclude, str):
        raise TypeError("exclude is a str, expected names of nodes in a list")
    names = frozenset(exclude)
    if not all(isinstance(it, str) for it in names):
        raise TypeError("exclude holds what is no str, expected names of nodes")
    return Settings(method, percent, flag("symmetric", symmetric), names, error)


def _given(model: OnnxModel, inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return model.named((), inputs)
    return model.named(inputs if isinstance(inputs, tuple | list) else (np.asarray(inputs),), {})
