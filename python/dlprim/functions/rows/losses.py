"""Losses of single elements and their gradients: squared differences, binary cross-entropy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.floats import (
    float_operand,
    holds_bits,
    plain_operand,
    widened,
)
from dlprim.arguments.instead import instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, real
from dlprim.functions.loss import REDUCTIONS, LossAndGradient
from dlprim.functions.rows.row_programs import require_alike, result_like, run, run_parts


@instead(input="x", target="y")
def mse_loss(
    x: Any,
    y: Any,
    *,
    reduction: str = "mean",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Any:
    """Squared differences, ``(x - y)**2``, and their mean or sum.

    Like `torch.nn.functional.mse_loss`, for arrays of one shape.

    Parameters
    ----------
    x, y : array of float32 or bfloat16, of the same dtype and shape
        The prediction and the target.
    reduction : "mean", "sum" or "none"
        Over all elements; "none" returns the loss of each.
    out : ndarray of the dtype and shape of x, optional
        Only with reduction="none". Written and returned. Must be C-contiguous; may be x or y.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; a result that is an array is
        then uint16 too.

    Returns
    -------
    float, or ndarray of the dtype and shape of x
        Computed in float32; a mean of nothing is NaN.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, reduction is unknown, `out` partly overlaps an
        operand, or the result is not an array.
    """
    return _value(_squares(x, y, dtype), reduction, out)


def mse_loss_backward(
    dy: Any,
    x: Any,
    y: Any,
    *,
    reduction: str = "mean",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The gradient of `mse_loss` with respect to x; that with respect to y is its negative.

    Parameters
    ----------
    dy : float; with reduction="none" an array of the dtype and shape of x
        The gradient with respect to the result of `mse_loss`; 1 if that is the loss itself.
    x, y : array of float32 or bfloat16, of the same dtype and shape
    reduction : "mean", "sum" or "none"
        All as passed to `mse_loss`.
    out : ndarray of the dtype and shape of x, optional
        Written and returned. Must be C-contiguous; may be dy, x or y.
    dtype : None or "bfloat16"
        As for `mse_loss`.

    Returns
    -------
    ndarray of the dtype and shape of x

    Raises
    ------
    TypeError, ValueError
        As for `mse_loss`, or dy is not a finite number where one is expected.
    """
    return _slope(_squares(x, y, dtype), dy, reduction, out)


