"""What a trace writes: operands as values of a graph, in types that follow NumPy's rules.

There is no float64: what NumPy would make so is float32. Python's numbers, and arguments that were
such, take the type of the arrays they meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.traced import RUNNING, Held, lifted
from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.extents import Extent, derived, integers, is_known
from dlprim.graph.graph import Value
from dlprim.graph.recorded_arrays import RecordedArray, as_array
from dlprim.tracing.refusals import ForeignArrayError, located, refuse, user_line

if TYPE_CHECKING:
    from dlprim.tracing.array import TracedArray

Dtype = np.dtype[Any]
_BOOL, _INT, _FLOAT = np.dtype(bool), np.dtype(np.int64), np.dtype(np.float32)
_WEAK = (_BOOL, _INT, _FLOAT)
# Whose elements a network may hold.
_TYPES = "biuf"


class Tracer:
    """A function on its way to a graph.

    Attributes
    ----------
    build : Builder
    held : dict
        By the identity of arrays that outlive the call: what has them, and the input.
    writes : dict
        What becomes of some of these, behind the run.
    ended : set of Value
        Through which no gradient goes further.
    """

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.held: dict[int, tuple[Held, Value]] = {}
        self.writes: dict[int, tuple[Held, Value]] = {}
        self.ended: set[Value] = set()
        # What an array of the function is in the graph; the array keeps its identity, and a copy
        # tells whether it was written since.
        self._constants: dict[tuple[int, str], tuple[Any, Any, Value]] = {}

    def value(self, x: Any, dtype: Dtype | None = None) -> Value:
        """An operand in a type, or in its own."""
        from dlprim.tracing.array import TracedArray

        if isinstance(x, TracedArray):
            if x.tracer is not self:
                raise ForeignArrayError(
                    f"{user_line()}: an array of another trace is used, expected arguments and "
                    "what is made of them"
                )
            return x.value if dtype is None else self.cast(x.value, dtype)
        if isinstance(x, Extent) and isinstance(x.value, float):
            x = derived(np.asarray, x)
        array = integers(x) if _has_extents(x) else as_array(x)
        due = type_in_graph(array.dtype) if dtype is None else dtype
        if isinstance(array, RecordedArray):
            return self.cast(self.build.constant(array.astype(due)), due)
        key = (id(x), due.name)
        known = self._constants.get(key)
        if known is not None and _are_equal(known[1], array):
            return known[2]
        made = array if array.dtype == object else np.array(array, due, order="C")
        value = self.cast(self.build.constant(made), due)
        self._constants[key] = (x, made, value)
        return value

    def of_held(self, it: Held) -> TracedArray:
        """What an array that outlives the call is here: what was written last."""
        from dlprim.tracing.array import TracedArray

        key, name = it.key(), it.name or "parameter"
        if key not in self.held:
            self.held[key] = it, self.build.input(name, *it.form)
        made = TracedArray(self, self.writes.get(key, self.held[key])[1])
        made.argument, made.held = name, it
        return made

    def write(self, it: Held, x: TracedArray) -> None:
        """Has the run write an array that outlives the call, of the same shape."""
        shape, dtype = it.form
        if x.shape != shape:
            raise ValueError(f"{it.name!r} is written {x.shape}, expected {shape}")
        self.of_held(it)
        self.writes[it.key()] = it, self.cast(x.value, dtype)

    def end(self, x: TracedArray) -> None:
        """Says that nobody wants the gradient by an array."""
        self.ended.add(lifted(self, x).value)

    def cast(self, x: Value, dtype: Dtype) -> Value:
        """A value in another type, by NumPy's rule."""
        if dtype.kind == "b" and x.dtype.kind != "b":
            return self.build.map(("not_equal", operand(0), number(0)), x, dtype=dtype)
        return self.build.cast(x, dtype)


def _are_equal(copy: Any, array: Any) -> bool:
    """Whether an array still has the shape and elements of its copy, bit by bit."""
    if copy.shape != array.shape:
        return False
    if copy.dtype == object or array.dtype == object:  # to compare extents would bind them
        return all(map(is_, copy.flat, array.flat))
    now = np.asarray(array, copy.dtype, order="C")
    return np.array_equal(copy.reshape(-1).view(np.uint8), now.reshape(-1).view(np.uint8))


def _has_extents(x: Any) -> bool:
    """Whether it is an extent that is not known, or a sequence with one."""
    return not is_known(x) if isinstance(x, tuple | list) else not is_known((x,))


