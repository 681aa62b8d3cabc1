"""Random numbers from seeds: the same in every run, as likely as they should be."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.helper", reason="onnx makes the models that are read here")
onnx: Any = import_module("onnx")
helper: Any = import_module("onnx.helper")


def model(op: str, arrays: Sequence[np.ndarray], outputs: str = "y", **attributes: Any) -> Any:
    names = [f"x{place}" for place in range(len(arrays))]
    made = helper.make_node(op, names, outputs.split(), **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(it.dtype), [None] * it.ndim
        )
        for name, it in zip(names, arrays, strict=True)
    ]
    results = [onnx.ValueInfoProto(name=it) for it in outputs.split()]
    graph = helper.make_graph([made], "drawn", inputs, results)
    opsets = [helper.make_opsetid("", 21)]
    return dlprim.onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def test_numbers_follow_from_the_seed_alone() -> None:
    x = np.zeros((30, 100), np.float32)
    uniform = {"low": 2.0, "high": 5.0}
    for op, named in (("RandomUniform", uniform), ("RandomNormal", {"mean": 3.5, "scale": 0.5})):
        fixed = model(op, [], shape=[30, 100], seed=7.0, **named)
        like = model(f"{op}Like", [x], seed=7.0, **named)
        first = fixed()
        for other in (fixed(), like(x), like(x + 1)):
            np.testing.assert_array_equal(other, first)
        assert first.dtype == np.float32
        assert abs(first.mean() - 3.5) < 0.05
        assert like(x[:2]).shape == (2, 100)
        assert np.mean(model(op, [], shape=[30, 100], seed=8.0, **named)() == first) < 0.01
    drawn = np.random.RandomState(7).random_sample((30, 100)).astype(np.float32) * 3 + 2
    np.testing.assert_allclose(model("RandomUniformLike", [x], seed=7.0, **uniform)(x), drawn, 1e-6)


def test_chances_are_those_that_are_asked_for() -> None:
    p = np.linspace(0, 1, 5, dtype=np.float32).repeat(2000)
    y = model("Bernoulli", [p], seed=1.0, dtype=7)(p)
    assert y.dtype == np.int64
    np.testing.assert_allclose(y.reshape(5, -1).mean(axis=1), [0, 0.25, 0.5, 0.75, 1], atol=0.04)
    shares = np.float64([[0.5, 0.2, 0.3], [0, 0.9, 0.1]])
    with np.errstate(divide="ignore"):
        x = np.add(np.log(shares), [[0], [2]]).astype(np.float32)
    y = model("Multinomial", [x], seed=1.0, sample_size=4000)(x)
    assert y.dtype == np.int32
    found = np.stack([np.bincount(row, minlength=3) / 4000 for row in y])
    np.testing.assert_allclose(found, shares, atol=0.04)


def test_dropout_in_training_drops_by_its_seed() -> None:
    x = np.linspace(1, 2, 4000, dtype=np.float32)
    ratio, training = np.float32(0.25), np.array(True)
    dropout = model("Dropout", [x, ratio, training], "y mask", seed=3)
    y, mask = dropout(x, ratio, training)
    np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    assert abs(mask.mean() - 0.75) < 0.03
    np.testing.assert_array_equal(dropout(x, ratio, training)[0], y)
    np.testing.assert_array_equal(dropout(x, ratio, np.array(False))[0], x)


@pytest.mark.parametrize(
    ("op", "named", "message"),
    [
        ("RandomNormalLike", {}, "attribute 'seed' is missing, expected a number"),
        ("Bernoulli", {}, "attribute 'seed' is missing, expected a number"),
        ("RandomUniformLike", {"seed": -1.0}, "seed is -1.0, expected a number from 0 to"),
        ("RandomUniformLike", {"seed": 1.0, "dtype": 7}, "dtype is int64, expected one of floats"),
        ("Bernoulli", {"seed": 1.0}, "an element of Bernoulli's input is no probability"),
    ],
)
def test_what_would_differ_from_run_to_run_is_refused(
    op: str, named: dict[str, Any], message: str
) -> None:
    x = np.full((2, 2), 3, np.float32)
    with pytest.raises(dlprim.onnx.ModelError, match=message):
        model(op, [x], **named)(x)


def test_dropout_in_training_without_a_seed_is_refused() -> None:
    arrays = [np.ones(3, np.float32), np.float32(0.5), np.array(True)]
    with pytest.raises(dlprim.onnx.ModelError, match="expected a seed, which makes runs the same"):
        model("Dropout", arrays)(*arrays)
