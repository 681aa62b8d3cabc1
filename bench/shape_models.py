"""Networks whose inputs have extents that differ from call to call, made as ONNX models.

Each function gives a model with random weights, and what makes inputs for an extent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Feed = Callable[[int], dict[str, Any]]


class _Draft:
    """Nodes and arrays of a model; `add` gives the name of what the node makes."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.arrays: dict[str, Any] = {}

    def add(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, array: Any) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.asarray(array)
        return name

    def weights(self, *shape: int, fan: int) -> str:
        return self.constant(self.random.standard_normal(shape, np.float32) * fan**-0.5)

    def conv(
        self, x: str, channels: tuple[int, int], size: int, stride: int = 1, pad: int | None = None
    ) -> str:
        """With a bias, as norms are exported."""
        inputs, filters = channels
        fan = inputs * size * size
        arrays = [self.weights(filters, inputs, size, size, fan=fan), self.weights(filters, fan=1)]
        pads = [size // 2 if pad is None else pad] * 4
        return self.add("Conv", [x, *arrays], pads=pads, strides=[stride, stride])

    def model(self, shape: list[Any], output: str) -> Any:
        initial = [numpy_helper.from_array(it, name) for name, it in self.arrays.items()]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [x], [y], initial)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def feed(self, shape: Callable[[int], tuple[int, ...]]) -> Feed:
        return lambda n: {"x": self.random.standard_normal(shape(n), np.float32)}


def encoder(layers: int, channels: int, heads: int) -> tuple[Any, Feed]:
    """Layers of a transformer in front of which norms stand, for sentences of any length."""
    draft = _Draft()
    split = draft.constant(np.array([0, 0, heads, channels // heads]))
    join = draft.constant(np.array([0, 0, channels]))
    scale = draft.constant(np.float32((channels // heads) ** -0.5))

    def product(x: str, inputs: int, outputs: int) -> str:
        return draft.add("MatMul", [x, draft.weights(inputs, outputs, fan=inputs)])

    def norm(x: str) -> str:
        ones = [draft.constant(np.ones(channels, np.float32)) for _ in range(2)]
        return draft.add("LayerNormalization", [x, *ones])

    x = "x"
    for _ in range(layers):
        n = norm(x)
        q, k, v = (
            draft.add(
                "Transpose",
                [draft.add("Reshape", [product(n, channels, channels), split])],
                perm=it,
            )
            for it in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = draft.add("Mul", [draft.add("MatMul", [q, k]), scale])
        context = draft.add("MatMul", [draft.add("Softmax", [scores], axis=-1), v])
        turned = draft.add("Transpose", [context], perm=[0, 2, 1, 3])
        out = product(draft.add("Reshape", [turned, join]), channels, channels)
        y = draft.add("Add", [x, out])
        wide = draft.add("Relu", [product(norm(y), channels, 4 * channels)])
        x = draft.add("Add", [y, product(wide, 4 * channels, channels)])
    return draft.model(["b", "s", channels], x), draft.feed(lambda n: (1, n, channels))


def images() -> tuple[Any, Feed]:
    """Convolutions of 3 x 3 with residuals, for images of any width."""
    draft = _Draft()
    x, channels = "x", 3
    for filters, stride in [(32, 2), (64, 1), (64, 1), (128, 2), (128, 1)]:
        made = draft.conv(x, (channels, filters), 3, stride)
        added = stride == 1 and channels == filters
        x = draft.add("Relu", [draft.add("Add", [made, x]) if added else made])
        channels = filters
    pooled = draft.add("GlobalAveragePool", [x])
    return draft.model(["n", 3, "h", "w"], pooled), draft.feed(lambda n: (1, 3, 64, n))


def resnet50() -> tuple[Any, Feed]:
    """ResNet-50 with its norms folded, for square images of any size."""
    draft = _Draft()
    x = draft.add("Relu", [draft.conv("x", (3, 64), 7, 2)])
    x = draft.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = draft.add("Relu", [draft.conv(x, (channels, inner), 1)])
            y = draft.add("Relu", [draft.conv(y, (inner, inner), 3, stride)])
            y = draft.conv(y, (inner, 4 * inner), 1)
            if not block:
                x = draft.conv(x, (channels, 4 * inner), 1, stride)
            x = draft.add("Relu", [draft.add("Add", [y, x])])
            channels = 4 * inner
    flat = draft.add("Flatten", [draft.add("GlobalAveragePool", [x])])
    last = [draft.weights(channels, 1000, fan=channels), draft.weights(1000, fan=1)]
    model = draft.model(["n", 3, "h", "w"], draft.add("Gemm", [flat, *last]))
    return model, draft.feed(lambda n: (1, 3, n, n))


def recogniser() -> tuple[Any, Feed]:
    """CRNN, which reads lines of text 32 pixels high: convolutions, then two LSTM layers."""
    draft = _Draft()
    x, channels = "x", 1
    # Filters, size and padding, and the window of the pooling behind.
    for filters, size, window in [
        (64, 3, (2, 2)), (128, 3, (2, 2)), (256, 3, None), (256, 3, (2, 1)),
        (512, 3, None), (512, 3, (2, 1)), (512, 2, None),
    ]:  # fmt: skip
        x = draft.add("Relu", [draft.conv(x, (channels, filters), size, pad=int(size == 3))])
        if window:
            x = draft.add("MaxPool", [x], kernel_shape=list(window), strides=list(window))
        channels = filters
    x = draft.add("Squeeze", [x, draft.constant(np.array([2]))])
    x = draft.add("Transpose", [x], perm=[2, 0, 1])
    for outputs in (256, 37):
        x = _both_ways(draft, x, channels, 256)
        last = [draft.weights(512, outputs, fan=512), draft.weights(outputs, fan=1)]
        x = draft.add("Add", [draft.add("MatMul", [x, last[0]]), last[1]])
        channels = outputs
    return draft.model(["n", 1, 32, "w"], x), draft.feed(lambda n: (1, 1, 32, n))


def _both_ways(draft: _Draft, x: str, inputs: int, hidden: int) -> str:
    """An LSTM layer of two directions, hidden states side by side."""
    arrays = [
        draft.weights(2, 4 * hidden, inputs, fan=inputs),
        draft.weights(2, 4 * hidden, hidden, fan=hidden),
        draft.weights(2, 8 * hidden, fan=hidden),
    ]
    y = draft.add("LSTM", [x, *arrays], hidden_size=hidden, direction="bidirectional")
    turned = draft.add("Transpose", [y], perm=[0, 2, 1, 3])
    return draft.add("Reshape", [turned, draft.constant(np.array([0, 0, -1]))])