def type_in_graph(dtype: Dtype) -> Dtype:
    """Of an array that the function made itself, or a type that it asks for."""
    if dtype == np.float64:
        return _FLOAT
    if dtype.kind not in _TYPES and dtype.name != "bfloat16":
        refuse(f"an array of {dtype} is used", "numbers or bool")
    return dtype


def named_type(dtype: Any) -> Dtype:
    """A dtype that the function names."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        return bfloat16_dtype()
    return type_in_graph(np.dtype(dtype))


def is_float(dtype: Dtype) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def common_type(dtypes: Sequence[Dtype]) -> Dtype:
    """Of arrays that meet: a float's where there is one, of different ones float32."""
    floats = {it for it in dtypes if is_float(it)}
    if floats:
        return floats.pop() if len(floats) == 1 else _FLOAT
    made = np.result_type(*dtypes)
    return _FLOAT if made == np.float64 else made  # of uint64 and others


def result_type(operands: Sequence[Any]) -> tuple[Dtype, bool]:
    """The type that operands have in common, and whether it would give way to an array's."""
    strong, rank = [], -1
    for it in operands:
        dtype, is_weak = _type_of(it)
        if is_weak:
            rank = max(rank, _rank(dtype))
        else:
            strong.append(dtype)
    if not strong:
        return _WEAK[rank], True
    made = common_type(strong)
    return (made if rank <= _rank(made) else _WEAK[rank]), False


def _rank(dtype: Dtype) -> int:
    return 0 if dtype.kind == "b" else 2 if is_float(dtype) else 1


def _type_of(x: Any) -> tuple[Dtype, bool]:
    if isinstance(x, bool):
        return _BOOL, True
    if isinstance(x, float) or (isinstance(x, Extent) and isinstance(x.value, float)):
        return _FLOAT, True  # np.float64 is one
    if isinstance(x, int) or _has_extents(x):
        return _INT, True
    is_weak = getattr(x, "is_weak", False)
    dtype = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    return type_in_graph(dtype), is_weak


def is_written(x: TracedArray, dtype: Dtype) -> bool:
    """Whether NumPy writes elements into an array of a type; weak ones by their kind alone."""
    if x.is_weak:
        return _rank(x.dtype) <= _rank(dtype)
    return np.can_cast(x.dtype, dtype, "same_kind")


def tracer_of(operands: Sequence[Any]) -> Tracer:
    """That of the traced ones among operands, that which is running where there are none."""
    from dlprim.tracing.array import TracedArray

    for it in operands:
        if isinstance(it, TracedArray):
            return it.tracer
    assert RUNNING.tracer is not None
    running: Tracer = RUNNING.tracer
    return running


def mapped(
    function: Callable[..., Expression],
    operands: Sequence[Any],
    kind: str = "same",
    dtype: Dtype | None = None,
) -> TracedArray:
    """An expression of elements.

    Parameters
    ----------
    function : callable
        The expression, of those of the operands.
    operands : sequence
        Arrays, traced or not, and numbers.
    kind : "same", "float", "compare" or "logical"
        What operands become: their common type, or a float, the common type for a result that is
        true or false, bool.
    dtype : dtype, optional
        Instead of the common type.
    """
    tracer = tracer_of(operands)
    due, is_weak = result_type(operands) if dtype is None else (dtype, False)
    if kind == "float" and not is_float(due):
        due = _FLOAT
    if kind == "logical":
        due, is_weak = _BOOL, False
    values: list[Value] = []
    parts: list[Expression] = []
    for it in operands:
        literal = literal_of(it, due)
        if literal is None:
            value = tracer.value(it, due)
            if value not in values:
                values.append(value)
            literal = operand(values.index(value))
        parts.append(literal)
    result = _BOOL if kind in ("compare", "logical") else due
    return made(tracer, lambda: tracer.build.map(function(*parts), *values, dtype=result), is_weak)


def literal_of(x: Any, dtype: Dtype) -> Expression | None:
    """A number that may stand in an expression of operands of a type."""
    if type(x) not in (bool, int, float) and not isinstance(x, np.float64 | Extent):
        return None
    if dtype.kind == "b" or not abs(x) < math.inf:
        return None
    if isinstance(x, Extent):
        recorded: Any = x * 1.0 if is_float(dtype) else x
        return number(recorded)
    return number(float(x) if is_float(dtype) else int(x))


def made(tracer: Tracer, make: Callable[[], Value], is_weak: bool = False) -> TracedArray:
    """What a builder makes; what does not fit is said with the user's line."""
    from dlprim.tracing.array import TracedArray

    try:
        return TracedArray(tracer, make(), is_weak)
    except (ValueError, IndexError, OverflowError) as error:
        raise located(error) from error
