"""A step that runs between networks: on lists of arrays, or by elements that are known then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from dlprim.graph import Graph
from dlprim.graph.graph import Array
from dlprim.graph.interpret import interpret, is_same_in_numpy
from dlprim.graph.room import require_room_for
from dlprim.onnx.importer import FAILURES, UNFORESEEN, ElementsNeededError
from dlprim.onnx.operators import shapes
from dlprim.onnx.operators.control import described
from dlprim.onnx.parts.part import Part, Settings
from dlprim.onnx.program import Section, Step
from dlprim.onnx.proto import ModelError
from dlprim.onnx.registry import Call
from dlprim.onnx.strings import STRING

# Of elements by which a graph is found again.
_MOST_KEPT_BYTES = 256
# What is done with arrays in networks may be done with lists between them; of others None is.
_OF_LISTS = (None, shapes.identity, shapes.optional_get_element, shapes.optional_has_element)


class Bodies(Protocol):
    """What runs the bodies of a step, as `Call` has it."""

    def body(self, block: Any, inputs: Sequence[Any]) -> list[Any]: ...
    def steps(self, block: Any, inputs: Sequence[Any], states: int, rows: int) -> Any: ...


class SingleStep:
    """One step, computed with the elements that it asks for.

    Attributes
    ----------
    step : Step
    part : Part
        Its networks, where NumPy does not move the elements just so.
    """

    def __init__(
        self, step: Step, constants: Mapping[str, Array], settings: Settings, lock: Any
    ) -> None:
        self.step = step
        self._settings = settings
        self._constants = {it: constants[it] for it in step.inputs if it in constants}
        names = dict.fromkeys(it for it in step.inputs if it and it not in constants)
        self._graphs: dict[tuple[Any, ...], tuple[Graph, bool]] = {}
        section = Section(tuple(names), (step,), tuple(filter(None, step.outputs)))
        self.part = Part(section, self._constants, settings, lock)

    def run(self, operands: Sequence[Any], bodies: Bodies) -> Sequence[Any]:
        """The outputs that it names, of as many operands as it has; those left out are None.

        Raises
        ------
        ModelError
            Where it cannot be computed of these.
        """
        step = self.step
        try:
            if step.on_values is not None:
                return self._on_values(operands, bodies)
            named = self._named(operands)
            graph, is_moved = self._known_graph(named)
            if is_moved:
                results = interpret(graph, [named[it.name] for it in graph.inputs])
                return [np.ascontiguousarray(it).reshape(np.shape(it)) for it in results]
        except ModelError:
            raise
        except FAILURES as error:
            raise ModelError(f"{step.label}: {error}") from error
        except UNFORESEEN as error:
            given = ", ".join(map(described, operands))
            raise ModelError(f"{step.label}: it cannot be computed of {given}") from error
        return self.part.run(list(named.values()))

    # ------------------------------------------------------------ inside

    def _on_values(self, operands: Sequence[Any], bodies: Bodies) -> Sequence[Any]:
        step = self.step
        assert step.on_values is not None
        self._require_kinds(operands)
        call = Call(step.bodies, bodies.body, self._settings.max_bytes, bodies.steps)
        results = step.on_values(call, *operands, **step.attributes)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) < len(step.outputs):
            raise ValueError(f"it gives {len(results)} outputs, expected {len(step.outputs)}")
        return [it for name, it in zip(step.outputs, results, strict=False) if name]

    def _require_kinds(self, operands: Sequence[Any]) -> None:
        """Refuses texts where there are none, and lists where a network takes arrays."""
        types = self.step.types
        for place, it in enumerate(operands):
            if isinstance(it, np.ndarray):
                if it.dtype.kind != STRING.kind:
                    continue
                if not types or STRING.name not in types[min(place, len(types) - 1)]:
                    raise ValueError(f"input {place} is of string, expected numbers")
            elif it is not None and self.step.function not in _OF_LISTS:
                raise ValueError(f"input {place} is {described(it)}, expected an array")

    def _named(self, operands: Sequence[Any]) -> dict[str, Array]:
        named: dict[str, Array] = {}
        for name, it in zip(self.step.inputs, operands, strict=True):
            if name and not isinstance(it, np.ndarray):
                raise ValueError(f"'{name}' is {described(it)}, expected an array")
            if name and name not in self._constants:
                named[name] = it
        return named

    def _known_graph(self, named: Mapping[str, Array]) -> tuple[Graph, bool]:
        """The graph for these operands, and whether NumPy moves elements as a network does."""
        asked = [named[name] for name in self.part.asked]
        if sum(it.nbytes for it in asked) > _MOST_KEPT_BYTES:
            return self._made(named)
        arrays = named.values()
        key = *((it.shape, it.dtype) for it in arrays), *(it.tobytes() for it in asked)
        found = self._graphs.get(key)
        if found is None:
            found = self._made(named)
            if len(self._graphs) >= self._settings.kept_shapes:
                self._graphs.clear()
            if len(asked) == len(self.part.asked):  # it asked for no more
                self._graphs[key] = found
        return found

    def _made(self, named: Mapping[str, Array]) -> tuple[Graph, bool]:
        graph = self._graph(named)
        is_moved = all(map(is_same_in_numpy, graph.nodes))
        if is_moved:
            require_room_for(graph, self._settings.max_bytes)
        return graph, is_moved

    def _graph(self, named: Mapping[str, Array]) -> Graph:
        """Of the step, with the elements that it asks for."""
        part = self.part
        while True:
            known = {name: it for name, it in named.items() if name in part.asked}
            try:
                return part.graph(named, known)
            except ElementsNeededError as error:
                if known.keys() >= set(error.inputs):  # other threads may have asked meanwhile
                    raise ModelError(str(error)) from error
                part.asked |= set(error.inputs)
