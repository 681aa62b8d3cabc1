"""A section of a program as networks, each for the shapes that it met."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from dlprim import _core
from dlprim.graph import Graph
from dlprim.graph.compiled import CompiledGraph, RecordedGraph, compile_graph
from dlprim.graph.conversion import in_float32
from dlprim.graph.graph import Array, Value
from dlprim.graph.networks import Makers, Networks, Shapes
from dlprim.graph.passes.epilogues import fold_norms
from dlprim.graph.quantization import Table, insert
from dlprim.graph.recording import Recording
from dlprim.onnx.importer import FAILURES, ElementsNeededError, graph_of
from dlprim.onnx.operators.shapes import identity
from dlprim.onnx.program import Section
from dlprim.onnx.proto import ModelError
from dlprim.schedule_store import Travelled

_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """How the networks of a model are made; `OnnxModel` says what each is."""

    table: Table | None
    dtype: str | None
    schedules: Travelled | None
    max_bytes: int
    kept_shapes: int
    defaults: Mapping[str, Array]
    states: Mapping[str, str] = field(default_factory=dict)


class Part:
    """A section of a program that runs as a network.

    Attributes
    ----------
    section : Section
    asked : frozenset of str
        Inputs whose elements decide on shapes: a network is made for them.
    known : KnownNetworks of the core
        Those that it has for arrays that look like some that it met.
    """

    def __init__(
        self, section: Section, constants: Mapping[str, Array], settings: Settings, lock: Any
    ) -> None:
        self.section = section
        self.asked: frozenset[str] = frozenset()
        self.networks: Networks[CompiledGraph] = Networks(settings.kept_shapes)
        defaults = [
            (place, settings.defaults[name])
            for place, name in enumerate(section.inputs)
            if name in settings.defaults
        ]
        self.known = _core.KnownNetworks(settings.kept_shapes, defaults)
        self._constants, self._settings, self._lock = constants, settings, lock

    @property
    def latest(self) -> CompiledGraph | None:
        """What ran last."""
        latest: CompiledGraph | None = self.known.latest
        return latest

    def ask(self, names: Iterable[str]) -> None:
        """Makes networks for the elements of these inputs, too, from here on."""
        self.asked |= set(names)
        inputs = enumerate(self.section.inputs)
        self.known.ask([place for place, name in inputs if name in self.asked])

    def named(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Values of its inputs, by name."""
        return dict(zip(self.section.inputs, arrays, strict=True))

    def run(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """The outputs of the section, of arrays that look new.

        Raises
        ------
        ModelError
            Where it cannot be run with these arrays.
        ElementsNeededError
            Where a shape follows from elements that are not asked for.
        """
        named = self.named(arrays)
        graph = self.network(self._of_arrays(named))
        try:
            return graph.run([named[value.name] for value in graph.graph.inputs])
        except FAILURES as error:
            raise refused(error) from error

    def refuse(self, error: BaseException) -> NoReturn:
        """Raises what a network of it raised, as an error of the model."""
        if isinstance(error, FAILURES):
            raise refused(error) from error
        raise error

    def network(self, arrays: Mapping[str, Array]) -> CompiledGraph:
        """The network for these arrays, from among those that are kept."""
        with self._lock:
            graph = self._network(arrays)
        names = list(arrays)
        reads = [names.index(value.name) for value in graph.graph.inputs]
        self.known.add(list(arrays.values()), graph, reads)
        return graph

    def profile(self, arrays: Mapping[str, Any]) -> list[tuple[str, str, float]]:
        """Of every step its kind, its name and the seconds that it took."""
        graph = self.network(self._of_arrays(arrays))
        return graph.profile([arrays[value.name] for value in graph.graph.inputs])

    def traced(
        self, arrays: Mapping[str, Array], graphs: OrderedDict[Any, Graph]
    ) -> tuple[Graph, list[Array]]:
        """The graph for these arrays, with norms folded into weights, and what it is given.

        Arrays of the same shapes share one of the graphs, to which new ones are added.
        """
        with self._lock:
            known = self._known(arrays)
            key = self, *((it.shape, *self._key_of(known, name)) for name, it in arrays.items())
            if key not in graphs:
                graphs[key] = fold_norms(self.graph(arrays, known))
            graph = graphs[key]
        return graph, [arrays[value.name] for value in graph.inputs]

    def graph(self, arrays: Mapping[str, Array], known: Mapping[str, Array]) -> Graph:
        """The graph for arrays, with the elements of some of them."""
        typed = {name: (it.shape, it.dtype) for name, it in arrays.items()}
        how = self._settings
        return graph_of(self.section, self._constants, typed, known, how.max_bytes, how.states)

    # ------------------------------------------------------------ inside

    def _of_arrays(self, given: Mapping[str, Any]) -> Mapping[str, Array]:
        """What is given, unless something of it is no array: no network has what reads that."""
        lists = {name for name, it in given.items() if not isinstance(it, np.ndarray)}
        if not lists:
            return given
        readers = []
        for step in self.section.steps:
            if not lists.isdisjoint(step.reads()):
                readers.append(step)
                lists.update(step.outputs if step.function is identity else ())
        steps = [step for step in readers if step.function is not identity] or readers
        raise ElementsNeededError(steps, sorted(lists), "expected arrays")

    def _network(self, arrays: Mapping[str, Array]) -> CompiledGraph:
        how = self._settings
        shapes = tuple(it.shape for it in arrays.values())

        def graph(shapes: Shapes) -> Graph:
            by_name = zip(arrays, shapes, strict=True)
            typed = {name: (shape, arrays[name].dtype) for name, shape in by_name}
            given = self._constants, typed, known, how.max_bytes, how.states
            made = graph_of(self.section, *given)
            return self._prepared(made)

        def record(shapes: Shapes, recording: Recording) -> RecordedGraph:
            try:
                return RecordedGraph(graph(shapes), dtype, recording, most)
            except ElementsNeededError as error:  # without a recording they might not be
                raise ValueError(str(error)) from error

        dtype, most = how.dtype or "float32", how.max_bytes
        makers = Makers(
            lambda shapes: compile_graph(graph(shapes), dtype=dtype, max_bytes=most), record
        )
        known = self._known(arrays)
        kind = tuple((it.ndim, it.dtype, *self._key_of(known, name)) for name, it in arrays.items())
        inputs = [
            Value(name, it.shape, it.dtype) for name, it in arrays.items() if name not in known
        ]
        with nullcontext() if how.schedules is None else how.schedules.used():
            return self.networks.get(kind, shapes, inputs, makers)

    def _prepared(self, graph: Graph) -> Graph:
        """Quantised, and in the types that it is computed in."""
        how = self._settings
        if how.table is not None:
            graph = insert(fold_norms(graph), how.table)
        if how.dtype is None:
            return graph
        return in_float32(graph, ("float16",) if how.dtype == "bfloat16" else _HALVES)

    def _known(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Copies of those whose elements decide on shapes, and of those the model has."""
        defaults = self._settings.defaults
        return {
            name: np.array(it)
            for name, it in arrays.items()
            if name in self.asked or it is defaults.get(name)
        }

    def _key_of(self, known: Mapping[str, Array], name: str) -> tuple[Any, ...]:
        """What a graph depends on besides extents: a known input's shape and elements."""
        if name not in known:
            return ()
        it = known[name]
        return it.shape, it.tobytes() if name in self.asked else True


def refused(error: Exception) -> ModelError:
    """What a network raises, as an error of the model."""
    return ModelError(f"the model cannot be run with these inputs: {error}")
