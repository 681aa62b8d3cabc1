"""Training steps: loss, gradients, clipping and update of a function as one network.

The network changes parameters, and what the optimiser knows of them, where they lie: they are
states of it. So a step may follow one of the optimiser's own at any time, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import Signature, signature
from threading import RLock
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import aligned
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.scalars import integer, real
from dlprim.graph.graph import Graph
from dlprim.graph.networks import Shapes
from dlprim.tracing.arguments import Call
from dlprim.tracing.compiled import KEPT_SHAPES, Network
from dlprim.tracing.gradients import GradientFunction, joined
from dlprim.tracing.step_graphs import StepMaker, StepPlan
from dlprim.tracing.traces import Result, Trace, traced
from dlprim.tracing.trees import Tree, flattened, nested

Array = npt.NDArray[Any]


class Update(Protocol):
    """What an optimiser does in a step; `dlprim.optim.optimizer.Update` is one."""

    @property
    def rule(self) -> str: ...
    @property
    def settings(self) -> tuple[float, ...]: ...
    @property
    def rows(self) -> Sequence[tuple[Array | None, ...]]: ...
    @property
    def counts(self) -> Array | None: ...


class Optimizer(Protocol):
    """What updates parameters: an optimiser of `dlprim.optim`."""

    def update(self) -> Update: ...
    def written(self) -> None: ...


class Leaves(NamedTuple):
    """A tree of arrays, each array once.

    Attributes
    ----------
    tree : Tree
    arrays : list of ndarray
    places : tuple
        Of each leaf the number of its array, or in a tuple of one what it is otherwise.
    """

    tree: Tree
    arrays: list[Array]
    places: tuple[Any, ...]

    @staticmethod
    def of(tree: Any) -> Leaves:
        """Of arrays, and of what has one called ``held``, as a `dlprim.nn.Parameter`."""
        found: list[Any] = []
        structure = flattened(tree, found)
        numbers: dict[int, int] = {}
        arrays: list[Array] = []
        places: list[Any] = []
        for leaf in found:
            array = getattr(leaf, "held", leaf)
            if not isinstance(array, np.ndarray):
                places.append((leaf,))
                continue
            if id(array) not in numbers:
                numbers[id(array)] = len(arrays)
                arrays.append(array)
            places.append(numbers[id(array)])
        return Leaves(structure, arrays, tuple(places))

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The tree with others in place of the arrays."""
        leaves = [it[0] if isinstance(it, tuple) else arrays[it] for it in self.places]
        return nested(self.tree, leaves)

    def taken(self, tree: Any) -> tuple[Any, ...]:
        """Of a tree that is nested alike, what stands where the arrays did."""
        found: list[Any] = []
        if flattened(tree, found) != self.tree:
            raise ValueError("the states that the function returns are nested otherwise than given")
        taken = {at: it for at, it in zip(self.places, found, strict=True) if isinstance(at, int)}
        return tuple(taken[at] for at in range(len(self.arrays)))


class _StepNetworks(GradientFunction):
    """The networks of one plan, by the shapes of arguments.

    The function takes lists of parameters and of states in front of its arguments, and returns its
    result and the states behind it.
    """

    def __init__(
        self, function: Callable[..., Any], plan: StepPlan, has_aux: bool, how: tuple[Any, ...]
    ) -> None:
        super().__init__(function, 0, (True, has_aux), how)
        self._plan = plan

    def run(self, args: tuple[Any, ...], named: dict[str, Any], more: tuple[Array, ...]) -> Any:
        """The results for arguments, and for what else changes."""
        latest = self._latest
        if latest is not None:
            arrays = latest.take(args, named)
            if arrays is not None:
                network = latest.latest
                found = network.run_if_exact((*arrays, *more))
                if found is not None:
                    return network.give(found)
        call = self._call_with(args, named, more)
        network = self._network(call)
        return network.give(network.run(call.arrays))

    def network(
        self, args: tuple[Any, ...], named: dict[str, Any], more: tuple[Array, ...]
    ) -> Network:
        """What runs for such arguments."""
        return self._network(self._call_with(args, named, more))

    def _call_with(
        self, args: tuple[Any, ...], named: dict[str, Any], more: tuple[Array, ...]
    ) -> Call:
        """What changes besides stands behind the leaves of the arguments."""
        call = self._call(args, named)
        call.arrays.extend(more)
        return call

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Graph | None]:
        trace = traced(self._function, call, shapes, self._max_bytes)
        graph, whole = trace.graph, trace.result
        own = whole.tree.parts[0]
        count = own.leaves()
        value, aux = self._split(Result(own, whole.leaves[:count]))
        loss = self._loss(graph.outputs, value.leaves[0])
        result = value if aux is None else joined([value, aux])
        maker = StepMaker(self._plan, graph)
        maker.change(loss, whole.leaves[count:])
        return maker.trace(result), None


def _with_lists(
    flat: Callable[..., Any], function: Callable[..., Any], has_states: bool
) -> Callable[..., Any]:
    """The function with the names that another gives its arguments, for messages."""
    try:
        names = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # of what is written in C
        return flat
    if names and not has_states:
        names.insert(1, names[0].replace(name="states"))
    flat.__signature__ = Signature(names)  # type: ignore[attr-defined]
    return flat


