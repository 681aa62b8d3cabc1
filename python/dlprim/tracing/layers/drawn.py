"""What is another thing in a trace: dropout, whose runs draw anew, and where gradients stop."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.scalars import fraction, integer
from dlprim.tracing.array import TracedArray
from dlprim.tracing.layers.operands import checked_layer, floats, values
from dlprim.tracing.tracer import made

_SEEDS = 1 << 64


@checked_layer
def dropout(x: Any, p: float, *, seed: int, offset: Any = 0) -> Any:
    if x is None:
        raise TypeError("x is None, expected an array of float32 or bfloat16")
    (x,) = floats(x=x)
    how = {"p": fraction("p", p), "seed": integer("seed", seed, 0, _SEEDS)}
    if not isinstance(offset, TracedArray):
        place = np.array(integer("offset", offset, 0, _SEEDS), np.uint64).view(np.int64)
        offset = TracedArray(x.tracer, x.tracer.value(place))
    if offset.dtype.kind not in "iu" or offset.shape != ():
        raise TypeError(
            f"offset has dtype {offset.dtype} and shape {offset.shape}, expected one integer"
        )
    build, given = x.tracer.build, values(x, offset.astype(np.int64))
    return made(x.tracer, lambda: build.emit("dropout", given, **how)[0])


@checked_layer
def stop_gradient(x: Any) -> Any:
    how = {"expression": ("input", 0), "dtype": x.dtype.name, "stops": True}
    return made(x.tracer, lambda: x.tracer.build.emit("map", [x.value], **how)[0], x.is_weak)
