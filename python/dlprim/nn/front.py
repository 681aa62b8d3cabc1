"""Modules as networks: what ``model(x)`` and ``model.backward(dy)`` run without passes by hand.

A module is run once on traced arrays (`dlprim.tracing`) for each mode, and for the shapes and
dtypes of its inputs. Parameters and statistics that it meets are inputs of the network, so that
every run sees what they hold; for inference they are constants, until they are written. What else
it read, numbers, arrays and the layers themselves, is in the network: whether one of these
attributes is another one by now is looked up in each call, in some 0.2 us for each module; elements
that were written are seen after `Module.changed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import chain
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np

from dlprim.arguments.arrays import about_numbers, viewed
from dlprim.arguments.floats import widened
from dlprim.arguments.traced import Held
from dlprim.graph.graph import Value
from dlprim.graph.networks import Shapes
from dlprim.graph.operators.elements import is_differentiable
from dlprim.nn.attributes import State, are_alike, held_in, state_of
from dlprim.nn.module import MODE, Module
from dlprim.nn.parameter import Parameter, Tracked
from dlprim.nn.passes import Sample, label, require_unwritten, sampled
from dlprim.tracing.arguments import Call
from dlprim.tracing.compiled import KEPT_SHAPES, CompiledFunction
from dlprim.tracing.gradients import inputs_of
from dlprim.tracing.pullbacks import Back, Pullback, TwoWays
from dlprim.tracing.traces import Result, Trace
from dlprim.tracing.trees import LEAF, Tree

_KEPT_FORMS = 8


class _Network(CompiledFunction):
    """A module in one of its forms; floats of 16 bits among its arguments are widened."""

    def __init__(self, module: Module, forward: Callable[..., Any]) -> None:
        super().__init__(forward, module.context.dtype_name, KEPT_SHAPES, None)
        self._taken_dtype = "float32"
        self._module = ref(module)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        call = super()._call(args, named)
        for leaf, name in zip(call.leaves, call.names, strict=True):
            if leaf.dtype in ("float16", "float64"):
                dtype = np.dtype(leaf.dtype)
                raise TypeError(
                    f"{name} of {label(self._module())} has dtype {dtype}, expected float32 or "
                    f"bfloat16{about_numbers(name, dtype)}"
                )
        return call


class _Frozen(_Network):
    """For inference, with some of what it holds as constants: packed, and folded into others."""

    def __init__(self, module: Module, forward: Callable[..., Any], known: Sequence[Any]) -> None:
        super().__init__(module, forward)
        # Copies, as networks share what they pack of an array that nobody writes.
        self._frozen = {it: it.held.copy() for it in known}

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Any]:
        made, rest = super()._made(call, shapes)
        graph = made.graph
        begin = len(graph.inputs) - len(made.held)
        pairs = list(zip(made.held, graph.inputs[begin:], strict=True))
        known = {value: self._frozen[it] for it, value in pairs if it in self._frozen}
        inputs = tuple(it for it in graph.inputs if it not in known)
        graph = replace(graph, inputs=inputs, constants={**graph.constants, **known})
        held = tuple(it for it, value in pairs if value not in known)
        return made._replace(graph=graph, held=held), rest


class _Training(_Network, TwoWays):
    """With the way back, by all floats among the arguments and all parameters.

    Attributes
    ----------
    parameters : mapping of Back to pairs of lists
        Those that the way back gives gradients by, and what is in the module besides.
    """

    _copies = False

    def __init__(self, module: Module, forward: Callable[..., Any]) -> None:
        super().__init__(module, forward)
        self.parameters: WeakKeyDictionary[Back, tuple[list[Parameter], list[Parameter]]] = (
            WeakKeyDictionary()
        )

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Back]:
        made, back = super()._made(call, shapes)
        met = [it for it in made.held if isinstance(it, Parameter)]
        module = self._module()
        inside = [] if module is None else module.parameters()
        others = [it for it in inside if not any(it is other for other in met)]
        self.parameters[back] = met, others
        return made, back

    def _sources(self, call: Call, trace: Trace) -> tuple[list[Value], Result]:
        of: list[Value] = []
        leaves: list[Any] = []

        def add(value: Value | None) -> None:
            if value is None or not is_differentiable(value):
                leaves.append((None,))
            else:
                leaves.append(len(of))
                of.append(value)

        for leaf, value in zip(call.leaves, inputs_of(call, trace.graph), strict=True):
            add(value if leaf.kind == "array" else None)
        begin = len(trace.graph.inputs) - len(trace.held)
        met = [
            value
            for it, value in zip(trace.held, trace.graph.inputs[begin:], strict=True)
            if isinstance(it, Parameter)
        ]
        for value in met:
            add(value)
        gradients = Tree(list, (), (LEAF,) * len(met))
        return of, Result(Tree(tuple, (), (call.tree, gradients)), tuple(leaves))


# For inference what parameters hold is compiled in. That takes some tenths of a second, so that it
# is paid with calls that met what was there: so many for one, and so many are saved at most.
_PRICE, _FIRST_CREDIT, _MOST_CREDIT = 4, 8, 16


class _Form:
    """A module as it was when it was traced last.

    Attributes
    ----------
    forward : callable
        What is traced.
    training : _Training
    """

    def __init__(self, module: Module, override: bool | None) -> None:
        self.override, self._state = override, state_of(module)
        self._seen: list[tuple[Callable[[], Any], tuple[Any, ...]]] = []
        self.is_traced = False
        self._module = ref(module)
        self.forward = self._forward(module)
        self.training = _Training(module, self.forward)
        self._open = _Network(module, self._forward(module))
        self._known: tuple[list[int], _Frozen | None] = [], None
        self._credit = _FIRST_CREDIT
        self._look()

    def inference(self, module: Module) -> _Network:
        """What runs for inference, with parameters as constants unless they keep changing."""
        stamp, frozen = self._known
        is_same = [it.current for it in self._tracked] == stamp
        if not is_same:
            versions = [it.version for it in self._tracked]
            is_same, stamp = versions == stamp, versions
        if is_same and frozen is not None:
            self._credit = min(self._credit + 1, _MOST_CREDIT)
            return frozen
        frozen = None
        self._credit += is_same
        if self._credit >= _PRICE:
            self._credit -= _PRICE
            frozen = _Frozen(module, self._forward(module), self._tracked)
        self._known = stamp, frozen
        return frozen or self._open

    def _forward(self, module: Module) -> Callable[..., Any]:
        """`forward` of a module that it does not keep alive."""
        held = ref(module)

        def forward(*args: Any, **named: Any) -> Any:
            it = held()
            assert it is not None
            self.is_traced = True
            before, MODE.override = MODE.override, self.override
            try:
                return it.in_trace(*args, **named)
            finally:
                MODE.override = before

        vars(forward)["__signature__"] = signature(module.forward)
        return forward

    def is_as_before(self) -> bool:
        """Whether nobody has assigned anything; equal numbers may be of other types."""
        try:
            for read, values in self._seen:
                found = tuple(read())
                if len(found) != len(values) or not all(map(is_, found, values)):
                    return False
        except RuntimeError:  # a dict grows
            return False
        return True

    def fits(self, state: State) -> bool:
        """Whether the module is the same in what matters."""
        if not are_alike(self._state, state):
            return False
        self._look()
        return True

    def settle(self, module: Module) -> None:
        """What `forward` assigned itself when it was traced is as it should be."""
        if self.is_traced:
            self.is_traced = False
            self._state = state_of(module)
            self._look()

    def _look(self) -> None:
        self._seen, tracked = [], {}
        module = self._module()
        for it, aside in () if module is None else held_in(module):
            read = it.__iter__
            if isinstance(it, dict):
                read = it.values if aside else partial(chain, it, it.values())
            values = tuple(read())
            self._seen.append((read, values))
            tracked.update({id(held): held for held in values if isinstance(held, Tracked)})
        self._tracked: list[Tracked] = list(tracked.values())


class _Tape(NamedTuple):
    """What a training forward left."""

    pullback: Pullback
    parameters: tuple[list[Parameter], list[Parameter]]
    watched: list[Sample]


class Front:
    """A module as a model: its networks, and what its latest training forward left."""

    def __init__(self, module: Module) -> None:
        self._module = ref(module)
        self._forms: list[_Form] = []
        self._tape: _Tape | None = None
        self._lock = threading.RLock()

    def run(
        self, args: tuple[Any, ...], named: dict[str, Any], training: bool, override: bool = False
    ) -> Any:
        """The result; with override all modules inside are in the mode."""
        form = self.form(training if override else None)
        if not training:
            y = form.inference(self._here())(*args, **named)
        else:
            self._tape = None
            y, pullback = form.training.both(args, named)
            parameters = form.training.parameters[pullback.back]
            watched = [sampled("x", it) for it in pullback.given]
            watched += [sampled(_called(it), it.held) for it in pullback.met]
            self._tape = _Tape(pullback, parameters, watched)
        if form.is_traced:
            with self._lock:
                form.settle(self._here())
        return y

    def form(self, mode: bool | None) -> _Form:
        """The module as it is now: in its modes, or all of it in one."""
        forms = self._forms
        form = forms[0] if forms else None
        if form is None or form.override is not mode or not form.is_as_before():
            form = self._form(mode)
        return form

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
            given = tape.pullback.checked(_as_cotangent(dy), "dy", f" of {label(module)}")
        except (TypeError, ValueError):
            self._tape = tape  # another dy may follow
            raise
        require_unwritten(module, tape.watched)
        met, others = tape.parameters
        (args, named), _ = tape.pullback.run(given, [it.gradient for it in met])
        for parameter in others:
            parameter.gradient[...] = 0
        if ready is not None:
            for parameter in (*reversed(met), *others):
                ready(parameter)
        found = (*args, *named.values())
        return found[0] if len(found) == 1 else found

    def _here(self) -> Module:
        module = self._module()
        assert module is not None
        return module

    def _form(self, mode: bool | None) -> _Form:
        """That which the module has now, first of those that are kept."""
        with self._lock:
            module = self._here()
            for it in module.modules():
                vars(it).setdefault("training", it.training)
            state = state_of(module)
            known = (it for it in self._forms if it.override is mode and it.fits(state))
            form = next(known, None) or _Form(module, mode)
            others = [it for it in self._forms if it is not form]
            self._forms = [form, *others][:_KEPT_FORMS]
            return form


_MODE = "; it is in inference mode, which train() of the model ends"


def _called(it: Held) -> str:
    return f"parameter {it.name!r}" if it.name else "a parameter"


def _as_cotangent(dy: Any) -> Any:
    """Arrays of other libraries as NumPy's, and bfloat16 widened."""
    if isinstance(dy, tuple | list):
        return type(dy)(map(_as_cotangent, dy))
    if isinstance(dy, dict):
        return {name: _as_cotangent(it) for name, it in dy.items()}
    if dy is None or isinstance(dy, int | float):
        return dy
    array = viewed("dy", dy, "float32 or bfloat16")
    return widened(array) if array.dtype.name == "bfloat16" else array
