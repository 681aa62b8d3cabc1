"""An operator as a row of a table, and `call`, the one for what has no formula.

Operators compute by NumPy, without haste: that is the oracle of the tests, what folds constants,
and what runs of types and shapes that the engines do not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlprim.graph.graph import Array, Node, Value

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder

Attributes = Mapping[str, Any]
Result = tuple[tuple[int, ...], np.dtype[Any]]
# Of inputs that may be absent.
Values = Sequence[Value | None]
Arrays = Sequence[Any]


class OfNodes(NamedTuple):
    """A gradient that is that of other nodes, which compute the same of inputs and attributes."""

    written_out: Callable[[Builder, Values, Attributes], Sequence[Value]]


# The gradient by each input of a node, of the gradients by its results, None for a result that
# nothing depends on: None where there is none, words that say why it cannot be had where somebody
# wants it. Or why the operator has none at all.
Rule = Callable[["Builder", Node, Values], Sequence[Value | str | None]]
Gradient = Rule | OfNodes | str


# Of what has a gradient, but no function that computes it.
NO_FUNCTION = "no function computes it"


class Operator(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    kind : str
        "contract", "rows", "move", "recur" or "call".
    infer : callable
        Shape and dtype of every result, of the inputs and the attributes; ValueError with a
        sentence where they do not fit.
    compute : callable
        The results as a list, of arrays and the attributes.
    gradient : callable, OfNodes or str
        Nodes for the gradients by the inputs, or why the operator has none.
    """

    kind: str
    infer: Callable[[Values, Attributes], list[Result]]
    compute: Callable[[Arrays, Attributes], list[Any]]
    gradient: Gradient


def there(value: Value | None) -> Value:
    """The value, which its operator cannot do without."""
    assert value is not None
    return value


def axis_within(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis is {axis}, expected -{rank} to {rank - 1}")
    return axis % rank


class Callee(NamedTuple):
    """What a `call` node runs, and its gradient as in `Operator`."""

    compute: Callable[[Arrays, Attributes], list[Any]]
    gradient: Rule | str


# Functions of NumPy by name.
CALLS: dict[str, Callee] = {}


def callee(
    name: str, gradient: Rule | str
) -> Callable[[Callable[..., list[Any]]], Callable[..., list[Any]]]:
    """Makes a function of arrays and attributes what `call` nodes of this name run."""

    def named(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        assert name not in CALLS, name
        CALLS[name] = Callee(function, gradient)
        return function

    return named


def _infer_call(values: Values, attributes: Attributes) -> list[Result]:
    results: Sequence[tuple[tuple[int, ...], str]] = attributes["results"]
    return [(tuple(shape), np.dtype(dtype)) for shape, dtype in results]


def _compute_call(arrays: Arrays, attributes: Attributes) -> list[Any]:
    results = CALLS[attributes["function"]].compute(arrays, attributes)
    expected = _infer_call((), attributes)
    for array, (shape, dtype) in zip(results, expected, strict=True):
        if array is not None and (array.shape != shape or array.dtype != dtype):
            raise ValueError(
                f"{attributes['function']} gave {array.dtype} of {list(array.shape)}, "
                f"expected {dtype} of {list(shape)}"
            )
    return results


def _call_gradient(b: Builder, node: Node, diffs: Values) -> Sequence[Value | str | None]:
    function = node.attributes["function"]
    gradient = CALLS[function].gradient
    if isinstance(gradient, str):
        raise ValueError(f"{function} has no gradient: {gradient}")
    return gradient(b, node, diffs)


call = Operator("call", _infer_call, _compute_call, _call_gradient)


def summands(*arrays: Any) -> list[Array]:
    """Factors of products as they are summed: 8-bit integers as float64 too, where sums are exact.

    NumPy multiplies matrices of floats much faster than those of integers.
    """
    known = [np.asarray(array) for array in arrays]
    if all(it.dtype.name in ("uint8", "int8") for it in known):
        return [it.astype(np.float64) for it in known]
    return [widened(it) for it in known]


def widened(array: Any) -> Array:
    """Elements as they are summed: float64 for floats, 64 bits for integers."""
    known: Array = np.asarray(array)
    if known.dtype == object:  # extents
        return known
    if known.dtype.kind in "biu":
        return known.astype(np.uint64 if known.dtype.name == "uint64" else np.int64)
    return known.astype(np.float64)
