"""`dlprim.compile`: a function of arrays as networks, one for the shapes and dtypes of a call."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from dlprim.arguments.locks import Lock
from dlprim.arguments.scalars import integer
from dlprim.arguments.traced import RUNNING, lifted
from dlprim.graph.compiled import CompiledGraph, RecordedGraph, compile_graph
from dlprim.graph.graph import Graph, Value
from dlprim.graph.networks import Makers, Networks, Shapes
from dlprim.graph.profile import Profile
from dlprim.graph.recording import Recording
from dlprim.graph.room import half_of_memory
from dlprim.tracing.arguments import Call, float_type, taken, taker
from dlprim.tracing.array import TracedArray
from dlprim.tracing.refusals import ForeignArrayError
from dlprim.tracing.traces import Trace, traced
from dlprim.tracing.trees import flattened

_PROFILED_RUNS = 5
# Of how many shapes networks are kept unless somebody says another number.
KEPT_SHAPES = 32


class Network:
    """A compiled graph, and how its results are given.

    Attributes
    ----------
    graph : CompiledGraph
    trace : Trace
        Without its graph's nodes.
    rest : object
        What may be run behind it: the way back of `dlprim.vjp`; None of others.
    inputs : callable
        What the graph is given for arguments.
    run_if_exact : callable
        As of the graph, of arguments alone.
    give : callable
        The results, of what ``run_if_exact`` returns.
    """

    __slots__ = ("_write", "give", "graph", "inputs", "rest", "run_if_exact", "trace")

    def __init__(
        self, graph: CompiledGraph, trace: Trace, rest: Any = None, copied: Sequence[int] = ()
    ) -> None:
        self.graph, self.trace, self.rest = graph, trace._replace(graph=graph.graph), rest
        # No method of its own, which would keep it alive.
        self.inputs = _joiner(trace.held, copied)
        self._write = _writer(trace.writes, len(graph.graph.outputs) == 1)
        self.run_if_exact = graph.run_if_exact
        if trace.held:
            self.run_if_exact = runner(graph.run_if_exact, self.inputs, self._write)
        self.give = trace.result.giver(graph.graph.outputs)

    @property
    def structure(self) -> str:
        return f"{self.trace.result}\n{self.graph.structure}"

    def run(self, arrays: Sequence[Any]) -> Any:
        """The outputs for these arrays, of the types that it was compiled for."""
        outputs = self.graph.run(self.inputs(arrays))
        found = outputs[0] if len(outputs) == 1 else outputs
        self._write(found)
        return found


def _joiner(held: Sequence[Any], copied: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    """What the graph is given for arguments: behind them what outlives calls, some of it copied."""

    def inputs(arrays: Sequence[Any]) -> Any:
        given = [*arrays, *[it.held for it in held]]
        for at in copied:
            given[at] = given[at].copy()
        return tuple(given)

    return inputs


def _writer(writes: Sequence[tuple[Any, int]], one: bool) -> Callable[[Any], None]:
    """What writes what a run leaves behind."""

    def write(found: Any) -> None:
        for it, at in writes:
            it.held[...] = found if one else found[at]
            it.written()

    return write


def runner(
    run: Callable[[Any], Any],
    inputs: Callable[[Sequence[Any]], Any],
    write: Callable[[Any], None],
) -> Callable[[tuple[Any, ...]], Any]:
    """As of a graph, of arguments alone."""

    def run_if_exact(arrays: tuple[Any, ...]) -> Any:
        found = run(inputs(arrays))
        if found is not None:
            write(found)
        return found

    return run_if_exact


class _Recorded:
    """Networks of one recording, whose results are nested alike."""

    def __init__(self, graph: RecordedGraph, network: Callable[[CompiledGraph], Network]) -> None:
        self._graph, self._network = graph, network
        self.first = network(graph.first)

    def made(self, extents: Sequence[int], inputs: Sequence[Value]) -> Network | None:
        graph = self._graph.made(extents, inputs)
        return None if graph is None else self._network(graph)


class _Known:
    """Calls that were made before with arguments that are nested alike.

    Attributes
    ----------
    take : callable
        As `taker` makes it.
    latest : Network
        What ran last.
    """

    __slots__ = ("latest", "take")

    def __init__(self, take: Callable[..., tuple[Any, ...] | None], latest: Network) -> None:
        self.take, self.latest = take, latest


class CompiledFunction:
    """A function of arrays that runs as networks; `dlprim.compile` makes it.

    Calls from several threads at once are fine.
    """

    def __init__(
        self, function: Callable[..., Any], dtype: Any, kept_shapes: int, max_bytes: int | None
    ) -> None:
        if not callable(function):
            raise TypeError(f"f is of type {type(function).__name__}, expected a function")
        self._function = function
        self._arguments: tuple[Any, ...] = (function, dtype, kept_shapes, max_bytes)
        self._dtype = float_type(dtype)
        self._taken_dtype = self._dtype  # which says what arguments may be
        self._kept_shapes = integer("kept_shapes", kept_shapes, 1)
        self._max_bytes = (
            half_of_memory() if max_bytes is None else integer("max_bytes", max_bytes, 1)
        )
        self._parameters = _parameters_of(function)
        self._networks: Networks[Network] = Networks(self._kept_shapes)
        self._known: dict[Any, _Known] = {}
        # By shapes, too; all of them together are bounded, as `Networks` bounds its own.
        self._exact: dict[Any, Network] = {}
        self._latest: _Known | None = None
        self._lock = Lock()
        update_wrapper(self, function, updated=())  # it has attributes of its own

    def __repr__(self) -> str:
        return f"<dlprim.{type(self).__name__} of {getattr(self._function, '__name__', '?')}>"

    def __reduce__(self) -> Any:
        """By its name where that is found, as functions; else anew, without networks."""
        found: Any = sys.modules.get(getattr(self._function, "__module__", None) or "")
        whole = getattr(self._function, "__qualname__", "")
        for name in whole.split("."):
            found = getattr(found, name, None)
        return whole if found is self else (type(self), self._arguments)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """The results of the function, in new arrays."""
        latest = self._latest
        if latest is not None:
            arrays = latest.take(args, named)
            if arrays is not None:
                network = latest.latest
                found = network.run_if_exact(arrays)
                if found is not None:
                    return network.give(found)
        tracer = RUNNING.tracer
        if tracer is not None:
            args, named = lifted(tracer, (args, named))
            if _is_traced((args, named)):
                return self._inside(args, named)
        try:
            network, _, found = self.ran(args, named)
        except ForeignArrayError:  # of the function around it
            if tracer is None:
                raise
            return self._inside(args, named)
        return network.give(found)

    def explain(self, /, *args: Any, **named: Any) -> str:
        """What runs for these arguments, step by step, and how much memory it takes.

        Parameters
        ----------
        *args, **named
            As in a call. Of arrays only shapes and dtypes matter.

        Returns
        -------
        str
        """
        call = self._call(args, named)
        network = self._network(call).graph
        steps, in_python = network.steps()
        head = f"for {', '.join(map(repr, network.graph.inputs)) or 'no arrays'}:"
        return f"{head}\n{network.explain()}\nsteps in Python: {in_python} of {steps}"

    def profile(self, /, *args: Any, **named: Any) -> Profile:
        """Where the time of a run goes: of some runs that which took the least.

        Parameters
        ----------
        *args, **named
            As in a call.

        Returns
        -------
        Profile
            Printed, a table; its ``save`` writes a file for Chrome's tracing.
        """
        call = self._call(args, named)
        made = self._network(call)
        network = made.graph
        arrays = made.inputs(call.arrays)
        network.run(arrays)
        profiles = [Profile(network.profile(arrays)) for _ in range(_PROFILED_RUNS)]
        return min(profiles, key=lambda profile: profile.seconds)

    # ------------------------------------------------------------ inside

    def ran(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Network, Any, Any]:
        """The network of a call, the arrays that it was given, and its outputs."""
        again = self._again(args, named)
        if again is not None:
            return again
        network, arrays = self.found(args, named)
        return network, arrays, network.run(arrays)

    def found(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Network, Any]:
        """The network of a call, and the arrays that it is given."""
        call = self._call(args, named)
        return self._network(call), call.arrays

    def _again(
        self, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Network, Any, Any] | None:
        """A network that ran before for such arguments, and as `ran`; None if there is none."""
        for known in tuple(self._known.values()):
            arrays = known.take(args, named)
            if arrays is None:
                continue
            network = known.latest
            found = network.run_if_exact(arrays)
            if found is None:
                try:
                    shapes = tuple([it.shape for it in arrays])
                except AttributeError:  # something is no array
                    continue
                network = self._exact.get((known, shapes), network)
                found = network.run_if_exact(arrays)
            if found is not None:
                known.latest, self._latest = network, known
                return network, arrays, found
        return None

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        return taken(self._parameters, args, named, self._taken_dtype)

    def _network(self, call: Call) -> Network:
        """The network of a call, from among those that are kept."""
        kind = (call.tree, call.leaves)
        shapes = tuple(it.shape for it in call.arrays)
        # Without names, so that networks of a recording are alike.
        inputs = [Value(f"input {at}", it.shape, it.dtype) for at, it in enumerate(call.arrays)]
        dtype = self._dtype or "float32"

        def compiled(shapes: Shapes) -> Network:
            return self._compiled(*self._made(call, shapes), dtype)

        def record(shapes: Shapes, recording: Recording) -> _Recorded:
            made, rest = self._made(call, shapes)
            whole, pause = self._whole(made, rest)
            graph = RecordedGraph(whole, dtype, recording, self._max_bytes, pause)
            return _Recorded(graph, self._networks_of(graph.graph, made, rest))

        with self._lock:
            network = self._networks.get(kind, shapes, inputs, Makers(compiled, record))
            known = self._known.get(kind)
            if known is None:
                if len(self._known) >= self._kept_shapes:
                    self._known.clear()
                known = self._known[kind] = _Known(taker(call, self._taken_dtype), network)
            if len(self._exact) >= self._kept_shapes:
                self._exact.clear()
            self._exact[known, shapes] = network
            known.latest, self._latest = network, known
        return network

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Any]:
        """What is compiled for these shapes."""
        return traced(self._function, call, shapes, self._max_bytes), None

    def _compiled(self, made: Trace, rest: Any, dtype: str) -> Network:
        whole, pause = self._whole(made, rest)
        graph = compile_graph(whole, None, dtype, self._max_bytes, pause)
        return self._networks_of(graph.graph, made, rest)(graph)

    def _whole(self, made: Trace, rest: Any) -> tuple[Graph, tuple[int, int] | None]:
        """The graph, and where its network pauses."""
        return made.graph, None

    def _networks_of(
        self, whole: Graph, made: Trace, rest: Any
    ) -> Callable[[CompiledGraph], Network]:
        """What makes the networks of compiled graphs, for the shapes of each."""
        return lambda graph: Network(graph, made, rest)

    def _inside(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What it is in the trace of another function."""
        return self._function(*args, **named)


