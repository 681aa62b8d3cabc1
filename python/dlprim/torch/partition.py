"""Which nodes of a traced graph dlprim runs, and in as few pieces as possible.

Each node is tried alone: its rule is applied to values of its shapes and types, and what it makes
is compared with what PyTorch has traced. What is refused stays with PyTorch. Then nodes are taken
in turns, all that are ready of one side, all of the other, which gives the fewest turns that there
can be. What draws random numbers keeps its order, what writes into inputs comes last.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from dlprim.graph.builder import Builder, ValueNeededError
from dlprim.graph.graph import Value
from dlprim.graph.networks import FAULTS
from dlprim.torch import again, apart, border
from dlprim.torch.operators import DTYPES, RULES, Call, UnsupportedError
from dlprim.torch.sizes import hint_of, hints_of, makes_tensors, tensors_of

# Tensors seen otherwise, which PyTorch does in no time, and what is copied or filled.
_MOVED = {
    f"aten.{it}"
    for it in (
        *("view.default", "_unsafe_view.default", "permute.default", "transpose.int", "t.default"),
        *("unsqueeze.default", "squeeze.dim", "squeeze.dims"),
    )
}
_VIEWS = {*_MOVED, "aten.expand.default", "aten.detach.default", "aten.alias.default"}
_FILLED = {"aten.full.default", "aten.scalar_tensor.default"}
_EASY = {
    *(*_VIEWS, "aten.clone.default", "aten.full_like.default", "getitem"),
    *("aten.select.int", "aten.slice.Tensor", "aten.split.Tensor"),
    *("dlprim.in_blocks", "dlprim.from_blocks"),
}
_WHOLE = (*(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8), torch.bool)
_INTEGERS = "it follows from integers alone"
_A_VIEW = "a view that PyTorch gives without work"


class Turn(NamedTuple):
    """Nodes that run after each other on one side."""

    is_ours: bool
    nodes: tuple[Node, ...]


class Partition(NamedTuple):
    """A graph in turns.

    Attributes
    ----------
    turns : tuple of Turn
    reasons : mapping of Node to str
        Why nodes stay with PyTorch.
    filled : frozenset of Node
        Arrays of one number, which pieces that read them make themselves.
    """

    turns: tuple[Turn, ...]
    reasons: dict[Node, str]
    filled: frozenset[Node]


def name_of(node: Node) -> str:
    """What the table of rules calls the operator of a node."""
    target: Any = node.target
    if target is operator.getitem:
        return "getitem"
    if target is again.again:
        return f"again.{node.kwargs['gradient']}"
    is_own = getattr(target, "__module__", "") in (
        again.__name__,
        apart.__name__,
        border.__name__,
    )
    return f"dlprim.{target.__name__}" if is_own else str(target)


def dtypes_of(node: Node) -> tuple[Any, ...]:
    """Of each result."""
    return tuple(None if it is None else DTYPES.get(it.dtype) for it in tensors_of(node))


def applied(b: Builder, node: Node, known: Callable[[Node], Any]) -> Any:
    """The nodes that a node of PyTorch's becomes."""
    args: Any = map_arg(node.args, known)
    named: Any = map_arg(node.kwargs, known)
    if node.target is operator.getitem:
        return args[0][args[1]]
    b.name = node.name
    return RULES[name_of(node)](Call(b, dtypes_of(node)), *args, **named)


def partitioned(nodes: Iterable[Node]) -> Partition:
    """The nodes that call functions, in turns."""
    listed = [it for it in nodes if it.op == "call_function"]
    reasons: dict[Node, str] = {}
    filled: set[Node] = set()
    counted: set[Node] = set()
    for node in listed:
        reason = _reason(node, reasons)
        if reason is None and name_of(node) in _FILLED:
            filled.add(node)
            reason = "one number"
        elif reason in (None, _INTEGERS) and _counts(node, counted, filled):
            counted.add(node)
            reason = _INTEGERS
        if reason is not None:
            reasons[node] = reason
    _leave_views(listed, reasons)
    turns = _turns(listed, reasons)
    idle = [
        it
        for turn in turns
        if turn.is_ours and all(name_of(node) in _EASY for node in turn.nodes)
        for it in turn.nodes
    ]
    if idle:
        reasons.update(dict.fromkeys(idle, "nothing is computed"))
        turns = _turns(listed, reasons)
    return Partition(turns, reasons, frozenset(filled))


# ---------------------------------------------------------------- reasons


