"""What passes of all layers have in common: operands are checked and no buffer is lost.

Buffers that are taken in a pass belong to the outermost module that runs it. A training pass keeps
some until `backward`; where that never comes, the next one gives them back. So does a pass that
fails, of whatever it has taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from dlprim.arguments.scalars import flag
from dlprim.nn.context import Images, array_of

Pass = TypeVar("Pass", bound=Callable[..., Any])


def forward_pass(method: Pass) -> Pass:
    """Makes a method the `forward` of a layer."""

    @functools.wraps(method)
    def run(self: Any, x: Any, training: bool = True, *rest: Any, **named: Any) -> Any:
        if type(x) is not (Images if self.takes_images else np.ndarray):
            _require_input(self, x)
        if training is not True and training is not False:
            training = flag("training", training)
        if training:
            self.awaited = None
        buffers = self.context.buffers
        if buffers.owner is None:
            with buffers.owned_by(self if training else object(), begins=training):
                y = method(self, x, training, *rest, **named)
                buffers.hand_over(array_of(y))
        else:
            y = method(self, x, training, *rest, **named)
        if training:
            self.awaited = _form(y)
        return y

    return cast(Pass, run)


def backward_pass(method: Pass) -> Pass:
    """Makes a method the `backward` of a layer."""

    @functools.wraps(method)
    def run(self: Any, dy: Any, ready: Any = None) -> Any:
        if self.awaited is None:
            raise RuntimeError(
                f"backward of {_label(self)} follows no training forward, expected one in front of "
                "each backward"
            )
        if dy is not None or self.needs_gradient:
            _require_form(self, dy)
        self.awaited = None
        buffers = self.context.buffers
        if buffers.owner is not None:
            return method(self, dy, ready)
        with buffers.owned_by(self, begins=False):
            dx = method(self, dy, ready)
            if dx is not None:
                buffers.hand_over(array_of(dx))
        return dx

    return cast(Pass, run)


def _form(value: Any) -> tuple[Any, ...]:
    """What a gradient must have in common with the result that it is of."""
    if type(value) is Images:
        return value.array.shape, value.shape, value.groups
    return (value.shape,)


def _require_form(module: Any, dy: Any) -> None:
    try:
        form = _form(dy)
    except AttributeError:
        raise TypeError(
            f"dy of {_label(module)} is of type {type(dy).__name__}, expected the gradient of its "
            "result"
        ) from None
    if form != module.awaited:
        raise ValueError(
            f"dy of {_label(module)} has the form {form}, expected {module.awaited} as the result "
            "has"
        )


def _require_input(module: Any, x: Any) -> None:
    is_kind = module.takes_images is None or isinstance(x, Images) == module.takes_images
    if is_kind and hasattr(x, "shape"):
        return
    expected = "an array, plain or as dlprim.nn.Images"
    if module.takes_images is not None:
        images = "dlprim.nn.Images, as Pack makes them"
        expected = images if module.takes_images else "a plain array"
    raise TypeError(f"x of {_label(module)} is of type {type(x).__name__}, expected {expected}")


def _label(module: Any) -> str:
    kind = type(module).__name__
    return f"{kind} {module.name!r}" if module.name else kind
