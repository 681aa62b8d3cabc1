"""Functions whose networks pause between the value and the gradients.

Both parts have one plan: what goes from one to the other stays where it is, in its layout. So the
way back runs once, and reads arguments again, which nobody may write meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlprim.arguments.traced import Held
from dlprim.graph.compiled import CompiledGraph
from dlprim.graph.graph import Graph, Value, parted_nodes
from dlprim.graph.networks import Shapes
from dlprim.graph.telling import run_telling
from dlprim.tracing.arguments import Call
from dlprim.tracing.compiled import Network, runner
from dlprim.tracing.pullbacks import Gradients, Joint, checked_cotangents
from dlprim.tracing.traces import Trace

# What may be the memory of what it reads.
_MOVES = ("expand", "reshape", "slice", "transpose")


class PausingNetwork(Network):
    """A network that pauses behind the results.

    Attributes
    ----------
    rest : Joint
    read : tuple of int
        Inputs, by their places, that the second part reads.
    met : list of Held
        Of these inputs what outlives calls and the run itself does not change.
    aside : object
        What whoever runs it keeps with it.
    """

    __slots__ = ("aside", "give_back", "met", "read")
    aside: Any

    def __init__(
        self, graph: CompiledGraph, trace: Trace, rest: Joint, read: tuple[int, ...]
    ) -> None:
        written = {it.key() for it, _ in trace.writes}
        begin = len(trace.graph.inputs) - len(trace.held)
        changing = {begin + at for at, it in enumerate(trace.held) if it.key() in written}
        # What is written before the second part reads it.
        super().__init__(graph, trace, rest, [at for at in read if at in changing])
        write = self._write

        def write_begun(begun: Any) -> None:
            write(begun[1])

        self.run_if_exact = runner(graph.network.begin_if_exact, self.inputs, write_begun)
        results = len(trace.graph.outputs)
        self.give = trace.result.giver(graph.graph.outputs[:results])
        self.give_back = rest.grads.giver(graph.graph.outputs[results:])
        self.read = read
        self.met = [
            trace.held[at - begin]
            for at in self.read
            if at >= begin and at not in changing and not trace.held[at - begin].is_drawn
        ]

    def run(self, arrays: Sequence[Any]) -> Any:
        found = self.run_if_exact(tuple(np.require(it, None, ["C", "A"]) for it in arrays))
        if found is None:
            raise TypeError("arrays are of other dtypes or shapes than the network is for")
        return found


class Parts(Gradients):
    """A function with the way back as the second part of its networks."""

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Joint]:
        made = self._joint(call, shapes)
        return made.trace, made

    def _whole(self, made: Trace, rest: Any) -> tuple[Graph, tuple[int, int] | None]:
        return rest.graph, (len(made.graph.inputs), len(made.graph.outputs))

    def _networks_of(
        self, whole: Graph, made: Trace, rest: Any
    ) -> Callable[[CompiledGraph], PausingNetwork]:
        trace = made._replace(graph=Graph(made.graph.inputs, made.graph.outputs, (), {}))
        places = [None if it is None else rest.graph.inputs.index(it) for it in rest.asked]
        read = _read_behind(whole, (len(made.graph.inputs), len(made.graph.outputs)))
        found = tuple(
            at for at, it in enumerate(whole.inputs[: len(made.graph.inputs)]) if it in read
        )

        def network(graph: CompiledGraph) -> PausingNetwork:
            inputs = graph.graph.inputs
            asked = tuple(None if it is None else inputs[it] for it in places)
            joint = rest._replace(graph=graph.graph, trace=trace, asked=asked)
            return PausingNetwork(graph, trace, joint, found)

        return network

    def both(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Way]:
        """The value, and the way back."""
        network, arrays, (run, found) = self.ran(args, named)
        return network.give(found), Way(network, run, arrays)


class Way:
    """The way back from one value.

    Attributes
    ----------
    network : PausingNetwork
    given : list of ndarray
        Arguments that it reads, in memory of the caller's: those that were not copied.
    met : list of Held
        What it reads that outlives calls.
    """

    __slots__ = ("_run", "given", "met", "network")

    def __init__(self, network: Any, run: Any, arrays: Sequence[Any]) -> None:
        self.network, self._run = network, run
        given = [arrays[at] for at in network.read if at < len(arrays)]
        self.given: list[Any] = [it for it in given if it.flags.c_contiguous and it.flags.aligned]
        self.met: list[Held] = network.met

    def checked(self, gradient: Any, name: str, whose: str) -> list[Any]:
        """A gradient by the value as `run` takes it; the others say what errors call it."""
        rest = self.network.rest
        return checked_cotangents(rest.asked, rest.trace.result.tree, gradient, name, whose)

    def run(
        self,
        cotangents: Sequence[Any],
        last: Sequence[Any],
        tell: Callable[[int], Any] | None = None,
    ) -> Any:
        """Gradients by the arguments; the last of them are written to arrays given for these.

        ``tell``, called with the number of one of these, is as of `run_telling`.
        """
        rest = self.network.rest
        count = len(rest.graph.outputs) - len(rest.trace.graph.outputs)
        begin = count - len(last)
        out = [*[None] * begin, *last]
        if tell is None:
            found = self._run.resume(cotangents, out)
        else:
            found = run_telling(
                self.network.graph,
                out,
                lambda number: tell(number - begin),
                lambda events: self._run.resume(cotangents, out, events),
            )
        return self.network.give_back(found[0] if count == 1 else found)


def _read_behind(graph: Graph, pause: tuple[int, int]) -> set[Value]:
    """What nodes behind a pause read, also where moves made that of something else."""
    _, rest = parted_nodes(graph, pause)
    waiting = [it for node in rest for it in node.operands]
    waiting += graph.outputs[pause[1] :]
    makers = graph.makers()
    read: set[Value] = set()
    while waiting:
        value = waiting.pop()
        maker = makers.get(value)
        if maker is not None and maker.operator in _MOVES and value not in read:
            waiting += maker.operands
        read.add(value)
    return read
