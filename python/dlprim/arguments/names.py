"""Names given as arguments, checked: dtypes, activations, words of which there are few."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dlprim.arguments.scalars import shown

# Those whose slope their result does not tell.
FROM_ARGUMENT = ("gelu", "gelu_tanh", "swish", "hardswish")
_ACTIVATIONS = ("relu", "relu6", "sigmoid", "hardsigmoid", "tanh", *FROM_ARGUMENT)
_ALSO_CALLED = {"silu": "swish"}  # as PyTorch calls it


def dtype_name(argument: str, dtype: npt.DTypeLike) -> str:
    """NumPy's name of ``dtype``, else TypeError; "bfloat16" is known without ml_dtypes too."""
    if isinstance(dtype, str) and dtype in ("float32", "bfloat16"):
        return dtype
    if dtype is None:  # float64 to NumPy
        raise TypeError(f"{argument} is None, expected a dtype such as 'float32'")
    try:
        resolved = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{argument} is {dtype!r}, which is no dtype") from None
    if not resolved.isnative:
        raise TypeError(f"{argument} is {resolved}, expected native byte order")
    return resolved.name


def float_type_name(dtype: npt.DTypeLike) -> str:
    """ "float32" or "bfloat16"; TypeError for the argument dtype where it is another."""
    name = dtype_name("dtype", dtype)
    if name not in ("float32", "bfloat16"):
        raise TypeError(f"dtype is {name}, expected float32 or bfloat16")
    return name


def layout_name(layout: str, first: str = "blocked", second: str = "NHWC") -> str:
    """Returned as it is; ValueError for the argument layout where it is neither of two."""
    if not isinstance(layout, str) or layout not in (first, second):
        raise ValueError(f"layout is {shown(layout)}, expected {first!r} or {second!r}")
    return layout


def activation_name(
    activation: str | None, argument: str = "activation", others: tuple[str, ...] = ()
) -> str:
    """The core's name of an activation, "none" for None; ValueError where there is none.

    The message lists ``others`` too, which the caller takes.
    """
    if activation is None:
        return "none"
    if isinstance(activation, str) and activation in _ALSO_CALLED:
        return _ALSO_CALLED[activation]
    return one_of_names(argument, activation, _ACTIVATIONS + others)


def kernel_activation(activation: str | None) -> str | None:
    """As `activation_name`, None for None."""
    return None if activation is None else activation_name(activation)


def relu_or_none(activation: str | None) -> str | None:
    """Returned as it is; ValueError for the argument activation where it is anything else."""
    if activation is not None and not (isinstance(activation, str) and activation == "relu"):
        raise ValueError(f"activation is {shown(activation)}, expected None or 'relu'")
    return activation


def one_of_names(argument: str, value: str, names: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in names:
        expected = ", ".join(repr(name) for name in names)
        raise ValueError(f"{argument} is {shown(value)}, expected one of {expected}")
    return value
