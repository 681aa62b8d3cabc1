"""Whole networks from ONNX files: every side reads the same file, in float32, bfloat16 and int8.

Networks of the table are made by PyTorch with random weights, exported with the row's shapes, and
quantised by ONNX Runtime: QDQ with unsigned activations per tensor and signed weights per channel,
the form that it is fastest with; of transformers only products, so that masks, sums and norms keep
their range. A file of the user's runs as it is, with random inputs. ONNX Runtime's threads, which
would spin on cores that the next side needs, are told to stop; OpenVINO is told its precision,
because it takes bfloat16 unasked where the CPU has it.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import dlprim
from dlprim.bench import peers
from dlprim.bench.measuring.case import Case, Row, UnavailableError
from dlprim.bench.measuring.verification import WrongResultError, floats
from dlprim.bench.settings import Settings
from dlprim.bench.tables import TableError

if TYPE_CHECKING:
    from dlprim.bench.networks.zoo import Network

TYPES = ("float32", "bfloat16", "int8")
_BOUNDS = {"float32": 1e-3, "bfloat16": 0.2, "int8": 0.5}  # of the norm of the result
_SAMPLES = 2  # that quantisation takes ranges from
_QUICK = ("MLP_1", "MHA_1")
_FREE = 1  # extent of an input that has none in the file
_NEEDED = ("torch", "onnx", "onnxscript", "transformers")  # of networks that are made here


class Subject(NamedTuple):
    """What a side is made for."""

    path: Path
    arrays: dict[str, np.ndarray]  # inputs by name
    dtype: str
    threads: int
    network: Network | None = None  # unless the file is the user's


def rows(settings: Settings) -> Iterator[Row]:
    """Raises `TableError`; UnavailableError where what makes the networks is missing."""
    files = [Path(it) for it in settings.shapes if it.endswith(".onnx")]
    for path in files:
        if not path.is_file():
            raise TableError(f"--shapes: there is no file {path}")
        for dtype in settings.dtypes or ("float32",):
            make = partial(_file_case, path, dtype, settings.threads)
            yield Row("files", path.name, dtype, make)
    if len(files) < len(settings.shapes) or not files:
        yield from _table_rows(settings)


def _table_rows(settings: Settings) -> Iterator[Row]:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UnavailableError(f"its networks need pip install {' '.join(missing)}")
    from dlprim.bench.networks import zoo

    for dtype in settings.types(*TYPES):
        for path in settings.tables("graph", "graphs"):
            for network in zoo.load_networks(path):
                if settings.wanted(network.name) and (
                    not settings.quick or settings.rows or network.name in _QUICK
                ):
                    few = network.batches[:1] if settings.brief else network.batches
                    for batch in settings.batches or few:
                        make = partial(_network_case, network, batch, dtype, settings)
                        yield Row("networks", f"{network.name} {batch}", dtype, make)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dlprim-bench-")


def _network_case(network: Network, batch: int, dtype: str, settings: Settings) -> Case:
    from dlprim.bench.networks import zoo

    folder = settings.cache or Path(_temporary().name)
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(network, batch, dtype, folder)
    arrays = zoo.inputs(network, batch)
    subject = Subject(path, arrays, dtype, settings.threads, network)
    torch = peers.torch(settings.threads)
    with torch.inference_mode():
        expected = zoo.build(network)(*map(torch.from_numpy, arrays.values())).numpy()
    operations = _operations(zoo.build(network), arrays)
    return _case(subject, expected, operations)


def _file_case(path: Path, dtype: str, threads: int) -> Case:
    """Verified against ONNX Runtime or, without it, the reference of ONNX."""
    from dlprim import onnx

    model, random = onnx.load(path), np.random.default_rng(0)
    arrays = {}
    for name, port in model.inputs.items():
        extents = [it if isinstance(it, int) else _FREE for it in port.shape or ()]
        if np.dtype(port.dtype).kind in "iub":
            arrays[name] = random.integers(0, 2, extents).astype(port.dtype)
        else:
            arrays[name] = random.standard_normal(extents).astype(port.dtype)
    subject = Subject(path, arrays, dtype, threads)
    if importlib.util.find_spec("onnxruntime") is not None:
        expected = _onnxruntime(subject)()
    else:
        expected = peers.load("onnx.reference").ReferenceEvaluator(str(path)).run(None, arrays)[0]
    return _case(subject, expected)


def _case(subject: Subject, expected: Any, operations: float = 0) -> Case:
    right = floats(expected)

    def check(result: Any) -> None:
        one = floats(result[0] if isinstance(result, tuple | list) else result)
        with np.errstate(all="ignore"):
            error = float(np.linalg.norm(one - right) / np.linalg.norm(right))
        if not error <= _BOUNDS[subject.dtype]:
            raise WrongResultError(f"{subject.path.name} is off by {error:.3g} of the result")

    makers = {name: it for name, it in _PEERS.items() if subject.dtype in _TYPES[name]}
    if subject.network is None:
        makers = {name: it for name, it in makers.items() if name not in ("torch", "compile")}
    sides = {name: partial(_guarded, make, subject) for name, make in makers.items()}
    ours = _ours(subject)
    unit = "uint8" if subject.dtype == "int8" else subject.dtype
    return Case(ours, lambda: check(ours()), sides, check, operations, peak_dtype=unit)


def _guarded(make: Callable[[Subject], Callable[[], Any]], subject: Subject) -> Any:
    """A call of a peer that has run once; what it fails with is its reason to be left out."""
    try:
        call = make(subject)
        call()
    except UnavailableError:
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {error}".strip().splitlines()
        raise UnavailableError(words[0][:160]) from error
    return call


def _ours(subject: Subject) -> Callable[[], Any]:
    from dlprim import onnx

    dlprim.set_num_threads(subject.threads)
    model = onnx.load(subject.path, dtype="bfloat16" if subject.dtype == "bfloat16" else None)
    return lambda: model.run(subject.arrays)


def _torch(subject: Subject, compiled: bool = False) -> Callable[[], Any]:
    from dlprim.bench.networks import zoo

    assert subject.network is not None
    torch = peers.torch(subject.threads)
    module = copy.deepcopy(zoo.build(subject.network))
    tensors = [torch.from_numpy(array) for array in subject.arrays.values()]
    if subject.dtype == "bfloat16":
        module = module.to(torch.bfloat16)
        tensors = [it.to(torch.bfloat16) if it.is_floating_point() else it for it in tensors]
    if zoo.is_image(subject.network):
        last = {"memory_format": torch.channels_last}
        module, tensors = module.to(**last), [it.contiguous(**last) for it in tensors]
    # Freezing asks for no_grad; inference_mode makes it compile twice.
    without = torch.no_grad if compiled else torch.inference_mode
    if compiled:
        torch._dynamo.reset()
        inductor = peers.load("torch._inductor.config")
        inductor.freezing, inductor.compile_threads = True, 1
        module = torch.compile(module)

    def call() -> Any:
        with without():
            return module(*tensors)

    return call


def _onnxruntime(subject: Subject) -> Callable[[], Any]:
    runtime = peers.load("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = subject.threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = runtime.InferenceSession(subject.path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, subject.arrays)[0]


def _openvino(subject: Subject) -> Callable[[], Any]:
    openvino = peers.load("openvino")
    options = {
        "INFERENCE_NUM_THREADS": subject.threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "bf16" if subject.dtype == "bfloat16" else "f32",
    }
    model = openvino.Core().compile_model(str(subject.path), "CPU", options)
    request, shared = model.create_infer_request(), {"share_inputs": True, "share_outputs": True}
    return lambda: request.infer(subject.arrays, **shared)[model.output(0)]


_PEERS: dict[str, Callable[[Subject], Callable[[], Any]]] = {
    "torch": _torch,
    "compile": partial(_torch, compiled=True),
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
# Of the types that a peer has; ONNX Runtime's CPU kernels know no bfloat16.
_TYPES = {
    "torch": ("float32", "bfloat16"),
    "compile": ("float32", "bfloat16"),
    "onnxruntime": ("float32", "int8"),
    "openvino": TYPES,
}


def _operations(module: Any, arrays: dict[str, np.ndarray]) -> float:
    """Of products and convolutions, two for each multiply-add."""
    torch = peers.load("torch")
    counter = peers.load("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module(*map(torch.from_numpy, arrays.values()))
    return float(counter.get_total_flops())


def file_of(network: Network, batch: int, dtype: str, folder: Path) -> Path:
    """The model's file in ``folder``, made unless it is there; bfloat16 reads that of float32."""
    stem = folder / f"{network.name}-{batch}"
    exact, bytes8 = stem.with_suffix(".onnx"), stem.with_suffix(".int8.onnx")
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path, wanted, make in (
            (exact, True, partial(_export, network, batch)),
            (bytes8, dtype == "int8", partial(_quantise, network, batch, exact)),
        ):
            if wanted and not path.exists():
                made = path.with_suffix(".new")
                make(made)
                made.rename(path)
    logging.disable(logging.NOTSET)
    return bytes8 if dtype == "int8" else exact


def _export(network: Network, batch: int, path: Path) -> None:
    from dlprim.bench.networks import zoo

    torch, arrays = peers.load("torch"), zoo.inputs(network, batch)
    program = torch.onnx.export(
        zoo.build(network), tuple(map(torch.from_numpy, arrays.values())), dynamo=True,
        input_names=list(arrays), verbose=False,
    )  # fmt: skip
    path.write_bytes(program.model_proto.SerializeToString())


def _quantise(network: Network, batch: int, source: Path, path: Path) -> None:
    from dlprim.bench.networks import zoo

    quantization = peers.load("onnxruntime.quantization")
    samples = iter([zoo.inputs(network, batch, seed) for seed in range(_SAMPLES)])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(samples, None)

    plain = network.kind == "mlp" or zoo.is_image(network)
    some = {} if plain else {"op_types_to_quantize": ["MatMul", "Gemm", "Conv"]}
    quantization.quantize_static(
        source, path, Reader(), per_channel=True, weight_type=quantization.QuantType.QInt8,
        activation_type=quantization.QuantType.QUInt8, **some,
    )  # fmt: skip
