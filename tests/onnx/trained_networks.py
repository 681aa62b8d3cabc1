"""Networks that are trained here in seconds and written as ONNX: what accuracy is shown on.

One of residual blocks for handwritten digits, and two that guess the next character of a text from
eight before it: by two layers, and by attention, which PyTorch trains.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import onnx.helper
import onnx.numpy_helper
import onnx.parser

import dlprim
from dlprim import nn
from dlprim.optim import AdamW
from dlprim.train.data import load_digits
from dlprim.train.text import ALPHABET, corpus_of

_CONVOLUTION = {3: "kernel_shape=[3,3], pads=[1,1,1,1]", 1: "kernel_shape=[1,1]"}
_BEFORE = 8  # characters


class Trained(NamedTuple):
    """A model, and inputs with the classes they belong to."""

    model: onnx.ModelProto
    calibration: np.ndarray
    inputs: np.ndarray
    labels: np.ndarray

    def accuracy(self, run: Any) -> float:
        return float((run(self.inputs).argmax(axis=1) == self.labels).mean())


def _unit(channels: int, filters: int, size: int, stride: int, place: str) -> nn.ConvBatchNorm:
    conv = nn.Conv2d(channels, filters, size, stride=stride, padding=size // 2, bias=False)
    norm = nn.BatchNorm2d(filters, activation=None if place == "3" else "relu")
    return nn.ConvBatchNorm(conv, norm, (f"conv{place}", f"norm{place}"))


def _image_network() -> nn.Sequential:
    one = [_unit(16, 16, 3, 1, "1"), _unit(16, 16, 3, 1, "2")]
    two = [_unit(16, 32, 3, 2, "1"), _unit(32, 32, 3, 1, "2")]
    return nn.Sequential(
        {
            "stem": _unit(1, 16, 3, 1, ""),
            "one": nn.Residual(one),
            "two": nn.Residual(two, _unit(16, 32, 1, 2, "3")),
            "mean": nn.GlobalAvgPool2d(),
            "fc": nn.Linear(32, 10),
        }
    )


def _fit(model: nn.Module, src: np.ndarray, labels: np.ndarray, batch: int, epochs: int) -> None:
    optimizer = AdamW(model.parameters(), 3e-3)
    generator = np.random.default_rng(0)
    for _ in range(epochs):
        order = generator.permutation(len(src))
        for places in np.split(order, range(batch, len(order), batch)):
            _, diff = dlprim.softmax_cross_entropy(model(src[places]), labels[places])
            model.backward(diff)
            optimizer.step()
    model.eval()


def _written(text: str, model: nn.Module) -> onnx.ModelProto:
    made = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> trained ' + text)
    state = {name.replace(".", "_"): array for name, array in model.state_dict().items()}
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name)
        for name, array in state.items()
        if name in read
    )
    onnx.checker.check_model(made)
    return made


def digits() -> Trained:
    """Two residual blocks, of which one changes the shape."""
    data = load_digits(np.random.default_rng(0))
    train, test = (it.reshape(-1, 1, 8, 8) for it in (data.train_src, data.test_src))
    nn.seed(0)
    model = _image_network()
    _fit(model, train, data.train_labels, 32, 4)

    def unit(source: str, block: str, place: str, size: int = 3, stride: int = 1) -> str:
        conv, norm, made = f"{block}_conv{place}", f"{block}_norm{place}", f"{block}{place}"
        names = f"{norm}_weight, {norm}_bias, {norm}_running_mean, {norm}_running_var"
        return (
            f"c_{made} = Conv<{_CONVOLUTION[size]}, strides=[{stride},{stride}]>"
            f"({source}, {conv}_weight)\n"
            f"n_{made} = BatchNormalization<epsilon=1e-5>(c_{made}, {names})\n"
        )

    text = "(float[n,1,8,8] x) => (float[n,10] y) {\n"
    text += unit("x", "stem", "") + "r = Relu(n_stem)\n"
    text += unit("r", "one", "1") + "r1 = Relu(n_one1)\n" + unit("r1", "one", "2")
    text += "s1 = Add(n_one2, r)\nt1 = Relu(s1)\n"
    text += unit("t1", "two", "1", stride=2) + "r2 = Relu(n_two1)\n" + unit("r2", "two", "2")
    text += unit("t1", "two", "3", 1, 2)
    text += "s2 = Add(n_two2, n_two3)\nt2 = Relu(s2)\nm = GlobalAveragePool(t2)\n"
    text += "f = Flatten(m)\ny = Gemm<transB=1>(f, fc_weight, fc_bias)\n}"
    return Trained(_written(text, model), train[:256], test, data.test_labels)


def _windows(text: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What stands before characters, and the characters."""
    whole = np.lib.stride_tricks.sliding_window_view(text, _BEFORE + 1)
    places = np.random.default_rng(0).integers(0, len(whole), count)
    return np.ascontiguousarray(whole[places, :-1]), whole[places, -1].copy()


def characters() -> Trained:
    """A table of characters, and two layers."""
    corpus = corpus_of("text", np.random.default_rng(0))

    src, labels = _windows(corpus.train, 40_000)
    nn.seed(0)
    model = nn.Sequential(
        {
            "table": nn.Embedding(len(ALPHABET), 16),
            "flat": nn.Flatten(),
            "a": nn.Linear(16 * _BEFORE, 128, activation="relu"),
            "b": nn.Linear(128, len(ALPHABET)),
        }
    )
    _fit(model, src, labels, 128, 2)
    text = f"""(int64[n,{_BEFORE}] x) => (float[n,{len(ALPHABET)}] y) {{
        rows = Gather<axis=0>(table_weight, x)
        flat = Flatten(rows)
        a = Gemm<transB=1>(flat, a_weight, a_bias)
        r = Relu(a)
        y = Gemm<transB=1>(r, b_weight, b_bias)
    }}"""
    return Trained(_written(text, model), src[:512], *_windows(corpus.test, 5000))


def attending() -> Trained:
    """Two heads over the characters, a residual and a layer of all."""
    import torch
    from torch.nn import functional

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(len(ALPHABET), 32)
            self.places = torch.nn.Parameter(torch.randn(_BEFORE, 32) / 8)
            self.heads = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(3))
            self.joined = torch.nn.Linear(32, 32)
            self.last = torch.nn.Linear(32 * _BEFORE, len(ALPHABET))

        def forward(self, x: Any) -> Any:
            x = self.table(x) + self.places
            q, k, v = (it(x).reshape(-1, _BEFORE, 2, 16).transpose(1, 2) for it in self.heads)
            shares = torch.softmax(q @ k.transpose(2, 3) / 4, -1)
            y = (shares @ v).transpose(1, 2).reshape(-1, _BEFORE, 32)
            return self.last((x + self.joined(y)).flatten(1))

    corpus = corpus_of("text", np.random.default_rng(0))
    src, labels = _windows(corpus.train, 40_000)
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for places in np.array_split(np.random.default_rng(0).permutation(len(src)), 400):
        x, right = (torch.from_numpy(it[places].astype(np.int64)) for it in (src, labels))
        loss = functional.cross_entropy(model(x), right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    file = io.BytesIO()
    example = torch.from_numpy(src[:2].astype(np.int64))
    axes = {"x": {0: "n"}}
    torch.onnx.export(model, (example,), file, dynamo=False, input_names=["x"], dynamic_axes=axes)
    made = onnx.load_from_string(file.getvalue())
    return Trained(made, src[:512], *_windows(corpus.test, 5000))
