"""A piece of a graph that runs as one network, for every shape that it meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

import dlprim
from dlprim.graph.builder import Builder, ValueNeededError
from dlprim.graph.compiled import CompiledGraph, RecordedGraph, compile_graph
from dlprim.graph.graph import Graph as Network
from dlprim.graph.graph import Value
from dlprim.graph.networks import FAULTS, Makers, Networks, Shapes
from dlprim.graph.recording import Recording
from dlprim.graph.room import MOST_BYTES
from dlprim.torch.constants import Constant, may_be_constant
from dlprim.torch.forms import IN_ORDER, Form, array_of, form_of, tensor_of
from dlprim.torch.operators import DTYPES, UnsupportedError
from dlprim.torch.partition import applied
from dlprim.torch.sizes import hints_of, tensors_of

# Of how many shapes networks are kept, and how often they are made anew for other parameters
# before these become operands like others.
_KEPT_SHAPES = 32
_MOST_ANEW = 4


MakesTensor = Callable[[Any], torch.Tensor]  # of an array


class Part(NamedTuple):
    """Nodes of a traced graph between operands and results.

    Attributes
    ----------
    nodes, inputs, outputs : tuple of Node
    constant : frozenset of int
        Which of the operands are parameters.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    constant: frozenset[int]


class _Kind(NamedTuple):
    """What a network depends on besides shapes."""

    forms: tuple[Form | None, ...]  # of the operands; None of numbers and constants
    shapes: Shapes  # of the tensors, and all numbers


