"""Linear layers and convolutions on a GPU, with gradients, against PyTorch in float64."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

# isort: split
from gpu_peers import DEVICE, assert_close, drawn, exact, torch

from dlprim import gpu
from dlprim.gpu import layers

pytestmark = pytest.mark.any_level
functional = torch.nn.functional
PRIMITIVES = Path(__file__).parent.parent.parent / "cpp" / "primitives"
# N, C, H, W, K, R, S, then stride, padding, dilation, groups.
CONVOLUTIONS = [
    ((2, 5, 9, 12, 7, 3, 3), (2, 1, 1, 1)),
    ((1, 3, 11, 8, 18, 5, 3), ((2, 3), (2, 0), 1, 1)),
    ((2, 8, 7, 6, 8, 3, 3), (1, 1, (1, 2), 2)),
    ((3, 16, 5, 4, 33, 1, 1), (1, 0, 1, 1)),
    ((2, 6, 8, 8, 6, 3, 3), (1, 1, 1, 6)),
    ((1, 20, 4, 4, 16, 4, 4), (1, 0, 1, 1)),
]


def gradients(y: Any, dy: Any, arrays: list[Any]) -> list[Any]:
    return list(torch.autograd.grad(y, arrays, dy))


def sizes_and_values(function: Any, dy: Any, arrays: list[Any]) -> Any:
    """Result and gradients, and what the absolute values of their terms add up to."""
    made = []
    for change in (exact, lambda it: exact(it).abs()):
        own = [change(it).requires_grad_() for it in arrays]
        y = function(*own)
        made.append([y.detach(), *gradients(y, change(dy), own)])
    return zip(*made, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_and_their_gradients(case: Any, last: bool, dtype: str) -> None:
    (n, c, h, w_, k, r, s), steps = case
    x, w = drawn(n, c, h, w_, dtype=dtype), drawn(k, c // steps[-1], r, s, dtype=dtype)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)

    def conv(x: Any, w: Any) -> Any:
        return functional.conv2d(x, w, None, *steps)

    y = gpu.conv2d(x, w, None, *steps)
    dy = drawn(*y.shape, dtype=dtype)
    dx, dw, db = gpu.conv2d_backward(dy, x, w, *steps)
    exact_ones = list(sizes_and_values(conv, dy, [x, w]))
    terms = (c * r * s, k * r * s, n * y.shape[2] * y.shape[3])
    for found, (expected, size), count in zip((y, dx, dw), exact_ones, terms, strict=True):
        assert_close(found, expected, size, count)
    dy = exact(dy)
    assert_close(db, dy.sum((0, 2, 3)), dy.abs().sum((0, 2, 3)), terms[2])
    assert y.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    assert dx.stride() == x.stride()


LIE = {
    "sliced": lambda x: x[:, :, ::2, 1:9],
    "turned": lambda x: x.transpose(2, 3),
    "channels": lambda x: x[:, 1:5],
    "expanded": lambda x: x[:1].expand(3, *x.shape[1:]),
}


@pytest.mark.parametrize("lie", LIE.values(), ids=LIE)
def test_convolutions_of_images_that_lie_otherwise(lie: Any) -> None:
    x = lie(drawn(2, 6, 16, 12))
    w, b, steps = drawn(8, x.shape[1] // 2, 3, 3), drawn(8), ((2, 1), 1, 1, 2)
    own = [exact(it).requires_grad_() for it in (x, w, b)]
    expected = functional.conv2d(*own, *steps)
    y = gpu.conv2d(x, w, b, *steps)
    torch.testing.assert_close(exact(y), expected.detach(), rtol=1e-4, atol=1e-4)
    dy = drawn(*y.shape)
    for found, it in zip(
        gpu.conv2d_backward(dy, x, w, *steps), gradients(expected, exact(dy), own), strict=True
    ):
        torch.testing.assert_close(exact(found), it, rtol=1e-4, atol=1e-4)


def test_linear_layers_of_arrays_that_lie_otherwise() -> None:
    x, w = drawn(4, 3, 18)[:, :, ::2], drawn(9, 5).T
    found = gpu.linear(x, w)
    torch.testing.assert_close(exact(found), exact(x) @ exact(w).T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["relu", "tanh", "hardswish", "gelu"])
def test_a_convolution_with_bias_residual_and_activation(activation: str) -> None:
    x, w, bias = drawn(2, 6, 9, 7), drawn(10, 6, 3, 3), drawn(10)
    residual = drawn(2, 10, 9, 7)
    y = gpu.conv2d(x, w, bias, padding=1, activation=activation, residual=residual)
    sums = functional.conv2d(exact(x), exact(w), exact(bias), padding=1) + exact(residual)
    size = functional.conv2d(exact(x).abs(), exact(w).abs(), exact(bias).abs(), padding=1)
    expected = getattr(torch, activation, getattr(functional, activation))(sums)
    assert_close(y, expected, 1.5 * (size + exact(residual).abs()), 6 * 9 + 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 47, 20), (64, 130, 17)], ids=str)
def test_linear_layers_and_their_gradients(shape: tuple[int, int, int], dtype: str) -> None:
    n, c, k = shape
    x, w, b = drawn(2, n, c, dtype=dtype), drawn(k, c, dtype=dtype), drawn(k, dtype=dtype)
    dy = drawn(2, n, k, dtype=dtype)
    y = gpu.linear(x, w, b)
    found = (y, *gpu.linear_backward(dy, x, w))
    terms = (c + 1, k, 2 * n, 2 * n)
    both = sizes_and_values(functional.linear, dy, [x, w, b])
    for it, (expected, size), count in zip(found, both, terms, strict=True):
        assert_close(it, expected, size, count)


def test_results_have_the_type_of_x() -> None:
    x, w, b = drawn(6, 20, dtype="bfloat16"), drawn(9, 20, dtype="bfloat16"), drawn(9)
    y = gpu.linear(x, w, b)
    assert y.dtype == torch.bfloat16
    size = functional.linear(exact(x).abs(), exact(w).abs(), exact(b).abs())
    assert_close(y, functional.linear(exact(x), exact(w), exact(b)), size, 21)


def test_layers_are_the_statements_that_the_drivers_of_the_cpu_are_made_of() -> None:
    if not PRIMITIVES.is_dir():
        pytest.skip(f"{PRIMITIVES} is not there: the tests run without a source checkout")
    sources = {
        name: "".join(it.read_text() for it in (PRIMITIVES / name).glob("*_contraction.cpp"))
        for name in ("conv", "linear")
    }
    assert layers.CONVOLUTION.format(**{it: it for it in "udtvel"}) in sources["conv"]
    assert layers.LINEAR in sources["linear"]


def test_the_batch_of_a_convolution_is_its_taps() -> None:
    x, w = drawn(1, 32, 6, 6), drawn(16, 32, 3, 3)
    x = x.contiguous(memory_format=torch.channels_last)
    made = gpu.compile("y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)", x, w)
    assert re.search(r"k c \(32\); batch r \(3\), s \(3\); outside none", made.explain())


@pytest.mark.parametrize(
    ("shape", "named", "match"),
    [
        ((8, 3, 3, 3), {}, r"^w has shape \(8, 3, 3, 3\) and groups is 1, which takes 3 \* 1 = 3"),
        ((9, 2, 3, 3), {"groups": 2}, r"^w has 9 filters, expected a multiple of 2 groups"),
        ((8, 4, 9, 9), {}, r"^w has shape \(8, 4, 9, 9\), expected a filter that fits x"),
        ((8, 4, 3, 3), {"stride": 0}, r"^stride is 0, expected integers of at least 1"),
        ((8, 4, 3, 3), {"padding": -1}, r"^padding is -1, expected integers of at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(shape: Any, named: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        gpu.conv2d(drawn(1, 4, 6, 6), drawn(*shape), **named)


def test_shapes_of_arrays_beside_x_are_looked_at() -> None:
    x, w = drawn(2, 3, 4), drawn(5, 4)
    with pytest.raises(ValueError, match=r"^w has shape \(5, 3\), expected \(K, C\) for x of"):
        gpu.linear(x, drawn(5, 3))
    with pytest.raises(ValueError, match=r"^bias has shape \(4,\), expected \(5,\)$"):
        gpu.linear(x, w, drawn(4))
    with pytest.raises(ValueError, match=r"^dy has shape \(2, 5\), expected \(2, 3, 5\)$"):
        gpu.linear_backward(drawn(2, 5), x, w)
    images, filters = drawn(1, 4, 6, 6), drawn(8, 4, 3, 3)
    with pytest.raises(ValueError, match=r"^residual has shape .*, expected \(1, 8, 4, 4\)$"):
        gpu.conv2d(images, filters, residual=drawn(1, 8, 6, 6))


@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4), (4,), (3, 0)], ids=str)
def test_linear_layers_of_any_rank_and_of_nothing(shape: tuple[int, ...]) -> None:
    x, w = drawn(*shape), drawn(5, shape[-1])
    y = gpu.linear(x, w)
    torch.testing.assert_close(exact(y), exact(x) @ exact(w).T, rtol=1e-5, atol=1e-5)
    dx, dw, db = gpu.linear_backward(y, x, w)
    assert (dx.shape, dw.shape, db.shape) == (x.shape, w.shape, w.shape[:1])
    torch.testing.assert_close(exact(dx), exact(y) @ exact(w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("padding", "around"), [("same", (1, 1, 1, 1)), (((1, 0), (0, 2)), (0, 2, 1, 0))]
)
def test_padding_is_that_of_the_cpu(padding: Any, around: tuple[int, ...]) -> None:
    x, w = drawn(1, 4, 6, 6), drawn(8, 4, 3, 3)
    expected = functional.conv2d(functional.pad(exact(x), around), exact(w))
    size = functional.conv2d(functional.pad(exact(x).abs(), around), exact(w).abs())
    assert_close(gpu.conv2d(x, w, padding=padding), expected, size, 36)


def test_arrays_elsewhere_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^w is of type list, expected an array with __dlpack__"):
        gpu.linear(drawn(2, 2), [[1.0]])
    where = torch.empty(2, 2, device="meta")
    with pytest.raises(ValueError, match=rf"^x, w: on {DEVICE}.*, meta, expected arrays on one"):
        gpu.linear(drawn(2, 2), where)
