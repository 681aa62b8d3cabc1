"""`dlprim.attention` and its gradients on shapes/attention.csv against what others have.

All sides have the same numbers: dlprim and PyTorch with heads inside of positions, as projections
leave them and networks go on with them; ONNX Runtime and OpenVINO, where they are installed, with
heads in front, without the transposing that they would need. Results are compared before anything
is timed. `x best` is how many times faster than the fastest of the others. Gradients are those of
PyTorch's fused function alone: its forward pass is done before, with what it keeps.
"""

import argparse
import csv
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

# Before NumPy, which then reads what --isa says.
from torch_peer import beside_torch, tensor_on

# isort: split

import numpy as np

import dlprim
import harness

SHAPES = Path(__file__).parent / "shapes" / "attention.csv"
Call = Callable[[], Any]


class Case(NamedTuple):
    name: str
    batch: int
    heads: int
    seq: int
    size: int
    causal: bool

    @property
    def flops(self) -> float:
        return 4.0 * self.batch * self.heads * self.seq**2 * self.size / (1 + self.causal)


def cases(names: list[str]) -> Iterator[Case]:
    with SHAPES.open() as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            if names and row["name"] not in names:
                continue
            heads = int(row["heads"])
            rest = (heads, int(row["seq"]), int(row["hidden"]) // heads, row["causal"] == "1")
            for batch in row["batches"].split():
                yield Case(row["name"], int(batch), *rest)


def torch_sides(torch: Any, case: Case, arrays: list[np.ndarray]) -> dict[str, Call]:
    q, k, v = (tensor_on(torch, it) for it in arrays)
    fused = torch.nn.functional.scaled_dot_product_attention
    sides: dict[str, Call] = {"sdpa": lambda: fused(q, k, v, is_causal=case.causal)}
    if not case.causal:
        scale = case.size**-0.5
        sides["eager"] = lambda: torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * scale, -1) @ v
    return sides


def openvino_side(case: Case, arrays: list[np.ndarray], dtype: str) -> Call | None:
    """None where it is not installed."""
    try:
        openvino = importlib.import_module("openvino")
        operators = importlib.import_module("openvino.opset13")
    except ImportError:
        return None
    inputs = [operators.parameter(it.shape, np.float32) for it in arrays]
    node = operators.scaled_dot_product_attention(*inputs, causal=case.causal)
    settings = {"INFERENCE_PRECISION_HINT": "f32" if dtype == "float32" else "bf16",
                "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}  # fmt: skip
    model = openvino.Core().compile_model(openvino.Model([node], inputs), "CPU", settings)
    request = model.create_infer_request()
    dense = [np.ascontiguousarray(it, np.float32) for it in arrays]
    for place, each in enumerate(dense):
        request.set_input_tensor(place, openvino.Tensor(each, shared_memory=True))
    return lambda: (request.infer(), dense)[0][0]


def onnx_side(case: Case, arrays: list[np.ndarray], dtype: str) -> Call | None:
    """None where it is not installed, and where it has no kernels."""
    if dtype != "float32" or case.causal:
        return None
    try:
        runtime = importlib.import_module("onnxruntime")
        onnx = importlib.import_module("onnx")
    except ImportError:
        return None
    dense = [np.ascontiguousarray(it) for it in arrays]
    shape, node, info = dense[0].shape, onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "t"], ["s"]),
             node("Mul", ["s", "scale"], ["x"]), node("Softmax", ["x"], ["p"], axis=-1),
             node("MatMul", ["p", "v"], ["o"])]  # fmt: skip
    graph = onnx.helper.make_graph(
        nodes, "attention", [info(it, 1, shape) for it in "qkv"], [info("o", 1, shape)],
        [onnx.helper.make_tensor("scale", 1, [], [case.size**-0.5])],
    )  # fmt: skip
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options)
    binding, value = session.io_binding(), runtime.OrtValue.ortvalue_from_numpy
    for name, each in zip("qkv", dense, strict=True):
        binding.bind_ortvalue_input(name, value(each))
    result = np.empty(shape, np.float32)
    binding.bind_output("o", "cpu", 0, np.float32, shape, result.ctypes.data)
    return lambda: (session.run_with_iobinding(binding), result)[1]