class TrainingStep:
    """A function with its optimiser, as networks; `training_step` makes it.

    Attributes
    ----------
    norm : float or None
        Of all gradients of the latest update, in front of clipping; None without clipping.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arrays: tuple[Leaves, Leaves],
        optimizer: Optimizer,
        settings: tuple[float | None, int, bool],
        how: tuple[Any, ...],
    ) -> None:
        self._parameters, self._states = arrays
        self._optimizer = optimizer
        self._clip_norm, self._accumulate, self._has_aux = settings
        self._how = how
        self._function = self._flat(function)
        self._networks: dict[StepPlan, _StepNetworks] = {}
        self._sums: dict[int, Array] = {}
        self._turn = 0  # calls since the latest update
        self._lock = RLock()
        self.norm: float | None = None

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """What the function returns, of parameters as they were in front of the step."""
        with self._lock:
            networks, given, more = self._prepared(args)
            try:
                result, norm = networks.run(given, named, more)
            finally:
                self._optimizer.written()
            self._turn = (self._turn + 1) % self._accumulate
            if norm is not None:
                self.norm = float(norm)
            return result

    def explain(self, /, *args: Any, **named: Any) -> str:
        """What runs in the next call with these arguments, step by step."""
        with self._lock:
            networks, given, more = self._prepared(args)
            return networks.network(given, named, more).graph.explain()

    # ------------------------------------------------------------ inside

    def _flat(self, function: Callable[..., Any]) -> Callable[..., Any]:
        parameters, states = self._parameters, self._states

        def flat(held: list[Any], changed: list[Any], /, *args: Any, **named: Any) -> Any:
            if not states.arrays:
                return function(parameters.filled(held), *args, **named), ()
            given = parameters.filled(held), states.filled(changed)
            result, behind = function(*given, *args, **named)
            return result, states.taken(behind)

        return update_wrapper(_with_lists(flat, function, bool(states.arrays)), function)

    def _prepared(self, args: tuple[Any, ...]) -> tuple[_StepNetworks, Any, tuple[Array, ...]]:
        """Networks, arguments and what else they take."""
        update = self._optimizer.update()
        plan = self._plan(update)
        networks = self._networks.get(plan)
        if networks is None:
            networks = _StepNetworks(self._function, plan, self._has_aux, self._how)
            self._networks[plan] = networks
        given = (self._parameters.arrays, self._states.arrays, *args)
        return networks, given, self._more(plan, update)

    def _plan(self, update: Update) -> StepPlan:
        numbers = {id(it): at for at, it in enumerate(self._parameters.arrays)}
        last = self._accumulate - 1
        turn = "first" if self._turn == 0 else "last" if self._turn == last else "middle"
        return StepPlan(
            update.rule,
            tuple([numbers.get(id(row[0]), -1) for row in update.rows]),
            tuple([tuple([it is not None for it in row[1:]]) for row in update.rows]),
            update.counts is not None,
            self._clip_norm is not None,
            "only" if last == 0 else turn,
            len(self._parameters.arrays),
            len(self._states.arrays),
        )

    def _more(self, plan: StepPlan, update: Update) -> tuple[Array, ...]:
        """In the order of `StepMaker._update`."""
        found: list[Any] = []
        if plan.updates:
            found.append(np.array(update.settings, np.float64))
            if plan.is_clipped:
                found.append(np.array(self._clip_norm, np.float64))
            if plan.has_counts:
                found.append(update.counts)
            for row in plan.rows():
                *states, copy = update.rows[row][1:]
                found += [it for it in states if it is not None]
                if copy is not None:
                    found.append(copy.view(bfloat16_dtype()))
        if plan.turn != "only":
            for row in plan.rows():
                if row not in self._sums:
                    shape = self._parameters.arrays[plan.trained[row]].shape
                    self._sums[row] = aligned(shape, np.float32)
                found.append(self._sums[row])
        return tuple(found)


def training_step(
    function: Callable[..., Any],
    parameters: Any,
    optimizer: Optimizer,
    *,
    states: Any = (),
    has_aux: bool = False,
    clip_norm: float | None = None,
    accumulate: int = 1,
    dtype: Any = None,
    kept_shapes: int = KEPT_SHAPES,
    max_bytes: int | None = None,
) -> TrainingStep:
    """A training step of a function as one network: loss, gradients, clipping and update.

    Parameters
    ----------
    function : callable
        As for `dlprim.value_and_grad`: ``function(parameters, *args)`` returns a scalar, or with
        has_aux ``(scalar, others)``. With states ``function(parameters, states, *args)`` returns
        that and behind it what the states become, nested as they are.
    parameters : tree of float32 ndarrays, or of `dlprim.nn.Parameter`
        Those that the optimiser has are trained, others stay. They are changed where they lie.
    optimizer : SGD, Adam, AdamW, LAMB or RMSprop of `dlprim.optim`
        Its settings are asked for in each call, its arrays change as in its own step.
    states : tree of ndarrays
        What the function changes besides: statistics, counters.
    has_aux : bool
    clip_norm : float, optional
        As max_norm of `dlprim.optim.clip_grad_norm`; the factor enters the update.
    accumulate : int
        Of so many calls gradients are added up, and parameters updated in the last.
    dtype, kept_shapes, max_bytes
        As for `dlprim.compile`.

    Returns
    -------
    TrainingStep
        Called with the arguments behind parameters and states. A call that raises leaves all
        arrays as they were: arguments are checked first, and nothing that may refuse what it is
        given runs behind the first change.

    Raises
    ------
    TypeError, ValueError
        As `dlprim.value_and_grad`, in a call; clip_norm is below 0, or accumulate below 1.
    """
    limit = None if clip_norm is None else real("clip_norm", clip_norm, 0)
    settings = limit, integer("accumulate", accumulate, 1), has_aux
    arrays = Leaves.of(parameters), Leaves.of(states)
    how = dtype, kept_shapes, max_bytes
    return TrainingStep(function, arrays, optimizer, settings, how)
