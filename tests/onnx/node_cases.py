"""ONNX's own cases of nodes, by the module that makes them."""

from __future__ import annotations

import pkgutil
import warnings
import zlib
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import onnx.backend.test.case.node as node

from dlprim.onnx.proto import Folders, array_of

# A module for each operator, which computes its cases where it is imported.
MODULES = [it.name for it in pkgutil.walk_packages(node.__path__, f"{node.__name__}.")]


@cache
def cases(module: str) -> dict[str, Any]:
    before = len(node._NodeTestCases)
    np.random.seed(zlib.crc32(module.encode()))  # whatever was imported before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what computes the expected results overflows on purpose
        import_module(module)
    return {case.name: case for case in node._NodeTestCases[before:]}


def array(given: Any) -> Any:
    if type(given).__name__ == "TensorProto":
        return array_of(given, Folders())
    return np.asarray(given) if isinstance(given, np.ndarray | np.generic) else given
