"""Static quantisation: which layers multiply in 8 bits, with what scales, and into which graphs."""

from dlprim.graph.quantization.calibration import Settings, calibrate
from dlprim.graph.quantization.insertion import insert
from dlprim.graph.quantization.table import Table

__all__ = ["Settings", "Table", "calibrate", "insert"]