@instead(input="logits", target="targets")
def binary_cross_entropy_with_logits(
    logits: Any,
    targets: Any,
    weight: Any = None,
    *,
    pos_weight: Any = None,
    reduction: str = "mean",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Any:
    """Cross-entropy of ``sigmoid(logits)`` and targets, ``-t log(p) - (1 - t) log(1 - p)``.

    Like PyTorch's function of this name, but without its cancellation for large logits.

    Parameters
    ----------
    logits, targets : array of float32 or bfloat16, of the same dtype and shape
        Targets are probabilities, usually 0 or 1.
    weight : array of float32 or bfloat16, optional
        Factors of the losses, broadcastable to logits. A shape that is neither that of logits nor
        of its last axes costs a copy.
    pos_weight : array of float32 or bfloat16, optional
        Factors of ``-t log(p)``, usually one per class. Like weight; if it has the shape of logits,
        weight is copied to that shape too.
    reduction : "mean", "sum" or "none"
        Over all elements, whatever their weights; "none" returns the loss of each.
    out : ndarray of the dtype and shape of logits, optional
        Only with reduction="none". Written and returned. Must be C-contiguous; may be logits or
        targets.
    dtype : None or "bfloat16"
        As for `mse_loss`.

    Returns
    -------
    float, or ndarray of the dtype and shape of logits
        Computed in float32; a mean of nothing is NaN. An infinite logit with the sign of its target
        gives 0 times infinity, NaN, as in PyTorch.

    Raises
    ------
    TypeError, ValueError
        As for `mse_loss`, or a weight has the wrong dtype or shape.

    Examples
    --------
    >>> x, y = np.zeros((2, 5, 3), np.float32)
    >>> weights = {"pos_weight": np.float32([1, 2, 4]), "reduction": "sum"}
    >>> loss = dlprim.binary_cross_entropy_with_logits(x, y, **weights)
    >>> dx = dlprim.binary_cross_entropy_with_logits_backward(1.0, x, y, **weights)
    """
    return _value(_logistic((logits, targets, weight, pos_weight), dtype), reduction, out)


def binary_cross_entropy_with_logits_backward(
    dy: Any,
    logits: Any,
    targets: Any,
    weight: Any = None,
    *,
    pos_weight: Any = None,
    reduction: str = "mean",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The gradient of `binary_cross_entropy_with_logits` with respect to logits.

    Parameters
    ----------
    dy : float; with reduction="none" an array of the dtype and shape of logits
        The gradient with respect to the result; 1 if that is the loss itself.
    logits, targets : array of float32 or bfloat16, of the same dtype and shape
    weight, pos_weight : array of float32 or bfloat16, optional
    reduction : "mean", "sum" or "none"
        All as passed to `binary_cross_entropy_with_logits`.
    out : ndarray of the dtype and shape of logits, optional
        Written and returned. Must be C-contiguous; may be dy, logits or targets.
    dtype : None or "bfloat16"
        As for `mse_loss`.

    Returns
    -------
    ndarray of the dtype and shape of logits

    Raises
    ------
    TypeError, ValueError
        As for `mse_loss_backward`, or a weight has the wrong dtype or shape.
    """
    return _slope(_logistic((logits, targets, weight, pos_weight), dtype), dy, reduction, out)


def mse_loss_with_gradient(
    x: Any, y: Any, reduction: str, gradient: bool, out: Array | None
) -> LossAndGradient:
    """`mse_loss` and the gradient with respect to x, from one reading of both."""
    return _both(_squares(x, y, None), reduction, gradient, out)


def binary_cross_entropy_with_gradient(
    operands: tuple[Any, Any, Any, Any], reduction: str, gradient: bool, out: Array | None
) -> LossAndGradient:
    """Of (logits, targets, weight, pos_weight); as `mse_loss_with_gradient`."""
    return _both(_logistic(operands, None), reduction, gradient, out)


class _Elements(NamedTuple):
    """A loss and its operands, as the programs of ``name`` take them."""

    name: str
    operands: dict[str, Array]  # of the caller, by argument: x, y
    bits: bool
    weights: dict[str, FloatArray]  # of the caller too
    tensors: tuple[FloatArray, ...] = ()
    columns: tuple[FloatArray, ...] = ()
    numbers: tuple[float, ...] = ()

    @property
    def x(self) -> Array:
        return next(iter(self.operands.values()))

    def result(self, out: Array | None, **others: Array) -> Array:
        dst = result_like(out, self.x, **self.operands, **others)
        for name, it in self.weights.items():
            if np.may_share_memory(dst, it):
                raise ValueError(f"out shares memory with {name}, expected a separate array")
        return dst

    def run(
        self, form: str, *others: float | Array, dy: Array | None = None, sums: bool = False
    ) -> float:
        tensors = (*self.operands.values(), *self.tensors)
        if dy is not None:
            tensors = (dy, *tensors)
        name, behind = self.name + form, (*self.numbers, *others)
        if sums or self.columns:
            return run_parts(name, tensors, self.columns, behind, sums)
        run(name, 1, self.x.size, (*tensors, *behind))
        return 0.0


def _pair(names: tuple[str, str], values: tuple[Any, Any], bits: bool) -> dict[str, Array]:
    """Arrays of one dtype and shape, by the names of the arguments."""
    x, y = (plain_operand(name, it, bits) for name, it in zip(names, values, strict=True))
    require_alike(names[1], y, names[0], x)
    return {names[0]: x, names[1]: y}


def _squares(x: Any, y: Any, dtype: npt.DTypeLike | None) -> _Elements:
    bits = holds_bits(dtype)
    return _Elements("mse_loss", _pair(("x", "y"), (x, y), bits), bits, {})


def _logistic(given: tuple[Any, Any, Any, Any], dtype: npt.DTypeLike | None) -> _Elements:
    logits, targets, weight, pos_weight = given
    bits = holds_bits(dtype)
    operands = _pair(("logits", "targets"), (logits, targets), bits)
    shape, size = operands["logits"].shape, operands["logits"].size
    weights = {
        name: _weight(name, it, shape, bits)
        for name, it in (("weight", weight), ("pos_weight", pos_weight))
        if it is not None
    }
    plain, positive = (
        weights[name] if size and name in weights else _ONE for name in ("weight", "pos_weight")
    )
    elements = _Elements("bce_with_logits", operands, bits, weights)
    if plain.size == positive.size == 1:
        return elements._replace(numbers=(plain.item(), positive.item()))
    if _repeats(plain, shape) and _repeats(positive, shape):
        period = max(plain, positive, key=lambda it: it.size).shape
        columns = _spread(plain, period), _spread(positive, period)
        return elements._replace(name=elements.name + "_columns", columns=columns)
    whole = _spread(plain, shape)
    if _repeats(positive, shape):
        name = elements.name + "_tensor"
        return elements._replace(name=name, tensors=(whole,), columns=(positive,))
    tensors = whole, _spread(positive, shape)
    return elements._replace(name=elements.name + "_tensors", tensors=tensors)


_ONE = np.ones((), np.float32)
_LARGEST = float(np.finfo(np.float32).max)


def _weight(name: str, value: Any, shape: tuple[int, ...], bits: bool) -> FloatArray:
    array = widened(float_operand(name, value, bits))
    if not _fits(array, shape):
        raise ValueError(
            f"{name} has shape {array.shape}, expected one that is repeated to {shape}, the shape "
            "of logits"
        )
    own = array.shape
    while own[:1] == (1,):
        own = own[1:]
    return array.reshape(own)


def _repeats(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether it is one number, or repeats along elements in their order."""
    ndim = array.ndim
    return array.size == 1 or (0 < ndim < len(shape) and array.shape == shape[-ndim:])


def _fits(array: Array, shape: tuple[int, ...]) -> bool:
    """Whether NumPy repeats it to that shape."""
    own = (1,) * (len(shape) - array.ndim) + array.shape
    return len(own) == len(shape) and all(
        one in (1, other) for one, other in zip(own, shape, strict=True)
    )


def _spread(array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    return np.ascontiguousarray(np.broadcast_to(array, shape))


def _value(it: _Elements, reduction: str, out: Array | None) -> Any:
    kind = one_of_names("reduction", reduction, REDUCTIONS)
    if kind == "none":
        dst = it.result(out)
        it.run("", dst)
        return dst
    if out is not None:
        raise ValueError(
            f"out is given with reduction={kind!r}, whose result is a number, expected None"
        )
    return _reduced(it.run("_sum", sums=True), kind, it.x.size)


def _slope(it: _Elements, dy: Any, reduction: str, out: Array | None) -> Array:
    if one_of_names("reduction", reduction, REDUCTIONS) != "none":
        factor = _factor(_single("dy", dy), reduction, it.x.size)
        dst = it.result(out)
        it.run("_slope", factor, dst)
        return dst
    diff = _pair((next(iter(it.operands)), "dy"), (it.x, dy), it.bits)["dy"]
    dst = it.result(out, dy=diff)
    it.run("_backward", dst, dy=diff)
    return dst


def _both(it: _Elements, reduction: str, gradient: bool, out: Array | None) -> LossAndGradient:
    kind = one_of_names("reduction", reduction, REDUCTIONS)
    if not flag("gradient", gradient):
        return LossAndGradient(_value(it, kind, None), None)
    if kind == "none":
        loss, dst = _value(it, kind, None), it.result(out)
        it.run("_slope", 1.0, dst)
        return LossAndGradient(loss, dst)
    dst = it.result(out)
    total = it.run("_with_slope", _factor(1.0, kind, it.x.size), dst, sums=True)
    return LossAndGradient(_reduced(total, kind, it.x.size), dst)


def _single(name: str, value: Any) -> float:
    """A number within the range of float32."""
    number = real(name, value)
    if abs(number) > _LARGEST:
        raise ValueError(f"{name} is {value}, expected a number within float32's range")
    return number


def _factor(dy: float, reduction: str, size: int) -> float:
    return dy / size if reduction == "mean" and size else dy


def _reduced(total: float, reduction: str, size: int) -> float:
    if reduction == "sum":
        return total
    return total / size if size else float("nan")
