"""Model files of the graph benchmark: PyTorch's export and ONNX Runtime's quantisation of it, kept.

Every side reads the same file. Eight bits are QDQ with unsigned activations per tensor and signed
weights per channel, the form that ONNX Runtime is fastest with here; of transformers and attention
only products are quantised, so that masks, sums and norms keep their range.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import torch

import networks
from networks import Network

_SAMPLES = 2  # that quantisation takes ranges from


def _export(network: Network, batch: int, path: Path) -> None:
    arrays = networks.inputs(network, batch)
    examples = tuple(map(torch.from_numpy, arrays.values()))
    program = torch.onnx.export(
        networks.build(network), examples, dynamo=True, input_names=list(arrays), verbose=False
    )
    path.write_bytes(program.model_proto.SerializeToString())


def _quantise(network: Network, batch: int, source: Path, path: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        samples = iter(networks.inputs(network, batch, seed) for seed in range(_SAMPLES))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.samples, None)

    products_only = {"op_types_to_quantize": ["MatMul", "Gemm", "Conv"]}
    plain = network.kind == "mlp" or networks.is_image(network)
    quantize_static(
        source, path, Reader(), per_channel=True, activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8, **({} if plain else products_only),
    )  # fmt: skip


def file_of(network: Network, batch: int, dtype: str, folder: Path) -> Path:
    """The model's file in ``folder``, made unless it is there; bfloat16 reads that of float32."""
    stem = folder / f"{network.name}-{batch}"
    exact, bytes8 = stem.with_suffix(".onnx"), stem.with_suffix(".int8.onnx")
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path, wanted, make in (
            (exact, True, lambda it: _export(network, batch, it)),
            (bytes8, dtype == "int8", lambda it: _quantise(network, batch, exact, it)),
        ):
            if wanted and not path.exists():
                made = path.with_suffix(".new")
                make(made)
                made.rename(path)
    logging.disable(logging.NOTSET)
    return bytes8 if dtype == "int8" else exact
