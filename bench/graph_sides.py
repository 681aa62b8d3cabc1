"""The sides of the graph benchmark: each loads a model and gives a call that runs it.

Threads wait for work as each library has them do by itself, but ONNX Runtime's, which would spin on
cores that the next side needs long after a run: it is told to stop. OpenVINO is told its precision,
because it takes bfloat16 unasked where the CPU has it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import dlprim
import networks
from networks import Network

Call = Callable[[], Any]


class Subject(NamedTuple):
    """What a side is made for."""

    network: Network
    batch: int
    dtype: str  # float32, bfloat16, int8
    threads: int
    path: Path


def _ours(subject: Subject) -> Call:
    from dlprim import onnx

    dlprim.set_num_threads(subject.threads)
    options = {"dtype": "bfloat16"} if subject.dtype == "bfloat16" else {}
    model = onnx.load(subject.path, **options)
    arrays = list(networks.inputs(subject.network, subject.batch).values())
    return lambda: model(*arrays)


def _torch_operands(subject: Subject) -> tuple[Any, list[Any]]:
    module = copy.deepcopy(networks.build(subject.network))
    arrays = networks.inputs(subject.network, subject.batch)
    tensors = [torch.from_numpy(array) for array in arrays.values()]
    if subject.dtype == "bfloat16":
        module = module.to(torch.bfloat16)
        tensors = [it.to(torch.bfloat16) if it.is_floating_point() else it for it in tensors]
    if networks.is_image(subject.network):
        module = module.to(memory_format=torch.channels_last)
        tensors = [it.contiguous(memory_format=torch.channels_last) for it in tensors]
    return module, tensors


def _calling(module: Any, tensors: list[Any]) -> Call:
    def call() -> Any:
        with torch.inference_mode():
            return module(*tensors)

    return call


def _eager(subject: Subject) -> Call:
    torch.set_num_threads(subject.threads)
    return _calling(*_torch_operands(subject))


def _compiled(subject: Subject) -> Call:
    import torch._inductor.config as inductor

    torch.set_num_threads(subject.threads)
    torch._dynamo.reset()
    inductor.freezing = True
    inductor.compile_threads = 1
    module, tensors = _torch_operands(subject)
    compiled = torch.compile(module)

    def call() -> Any:
        with torch.no_grad():  # Freezing asks for it; inference_mode makes it compile twice.
            return compiled(*tensors)

    return call


def _onnxruntime(subject: Subject) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = subject.threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        subject.path, options, providers=["CPUExecutionProvider"]
    )
    arrays = networks.inputs(subject.network, subject.batch)
    return lambda: session.run(None, arrays)[0]


def _openvino(subject: Subject) -> Call:
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": subject.threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "bf16" if subject.dtype == "bfloat16" else "f32",
    }
    model = openvino.Core().compile_model(str(subject.path), "CPU", options)
    request = model.create_infer_request()
    arrays = networks.inputs(subject.network, subject.batch)
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)[model.output(0)]


PEERS: dict[str, Callable[[Subject], Call]] = {
    "eager": _eager,
    "compile": _compiled,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
# Of the types that a peer has; ONNX Runtime's CPU kernels know no bfloat16.
_TYPES = {
    "eager": ("float32", "bfloat16"),
    "compile": ("float32", "bfloat16"),
    "onnxruntime": ("float32", "int8"),
    "openvino": ("float32", "bfloat16", "int8"),
}


def sides(peers: list[str], dtype: str, ours: bool) -> dict[str, Callable[[Subject], Call]]:
    """Makers by name, ours first."""
    found = {name: PEERS[name] for name in peers if dtype in _TYPES[name]}
    return {"dlprim": _ours, **found} if ours else found


def as_floats(result: Any) -> np.ndarray:
    """One side's result, whatever it is made of."""
    if isinstance(result, torch.Tensor):
        result = result.float().numpy()
    return np.asarray(result[0] if isinstance(result, tuple) else result).astype(np.float32)


def expected(network: Network, batch: int) -> np.ndarray:
    """PyTorch's result in float32."""
    module = networks.build(network)
    tensors = map(torch.from_numpy, networks.inputs(network, batch).values())
    with torch.inference_mode():
        return np.asarray(module(*tensors).numpy())


def flops(network: Network, batch: int) -> int:
    """Of products and convolutions, two for each multiply-add."""
    from torch.utils.flop_counter import FlopCounterMode

    module = networks.build(network)
    tensors = map(torch.from_numpy, networks.inputs(network, batch).values())
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*tensors)
    return int(counter.get_total_flops())