def plain_function(f: Any) -> Any:
    """What was compiled, where f is such a function."""
    return f._function if type(f) is CompiledFunction else f


def _is_traced(tree: Any) -> bool:
    leaves: list[Any] = []
    flattened(tree, leaves)
    return any(isinstance(it, TracedArray) for it in leaves)


def _parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of those that may be given by place."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of what is written in C
        return ()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(it.name for it in parameters if it.kind in by_place)


def compile(
    f: Callable[..., Any] | None = None,
    dtype: Any = None,
    *,
    kept_shapes: int = KEPT_SHAPES,
    max_bytes: int | None = None,
) -> Any:
    """A function written in NumPy, compiled for the shapes and dtypes that it is called with.

    The function runs once with arrays that know their shapes and dtypes alone; what it does to them
    becomes a network, which runs in calls with arguments alike. It must not have effects, and what
    it reads from outside is as it was then.

    Parameters
    ----------
    f : callable
        Of NumPy's operators, functions and methods, of dlprim's functions and formulas. Arguments
        and results are arrays and numbers, in dicts, lists and tuples. Without it the result
        decorates a function.
    dtype : None, "float32" or "bfloat16"
        Floats of other types among the arguments are converted to float32, else float64 is
        refused. With "bfloat16" products, and what stands between them, are computed in bfloat16
        with sums in float32, as by `dlprim.onnx.load`.
    kept_shapes : int
        Of how many shapes networks are kept.
    max_bytes : int, optional
        What a call may take, half of the machine's memory by default.

    Returns
    -------
    CompiledFunction
        Called as f is. ``explain(*args)`` shows the steps, ``profile(*args)`` their times.

    Raises
    ------
    TypeError
        f is no function, or an argument of a call is nothing of that; in a call also `TraceError`
        where something cannot be traced: an ``if`` on an element, a function that is not there,
        writing into an argument. The message names the line.
    ValueError, IndexError
        Shapes do not fit, in one message with the line.

    Notes
    -----
    Python's numbers take the type of the arrays that they meet. There is no float64: arrays that
    the function makes itself are float32 where they meet others. A float among the arguments is an
    array without axes; for each value of an int, a bool or a str a network is made.

    Examples
    --------
    >>> @dlprim.compile
    ... def block(x, w, b): return np.maximum(x @ w.T + b, 0)
    >>> block(np.ones((1, 3), np.float32), np.ones((2, 3), np.float32), np.float32([0, -4]))
    array([[3., 0.]], dtype=float32)
    """
    if f is None:
        return lambda it: compile(it, dtype, kept_shapes=kept_shapes, max_bytes=max_bytes)
    return CompiledFunction(plain_function(f), dtype, kept_shapes, max_bytes)
