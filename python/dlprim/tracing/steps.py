"""Training steps: loss, gradients, clipping and update of a function as one network.

The network changes parameters, and what the optimiser knows of them, where they lie: they are
states of it. So a step may follow one of the optimiser's own at any time, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from inspect import Signature, signature
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import aligned
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.locks import Lock
from dlprim.arguments.scalars import integer, real
from dlprim.arguments.traced import RUNNING, Held, HeldArray, lifted
from dlprim.graph.networks import Shapes
from dlprim.graph.telling import run_telling
from dlprim.tracing.arguments import Call, float_type
from dlprim.tracing.array import TracedArray
from dlprim.tracing.compiled import KEPT_SHAPES
from dlprim.tracing.gradients import GradientFunction, joined
from dlprim.tracing.step_graphs import StepArrays, StepMaker, StepPlan
from dlprim.tracing.traces import Trace, traced
from dlprim.tracing.trees import Tree, flattened, nested, paths

Array = npt.NDArray[Any]
_MOST_PLANS = 8  # whose networks are kept, of each function


class Update(Protocol):
    """What an optimiser does in a step; `dlprim.optim.optimizer.Update` is one."""

    @property
    def rules(self) -> tuple[str, ...]: ...
    @property
    def settings(self) -> Sequence[tuple[float, ...]]: ...
    @property
    def groups(self) -> Sequence[int]: ...
    @property
    def rows(self) -> Sequence[tuple[Array | None, ...]]: ...
    @property
    def counts(self) -> Array | None: ...


class Optimizer(Protocol):
    """What updates parameters: an optimiser of `dlprim.optim`."""

    def update(self) -> Update: ...
    def step(self, gradients: Any = None) -> None: ...
    def written(self) -> None: ...


class Exchange(Protocol):
    """What becomes of gradients that others have a part in, before they are used."""

    def gradients(self) -> Sequence[Array]:
        """Where to write them, for each parameter of the optimiser."""
        ...

    @property
    def ready(self) -> Callable[[int], None] | None:
        """Told beside the run that the gradient of the parameter of a number is final; None where
        nobody wants to know, which runs without a thread that tells."""
        ...

    def wait(self) -> None:
        """Returns when all gradients are those of all."""
        ...

    def update(self) -> float | None:
        """Updates parameters, and raises nothing; the norm of gradients if that is taken."""
        ...

    def loss(self, own: Any) -> Any:
        """Of all, from that of one; called behind each run, in front of the update."""
        ...


class _Number(Held):
    """An input of a network that somebody is asked for in each run."""

    is_drawn = True

    def __init__(self, name: str, ask: Callable[[], Any]) -> None:
        self.name, self._ask = name, ask

    @property
    def held(self) -> Array:
        return np.array(self._ask(), np.float64)

    def key(self) -> int:
        return id(self)

    def written(self) -> None:
        """Nobody writes it."""


class Leaves(NamedTuple):
    """A tree of arrays that a function meets as what holds them.

    Attributes
    ----------
    tree : Tree
    leaves : list
        `Held` ones, of arrays once for each; what is no array as it is.
    """

    tree: Tree
    leaves: list[Any]

    @staticmethod
    def of(tree: Any, name: str) -> Leaves:
        """Of arrays, and of parameters of `dlprim.nn`."""
        found: list[Any] = []
        structure = flattened(tree, found)
        known: dict[int, Held] = {}
        leaves: list[Any] = []
        for leaf, path in zip(found, paths(structure, name), strict=True):
            held = HeldArray(leaf, path) if isinstance(leaf, np.ndarray) else leaf
            is_held = isinstance(held, Held)
            leaves.append(known.setdefault(held.key(), held) if is_held else held)
        return Leaves(structure, leaves)

    def in_trace(self) -> Any:
        """The tree in the trace that is running."""
        return nested(self.tree, [lifted(RUNNING.tracer, it) for it in self.leaves])

    def write(self, tree: Any) -> None:
        """Has the run write what is nested alike to the arrays."""
        found: list[Any] = []
        if flattened(tree, found) != self.tree:
            raise ValueError("the states that the function returns are nested otherwise than given")
        for it, made in zip(self.leaves, found, strict=True):
            if isinstance(it, Held):
                lift = made if isinstance(made, TracedArray) else RUNNING.tracer.value(made)
                RUNNING.tracer.write(it, lift)


class _StepNetworks(GradientFunction):
    """The networks of one plan, by the shapes of arguments.

    Attributes
    ----------
    written : dict of int to Held
        What the function writes, by the identity of arrays.
    """

    def __init__(self, step: TrainingStep, plan: StepPlan) -> None:
        super().__init__(step.function, 0, (True, step.has_aux), step.how)
        self._taken_dtype = step.taken_dtype
        self._plan, self._arrays = plan, step.arrays
        self.written: dict[int, Held] = {}

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Any]:
        trace = traced(self._function, call, shapes, self._max_bytes)
        value, aux = self._split(trace.result)
        loss = self._loss(trace.graph.outputs, value.leaves[0])
        maker = StepMaker(self._plan, trace, self._arrays)
        maker.change(loss)
        self.written.update({it.key(): it for it, _ in trace.writes})
        made = maker.trace(value if aux is None else joined([value, aux]))
        return made, [*maker.given] if self._plan.is_exchanged else None

    def exchanged(
        self, args: tuple[Any, ...], named: dict[str, Any], exchange: Exchange
    ) -> tuple[Any, float | None]:
        """The loss of all, and the norm of gradients; what raises leaves arrays as they were."""
        network, arrays = self.found(args, named)
        rows, gradients = network.rest, exchange.gradients()
        begin = len(network.graph.graph.outputs) - len(rows)
        out = [*[None] * begin, *[gradients[row] for row in rows]]
        ready, run = exchange.ready, partial(network.graph.run, network.inputs(arrays), out)
        before = [(it.held, it.held.copy()) for it in self.written.values()]
        try:
            if ready is None:
                found = run()
            else:
                found = run_telling(network.graph, out, lambda at: ready(rows[at - begin]), run)
            result, _ = network.give(found[0] if len(found) == 1 else found)
            if rows:
                exchange.wait()
            return exchange.loss(result), exchange.update() if rows else None
        except BaseException:  # others may fail when the run has ended
            for array, values in before:
                array[...] = values
            raise


class TrainingStep:
    """A function with its optimiser, as networks; `training_step` makes it.

    Parameters
    ----------
    function : callable
        Of the arguments of a call; parameters it meets as `Held` ones. It may be assigned another
        one, which goes on in the middle of several calls.
    optimizer : Optimizer
    settings : tuple
        What the norm of gradients is at most, or None; how many calls make an update; whether the
        function returns others beside the loss.
    how : tuple
        As of `CompiledFunction`: dtype, kept_shapes, max_bytes.
    taken_dtype : str, optional
        What floats among the arguments are converted to, by default dtype.

    Attributes
    ----------
    norm : float or None
        Of all gradients of the latest update, in front of clipping; None without clipping.
    exchange : Exchange or None
        Which then updates in the place of the network.
    """

    exchange: Exchange | None = None

    def __init__(
        self,
        function: Callable[..., Any],
        optimizer: Optimizer,
        settings: tuple[float | None, int, bool],
        how: tuple[Any, ...],
        taken_dtype: str | None = None,
    ) -> None:
        self.function, self.how = function, how
        self._optimizer = optimizer
        self._clip_norm, self._accumulate, self.has_aux = settings
        self.taken_dtype = taken_dtype or float_type(how[0])
        self.arrays = self._step_arrays(optimizer.update())
        self._networks: dict[Callable[..., Any], dict[StepPlan, _StepNetworks]] = {}
        self._sums: dict[int, Held] = {}
        self._turn = 0  # calls since the latest update
        self._lock = Lock()
        self.norm: float | None = None

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """What the function returns, of parameters as they were in front of the step."""
        with self._lock:
            networks = self._prepared()
            if self._turn == 0:  # calls of one update may meet other parameters than those before
                for it in self._sums.values():
                    it.held[...] = 0
            try:
                if self.exchange is None:
                    result, norm = networks(*args, **named)
                else:
                    result, norm = networks.exchanged(args, named, self.exchange)
            finally:
                self._optimizer.written()
                for it in networks.written.values():
                    it.written()
            self._turn = (self._turn + 1) % self._accumulate
            if norm is not None:
                self.norm = float(norm)
            return result

    def keep(self, functions: Sequence[Callable[..., Any]]) -> None:
        """Drops the networks of all other functions."""
        with self._lock:
            self._networks = {it: self._networks[it] for it in functions if it in self._networks}

    def explain(self, /, *args: Any, **named: Any) -> str:
        """What runs in the next call with these arguments, step by step."""
        with self._lock:
            return self._prepared().explain(*args, **named)

    # ------------------------------------------------------------ inside

    def _prepared(self) -> _StepNetworks:
        last = self._accumulate - 1
        turn = "last" if self._turn == last else "other"
        rules = self._optimizer.update().rules
        is_clipped, is_exchanged = self._clip_norm is not None, self.exchange is not None
        plan = StepPlan(rules, is_clipped, turn if last else "only", is_exchanged)
        of_function = self._networks.setdefault(self.function, {})
        if plan not in of_function:
            if len(of_function) >= _MOST_PLANS:
                of_function.clear()
            of_function[plan] = _StepNetworks(self, plan)
        return of_function[plan]

    def _step_arrays(self, update: Update) -> StepArrays:
        rows = []
        for row, (array, *states, copy) in enumerate(update.rows):
            halves = None if copy is None else copy.view(bfloat16_dtype())
            names = ("first", "second", "third", "copy")
            owned = zip([*states, halves], names, strict=True)
            held = [None if it is None else HeldArray(it, f"{name} of {row}") for it, name in owned]
            rows.append((array, *held))
        counts = None if update.counts is None else HeldArray(update.counts, "counts")
        numbers = range(len(update.settings))
        settings = [_Number(f"settings {it}", partial(self._settings, it)) for it in numbers]
        limit = _Number("limit", self._limit)
        return StepArrays(rows, update.groups, settings, limit, counts, self._sum)

    def _settings(self, group: int) -> tuple[float, ...]:
        return self._optimizer.update().settings[group]

    def _limit(self) -> float | None:
        return self._clip_norm

    def _sum(self, row: int) -> Held:
        if row not in self._sums:
            array = aligned(self.arrays.rows[row][0].shape, np.float32, zeros=True)
            self._sums[row] = HeldArray(array, f"sum of {row}")
        return self._sums[row]


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
        Those that the optimiser has are trained, others stay. They are changed where they lie. One
        that the function does not depend on has the gradient 0, as from `dlprim.value_and_grad`.
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
    how = dtype, kept_shapes, max_bytes
    held, changed = Leaves.of(parameters, "parameters"), Leaves.of(states, "states")

    def flat(*args: Any, **named: Any) -> Any:
        if not changed.leaves:
            return function(held.in_trace(), *args, **named)
        result, behind = function(held.in_trace(), changed.in_trace(), *args, **named)
        changed.write(behind)
        return result

    return TrainingStep(
        _named(flat, function, 2 if changed.leaves else 1), optimizer, settings, how
    )


def _named(flat: Callable[..., Any], function: Callable[..., Any], first: int) -> Any:
    """The function with the names that another gives its arguments, but the first ones."""
    try:
        known = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # of what is written in C
        return flat
    flat = update_wrapper(flat, function)
    vars(flat)["__signature__"] = Signature(known[first:])
    return flat
