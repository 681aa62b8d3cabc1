"""One row of the convolution benchmark: operands, and every side that computes with them.

Operands are random: zeros would run at another clock. Every pass is verified against float64
before it is timed.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import conv_exact
import dlprim
from conv_exact import Layer, Plain
from torch_peer import tensor_on

PASSES = ("forward", "backward_data", "backward_weights")
# Forward with weights that Winograd's pass transforms in the call, as in a training step.
TRANSFORMING = "forward_transforming"
PLAIN_PASSES = ("forward", "backward")

Call = Callable[[], object]


def load_layers(path: Path) -> list[Layer]:
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [Layer(**{key: int(value) for key, value in row.items()}) for row in rows]


def random_operands(layer: Layer, batch: int, dtype: str) -> Plain:
    random = np.random.default_rng(layer.id)
    shapes = (layer.x_shape(batch), layer.w_shape, layer.y_shape(batch))
    values = (random.standard_normal(shape, np.float32) for shape in shapes)
    return Plain(*(dlprim.to_bfloat16(v) if dtype == "bfloat16" else v for v in values))


class PrimitiveCase:
    """Conv2d on packed operands and results, against PyTorch on channels-last tensors."""

    def __init__(self, layer: Layer, batch: int, dtype: str, layout: str) -> None:
        self.layer, self.dtype, self.name = layer, dtype, f"{layer} {dtype} {layout}"
        self.plain = random_operands(layer, batch, dtype)
        self.conv = conv = dlprim.Conv2d(
            layer.x_shape(batch), layer.w_shape, layer.stride, layer.pad,
            groups=layer.groups, dtype=dtype, layout=layout,
        )  # fmt: skip
        self.src, self.weights = conv.pack_src(self.plain.x), conv.pack_weights(self.plain.w)
        self.direct_weights = conv.pack_weights(self.plain.w, form="direct")
        self.diff_dst = conv.pack_diff_dst(self.plain.dy)

    def flops(self, which: str) -> float:
        return self.conv.flops

    def schedule(self, which: str) -> str | None:
        return self.conv.schedules.get(which.removesuffix("_transforming"))

    def algorithm(self, which: str) -> str | None:
        return self.conv.algorithms[which.removesuffix("_transforming")]

    def ours(self, which: str) -> Call:
        """A call of the pass into a result that is there already."""
        conv = self.conv
        if which in ("forward", TRANSFORMING):
            weights = self.weights if which == "forward" else self.direct_weights
            dst = conv.forward(self.src, weights)
            return lambda: conv.forward(self.src, weights, out=dst)
        if which == "backward_data":
            diff_src = conv.backward_data(self.diff_dst, self.weights)
            return lambda: conv.backward_data(self.diff_dst, self.weights, out=diff_src)
        diff_weights = conv.backward_weights(self.src, self.diff_dst)
        return lambda: conv.backward_weights(self.src, self.diff_dst, out=diff_weights)

    def theirs(self, which: str, torch: Any) -> Call:
        tensors = [_tensor(torch, array, channels_last=True) for array in self.plain]
        mask = (which == "backward_data", which == "backward_weights", False)
        return _torch_call(torch, self.layer, tensors, mask)

    def theirs_prepared(self, which: str, torch: Any) -> Call | None:
        """The forward pass with weights that oneDNN packed before, as compiled models have them.

        A plain call packs them anew, which is more than half of the time of some 1x1 layers.
        """
        if which != "forward" or not hasattr(torch.ops.mkldnn, "_reorder_convolution_weight"):
            return None
        x, w, _ = (_tensor(torch, array, channels_last=True) for array in self.plain)
        settings = [[self.layer.pad] * 2, [self.layer.stride] * 2, [1, 1], self.layer.groups]
        try:
            packed = torch.ops.mkldnn._reorder_convolution_weight(w, *settings, list(x.shape))
        except RuntimeError:  # bfloat16 on a CPU that its oneDNN has no code for
            return None
        pointwise = torch.ops.mkldnn._convolution_pointwise
        return lambda: pointwise(x, packed, None, *settings, "none", [], "")

    def verify(self, which: str) -> None:
        result = self.ours(which)()
        unpack = {
            "forward": self.conv.unpack_dst,
            TRANSFORMING: self.conv.unpack_dst,
            "backward_data": self.conv.unpack_diff_src,
            "backward_weights": self.conv.unpack_diff_weights,
        }[which]
        kind = which.removesuffix("_transforming")
        conv_exact.verify(self.name, kind, self.layer, self.plain, unpack(result))


class FunctionCase:
    """conv2d and conv2d_backward on plain arrays, against PyTorch on the same arrays."""

    def __init__(self, layer: Layer, batch: int, dtype: str, layout: str) -> None:
        self.layer, self.dtype, self.name = layer, dtype, f"{layer} {dtype} {layout}"
        self.plain = random_operands(layer, batch, dtype)
        self.channels_last = layout == "NHWC"
        self.x, self.dy = (self._laid_out(each) for each in (self.plain.x, self.plain.dy))
        self.settings: dict[str, Any] = {
            "stride": layer.stride,
            "padding": layer.pad,
            "groups": layer.groups,
            "layout": layout,
        }
        y_size = self.plain.dy.size
        self.forward_flops = 2.0 * y_size * layer.C // layer.groups * layer.R * layer.S

    def _laid_out(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if self.channels_last else array

    def flops(self, which: str) -> float:
        return self.forward_flops * (1 if which == "forward" else 2)

    def schedule(self, which: str) -> str | None:
        """The functions have none of their own."""
        return None

    def algorithm(self, which: str) -> str | None:
        return None

    def ours(self, which: str) -> Call:
        x, w, dy = self.x, self.plain.w, self.dy
        if which == "forward":
            return lambda: dlprim.conv2d(x, w, **self.settings)
        return lambda: dlprim.conv2d_backward(dy, x, w, **self.settings)

    def theirs(self, which: str, torch: Any) -> Call:
        tensors = [_tensor(torch, array, self.channels_last) for array in self.plain]
        return _torch_call(torch, self.layer, tensors, (which == "backward",) * 3)

    def theirs_prepared(self, which: str, torch: Any) -> Call | None:
        """The functions prepare nothing, on either side."""
        return None

    def verify(self, which: str) -> None:
        result: Any = self.ours(which)()
        results = {"forward": result}
        if which == "backward":
            results = {"backward_data": result[0], "backward_weights": result[1]}
        for name, value in results.items():
            if self.channels_last and name != "backward_weights":
                value = value.transpose(0, 3, 1, 2)
            conv_exact.verify(self.name, name, self.layer, self.plain, value)


def _tensor(torch: Any, array: np.ndarray, channels_last: bool) -> Any:
    tensor = tensor_on(torch, array)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return tensor.contiguous(memory_format=layout)


def _torch_call(torch: Any, layer: Layer, tensors: list[Any], mask: tuple[bool, ...]) -> Call:
    """The forward pass where the mask asks for no gradient of x, w or bias."""
    x, w, dy = tensors
    pairs = [[layer.stride] * 2, [layer.pad] * 2, [1, 1]]
    if not any(mask):
        conv2d = torch.nn.functional.conv2d
        return lambda: conv2d(x, w, None, *pairs, layer.groups)
    backward = torch.ops.aten.convolution_backward
    bias_sizes = [layer.K] if mask[2] else None
    return lambda: backward(
        dy, x, w, bias_sizes, *pairs, False, [0, 0], layer.groups, list(mask)
    )  # fmt: skip
