"""What passes of all layers have in common: operands are checked and no buffer is lost.

Buffers that are taken in a pass belong to the outermost module that runs it. A training pass keeps
some until `backward`; where that never comes, the next one gives them back. So does a pass that
fails, of whatever it has taken.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from dlprim.nn.context import Images, array_of

Pass = TypeVar("Pass", bound=Callable[..., Any])


def forward_pass(method: Pass) -> Pass:
    """Makes a method the `forward` of a layer."""

    @functools.wraps(method)
    def run(self: Any, x: Any, training: bool = True, *rest: Any, **named: Any) -> Any:
        if self.takes_images is not None and isinstance(x, Images) != self.takes_images:
            _refuse_input(self, x)
        if not self.takes_images and not hasattr(array_of(x), "shape"):
            _refuse_input(self, x)
        if training:
            self.awaited = None
        buffers = self.context.buffers
        if buffers.owner is not None:
            y = method(self, x, training, *rest, **named)
        else:
            with buffers.owned_by(self if training else object(), begins=training):
                y = method(self, x, training, *rest, **named)
                buffers.hand_over(array_of(y))
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
    if isinstance(value, Images):
        return value.array.shape, value.shape, value.groups
    return (value.shape,)


def _require_form(module: Any, dy: Any) -> None:
    if not hasattr(array_of(dy), "shape"):
        raise TypeError(
            f"dy of {_label(module)} is of type {type(dy).__name__}, expected the gradient of its "
            "result"
        )
    form = _form(dy)
    if form != module.awaited:
        raise ValueError(
            f"dy of {_label(module)} has the form {form}, expected {module.awaited} as the result "
            "has"
        )


def _refuse_input(module: Any, x: Any) -> None:
    expected = "an array, plain or as dlprim.nn.Images"
    if module.takes_images is not None:
        images = "dlprim.nn.Images, as Pack makes them"
        expected = images if module.takes_images else "a plain array"
    raise TypeError(f"x of {_label(module)} is of type {type(x).__name__}, expected {expected}")


def _label(module: Any) -> str:
    kind = type(module).__name__
    return f"{kind} {module.name!r}" if module.name else kind
