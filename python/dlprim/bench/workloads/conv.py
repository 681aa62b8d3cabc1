"""Convolution layer by layer: every pass, type and layout, against PyTorch and its oneDNN.

Primitives have packed operands, PyTorch channels-last tensors; with ``plain`` both have plain
arrays, and the functions that pack them are measured. PyTorch packs weights in every call, which is
more than half of the time of some 1x1 layers; the side ``onednn`` has them packed before, as
dlprim's are. Where Winograd runs a pass, ``direct`` is the plain sum. Fractions of the peak count
the operations of the direct sum, taps in the padding included, in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers, tables
from dlprim.bench.measuring.case import Case, Row, UnavailableError
from dlprim.bench.measuring.timing import Call
from dlprim.bench.settings import Settings
from dlprim.bench.workloads import volumes
from dlprim.bench.workloads.conv_exact import Layer, Plain, verify

PASSES = ("forward", "backward_data", "backward_weights")
# Forward with weights that Winograd's pass transforms in the call, as in a training step.
TRANSFORMING = "forward_transforming"
PLAIN_PASSES = ("forward", "backward")
_COLUMNS = ("id", "C", "K", "H", "W", "R", "S", "stride", "pad", "count")
_QUICK = ("3", "8", "12", "18")  # of ResNet-50: 1x1, and 3x3 of three sizes
_BATCH = 8


def load_layers(path: Path) -> list[Layer]:
    """Raises `TableError`."""
    with_groups = tables.read(path, _COLUMNS)[0].keys() >= {"groups"}
    columns = (*_COLUMNS, "groups") if with_groups else _COLUMNS
    return [Layer(**row) for row in tables.integers(path, columns)]


def rows(settings: Settings) -> Iterator[Row]:
    """Of every table, layout, pass, layer and type."""
    for path in settings.tables("conv", "resnet50"):
        if "kind" in tables.read(path, ())[0]:
            yield from volumes.rows(path, settings)
            continue
        layouts = settings.layouts or (("NCHW",) if settings.plain else ("blocked",))
        passes = settings.passes or (PLAIN_PASSES if settings.plain else PASSES)
        layers = [
            it
            for it in load_layers(path)
            if settings.wanted(it.id)
            and (not settings.quick or settings.rows or settings.shapes or str(it.id) in _QUICK)
        ]
        network = path.stem.removesuffix("_conv")
        for layout in layouts:
            for which in passes:
                for dtype in settings.types("float32", "bfloat16"):
                    for layer in layers:
                        make = partial(_case, layer, which, dtype, layout, settings)
                        group = f"{network} {which} {layout}"
                        yield Row(group, f"{layer.id} {layer}", dtype, make, layer.count)


def _case(layer: Layer, which: str, dtype: str, layout: str, settings: Settings) -> Case:
    batch = (settings.batches or (1 if settings.brief else _BATCH,))[0]
    if settings.plain:
        return FunctionCase(layer, batch, dtype, layout).case(which, settings.threads)
    primitive = PrimitiveCase(layer, batch, dtype, layout, settings.algorithm)
    return primitive.case(which, settings.threads)


def random_operands(layer: Layer, batch: int, dtype: str) -> Plain:
    random = np.random.default_rng(layer.id)
    shapes = (layer.x_shape(batch), layer.w_shape, layer.y_shape(batch))
    values = (random.standard_normal(shape, np.float32) for shape in shapes)
    return Plain(*(dlprim.to_bfloat16(v) if dtype == "bfloat16" else v for v in values))


class PrimitiveCase:
    """Conv2d on packed operands and results, against PyTorch on channels-last tensors."""

    def __init__(
        self, layer: Layer, batch: int, dtype: str, layout: str, algorithm: str = "auto"
    ) -> None:
        self.layer, self.dtype, self.name = layer, dtype, f"{layer} {dtype} {layout}"
        self.plain = random_operands(layer, batch, dtype)
        self.layout = layout
        self.conv, self.weights = self._packed(algorithm)
        conv = self.conv
        self.src, self.diff_dst = conv.pack_src(self.plain.x), conv.pack_diff_dst(self.plain.dy)
        self.direct_weights = conv.pack_weights(self.plain.w, form="direct")

    def _packed(self, algorithm: str) -> tuple[dlprim.Conv2d, np.ndarray]:
        layer = self.layer
        conv = dlprim.Conv2d(
            self.plain.x.shape, layer.w_shape, layer.stride, layer.pad, groups=layer.groups,
            dtype=self.dtype, layout=self.layout, algorithm=algorithm,
        )  # fmt: skip
        return conv, conv.pack_weights(self.plain.w)

    def ours(self, which: str) -> Call:
        """A call of the pass into a result that is there already."""
        transforms = which == TRANSFORMING
        weights = self.direct_weights if transforms else self.weights
        return self._call(self.conv, weights, which)

    def _call(self, conv: dlprim.Conv2d, weights: np.ndarray, which: str) -> Call:
        src, diff_dst = self.src, self.diff_dst
        if which in ("forward", TRANSFORMING):
            dst = conv.forward(src, weights)
            return lambda: conv.forward(src, weights, out=dst)
        if which == "backward_data":
            diff_src = conv.backward_data(diff_dst, weights)
            return lambda: conv.backward_data(diff_dst, weights, out=diff_src)
        diff_weights = conv.backward_weights(src, diff_dst)
        return lambda: conv.backward_weights(src, diff_dst, out=diff_weights)

    def direct(self, which: str) -> Call:
        """The same, without Winograd."""
        return self._call(*self._packed("direct"), which)

    def verify(self, which: str) -> None:
        result: Any = self.ours(which)()
        unpack = {
            "forward": self.conv.unpack_dst,
            TRANSFORMING: self.conv.unpack_dst,
            "backward_data": self.conv.unpack_diff_src,
            "backward_weights": self.conv.unpack_diff_weights,
        }[which]
        kind = which.removesuffix("_transforming")
        verify(self.name, kind, self.layer, self.plain, unpack(result))

    def case(self, which: str, threads: int) -> Case:
        kind = which.removesuffix("_transforming")
        algorithm, schedule = self.conv.algorithms[kind], self.conv.schedules.get(kind)
        sides: dict[str, Callable[[], Call]] = {
            "torch": lambda: torch_call(self.layer, self.plain, _mask(kind), threads)
        }
        if kind == "forward":
            sides["onednn"] = lambda: _prepared(self.layer, self.plain, threads)
        if algorithm and algorithm.startswith("winograd"):
            sides["direct"] = lambda: self.direct(kind)
        notes = {"algorithm": algorithm, "schedule": schedule}
        check = partial(verify, self.name, kind, self.layer, self.plain)
        return Case(
            self.ours(which), partial(self.verify, which), sides,
            lambda result: check(_as_array(result, kind)), self.conv.flops,
            _traffic(self.plain, kind), peak_dtype=self.dtype,
            notes={name: it for name, it in notes.items() if it},
        )  # fmt: skip


class FunctionCase:
    """conv2d and conv2d_backward on plain arrays, against PyTorch on the same arrays."""

    def __init__(self, layer: Layer, batch: int, dtype: str, layout: str) -> None:
        self.layer, self.dtype, self.name = layer, dtype, f"{layer} {dtype} {layout}"
        self.plain = random_operands(layer, batch, dtype)
        self.channels_last = layout == "NHWC"
        self.x, self.dy = (self._laid_out(each) for each in (self.plain.x, self.plain.dy))
        self.settings: dict[str, Any] = {
            "stride": layer.stride, "padding": layer.pad, "groups": layer.groups, "layout": layout,
        }  # fmt: skip

    def _laid_out(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if self.channels_last else array

    def ours(self, which: str) -> Call:
        x, w, dy = self.x, self.plain.w, self.dy
        if which == "forward":
            return lambda: dlprim.conv2d(x, w, **self.settings)
        return lambda: dlprim.conv2d_backward(dy, x, w, **self.settings)

    def verify(self, which: str) -> None:
        result: Any = self.ours(which)()
        results = {"forward": result}
        if which == "backward":
            results = {"backward_data": result[0], "backward_weights": result[1]}
        for name, value in results.items():
            if self.channels_last and name != "backward_weights":
                value = value.transpose(0, 3, 1, 2)
            verify(self.name, name, self.layer, self.plain, value)

    def case(self, which: str, threads: int) -> Case:
        layer, passes = self.layer, 1 if which == "forward" else 2
        mask = (which == "backward",) * 3
        sides = {"torch": lambda: torch_call(layer, self.plain, mask, threads, self.channels_last)}
        operations = 2.0 * passes * self.plain.dy.size * layer.C // layer.groups * layer.R * layer.S
        return Case(
            self.ours(which), partial(self.verify, which), sides, operations=operations,
            traffic=passes * _traffic(self.plain, "forward"), peak_dtype=self.dtype,
        )  # fmt: skip


def _traffic(plain: Plain, kind: str) -> float:
    """Both operands and the result, once; gradients of weights are float32."""
    sizes = [it.nbytes for it in plain]
    if kind == "backward_weights":
        sizes[1] = 4 * plain.w.size
    return float(sum(sizes))


def _mask(kind: str) -> tuple[bool, bool, bool]:
    return kind == "backward_data", kind == "backward_weights", False


def _as_array(result: Any, kind: str) -> np.ndarray:
    """PyTorch's result of one pass; bfloat16 is rounded once, whatever it holds then."""
    if isinstance(result, tuple | list):
        result = result[1 if kind == "backward_weights" else 0]
    if result.element_size() == 2:
        return dlprim.to_bfloat16(result.detach().float().numpy())
    array: np.ndarray = result.detach().numpy()
    return array


