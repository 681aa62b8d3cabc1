"""Arguments of a linear layer, checked: shape, dtypes, layout."""

from operator import index
from typing import Any, NamedTuple

import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.names import dtype_name

_DST_DTYPES = {  # by the dtype of src, the default first
    "float32": ("float32",),
    "bfloat16": ("bfloat16",),
    "uint8": ("float32", "bfloat16", "uint8", "int8"),
    "int8": ("float32", "bfloat16", "uint8", "int8"),
}


class LinearGeometry(NamedTuple):
    """The numbers that fix a linear layer."""

    N: int
    C: int
    K: int


class LinearRequest(NamedTuple):
    """What a linear layer of the core is made from."""

    geometry: LinearGeometry
    dtype: str
    dst_dtype: str
    layout: str
    activation: str
    bias: bool

    def core(self) -> _core.Linear:
        """A new one."""
        return _core.Linear(*self)


def geometry(x_shape: Any, channels: Any) -> LinearGeometry:
    """N, C and K, checked; TypeError or ValueError says what is wrong."""
    try:
        extents = tuple(index(extent) for extent in (*x_shape, channels))
    except TypeError:
        raise TypeError(
            f"x_shape is {x_shape!r} and K is {channels!r}, expected integers (N, C) and K"
        ) from None
    if len(extents) != 3:
        raise ValueError(f"x_shape is {x_shape!r}, expected two dimensions (N, C)")
    if not all(0 <= extent < 2**31 for extent in extents):
        raise ValueError(f"x_shape is {x_shape!r} and K is {channels!r}, expected 0 to 2^31 - 1")
    return LinearGeometry(*extents)


def dtypes_of(dtype: npt.DTypeLike, dst_dtype: npt.DTypeLike | None) -> tuple[str, str]:
    """The names of the dtypes of src and dst; TypeError says which are possible."""
    name = dtype_name("dtype", dtype)
    if name not in _DST_DTYPES:
        raise TypeError(f"dtype is {name}, expected float32, bfloat16, uint8 or int8")
    possible = _DST_DTYPES[name]
    result = possible[0] if dst_dtype is None else dtype_name("dst_dtype", dst_dtype)
    if result not in possible:
        raise TypeError(f"dst_dtype is {result}, expected {' or '.join(possible)} for {name}")
    return name, result


def layout_name(layout: str | None, dtype: str) -> str:
    """The layout, by default the one that suits the dtype; ValueError where there is none."""
    exact = dtype in ("uint8", "int8")
    if layout is None:
        return "plain" if exact else "blocked"
    if layout not in ("blocked", "plain"):
        raise ValueError(f"layout is {layout!r}, expected 'blocked' or 'plain'")
    if exact and layout != "plain":
        raise ValueError(f"layout is 'blocked' and dtype is {dtype}, expected 'plain' for 8 bits")
    return layout
