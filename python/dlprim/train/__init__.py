"""`python -m dlprim.train`: trains a real model on real data with no flags and no download.

This is the library's proof of use: a training loop in plain NumPy in which every multiply-add of a
matrix product is done by dlprim. A model knows neither its data nor its optimiser, the loop knows
none of the models, and only `command_line` knows about flags and files, so that a further model or
data set is one more module and one more flag value.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlprim.train.command_line import main
from dlprim.train.folder import CheckpointError
from dlprim.train.prediction import TrainedModel, load

if TYPE_CHECKING:
    from dlprim.train.fit.estimators import Classifier, Regressor

__all__ = ["CheckpointError", "Classifier", "Regressor", "TrainedModel", "load", "main"]

if not TYPE_CHECKING:  # which would then take every name for one of these

    def __getattr__(name: str) -> Any:
        """Estimators, which need scikit-learn, imported when they are asked for."""
        if name in ("Classifier", "Regressor"):
            return getattr(import_module("dlprim.train.fit.estimators"), name)
        raise AttributeError(f"module 'dlprim.train' has no attribute {name!r}")