def _reason(node: Node, reasons: dict[Node, str]) -> str | None:
    """Why PyTorch runs the node; None where dlprim does."""
    if node.target is operator.getitem:
        producer = node.args[0]
        if not isinstance(producer, Node) or producer.op != "call_function":
            return "no tensor"
        return reasons.get(producer) or (None if makes_tensors(node) else "no tensor")
    if not makes_tensors(node):
        return "no tensor"
    name = name_of(node)
    if name not in RULES:
        is_own = name.startswith("dlprim.") and not name.endswith(".default")
        return "it is done in front of the network" if is_own else f"{name} has no rule"
    given = [it for one in node.all_input_nodes for it in tensors_of(one) if it is not None]
    every = [*given, *(it for it in tensors_of(node) if it is not None)]
    for it in every:
        if it.device.type != "cpu" or it.layout != torch.strided:
            return f"a tensor is on {it.device} as {it.layout}"
    if not any(it.dtype.is_floating_point or it.dtype.is_complex for it in every):
        return _INTEGERS
    try:
        return _refusal(node)
    except UnsupportedError as error:
        return str(error)
    except ValueNeededError:
        return "a shape follows from elements of a tensor"
    except FAULTS as error:
        return f"{type(error).__name__}: {error}"


def _input_of(b: Builder, node: Node) -> Any:
    """Of the shape that the graph was traced with."""
    made = node.meta.get("val")
    if isinstance(made, torch.Tensor):
        return _value_of(b, made)
    if isinstance(made, tuple | list):
        return tuple(_value_of(b, it) if isinstance(it, torch.Tensor) else it for it in made)
    if made is None:
        raise UnsupportedError(f"{node.name} is unknown")
    return hint_of(made)


def _value_of(b: Builder, tensor: torch.Tensor) -> Value:
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise UnsupportedError(f"{str(tensor.dtype).removeprefix('torch.')} is not computed")
    return b.input("input", hints_of(tensor.shape), dtype)


def tried(node: Node) -> tuple[Builder, tuple[Any, ...]]:
    """What a rule makes of a node of the shapes that the graph was traced with."""
    b = Builder()
    found = applied(b, node, lambda it: _input_of(b, it))
    return b, found if isinstance(found, tuple) else (found,)


def _refusal(node: Node) -> str | None:
    """What differs from what PyTorch makes of the node."""
    _, made = tried(node)
    for value, tensor in zip(made, tensors_of(node), strict=True):
        if tensor is None or value is None:
            continue
        expected = (hints_of(tensor.shape), DTYPES.get(tensor.dtype))
        if (value.shape, value.dtype) != expected:
            return f"{value.dtype}{list(value.shape)} instead of {expected[1]}{list(expected[0])}"
    missing = {at for at, value in enumerate(made) if value is None}
    if any(name_of(it) != "getitem" or it.args[1] in missing for it in node.users if missing):
        return "a result is read that dlprim does not make"
    return None


def _counts(node: Node, counted: set[Node], filled: set[Node]) -> bool:
    """Whether the node follows from integers and numbers alone, as masks and positions do.

    PyTorch runs these in one go, in front of all else.
    """

    def follows(it: Node) -> bool:
        return it in counted or all(
            tensor is None or tensor.dtype in _WHOLE for tensor in tensors_of(it)
        )

    inputs = [it for it in node.all_input_nodes if it not in filled]
    has_tensors = any(map(makes_tensors, inputs))
    return has_tensors and all(map(follows, inputs)) and not apart.is_random(node)


def _leave_views(nodes: list[Node], reasons: dict[Node, str]) -> None:
    """Views that nothing of ours reads are PyTorch's: they share memory with what they are of.

    But where nobody else has that, there is nothing to share.
    """
    for node in reversed(nodes):
        is_read = any(it.op == "call_function" and it not in reasons for it in node.users)
        if node in reasons or name_of(node) not in _VIEWS or is_read:
            continue
        source = node.all_input_nodes[0]
        is_ours = source.op == "call_function" and source not in reasons
        if not is_ours or len(source.users) > 1 or name_of(node) not in _MOVED:
            reasons[node] = _A_VIEW


# ---------------------------------------------------------------- turns


def writes(node: Node) -> bool:
    """Whether it writes into what it is given."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _turns(nodes: list[Node], reasons: dict[Node, str]) -> tuple[Turn, ...]:
    """By the better of both beginnings."""
    found = [_taken_in_turns(nodes, reasons, is_ours) for is_ours in (False, True)]
    return min(found, key=lambda turns: sum(it.is_ours for it in turns))


def _taken_in_turns(nodes: list[Node], reasons: dict[Node, str], is_ours: bool) -> tuple[Turn, ...]:
    last = _written_last(nodes)
    waiting = {node: set(node.all_input_nodes) for node in nodes if node not in last}
    drawn: Node | None = None
    for node in waiting:
        if node in reasons and apart.is_random(node):
            waiting[node].update({drawn} if drawn is not None else ())
            drawn = node
    turns: list[Turn] = []
    while waiting:
        taken: list[Node] = []
        for node in list(waiting):
            if (node not in reasons) is is_ours and waiting[node].isdisjoint(waiting):
                del waiting[node]
                taken.append(node)
        if taken:
            turns.append(Turn(is_ours, tuple(taken)))
        is_ours = not is_ours
    return (*turns, Turn(False, tuple(last))) if last else tuple(turns)


def _written_last(nodes: list[Node]) -> dict[Node, None]:
    """What writes, and what follows from that."""
    last: dict[Node, None] = {}
    for node in nodes:
        if writes(node) or not last.keys().isdisjoint(node.all_input_nodes):
            last[node] = None
    return last
