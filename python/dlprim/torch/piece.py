"""A piece of a graph that runs as one network, for every shape that it meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from dlprim import _core
from dlprim.arguments.locks import Lock
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
    """What a network depends on besides constants."""

    forms: tuple[tuple[int, Form], ...]  # of the tensors, by their places among the operands
    shapes: Shapes  # of the tensors, and all numbers


class _Latest(NamedTuple):
    """What ran last, and the operands that it runs for."""

    graph: CompiledGraph
    numbers: tuple[tuple[int, Any], ...]  # by their places, as all of these
    constants: tuple[Constant, ...]
    # Places, what reads there, forms, strides, and sizes along axes that arrays do not show.
    tensors: tuple[tuple[int, Callable[..., Any], Form, tuple[int, ...], tuple[int, ...]], ...]

    def arrays(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The tensors as arrays, None where operands are others.

        Arrays that are expected in C order and are not, the network refuses itself.
        """
        for at, number in self.numbers:
            if args[at] != number:
                return None
        if self.constants and not _are_fresh(self.constants, args):
            return None
        found = []
        for at, read, form, strides, times in self.tensors:
            tensor = args[at]
            if form is not IN_ORDER and (tensor.stride(), form.times(tensor)) != (strides, times):
                return None
            found.append(read(tensor))
        return tuple(found)


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
        self._makes = tuple(map(_maker, self._results, part.outputs))
        self._constant = part.constant
        self._constants: tuple[Constant, ...] = ()
        self._anew = 0
        self._networks: Networks[CompiledGraph] = Networks(_KEPT_SHAPES)
        self._latest: _Latest | None = None
        self._eager: GraphModule | None = None
        self._lock = Lock()

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        threads = _core.set_threads_of_caller(torch.get_num_threads())
        try:
            return self._run(args)
        finally:
            _core.set_threads_of_caller(threads)

    def explain(self) -> str:
        """The steps of what ran last."""
        return "" if self._latest is None else self._latest.graph.explain()

    # ------------------------------------------------------------ inside

    def _run(self, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        latest = self._latest
        arrays = None if latest is None else latest.arrays(args)
        found = None if latest is None or arrays is None else latest.graph.run_if_exact(arrays)
        if found is None:
            with self._lock:
                try:
                    latest = self._latest = self._anew_for(args)
                except (UnsupportedError, ValueNeededError, *FAULTS) as error:
                    self.refused = f"{type(error).__name__}: {error}"
                    return self._by_pytorch(args)
            arrays = latest.arrays(args)
            assert arrays is not None
            found = latest.graph.run(arrays)
        elif len(self._makes) == 1:
            found = (found,)
        return tuple([make(it) for make, it in zip(self._makes, found, strict=True)])

    def _anew_for(self, args: tuple[Any, ...]) -> _Latest:
        """A network for these operands, made or found."""
        self._take_constants(args)
        kind = self._kind(args)
        tensors = [
            (at, _reader(form, args[at]), form, args[at].stride(), form.times(args[at]))
            for at, form in kind.forms
        ]
        numbers = tuple(zip(self._numbers, kind.shapes[-1], strict=True))
        return _Latest(self._network(kind), numbers, self._constants, tuple(tensors))

    def _take_constants(self, args: tuple[Any, ...]) -> None:
        """Parameters as they are now; after so many changes they are operands like others."""
        if not self._constant or (self._constants and _are_fresh(self._constants, args)):
            return
        self._anew += 1
        self._networks, self._latest = Networks(_KEPT_SHAPES), None
        if self._anew > _MOST_ANEW:
            self._constant = frozenset()
        self._constant = frozenset(at for at in self._constant if may_be_constant(args[at]))
        self._constants = tuple(Constant(at, args[at]) for at in sorted(self._constant))

    def _kind(self, args: tuple[Any, ...]) -> _Kind:
        fixed = {*self._numbers, *self._constant}
        varying = [(at, it) for at, it in enumerate(args) if at not in fixed]
        shapes = [tuple(it.shape) for _, it in varying]
        forms = tuple(
            (at, IN_ORDER if it.is_contiguous() else form_of(shape, it.stride()))
            for (at, it), shape in zip(varying, shapes, strict=True)
        )
        return _Kind(forms, (*shapes, tuple(args[at] for at in self._numbers)))

    def _network(self, kind: _Kind) -> CompiledGraph:
        inputs = [
            Value(f"input {at}", form.shape(kind.shapes[at]), self._dtype(place))
            for at, (place, form) in enumerate(kind.forms)
        ]

        def compiled(shapes: Shapes) -> CompiledGraph:
            return compile_graph(self._graph(kind, shapes))

        def record(shapes: Shapes, recording: Recording) -> RecordedGraph:
            return RecordedGraph(self._graph(kind, shapes), "float32", recording, MOST_BYTES)

        return self._networks.get(kind.forms, kind.shapes, inputs, Makers(compiled, record))

    def _dtype(self, place: int) -> Any:
        (tensor,) = tensors_of(self.part.inputs[place])
        assert tensor is not None
        return DTYPES[tensor.dtype]

    def _graph(self, kind: _Kind, shapes: Shapes) -> Network:
        """The nodes of the piece as those of a graph, for operands of these shapes."""
        b = Builder()
        inputs = self.part.inputs
        known: dict[Node, Any] = {
            inputs[it.place]: b.constant(it.array, inputs[it.place].name) for it in self._constants
        }
        for (place, form), shape in zip(kind.forms, shapes, strict=False):
            value = b.input(inputs[place].name, form.shape(shape), self._dtype(place))
            known[inputs[place]] = form.input(b, value, shape)
        known |= {inputs[at]: it for at, it in zip(self._numbers, shapes[-1], strict=True)}
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


def _reader(form: Form, tensor: torch.Tensor) -> Callable[..., Any]:
    """What makes the array of an operand, by the shortest way."""
    if form is not IN_ORDER:
        return form.array
    return array_of if tensor.dtype is torch.bfloat16 else methodcaller("numpy", force=True)


def _are_fresh(constants: Sequence[Constant], args: tuple[Any, ...]) -> bool:
    return all([it.is_fresh(args[it.place]) for it in constants])


def _result_form(node: Node) -> Form:
    """As PyTorch has traced it; gaps are left out, which nobody may count on."""
    (tensor,) = tensors_of(node)
    assert tensor is not None
    form = form_of(hints_of(tensor.shape), hints_of(tensor.stride()))
    return IN_ORDER if form == IN_ORDER or 0 in hints_of(tensor.shape) else form


def _maker(form: Form, node: Node) -> Callable[[Any], torch.Tensor]:
    """What makes the tensor of a result, by the shortest way."""
    (tensor,) = tensors_of(node)
    assert tensor is not None
    if form is not IN_ORDER:
        return form.tensor
    return tensor_of if tensor.dtype is torch.bfloat16 else torch.from_numpy
