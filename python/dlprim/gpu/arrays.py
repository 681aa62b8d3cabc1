"""Arrays of any library that has DLPack as PyTorch's tensors, which Triton launches kernels on."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Real
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack
from triton import knobs

from dlprim.gpu.tree import BYTES, FLOATS, PLACES, Array

_KNOWN = (*FLOATS, *BYTES, *PLACES)
# By what a definition says of a parameter; nothing where it has numbers of any kind.
_TYPES = {"any": _KNOWN, "": (*FLOATS, *BYTES), "int8": ("int8",), "uint8": ("uint8",)}


def geometry(tensor: Any) -> Array:
    return Array(str(tensor.dtype)[6:], tuple(tensor.shape), tensor.stride())


@cache
def interprets() -> bool:
    """Whether kernels run in Triton's interpreter, on arrays of the CPU."""
    return bool(knobs.runtime.interpret)


def tensors_of(names: Sequence[str], values: Sequence[Any], types: Sequence[str] = ()) -> list[Any]:
    """In place, all on one device; numbers become arrays without axes there, by their types.

    TypeError where one has no DLPack or another dtype, ValueError where devices differ or are none
    that kernels run on.
    """
    types = types or ["any"] * len(names)
    found = [
        _tensor(name, it, kind) if isinstance(it, torch.Tensor) or not isinstance(it, Real) else it
        for name, it, kind in zip(names, values, types, strict=True)
    ]
    devices = {it.device for it in found if isinstance(it, torch.Tensor)}
    wanted = "cpu" if interprets() else "cuda"
    if len(devices) != 1 or {it.type for it in devices} != {wanted}:
        where = ", ".join(sorted(map(str, devices))) or "no device"
        hint = "" if interprets() else "; with TRITON_INTERPRET=1 in the environment, on the CPU"
        raise ValueError(f"{', '.join(names)}: on {where}, expected arrays on one {wanted}{hint}")
    (device,) = devices
    return [
        it
        if isinstance(it, torch.Tensor)
        else torch.tensor(it if _takes(kind) == PLACES else float(it), device=device)
        for it, kind in zip(found, types, strict=True)
    ]


def _takes(kind: str) -> tuple[str, ...]:
    return _TYPES.get(kind, PLACES if "int" in kind else FLOATS)


def _tensor(name: str, value: Any, kind: str) -> Any:
    if not isinstance(value, torch.Tensor):
        if not hasattr(value, "__dlpack__"):
            found = type(value).__name__
            raise TypeError(f"{name} is of type {found}, expected an array with __dlpack__")
        value = from_dlpack(value)
    it = geometry(value)
    if it.dtype not in _takes(kind):
        raise TypeError(f"{name} has dtype {it.dtype}, expected {' or '.join(_takes(kind))}")
    return value.detach()


def require_apart(name: str, out: Any, others: Mapping[str, Any]) -> None:
    """ValueError where programs would write what others read, or one element twice."""

    def ends(it: Any) -> tuple[int, int]:
        bytes_ = (geometry(it).span + 1) * it.itemsize if it.numel() else 0
        return it.data_ptr(), it.data_ptr() + bytes_

    if any(step == 0 and extent > 1 for step, extent in zip(out.stride(), out.shape, strict=True)):
        raise ValueError(f"{name} has elements on each other, expected an array of its own")
    first, end = ends(out)
    for other, it in others.items():
        if other != name and first < ends(it)[1] and ends(it)[0] < end:
            raise ValueError(f"{name} shares memory with {other}, expected separate arrays")


def as_given(tensor: Any, given: Sequence[Any]) -> Any:
    """As an array of the library of the first array that was given."""
    first = next(it for it in given if not isinstance(it, Real))
    if isinstance(first, torch.Tensor):
        return tensor
    library = sys.modules[type(first).__module__.partition(".")[0].replace("jaxlib", "jax")]
    return getattr(library, "dlpack", library).from_dlpack(tensor)
