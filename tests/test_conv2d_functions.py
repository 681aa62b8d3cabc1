"""conv2d and conv2d_backward on plain arrays: values, layouts, what is copied, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import conv_reference as reference
import dlprim
from conv_cases import FIXED, Conv, padded, random_convs

F4 = np.float32
# Images of 1 MiB when packed, which run in portions; numbers of them that portions do not divide.
PORTIONS = [
    Conv(5, 32, 56, 64, 40, 1, 1),
    Conv(7, 32, 56, 64, 64, 1, 1, (2, 2)),
    Conv(7, 48, 41, 63, 20, 1, 1, (3, 2)),
    Conv(9, 33, 50, 50, 32, 3, 3, (1, 1), padded(1, 1)),
    Conv(5, 32, 60, 60, 32, 3, 3, (1, 1), padded(1, 1), groups=4),
    Conv(5, 32, 60, 60, 32, 3, 3, (1, 1), padded(1, 1), groups=32),
]
CASES = [*FIXED, *random_convs(30, seed=5), *PORTIONS]
CASE = Conv(2, 6, 9, 8, 10, 3, 2, (2, 1), ((1, 0), (0, 1)), groups=2)

both_layouts = pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


def operands(case: Conv, dtype: str = "float32") -> dict[str, np.ndarray]:
    """As PyTorch holds them; the bias is float32."""
    random = np.random.default_rng(sum(case.x_shape))
    shapes = {"x": case.x_shape, "w": case.w_shape, "dy": case.y_shape, "residual": case.y_shape}
    values = {name: random.standard_normal(shape, F4) for name, shape in shapes.items()}
    if dtype == "bfloat16":
        values = {name: dlprim.to_bfloat16(value) for name, value in values.items()}
    return {**values, "bias": random.standard_normal(case.K, F4)}


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if layout == "NHWC" else array


def plain(array: np.ndarray, layout: str) -> np.ndarray:
    return array.transpose(0, 3, 1, 2) if layout == "NHWC" else array


# ---------------------------------------------------------------- values


@both_layouts
@both_dtypes
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case: Conv, layout: str, dtype: str) -> None:
    t = operands(case, dtype)
    x, dy, residual = (laid_out(t[name], layout) for name in ("x", "dy", "residual"))
    y = dlprim.conv2d(
        x, t["w"], t["bias"], **case.keywords, activation="relu", residual=residual, layout=layout
    )
    expected = reference.forward(case, t["x"], t["w"]).plus(t["bias"][:, None, None])
    expected = expected.plus(reference.doubles(t["residual"])).through("relu")
    reference.assert_close(np.ascontiguousarray(plain(y, layout)), expected)

    relu = {"y": y, "activation": "relu"}
    dx, dw, db = dlprim.conv2d_backward(dy, x, t["w"], **case.keywords, layout=layout, **relu)
    diff = reference.relu_backward(t["dy"], np.ascontiguousarray(plain(y, layout)))
    dx = np.ascontiguousarray(plain(dx, layout))
    reference.assert_close(dx, reference.backward_data(case, diff, t["w"]))
    reference.assert_close(dw, reference.backward_weights(case, t["x"], diff))
    reference.assert_close(db, reference.diff_bias(diff))
    assert (dx.dtype, dw.dtype, db.dtype) == (x.dtype, t["w"].dtype, F4)


@both_layouts
@both_dtypes
def test_without_epilogue(layout: str, dtype: str) -> None:
    t = operands(CASE, dtype)
    x, dy = laid_out(t["x"], layout), laid_out(t["dy"], layout)
    y = dlprim.conv2d(x, t["w"], **CASE.keywords, layout=layout)
    expected = reference.forward(CASE, t["x"], t["w"])
    reference.assert_close(np.ascontiguousarray(plain(y, layout)), expected)
    _, dw, db = dlprim.conv2d_backward(dy, x, t["w"], **CASE.keywords, layout=layout)
    reference.assert_close(dw, reference.backward_weights(CASE, t["x"], t["dy"]))
    reference.assert_close(db, reference.diff_bias(t["dy"]))


@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
def test_activation(activation: str) -> None:
    t = operands(CASE)
    y = dlprim.conv2d(t["x"], t["w"], **CASE.keywords, activation=activation)
    expected = reference.forward(CASE, t["x"], t["w"])
    reference.assert_close(y, reference.activated(expected, activation))


@pytest.mark.parametrize(
    ("padding", "same_as"),
    [
        (2, ((2, 2), (2, 2))),
        (np.int64(2), ((2, 2), (2, 2))),
        ((1, 2), ((1, 1), (2, 2))),
        (np.array([1, 2]), ((1, 1), (2, 2))),
        ([[0, 1], [2, 3]], ((0, 1), (2, 3))),
        ("same", ((1, 2), (3, 3))),
        ("valid", 0),
    ],
)
def test_forms_of_padding(padding: Any, same_as: Any) -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((1, 2, 7, 8), F4), random.standard_normal((3, 2, 4, 3), F4)
    y = dlprim.conv2d(x, w, padding=padding, dilation=(1, 3))
    np.testing.assert_array_equal(y, dlprim.conv2d(x, w, padding=same_as, dilation=[1, 3]))


def test_same_padding_keeps_the_size() -> None:
    x, w = np.ones((1, 2, 7, 8), F4), np.ones((3, 2, 4, 3), F4)
    y = dlprim.conv2d(x, w, padding="same", dilation=(1, 3))
    assert y.shape == (1, 3, 7, 8)
    assert y[0, 0, 3, 4] == 2 * 4 * 3


@both_layouts
def test_agrees_with_torch(layout: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    t = operands(Conv(2, 6, 9, 8, 10, 3, 2, (2, 1), padded(1, 2), (1, 2), groups=2))
    x, w, bias = (torch.from_numpy(t[name]).requires_grad_() for name in ("x", "w", "bias"))
    settings = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
    expected = torch.relu(torch.nn.functional.conv2d(x, w, bias, **settings))
    expected.backward(torch.from_numpy(t["dy"]))
    mine = laid_out(t["x"], layout)
    y = dlprim.conv2d(mine, t["w"], t["bias"], **settings, activation="relu", layout=layout)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(plain(y, layout), expected.detach(), **close)
    dx, dw, db = dlprim.conv2d_backward(
        laid_out(t["dy"], layout), mine, t["w"], **settings, layout=layout, y=y, activation="relu"
    )
    np.testing.assert_allclose(plain(dx, layout), x.grad, **close)
    np.testing.assert_allclose(dw, w.grad, **close)
    np.testing.assert_allclose(db, bias.grad, **close)


# ---------------------------------------------------------------- operands


@both_layouts
def test_operands_that_are_not_contiguous_are_copied(layout: str) -> None:
    t = operands(CASE)
    x, dy, residual = (laid_out(t[name], layout) for name in ("x", "dy", "residual"))

    def scattered(array: np.ndarray) -> np.ndarray:
        return np.repeat(np.asfortranarray(array), 2, axis=-1)[..., ::2]

    keywords = {**CASE.keywords, "layout": layout}
    expected = dlprim.conv2d(x, t["w"], t["bias"], residual=residual, **keywords)
    y = dlprim.conv2d(
        scattered(x), scattered(t["w"]), scattered(t["bias"]), residual=scattered(residual),
        **keywords,
    )  # fmt: skip
    np.testing.assert_array_equal(y, expected)
    gradients = dlprim.conv2d_backward(dy, x, t["w"], **keywords)
    again = dlprim.conv2d_backward(scattered(dy), scattered(x), scattered(t["w"]), **keywords)
    for one, other in zip(gradients, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_bits_of_bfloat16_are_taken_for_bfloat16() -> None:
    t = operands(CASE, "bfloat16")
    bits = {name: t[name].view(np.uint16) for name in ("x", "w", "dy")}
    y = dlprim.conv2d(t["x"], t["w"], **CASE.keywords)
    said = {**CASE.keywords, "dtype": "bfloat16"}
    again = dlprim.conv2d(bits["x"], bits["w"], **said)
    assert again.dtype == np.uint16
    np.testing.assert_array_equal(again, y.view(np.uint16))
    gradients = dlprim.conv2d_backward(t["dy"], t["x"], t["w"], **CASE.keywords)
    others = dlprim.conv2d_backward(bits["dy"], bits["x"], bits["w"], **said)
    assert [each.dtype for each in others] == [np.uint16, np.uint16, F4]
    assert [each.tobytes() for each in others] == [each.tobytes() for each in gradients]


@both_dtypes
def test_bias_of_bfloat16(dtype: str) -> None:
    t = operands(CASE, dtype)
    bias = dlprim.to_bfloat16(t["bias"])
    y = dlprim.conv2d(t["x"], t["w"], bias, **CASE.keywords)
    expected = dlprim.conv2d(t["x"], t["w"], dlprim.to_float32(bias), **CASE.keywords)
    assert y.tobytes() == expected.tobytes()


def test_threads_call_at_once() -> None:
    cases = [*random_convs(12, seed=6), CASE]
    tensors = [operands(case) for case in cases]

    def solve(number: int) -> list[bytes]:
        case, t = cases[number % len(cases)], tensors[number % len(cases)]
        y = dlprim.conv2d(t["x"], t["w"], **case.keywords)
        gradients = dlprim.conv2d_backward(t["dy"], t["x"], t["w"], **case.keywords)
        return [each.tobytes() for each in (y, *gradients)]

    expected = [solve(number) for number in range(len(cases))]
    with ThreadPoolExecutor(8) as pool:
        for number, result in enumerate(pool.map(solve, range(10 * len(cases)))):
            assert result == expected[number % len(cases)]


# ---------------------------------------------------------------- out


@both_layouts
@both_dtypes
def test_result_goes_to_out(layout: str, dtype: str) -> None:
    t = operands(CASE, dtype)
    x = laid_out(t["x"], layout)
    expected = dlprim.conv2d(x, t["w"], **CASE.keywords, layout=layout)
    out = np.zeros_like(expected)
    assert dlprim.conv2d(x, t["w"], **CASE.keywords, layout=layout, out=out) is out
    assert out.tobytes() == expected.tobytes()


SQUARE = (2, 5, 5, 5)  # in either layout
WRONG_OUT: list[tuple[Callable[[dict[str, np.ndarray]], Any], type[Exception], str]] = [
    (lambda t: np.zeros(SQUARE), TypeError, r"^out has dtype float64, expected float32"),
    (lambda t: [0.0], TypeError, r"^out is of type list"),
    (lambda t: np.zeros((2, 5, 5, 6), F4), ValueError, r"^out has shape \(2, 5, 5, 6\)"),
    (lambda t: np.zeros(SQUARE, F4).swapaxes(2, 3), ValueError, r"^out has strides"),
    (lambda t: t["x"], ValueError, r"^out shares memory with x"),
    (lambda t: t["residual"], ValueError, r"^out shares memory with residual"),
]


@both_layouts
@pytest.mark.parametrize(("wrong", "error", "match"), WRONG_OUT)
def test_out_is_refused_unless_it_fits(
    wrong: Callable[..., Any], error: type[Exception], match: str, layout: str
) -> None:
    t = {"x": np.ones(SQUARE, F4), "residual": np.ones(SQUARE, F4)}
    w = np.ones((5, 5, 1, 1), F4)
    out = wrong(t)
    before = np.array(out)
    with pytest.raises(error, match=match):
        dlprim.conv2d(t["x"], w, residual=t["residual"], layout=layout, out=out)
    np.testing.assert_array_equal(out, before)


# ---------------------------------------------------------------- refusals

X, W, Y = np.zeros((2, 4, 6, 7), F4), np.zeros((3, 4, 3, 2), F4), np.zeros((2, 3, 4, 6), F4)

WRONG = [
    ({"x": X.astype(float)}, TypeError, r"^x has dtype float64, expected float32 or bfloat16"),
    ({"x": X.astype(">f4")}, TypeError, r"^x has dtype >f4"),
    ({"x": [[1.0]]}, TypeError, r"^x is of type list"),
    ({"x": X[0]}, ValueError, r"^x has shape \(4, 6, 7\), expected four dimensions"),
    ({"x": X[:, :3]}, ValueError, r"^w has shape \(3, 4, 3, 2\) and groups is 1.* x has C = 3"),
    ({"w": dlprim.to_bfloat16(W)}, TypeError, r"^w has dtype .*, expected float32 as x has"),
    ({"w": W[0]}, ValueError, r"^w has shape \(4, 3, 2\), expected four dimensions"),
    ({"groups": 2}, ValueError, r"^w has shape .*groups is 2.*4 \* 2 = 8 input channels"),
    ({"groups": 0}, ValueError, r"^groups is 0, expected at least 1"),
    ({"groups": 1.0}, TypeError, r"^groups holds 1\.0"),
    ({"stride": (1, 2, 3)}, ValueError, r"^stride is \(1, 2, 3\), expected an integer or a pair"),
    ({"stride": 1.5}, TypeError, r"^stride is 1\.5"),
    ({"stride": "12"}, TypeError, r"^stride holds '1'"),
    ({"dilation": None}, TypeError, r"^dilation is None"),
    ({"dilation": 2**70}, ValueError, r"^dilation holds \d+, which is out of range"),
    ({"padding": "full"}, ValueError, r"^padding is 'full', expected .* 'same' or 'valid'"),
    ({"padding": "same", "stride": 2}, ValueError, r"^padding is 'same' and stride is \(2, 2\)"),
    ({"padding": (1, 2, 3)}, ValueError, r"^padding is \(1, 2, 3\)"),
    ({"padding": ((1, 2), (1, "a"))}, TypeError, r"^padding holds 'a'"),
    ({"layout": "nchw"}, ValueError, r"^layout is 'nchw', expected 'NCHW' or 'NHWC'"),
    ({"algorithm": "winograd"}, ValueError, r"^algorithm is 'winograd', which cannot do"),
    ({"algorithm": ["auto"]}, ValueError, r"^algorithm is \['auto'\], expected one of auto"),
    ({"activation": "elu"}, ValueError, r"^activation is 'elu', expected"),
]
WRONG_FORWARD = [
    ({"bias": np.zeros(4, F4)}, ValueError, r"^bias has shape \(4,\), expected \(3,\)"),
    ({"bias": np.zeros(3)}, TypeError, r"^bias has dtype float64"),
    ({"residual": Y[:1]}, ValueError, r"^residual has shape \(1, 3, 4, 6\), expected \(2, 3, 4"),
    ({"residual": dlprim.to_bfloat16(Y)}, TypeError, r"^residual has dtype .*, expected float32"),
    ({"x": X[:, :, :2]}, ValueError, r"covers 3 rows .*only 2 \(H=2"),
    ({"stride": 0}, ValueError, r"^stride is 0, expected"),
    ({"dilation": (1, -1)}, ValueError, r"^dilation is \(1, -1\), expected"),
    ({"padding": ((0, 0), (0, -3))}, ValueError, r"^padding is \(0, -3\), expected"),
    ({"x": X[:, :, :, :0]}, ValueError, r"^W=0, expected"),
]
WRONG_BACKWARD = [
    ({"dy": Y[..., 1:]}, ValueError, r"^dy has shape \(2, 3, 4, 5\), expected \(2, 3, 4, 6\)"),
    ({"dy": Y.astype(float)}, TypeError, r"^dy has dtype float64"),
    ({"dy": None}, TypeError, r"^dy is of type NoneType"),
    ({"activation": "relu"}, ValueError, r"^y is missing: the gradient of activation='relu'"),
    ({"y": Y}, ValueError, r"^y is given and activation is None, expected no y"),
    ({"activation": "relu", "y": Y[:1]}, ValueError, r"^y has shape \(1, 3, 4, 6\)"),
    ({"activation": "gelu", "y": Y}, ValueError, r"^y is given, but .*'gelu' needs z, what the"),
    ({"activation": "tanh", "z": Y}, ValueError, r"^z is given, but .*'tanh' needs y, the result"),
    (
        {"activation": "silu"},
        ValueError,
        r"^z is missing: .*'swish' needs what .* conv2d without it",
    ),
    ({"activation": "mish", "y": Y}, ValueError, r"^activation is 'mish', expected one of 'relu'"),
]


@pytest.mark.parametrize(("change", "error", "match"), [*WRONG, *WRONG_FORWARD])
def test_conv2d_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    out = np.full(Y.shape, 7, F4)
    with pytest.raises(error, match=match):
        dlprim.conv2d(**({"x": X, "w": W, "out": out} | change))
    assert (out == 7).all()


@pytest.mark.parametrize(("change", "error", "match"), [*WRONG, *WRONG_BACKWARD])
def test_backward_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        dlprim.conv2d_backward(**({"dy": Y, "x": X, "w": W} | change))