def _tensors(torch: Any, plain: Plain, channels_last: bool) -> list[Any]:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return [peers.tensor_on(torch, it).contiguous(memory_format=layout) for it in plain]


def torch_call(
    layer: Layer, plain: Plain, mask: tuple[bool, ...], threads: int, channels_last: bool = True
) -> Call:
    """PyTorch's forward pass where the mask asks for no gradient of x, w or bias."""
    torch = peers.torch(threads)
    x, w, dy = _tensors(torch, plain, channels_last)
    pairs = [[layer.stride] * 2, [layer.pad] * 2, [1, 1]]
    if not any(mask):
        conv2d = torch.nn.functional.conv2d
        return lambda: conv2d(x, w, None, *pairs, layer.groups)
    backward = torch.ops.aten.convolution_backward
    sizes = [layer.K] if mask[2] else None
    return lambda: backward(dy, x, w, sizes, *pairs, False, [0, 0], layer.groups, list(mask))


def _prepared(layer: Layer, plain: Plain, threads: int) -> Call:
    torch = peers.torch(threads)
    x, w, _ = _tensors(torch, plain, channels_last=True)
    settings = [[layer.pad] * 2, [layer.stride] * 2, [1, 1], layer.groups]
    try:
        packed = torch.ops.mkldnn._reorder_convolution_weight(w, *settings, list(x.shape))
    except (AttributeError, RuntimeError) as error:
        raise UnavailableError("this PyTorch packs no such weights on this CPU") from error
    pointwise = torch.ops.mkldnn._convolution_pointwise
    return lambda: pointwise(x, packed, None, *settings, "none", [], "")
