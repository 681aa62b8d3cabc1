"""What ONNX's node tests do not ask of layers: opsets, the graph's form, what cannot be."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

# Without the package this very folder passes for one named `onnx`: ask for a module in it.
pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
registry: Any = import_module("dlprim.onnx.registry")


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def scalar(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def operators_of(case: Any) -> list[str]:
    return [node.operator for node in one.graph(case).nodes]


# ---------------------------------------------------------------- what an opset decides


def test_softmax_below_13_is_of_all_axes_behind() -> None:
    x = f(2, 3, 4)
    power = np.exp(x - x.max(axis=(1, 2), keepdims=True))
    expected = power / power.sum(axis=(1, 2), keepdims=True)
    for attributes in ({"axis": 1}, {}, {"axis": -2}):
        old = one.by_dlprim(one.Case("Softmax", [x], attributes, 11))[0]
        np.testing.assert_allclose(old, expected, rtol=1e-5)
        logs = one.by_dlprim(one.Case("LogSoftmax", [x], attributes, 11))[0]
        np.testing.assert_allclose(logs, np.log(expected), rtol=1e-5)
    new = one.by_dlprim(one.Case("Softmax", [x], {"axis": 1}, 13))[0]
    np.testing.assert_allclose(new.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("opset", [13, 19, 21, 23])
def test_scales_are_those_of_channels_where_no_axis_is_named(opset: int) -> None:
    q, scale = np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.array([1, 0.5], np.float32)
    case = one.Case("DequantizeLinear", [q, scale], {}, opset, constants=[1])
    (found,) = one.by_dlprim(case, like=[scale])
    np.testing.assert_array_equal(found, q * scale[:, None])


def test_hardmax_below_13_is_of_all_axes_behind() -> None:
    x = f(2, 3, 4)
    assert one.by_dlprim(one.Case("Hardmax", [x], {}, 11))[0].sum() == 2
    assert one.by_dlprim(one.Case("Hardmax", [x], {}, 13))[0].sum() == 6


def test_group_normalization_of_18_has_numbers_for_groups() -> None:
    x, scale, bias = f(2, 6, 5), f(2), f(2)
    groups = one.by_dlprim(one.Case("GroupNormalization", [x, scale, bias], {"num_groups": 2}, 18))
    spread = [x, np.repeat(scale, 3), np.repeat(bias, 3)]
    channels = one.by_dlprim(one.Case("GroupNormalization", spread, {"num_groups": 2}, 21))
    np.testing.assert_array_equal(groups[0], channels[0])


def test_clip_takes_attributes_below_11() -> None:
    x = f(3, 4)
    old = one.by_dlprim(one.Case("Clip", [x], {"min": -0.5, "max": 0.5}, 10))[0]
    new = one.by_dlprim(one.Case("Clip", [x, scalar(-0.5), scalar(0.5)], {}, 13))[0]
    np.testing.assert_array_equal(old, np.clip(x, -0.5, 0.5))
    np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("op", ["Upsample", "Resize"])
def test_early_resizing_reads_the_pixel_in_front(op: str) -> None:
    x, scales = f(1, 1, 2, 3), np.array([1, 1, 2, 1.5], np.float32)
    opset = 9 if op == "Upsample" else 10
    y = one.by_dlprim(one.Case(op, [x, scales], {}, opset, constants=[1]))[0]
    np.testing.assert_array_equal(y, x[:, :, [0, 0, 1, 1]][..., [0, 0, 1, 2]])
    attribute = one.Case("Upsample", [x], {"scales": [1.0, 1.0, 2.0, 1.5]}, 8)
    np.testing.assert_array_equal(one.by_dlprim(attribute)[0], y)


def test_regions_of_opset_10_lie_on_pixels() -> None:
    arrays = [f(1, 2, 6, 6), np.array([[0, 0, 4, 4]], np.float32), np.zeros(1, np.int64)]
    named = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    whole = {**named, "coordinate_transformation_mode": "output_half_pixel"}
    old = one.by_dlprim(one.Case("RoiAlign", arrays, named, 10))[0]
    np.testing.assert_array_equal(old, one.by_dlprim(one.Case("RoiAlign", arrays, whole, 16))[0])
    assert not np.allclose(old, one.by_dlprim(one.Case("RoiAlign", arrays, named, 16))[0])


def test_attributes_of_later_opsets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'axis' is not known, expected one of: none"):
        one.by_dlprim(one.Case("QuantizeLinear", [f(2), scalar(1)], {"axis": 0}, 10))


# ---------------------------------------------------------------- the form in the graph


def test_batch_normalization_is_a_map_of_two_constants() -> None:
    x, numbers = f(2, 3, 4, 4), [f(3), f(3), f(3), np.abs(f(3))]
    case = one.Case("BatchNormalization", [x, *numbers], {}, 15, constants=[1, 2, 3, 4])
    graph = one.graph(case)
    assert [node.operator for node in graph.nodes] == ["map"]
    assert [it.shape for it in graph.nodes[0].operands[1:]] == [(3, 1, 1), (3, 1, 1)]


def test_transposed_weights_are_constants() -> None:
    case = one.Case("Gemm", [f(2, 3), f(4, 3), f(4)], {"transB": 1}, constants=[1, 2])
    assert operators_of(case) == ["matmul", "map"]


@pytest.mark.parametrize("width", [5, 257, 300, 515, 640, 768, 1000])
def test_integer_product_takes_sums_of_constant_columns_away(width: int) -> None:
    a, b = (RNG.integers(0, 256, s).astype(np.uint8) for s in ((3, width), (width, 4)))
    zeros = [scalar(7, np.uint8), RNG.integers(0, 256, 4).astype(np.uint8)]
    case = one.Case("MatMulInteger", [a, b, *zeros], {}, constants=[1, 2, 3])
    right = (a.astype(int) - 7) @ (b.astype(int) - zeros[1])
    np.testing.assert_array_equal(one.by_dlprim(case, [right.astype(np.int32)])[0], right)
    plain = one.Case("MatMulInteger", [a, b.astype(np.int8), zeros[0]], {}, constants=[1, 2])
    assert operators_of(plain) == ["matmul", "map"]


def test_quantised_convolution_is_written_as_pairs() -> None:
    x, w = (RNG.integers(0, 256, s).astype(np.uint8) for s in ((1, 2, 5, 5), (3, 2, 3, 3)))
    one_of = [scalar(0.1), scalar(3, np.uint8)]
    case = one.Case(
        "QLinearConv",
        [x, *one_of, w, *one_of, *one_of, np.arange(3, dtype=np.int32)],
        {},
        constants=range(1, 9),
    )
    kinds = sorted(operators_of(case))
    assert kinds == ["convolution", *["dequantize"] * 3, "quantize"]


def test_orders_of_gates_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="has the layers")
    x = f(5, 2, 4)
    for op, order in (("LSTM", [0, 3, 1, 2]), ("GRU", [1, 0, 2])):
        layer = getattr(torch.nn, op)(4, 3, bidirectional=True)
        weights: list[list[np.ndarray]] = [[], [], []]
        for end in ("", "_reverse"):
            parts = {
                name: getattr(layer, f"{name}_l0{end}").detach().numpy()
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            gates = {
                name: np.concatenate([np.split(it, len(order))[gate] for gate in order])
                for name, it in parts.items()
            }
            weights[0].append(gates["weight_ih"])
            weights[1].append(gates["weight_hh"])
            weights[2].append(np.concatenate([gates["bias_ih"], gates["bias_hh"]]))
        named = {"hidden_size": 3, "direction": "bidirectional"}
        named |= {"linear_before_reset": 1} if op == "GRU" else {}
        arrays = [x, *(np.stack(it) for it in weights)]
        y = one.by_dlprim(one.Case(op, arrays, named, 14, constants=[1, 2, 3]))[0]
        right = layer(torch.from_numpy(x))[0].detach().numpy()
        np.testing.assert_allclose(
            y.transpose(0, 2, 1, 3).reshape(right.shape), right, rtol=1e-4, atol=1e-6
        )


# ---------------------------------------------------------------- what is refused

X, W = f(1, 4, 6, 6), f(4, 2, 3, 3)
Q = RNG.integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)
REFUSED = [
    ("Conv", [X, W], {"group": 0}, "weights of .* with group 0"),
    ("Conv", [X, W], {"group": 1}, r"expected \(K, C / group"),
    ("Conv", [X, W], {"group": 2, "kernel_shape": [3, 2]}, r"expected \[3, 3\] as weights have"),
    ("Conv", [X, W], {"group": 2, "strides": [0, 1]}, r"strides is \[0, 1\], expected 2 numbers"),
    ("Conv", [X, W], {"group": 2, "dilations": [1]}, "dilations is .*expected 2 numbers"),
    ("Conv", [X, W], {"group": 2, "pads": [-1, 0, 0, 0]}, "pads is .*expected 4 numbers from 0"),
    ("Conv", [X, W], {"group": 2, "auto_pad": "SAME"}, "expected one of NOTSET, SAME_UPPER"),
    ("Conv", [X, W], {"group": 2, "dilations": [4, 1]}, "expected at most the padded ones"),
    ("Conv", [X, W, f(3)], {"group": 2}, r"B of \[3\], expected \[4\]"),
    ("Conv", [X, W], {"group": 2, "pads": [0, 0, 2**40, 0]}, "at most 2.32 pixels"),
    ("ConvTranspose", [X, W], {"group": 3}, "with group 3 do not fit"),
    ("MaxPool", [X], {"kernel_shape": [7, 1]}, "windows of 7 pixels, expected at most the 6"),
    ("LpPool", [X], {"kernel_shape": [2, 2], "p": 0}, "p is 0, expected at least 1"),
    ("Gemm", [X, W], {}, "expected matrices"),
    ("Einsum", [X], {"equation": "abc->a"}, "does not fit an input"),
    ("Einsum", [X], {"equation": "abcd->aa"}, "expected to be letters of the inputs"),
    ("Einsum", [f(2, 3), f(4, 2)], {"equation": "ij,jk"}, "j of ij,jk is both 3 and 4"),
    ("PRelu", [X, f(2, 1, 1)], {}, "expected one that can be broadcast"),
    ("BatchNormalization", [X, f(3), f(4), f(4), f(4)], {}, r"scale of \[3\], expected \[4\]"),
    ("GroupNormalization", [X, f(4), f(4)], {"num_groups": 3}, "expected a divisor"),
    ("LayerNormalization", [X, f(5)], {}, r"\[5\] cannot be expanded to \[6\]"),
    ("Softmax", [X], {"axis": 4}, "axis is 4, expected -4 to 3"),
    ("Dropout", [X, scalar(0.5), scalar(True, bool)], {}, "expected a seed, which makes"),
    ("QuantizeLinear", [X, scalar(np.nan)], {}, "a scale is no finite number above 0"),
    ("QuantizeLinear", [X, scalar(-1)], {}, "a scale is no finite number above 0"),
    ("DequantizeLinear", [Q, np.ones(3, np.float32)], {}, "3 scales, expected 1 or 4"),
    ("DequantizeLinear", [Q, np.ones(4, np.float32), Q[0, 0, 0, :3]], {}, "zero points"),
    ("Resize", [X], {}, "both or neither of scales and sizes"),
    ("Resize", [X, None, f(4) - 99], {}, "scales is .*expected finite numbers above 0"),
    ("Resize", [X, None, None, np.array([1, 4, 2**40, 1])], {}, "expected at most 2.24"),
    ("GridSample", [X, f(1, 2, 2, 3)], {}, "does not fit X"),
    ("GridSample", [X, f(1, 2, 2, 2)], {"mode": "bilinear"}, "expected linear, cubic or nearest"),
    ("LSTM", [f(3, 2, 4), f(1, 12, 4), f(1, 12, 4)], {}, r"W of \[1, 12, 4\], expected"),
    ("GRU", [f(3, 2, 4), f(1, 9, 4), f(1, 9, 3)], {"direction": "both"}, "expected forward"),
    ("RNN", [f(3, 2, 4), f(1, 3, 4), f(1, 3, 3)], {"activations": ["Sine"]}, "expected one of"),
    ("Attention", [f(1, 3, 2, 4), f(1, 2, 2, 4), f(1, 2, 2, 4)], {}, "a multiple of K's 2"),
    ("Attention", [f(1, 2, 6), f(1, 2, 6), f(1, 2, 6)], {}, "how many heads there are"),
    ("RotaryEmbedding", [X, f(1, 6, 2), f(1, 6, 2)], {}, "caches give"),
]


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "says"), REFUSED, ids=[f"{it[0]}: {it[3]}" for it in REFUSED]
)
def test_what_cannot_be_is_refused_in_a_sentence(
    op: str, arrays: Any, attributes: dict[str, Any], says: str
) -> None:
    case = one.Case(op, arrays, attributes, 23, constants=range(1, len(arrays)))
    with pytest.raises(ValueError, match=says):
        one.by_dlprim(case)


# ---------------------------------------------------------------- what is no usual number


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_product_with_beta_zero_does_not_read_what_it_adds(value: float) -> None:
    a, b = f(2, 3), f(3, 4)
    for constants in ([], [1, 2]):
        case = one.Case("Gemm", [a, b, np.full((1, 4), value, np.float32)], {"beta": 0.0})
        (found,) = one.by_dlprim(case._replace(constants=constants))
        np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "uint64"])
def test_classes_are_cut_to_whole_numbers(dtype: str) -> None:
    places = np.array([1.9, -1.9, 250, -3, 0, 2.5, 3, np.nan])
    places = places if "float" in dtype else np.array([1, 255, 250, 253, 0, 2, 3, 77])
    with np.errstate(all="ignore"):
        places = places.astype("int64" if dtype == "int8" else dtype).astype(dtype)
        whole = places.astype(np.int64)
    right = (whole[:, None] == np.arange(3)) | (whole[:, None] + 3 == np.arange(3))
    values = np.array([0, 1], np.float32)
    for constants in ([1, 2], [0, 1, 2]):
        case = one.Case("OneHot", [places, np.array(3), values], {}, constants=constants)
        np.testing.assert_array_equal(one.by_dlprim(case, [values])[0], right)


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63), 2**62, -1, 7])
@pytest.mark.parametrize("start", [0, 3, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("end", [0, 2**63 - 1, -(2**63)])
def test_slices_reach_as_far_as_integers_do(start: int, end: int, step: int) -> None:
    x = f(5, 2)
    listed = [np.array([it]) for it in (start, end, 0, step)]
    case = one.Case("Slice", [x, *listed], {}, constants=[1, 2, 3, 4])
    # What lies in front of the first element is no place from the end.
    last = None if step < 0 and end < -5 else end
    np.testing.assert_array_equal(one.by_dlprim(case)[0], x[slice(start, last, step)])


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, np.nan, 1e-45])
def test_arrays_of_one_value_are_quantised_alike_folded_and_run(value: float) -> None:
    x = np.full((2, 3), value, np.float32)
    like = [np.uint8(0), np.float32(0), np.uint8(0)]
    run, folded = (
        one.by_dlprim(one.Case("DynamicQuantizeLinear", [x], {}, outputs=3, constants=it), like)
        for it in ([], [0])
    )
    for one_of, other in zip(run, folded, strict=True):
        np.testing.assert_array_equal(one_of, other)
    assert value != 0 or [it.max() for it in run] == [0, 0, 0]
