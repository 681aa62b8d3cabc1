"""A step that runs between networks: on lists of arrays, or by elements that are known then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

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


class SingleStep:
    """One step, computed with the elements that it asks for.

    Attributes
    ----------
    step : Step
    part : Part
        Its networks, where NumPy does not move the elements just so.
    call : Call
        What a function on values is given.
    """

    def __init__(
        self, step: Step, constants: Mapping[str, Array], settings: Settings, lock: Any
    ) -> None:
        self.step = step
        self.call = Call(step.bodies, settings.max_bytes)
        self._settings = settings
        self._constants = {it: constants[it] for it in step.inputs if it in constants}
        names = dict.fromkeys(it for it in step.inputs if it and it not in constants)
        self._graphs: dict[tuple[Any, ...], tuple[Graph, bool]] = {}
        section = Section(tuple(names), (step,), tuple(filter(None, step.outputs)))
        self.part = Part(section, self._constants, settings, lock)

    def run(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The outputs that it names, of as many operands as it has; those left out are None."""
        named = self._named(operands)
        graph, is_moved = self._known_graph(named)
        if is_moved:
            results = interpret(graph, [named[it.name] for it in graph.inputs])
            return [np.ascontiguousarray(it).reshape(np.shape(it)) for it in results]
        arrays = list(named.values())
        known: Sequence[Any] | None = self.part.known.run(arrays)
        return self.part.run(arrays) if known is None else known

    def refuse(self, error: BaseException, operands: Sequence[Any]) -> NoReturn:
        """Raises what computing it of these raised, as an error of the model."""
        label = self.step.label
        cause = error if error.__traceback__ else None  # what the core says is of no line here
        if isinstance(error, FAILURES) and not isinstance(error, ModelError):
            raise ModelError(f"{label}: {error}") from cause
        if isinstance(error, UNFORESEEN):
            given = ", ".join(map(described, operands))
            raise ModelError(f"{label}: it cannot be computed of {given}") from error
        raise error

    @property
    def takes_texts(self) -> list[bool]:
        """Of each operand, whether it may be an array of texts."""
        types, count = self.step.types, len(self.step.inputs)
        if not types:
            return [False] * count
        return [STRING.name in types[min(it, len(types) - 1)] for it in range(count)]

    @property
    def takes_lists(self) -> bool:
        """Whether operands may be lists where others are arrays."""
        return self.step.function in _OF_LISTS

    # ------------------------------------------------------------ inside

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
                part.ask(error.inputs)
