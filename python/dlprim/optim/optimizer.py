"""What optimisers share: parameters, their copies and states, and what all of them refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from dlprim import _core
from dlprim.arguments.arrays import (
    Array,
    FloatArray,
    aligned,
    contiguous,
    refuse_masked,
    values_for,
)
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.scalars import fraction, real
from dlprim.nn.parameter import Parameter
from dlprim.optim.groups import Group, checked, key_of, parted, require_apart

Gradients = Sequence[FloatArray | None]
Copies = Sequence[Array | None]
Parameters = Sequence[FloatArray] | Sequence[Parameter] | Sequence[Mapping[str, Any]]

_FLOAT32 = np.dtype(np.float32)
_PACKAGE = __name__.rpartition(".")[0] + "."
_MOST_STATES = 3  # of a parameter in the core
_VELOCITY = 0  # the number of the one that momentum needs


class Update(NamedTuple):
    """What a network has to know to change parameters as an optimiser does.

    Attributes
    ----------
    rules : tuple of str
        Of each group of parameters, as the operator ``update`` of `dlprim.graph` knows it.
    settings : tuple of tuple of float
        Of each group, in the order of its rule.
    groups : tuple of int
        Of each parameter the number of its group.
    rows : list of tuple
        Of each parameter its array, the arrays of three states and a bfloat16 copy, None for what
        there is not.
    counts : ndarray of int64, or None
        How often each parameter was updated.
    """

    rules: tuple[str, ...]
    settings: tuple[tuple[float, ...], ...]
    groups: tuple[int, ...]
    rows: list[tuple[Array | None, ...]]
    counts: NDArray[np.int64] | None


class Optimizer:
    """Parameters, their copies and states.

    Parameters
    ----------
    parameters, copies
        As for `SGD`.
    states : tuple of bool
        Which of the core's states of a parameter it has.

    Attributes
    ----------
    param_groups : list of Group
        Parameters with settings of their own; one group where the parameters came as a plain list.
    """

    learning_rate: float
    param_groups: list[Group]
    _settings: ClassVar[tuple[str, ...]] = ()  # of a group: what may be assigned, after checks
    _shared: ClassVar[tuple[str, ...]] = ()  # the same, of all groups
    _kind: ClassVar[str] = ""  # what states say, those of subclasses too
    # Settings that every state has; others were not stored by version 0.1.
    _required: ClassVar[tuple[str, ...]] = ("learning_rate",)
    _counts: NDArray[np.int64] | None = None

    def __init__(
        self, parameters: Parameters, copies: Copies | None, states: tuple[bool, ...]
    ) -> None:
        if isinstance(parameters, np.ndarray) or not isinstance(parameters, Sequence):
            kind = type(parameters).__name__
            raise TypeError(
                f"parameters is of type {kind}, expected a list of dlprim.nn.Parameter, as "
                "model.parameters() gives it, or of float32 ndarrays."
            )
        self._given: list[Any]
        self._given, self._own_settings, places = parted(parameters)
        arrays = self._arrays()
        for position, parameter in enumerate(arrays):
            _require_float32(f"parameters[{position}]", parameter)
            if not (parameter.flags.c_contiguous and parameter.flags.writeable):
                raise ValueError(
                    f"parameters[{position}] is not C-contiguous and writeable, but is updated in "
                    "place."
                )
        self._copies: list[Array | None] = [None] * len(arrays)
        if copies is not None:
            if isinstance(copies, np.ndarray) or not isinstance(copies, Sequence):
                kind = type(copies).__name__
                raise TypeError(f"copies is of type {kind}, expected a list of bfloat16 ndarrays.")
            self._copies = list(copies)
        self._require_copies()
        require_apart({"parameters": arrays, "copies": self._copies})
        self._states = [
            [aligned(it.shape, it.dtype, zeros=True) for it in arrays] if is_used else None
            for is_used in states
        ]
        self.param_groups = [Group(self, self._given[place], place) for place in places]

    def _begin(self, **usual: Any) -> None:
        """The settings of all groups, but where a group has its own."""
        for group, own in zip(self.param_groups, self._own_settings, strict=True):
            group.begin(usual, own)

    def __getattr__(self, name: str) -> Any:
        if name in self._settings and "param_groups" in vars(self):
            return self.param_groups[0][key_of(name)]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"{kind} cannot be copied or pickled: it updates the arrays of one model in place, and "
            f"its copy would update others. Make another {kind} for the parameters of the other "
            "model, and give its load_state_dict what state_dict of this one returns."
        )

    def __setattr__(self, name: str, value: Any) -> None:
        # Subclasses may have attributes of their own.
        is_own = type(self).__module__.startswith(_PACKAGE)
        if name in self._settings:
            value = self._checked(name, value)
            for group in self.param_groups:
                self._require_together({name: value}, group)
            for group in self.param_groups:
                group.hold(name, value)
            return
        if name in self._shared:
            value = self._checked(name, value)
        elif is_own and name not in ("lr", "param_groups") and not name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r} to assign, expected one of "
                f"{', '.join(self._settings + self._shared)} and lr."
            )
        super().__setattr__(name, value)

    def _checked(self, name: str, value: Any) -> Any:
        """A value for one of `_settings`."""
        if name == "momentum":
            momentum = fraction(name, value, closed=False)
            if momentum > 0 and self._states[_VELOCITY] is None:
                kind = type(self).__name__
                raise ValueError(
                    f"momentum is {momentum}, expected 0 as this {kind} was made with."
                )
            return momentum
        return checked(name, value)

    def _require_together(self, settings: Mapping[str, Any], group: Mapping[str, Any]) -> None:
        """Refuses checked values that do not go with each other, or with others of the group."""

    @property
    def lr(self) -> float:
        """PyTorch's name of `learning_rate`: of the first group; what is assigned is of all."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: float) -> None:
        self.learning_rate = real("lr", value, 0)

    def _arrays(self) -> list[FloatArray]:
        """What is updated; not kept of a `Parameter`, which compares values that somebody holds."""
        return [it.held if isinstance(it, Parameter) else it for it in self._given]

    def _require_copies(self) -> None:
        if len(self._copies) != len(self._given):
            raise ValueError(f"copies has {len(self._copies)} entries, expected one per parameter.")
        for position, (copy, parameter) in enumerate(
            zip(self._copies, self._arrays(), strict=True)
        ):
            if copy is None:
                continue
            refuse_masked({f"copies[{position}]": copy})
            if not isinstance(copy, np.ndarray):
                raise TypeError(f"copies[{position}] is {copy!r}, expected a bfloat16 ndarray.")
            if copy.dtype not in (bfloat16_dtype(), np.dtype(np.uint16)):
                raise TypeError(f"copies[{position}] is {copy.dtype}, expected bfloat16.")
            if copy.shape != parameter.shape or not copy.flags.c_contiguous:
                raise ValueError(
                    f"copies[{position}] has shape {copy.shape}, expected a C-contiguous array of "
                    f"shape {parameter.shape}."
                )
            if not copy.flags.writeable:
                raise ValueError(
                    f"copies[{position}] is read-only, but every step writes to it; expected a "
                    "writeable array."
                )

    def _rows(self, gradients: Gradients | None) -> list[tuple[Any, ...]]:
        """(parameter, gradient, three states, copy, position) of those that have a gradient."""
        if gradients is None:
            gradients = [it.gradient for it in self._given if isinstance(it, Parameter)]
            if len(gradients) < len(self._given):
                raise TypeError(
                    "gradients is None, expected one per parameter: only a dlprim.nn.Parameter "
                    "has its own."
                )
        if not isinstance(gradients, Sequence):
            raise TypeError(f"gradients is of type {type(gradients).__name__}, expected a list.")
        for position, gradient in enumerate(gradients):
            if gradient is not None:
                _require_float32(f"gradients[{position}]", gradient)
        arrays = self._arrays()
        expected = [parameter.shape for parameter in arrays]
        got = [
            shape if gradient is None else gradient.shape
            for gradient, shape in zip(gradients, expected, strict=False)
        ]
        if len(gradients) != len(expected) or got != expected:
            shapes = [getattr(gradient, "shape", None) for gradient in gradients]
            raise ValueError(f"gradients have the shapes {shapes}, expected {expected}.")
        positions = range(len(arrays))
        rows = zip(arrays, gradients, *self._all_states(), self._copies, positions, strict=True)
        return [(row[0], contiguous(row[1]), *row[2:]) for row in rows if row[1] is not None]

    def _grouped(self, gradients: Gradients | None) -> list[tuple[Group, list[tuple[Any, ...]]]]:
        """`_rows` of each group."""
        rows = self._rows(gradients)
        if len(self.param_groups) == 1:
            return [(self.param_groups[0], rows)]
        return [
            (group, [row for row in rows if group.place.start <= row[-1] < group.place.stop])
            for group in self.param_groups
        ]

    def update(self) -> Update:
        """What a step does by now, for networks that do it with these arrays."""
        rules, settings = zip(*map(self._rule, self.param_groups), strict=True)
        groups = [at for at, it in enumerate(self.param_groups) for _ in it["params"]]
        rows = [*zip(self._arrays(), *self._all_states(), self._copies, strict=True)]
        return Update(rules, settings, tuple(groups), rows, self._counts)

    def _rule(self, group: Mapping[str, Any]) -> tuple[str, tuple[float, ...]]:
        """The rule of a group by name, and its settings."""
        raise TypeError(
            f"{type(self).__name__} has no update that networks know, expected an optimiser of "
            "dlprim.optim; others take steps in a loop by hand"
        )

    def _all_states(self) -> list[list[FloatArray | None]]:
        """As many as the core knows, of each parameter."""
        given = [*self._states, None, None, None][:_MOST_STATES]
        return [[None] * len(self._given) if each is None else [*each] for each in given]

    def step(self, gradients: Gradients | None = None) -> None:
        """Updates every parameter in place.

        Parameters
        ----------
        gradients : list of ndarrays of float32, optional
            One per parameter, in their order and of their shapes, not modified; or None for a
            parameter to leave alone. By default those of the `dlprim.nn.Parameter` that it was
            made with.

        Raises
        ------
        TypeError
            A gradient is not a float32 ndarray; nothing was updated.
        ValueError
            The number of gradients or a shape is wrong, or memory is shared; nothing was updated.
        """
        groups = self._grouped(gradients)
        places = [[row[-1] for row in rows] for _, rows in groups]
        try:
            for (group, rows), own in zip(groups, places, strict=True):
                steps = [] if self._counts is None else (self._counts[own] + 1).tolist()
                rule, settings = self._rule(group)
                _core.update(rule, rows, settings, steps)
        finally:
            self.written()
        if self._counts is not None:
            for own in places:
                self._counts[own] += 1

    def written(self) -> None:
        """Behind an update: a version that was told in front of it could be of old values."""
        for it in self._given:
            if isinstance(it, Parameter):
                it.written()

    def state_dict(self) -> dict[str, Any]:
        """State and settings as plain arrays and numbers, and whose they are: copies, to store.

        Returns
        -------
        dict
        """
        settings = {
            name: getattr(self, setting) if group is None else group[key_of(setting)]
            for name, (group, setting) in self._named_settings().items()
        }
        arrays = {name: array.copy() for name, array in self._named_states().items()}
        return {"kind": self._kind, **settings, **arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned, with its settings.

        Parameters
        ----------
        state : mapping
            One of version 0.1 has no settings besides the learning rate, which stay as they are.

        Raises
        ------
        KeyError
            An entry is missing; nothing was changed.
        TypeError, ValueError
            The state is of another kind of optimiser, an array has another shape or holds no
            numbers that fit, or a number is out of range; nothing was changed.
        """
        self._require_own(state)
        found = [
            (array, values_for(name, _entry_of(state, name), array))
            for name, array in self._named_states().items()
        ]
        settings = [
            (group, setting, self._checked(setting, _plain(_entry_of(state, name))))
            for name, (group, setting) in self._named_settings().items()
            if setting in self._required or name in state
        ]
        for group in self.param_groups:
            self._require_together({name: it for of, name, it in settings if of is group}, group)
        for owner, setting, value in settings:
            if owner is None:
                super().__setattr__(setting, value)
            else:
                owner.hold(setting, value)
        for array, value in found:
            array[...] = value

    def _named_settings(self) -> dict[str, tuple[Group | None, str]]:
        """Which group holds it, None for all, and by what name; the first one's as of one alone."""
        found: dict[str, tuple[Group | None, str]] = {it: (None, it) for it in self._shared}
        for number, group in enumerate(self.param_groups):
            prefix = f"group{number}." if number else ""
            found |= {f"{prefix}{it}": (group, it) for it in self._settings}
        return found

    def _named_states(self) -> dict[str, FloatArray]:
        return {
            f"state{number}.{place}": array
            for number, arrays in enumerate(self._states)
            for place, array in enumerate(arrays or ())
        }

    def _require_own(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping):
            raise TypeError(f"state is of type {type(state).__name__}, expected a dict.")
        own = self._kind
        kind = str(state.get("kind", own))  # which states stored by version 0.1 do not say
        if kind != own:
            raise ValueError(f"state is one of {kind}, expected one of {own}.")
        known = {"kind", *self._named_settings(), *self._named_states()}
        unknown = [str(name) for name in state if name not in known]
        if unknown:
            raise ValueError(
                f"state has {unknown[0]!r}, which an {own} with these parameters and settings does "
                "not have, expected what state_dict of one like it returned."
            )


def _entry_of(state: Mapping[str, Any], name: str) -> Any:
    if name not in state:
        raise KeyError(f"{name} is missing in the state of the optimiser")
    return state[name]


def _plain(value: Any) -> Any:
    """A setting as it was assigned; files give it as an array."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _require_float32(name: str, value: Any) -> None:
    if isinstance(getattr(value, "gradient", None), np.ndarray):
        raise TypeError(
            f"{name} is a {type(value).__name__}, expected its float32 ndarray, as in "
            "[it.gradient for it in model.parameters()]."
        )
    if type(value) is not np.ndarray:
        refuse_masked({name: value})
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a float32 ndarray.")
    if value.dtype != _FLOAT32:
        raise TypeError(f"{name} has dtype {value.dtype}, expected float32.")
