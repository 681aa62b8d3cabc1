"""ONNX's own node tests: each passes, or is refused in a sentence and listed in refused.txt.

The list may only shrink: a case that passes must leave it.
"""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from dlprim.graph import interpret
from dlprim.graph.graph import Array, Graph

onnx: Any = pytest.importorskip("onnx.backend.test.loader", reason="onnx has the cases")
proto: Any = import_module("dlprim.onnx.proto")

REFUSED = Path(__file__).parent / "refused.txt"
LISTED = dict(line.split(": ", 1) for line in REFUSED.read_text().splitlines() if ": " in line)
# Cases differ from release to release; of others than this only right results are asked for.
RELEASE = re.findall(r"onnx (\S+)", REFUSED.read_text())[0]
IS_RELEASE = import_module("onnx").__version__ == RELEASE
# Results of halves may be two units in the last place apart, as of bfloat16 in ONNX's own runner.
ROUNDING = {"bfloat16": 2.0**-6, "float16": 2.0**-9}

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what computes the expected results overflows on purpose
    CASES = {case.name: case for case in onnx.load_model_tests(kind="node")}


class Interpreted:
    """What stands in for a compiled graph where nothing is to be optimised."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, arrays: list[Array]) -> list[Array]:
        return interpret(self.graph, arrays)


def array(given: Any) -> Any:
    if type(given).__name__ == "TensorProto":
        return proto.array_of(given, ())
    return np.asarray(given) if isinstance(given, np.ndarray | np.generic) else given


def require_close(result: Array, expected: Any, rtol: float, atol: float) -> None:
    expected = array(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if result.dtype.kind not in "biu":
        rtol = max(rtol, ROUNDING.get(result.dtype.name, 0))
        result, expected = (
            it.astype(np.float64) if it.dtype.kind != "c" else it for it in (result, expected)
        )
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


def run(case: Any) -> None:
    model = dlprim.onnx.load(case.model)
    for inputs, expected in case.data_sets:
        results = model.run(dict(zip(model.inputs, map(array, inputs), strict=True)))
        for result, right in zip(results, expected, strict=True):
            require_close(result, right, case.rtol, case.atol)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["compiled", "interpreted"])
def test_node(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "interpreted":
        monkeypatch.setattr("dlprim.onnx.model.compile_graph", Interpreted)
    if IS_RELEASE and name in LISTED:
        with pytest.raises(dlprim.onnx.ModelError) as refusal:
            run(CASES[name])
        assert len(str(refusal.value).split()) >= 5
        return
    try:
        run(CASES[name])
    except dlprim.onnx.ModelError as error:
        if IS_RELEASE:
            raise
        pytest.skip(f"refused: {error}")


def test_the_list_names_cases_and_is_sorted() -> None:
    assert list(LISTED) == sorted(LISTED)
    assert not IS_RELEASE or set(LISTED) <= set(CASES)
