"""The table of PyTorch's operators that become nodes of a graph: a name, and a function of a call.

A rule is given a `Call`, then the operands as the operator of aten has them: `Value`s for tensors,
numbers, lists; a name begins with `again` for gradients that `dlprim.torch.again` has replaced. It
returns a `Value`, or a tuple for operators with several results, None for those that nothing may
read. What a rule cannot do it refuses by `UnsupportedError`; the node stays with PyTorch then, and
`dlprim.torch.explain` prints the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import torch

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators import OPERATORS

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.int64: np.dtype(np.int64),
    torch.int32: np.dtype(np.int32),
    torch.int16: np.dtype(np.int16),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
    torch.bool: np.dtype(np.bool_),
}
FLOAT32 = DTYPES[torch.float32]


class UnsupportedError(Exception):
    """Why a node stays with PyTorch."""


class Call(NamedTuple):
    """What a rule writes with, and what is expected of it.

    Attributes
    ----------
    b : Builder
    dtypes : tuple of numpy.dtype or None
        Of the results, None for those that are no tensors that dlprim has.
    """

    b: Builder
    dtypes: tuple[np.dtype[Any] | None, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the first result."""
        dtype = self.dtypes[0]
        assert dtype is not None
        return dtype

    def map(self, expression: Expression, *operands: Any) -> Value:
        """An expression of tensors and numbers, of the dtype of the result.

        Operands are computed with in that dtype where it holds floats, and numbers stand in the
        expression, but for those that are infinite.
        """
        values: list[Value] = []
        places: list[Expression] = []
        for it in operands:
            if isinstance(it, Value):
                places.append(operand(len(values)))
                values.append(self.float(it))
            elif isinstance(it, float) and not math.isfinite(it):
                places.append(operand(len(values)))
                values.append(self.b.constant(np.full((), it, FLOAT32), "number"))
            else:
                places.append(number(it))
        return self.b.map(_filled(expression, places), *values, dtype=self.dtype)

    def float(self, x: Value) -> Value:
        """x, whose integers become floats where the result has these."""
        is_float = self.dtype.kind not in "biu"
        return self.b.cast(x, FLOAT32) if is_float and x.dtype.kind in "iu" else x

    def cast(self, x: Value) -> Value:
        """x in the dtype of the result."""
        return self.b.cast(x, self.dtype)

    def gradients(
        self,
        operator: str,
        inputs: Sequence[Value | None],
        diff: Value,
        form: dict[str, Any],
        result: Value | None = None,
    ) -> list[Value | None]:
        """By the inputs of a node of the graph, from that by its result."""
        rule_of = OPERATORS[operator].gradient
        assert callable(rule_of)
        made = result or Value(operator, diff.shape, diff.dtype)
        node = Node(operator, tuple(inputs), (made,), form, operator)
        return [it if isinstance(it, Value) else None for it in rule_of(self.b, node, [diff])]

    def through(self, forward: str, diff: Value, x: Value, *rest: Any, **named: Any) -> Value:
        """The gradient by x, from that by the first result of an operator of x and others.

        The operator is written down for that; what nothing reads of it is dropped.
        """
        first = len(self.b.nodes)
        made = RULES[forward](Call(self.b, (x.dtype, None, None)), x, *rest, **named)
        y = made[0] if isinstance(made, tuple) else made
        found = {y: self.b.expand(self.b.cast(diff, y.dtype), y.shape)}
        self.b.backward(self.b.nodes[first:], found, [x])
        return self.cast(found[x])

    def given(self, dtype: Any, *values: Value | None) -> list[Value | None]:
        """Operands in this dtype, None for those that there are not."""
        return [it and self.b.cast(it, dtype) for it in values]


Rule = Callable[..., Any]
Named = TypeVar("Named", bound=Rule)
RULES: dict[str, Rule] = {}


def backward(names: dict[str, str]) -> None:
    """Makes the gradients of operators rules, that take its gradient, its operands, and no more."""

    def rule_of(forward: str) -> Rule:
        return lambda c, *operands, **named: c.through(forward, *operands, **named)

    for name, forward in names.items():
        rule(name)(rule_of(forward))


def rule(*names: str) -> Callable[[Named], Named]:
    """Makes a function the rule of operators, by their names with overloads."""

    def named(function: Named) -> Named:
        for name in names:
            assert name not in RULES, name
            RULES[name] = function
        return function

    return named


def require(holds: bool, reason: str) -> None:
    """Refuses a node unless something holds."""
    if not holds:
        raise UnsupportedError(reason)


def asked(c: Call, found: Sequence[Any], mask: Sequence[bool]) -> tuple[Value, ...]:
    """Those that are asked for, of the dtypes that are expected."""
    chosen = [it for it, wanted in zip(found, mask, strict=False) if wanted]
    zipped = zip(chosen, c.dtypes, strict=True)
    return tuple(c.b.cast(it, dtype or FLOAT32) for it, dtype in zipped)


def pair_of(given: int | Sequence[int], count: int) -> tuple[int, ...]:
    """A number for each axis, of one for all or of a list."""
    listed = [given] if not isinstance(given, Sequence) else list(given)
    return tuple(listed * count if len(listed) == 1 else listed)


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front; an array without axes is taken for one of one axis."""
    return axis % max(1, rank)


def _filled(expression: Expression, places: Sequence[Expression]) -> Expression:
    name, *rest = expression
    if name == "input":
        return places[rest[0]]
    if name == "number":
        return expression
    return (name, *(_filled(it, places) for it in rest))
