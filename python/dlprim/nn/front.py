"""Modules as networks: what ``model(x)`` and ``model.backward(dy)`` run.

A module is run once on traced arrays (`dlprim.tracing`) for each mode, and for the shapes and
dtypes of its inputs. Parameters and statistics that it meets are inputs of the network, so that
every run sees what they hold; for inference they are constants, until they are written. What else
it read, numbers, arrays and the layers themselves, is in the network: whether one of these
attributes is another one by now is looked up in each call (forms.py); elements that were written
are seen after `Module.changed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from dlprim.arguments.arrays import viewed
from dlprim.arguments.locks import Lock
from dlprim.arguments.traced import Held
from dlprim.nn.attributes import State
from dlprim.nn.calls import (
    Sample,
    in_dtype,
    label,
    require_array,
    require_unwritten,
    sampled,
    with_arrays,
    written,
)
from dlprim.nn.forms import Form
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter, Tracked
from dlprim.tracing.parts import Way

_KEPT_FORMS = 8


class _Tape(NamedTuple):
    """What a training forward left."""

    way: Way
    parameters: tuple[list[Parameter], list[Parameter]]
    watched: list[Sample]
    met: list[tuple[Held, int | None, Sample]]  # with versions, where these are known
    given: Any  # the arguments

    def require_unwritten(self, module: Module) -> None:
        """Raises RuntimeError where what the way back reads was written, as far as versions and
        samples tell."""
        may = []
        for it, version, sample in self.met:
            now = None if version is None else _version(it)
            if now is None:
                may.append(sample)
            elif now != version:
                raise written(module, sample[0])
        require_unwritten(module, self.watched + may)


def _own_places(it: Any) -> Any:
    """A copy of places in a table, which are few and which the way back reads again: their array
    may take the next batch at once."""
    is_places = isinstance(it, np.ndarray) and it.dtype.kind == "i" and it.dtype.itemsize >= 4
    return it.copy() if is_places else it


class Front:
    """A module as a model: its networks, and what its latest training forward left."""

    def __init__(self, module: Module) -> None:
        if "context" not in vars(module):
            kind = type(module).__name__
            raise TypeError(
                f"{kind} has no context, expected super().__init__() as the first line of "
                f"{kind}.__init__"
            )
        self._module = ref(module)
        self._forms: list[Form] = []
        self._tape: _Tape | None = None
        self._lock = Lock()

    def run(
        self, args: tuple[Any, ...], named: dict[str, Any], training: bool, override: bool = False
    ) -> Any:
        """The result; with override all modules inside are in the mode."""
        module = self._here()
        require_array(module, args)
        if module.listed:
            args, named = with_arrays(module, args, named)
        form = self.form(training if override else None)
        if not training:
            y = form.inference(module)(*args, **named)
        else:
            self._tape = None
            args = tuple(map(_own_places, args))
            named = {name: _own_places(it) for name, it in named.items()}
            y, way = form.training.both(args, named)
            watched = [sampled("x", it) for it in way.given]
            met = [(it, _version(it), sampled(_called(it), it.held)) for it in way.met]
            self._tape = _Tape(way, way.network.aside, watched, met, (args, named))
        if form.is_traced:
            with self._lock:
                form.settle(module)
        return y

    def form(self, mode: bool | None) -> Form:
        """The module as it is now: in its modes, or all of it in one."""
        forms = self._forms
        form = forms[0] if forms else None
        if form is None or form.override is not mode or not form.state.is_as_before():
            form = self._form(mode)
        return form

    def forget(self) -> None:
        """Drops what the latest training forward left."""
        with self._lock:
            self._tape = None

    def back(self, dy: Any, ready: Callable[[Parameter], None] | None) -> Any:
        """As `Module.backward`."""
        with self._lock:
            tape, self._tape = self._tape, None
        module = self._here()
        if tape is None:
            mode = "" if module.training else _MODE
            raise RuntimeError(
                f"backward of {label(module)} follows no training forward, expected one in front "
                f"of each backward{mode}"
            )
        try:
            given = tape.way.checked(
                _as_cotangent(dy, module.context.dtype), "dy", f" of {label(module)}"
            )
        except (TypeError, ValueError):
            self._tape = tape  # another dy may follow
            raise
        tape.require_unwritten(module)
        met, others = tape.parameters
        for parameter in others:
            parameter.gradient[...] = 0
            if ready is not None:
                ready(parameter)
        tell = None if ready is None else lambda number: ready(met[number])
        found, _ = tape.way.run(given, [it.gradient for it in met], tell)
        if tell is not None:  # which may have written what was still read
            tape.require_unwritten(module)
        args, named = _as_given(found, tape.given)
        given = tape.given[1]
        found = (*args, *(it for name, it in named.items() if not _are_integers(given[name])))
        return found[0] if len(found) == 1 else found

    def _here(self) -> Module:
        module = self._module()
        assert module is not None
        return module

    def _form(self, mode: bool | None) -> Form:
        """That which the module has now, first of those that are kept."""
        with self._lock:
            module = self._here()
            for it in module.modules():
                vars(it).setdefault("training", it.training)
            state = State(module)
            known = (it for it in self._forms if it.override is mode and it.fits(state))
            form = next(known, None) or Form(module, mode, state)
            others = [it for it in self._forms if it is not form]
            self._forms = [form, *others][:_KEPT_FORMS]
            return form


_MODE = "; it is in inference mode, which train() of the model ends"


def _version(it: Any) -> int | None:
    return it.current if isinstance(it, Tracked) else None


def _called(it: Held) -> str:
    return f"parameter {it.name!r}" if it.name else "a parameter"


def _are_integers(given: Any) -> bool:
    dtype = getattr(given, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iu" and given.ndim > 0


def _as_cotangent(dy: Any, dtype: Any) -> Any:
    """Arrays of other libraries as NumPy's, and floats as results are."""
    if isinstance(dy, tuple | list):
        return type(dy)([_as_cotangent(it, dtype) for it in dy])
    if isinstance(dy, dict):
        return {name: _as_cotangent(it, dtype) for name, it in dy.items()}
    if dy is None or isinstance(dy, int | float):
        return dy
    return in_dtype(dtype, viewed("dy", dy, "float32 or bfloat16"))


def _as_given(found: Any, given: Any) -> Any:
    """Gradients in the dtypes of what they are by."""
    if isinstance(found, tuple | list):
        return [_as_given(it, by) for it, by in zip(found, given, strict=True)]
    if isinstance(found, dict):
        return {name: _as_given(it, given[name]) for name, it in found.items()}
    return found if found is None else in_dtype(getattr(given, "dtype", None), found)
