"""What calls of all modules have in common: what comes from outside, and what must stay unwritten.

Floats from outside are float32 or bfloat16, whatever the model computes in; the gradient that
leaves has the dtype that came in. The way back reads arguments again, so that samples of them tell
whether somebody wrote them meanwhile.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dlprim.arguments.floats import name_of, to_bfloat16, to_float32
from dlprim.arguments.scalars import flag
from dlprim.arguments.traced import RUNNING

Sample: TypeAlias = tuple[str, Any, int, bytes]

_FLOAT32 = np.dtype(np.float32)
_INT64 = np.iinfo(np.int64)
_SAMPLES = 32  # at least, of those that there are: a batch that was filled anew differs in one


def as_network(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the `forward` of a class run as a network where no trace is under way.

    There it takes ``training``, by name. Inside a trace modules follow the mode of the call.
    """
    if vars(forward).get("runs_as_network"):
        return forward
    if "training" in inspect.signature(forward).parameters:
        raise TypeError(
            f"{forward.__qualname__} takes training, expected self.training in it, which is the "
            "mode of the call"
        )
    most = _most_by_place(forward)

    @functools.wraps(forward)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        if RUNNING.tracer is not None:
            if "training" in named or (len(args) > most and isinstance(args[-1], bool)):
                raise TypeError(
                    f"training is given to {label(self)} where a module around it runs, whose mode "
                    "it follows, expected self.layer(x) alone"
                )
            return forward(self, *args, **named)
        require_mode_by_name(self, args)
        training = named.pop("training", None)
        if training is None:
            return self.front.run(args, named, self.training)
        return self.front.run(args, named, flag("training", training), override=True)

    vars(run).update(runs_as_network=True, most_by_place=most)
    return run


def require_mode_by_name(module: Any, args: Sequence[Any]) -> None:
    """Refuses a bool behind the arguments that `forward` takes by place."""
    if args and isinstance(args[-1], bool) and len(args) > module.forward.most_by_place:
        raise TypeError(
            f"training is given by place to forward of {label(module)}, expected it by name, as in "
            "model.forward(x, training=False)"
        )


def _most_by_place(forward: Callable[..., Any]) -> float:
    """How many arguments, besides self, it takes by place."""
    parameters = inspect.signature(forward).parameters.values()
    if any(it.kind is inspect.Parameter.VAR_POSITIONAL for it in parameters):
        return math.inf
    by_place = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(it.kind in by_place for it in parameters) - 1


def in_dtype(dtype: Any, value: Any) -> Any:
    """float32 as bfloat16 and the other way round, where dtype says so; all else as it is."""
    if not (isinstance(dtype, np.dtype) and isinstance(value, np.ndarray)):
        return value
    if dtype == _FLOAT32:
        return to_float32(value) if name_of(value.dtype) == "bfloat16" else value
    if value.dtype == _FLOAT32 and name_of(dtype) == "bfloat16":
        return to_bfloat16(value)
    return value


def sampled(what: str, array: Any) -> Sample:
    """Some values, over all of it, of an array that others have and `backward` reads."""
    step = array.size // _SAMPLES + 1
    return what, array, step, array.flat[::step].tobytes()


def require_unwritten(module: Any, watched: Sequence[Sample]) -> None:
    """Raises RuntimeError where an array is not as it was when it was sampled."""
    for what, array, step, values in watched:
        if array.flat[::step].tobytes() != values:
            raise written(module, what)


def written(module: Any, what: str) -> RuntimeError:
    """That an array was written which the way back reads."""
    advice = "writes to parameters in front of forward or behind backward"
    if what == "x":
        advice = "another array for the next batch, or forward(x.copy())"
    return RuntimeError(
        f"{what} of {label(module)} was written between its training forward and the end of "
        f"backward, which reads it again, expected {advice}"
    )


def require_array(module: Any, args: Sequence[Any]) -> None:
    """Refuses numbers in lists, which would be as many inputs without axes."""
    if args and type(args[0]) is list and _are_numbers(args):
        raise TypeError(
            f"x of {label(module)} is a list of numbers, expected an array, as "
            "np.asarray(x, np.float32) makes it"
        )


def require_read_of_arrays(
    module: Any, error: AttributeError, args: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Refuses an argument that is no array where an array's attribute of it was missing."""
    if error.name is None or not hasattr(np.ndarray, error.name):
        return
    names = inspect.signature(module.forward).parameters
    for name, it in (*zip(names, args, strict=False), *named.items()):
        if it is error.obj:
            kind = type(it).__name__
            raise TypeError(
                f"{name} of {label(module)} is of type {kind}, expected an array"
            ) from error


def with_arrays(
    module: Any, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with arrays for those lists of integers that the module says are data."""
    places = _places_of(type(module).forward, module.listed)
    by_place = tuple(
        _as_data(module, places[at], it) if at in places else it for at, it in enumerate(args)
    )
    by_name = {
        key: _as_data(module, key, it) if key in module.listed else it for key, it in named.items()
    }
    return by_place, by_name


@functools.lru_cache(maxsize=64)
def _places_of(forward: Callable[..., Any], listed: tuple[str, ...]) -> dict[int, str]:
    """Which arguments of a method, behind the module itself, these are."""
    names = enumerate(inspect.signature(forward).parameters)
    return {at - 1: name for at, name in names if name in listed}


def _as_data(module: Any, name: str, it: Any) -> Any:
    """A list as an array of int64; what holds anything but integers is refused."""
    if not isinstance(it, list | tuple) or not it:
        return it
    for n in it:
        if not isinstance(n, int | np.integer) or isinstance(n, bool):
            kind = type(n).__name__
            raise TypeError(
                f"{name} of {label(module)} is a list with a {kind} in it, expected integers"
            )
        if not _INT64.min <= n <= _INT64.max:
            raise ValueError(f"{name} of {label(module)} holds {n}, expected values of int64")
    return np.array(list(map(int, it)), np.int64)


def _are_numbers(it: Any) -> bool:
    if isinstance(it, list | tuple):
        return all(map(_are_numbers, it))
    return it is None or isinstance(it, bool | int | float)


def label(module: Any) -> str:
    """What messages call a layer."""
    kind = type(module).__name__
    return f"{kind} {module.name!r}" if module.name else kind
