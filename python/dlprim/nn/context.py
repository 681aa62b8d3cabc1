"""What the layers of one model share: the dtype of activations, and how convolutions compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.instead import instead
from dlprim.arguments.names import dtype_name
from dlprim.primitives.conv_algorithm import require_algorithm


class Context:
    """Shared by all layers of a model.

    Parameters
    ----------
    dtype : dtype
        Of activations: float32 or bfloat16. Parameters and statistics are float32.
    algorithm : "auto", "direct" or "winograd"
        Of convolutions.

    Raises
    ------
    TypeError, ValueError
        An argument is none of these.
    """

    @instead(layout="none: networks choose how images lie")
    def __init__(self, dtype: npt.DTypeLike = "float32", *, algorithm: str = "auto") -> None:
        self.dtype_name = dtype_name("dtype", dtype)
        if self.dtype_name not in ("float32", "bfloat16"):
            raise TypeError(f"dtype is {self.dtype_name}, expected float32 or bfloat16")
        is_narrow = self.dtype_name == "bfloat16"
        self.dtype = bfloat16_dtype() if is_narrow else np.dtype(np.float32)
        self.algorithm = require_algorithm("algorithm", algorithm)
        self._is_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "_is_made"):
            raise AttributeError(
                f"{name} of Context is assigned, expected another one: model.use(nn.Context(...))"
            )
        super().__setattr__(name, value)
