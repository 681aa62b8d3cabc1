"""Operators of com.microsoft, which ONNX Runtime's optimiser and exporters write.

Those that quantise are with the others of 8 bits.
"""

from importlib import import_module
from pkgutil import iter_modules

from dlprim.onnx.registry import REASONS

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

REASONS["com.microsoft.nchwc"] = (
    "ONNX Runtime laid out the arrays of this model for one CPU, expected the model as it was "
    "exported, or saved at an optimisation level up to 'extended'"
)
for _name in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"):
    REASONS["com.microsoft", _name] = (
        "it calls a model in a loop to search for tokens, expected that model by itself"
    )
for _name in (
    "DequantizeWithOrder",
    "QOrderedAttention",
    "QOrderedGelu",
    "QOrderedLayerNormalization",
    "QOrderedLongformerAttention",
    "QOrderedMatMul",
    "QuantizeWithOrder",
):
    REASONS["com.microsoft", _name] = "its arrays lie in tiles of NVIDIA's cuBLASLt, for CUDA alone"
