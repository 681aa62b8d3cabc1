"""Limits on gradients, between the backward pass and the optimiser's step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dlprim import _core
from dlprim.arguments.arrays import FloatArray
from dlprim.arguments.scalars import flag, real
from dlprim.functions.rows.row_programs import run
from dlprim.nn.parameter import Parameter


def clip_grad_norm(
    parameters: Parameter | Iterable[Parameter],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> float:
    """Scales gradients in place so that their norm, of all together, is at most ``max_norm``.

    As `torch.nn.utils.clip_grad_norm_`: a norm above it makes the factor
    ``max_norm / (norm + 1e-6)``.

    Parameters
    ----------
    parameters : dlprim.nn.Parameter, or iterable of them
        As from `dlprim.nn.Module.parameters`.
    max_norm : float
        At least 0; infinity leaves finite gradients as they are.
    norm_type : float
        The exponent, above 0; infinity for the largest magnitude.
    error_if_nonfinite : bool
        Whether a norm that is NaN or infinite is an error. Else a NaN makes all gradients NaN, and
        an infinite norm makes them 0, or NaN where they are infinite themselves, and all of them
        NaN where max_norm is infinite too.

    Returns
    -------
    float
        The norm in front of it; 0 without parameters. Squares are summed in float32, parts of 4096
        in float64: the same bits for any number of threads.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range.
    RuntimeError
        The norm is not finite and error_if_nonfinite is set; nothing was changed.
    """
    gradients = _gradients(parameters)
    limit = _bound("max_norm", max_norm)
    is_strict = flag("error_if_nonfinite", error_if_nonfinite)
    norm = _norm(gradients, _exponent(norm_type))
    if is_strict and not math.isfinite(norm):
        raise RuntimeError(
            f"The norm of all gradients is {norm}, expected a finite number; with "
            "error_if_nonfinite=False they are scaled by it all the same."
        )
    factor = _core.clipping_factor(norm, limit)
    if factor != 1:
        for it in gradients:
            run("scaled", 1, it.size, (it, factor, it))
    return norm


def clip_grad_value(parameters: Parameter | Iterable[Parameter], clip_value: float) -> None:
    """Limits every element of the gradients to ``[-clip_value, clip_value]``, in place.

    As for `torch.nn.utils.clip_grad_value_`; NaN stays.

    Parameters
    ----------
    parameters : dlprim.nn.Parameter, or iterable of them
        As from `dlprim.nn.Module.parameters`.
    clip_value : float
        At least 0, or infinity.

    Raises
    ------
    TypeError, ValueError
        An argument is of another kind or outside its range; nothing was changed.
    """
    gradients = _gradients(parameters)
    limit = _bound("clip_value", clip_value)
    for it in gradients:
        run("limited", 1, it.size, (it, limit, it))


def _gradients(parameters: Parameter | Iterable[Parameter]) -> list[FloatArray]:
    if isinstance(parameters, Parameter):
        parameters = [parameters]
    if isinstance(parameters, np.ndarray) or not isinstance(parameters, Iterable):
        raise TypeError(
            f"parameters is of type {type(parameters).__name__}, expected a dlprim.nn.Parameter or "
            "a list of them, as model.parameters() gives it"
        )
    found = list(parameters)
    for place, it in enumerate(found):
        if not isinstance(it, Parameter):
            raise TypeError(
                f"parameters[{place}] is of type {type(it).__name__}, expected a "
                "dlprim.nn.Parameter, whose gradient is limited"
            )
    return [it.gradient for it in {id(it): it for it in found}.values()]


def _is_infinity(value: Any) -> bool:
    return isinstance(value, float | np.floating) and value == math.inf


def _bound(name: str, value: Any) -> float:
    """At least 0; infinity, which nothing exceeds, as well."""
    return math.inf if _is_infinity(value) else real(name, value, 0)


def _exponent(norm_type: Any) -> float:
    if _is_infinity(norm_type):
        return math.inf
    number = real("norm_type", norm_type)
    if number <= 0:
        raise ValueError(f"norm_type is {norm_type}, expected a number above 0, or infinity")
    return number


def _norm(gradients: list[FloatArray], exponent: float) -> float:
    filled = [it for it in gradients if it.size]
    if exponent == 2:
        return _core.gradient_norm(filled)
    ends = [end for it in filled for end in (it.max(), -it.min())]
    largest = abs(float(np.max(ends, initial=0)))
    if exponent == math.inf or largest == 0 or not math.isfinite(largest):
        return largest
    # Of the largest one as 1: high powers of others leave float64's range.
    powers = (np.abs(it / np.float64(largest)) ** exponent for it in filled)
    return float(largest * sum(it.sum() for it in powers) ** (1 / exponent))
