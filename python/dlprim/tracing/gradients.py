"""`value_and_grad` and `grad`: functions with the gradients of their graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.arguments.scalars import flag, typed_integer
from dlprim.arguments.traced import RUNNING
from dlprim.graph.graph import Graph, Value, sorted_nodes
from dlprim.graph.joint import gradient
from dlprim.graph.networks import Shapes
from dlprim.graph.operators.elements import is_differentiable
from dlprim.graph.passes.layers import join_layers
from dlprim.tracing.arguments import Call, names_of
from dlprim.tracing.array import TracedArray
from dlprim.tracing.compiled import KEPT_SHAPES, CompiledFunction, plain_function
from dlprim.tracing.refusals import TraceError, function_line
from dlprim.tracing.tracer import Tracer, tracer_of, type_in_graph
from dlprim.tracing.traces import Result, Trace, returned, traced
from dlprim.tracing.trees import LEAF, Tree, flattened, nested


class Part(NamedTuple):
    """An argument that a gradient is of.

    Attributes
    ----------
    tree : Tree
    begin : int
        Its first leaf, of all.
    """

    tree: Tree
    begin: int

    def result(self, numbers: Sequence[int | None]) -> Result:
        """Its gradient, of the numbers of outputs for all leaves; None where there is none."""
        leaves = numbers[self.begin : self.begin + self.tree.leaves()]
        return Result(self.tree, tuple((None,) if it is None else it for it in leaves))


def parts_of(tree: Tree, parameters: Sequence[str], places: Sequence[int]) -> list[Part]:
    """The arguments at places, given by place or by name."""
    args, named = tree.parts
    parts, begin = {}, 0
    of_args = [*parameters, *range(len(parameters), len(args.parts))][: len(args.parts)]
    for name, part in zip([*of_args, *named.keys], [*args.parts, *named.parts], strict=True):
        parts[name] = Part(part, begin)
        begin += part.leaves()
    found = []
    for place in places:
        at = place + max(len(parameters), len(args.parts)) if place < 0 else place
        name = parameters[at] if 0 <= at < len(parameters) else at
        if name not in parts:
            raise ValueError(f"wrt has {place}, but the call has no such argument")
        found.append(parts[name])
    return found


def differentiable(
    parts: Sequence[Part], names: Sequence[str], inputs: Sequence[Value | None]
) -> list[Value]:
    """The values of the leaves of arguments, which hold floats."""
    of: dict[Value, None] = {}
    for part in parts:
        for at in range(part.begin, part.begin + part.tree.leaves()):
            value = inputs[at]
            if value is not None and not is_differentiable(value):
                raise TypeError(
                    f"{names[at]} has dtype {value.dtype}, of which there is no gradient, expected "
                    "floats: wrt says which arguments the gradient is of"
                )
            if value is not None:
                of[value] = None
    return list(of)


def joined(results: Sequence[Result]) -> Result:
    """A tuple of results."""
    tree = Tree(tuple, (), tuple(it.tree for it in results))
    return Result(tree, tuple(leaf for it in results for leaf in it.leaves))


def pruned(trace: Trace, outputs: Sequence[Value]) -> tuple[Trace, list[Value]]:
    """The trace with the outputs alone that its result has, or that are written."""
    result, writes = trace.result, [at for _, at in trace.writes]
    kept = sorted({*(it for it in result.leaves if isinstance(it, int)), *writes})
    numbers: dict[Any, Any] = {it: at for at, it in enumerate(kept)}
    leaves = tuple(numbers[it] if isinstance(it, int) else it for it in result.leaves)
    written = tuple((it, numbers[at]) for it, at in trace.writes)
    made = trace._replace(result=Result(result.tree, leaves), writes=written)
    return made, [outputs[it] for it in kept]


def inputs_of(call: Call, graph: Graph) -> list[Value | None]:
    """The input of each leaf of the arguments; None of those that do not vary."""
    varying = iter(graph.inputs)
    return [None if it.kind == "value" else next(varying) for it in call.leaves]


class GradientFunction(CompiledFunction):
    """A function with its gradient; `dlprim.value_and_grad` and `dlprim.grad` make it."""

    def __init__(
        self, f: Callable[..., Any], wrt: Any, asked: tuple[bool, Any], how: tuple[Any, ...]
    ) -> None:
        super().__init__(plain_function(f), *how)
        self._arguments = (f, wrt, asked, how)
        self._is_one = not isinstance(wrt, tuple | list)
        self._places = tuple(typed_integer("wrt", it) for it in ((wrt,) if self._is_one else wrt))
        self._gives_value, self._has_aux = asked[0], flag("has_aux", asked[1])

    def _made(self, call: Call, shapes: Shapes) -> tuple[Trace, Graph | None]:
        trace = traced(self._function, call, shapes, self._max_bytes)
        graph = trace.graph
        inputs = inputs_of(call, graph)
        joint, whole = self._joint(graph, trace.result, (call.tree, call.names, inputs))
        made, outputs = pruned(trace._replace(result=whole), joint.outputs)
        cotangent = joint.inputs[-1]
        constants = {**joint.constants, cotangent: np.ones((), cotangent.dtype)}
        nodes = sorted_nodes(outputs, joint.nodes)
        needed = set(outputs).union(*(it.operands for it in nodes))
        known = {value: array for value, array in constants.items() if value in needed}
        return made._replace(graph=Graph(graph.inputs, tuple(outputs), nodes, known)), None

    def _inside(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """In the trace of another function the nodes of the gradient join those that are there."""
        leaves: list[Any] = []
        tree = flattened((args, named), leaves)
        is_traced = any(isinstance(it, TracedArray) for it in leaves)
        tracer = None if is_traced else RUNNING.tracer
        tracer = tracer or tracer_of(leaves)
        known: dict[Value, Any] = {}
        names = names_of(self._parameters, tree)
        fresh = [_apart(tracer, it, name, known) for it, name in zip(leaves, names, strict=True)]
        results = _called(self._function, tree, fresh)
        outputs, result = returned(tracer, self._function, results)
        inputs = [it.value if isinstance(it, TracedArray) else None for it in fresh]
        described = tree, names, inputs
        joint, whole = self._joint(tracer.build.graph(outputs), result, described)
        cotangent = joint.inputs[-1]
        tracer.build.add(joint, known | {cotangent: np.ones((), cotangent.dtype)})
        arrays = [TracedArray(tracer, it) for it in joint.outputs]
        return nested(
            whole.tree, [it[0] if isinstance(it, tuple) else arrays[it] for it in whole.leaves]
        )

    def _joint(
        self, graph: Graph, result: Result, described: tuple[Tree, Sequence[str], Sequence[Any]]
    ) -> tuple[Graph, Result]:
        """The graph with gradients, and what of its outputs the caller gets."""
        tree, names, inputs = described
        value, aux = self._split(result)
        (number,) = value.leaves
        loss = self._loss(graph.outputs, number)
        parts = parts_of(tree, self._parameters, self._places)
        of = differentiable(parts, names, inputs)
        joint = gradient(join_layers(graph), [loss], of)
        first = len(graph.outputs)
        numbers = [first + of.index(it) if it in of else None for it in inputs]
        found = [it.result(numbers) for it in parts]
        grads = found[0] if self._is_one else joined(found)
        if self._gives_value:
            return joint, joined([value if aux is None else joined([value, aux]), grads])
        return joint, grads if aux is None else joined([grads, aux])

    def _split(self, result: Result) -> tuple[Result, Result | None]:
        """The scalar, and what stands beside it."""
        tree, leaves = result
        if not self._has_aux:
            if tree != LEAF:
                raise self._error(
                    "several arrays", "one scalar; has_aux=True takes others beside it"
                )
            return result, None
        if tree.kind is not tuple or len(tree.parts) != 2 or tree.parts[0] != LEAF:
            raise self._error("something else", "(scalar, others), as has_aux=True says")
        return Result(LEAF, leaves[:1]), Result(tree.parts[1], leaves[1:])

    def _loss(self, outputs: Sequence[Value], leaf: Any) -> Value:
        if isinstance(leaf, tuple):
            raise self._error(repr(leaf[0]), "a scalar that is computed of the arguments")
        value: Value = outputs[leaf]
        if value.shape or not is_differentiable(value):
            found = f"{value.dtype} of shape {value.shape}"
            raise self._error(found, "a scalar of floats, such as np.mean and np.sum make")
        return value

    def _error(self, found: str, expected: str) -> TraceError:
        name = getattr(self._function, "__name__", "the function")
        return TraceError(
            f"{function_line(self._function)}{name} returns {found}, expected {expected}"
        )


def _apart(tracer: Tracer, leaf: Any, name: str, known: dict[Value, Any]) -> Any:
    """The same elements as a value of their own: what follows from x otherwise is no part of it.

    Arrays that are no traced ones are inputs for the time being, added to the known ones; what
    holds no elements stays. All are arguments, which the function does not write into.
    """
    if isinstance(leaf, TracedArray):
        value = tracer.value(leaf)
        if is_differentiable(value):
            value = tracer.build.map(("input", 0), value)
        made = TracedArray(tracer, value, leaf.is_weak)
        made.argument = leaf.argument or name
        return made
    if not isinstance(leaf, float) and not hasattr(leaf, "dtype"):
        return leaf
    array = np.asarray(leaf)
    array = array.astype(type_in_graph(array.dtype))
    value = tracer.build.input("a known array", array.shape, array.dtype)
    known[value] = array
    made = TracedArray(tracer, value, isinstance(leaf, float))
    made.argument = name
    return made


def _called(function: Callable[..., Any], tree: Tree, leaves: Sequence[Any]) -> Any:
    args, named = nested(tree, leaves)
    return function(*args, **named)


def value_and_grad(
    f: Callable[..., Any],
    wrt: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    dtype: Any = None,
    kept_shapes: int = KEPT_SHAPES,
    max_bytes: int | None = None,
) -> GradientFunction:
    """A function of the same arguments that gives the value of f and its gradient.

    Parameters
    ----------
    f : callable
        Written in NumPy, as for `compile`, which it need not be; it returns a scalar of floats.
    wrt : int or sequence of int
        By which arguments: their places, also of those that are given by name.
    has_aux : bool
        f returns ``(scalar, others)``; others are given as they are.
    dtype, kept_shapes, max_bytes
        As for `compile`.

    Returns
    -------
    callable
        Its results are ``(value, gradient)``, or ``((value, others), gradient)``. The gradient is
        nested as the argument is, of its shapes and dtypes; a tuple of gradients where wrt is a
        sequence. What is no array there has None. ``explain`` and ``profile`` are as of what
        `compile` returns. Nothing but arrays and numbers is asked for a gradient; inside of a
        function that is traced it may be called, also for gradients of gradients.

    Raises
    ------
    TypeError, ValueError
        As `compile`, when it is called; also where f returns no scalar, an argument of wrt holds
        integers, or an operation has no gradient.

    Examples
    --------
    >>> step = dlprim.value_and_grad(lambda w, x: np.mean((x @ w) ** 2))
    >>> value, dw = step(np.ones(3, np.float32), np.eye(3, dtype=np.float32))
    >>> float(value), dw
    (1.0, array([0.6666667, 0.6666667, 0.6666667], dtype=float32))
    """
    return GradientFunction(f, wrt, (True, has_aux), (dtype, kept_shapes, max_bytes))


def grad(
    f: Callable[..., Any],
    wrt: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    dtype: Any = None,
    kept_shapes: int = KEPT_SHAPES,
    max_bytes: int | None = None,
) -> GradientFunction:
    """As `value_and_grad`, without the value.

    Parameters
    ----------
    f, wrt, has_aux, dtype, kept_shapes, max_bytes
        As for `value_and_grad`.

    Returns
    -------
    callable
        Its results are the gradient, or ``(gradient, others)``.

    Raises
    ------
    TypeError, ValueError
        As `value_and_grad`.

    Examples
    --------
    >>> slope = dlprim.grad(lambda x: np.sum(np.tanh(x)))
    >>> slope(np.zeros(2, np.float32))
    array([1., 1.], dtype=float32)
    """
    return GradientFunction(f, wrt, (False, has_aux), (dtype, kept_shapes, max_bytes))
