"""Eight-bit models as ONNX Runtime's quantiser writes them: QDQ, QOperator and dynamic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

_U8 = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
_QDQ = {"quant_format": QuantFormat.QDQ}
# What is asked of the quantiser, by name.
WAYS: dict[str, dict[str, Any]] = {
    "qdq": _QDQ,
    "qdq_channels": {**_QDQ, "per_channel": True},
    "qdq_unsigned": {**_QDQ, **_U8, "per_channel": True},
    "qdq_symmetric": {
        **_QDQ, "per_channel": True,
        "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True},
    },
    "operators": {"quant_format": QuantFormat.QOperator, **_U8},
    "dynamic": {},
    "dynamic_channels": {"per_channel": True},
}  # fmt: skip


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Iterable[dict[str, np.ndarray]]) -> None:
        self._samples: Iterator[dict[str, np.ndarray]] = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._samples, None)


def quantized(model: bytes, way: str, samples: list[dict[str, np.ndarray]], folder: Any) -> bytes:
    """The model in eight bits; ``folder`` is for the files that the quantiser wants."""
    source, result = os.path.join(folder, "float.onnx"), os.path.join(folder, f"{way}.onnx")
    proto = onnx.load_from_string(model)
    del proto.graph.value_info[:]  # The quantiser trusts shapes that legacy exports have wrong.
    onnx.save(proto, source)
    if way.startswith("dynamic"):
        quantize_dynamic(source, result, **WAYS[way])
    else:
        quantize_static(source, result, _Reader(samples), **WAYS[way])
    with open(result, "rb") as file:
        return file.read()
