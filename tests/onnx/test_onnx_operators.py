"""Every operator with inputs and attributes that it does not expect: a result, or a sentence."""

from __future__ import annotations

import linecache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
import dlprim.onnx

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.numpy_helper", reason="onnx makes the models that are read here")
draws: Any = import_module("operator_draws")
registry: Any = import_module("dlprim.onnx.registry")

_DRAWS = 40
_MOST_BYTES = 1 << 26
PACKAGE = Path(dlprim.__file__).parent


def fault(error: Exception) -> str:
    """What is wrong with the words of a refusal: its kind, its length, or that they are NumPy's."""
    if not isinstance(error, ValueError) or len(str(error).split()) < 5:
        return f"{type(error).__name__}: {error}"
    it: BaseException | None = error
    while it is not None:
        frame = it.__traceback__
        assert frame is not None
        while frame.tb_next is not None:
            frame = frame.tb_next
        file = frame.tb_frame.f_code.co_filename
        line = linecache.getline(file, frame.tb_lineno).strip()
        # What the core says is written there.
        is_own = line.startswith("raise") or "_network.run" in line
        if str(it) in str(error) and not is_own:
            return f"{Path(file).name}:{frame.tb_lineno}: {error}"
        it = it.__cause__
    return ""


def outcome(drawn: Any) -> str:
    try:
        dlprim.onnx.load(drawn.model, max_bytes=_MOST_BYTES).run(drawn.given)
    except Exception as error:
        return fault(error)
    return ""


@pytest.mark.parametrize("key", draws.operators(), ids="/".join)
def test_what_an_operator_does_not_expect_is_refused_in_a_sentence(key: tuple[str, str]) -> None:
    found = {}
    with dlprim.threads(1):
        for operator in registry.OPERATORS[key]:
            cases = [*draws.systematic(key, operator)]
            cases += [draws.drawn(key, operator, number) for number in range(_DRAWS)]
            for case in cases:
                if problem := outcome(case):
                    found[operator.since, case.what] = problem
    assert found == {}


def test_draws_are_not_all_refused() -> None:
    """Or else what stands behind the first checks would not be met."""
    run = 0
    for key in draws.operators():
        case = draws.drawn(key, registry.OPERATORS[key][0], 1)
        try:
            dlprim.onnx.load(case.model, max_bytes=_MOST_BYTES).run(case.given)
        except ValueError:
            continue
        run += 1
    assert run > len(draws.operators()) / 10


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_to_powers_below_zero_are_cut(dtype: str) -> None:
    least = np.iinfo(dtype).min
    x = np.array([2, 1, -1, -1, 0, -3, -1, 1, 3, -2], dtype)
    powers = np.array([-1, -7, -3, -2, -1, -1, least, least, 2, 3], dtype)
    right = [0, 1, -1, 1, 0, 0, 1, 1, 9, -8]
    one: Any = import_module("one_node")
    np.testing.assert_array_equal(one.by_dlprim(one.Case("Pow", [x, powers], {}))[0], right)
