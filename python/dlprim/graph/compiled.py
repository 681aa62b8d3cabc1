"""A graph that is ready to run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dlprim.arguments.scalars import typed_integer
from dlprim.graph.extents import plain
from dlprim.graph.graph import Array, Graph, Value
from dlprim.graph.lowering import lowered
from dlprim.graph.lowering.layouts import plain_reasons
from dlprim.graph.passes import optimized
from dlprim.graph.recording import Recording
from dlprim.graph.room import MOST_BYTES, require_room, require_room_for

_MOST_REFUSED = 24  # lines
_FEW = 512  # elements of constants that are looked at one by one


class CompiledGraph:
    """A network for inputs of known shapes; `compile_graph` makes it.

    Attributes
    ----------
    graph : Graph
        What is left after the passes, without its constants: steps have what they read.
    run_if_exact : callable
        The output, or a tuple of them, for a tuple of ndarrays that are just what the inputs are
        and lie in C order; None for anything else.
    peak_bytes, live_bytes : int
        Of what is between inputs and outputs: the memory that a run takes, and the largest sum of
        arrays that are needed at one time. Without what chains that run in pieces take in each
        thread, which `explain` shows.
    """

    def __init__(
        self, graph: Graph, network: Any, refused: Sequence[str] = (), max_bytes: int = MOST_BYTES
    ) -> None:
        self.graph = replace(graph, constants={}, refused={})
        self._numbers = _few_elements(graph)
        self._refused = tuple(refused)
        self._network = network
        self.run_if_exact: Callable[[tuple[Any, ...]], Any] = network.run_if_exact
        self.peak_bytes = network.peak_bytes
        self.live_bytes = network.live_bytes
        require_room("what is between inputs and results", self.peak_bytes, max_bytes)

    @property
    def network(self) -> Any:
        """The network of the core."""
        return self._network

    @property
    def structure(self) -> str:
        """The steps, whatever their values are numbered, and the numbers that these hold."""
        steps = re.sub(r"\b\d+ (?=[a-z])", "", self._network.describe())
        return f"{steps}\n{_said(replace(self.graph, constants=self._numbers))}"

    def run(
        self,
        arrays: Sequence[Array],
        out: Sequence[Array | None] | None = None,
        events: Any = None,
    ) -> list[Array]:
        """The outputs for these inputs, in new arrays where out has none for them.

        Several threads may run one network at a time. Of the core's ``RunEvents``, arrays are the
        inputs, and behind them the outputs.
        """
        outputs: list[Array] = self._network.run(arrays, out, events)
        return outputs

    def final_first(self) -> list[int]:
        """The numbers of the outputs in the order in which they become final in a run."""
        inputs, count = len(self.graph.inputs), len(self.graph.outputs)
        return sorted(range(count), key=lambda it: self._network.final_after(inputs + it))

    def profile(self, arrays: Sequence[Array]) -> list[tuple[str, str, float]]:
        """Of every step its kind, its name and the seconds that it took."""
        return [(kind, name, seconds) for name, seconds, kind in self._network.profile(arrays)]

    def explain(self, threads: int | None = None) -> str:
        """What runs, step by step, how much memory it takes, and what was refused and why.

        With ``threads`` instead what the plans of the steps allow on so many threads, which need
        not be there: tasks that threads share, the speed-up over one thread by the price of each
        part, and the share of the time.
        """
        if threads is not None:
            return self._threads_explained(typed_integer("threads", threads))
        more = len(self._refused) - _MOST_REFUSED
        listed = [*self._refused[:_MOST_REFUSED], *([f"and {more} more"] if more > 0 else [])]
        return "\n".join([self._network.describe(), *listed])

    def steps(self) -> tuple[int, int]:
        """How many steps there are, and how many of them are calls of Python."""
        lines = [line for line in self._network.describe().splitlines() if " -> " in line]
        return len(lines), sum(": call(" in line for line in lines)

    def _threads_explained(self, threads: int) -> str:
        if not 1 <= threads <= 1024:
            raise ValueError(f"threads is {threads}, expected 1 to 1024")
        alone, shared, steps = self._network.priced(threads)
        lines = [f"{threads} threads: {alone / max(shared, 1):.2f} times as fast as one"]
        for kind, name, one, all_of_them, loops, tasks in steps:
            speedup = one / all_of_them if one > 0 < all_of_them else 1
            parts = f"{tasks} tasks in {loops} loops" if loops else "on one thread"
            share = all_of_them / max(shared, 1)
            lines.append(f"{speedup:7.2f} x {share:6.1%}  {kind:14} {name}: {parts}")
        return "\n".join(lines)


def _few_elements(graph: Graph) -> dict[Value, Any]:
    """Constants that are no weights."""
    return {it: array for it, array in graph.constants.items() if plain(array).size <= _FEW}


def _said(it: Any) -> Any:
    """A graph, or an attribute of a node, without recordings and names."""
    if isinstance(it, Graph):
        arrays = [it.constants.get(value) for node in it.nodes for value in node.operands]
        nodes = [(node.operator, dict(node.attributes)) for node in it.nodes]
        return _said((nodes, arrays))
    it = plain(it)
    if isinstance(it, np.ndarray):
        return it.shape, hash(it.astype(np.int64 if it.dtype == object else it.dtype).tobytes())
    if isinstance(it, dict):
        return [(name, _said(part)) for name, part in sorted(it.items())]
    if isinstance(it, tuple | list):
        return [_said(part) for part in it]
    return it.item() if isinstance(it, np.generic) else it


def _refusals(graph: Graph) -> Iterator[str]:
    """A line for each node that is still there and that a rule left as it is."""
    left = {(node.operator, node.name) for node in graph.nodes}
    for (what, operator, name), reason in graph.refused.items():
        if (operator, name) in left:
            yield f"not {what}: {operator} {name}: {reason}"
    for node, reason in plain_reasons(graph):
        yield f"not in blocks of channels: {node.operator} {node.name}: {reason}"


def compile_graph(
    graph: Graph,
    passes: int | None = None,
    dtype: str = "float32",
    max_bytes: int = MOST_BYTES,
    pause: tuple[int, int] | None = None,
) -> CompiledGraph:
    """The graph compiled.

    Parameters
    ----------
    graph : Graph
    passes : int, optional
        Stops after the first few, to find which one is at fault.
    dtype : "float32" or "bfloat16"
        What products of float32 and what is between them are computed in; sums are float32.
    max_bytes : int
        What the results, what is between them and inputs, and what a step takes may take.
    pause : (int, int), optional
        The network pauses when it has made so many of its first outputs, of so many of its first
        inputs: `network.begin_if_exact` runs it up to there.

    Raises
    ------
    CompileError
        Where a pass fails, or a node has no steps.
    ValueError
        Where it would take more memory.
    """
    whole = optimized(graph, passes, dtype)
    require_room_for(whole, max_bytes)
    return CompiledGraph(
        whole, lowered(whole, pause=pause).network, list(_refusals(whole)), max_bytes
    )


class RecordedGraph:
    """A graph compiled for all inputs for which its recording holds.

    Attributes
    ----------
    first : CompiledGraph
        For the extents that it was recorded with.
    graph : Graph
        As it was recorded, without what weights hold.
    """

    def __init__(
        self,
        graph: Graph,
        dtype: str,
        recording: Recording,
        max_bytes: int,
        pause: tuple[int, int] | None = None,
    ) -> None:
        whole = optimized(graph, None, dtype)
        require_room_for(whole, max_bytes)
        network = lowered(whole, recording, pause).network
        self.graph = replace(whole, constants=_few_elements(whole), refused={})
        self._refused = list(_refusals(whole))
        self._max_bytes = max_bytes
        made = recording.call(_of_shapes, network, *(it.shape for it in whole.inputs))
        self._replay = recording.finished(made)
        self.first = self._compiled(whole.inputs, made.value)

    def made(self, extents: Sequence[int], inputs: Sequence[Value]) -> CompiledGraph | None:
        """For other extents and what the first inputs are then; None where it does not hold."""
        made = self._replay(*extents)
        return None if made is None else self._compiled(inputs, made)

    def _compiled(self, inputs: Sequence[Value], made: _Made) -> CompiledGraph:
        pairs = zip([*inputs, *self.graph.inputs[len(inputs) :]], made.shapes, strict=True)
        known = tuple(Value(it.name, shape, it.dtype) for it, shape in pairs)
        numbers = {it: at for at, it in enumerate(self.graph.inputs)}
        states = {known[numbers[it]]: value for it, value in self.graph.states.items()}
        graph = replace(self.graph, inputs=known, states=states)
        return CompiledGraph(graph, made.network, self._refused, self._max_bytes)


class _Made(NamedTuple):
    """What a replay makes: a network of the core, and the shapes of its inputs."""

    network: Any
    shapes: tuple[tuple[int, ...], ...]


def _of_shapes(network: Any, *shapes: tuple[int, ...]) -> _Made:
    return _Made(network, shapes)
