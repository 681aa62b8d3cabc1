"""Maps of elements run as formulas, none in Python, and are what NumPy's float64 is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the cases are models of ONNX")
from one_node import Case, model

import dlprim.onnx

_ERF = np.vectorize(math.erf, otypes=[np.float64])
_ANY = np.random.default_rng(0).uniform(-4, 4, (3, 64, 37)).astype(np.float32)
_INSIDE = _ANY / np.float32(4.1)
UNARY: dict[str, tuple[Any, np.ndarray]] = {
    "Acos": (np.arccos, _INSIDE),
    "Acosh": (np.arccosh, 1 + np.abs(_ANY)),
    "Asin": (np.arcsin, _INSIDE),
    "Asinh": (np.arcsinh, _ANY),
    "Atan": (np.arctan, _ANY),
    "Atanh": (np.arctanh, _INSIDE),
    "Ceil": (np.ceil, _ANY),
    "Cos": (np.cos, 1000 * _ANY),
    "Cosh": (np.cosh, _ANY),
    "Erf": (_ERF, _ANY),
    "Floor": (np.floor, _ANY),
    "Mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), _ANY),
    "Round": (np.rint, np.round(2 * _ANY) / 2),
    "Sign": (np.sign, np.round(_ANY)),
    "Sin": (np.sin, 1000 * _ANY),
    "Sinh": (np.sinh, _ANY),
    "Softplus": (lambda x: np.log1p(np.exp(x)), _ANY - 20),
    "Tan": (np.tan, _ANY),
}
BINARY: dict[str, tuple[Any, dict[str, Any]]] = {
    "Mod": (np.fmod, {"fmod": 1}),
    "Pow": (np.power, {}),
}


def run(case: Case) -> np.ndarray:
    """The result, of a model none of whose steps is in Python."""
    made = model(case)
    made.graph.output[0].type.tensor_type.elem_type = made.graph.input[0].type.tensor_type.elem_type
    loaded = dlprim.onnx.load(made)
    (found,) = loaded.run({f"x{place}": it for place, it in enumerate(case.arrays)})
    steps = [line.split(":")[1] for line in loaded.explain().splitlines() if "->" in line]
    assert steps
    assert not any(it.strip().startswith("call") for it in steps)
    return found


@pytest.mark.parametrize("operator", sorted(UNARY))
def test_functions_of_one_operand(operator: str) -> None:
    function, x = UNARY[operator]
    found = run(Case(operator, [x], {}))
    np.testing.assert_allclose(found, function(x.astype(np.float64)), rtol=5e-7, atol=1e-44)


@pytest.mark.parametrize("operator", sorted(BINARY))
def test_functions_of_two_operands(operator: str) -> None:
    function, attributes = BINARY[operator]
    x, y = np.abs(_ANY) + np.float32(0.1), np.abs(_ANY[:, ::-1]) + np.float32(0.1)
    found = run(Case(operator, [x, y], attributes))
    right = function(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(found, right, rtol=5e-7)
