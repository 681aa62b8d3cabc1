"""Steps for moves: most are only another view; joining copies parts, tables are read by rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dlprim.graph.extents import derived, is_known
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.elements import blocked_operand
from dlprim.graph.lowering.formulas import definition_text, is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place, inverse, order_of
from dlprim.graph.lowering.sharing import mapping_of
from dlprim.graph.lowering.taps import Taps, folded
from dlprim.graph.lowering.windows import lower_image_resample

_LAST = (0, 2, 3, 1)  # axes of images, channels behind pixels
_WIDE_ROW = 16  # elements from which on pairs are faster written row by row
_FEW_TAPS = 4  # of linear and cubic interpolation along one axis


def lower_reshape(to: Lowering, node: Node) -> bool:
    """A view, of a copy where the elements lie so that there is none.

    Channels that are split, or joined, as those of images in blocks, stay in blocks.
    """
    (x,) = node.operands
    groups, split = to.blocked.get(node.output), to.split(x)
    if groups is not None:
        joined = to.place(x).transposed((0, 1, 3, 4, 2))
        joined = to.in_c_order(joined, f"{node.name} in blocks")
        to.put_blocks(node.output, groups, to.number(joined))
        return True
    if split is not None and split.shape == node.output.shape:
        to.put(node.output, split)
        return True
    place = to.place(x).reshaped(node.output.shape) or to.dense(x).reshaped(node.output.shape)
    assert place is not None
    to.put(node.output, place)
    return True


def lower_transpose(to: Lowering, node: Node) -> bool:
    """A view; of images in blocks a copy at most that is channels-last."""
    (x,), axes = node.operands, node.attributes["axes"]
    split = to.split(x)
    if split is not None and axes == _LAST:
        last = to.in_c_order(split.transposed((0, 3, 4, 1, 2)), f"{x.name} channels last")
        place = last.reshaped(node.output.shape)
        assert place is not None
        to.put(node.output, place)
        return True
    to.put(node.output, to.place(x).transposed(axes))
    return True


def lower_expand(to: Lowering, node: Node) -> bool:
    """A view, or images in blocks that repeat one pixel."""
    groups = to.blocked.get(node.output)
    if groups is not None:
        place = blocked_operand(to, node.operands[0], groups)
        whole = place.expanded(to.block_shape(node.output, groups))
        to.network.copy(to.number(whole), to.new_blocks(node.output, groups), f"expand {node.name}")
        return True
    to.put(node.output, to.place(node.operands[0]).expanded(node.output.shape))
    return True


def lower_slice(to: Lowering, node: Node) -> bool:
    """A view."""
    it = node.attributes
    place = to.place(node.operands[0]).sliced(it["starts"], it["counts"], it["steps"])
    is_part = node.operands[0] in to.graph.constants and not is_known(place.shape)
    if is_part and not place.is_dense:
        raise TypeError("a part of a constant whose extents are not known has gaps")
    to.put(node.output, place)
    return True


def lower_concat(to: Lowering, node: Node) -> bool:
    """A copy of each part to its place."""
    axis = node.attributes["axis"] % len(node.output.shape)
    if len({value.dtype for value in node.operands}) > 1:
        return False
    whole, start = to.result(node.output), 0
    for value in node.operands:
        starts = tuple(start if it == axis else 0 for it in range(len(value.shape)))
        part = whole.sliced(starts, value.shape, (1,) * len(value.shape))
        if value.size:
            source = to.number(to.place(value))
            to.network.copy(source, to.number(part), f"concat {node.name}")
        start += value.shape[axis]
    return True


def lower_gather(to: Lowering, node: Node) -> bool:
    """Rows of a table, elements along another axis, or a view where one place is known."""
    x, places = node.operands
    axis = node.attributes["axis"] % len(x.shape)
    known = to.graph.constants.get(places)
    first = 0 if "argument" in node.attributes else -x.shape[axis]
    if known is not None and known.size == 1 and first <= known.item() < x.shape[axis]:
        starts = [known.item() % x.shape[axis] if it == axis else 0 for it in range(len(x.shape))]
        counts = tuple(1 if it == axis else extent for it, extent in enumerate(x.shape))
        taken = to.place(x).sliced(tuple(starts), counts, (1,) * len(counts))
        place = taken.reshaped(node.output.shape)
        if place is not None:
            to.put(node.output, place)
            return True
    if places.dtype.name not in ("int32", "int64") or not node.output.size:
        return False
    indices, result = to.number(to.dense(places)), to.result(node.output)
    octets = _octets_in_file(to, x)
    if octets is None:
        table, dst = to.number(to.dense(x)), to.number(result)
    else:
        table, dst = to.constant(octets), to.number(_as_octets(result))
    argument = node.attributes.get("argument", "")
    to.network.gather(table, indices, dst, f"gather {node.name}", axis, argument)
    return True


def _octets_in_file(to: Lowering, table: Value) -> Array | None:
    """The bytes of each element where these lie in a file at any byte: rows are read from there."""
    array = to.graph.constants.get(table)
    if array is None or array.dtype != table.dtype or mapping_of(array) is None:
        return None
    if array.flags.aligned or not array.flags.c_contiguous:
        return None
    return array.reshape(*table.shape, 1).view(np.uint8)


def _as_octets(place: Place) -> Place:
    shape, strides = (*place.shape, place.dtype.itemsize), (*place.strides, 1)
    return replace(place, shape=shape, strides=strides, dtype=np.dtype(np.uint8))


def lower_resample(to: Lowering, node: Node) -> bool:
    """Of images in blocks their own step, elsewhere a statement that sums listed elements."""
    x, places, weights = node.operands
    axis = node.attributes["axis"] % len(x.shape)
    if not is_computed(x.dtype, weights.dtype) or places not in to.graph.constants:
        return False
    if node.output in to.blocked:
        lower_image_resample(to, node)
        return True
    if _repeats(to, node) or _lower_regular(to, node):
        return True
    order = _order_of_rows(to.place(x), axis)
    source = to.in_c_order(to.place(x).transposed(order), f"{x.name} in rows")
    result = to.new(tuple(node.output.shape[it] for it in order), x.dtype)
    statement = _sum_of_taps([f"i{it}" for it in order], f"i{axis}", places.shape[1])
    operands = [source, to.dense(places), to.dense(weights)]
    text = definition_text(
        [("x", source.shape), ("at", places.shape), ("by", weights.shape)], [statement]
    ).replace(f"float({_listed(places.shape)}) at", f"int64({_listed(places.shape)}) at")
    if not to.formula(text, operands, result, f"resample {node.name}"):
        return False
    to.put(node.output, result.transposed(inverse(order)))
    return True


def _repeats(to: Lowering, node: Node) -> bool:
    """One copy of a view where each element only follows itself some times, along several axes that
    nodes before this one repeat."""
    if not _times(to, node):
        return False
    if _is_repeated_again(to, node):
        return True
    x, times, makers = node.output, [1] * len(node.output.shape), to.graph.makers()
    while x is node.output or _waits(to, makers.get(x), node):
        times[makers[x].attributes["axis"] % len(times)] *= _times(to, makers[x])
        x = makers[x].operands[0]
    made, label = to.new(node.output.shape, x.dtype), f"resample {node.name}"
    source, result = _spread(to.place(x), times), _spread(made, times, True)
    to.network.copy(to.number(source), to.number(result), label)
    to.put(node.output, made)
    return True


def _waits(to: Lowering, maker: Node | None, node: Node) -> bool:
    """Whether what a node repeats is repeated itself, and no step has made it."""
    if maker is None or maker.operator != node.operator:
        return False
    return not to.is_made(maker.output) and maker.output not in to.blocked


def _spread(place: Place, times: Sequence[int], is_result: bool = False) -> Place:
    """With an axis behind each along which elements repeat, or of a result lie."""
    shape, strides = [], []
    for extent, stride, count in zip(place.shape, place.strides, times, strict=True):
        shape += [extent // count if is_result else extent, count]
        strides += [stride * count, stride] if is_result else [stride, 0]
    return replace(place, shape=tuple(shape), strides=tuple(strides))


def _times(to: Lowering, node: Node) -> int:
    """How often each element follows itself, 0 where it is not just that."""
    x, places, weights = node.operands
    at, by = (to.graph.constants.get(it) for it in (places, weights))
    extent = x.shape[node.attributes["axis"] % len(x.shape)]
    if at is None or by is None or not derived(_follows, extent, at, by):
        return 0
    times: int = at.shape[0] // extent
    return times


def _is_repeated_again(to: Lowering, node: Node) -> bool:
    """Whether another node that repeats elements is all that reads the result."""
    (y,), readers = node.outputs, to.readers.get(node.output, ())
    if len(readers) != 1 or y in to.graph.results:
        return False
    (reader,) = readers
    is_same = reader.operator == node.operator and reader.operands[0] is y
    if not is_same or "pieces" in reader.attributes or reader.output in to.blocked:
        return False
    if _waits(to, to.graph.makers().get(node.operands[0]), node):
        return False  # two at a time
    # Pairs and triples of words have a kernel. A state may change before the second one reads it.
    x, along = node.operands[0], [it.attributes["axis"] % len(y.shape) for it in (node, reader)]
    times = dict(zip(along, (_times(to, node), _times(to, reader)), strict=True))
    is_wide = y.dtype == np.float32 and x.shape[-1] >= _WIDE_ROW
    has_kernel = (
        len(times) == 2 and times.get(len(y.shape) - 1) in (2, 3) and min(times.values()) > 0
    )
    return is_wide and has_kernel and not to.may_change(x)


def _lower_regular(to: Lowering, node: Node) -> bool:
    """Where the same taps are read at one distance everywhere, which is not that of neighbours."""
    x, places, weights = node.operands
    at, by = (to.graph.constants.get(it) for it in (places, weights))
    axis = node.attributes["axis"] % len(x.shape)
    if at is None or by is None or not node.output.size:
        return False
    first, stride, dilation = derived(_distances, at)
    if stride < 2 or first < 0:
        return False
    taps = Taps(at.shape[0], stride, at.shape[1], dilation, derived(_by_tap, by))
    place, counts = to.place(x), list(x.shape)
    counts[axis] = taps.width if taps.width <= x.shape[axis] - first else taps.reach
    starts = tuple(first if it == axis else 0 for it in range(len(counts)))
    part = place.sliced(starts, tuple(counts), (1,) * len(counts))
    is_row = place.strides[axis] == place.dtype.itemsize
    if not taps.is_written or (is_row and counts[axis] != taps.width):
        return False
    made = folded(to, part, axis, taps, f"resample {node.name}", x.dtype)
    if made is None:
        return False
    to.put(node.output, made)
    return True


def _distances(at: Array) -> tuple[int, int, int]:
    """The first place, and how far it is to the next result and the next tap; -1 if that varies."""
    results, taps = at.shape
    first = int(at[0, 0])
    stride = int(at[1, 0]) - first if results > 1 else 1
    dilation = max(1, int(at[0, 1]) - first) if taps > 1 else 1
    regular = first + stride * np.arange(results)[:, None] + dilation * np.arange(taps)
    return (first, stride, dilation) if np.array_equal(at, regular) else (-1, -1, 1)


def _by_tap(by: Array) -> Array:
    return np.ascontiguousarray(by.T, np.float32)


def _follows(extent: int, at: Array, by: Array) -> bool:
    """Whether there is one tap everywhere, of weight 1, and each element as often as any other."""
    if at.shape[1] != 1:
        return False
    places = np.repeat(np.arange(extent), at.shape[0] // extent)
    return bool(np.array_equal(at[:, 0], places) and np.all(by == 1))


def _sum_of_taps(letters: list[str], along: str, taps: int) -> str:
    """A few taps in one pass, more of them added to the result one by one."""

    def tap(number: str) -> str:
        read = [f"at({it},{number})" if it == along else it for it in letters]
        return f"by({along},{number}) * x({','.join(read)})"

    is_few = taps <= _FEW_TAPS
    total = " + ".join(tap(str(number)) for number in range(taps)) if is_few else tap("t")
    return f"y({','.join(letters)}) {'=' if is_few else '+=!'} {total}"


def _order_of_rows(place: Place, axis: int) -> tuple[int, ...]:
    """The order in which axes lie, but with some other axis last: places are read one by one, and
    what lies side by side at each of them as vectors."""
    order = list(order_of(place) or range(len(place.shape)))
    wide = [it for it in order if place.shape[it] != 1]
    if len(wide) > 1 and wide[-1] == axis:
        order.remove(axis)
        order.insert(order.index(wide[-2]), axis)
    return tuple(order)


def _listed(shape: tuple[int, ...]) -> str:
    return ",".join(map(repr, shape))
