"""dlprim as a backend of ONNX's own test suite, `onnx.backend.base`.

``onnx.backend.test.BackendTest(dlprim.onnx.backend, __name__)`` runs that suite. What is refused
counts as not implemented, which the suite skips.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from dlprim.graph.graph import Array
from dlprim.onnx import ModelError, OnnxModel, load
from dlprim.onnx.proto import Folders, array_of


class Prepared(BackendRep):
    """A model as the suite runs it."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Array, ...]:
        """The outputs, of a list of arrays or of arrays by name."""
        if not isinstance(inputs, dict):
            inputs = dict(zip(self._model.inputs, inputs, strict=False))
        given = {name: _array(it) for name, it in inputs.items()}
        try:
            return tuple(self._model.run(given))
        except ModelError as error:
            raise BackendIsNotSupposedToImplementIt(str(error)) from error


class DlprimBackend(Backend):
    """Prepares and runs models on the CPU."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **_: Any) -> bool:
        """Whether the model can be run."""
        try:
            load(model)
        except ModelError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **_: Any) -> Prepared:
        """The model, ready to run."""
        if not cls.supports_device(device):
            raise ValueError(f"device is '{device}', expected 'CPU'")
        try:
            return Prepared(load(model))
        except ModelError as error:
            raise BackendIsNotSupposedToImplementIt(str(error)) from error

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **_: Any) -> Any:
        """The outputs of a model."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any
    ) -> Any:
        """The outputs of one node by name; the opset is the newest, or ``opset_version``."""
        arrays = [_array(it) for it in inputs]
        ports = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(it.dtype), it.shape
            )
            for name, it in zip(filter(None, node.input), arrays, strict=True)
        ]
        results = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in node.output
        ]
        graph = onnx.helper.make_graph([node], "node", ports, results)
        version = options.get("opset_version", onnx.defs.onnx_opset_version())
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return namedtupledict("Outputs", node.output)(*cls.run_model(model, arrays, device))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it is the CPU."""
        return device == "CPU"


def _array(given: Any) -> Any:
    return array_of(given, Folders()) if isinstance(given, onnx.TensorProto) else np.asarray(given)


is_compatible = DlprimBackend.is_compatible
prepare = DlprimBackend.prepare
run_model = DlprimBackend.run_model
run_node = DlprimBackend.run_node
supports_device = DlprimBackend.supports_device
