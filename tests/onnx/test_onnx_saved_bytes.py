"""Files of quantised models: weights in 8 bits, where nothing else reads them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import model_file

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
onnx: Any = import_module("dlprim.onnx")


def network(rows: int = 64) -> Any:
    """Convolutions with and without a norm behind them, then products, one of a transposed matrix
    that lies behind another, and a table that is a product's weights as well."""
    from onnx import numpy_helper, parser

    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["": 20]>
        it (float[n,3,12,12] x, int64[n] words) => (float[n,50] y) {
            a = Conv<pads = [1, 1, 1, 1]>(x, first)
            b = BatchNormalization(a, gain, shift, mean, variance)
            c = Relu(b)
            d = Conv<group = 2>(c, second, bias)
            e = GlobalAveragePool(d)
            f = Flatten(e)
            g = Gemm<transB = 1>(f, third, bias)
            h = Relu(g)
            i = MatMul(h, fourth)
            word = Gather(table, words)
            sum = Add(i, word)
            columns = Transpose<perm = [1, 0]>(table)
            y = MatMul(sum, columns)
        }"""
    )
    random = np.random.default_rng(0)
    arrays = {
        "first": (64, 3, 5, 5), "gain": 64, "shift": 64, "mean": 64, "second": (rows, 32, 3, 3),
        "bias": rows, "third": (rows, rows), "fourth": (rows, 48), "table": (50, 48),
    }  # fmt: skip
    for name, shape in arrays.items():
        drawn = 0.1 * random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(drawn, name))
    variance = random.uniform(0.5, 2, 64).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(variance, "variance"))
    return model


def calls(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(1)
    x = random.standard_normal((count, 2, 3, 12, 12)).astype(np.float32)
    return [{"x": it, "words": random.integers(0, 50, 2)} for it in x]


def test_weights_of_quantised_layers_are_in_8_bits(tmp_path: Path) -> None:
    model = onnx.load(network())
    quantized = dlprim.quantize(model, calls(4), max_error=1)
    assert len(quantized.table.layers) == 5
    model.save(tmp_path / "floats")
    quantized.save(tmp_path / "it")
    other = dlprim.load(tmp_path / "it")
    for arrays in calls(3):
        np.testing.assert_array_equal(other(**arrays), quantized(**arrays))
    other.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "it").read_bytes()
    header, arrays = model_file.read(model_file.NETWORK, tmp_path / "it")
    channels = {"first": 0, "second": 0, "third": 0, "fourth": 1}
    assert header["channels"] == channels
    assert all(arrays[f"weight {it}"].dtype == np.int8 for it in channels)
    assert arrays["weight table"].dtype == np.float32
    floats, table = (tmp_path / "floats").stat().st_size, arrays["weight table"].nbytes
    assert (tmp_path / "it").stat().st_size < 0.25 * (floats - table) + table + 8000


@pytest.mark.parametrize("left_out", ["#0", "#3", "#6", "#8"])
def test_layers_that_stay_in_floats_have_float_weights(left_out: str, tmp_path: Path) -> None:
    model = onnx.load(network(32))
    quantized = dlprim.quantize(model, calls(1), exclude=[left_out], max_error=1)
    quantized.save(tmp_path / "it")
    header, _ = model_file.read(model_file.NETWORK, tmp_path / "it")
    place = ["#0", "#3", "#6", "#8"].index(left_out)
    named = ["first", "second", "third", "fourth"]
    assert list(header["channels"]) == named[:place] + named[place + 1 :]
    np.testing.assert_array_equal(
        quantized.source.arrays[named[place]], model.source.arrays[named[place]]
    )


def test_weights_in_8_bits_are_those_of_their_floats() -> None:
    from dlprim.graph.quantization.weights import in_bytes

    random = np.random.default_rng(2)
    for scale in (1e-30, 1e-3, 1, 300, 1e30):
        drawn = (scale * random.standard_normal((48, 7, 3))).astype(np.float32)
        drawn[5] = 0
        for axis in range(3):
            once = in_bytes(drawn, axis)
            again = in_bytes(once.floats, axis)
            assert np.abs(once.floats - drawn).max() < np.abs(drawn).max() / 250
            for a, b in zip(once, again, strict=True):
                np.testing.assert_array_equal(a, b)


def test_forged_weights_are_refused(tmp_path: Path) -> None:
    dlprim.quantize(onnx.load(network(32)), calls(1), max_error=1).save(tmp_path / "it")

    def refused(because: str, channels: Any, **changed: Any) -> None:
        header, arrays = model_file.read(model_file.NETWORK, tmp_path / "it")
        header["channels"] = channels
        arrays.update((name.replace("_", " "), it) for name, it in changed.items())
        model_file.write(model_file.NETWORK, tmp_path / "forged", header, arrays)
        with pytest.raises(model_file.ModelFileError, match=because):
            dlprim.load(tmp_path / "forged")

    refused("does not describe a model", 3)
    refused("does not describe a model", {"z": 0})
    refused("has no initializers", {})
    values, scales = np.zeros((32, 32), np.int8), np.ones(32, np.float32)
    for axis in (2, -1, "0", None, 1.0):
        refused(f"of axis {axis}", {"third": axis})
    refused(r"\(4,\) scales are given", {"third": 0}, scales_third=scales[:4])
    refused("weights are uint8", {"third": 0}, weight_third=values.astype(np.uint8))
    refused("scales of float64", {"third": 0}, scales_third=scales.astype(np.float64))
    refused("initializers", {"z": 0}, weight_z=values, scales_z=scales)
