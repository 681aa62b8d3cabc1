"""Maps that the core computes in the types that NumPy computes in, as a list of operations."""

from __future__ import annotations

import numpy as np

from dlprim.graph.expressions import Expression, evaluate
from dlprim.graph.extents import plain
from dlprim.graph.graph import Node
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import collapsed

# Function, type of the result, operations that it reads, the number.
Operation = tuple[str, str, list[int], float]

_CONDITIONS = ("and", "or", "xor", "not")
# Of operands of one type, whatever that of the result.
_COMPARISONS = (
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_inf", "is_nan",
)  # fmt: skip
TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
_HALVES = ("float16", "bfloat16")
_BITS = {"bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"}
_OF_FLAGS = {*_BITS, "add", "maximum", "minimum", "multiply"}
_OF_INTEGERS = {
    *_BITS, "abs", "add", "divide", "fmod", "maximum", "minimum", "multiply", "negate", "power",
    "relu", "remainder", "shift_left", "shift_right", "sign", "subtract",
}  # fmt: skip
# NumPy computes a part of these in the type of an integer.
_OF_FLOATS = {
    "gelu", "gelu_tanh", "hardsigmoid", "hardswish", "mish", "relu6", "sigmoid", "softplus",
    "swish",
}  # fmt: skip
_MOST_OPERATIONS = 63


class _UnknownError(Exception):
    """There is no operation for a part of an expression."""


class _Operations:
    """Operations of an expression whose operands have known types."""

    def __init__(self, dtypes: list[np.dtype[np.generic]]) -> None:
        self.listed: list[Operation] = []
        self._made: dict[tuple[Expression, str | None], int] = {}
        self._dtypes = dtypes
        wide = (np.dtype(np.float32) if it.name in _HALVES else it for it in dtypes)
        self._operands = [np.empty(0, dtype) for dtype in wide]

    def add(self, expression: Expression, dtype: str | None = None) -> int:
        """The operation that makes the expression, of the type that NumPy gives it or another."""
        found = self._made.get((expression, dtype))
        if found is None:
            found = self._made[expression, dtype] = self._new(expression, dtype)
        return found

    def _new(self, expression: Expression, dtype: str | None) -> int:
        name, *parts = expression
        if name == "input":
            own = self._dtypes[parts[0]].name
            return self._cast(self._emit("input", own, [parts[0]]), own, dtype or own)
        own = np.asarray(evaluate(plain(expression), self._operands)).dtype.name
        if name == "number":
            if np.dtype(dtype or own).kind in "iub" and not abs(parts[0]) <= 2**53:
                raise _UnknownError("a number that is no double")
            return self._emit("number", dtype or own, [], parts[0] * 1.0)
        if name in _CONDITIONS:
            made = self._emit(name, own, [self.add(it, "bool") for it in parts])
        elif name in _COMPARISONS:
            types = [evaluate(plain(it), self._operands) for it in parts]
            common = np.result_type(*types).name
            if name in ("is_inf", "is_nan") and np.dtype(common).kind != "f":
                raise _UnknownError(f"{name} of {common}")
            if dtype == "float32" and len(parts) == 2:
                own = dtype  # which it makes at once
            made = self._emit(name, own, [self.add(it, common) for it in parts])
        elif name == "where":
            own = self._chosen(parts[1:], dtype) or own
            operands = [self.add(parts[0], "bool"), *(self.add(it, own) for it in parts[1:])]
            made = self._emit(name, own, operands)
        else:
            self._require(name, own, parts)
            made = self._emit(name, own, [self.add(it, own) for it in parts])
        return self._cast(made, own, dtype or own)

    def _require(self, name: str, own: str, parts: list[Expression]) -> None:
        """That there is a function of this name in this type, and that it is NumPy's."""
        kind = np.dtype(own).kind
        known = {"b": _OF_FLAGS, "i": _OF_INTEGERS, "u": _OF_INTEGERS}.get(kind)
        is_known = own not in _HALVES if known is None else name in known
        if name in _OF_FLOATS:
            types = [np.asarray(evaluate(plain(it), self._operands)).dtype for it in parts]
            is_known = is_known and all(it.kind == "f" for it in types)
        if not is_known:
            raise _UnknownError(f"{name} of {own}")

    def _chosen(self, parts: list[Expression], dtype: str | None) -> str | None:
        """The type of halves that are only chosen from, None where there are others."""
        types = {self._dtypes[it[1]].name if it[0] == "input" else it[0] for it in parts}
        return dtype if dtype in _HALVES and types <= {dtype, "number"} else None

    def _cast(self, made: int, own: str, dtype: str) -> int:
        return made if dtype == own else self._emit("cast", dtype, [made])

    def _emit(self, function: str, dtype: str, operands: list[int], number: float = 0.0) -> int:
        if dtype not in TYPES or len(self.listed) == _MOST_OPERATIONS:
            raise _UnknownError(dtype)
        self.listed.append((function, dtype, operands, number))
        return len(self.listed) - 1


def lower_integer_map(to: Lowering, node: Node) -> bool:
    """One step of the core, on arrays with as few axes as describe them."""
    if any(it.dtype.name not in TYPES for it in (*node.operands, node.output)):
        return False
    operations = _Operations([it.dtype for it in node.operands])
    try:
        operations.add(node.attributes["expression"], node.output.dtype.name)
    except (_UnknownError, OverflowError):  # or NumPy has none that holds a number
        return False
    result = to.result(node.output)
    spread = [to.place(it).expanded(node.output.shape) for it in node.operands]
    _, places = collapsed(node.output.shape, [*spread, result])
    *operands, made = map(to.number, places)
    to.network.map(operations.listed, operands, made, f"map {node.name}")
    return True
