"""Stateless functions on plain layouts: PyTorch's shapes and defaults, arrays in and out."""

from typing import Any

from dlprim import _core
from dlprim.arrays import FloatArray, float_array, require_shape, result_array, rows_of

_ACTIVATIONS = ("relu",)
_MOST_CHANNELS = 1 << 24  # the kernel's bound on leading dimensions


def linear(
    x: Any, w: Any, bias: Any = None, activation: str | None = None, out: FloatArray | None = None
) -> FloatArray:
    """A fully connected layer: ``y = activation(x @ w.T + bias)``.

    Parameters
    ----------
    x : array of float32, (..., C)
    w : array of float32, (K, C)
    bias : array of float32, (K,), optional
    activation : None or "relu"
        Applied before the only store of the result.
    out : ndarray of float32, (..., K), optional
        Written and returned; must be C-contiguous and share no memory with an operand.

    Returns
    -------
    ndarray of float32, (..., K)
        The same bits for any number of threads.

    Raises
    ------
    TypeError
        An argument is no array or not of float32.
    ValueError
        Shapes do not agree, the activation is unknown, or `out` cannot take the result.

    Notes
    -----
    Blocks of the product run on the batch-reduce GEMM kernel (arXiv 1906.06440, the fully
    connected layer); w is packed into panels of 64 output channels on every call.
    """
    src, weights = _operands(x, w)
    offset = None if bias is None else float_array("bias", bias)
    if offset is not None:
        require_shape("bias", offset, weights.shape[:1], "K from w")
    shape = (*src.shape[:-1], weights.shape[0])
    dst = result_array(out, shape, {"x": src, "w": weights, "bias": offset})
    _core.linear_forward(rows_of(src), weights, offset, _activation(activation), rows_of(dst))
    return dst


def linear_backward(
    dy: Any, x: Any, w: Any, y: Any = None, activation: str | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients of `linear` with respect to x, w and bias.

    Parameters
    ----------
    dy : array of float32, (..., K)
        Gradient of the loss with respect to the result of `linear`.
    x : array of float32, (..., C)
    w : array of float32, (K, C)
    y : array of float32, (..., K)
        The result of `linear`; needed when `activation` is given, else not read.
    activation : None or "relu"
        As passed to `linear`.

    Returns
    -------
    dx : ndarray of float32, (..., C)
    dw : ndarray of float32, (K, C)
    db : ndarray of float32, (K,)

    Raises
    ------
    TypeError
        An argument is no array or not of float32.
    ValueError
        Shapes do not agree, the activation is unknown, or y is missing.
    """
    src, weights = _operands(x, w)
    shape = (*src.shape[:-1], weights.shape[0])
    diff_dst = float_array("dy", dy)
    require_shape("dy", diff_dst, shape, "leading axes of x, K from w")
    kind = _activation(activation)
    dst = None
    if activation is not None:
        if y is None:
            raise ValueError(
                f"y is missing: the gradient of activation={activation!r} needs the result of "
                "the forward pass"
            )
        dst = float_array("y", y)
        require_shape("y", dst, shape, "leading axes of x, K from w")
        dst = rows_of(dst)
    dx, dw, db = _core.linear_backward(rows_of(diff_dst), rows_of(src), weights, dst, kind)
    return dx.reshape(src.shape), dw, db


def _operands(x: Any, w: Any) -> tuple[FloatArray, FloatArray]:
    src = float_array("x", x)
    weights = float_array("w", w)
    if weights.ndim != 2:
        raise ValueError(f"w has shape {weights.shape}, expected two dimensions (K, C)")
    if src.ndim == 0 or src.shape[-1] != weights.shape[1]:
        raise ValueError(
            f"x has shape {src.shape}, expected (..., {weights.shape[1]}): the last axis holds "
            f"the C input channels of w, whose shape is {weights.shape}"
        )
    if max(weights.shape) > _MOST_CHANNELS:
        raise ValueError(f"w has shape {weights.shape}, expected at most 2^24 channels on an axis")
    return src, weights


def _activation(activation: str | None) -> str:
    if activation is None:
        return "none"
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}, expected None or 'relu'")
    return activation
