"""A module as it was when it was traced last, and its networks.

It is compared with the module by the identity of attributes, and numbers by their types too: what
`forward` read is in the networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from itertools import compress, count
from typing import Any
from weakref import ref

import numpy as np

from dlprim.arguments.arrays import about_numbers
from dlprim.graph.compiled import CompiledGraph
from dlprim.graph.graph import Graph, Value
from dlprim.graph.networks import Shapes
from dlprim.graph.operators.elements import is_differentiable
from dlprim.nn.attributes import State
from dlprim.nn.calls import label
from dlprim.nn.module import TRACING, Module
from dlprim.nn.parameter import Parameter, Tracked
from dlprim.primitives.conv_algorithm import conv_algorithm
from dlprim.tracing.arguments import Call, taken
from dlprim.tracing.array import TracedArray
from dlprim.tracing.compiled import KEPT_SHAPES, CompiledFunction, Network
from dlprim.tracing.gradients import inputs_of
from dlprim.tracing.parts import Parts, PausingNetwork
from dlprim.tracing.traces import Result, Trace
from dlprim.tracing.trees import LEAF, Tree, flattened, nested


class _Network(CompiledFunction):
    """A module in one of its forms; floats of 16 bits among its arguments are widened."""

    def __init__(self, module: Module, forward: Callable[..., Any]) -> None:
        super().__init__(forward, module.context.dtype_name, KEPT_SHAPES, None)
        self._taken_dtype = "float32"
        self._module = ref(module)

    def _network(self, call: Call) -> Network:
        module = self._module()
        assert module is not None
        with conv_algorithm(module.context.algorithm):
            return super()._network(call)

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        whose = f" of {label(self._module())}"
        call = taken(self._parameters, args, named, self._taken_dtype, whose)
        for leaf, name in zip(call.leaves, call.names, strict=True):
            if leaf.dtype in ("float16", "float64"):
                dtype = np.dtype(leaf.dtype)
                raise TypeError(
                    f"{name}{whose} has dtype {dtype}, expected float32 or bfloat16"
                    f"{about_numbers(name, dtype)}"
                )
        return call


def _held(trace: Trace) -> list[tuple[Any, Value]]:
    """What it met that outlives calls, and which inputs these are: the last ones."""
    inputs = trace.graph.inputs
    return list(zip(trace.held, inputs[len(inputs) - len(trace.held) :], strict=True))


class _Frozen(_Network):
    """For inference, with some of what it holds as constants: packed, and folded into others."""

    def __init__(self, module: Module, forward: Callable[..., Any], known: Sequence[Any]) -> None:
        super().__init__(module, forward)
        # Copies, as networks share what they pack of an array that nobody writes.
        self._frozen = {it: it.copied() for it in known}

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Any]:
        made, rest = super()._made(call, shapes)
        graph = made.graph
        pairs = _held(made)
        known = {value: self._frozen[it] for it, value in pairs if it in self._frozen}
        inputs = tuple(it for it in graph.inputs if it not in known)
        graph = replace(graph, inputs=inputs, constants={**graph.constants, **known})
        held = tuple(it for it, value in pairs if value not in known)
        return made._replace(graph=graph, held=held), rest


class Training(_Network, Parts):
    """With the way back, by all floats among the arguments and all parameters."""

    def _networks_of(
        self, whole: Graph, made: Trace, rest: Any
    ) -> Callable[[CompiledGraph], PausingNetwork]:
        """Their ``aside`` are parameters that the way back gives gradients by, and the others."""
        make = super()._networks_of(whole, made, rest)
        met = [it for it in made.held if isinstance(it, Parameter)]
        module = self._module()
        known = set(map(id, met))
        others = [] if module is None else [it for it in module.parameters() if id(it) not in known]

        def network(graph: CompiledGraph) -> PausingNetwork:
            found = make(graph)
            found.aside = met, others
            return found

        return network

    def _sources(self, call: Call, trace: Trace) -> tuple[list[Value], Result]:
        found = zip(call.leaves, inputs_of(call, trace.graph), strict=True)
        given = [
            it if leaf.kind == "array" and it not in trace.ended else None for leaf, it in found
        ]
        met = [value for it, value in _held(trace) if isinstance(it, Parameter)]
        has_gradient = [it is not None and is_differentiable(it) for it in (*given, *met)]
        of: list[Any] = list(compress((*given, *met), has_gradient))
        place = count()
        leaves = tuple(next(place) if it else (None,) for it in has_gradient)
        gradients = Tree(list, (), (LEAF,) * len(met))
        return of, Result(Tree(tuple, (), (call.tree, gradients)), leaves)


# For inference what parameters hold is compiled in. That takes some tenths of a second, so that it
# is paid with calls that met what was there: so many for one, so many are saved at most, and those
# that meet values once more may owe so many.
_PRICE, _FIRST_CREDIT, _MOST_CREDIT, _MOST_DEBT = 4, 8, 16, 64


class Form:
    """A module as it was when it was traced last.

    Attributes
    ----------
    forward : callable
        What is traced.
    training : Training
    state : State
        What it read.
    """

    def __init__(self, module: Module, override: bool | None, state: State | None = None) -> None:
        self.override = override
        self.is_traced = False
        self.forward = self._forward(module)
        self.training = Training(module, self.forward)
        self._open = _Network(module, self._forward(module))
        self._known: tuple[list[int], _Frozen | None] = [], None
        self._credit = _FIRST_CREDIT
        self._look(State(module) if state is None else state)

    def inference(self, module: Module) -> _Network:
        """What runs for inference, with parameters as constants unless they keep changing."""
        if not TRACING.freezes:
            return self._open
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
        if self._credit >= (-_MOST_DEBT if is_same else _PRICE):
            self._credit -= _PRICE
            frozen = _Frozen(module, self._forward(module), self._tracked)
        self._known = stamp, frozen
        return frozen or self._open

    def _forward(self, module: Module) -> Callable[..., Any]:
        """`forward` of a module that it does not keep alive, nor this form."""
        held, form, override = ref(module), ref(self), self.override

        def forward(*args: Any, **named: Any) -> Any:
            it, owner = held(), form()
            assert it is not None
            if owner is not None:
                owner.is_traced = True
            before, TRACING.mode = TRACING.mode, override
            generators = _generators_of(it)
            try:
                found = it.in_trace(*args, **named)
            finally:
                TRACING.mode = before
            _require_undrawn(generators)
            return _rounded(found, it.context.dtype)

        vars(forward)["__signature__"] = signature(module.forward)
        return forward

    def fits(self, state: State) -> bool:
        """Whether the module is the same in what matters."""
        if not self.state.is_like(state):
            return False
        self._look(state)
        return True

    def settle(self, module: Module) -> None:
        """What `forward` assigned itself when it was traced is as it should be."""
        if self.is_traced:
            self.is_traced = False
            self._look(State(module))

    def _look(self, state: State) -> None:
        self.state = state
        tracked = {id(it): it for it in state.values if isinstance(it, Tracked)}
        self._tracked: list[Tracked] = list(tracked.values())


def _rounded(found: Any, dtype: np.dtype[Any]) -> Any:
    """Results of float32 as activations are; without ml_dtypes they stay what they are."""
    if dtype.name != "bfloat16":
        return found
    leaves: list[Any] = []
    tree = flattened(found, leaves)
    made: dict[int, Any] = {}  # by identity, as a result may be there twice
    for it in leaves:
        is_wide = isinstance(it, TracedArray) and it.dtype == np.float32
        made.setdefault(id(it), it.astype(dtype) if is_wide else it)
    return nested(tree, [made[id(it)] for it in leaves])


def _generators_of(module: Module) -> list[tuple[str, np.random.Generator, Any]]:
    """NumPy's generators that modules hold, by what errors call them, and their states."""
    return [
        (f"{name} of {label(it)}", value, value.bit_generator.state)
        for it in module.modules()
        for name, value in vars(it).items()
        if isinstance(value, np.random.Generator)
    ]


def _require_undrawn(generators: Sequence[tuple[str, np.random.Generator, Any]]) -> None:
    for name, generator, state in generators:
        if repr(generator.bit_generator.state) != repr(state):
            generator.bit_generator.state = state
            raise TypeError(
                f"{name} draws where the module is traced, which would make its numbers constants "
                "of all later runs, expected arrays that are drawn outside and given to forward, "
                "or dlprim.nn.Dropout"
            )
