"""`python -m dlprim.train`: trains a real model on real data with no flags and no download.

This is the library's proof of use: a training loop in plain NumPy in which every multiply-add of a
matrix product is done by dlprim. A model knows neither its data nor its optimiser, the loop knows
none of the models, and only `command_line` knows about flags and files, so that a further model or
data set is one more module and one more flag value.
"""

from dlprim.train.command_line import main
from dlprim.train.folder import CheckpointError
from dlprim.train.prediction import TrainedModel, load

__all__ = ["CheckpointError", "TrainedModel", "load", "main"]
