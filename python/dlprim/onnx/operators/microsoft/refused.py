"""Operators of com.microsoft that no file for every machine should have, and why."""

from __future__ import annotations

from dlprim.onnx.operators.microsoft.checks import MICROSOFT
from dlprim.onnx.registry import REASONS

REASONS[f"{MICROSOFT}.nchwc"] = (
    "ONNX Runtime laid out the arrays of this model for one CPU, expected the model as it was "
    "exported, or saved at an optimisation level up to 'extended'"
)
for _name in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"):
    REASONS[MICROSOFT, _name] = (
        "it calls a model in a loop to search for tokens, expected that model by itself"
    )
