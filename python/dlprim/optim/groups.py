"""Parameters with settings of their own, under PyTorch's names, and what settings are refused.

A group refuses at once what the optimiser would refuse, so that a schedule or a user who writes
``group["lr"] = ...`` never leaves a value that the next step fails at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.arguments.scalars import flag, fraction, real
from dlprim.nn.parameter import Parameter

if TYPE_CHECKING:
    from dlprim.optim.optimizer import Optimizer

_INITIAL = "initial_lr"  # what schedules start from


class Group(MutableMapping[str, Any]):
    """``params`` and the settings of an optimiser for them, by name; ``lr`` is the learning rate.

    Parameters
    ----------
    optimizer : Optimizer
    params : list
    place : slice
        Where these are among all parameters.
    """

    def __init__(self, optimizer: Optimizer, params: list[Any], place: slice) -> None:
        self._optimizer, self.place = optimizer, place
        self._values: dict[str, Any] = {"params": params}

    def begin(self, usual: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """The first settings: those of all groups, but for its own."""
        for name in own:
            if name not in usual:
                expected = ", ".join(["params", *usual])
                raise ValueError(f"a group of parameters has {name!r}, expected only {expected}.")
        for name, value in {**usual, **own}.items():
            self[name] = value

    def hold(self, setting: str, value: Any) -> None:
        """A value that the optimiser has checked."""
        self._values[key_of(setting)] = value

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setting = "learning_rate" if name == "lr" else name
        optimizer = self._optimizer
        if name == _INITIAL:
            self._values[name] = real(name, value, 0)
        elif setting not in optimizer._settings or name == "learning_rate":
            expected = ", ".join(map(key_of, optimizer._settings))
            raise KeyError(f"{name} is no setting of a group, expected one of {expected}")
        else:
            value = optimizer._checked(name, value)
            optimizer._require_together({setting: value}, self)
            self._values[name] = value

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} cannot be deleted: a group keeps all of its settings")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = {name: it for name, it in self._values.items() if name != "params"}
        return f"<{len(self['params'])} parameters, {shown}>"


def key_of(setting: str) -> str:
    """What a setting is called in a group."""
    return "lr" if setting == "learning_rate" else setting


def parted(parameters: Sequence[Any]) -> tuple[list[Any], list[dict[str, Any]], list[slice]]:
    """All parameters, and of each group the settings of its own and where its parameters are.

    Raises
    ------
    TypeError, ValueError
        Groups and plain parameters are mixed, or a group has no list of ``params``.
    """
    if not any(isinstance(it, Mapping) for it in parameters):
        return list(parameters), [{}], [slice(0, len(parameters))]
    found: list[Any] = []
    settings: list[dict[str, Any]] = []
    places: list[slice] = []
    for number, group in enumerate(parameters):
        if not isinstance(group, Mapping):
            raise TypeError(
                f"parameters[{number}] is of type {type(group).__name__}, expected a dict with "
                "'params', as the others are"
            )
        if "params" not in group:
            raise ValueError(f"parameters[{number}] has no 'params', expected a list of parameters")
        own = group["params"]
        given = [own] if isinstance(own, Parameter | np.ndarray) else list(own)
        places.append(slice(len(found), len(found) + len(given)))
        settings.append({name: it for name, it in group.items() if name != "params"})
        found += given
    return found, settings, places


def _checked_eps(value: Any) -> float:
    number = real("eps", value)
    if np.float32(number) <= 0:
        raise ValueError(f"eps is {value}, expected a finite number above 0 in float32.")
    return number


def _checked_betas(value: Any) -> tuple[float, ...]:
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"betas is {value!r}, expected two numbers in [0, 1).")
    return tuple(fraction(f"betas[{it}]", beta, closed=False) for it, beta in enumerate(value))


# Of settings that are no numbers of at least 0.
_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "eps": _checked_eps,
    "betas": _checked_betas,
    "alpha": partial(fraction, "alpha", closed=False),
    "nesterov": partial(flag, "nesterov"),
}


def checked(name: str, value: Any) -> Any:
    """A value for a setting, by itself."""
    check = _CHECKS.get(name)
    return real(name, value, 0) if check is None else check(value)


def require_apart(lists: Mapping[str, Sequence[Array | None]]) -> None:
    """Of C-contiguous arrays, by what the lists are called."""
    filled = [
        (array.ctypes.data, array.nbytes, name, place)
        for name, arrays in lists.items()
        for place, array in enumerate(arrays)
        if array is not None and array.size
    ]
    for first, second in pairwise(sorted(filled)):
        if first[0] + first[1] > second[0]:
            one, two = sorted((first[2:], second[2:]))
            both = f"{one[0]}[{one[1]}] and {two[0]}[{two[1]}]"
            raise ValueError(f"{both} share memory, expected each array once.")
