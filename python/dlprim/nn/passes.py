"""What passes of all layers have in common: operands are checked and no buffer is lost.

Buffers that are taken in a pass belong to the outermost module that runs it. A training pass keeps
some until `backward`; where that never comes, the next one gives them back. So does a pass that
fails, of whatever it has taken.

What comes from outside is float32 or bfloat16, whatever the model computes in: it is converted
once, at the outermost module, and the gradient that leaves there has the dtype that came in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from dlprim.arguments.arrays import about_numbers, viewed
from dlprim.arguments.floats import bfloat16_dtype, name_of, to_bfloat16, to_float32
from dlprim.arguments.scalars import flag
from dlprim.arguments.traced import RUNNING
from dlprim.nn.context import Images, array_of

Pass = TypeVar("Pass", bound=Callable[..., Any])
Sample: TypeAlias = tuple[str, Any, int, bytes]

_FLOAT32 = np.dtype(np.float32)
_MODE = "; it is in inference mode, which train() of the model ends"
_SAMPLES = 32  # at least, of those that there are: a batch that was filled anew differs in one


def forward_pass(method: Pass) -> Pass:
    """Makes a method the `forward` of a layer."""

    @functools.wraps(method)
    def run(self: Any, x: Any, training: bool | None = None, *rest: Any, **named: Any) -> Any:
        if type(x) is not (Images if self.takes_images else np.ndarray):
            x = _operand(self, x)
        if training is not True and training is not False:
            training = self.training if training is None else flag("training", training)
        state = self.__dict__  # as containers look at what is assigned
        if training:
            state["awaited"] = None
        buffers = self.context.buffers
        given = None  # dtype from outside
        if buffers.thread == get_ident():
            y = method(self, x, training, *rest, **named)
        else:
            given = array_of(x).dtype
            if given is not self.context.dtype and not (self.rounds and given == _FLOAT32):
                _require_number(self, given)
                x = in_dtype(self.context.dtype, x)
            if training:
                state["watched"] = _sampled_again("x", x) if self.reads_input else ()
            try:
                buffers.enter(self if training else object(), training)
                y = method(self, x, training, *rest, **named)
                buffers.hand_over(array_of(y))
                if training and self.reads_result:
                    state["watched"] += _sampled_again("the result", y)
            except BaseException:
                buffers.leave(has_failed=True)
                raise
            buffers.leave()
        if training:
            state["awaited"], state["given"] = _form(y), given
        return y

    return cast(Pass, run)


def backward_pass(method: Pass) -> Pass:
    """Makes a method the `backward` of a layer."""

    @functools.wraps(method)
    def run(self: Any, dy: Any, ready: Any = None) -> Any:
        if self.awaited is None:
            raise RuntimeError(
                f"backward of {label(self)} follows no training forward, expected one in front of "
                f"each backward{'' if self.training else _MODE}"
            )
        if dy is not None or self.needs_gradient:
            _require_form(self, dy)
        self.__dict__["awaited"] = None
        buffers = self.context.buffers
        if buffers.thread == get_ident():
            return method(self, dy, ready)
        if self.watched:
            watched, self.__dict__["watched"] = self.watched, ()
            require_unwritten(self, watched)
        if dy is not None:
            dy = in_dtype(self.context.dtype, dy)
        try:
            buffers.enter(self, False)
            dx = method(self, dy, ready)
            if dx is not None:
                made, dx = dx, in_dtype(self.given, dx)
                if dx is not made:
                    buffers.give(array_of(made))
                buffers.hand_over(array_of(dx))
        except BaseException:
            buffers.leave(has_failed=True)
            raise
        buffers.leave()
        return dx

    return cast(Pass, run)


def or_network(method: Pass) -> Pass:
    """Makes a pass by hand of a container that of a network where something inside is traced."""

    @functools.wraps(method)
    def run(self: Any, x: Any, *given: Any, **named: Any) -> Any:
        if self.by_hand:
            return method(self, x, *given, **named)
        return (_network_back if "back" in method.__name__ else _network)(self, x, *given, **named)

    return cast(Pass, run)


def as_network(forward: Pass) -> Pass:
    """Makes the `forward` of a class that is traced run as a network where no trace is under way.

    There it takes ``training``, by name, as those by hand do.
    """

    @functools.wraps(forward)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        if RUNNING.tracer is not None:
            return forward(self, *args, **named)
        training = named.pop("training", None)
        if training is None:
            return self.front.run(args, named, self.training)
        return self.front.run(args, named, flag("training", training), override=True)

    return cast(Pass, run)


def _network(self: Any, x: Any, training: bool | None = None) -> Any:
    if RUNNING.tracer is not None:
        return self.traced(x)
    if training is None:
        return self.front.run((x,), {}, self.training)
    return self.front.run((x,), {}, flag("training", training), override=True)


def _network_back(self: Any, dy: Any, ready: Any = None) -> Any:
    return self.front.back(dy, ready)


def in_dtype(dtype: Any, value: Any) -> Any:
    """float32 as bfloat16 and the other way round, where dtype says so; all else as it is.

    Packed activations lie alike in both.
    """
    array = array_of(value)
    if not (isinstance(dtype, np.dtype) and isinstance(array, np.ndarray)):
        return value
    if dtype == _FLOAT32:
        converts = name_of(array.dtype) == "bfloat16"
    else:
        converts = array.dtype == _FLOAT32 and dtype == bfloat16_dtype()
    if not converts:
        return value
    to = to_float32 if dtype == _FLOAT32 else to_bfloat16
    if not isinstance(value, Images):
        return to(array)
    addend = None if value.addend is None else to(value.addend)
    return value._replace(array=to(array), addend=addend)


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
            f"dy of {label(module)} is of type {type(dy).__name__}, expected the gradient of its "
            "result"
        ) from None
    if form != module.awaited:
        raise ValueError(
            f"dy of {label(module)} has the form {form}, expected {module.awaited} as the result "
            "has"
        )


def _sampled_again(what: str, array: Any) -> tuple[Sample, ...]:
    if type(array) is not np.ndarray or not array.flags.c_contiguous:
        return ()  # packed, or read from a copy
    return (sampled(what, array),)


def sampled(what: str, array: Any) -> Sample:
    """Some values, over all of it, of an array that others have and `backward` reads."""
    step = array.size // _SAMPLES + 1
    return what, array, step, array.flat[::step].tobytes()


def require_unwritten(module: Any, watched: Sequence[Sample]) -> None:
    """Raises RuntimeError where an array is not as it was when it was sampled."""
    for what, array, step, values in watched:
        if array.flat[::step].tobytes() != values:
            module.awaited = None
            advice = "writes to parameters in front of forward or behind backward"
            if what == "x":
                advice = "another array for the next batch, or forward(x.copy())"
            elif what == "the result":
                advice = "a copy to be written, as `y - target` makes one and `y -= target` not"
            raise RuntimeError(
                f"{what} of {label(module)} was written between its training forward and "
                f"backward, which reads it again, expected {advice}"
            )


def _require_number(module: Any, dtype: Any) -> None:
    """Integers are left to layers, which take or refuse them."""
    is_float = dtype == _FLOAT32 or dtype.name == "bfloat16"
    if not (is_float or dtype.kind in "iu") or not dtype.isnative:
        how = about_numbers("x", dtype)
        raise TypeError(
            f"x of {label(module)} has dtype {dtype}, expected float32 or bfloat16{how}"
        )


def require_array(module: Any, args: Sequence[Any]) -> None:
    """Refuses packed images, and numbers in lists, which would be as many inputs without array."""
    if args and type(args[0]) is Images:
        raise TypeError(f"x of {label(module)} is of type Images, expected a plain array")
    if args and type(args[0]) is list and _are_numbers(args):
        raise TypeError(
            f"x of {label(module)} is a list of numbers, expected an array, as "
            "np.asarray(x, np.float32) makes it"
        )


def _are_numbers(it: Any) -> bool:
    if isinstance(it, list | tuple):
        return all(map(_are_numbers, it))
    return it is None or isinstance(it, bool | int | float)


def _operand(module: Any, x: Any) -> Any:
    """``x``, or what another library's array holds."""
    is_kind = module.takes_images is None or isinstance(x, Images) == module.takes_images
    if is_kind and (isinstance(x, Images | np.ndarray) or hasattr(x, "shape")):
        return x if isinstance(x, Images) else viewed("x", x, "float32 or bfloat16")
    expected = "an array, plain or as dlprim.nn.Images"
    if module.takes_images is not None:
        images = "dlprim.nn.Images, as Pack makes them"
        expected = images if module.takes_images else "a plain array"
    raise TypeError(f"x of {label(module)} is of type {type(x).__name__}, expected {expected}")


def label(module: Any) -> str:
    """What messages call a layer."""
    kind = type(module).__name__
    return f"{kind} {module.name!r}" if module.name else kind