class _Latest(NamedTuple):
    """What ran last, and the operands that it runs for."""

    made: _Made
    numbers: tuple[Any, ...]
    constants: tuple[Constant, ...]
    # Places, forms, strides, and sizes along axes that arrays do not show.
    tensors: tuple[tuple[int, Form, tuple[int, ...], tuple[int, ...]], ...]

    def arrays(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The tensors as arrays, None where they lie otherwise."""
        found = []
        for at, form, strides, times in self.tensors:
            tensor = args[at]
            if form is IN_ORDER:
                if not tensor.is_contiguous():
                    return None
                found.append(array_of(tensor))
            elif tensor.stride() == strides and form.times(tensor) == times:
                found.append(form.array(tensor))
            else:
                return None
        return tuple(found)


class _Made:
    """A network for operands of these kinds."""

    __slots__ = ("_results", "graph", "run_if_exact")

    def __init__(self, graph: CompiledGraph, results: Sequence[MakesTensor]) -> None:
        self.graph, self.run_if_exact = graph, graph.run_if_exact
        self._results = tuple(results)

    @property
    def structure(self) -> str:
        return self.graph.structure

    def given(self, found: Any) -> tuple[torch.Tensor, ...]:
        """The results as tensors."""
        if not isinstance(found, tuple | list):
            return (self._results[0](found),)
        return tuple([make(it) for make, it in zip(self._results, found, strict=True)])


class _Recorded:
    """Networks of one recording."""

    def __init__(self, graph: RecordedGraph, results: Sequence[MakesTensor]) -> None:
        self._graph, self._results = graph, results
        self.first = _Made(graph.first, results)

    def made(self, extents: Sequence[int], inputs: Sequence[Value]) -> _Made | None:
        graph = self._graph.made(extents, inputs)
        return None if graph is None else _Made(graph, self._results)


class Piece:
    """Called with the operands of a part, tensors and numbers, it returns its results.

    Attributes
    ----------
    part : Part
    refused : str or None
        Why PyTorch runs it for some shapes: what a rule or the compiler said.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.refused: str | None = None
        self.__name__ = "dlprim"
        self._numbers = tuple(at for at, it in enumerate(part.inputs) if tensors_of(it) == (None,))
        self._results = tuple(_result_form(it) for it in part.outputs)
        self._makes = [
            _maker(form, it) for form, it in zip(self._results, part.outputs, strict=True)
        ]
        self._constant = part.constant
        self._constants: tuple[Constant, ...] = ()
        self._varying = self._others()
        self._anew = 0
        self._networks: Networks[_Made] = Networks(_KEPT_SHAPES)
        self._latest: _Latest | None = None
        self._eager: GraphModule | None = None
        self._lock = RLock()

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        threads = torch.get_num_threads()
        if threads == dlprim.get_num_threads():
            return self._run(args)
        with dlprim.threads(threads):
            return self._run(args)

    def explain(self) -> str:
        """The steps of what ran last."""
        return "" if self._latest is None else self._latest.made.graph.explain()

    # ------------------------------------------------------------ inside

    def _others(self) -> tuple[int, ...]:
        """The tensors that are no constants."""
        fixed = {*self._numbers, *self._constant}
        return tuple(at for at in range(len(self.part.inputs)) if at not in fixed)

    def _run(self, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        latest = self._latest
        if (
            latest is not None
            and latest.numbers == tuple([args[at] for at in self._numbers])
            and _are_fresh(latest.constants, args)
        ):
            arrays = latest.arrays(args)
            found = None if arrays is None else latest.made.run_if_exact(arrays)
            if found is not None:
                return latest.made.given(found)
        with self._lock:
            try:
                latest = self._latest = self._anew_for(args)
            except (UnsupportedError, ValueNeededError, *FAULTS) as error:
                self.refused = f"{type(error).__name__}: {error}"
                return self._by_pytorch(args)
        arrays = latest.arrays(args)
        assert arrays is not None
        return latest.made.given(latest.made.graph.run(arrays))

    def _anew_for(self, args: tuple[Any, ...]) -> _Latest:
        """A network for these operands, made or found."""
        self._take_constants(args)
        kind = self._kind(args)
        made = self._network(kind)
        found = [(at, _form(kind, at), args[at]) for at in self._varying]
        tensors = tuple((at, form, it.stride(), form.times(it)) for at, form, it in found)
        return _Latest(made, kind.shapes[-1], self._constants, tensors)

    def _take_constants(self, args: tuple[Any, ...]) -> None:
        """Parameters as they are now; after so many changes they are operands like others."""
        if self._constants and _are_fresh(self._constants, args):
            return
        if not self._constant:
            return
        self._anew += 1
        self._networks, self._latest = Networks(_KEPT_SHAPES), None
        if self._anew > _MOST_ANEW:
            self._constant = frozenset()
        self._constant = frozenset(at for at in self._constant if may_be_constant(args[at]))
        self._constants = tuple(Constant(at, args[at]) for at in sorted(self._constant))
        self._varying = self._others()

    def _kind(self, args: tuple[Any, ...]) -> _Kind:
        forms: list[Form | None] = [None] * len(args)
        shapes = []
        for at in self._varying:
            shape = tuple(args[at].shape)
            forms[at] = IN_ORDER if args[at].is_contiguous() else form_of(shape, args[at].stride())
            shapes.append(shape)
        return _Kind(tuple(forms), (*shapes, tuple(args[at] for at in self._numbers)))

    def _network(self, kind: _Kind) -> _Made:
        inputs = [
            Value(f"input {at}", _form(kind, place).shape(kind.shapes[at]), self._dtype(place))
            for at, place in enumerate(self._varying)
        ]

        def compiled(shapes: Shapes) -> _Made:
            return _Made(compile_graph(self._graph(kind, shapes)), self._makes)

        def record(shapes: Shapes, recording: Recording) -> _Recorded:
            graph = self._graph(kind, shapes)
            return _Recorded(RecordedGraph(graph, "float32", recording, MOST_BYTES), self._makes)

        return self._networks.get(kind.forms, kind.shapes, inputs, Makers(compiled, record))

    def _dtype(self, place: int) -> Any:
        (tensor,) = tensors_of(self.part.inputs[place])
        assert tensor is not None
        return DTYPES[tensor.dtype]

    def _graph(self, kind: _Kind, shapes: Shapes) -> Network:
        """The nodes of the piece as those of a graph, for operands of these shapes."""
        b = Builder()
        known: dict[Node, Any] = {}
        inputs = self.part.inputs
        for it in self._constants:
            known[inputs[it.place]] = b.constant(it.array, inputs[it.place].name)
        for at, place in enumerate(self._varying):
            form, shape = _form(kind, place), shapes[at]
            value = b.input(inputs[place].name, form.shape(shape), self._dtype(place))
            known[inputs[place]] = form.input(b, value, shape)
        for place, number in zip(self._numbers, shapes[-1], strict=True):
            known[inputs[place]] = number
        for node in self.part.nodes:
            known[node] = applied(b, node, known.__getitem__)
        zipped = zip(self._results, self.part.outputs, strict=True)
        return b.graph([form.output(b, known[it]) for form, it in zipped])

    def _by_pytorch(self, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        """The same nodes, run by PyTorch: for shapes that dlprim refuses."""
        if self._eager is None:
            graph = Graph()
            known = {it: graph.placeholder(it.name) for it in self.part.inputs}
            for node in self.part.nodes:
                known[node] = graph.node_copy(node, known.__getitem__)
            graph.output(tuple(known[it] for it in self.part.outputs))
            self._eager = GraphModule({}, graph)
        found: tuple[torch.Tensor, ...] = self._eager(*args)
        return found


def _are_fresh(constants: Sequence[Constant], args: tuple[Any, ...]) -> bool:
    return all([it.is_fresh(args[it.place]) for it in constants])


def _form(kind: _Kind, place: int) -> Form:
    form = kind.forms[place]
    assert form is not None
    return form


def _result_form(node: Node) -> Form:
    """As PyTorch has traced it; gaps are left out, which nobody may count on."""
    (tensor,) = tensors_of(node)
    assert tensor is not None
    form = form_of(hints_of(tensor.shape), hints_of(tensor.stride()))
    return IN_ORDER if form == IN_ORDER or 0 in hints_of(tensor.shape) else form


def _maker(form: Form, node: Node) -> MakesTensor:
    """What makes the tensor of a result, by the shortest way."""
    (tensor,) = tensors_of(node)
    assert tensor is not None
    if form is not IN_ORDER:
        return form.tensor
    return tensor_of if tensor.dtype is torch.bfloat16 else torch.from_numpy
