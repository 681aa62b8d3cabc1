"""ONNX's own node tests: each passes, or is refused in a sentence and listed in refused.txt.

The list may only shrink: a case that passes must leave it.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from dlprim import _core
from dlprim.graph import interpret
from dlprim.graph.graph import Array, Graph
from dlprim.onnx.strings import STRING

pytest.importorskip("onnx.backend.test.case.node", reason="onnx has the cases")
node_cases: Any = import_module("node_cases")
MODULES, array, cases = node_cases.MODULES, node_cases.array, node_cases.cases

REFUSED = Path(__file__).parent / "refused.txt"
LISTED = dict(line.split(": ", 1) for line in REFUSED.read_text().splitlines() if ": " in line)
# Cases differ from release to release; of others than this only right results are asked for.
RELEASE = re.findall(r"onnx (\S+)", REFUSED.read_text())[0]
IS_RELEASE = import_module("onnx").__version__ == RELEASE
# Results of halves may be two units in the last place apart, as of bfloat16 in ONNX's own runner.
ROUNDING = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
# Of 0 and 1 that are drawn only types and shapes are said.
DRAWN = {"test_bernoulli_seed", "test_bernoulli_seed_expanded"}


# What may run as functions of Python, and why; and all that reads texts.
IN_PYTHON = {
    "attention": "scores are changed by what attention of the core does not know, or are doubles",
    "convolution": "dlprim's function, of weights that are computed or of other than two axes",
    "deform_conv": "each tap of a window is read at a place of its own",
    "determinant": "LAPACK",
    "draw": "NumPy's generators",
    "draw_classes": "NumPy's generators",
    "draw_true": "NumPy's generators",
    "einsum": "sums of doubles and of bfloat16",
    "fourier": "NumPy's transforms of long signals, and of doubles",
    "linear_attention": "a state that each step of time changes by products of vectors",
    "matmul": "doubles",
    "max_pool_places": "where extremes of windows are",
    "max_roi_pool": "regions of images",
    "max_unpool": "the other way round",
    "narrow": "floats of 8 bits and fewer",
    "roi_align": "regions of images",
    "transposed_convolution": "dlprim's function",
}


class Interpreted:
    """What stands in for a compiled graph where nothing is to be optimised."""

    structure = ()  # of no recording: each shape has a graph of its own
    network = _core.Network()  # which no loop runs

    def __init__(self, graph: Graph, **_: Any) -> None:
        self.graph = graph

    def run(self, arrays: list[Array]) -> list[Array]:
        return interpret(self.graph, arrays)


def require_close(result: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        for one, right in zip(result, expected, strict=True):
            require_close(one, right, rtol, atol)
        return
    if expected is None:
        assert result is None
        return
    expected = array(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    if result.dtype.kind == "O":  # texts
        np.testing.assert_array_equal(result, expected)
        return
    if result.dtype.kind not in "biu":
        rtol = max(rtol, ROUNDING.get(result.dtype.name, 0))
        result, expected = (
            it.astype(np.float64) if it.dtype.kind != "c" else it for it in (result, expected)
        )
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


def called(model: dlprim.onnx.OnnxModel) -> set[str]:
    """The functions of Python among the steps of its networks, but those that read texts."""
    lines = [it.strip() for it in model.explain().splitlines() if ": call(" in it]
    return {re.split("[ :]", it)[0] for it in lines if STRING.name not in it}


def run(case: Any, is_compiled: bool = False) -> None:
    model = dlprim.onnx.load(case.model)
    for inputs, expected in case.data_sets:
        results = model.run(dict(zip(model.inputs, map(array, inputs), strict=True)))
        for result, right in zip(results, expected, strict=True):
            require_close(result, right, case.rtol, 1.0 if case.name in DRAWN else case.atol)
    if is_compiled:
        assert called(model) <= IN_PYTHON.keys()


def fault(case: Any, is_compiled: bool = False) -> str:
    """What is wrong with the result, or with its absence; empty where nothing is."""
    listed = IS_RELEASE and case.name in LISTED
    try:
        run(case, is_compiled)
    except dlprim.onnx.ModelError as error:
        expected = len(str(error).split()) >= 5 if listed else not IS_RELEASE
        return "" if expected else f"refused: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "it passes and is listed as refused" if listed else ""


def faults(module: str, is_compiled: bool = False) -> dict[str, str]:
    found = {name: fault(case, is_compiled) for name, case in cases(module).items()}
    return {name: each for name, each in found.items() if each}


@pytest.mark.parametrize("module", MODULES)
def test_cases_of_an_operator(module: str) -> None:
    """Right, and by steps of the core but for what is named."""
    assert faults(module, is_compiled=True) == {}


@pytest.mark.any_level
@pytest.mark.parametrize("module", MODULES)
def test_cases_of_an_operator_interpreted(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlprim.onnx.parts.part.compile_graph", Interpreted)
    assert faults(module) == {}


@pytest.mark.any_level
def test_the_list_names_cases_and_is_sorted() -> None:
    assert list(LISTED) == sorted(LISTED)
    names = {name for module in MODULES for name in cases(module)}
    assert len(names) > 1500
    assert not IS_RELEASE or set(LISTED) <= names
