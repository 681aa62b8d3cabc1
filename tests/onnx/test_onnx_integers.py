"""Products of 8-bit integers as quantisers write them: any type of weights, any zero point."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

for name in ("onnx", "onnx.helper"):
    pytest.importorskip(name, reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
helper: Any = import_module("onnx.helper")
numpy_helper: Any = import_module("onnx.numpy_helper")
load: Any = import_module("dlprim.onnx").load

pytestmark = pytest.mark.any_level
MICROSOFT = one.MICROSOFT
WIDTHS = [5, 300, 768, 1000, 1280, 3072]


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(dtype: Any, *shape: int) -> np.ndarray:
    whole = np.iinfo(dtype)
    return RNG.integers(whole.min, whole.max + 1, shape).astype(dtype)


def loaded(
    nodes: list[tuple[str, str, str, dict[str, Any]]],
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    result: Any = np.float32,
) -> Any:
    """A model of ``(operator, inputs, outputs, attributes)`` whose result is called y."""
    own = ("Dynamic", "QLinear", "MatMulIntegerTo", "QGemm")
    made = [
        helper.make_node(
            op,
            read.split(","),
            written.split(","),
            domain=MICROSOFT if op.startswith(own) and op != "DynamicQuantizeLinear" else "",
            **attributes,
        )
        for op, read, written, attributes in nodes
    ]
    types = helper.np_dtype_to_tensor_dtype
    ports = [
        helper.make_tensor_value_info(it, types(array.dtype), array.shape)
        for it, array in inputs.items()
    ]
    ends = [helper.make_tensor_value_info("y", types(np.dtype(result)), None)]
    known = [numpy_helper.from_array(array, it) for it, array in constants.items()]
    graph = helper.make_graph(made, "some", ports, ends, known)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return load(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def steps_of(model: Any) -> list[str]:
    """The kinds of its steps."""
    lines = [line for line in model.explain().splitlines() if "->" in line]
    return [line.split(": ")[1].split("(")[0] for line in lines]


def dynamic(x: np.ndarray) -> tuple[np.ndarray, float, int]:
    """What DynamicQuantizeLinear says: bytes, scale and zero point."""
    low, high = np.float32(min(0, x.min())), np.float32(max(0, x.max()))
    scale = (high - low) / np.float32(255)
    zero = int(np.clip(np.rint(-low / scale), 0, 255))
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), float(scale), zero


def zero_points(dtype: Any, columns: int, kind: str) -> np.ndarray | None:
    middle = 117 if dtype == np.uint8 else 3
    match kind:
        case "none":
            return None
        case "one":
            return np.array(middle, dtype)
        case "middle":
            return np.array(128 if dtype == np.uint8 else 0, dtype)
    return integers(dtype, columns)


# ---------------------------------------------------------------- matrices


@pytest.mark.parametrize("kind", ["none", "one", "middle", "column"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("width", WIDTHS)
def test_products_of_arrays_quantised_at_run_time(width: int, dtype: Any, kind: str) -> None:
    columns = 33
    x, w, zero = f(7, width), integers(dtype, width, columns), zero_points(dtype, columns, kind)
    scales = RNG.uniform(0.001, 0.01, columns).astype(np.float32)
    names = "q,w,z,wz" if zero is not None else "q,w,z"
    nodes = [
        ("DynamicQuantizeLinear", "x", "q,s,z", {}),
        ("MatMulInteger", names, "c", {}),
        ("Cast", "c", "f", {"to": 1}),
        ("Mul", "s,ws", "sw", {}),
        ("Mul", "f,sw", "y", {}),
    ]
    constants = {"w": w, "ws": scales} | ({} if zero is None else {"wz": zero})
    model = loaded(nodes, {"x": x}, constants)
    q, scale, shift = dynamic(x)
    sums = (q.astype(int) - shift) @ (w.astype(int) - (0 if zero is None else zero.astype(int)))
    right = sums * (np.float64(scale) * scales)
    # A few roundings of parts that may be larger than the sum.
    np.testing.assert_allclose(model(x), right, rtol=0, atol=2e-6 * np.abs(right).max() + 1e-6)
    assert "call" not in steps_of(model)
    assert "linear" in steps_of(model)


@pytest.mark.parametrize("kind", ["none", "one", "middle", "column"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("width", [5, 300, 3072])
@pytest.mark.parametrize("left", [np.uint8, np.int8])
def test_sums_of_integers_are_exact(width: int, dtype: Any, kind: str, left: Any) -> None:
    a, b, zero = integers(left, 2, 3, width), integers(dtype, width, 6), zero_points(dtype, 6, kind)
    lefts = np.array(7, left)
    case = one.Case("MatMulInteger", [a, b, lefts, zero], {}, constants=[1, 2, 3])
    right = (a.astype(int) - 7) @ (b.astype(int) - (0 if zero is None else zero.astype(int)))
    result = one.by_dlprim(case, [right.astype(np.int32)])[0]
    np.testing.assert_array_equal(result, right)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("width", WIDTHS)
def test_matrices_in_the_domain_of_the_quantiser(width: int, dtype: Any) -> None:
    x, w, bias = f(2, 5, width), integers(dtype, width, 20), f(20)
    zero = integers(dtype, 20)
    scales = RNG.uniform(0.001, 0.01, 20).astype(np.float32)
    constants = {"w": w, "ws": scales, "wz": zero, "b": bias}
    model = loaded([("DynamicQuantizeMatMul", "x,w,ws,wz,b", "y", {})], {"x": x}, constants)
    q, scale, shift = dynamic(x)
    sums = (q.astype(int) - shift) @ (w.astype(int) - zero)
    right = sums * (np.float64(scale) * scales) + bias
    bound = 2e-6 * np.abs(right).max() + 1e-6
    np.testing.assert_allclose(model(x), right, rtol=0, atol=bound)
    assert "call" not in steps_of(model)
    given = constants | {"s": np.float32([scale]), "z": np.uint8([shift])}
    name = "MatMulIntegerToFloat"
    model = loaded([(name, "q,w,s,ws,z,wz,b", "y", {})], {"q": q}, given)
    np.testing.assert_allclose(model(q), right, rtol=0, atol=bound)
    assert "call" not in steps_of(model)


# ---------------------------------------------------------------- images


def convolved(x: np.ndarray, w: np.ndarray, group: int, pad: int, stride: int) -> np.ndarray:
    """Sums of products of integers, pixel by pixel."""
    n, _, height, width = x.shape
    k, c, size, _ = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    rows, columns = ((it + 2 * pad - size) // stride + 1 for it in (height, width))
    y = np.zeros((n, k, rows, columns), np.int64)
    for out in range(k):
        first = out // (k // group) * c
        for i in range(rows):
            for j in range(columns):
                at = (slice(i * stride, i * stride + size), slice(j * stride, j * stride + size))
                y[:, out, i, j] = (padded[:, first : first + c, *at] * w[out]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize("kind", ["none", "one", "middle", "column"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("group", "channels", "filters", "size", "pad", "stride"),
    [(1, 5, 7, 3, 1, 1), (2, 8, 6, 3, 1, 2), (6, 6, 6, 3, 1, 1), (1, 300, 4, 1, 0, 1)],
)
def test_images_of_integers(
    dtype: Any, kind: str, group: int, channels: int, filters: int, size: int, pad: int, stride: int
) -> None:
    x, w = (
        integers(np.uint8, 2, channels, 6, 5),
        integers(dtype, filters, channels // group, size, size),
    )
    zero = zero_points(dtype, filters, kind)
    shift = np.array(117, np.uint8)
    moved = 0 if zero is None else zero.astype(int).reshape(-1, 1, 1, 1)
    right = convolved(x.astype(int) - 117, w.astype(int) - moved, group, pad, stride)
    attributes = {"group": group, "pads": [pad] * 4, "strides": [stride] * 2}
    arrays = [x, w, shift, zero]
    case = one.Case("ConvInteger", arrays, attributes, constants=[1, 3])
    result = one.by_dlprim(case, [right.astype(np.int32)])[0]
    np.testing.assert_array_equal(result, right)
    names = "x,w,z,wz" if zero is not None else "x,w,z"
    nodes = [("ConvInteger", names, "c", attributes), ("Cast", "c", "y", {"to": 1})]
    constants = {"w": w} | ({} if zero is None else {"wz": zero})
    model = loaded(nodes, {"x": x, "z": shift}, constants)
    np.testing.assert_allclose(model(x, shift), right, rtol=0, atol=2e-6 * np.abs(right).max())
    assert "call" not in steps_of(model)


def test_zero_points_of_other_counts_are_refused() -> None:
    x, w = integers(np.uint8, 1, 2, 4, 4), integers(np.uint8, 3, 2, 3, 3)
    case = one.Case("ConvInteger", [x, w, None, integers(np.uint8, 2)], {}, constants=[1, 3])
    with pytest.raises(ValueError, match=r"w_zero_point of \[2\], expected one number or 3"):
        one.by_dlprim(case, [np.int32(0)])


def test_images_with_channels_last_are_the_same_numbers() -> None:
    x, w = integers(np.uint8, 1, 4, 8, 8), RNG.integers(-63, 64, (6, 4, 3, 3)).astype(np.int8)
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "w": w,
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "ys": np.float32(0.05),
        "yz": np.uint8(128),
    }
    names = "x,xs,xz,w,ws,wz,ys,yz"
    model = loaded(
        [("QLinearConv", names, "y", {"channels_last": 1})],
        {"x": x.transpose(0, 2, 3, 1)},
        constants,
        np.uint8,
    )
    sums = convolved(x.astype(int) - 120, w.astype(int), 1, 0, 1)
    right = np.clip(np.rint(sums * (0.02 * 0.01 / 0.05)) + 128, 0, 255)
    result = model(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
    assert np.abs(result.transpose(0, 3, 1, 2) - right).max() <= 1  # of which halves are few
    assert np.mean(result.transpose(0, 3, 1, 2) != right) < 0.01
