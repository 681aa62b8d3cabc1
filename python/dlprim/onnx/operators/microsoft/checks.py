"""What operators without a schema of ONNX say of inputs that do not fit."""

from __future__ import annotations

from collections.abc import Sequence

from dlprim.graph.graph import Value
from dlprim.onnx.registry import RefusedError

MICROSOFT = "com.microsoft"
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def require_floats(**values: Value | None) -> None:
    """Refuses what is not of floats, or not of those of the first."""
    present = {name: it for name, it in values.items() if it is not None}
    first = next(iter(present.values())).dtype
    for name, value in present.items():
        if value.dtype.name not in _FLOATS or value.dtype != first:
            wanted = first if first.name in _FLOATS else ", ".join(_FLOATS)
            raise RefusedError(f"{name} is of {value.dtype}, expected {wanted}")


def require_integers(**values: Value | None) -> None:
    """Refuses what is not of int32 or int64."""
    for name, value in values.items():
        if value is not None and value.dtype.name not in ("int32", "int64"):
            raise RefusedError(f"{name} is of {value.dtype}, expected int32 or int64")


def require_rank(rank: int, what: str, **values: Value | None) -> None:
    """Refuses values of another number of axes; ``what`` names these."""
    for name, value in values.items():
        if value is not None and len(value.shape) != rank:
            raise RefusedError(f"{name} is of {list(value.shape)}, expected {what}")


def require_shape(shape: Sequence[int], **values: Value | None) -> None:
    """Refuses values of another shape."""
    for name, value in values.items():
        if value is not None and value.shape != tuple(shape):
            raise RefusedError(f"{name} is of {list(value.shape)}, expected {list(shape)}")


def require_at_least(least: int, **numbers: int) -> None:
    """Refuses attributes that are too small."""
    for name, number in numbers.items():
        if number < least:
            raise RefusedError(f"{name} is {number}, expected at least {least}")
