"""Whether layers agree on the blocks of channels, and packing anew where they do not.

In the blocked layout no block crosses the groups of a convolution. Where groups are whole blocks,
that is the order of one group as well, and nothing moves.
"""

from __future__ import annotations

from functools import cache

import dlprim
from dlprim.nn.context import Images
from dlprim.nn.module import Module


def in_blocks(x: Images, groups: int, layer: Module) -> Images:
    """x in blocks of other groups: itself, or packed anew in a buffer of the layer's context."""
    if x.groups == groups:
        return x
    if _are_alike(x.shape[1], x.groups, groups):
        return x._replace(groups=groups)
    context = layer.context
    how = {"layout": context.layout, "dtype": context.dtype_name}
    target = dlprim.Activations(x.shape, **how, groups=groups)
    with context.timed(layer.name, "pack"):
        plain = context.buffers.take(x.shape, x.array.dtype)
        dlprim.Activations(x.shape, **how, groups=x.groups).unpack(x.array, plain)
        out = target.pack(plain, context.buffers.take(target.packed_shape, x.array.dtype))
    context.buffers.give(plain)
    return Images(out, x.shape, groups)


def require_alike(name: str, channels: int, added: int, result: int) -> None:
    """Refuses a sum of activations whose blocks differ."""
    if not _are_alike(channels, added, result):
        raise ValueError(
            f"what block {name!r} adds has blocks of {added} groups and the result of its last "
            f"convolution blocks of {result}, expected the same groups of both, or layout='NHWC'"
        )


@cache
def _are_alike(channels: int, one: int, other: int) -> bool:
    """Whether blocks of so many groups are the same storage."""
    shape = (1, channels, 1, 1)
    first, second = (dlprim.Activations(shape, groups=it).packed_shape for it in (one, other))
    return first == second and first[1] * first[4] == channels
