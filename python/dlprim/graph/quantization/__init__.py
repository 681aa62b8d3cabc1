"""Static quantisation: which layers multiply in 8 bits, with what scales, and into which graphs."""

from dlprim.graph.quantization.calibration import Settings, calibrate
from dlprim.graph.quantization.insertion import insert
from dlprim.graph.quantization.table import Table
from dlprim.graph.quantization.weights import Weights, weights_among

__all__ = ["Settings", "Table", "Weights", "calibrate", "insert", "weights_among"]
