"""Models in ONNX's format as modules that are trained: their weights are parameters.

The steps of a model are written into the trace of the module that it is, so that it stands among
other layers, and gradients come from the network as those of any module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlprim.arguments.traced import RUNNING
from dlprim.graph.graph import Value
from dlprim.nn.context import Context
from dlprim.nn.module import Module
from dlprim.nn.parameter import Parameter
from dlprim.onnx.importer import ElementsNeededError, run_steps
from dlprim.onnx.model import OnnxModel
from dlprim.onnx.program import Block, Program
from dlprim.onnx.proto import ModelError, onnx_package
from dlprim.tracing.array import TracedArray

_FLOAT = np.dtype(np.float32)
# Of the inputs of these operators, those from a place on are no weights: they decide on shapes,
# bound values, or are statistics.
_SETTINGS = {
    "BatchNormalization": 3, "Clip": 1, "Expand": 1, "OneHot": 1, "Pad": 1, "QuantizeLinear": 0,
    "DequantizeLinear": 0, "Range": 0, "Reshape": 1, "Resize": 1, "Tile": 1, "Upsample": 1,
}  # fmt: skip


class TrainableModel(Module):
    """A model in ONNX's format that is trained; `dlprim.onnx.load` makes it.

    Its parameters are the initializers of float32 with an axis, by their names; what operators read
    as settings, such as the statistics of norms, stays as it is. Nodes do what they do in
    inference: there is no dropout.

    Attributes
    ----------
    model : OnnxModel
        As it was loaded.
    """

    def __init__(self, model: OnnxModel, program: Program) -> None:
        super().__init__()
        _require_networks(program.block)
        self.model = model
        self._program = _Held(program)
        proto = onnx_package().ModelProto.FromString(model.source.model)
        settings = {
            name
            for node in proto.graph.node
            for name in node.input[_SETTINGS.get(node.op_type, len(node.input)) :]
        }
        found: dict[str, Any] = {}
        for tensor in proto.graph.initializer:
            array = program.constants.get(tensor.name)
            if array is None or tensor.name in settings:
                continue
            if array.dtype == _FLOAT and array.ndim and array.size:
                found[tensor.name] = Parameter(array, tensor.name)
        self._weights = found
        if model.dtype is not None:
            self.use(Context(model.dtype))

    def own_parameters(self) -> dict[str, Parameter]:
        return dict(self._weights)

    def forward(self, /, *inputs: Any, **named: Any) -> Any:
        program, tracer = self._program.program, RUNNING.tracer
        given = self.model.named(inputs, named)
        values: dict[str, Value] = {}
        for name, array in {**program.constants, **program.defaults}.items():
            if name in self._weights:
                values[name] = tracer.of_held(self._weights[name]).value
            else:
                values[name] = tracer.build.constant(array, name)
        for port in program.inputs:
            if port.name in given:
                values[port.name] = tracer.value(given[port.name])
            elif port.name not in values:
                raise TypeError(f"input '{port.name}' is missing")
        try:
            run_steps(tracer.build, program.block.steps, values)
        except ElementsNeededError as error:
            raise ModelError(f"{error}, which a model that is trained has to know") from error
        results = tuple(TracedArray(tracer, values[name]) for name in program.block.outputs)
        return results[0] if len(results) == 1 else results

    def trained(self) -> OnnxModel:
        """The model with the weights as they are now, for inference and files."""
        from dlprim.onnx import load  # which makes this module

        helper = onnx_package().numpy_helper
        proto = self.model.source.whole()
        state: Mapping[str, Any] = {name: it.held for name, it in self._weights.items()}
        for tensor in proto.graph.initializer:
            if tensor.name in state:
                tensor.CopyFrom(helper.from_array(state[tensor.name], tensor.name))
        how: dict[str, Any] = {"dtype": self.model.dtype, "max_bytes": self.model.max_bytes}
        made: OnnxModel = load(proto, **how)
        return made


class _Held:
    """A program beside the attributes among which parameters are looked for."""

    def __init__(self, program: Program) -> None:
        self.program = program


def _require_networks(block: Block) -> None:
    for step in block.steps:
        if not step.is_of_networks:
            raise ModelError(f"{step.label}: it runs outside of networks, which are not trained")
