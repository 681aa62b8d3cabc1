"""Attention and its gradients: PyTorch with heads inside of positions, as projections leave them
and networks go on with them; ONNX Runtime and OpenVINO with heads in front, without the transposing
that they would need. Gradients are those of PyTorch's fused function, its forward pass done before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import dlprim
from dlprim.bench import peers, tables
from dlprim.bench.measuring.case import Case, Row, UnavailableError
from dlprim.bench.measuring.timing import Call
from dlprim.bench.measuring.verification import close_to, doubles
from dlprim.bench.settings import Settings

_CLOSE = {"float32": 2e-4, "bfloat16": 4e-2}  # of the largest element
_BACKWARD = 2.5  # products, of the forward pass's
_COLUMNS = ("name", "seq", "hidden", "heads", "causal", "batches")


class Shape(NamedTuple):
    """A row of the table with one of its batches."""

    name: str
    batch: int
    heads: int
    seq: int
    size: int
    causal: bool

    @property
    def operations(self) -> float:
        return 4.0 * self.batch * self.heads * self.seq**2 * self.size / (1 + self.causal)


def rows(settings: Settings) -> Iterator[Row]:
    """Raises `TableError`."""
    for which in settings.passes or ("forward", "backward"):
        for dtype in settings.types("float32", "bfloat16"):
            for shape in _shapes(settings):
                make = partial(_case, shape, which, dtype, settings.threads)
                yield Row(f"attention {which}", f"{shape.name} x{shape.batch}", dtype, make)


def _shapes(settings: Settings) -> Iterator[Shape]:
    for path in settings.tables("layers", "attention"):
        table = tables.read(path, _COLUMNS)
        for row in table[:2] if settings.brief else table:
            heads = int(row["heads"])
            for batch in row["batches"].split()[: 1 if settings.brief else None]:
                yield Shape(
                    row["name"], int(batch), heads, int(row["seq"]), int(row["hidden"]) // heads,
                    row["causal"] == "1",
                )  # fmt: skip


def _case(shape: Shape, which: str, dtype: str, threads: int) -> Case:
    rng = np.random.default_rng(0)
    extents = (shape.batch, shape.seq, shape.heads, shape.size)
    arrays = [rng.standard_normal(extents, np.float32) for _ in range(4)]
    if dtype == "bfloat16":
        arrays = [dlprim.to_bfloat16(it) for it in arrays]
    diff, *inputs = (it.transpose(0, 2, 1, 3) for it in arrays)
    forward = which == "forward"
    check = close_to(f"{shape.name}", _exact(shape, diff, inputs, forward), _CLOSE[dtype])
    sides: dict[str, Callable[[], Call]] = {}
    ours: Callable[[], Any]
    if forward:
        out = np.empty_like(inputs[0])
        ours = partial(dlprim.attention, *inputs, causal=shape.causal, out=out)
        sides["openvino"] = partial(_openvino, shape, inputs, dtype, threads)
        sides["onnxruntime"] = partial(_onnxruntime, shape, inputs, dtype, threads)
    else:
        ours = partial(dlprim.attention_backward, diff, *inputs, causal=shape.causal)
    sides["torch"] = partial(_torch, shape, diff, inputs, forward, threads)
    return Case(
        ours, lambda: check(ours()), sides, check,
        shape.operations * (1 if forward else _BACKWARD), (4 if forward else 7) * diff.nbytes,
        peak_dtype=dtype,
    )  # fmt: skip


def _exact(shape: Shape, diff: np.ndarray, inputs: list[np.ndarray], forward: bool) -> Any:
    """The result, or the gradients of q, k and v."""
    dy, q, k, v = (doubles(it) for it in (diff, *inputs))
    scale = shape.size**-0.5
    scores = scale * (q @ k.swapaxes(-1, -2))
    if shape.causal:
        scores[..., ~np.tri(shape.seq, dtype=bool)] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    if forward:
        return scores @ v
    slope = dy @ v.swapaxes(-1, -2)
    slope = scale * scores * (slope - (slope * scores).sum(-1, keepdims=True))
    return slope @ k, slope.swapaxes(-1, -2) @ q, scores.swapaxes(-1, -2) @ dy


def _torch(
    shape: Shape, diff: np.ndarray, inputs: list[np.ndarray], forward: bool, threads: int
) -> Callable[[], Any]:
    torch = peers.torch(threads)
    fused = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (peers.tensor_on(torch, it).requires_grad_(not forward) for it in inputs)
    if forward:
        return lambda: fused(q, k, v, is_causal=shape.causal)
    y, slope = fused(q, k, v, is_causal=shape.causal), peers.tensor_on(torch, diff)
    return lambda: torch.autograd.grad(y, (q, k, v), slope, retain_graph=True)


def _openvino(shape: Shape, inputs: list[np.ndarray], dtype: str, threads: int) -> Call:
    openvino, operators = peers.load("openvino"), peers.load("openvino.opset13")
    nodes = [operators.parameter(it.shape, np.float32) for it in inputs]
    node = operators.scaled_dot_product_attention(*nodes, causal=shape.causal)
    settings = {"INFERENCE_PRECISION_HINT": "f32" if dtype == "float32" else "bf16",
                "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}  # fmt: skip
    model = openvino.Core().compile_model(openvino.Model([node], nodes), "CPU", settings)
    request = model.create_infer_request()
    dense = [np.ascontiguousarray(it, np.float32) for it in inputs]
    for place, each in enumerate(dense):
        request.set_input_tensor(place, openvino.Tensor(each, shared_memory=True))
    return lambda: (request.infer(), dense)[0][0]


def _onnxruntime(shape: Shape, inputs: list[np.ndarray], dtype: str, threads: int) -> Call:
    if dtype != "float32" or shape.causal:
        raise UnavailableError("it has no kernels for this")
    runtime, onnx = peers.load("onnxruntime"), peers.load("onnx")
    dense = [np.ascontiguousarray(it) for it in inputs]
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "t"], ["s"]),
             node("Mul", ["s", "scale"], ["x"]), node("Softmax", ["x"], ["p"], axis=-1),
             node("MatMul", ["p", "v"], ["o"])]  # fmt: skip
    extents = dense[0].shape
    graph = onnx.helper.make_graph(
        nodes, "attention", [info(it, 1, extents) for it in "qkv"], [info("o", 1, extents)],
        [onnx.helper.make_tensor("scale", 1, [], [shape.size**-0.5])],
    )  # fmt: skip
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(model.SerializeToString(), options)
    feed = dict(zip("qkv", dense, strict=True))
    return lambda: session.run(None, feed)[0]
