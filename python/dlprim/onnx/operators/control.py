"""Choices and loops: bodies that run as often as values in a run say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.graph import Array
from dlprim.onnx.operators.shapes import axis_of
from dlprim.onnx.program import Port
from dlprim.onnx.proto import dtype_named
from dlprim.onnx.registry import Call, RefusedError, operator
from dlprim.onnx.strings import name_of

# What an array in a list takes besides its elements.
BYTES_BESIDE = 128


@operator("If", on_values=True)
def choice(call: Call, condition: Any) -> tuple[Any, ...]:
    """Runs one branch."""
    return call.choose(condition)


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
    last, rows = call.repeat(holds, states, (), most)
    return (*last, *_with_ports(rows, body.ports[1 + len(states) :]))


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
    rows = [_in_front(it, axis, turn) for it, axis, turn in zip(scanned, axes, turns, strict=True)]
    counts = sorted({len(it) for it in rows})
    if len(counts) > 1:
        raise RefusedError(f"arrays have {counts} elements, expected as many of each")
    states, made = _scanned(call, states, rows)
    axes = _listed("scan_output_axes", scan_output_axes, len(made))
    turns = _listed("scan_output_directions", scan_output_directions, len(made))
    for place, (axis, turn) in enumerate(zip(axes, turns, strict=True)):
        if axis or turn:
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
    last, rows = call.repeat(None, states, scanned, count)
    return last, _with_ports(rows, body.ports[len(states) :])


def _with_ports(rows: Sequence[Array | None], ports: Sequence[Port]) -> list[Array]:
    """What runs made; where there was none, nothing of what the body says of it."""
    pairs = zip(rows, ports, strict=True)
    return [_no_rows(port) if it is None else it for it, port in pairs]


def _no_rows(port: Port) -> Array:
    if not port.dtype:
        raise RefusedError(f"no step ran, and '{port.name}' has no type, expected one")
    rest = (it if isinstance(it, int) else 0 for it in port.shape or ())
    return np.zeros((0, *rest), dtype_named(port.dtype))


def _in_front(array: Array, axis: int, turn: int) -> Array:
    """An array with the axis in front, from its end where it turns."""
    if axis or turn:
        array = np.moveaxis(_turned(array, axis, turn), axis, 0)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _listed(name: str, numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    if numbers and len(numbers) != count:
        raise RefusedError(f"{name} has {len(numbers)} numbers, expected {count}")
    return numbers or (0,) * count


def _turned(array: Array, axis: int, turn: int) -> Array:
    return np.flip(array, axis_of(axis, array.ndim)) if turn else array


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
