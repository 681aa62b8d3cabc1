"""Choices and loops: bodies that run as often as values in a run say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.room import require_room
from dlprim.onnx.operators.shapes import axis_of
from dlprim.onnx.program import Port
from dlprim.onnx.proto import dtype_named
from dlprim.onnx.registry import Call, RefusedError, operator
from dlprim.onnx.strings import name_of

# What an array in a list takes besides its elements.
BYTES_BESIDE = 128
_FIRST_ROOM = 16  # steps
_MOST_AT_ONCE = 1 << 30  # which the core ends before in any case
_MOST_FIRST_BYTES = 1 << 26


@operator("If", on_values=True)
def choice(call: Call, condition: Any) -> tuple[Any, ...]:
    """Runs one branch."""
    return tuple(call.run(call.bodies[0 if is_true(condition) else 1], ()))


@operator("Loop", on_values=True)
def loop(
    call: Call,
    trips: Array | None = None,
    condition: Array | None = None,
    *states: Any,
    outputs: int = 1,
) -> tuple[Any, ...]:
    """Runs its body while a condition holds, at most so many times."""
    body = call.bodies[0]
    given, made = len(states) + 2, len(body.outputs) - 1 - len(states)
    if len(body.inputs) != given or made < 0 or outputs > len(states) + made:
        raise RefusedError(
            f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs, expected "
            f"{given} and at least {max(len(states), outputs) + 1}"
        )
    most = None if trips is None else number_of(trips)
    holds = np.array(True) if condition is None else condition
    rows = [Rows(call.max_bytes, most) for _ in range(made)]
    place = 0
    while is_true(holds) and (most is None or place < most):
        ahead = _ahead(call, (np.array(place), holds, *states), (), rows, (place, most))
        if ahead is not None:
            place, holds, states = ahead[0], np.array(ahead[1]).reshape(holds.shape), ahead[2]
            continue
        holds, *results = call.run(body, (np.array(place), holds, *states))
        states = tuple(results[: len(states)])
        for each, result in zip(rows, results[len(states) :], strict=True):
            each.add(result)
        place += 1
    ports = body.ports[1 + len(states) :]
    return (*states, *(it.array(port) for it, port in zip(rows, ports, strict=True)))


@operator("Scan", since=9, on_values=True)
def scan(
    call: Call,
    *inputs: Any,
    num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] = (),
    scan_input_directions: tuple[int, ...] = (),
    scan_output_axes: tuple[int, ...] = (),
    scan_output_directions: tuple[int, ...] = (),
) -> tuple[Any, ...]:
    """Runs its body for elements along an axis of arrays."""
    body = call.bodies[0]
    if not 0 < num_scan_inputs <= len(inputs) or len(body.inputs) != len(inputs):
        raise RefusedError(
            f"num_scan_inputs is {num_scan_inputs} and its body has {len(body.inputs)} inputs, "
            f"expected at least 1 and the {len(inputs)} of the node"
        )
    states, scanned = inputs[:-num_scan_inputs], inputs[-num_scan_inputs:]
    axes = _listed("scan_input_axes", scan_input_axes, len(scanned))
    turns = _listed("scan_input_directions", scan_input_directions, len(scanned))
    rows = [
        np.ascontiguousarray(np.moveaxis(_turned(it, axis, turn), axis, 0))
        for it, axis, turn in zip(scanned, axes, turns, strict=True)
    ]
    counts = sorted({len(it) for it in rows})
    if len(counts) > 1:
        raise RefusedError(f"arrays have {counts} elements, expected as many of each")
    states, made = _scanned(call, states, rows)
    axes = _listed("scan_output_axes", scan_output_axes, len(made))
    turns = _listed("scan_output_directions", scan_output_directions, len(made))
    for place, (axis, turn) in enumerate(zip(axes, turns, strict=True)):
        moved = np.moveaxis(made[place], 0, axis_of(axis, made[place].ndim))
        made[place] = np.ascontiguousarray(_turned(moved, axis, turn))
    return (*states, *made)


@operator("Scan", since=8, on_values=True)
def scan_8(
    call: Call,
    lengths: Array | None = None,
    *inputs: Any,
    num_scan_inputs: int,
    directions: tuple[int, ...] = (),
) -> tuple[Any, ...]:
    """Runs it for each sample of a batch; behind the last step of a shorter one is zero."""
    whole = inputs[-1].shape[1]
    counts = [whole] * len(inputs[-1]) if lengths is None else lengths.reshape(-1).tolist()
    turns = _listed("directions", directions, num_scan_inputs)
    samples = []
    for sample, count in enumerate(counts):
        states = [it[sample] for it in inputs[:-num_scan_inputs]]
        scanned = [
            _turned(it[sample, :count], 0, turn)
            for it, turn in zip(inputs[-num_scan_inputs:], turns, strict=True)
        ]
        last, made = _scanned(call, states, scanned)
        padded = [np.pad(it, [(0, whole - len(it))] + [(0, 0)] * (it.ndim - 1)) for it in made]
        samples.append((*last, *padded))
    return tuple(np.stack(rows) for rows in zip(*samples, strict=True))


def _scanned(
    call: Call, states: Sequence[Any], scanned: Sequence[Array]
) -> tuple[tuple[Any, ...], list[Array]]:
    """States behind the last step, and what the steps made, one row each."""
    body, count = call.bodies[0], len(scanned[0])
    if len(body.outputs) < len(states):
        raise RefusedError(
            f"its body has {len(body.outputs)} outputs, expected at least {len(states)}"
        )
    rows = [Rows(call.max_bytes, count) for _ in body.outputs[len(states) :]]
    place = 0
    while place < count:
        ahead = _ahead(call, states, scanned, rows, (place, count))
        if ahead is not None:
            place, _, states = ahead
            continue
        results = call.run(body, (*states, *(it[place, ...] for it in scanned)))
        states = results[: len(states)]
        for each, result in zip(rows, results[len(states) :], strict=True):
            each.add(result)
        place += 1
    ports = body.ports[len(states) :]
    return tuple(states), [it.array(port) for it, port in zip(rows, ports, strict=True)]


def _ahead(
    call: Call,
    given: Sequence[Any],
    scanned: Sequence[Array],
    rows: Sequence[Rows],
    runs: tuple[int, int | None],
) -> tuple[int, bool, tuple[Any, ...]] | None:
    """Runs in the core, where the body is a network that has run for arrays of these shapes.

    ``given`` are the states, and in front of them the number and the condition of a loop. Gives the
    number of the next run, whether the condition holds and the states.
    """
    body, (place, most) = call.bodies[0], runs
    front = 0 if scanned else 2
    steps = call.steps(body, (*given, *scanned), len(given) - front, len(scanned))
    if steps is None or len(steps.kept) != len(rows):
        return None
    kept = [each.room(it.shape, it.dtype) for each, it in zip(rows, steps.kept, strict=True)]
    ends = [len(it) for it in kept if it is not None]
    if len(ends) < len(kept):
        return None
    count = min([*ends, place + _MOST_AT_ONCE if most is None else most]) - place
    ran: tuple[int, bool, tuple[Any, ...]] | None
    ran = steps.run(given[front:], scanned, kept, (place, count, True))
    if ran is not None:
        for each in rows:
            each.has(ran[0])
    return ran


def _listed(name: str, numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    if numbers and len(numbers) != count:
        raise RefusedError(f"{name} has {len(numbers)} numbers, expected {count}")
    return numbers or (0,) * count


def _turned(array: Array, axis: int, turn: int) -> Array:
    return np.flip(array, axis_of(axis, array.ndim)) if turn else array


def is_true(condition: Any) -> bool:
    """A condition, which has one element."""
    if getattr(condition, "size", 0) != 1:
        raise RefusedError(f"the condition is {described(condition)}, expected one element")
    return bool(condition.item())


def number_of(value: Any) -> int:
    """An integer, which has one element."""
    if getattr(value, "size", 0) != 1:
        raise RefusedError(f"{described(value)} is given, expected one integer")
    return int(value.item())


def described(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, np.ndarray):
        return f"{name_of(value.dtype.name)} of {list(value.shape)}"
    return "nothing" if value is None else f"a sequence of {len(value)}"


class Rows:
    """What steps make, one array each, as one array; memory for it grows as it is needed."""

    def __init__(self, max_bytes: int, most: int | None) -> None:
        self._max_bytes, self._most = max_bytes, most
        self._count = 0
        self._array: Array | None = None

    def add(self, row: Any) -> None:
        """Adds a row, which is like the first one."""
        if not isinstance(row, np.ndarray):
            raise RefusedError(f"a step gives {described(row)}, expected an array")
        if self._array is None:
            self._array = self._room(row, self._first(row))
        elif row.shape != self._array.shape[1:] or row.dtype != self._array.dtype:
            raise RefusedError(
                f"step {self._count} gives {described(row)}, expected "
                f"{self._array.dtype} of {list(self._array.shape[1:])} as the first"
            )
        self._grow(row)
        self._array[self._count] = row
        self._count += 1

    def room(self, shape: tuple[int, ...], dtype: Any) -> Array | None:
        """Memory for more rows of a shape behind those that there are; None for another shape."""
        row = np.empty(shape, dtype)
        if self._array is None:
            self._array = self._room(row, self._first(row))
        elif shape != self._array.shape[1:] or dtype != self._array.dtype:
            return None
        self._grow(row)
        return self._array

    def has(self, count: int) -> None:
        """Says how many rows there are by now."""
        self._count = count

    def array(self, port: Port) -> Array:
        """All rows; where there is none, of what the body says of them."""
        if self._count:
            assert self._array is not None
            whole = self._array[: self._count]
            return whole if 2 * self._count > len(self._array) else whole.copy()
        if not port.dtype:
            raise RefusedError(f"no step ran, and '{port.name}' has no type, expected one")
        rest = (it if isinstance(it, int) else 0 for it in port.shape or ())
        return np.zeros((0, *rest), dtype_named(port.dtype))

    def _grow(self, row: Array) -> None:
        assert self._array is not None
        if self._count == len(self._array):
            whole = self._room(row, 2 * self._count)
            whole[: self._count] = self._array
            self._array = whole

    def _first(self, row: Array) -> int:
        least = max(1, _MOST_FIRST_BYTES // max(row.nbytes, 1))
        most = _FIRST_ROOM if self._most is None else self._most
        return min(max(most, 1), max(least, _FIRST_ROOM))

    def _room(self, row: Array, count: int) -> Array:
        require_room("what the steps give", count * (row.nbytes + 1), self._max_bytes)
        return np.empty((count, *row.shape), row.dtype)