def arrays_of(case: Case, dtype: str, count: int) -> list[np.ndarray]:
    """Heads inside of positions."""
    rng = np.random.default_rng(0)
    shape = (case.batch, case.seq, case.heads, case.size)
    arrays = [rng.standard_normal(shape, np.float32) for _ in range(count)]
    if dtype == "bfloat16":
        arrays = [dlprim.to_bfloat16(it) for it in arrays]
    return [it.transpose(0, 2, 1, 3) for it in arrays]


def backward_sides(torch: Any, case: Case, dtype: str) -> dict[str, Call]:
    """Ours first. All gradients behind each other, so that they are compared as one array."""
    arrays = arrays_of(case, dtype, 4)
    diff, *inputs = (tensor_on(torch, it) for it in arrays)
    for it in inputs:
        it.requires_grad_()
    y = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=case.causal)
    return {
        "dlprim": lambda: dlprim.attention_backward(*arrays, causal=case.causal),
        "sdpa": lambda: torch.autograd.grad(y, inputs, diff, retain_graph=True),
    }


def verify_backward(name: str, calls: dict[str, Call], dtype: str) -> None:
    bound = 1e-4 if dtype == "float32" else 5e-2
    for ours, right in zip(calls["dlprim"](), calls["sdpa"](), strict=True):
        expected = right.float().numpy()
        largest = bound * float(np.max(np.abs(expected)))
        got = np.asarray(ours, np.float32)
        harness.verify(f"{name} backward", got, expected, np.full_like(expected, largest))


def sides(torch: Any, case: Case, dtype: str) -> dict[str, Call]:
    """Ours first."""
    arrays = arrays_of(case, dtype, 3)
    out = np.empty_like(arrays[0])
    made = {"dlprim": lambda: dlprim.attention(*arrays, causal=case.causal, out=out)}
    made |= torch_sides(torch, case, arrays)
    for name, side in (("openvino", openvino_side), ("onnxruntime", onnx_side)):
        call = side(case, arrays, dtype)
        if call is not None:
            made[name] = call
    return made


def verify(name: str, calls: dict[str, Call], dtype: str) -> None:
    bound = 1e-4 if dtype == "float32" else 5e-2
    expected = calls["sdpa"]().float().numpy()
    for side in set(calls) - {"sdpa"}:
        result = calls[side]()
        got = result.float().numpy() if side == "eager" else np.asarray(result, np.float32)
        harness.verify(f"{name} {side}", got, expected, np.full_like(expected, bound))


def measure(name: str, calls: dict[str, Call], rounds: int, flops: float) -> float:
    """How many times faster than the fastest of the others; prints it."""
    times = harness.alternate(map(harness.timed, calls.values()), rounds)
    ratio = harness.median_ratio(min(times[1:], key=median), times[0])
    zipped = list(zip(calls, times, strict=True))[1:]
    others = ", ".join(f"{side} {median(each) * 1e6:.0f}" for side, each in zipped)
    ours = median(times[0])
    print(
        f"{name} {ours * 1e6:9.0f} us, {flops / ours / 1e9:4.0f} GFLOP/s, "
        f"x best {ratio:5.2f} ({others})",
        flush=True,
    )
    return ratio


def spread_over(torch: Any, core: int, threads: int) -> None:
    """Both sides on so many cores from here on."""
    os.sched_setaffinity(0, range(core, core + threads))
    torch.set_num_threads(threads)
    dlprim.set_num_threads(threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--names", nargs="*", default=[], help="rows of the table; all by default")
    parser.add_argument("--passes", nargs="+", default=["forward", "backward"])
    parser.add_argument("--threads", type=int, default=1)
    options, torch = beside_torch(parser)
    if options.threads > 1:
        spread_over(torch, options.core, options.threads)
    ratios: dict[str, list[float]] = {it: [] for it in options.passes}
    for case in cases(options.names):
        for dtype in options.dtypes:
            for each, found in ratios.items():
                is_forward = each == "forward"
                calls = (sides if is_forward else backward_sides)(torch, case, dtype)
                (verify if is_forward else verify_backward)(case.name, calls, dtype)
                name = f"{case.name:>8s} x{case.batch:<3d} {dtype:>8s} {each:>8s}"
                flops = case.flops * (1 if is_forward else 2.5)
                found.append(measure(name, calls, options.rounds, flops))
    for each, found in ratios.items():
        print(f"{each}: geometric mean {harness.geometric_mean(found):.2f}, least {min(found):.2f}")


if __name__ == "__main__":
    main()
