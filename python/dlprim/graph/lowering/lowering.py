"""From a graph to a network of the core: every value gets a place, every node steps.

How a node becomes steps is said by a function for each operator; one that cannot do it says so,
and the node runs as a call of Python, which explain() shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from dlprim import _core
from dlprim.graph.extents import Recorded, derived
from dlprim.graph.graph import Array, Graph, Node, Value, parted_nodes
from dlprim.graph.lowering.formulas import geometry_of
from dlprim.graph.lowering.functions import called
from dlprim.graph.lowering.layouts import activations, block_shape_of, blocked_values
from dlprim.graph.lowering.place import Place, in_blocks, inverse, order_of
from dlprim.graph.lowering.sharing import in_c_order, shared
from dlprim.graph.lowering.states import States, with_late_changes
from dlprim.graph.operators.formulas import compiled
from dlprim.graph.passes.draft import CompileError
from dlprim.graph.recording import Recording

# Attributes of nodes that run in pieces, and what makes their steps.
_IN_PIECES = ("pieces", "images")

# Makes steps of a node, or says False and has made none.
Lower = Callable[["Lowering", Node], bool]


class Form(NamedTuple):
    """How a value lies in memory of its own: in blocks of channels, or in an order of its axes."""

    groups: int = 0  # that blocks do not cross; 0: no blocks
    order: tuple[int, ...] = ()


class Lowering:
    """A network in the making.

    Attributes
    ----------
    network : _core.Network, or a recorded one
    graph : Graph
    blocked : dict of Value to int
        As `blocked_values` says.
    chains : dict of (str, int, int) to list of Node
        Nodes that run in pieces, by the attribute that says so.
    called : set of Node
        Where states change, those that run as calls of Python.
    shared : dict of tuple to int
        Values of the network that steps of several nodes read, by what they are.

    With ``pause`` the network has two parts, as `parted_nodes` says.
    """

    def __init__(
        self,
        graph: Graph,
        lowers: dict[str, Lower],
        recording: Recording | None = None,
        blocked: dict[Value, int] | None = None,
        first: Collection[Node] = (),
        pause: tuple[int, int] | None = None,
    ) -> None:
        self.network: Any = recording.new(_core.Network) if recording else _core.Network()
        self.graph = graph = with_late_changes(graph, first)
        self._pause = pause
        self._states = States(graph, first)
        self._node: Node | None = None  # whose steps are being made, alone
        self.called: set[Node] = set()
        self._recording = recording
        self.blocked = blocked_values(graph, blocked or {})
        self.readers = graph.readers()
        self.chains: dict[tuple[str, int, int], list[Node]] = {}
        for kind, node in product(_IN_PIECES, graph.nodes):
            if kind in node.attributes:
                self.chains.setdefault((kind, *node.attributes[kind]), []).append(node)
        self.shared: dict[tuple[Any, ...], int] = {}
        self._lowers = lowers
        self._places: dict[Value, Place] = {}
        self._dense: dict[Value, Place] = {}
        self._blocks: dict[tuple[Value, int], int] = {}
        self._views: dict[Place, int] = {}
        self._next: dict[Value, Place] = {}  # where states lie, as what they become

    def run(self) -> None:
        """Makes all steps."""
        for value in self.graph.inputs:
            changes = value in self._states.changing
            make = self.network.state if changes else self.network.input
            root = make(value.shape, value.dtype, value.name)
            if changes:
                self._states.begin(value, root)
            self.put(value, Place.dense(root, value.shape, value.dtype))
        first, rest = parted_nodes(self.graph, self._pause)
        self._make_steps(first)
        results = 0 if self._pause is None else self._pause[1]
        outputs = [self._apart(value) for value in self.graph.outputs[:results]]
        if self._pause is not None:
            self.network.pause(*self._pause)
        self._make_steps(rest)
        outputs += [self._apart(value) for value in self.graph.outputs[results:]]
        self._change_states()
        self.network.finish([self.number(it) for it in outputs])

    def _apart(self, value: Value) -> Place:
        """Where the value is in C order, outside of what states were before they change."""
        place = self.dense(value)
        if not self._states.lies_in_one(place):
            return place
        made = self.new(place.shape, place.dtype)
        self.network.copy(self.number(place), self.number(made), f"{value.name} as it was")
        return made

    def _change_states(self) -> None:
        """Copies to states what was not made where they lie."""
        left = [
            (state, self._apart(value))
            for state, value in self._states.changing.items()
            if state not in self._next or self._places.get(value) != self._next[state]
        ]
        for state, place in left:
            became = self._next_of(state)
            self.network.copy(self.number(place), self.number(became), f"{state.name} changed")

    def _next_of(self, state: Value) -> Place:
        if state not in self._next:
            root = self.network.next_of(self.place(state).root)
            self._next[state] = Place.dense(root, state.shape, state.dtype)
        return self._next[state]

    def landing(self, value: Value, replaced: Value | None = None) -> Place | None:
        """Where the node at hand makes what a state becomes, which is the state's own place.

        None where the value is nothing of that kind, or where somebody still reads the state: but
        for the node itself, if it writes each element of ``replaced`` after it has read it.
        """
        node = self._node
        state = None if node is None else self._states.state_for(value, node, replaced)
        return None if state is None or state in self._next else self._next_of(state)

    def _make_steps(self, nodes: Sequence[Node]) -> None:
        """Of nodes, in an order in which they can run."""
        for node in nodes:
            kind = next((it for it in _IN_PIECES if it in node.attributes), None)
            self._node = None
            try:
                if kind is not None:
                    self._lowers[kind](self, node)
                else:
                    self.lower_alone(node)
            except MemoryError:
                raise
            except Exception as error:
                place = f"the steps of node {node.operator} '{node.name}' cannot be made"
                raise CompileError.at(place, error) from error

    def lower_alone(self, node: Node) -> None:
        """Makes steps of a node by its operator; none where there is nothing to compute."""
        self._node = node
        if all(0 in value.shape for value in node.outputs):
            for value in node.outputs:
                self.result(value)
            return
        lower = self._lowers.get(node.operator)
        if lower is None or not lower(self, node):
            self._call(node)

    def network_of(self, graph: Graph) -> Any:
        """The network of another graph."""
        lowering = Lowering(graph, self._lowers, self._recording)
        lowering.run()
        return lowering.network

    def fixed_network_of(self, graph: Graph) -> Any:
        """The same, of a graph in which no extent of this one is."""
        lowering = Lowering(graph, self._lowers)
        lowering.run()
        return lowering.network

    def part(self, graph: Graph, form: Form) -> tuple[Any, Form]:
        """The network of a graph of one input, which has a form, and the form of its output."""
        (x,), (y,) = graph.inputs, graph.outputs
        blocked = {x: form.groups} if form.groups else None
        part = Lowering(graph, self._lowers, self._recording, blocked)
        shape = part._shape_in(x, form)
        part._put_held(x, form, part.network.input(shape, x.dtype, x.name))
        part._make_steps(part.graph.nodes)
        made = part.form(y)
        part.network.finish([part.held(y, made)])
        return part.network, made

    # ------------------------------------------------------------ forms

    def form(self, value: Value) -> Form:
        """How the value lies, or how a copy of it would."""
        groups = next((groups for it, groups in self._blocks if it is value), 0)
        if groups and value not in self._places:
            return Form(groups)
        order = order_of(self.place(value))
        axes = tuple(range(len(value.shape)))
        return Form(0, order if order and order[0] == 0 else axes)

    def held(self, value: Value, form: Form) -> int:
        """All of the value in this form, as a value of the network."""
        if form.groups:
            return self.blocks(value, form.groups)
        place = self.place(value).transposed(form.order)
        return self.number(place if place.is_dense else self.dense(value))

    def new_held(self, value: Value, form: Form) -> int:
        """Memory for a value that is made in this form."""
        number: int = self.network.temporary(self._shape_in(value, form), value.dtype)
        self._put_held(value, form, number)
        return number

    def _shape_in(self, value: Value, form: Form) -> tuple[int, ...]:
        if form.groups:
            return self.block_shape(value, form.groups)
        return tuple(value.shape[axis] for axis in form.order)

    def _put_held(self, value: Value, form: Form, number: int) -> None:
        if form.groups:
            return self.put_blocks(value, form.groups, number)
        place = Place.dense(number, self._shape_in(value, form), value.dtype)
        self.put(value, place.transposed(inverse(form.order)))

    # ------------------------------------------------------------ places

    def put(self, value: Value, place: Place) -> None:
        """Says where a value is, plainly."""
        self._places[value] = place
        self._states.see(value, place)

    def put_blocks(self, value: Value, groups: int, number: int) -> None:
        """Says which value of the network has the value in blocks."""
        self._blocks[value, groups] = number

    def may_change(self, value: Value) -> bool:
        """Whether the value lies in a state, which a later step may write."""
        return self._states.lies_in_one(self.place(value))

    def is_made(self, value: Value) -> bool:
        """Whether a step makes the value by now, plainly."""
        return value in self._places

    def place(self, value: Value) -> Place:
        """Where the value is plainly, with any strides."""
        if value not in self._places:
            self._places[value] = self._constant(value) or self._unpacked(value)
        return self._places[value]

    def dense(self, value: Value) -> Place:
        """Where the value is in C order: a copy of it where it is not."""
        place = self._dense.get(value, self.place(value))
        place = self.in_c_order(place, f"{value.name} in C order")
        self._dense[value] = place
        return place

    def in_c_order(self, place: Place, label: str) -> Place:
        """The place, or a copy of it in C order."""
        if place.is_dense:
            return place
        made = self.new(place.shape, place.dtype)
        self.network.copy(self.number(place), self.number(made), label)
        return made

    def number(self, place: Place) -> int:
        """The place as a value of the network."""
        if place not in self._views:
            self._views[place] = self.network.view(
                place.root, place.shape, place.dtype, place.strides, place.offset
            )
        return self._views[place]

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Place:
        """A new piece of memory."""
        return Place.dense(self.network.temporary(shape, dtype), shape, dtype)

    def result(self, value: Value) -> Place:
        """Memory for a value that is made plainly."""
        place = self.landing(value) or self.new(value.shape, value.dtype)
        self.put(value, place)
        return place

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a function without effects gives, of arguments that may depend on extents."""
        if self._recording is None:
            return function(*arguments, **named)
        return self._recording.call(function, *arguments, **named)

    def constant(self, array: Array) -> int:
        """A constant of the network, whose memory all networks share that have an equal one."""
        if not isinstance(array, Recorded):
            # In a file elements lie at any byte.
            array = shared(array if array.flags.aligned else np.require(array, None, ["A"]))
        number: int = self.network.constant(array)
        return number

    # ------------------------------------------------------------ blocks of channels

    def block_shape(self, value: Value, groups: int) -> tuple[int, ...]:
        """Of the blocked form of (N, C, H, W)."""
        return block_shape_of(value, groups)

    def new_blocks(self, value: Value, groups: int) -> int:
        """Memory for a value that is made in blocks."""
        number: int = self.network.temporary(self.block_shape(value, groups), value.dtype)
        self.put_blocks(value, groups, number)
        return number

    def blocks(self, value: Value, groups: int) -> int:
        """The value in blocks: reordered where it is not."""
        if (value, groups) not in self._blocks:
            form = self.call(activations, value.shape, groups, value.dtype.name)
            array, shape = self.graph.constants.get(value), self.block_shape(value, groups)
            if array is not None:
                packed = form.pack("packed", value.name, np.require(array, None, ["C", "A"]), None)
                number = self.constant(packed)
            elif (place := in_blocks(self.place(value), shape)) is not None:
                number = self.number(self.in_c_order(place, f"{value.name} in blocks"))
            else:
                number = self.network.temporary(shape, value.dtype)
                source = self.number(self.dense(value))
                self.network.pack(form, "packed", source, number, f"{value.name} in blocks")
            self._blocks[value, groups] = number
        return self._blocks[value, groups]

    def split(self, value: Value) -> Place | None:
        """Where a value that is in blocks alone is: as (N, blocks, channels of a block, H, W).

        None where it lies plainly, too, or where a block is not whole.
        """
        if value in self._places or value in self.graph.constants:
            return None
        for (it, groups), number in self._blocks.items():
            if it is value:
                shape = self.block_shape(value, groups)
                place = Place.dense(number, shape, value.dtype).transposed((0, 1, 4, 2, 3))
                return place if shape[1] * shape[4] == value.shape[1] else None
        return None

    def _unpacked(self, value: Value) -> Place:
        (groups, number) = next(
            (groups, number) for (it, groups), number in self._blocks.items() if it is value
        )
        form = self.call(activations, value.shape, groups, value.dtype.name)
        place = self.new(value.shape, value.dtype)
        self.network.unpack(form, "packed", number, self.number(place), f"{value.name} plain")
        return place

    def _constant(self, value: Value) -> Place | None:
        array = self.graph.constants.get(value)
        if array is None:
            return None
        array = derived(in_c_order, array, value.dtype).reshape(value.shape)
        return Place.dense(self.constant(array), value.shape, value.dtype)

    # ------------------------------------------------------------ steps

    def formula(
        self,
        text: str,
        operands: Sequence[Place],
        result: Place | Sequence[Place],
        label: str,
        elementwise: bool = False,
    ) -> bool:
        """A step for a definition; False where it cannot be compiled for these places.

        One that is elementwise reads each element of operands that lie like the result where it
        writes it, and nowhere else.
        """
        geometries = tuple(map(geometry_of, operands))
        results = [result] if isinstance(result, Place) else result
        try:
            formula = self.call(compiled, text, geometries, tuple(it.dtype.name for it in results))
        except ValueError:
            return False
        numbers = [self.number(it) for it in operands]
        replaced = [
            number
            for number, place in zip(numbers, operands, strict=True)
            if elementwise and len(results) == 1 and self._is_state_of(results[0], place)
        ]
        made = [self.number(it) for it in results]
        self.network.formula(formula, numbers, made, label, replaced)
        return True

    def _is_state_of(self, result: Place, place: Place) -> bool:
        """Whether the place is a state that becomes the result, element by element."""
        for state, it in self._next.items():
            if it.root == result.root:
                return self.place(state).root == place.root and result == replace(
                    place, root=it.root
                )
        return False

    def _call(self, node: Node) -> None:
        """Runs a function of Python."""
        if self._states.changing:
            self.called.add(node)
        present = [place for place, value in enumerate(node.inputs) if value is not None]
        inputs = [self.number(self.dense(value)) for value in node.operands]
        outputs = [self.number(self.result(value)) for value in node.outputs]
        what = (node.operator, dict(node.attributes))
        function = self.call(partial, called, what, present, len(node.inputs))
        label = node.attributes["function"] if node.operator == "call" else node.operator
        self.network.call(function, inputs, outputs, f"{label} {node.name}")
