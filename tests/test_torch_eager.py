"""`dlprim.torch.linear`, `conv2d`, `layer_norm` and `attention` beside PyTorch's in float64."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch's tensors are what they take")

from torch.nn import functional  # noqa: E402

from torch_eager import leaf, ours, same_as_theirs  # noqa: E402

pytestmark = pytest.mark.any_level

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
LAST = torch.channels_last


def normal(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(shape).to(dtype)


def sdpa(query: Any, key: Any, value: Any, *how: Any, **named: Any) -> Any:
    return functional.scaled_dot_product_attention(query, key, value, *how, **named)


THEIRS = {
    "linear": functional.linear,
    "conv2d": functional.conv2d,
    "layer_norm": functional.layer_norm,
    "attention": sdpa,
}


def check(name: str, *operands: Any, **how: Any) -> Any:
    (made,) = same_as_theirs(ours(name), THEIRS[name], operands, **how)
    return made


# ---------------------------------------------------------------- values and gradients


@DTYPES
@pytest.mark.parametrize("seed", range(6))
def test_linear(seed: int, dtype: Any) -> None:
    torch.manual_seed(seed)
    drawn = random.Random(seed)
    front = [drawn.randint(1, 5) for _ in range(seed % 4)]
    c, k = drawn.randint(1, 40), drawn.randint(1, 40)
    bias = normal(k, dtype=dtype) if seed % 2 else None
    check("linear", normal(*front, c, dtype=dtype), normal(k, c, dtype=dtype), bias)


@DTYPES
@pytest.mark.parametrize("form", [torch.contiguous_format, LAST], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("seed", range(8))
def test_conv2d(seed: int, form: Any, dtype: Any) -> None:
    torch.manual_seed(seed)
    drawn = random.Random(seed)
    groups = drawn.choice([1, 1, 2, 4])
    depth, each = drawn.randint(1, 5), drawn.randint(1, 5)
    taps = drawn.choice([(1, 1), (3, 3), (2, 3)])
    how: dict[str, Any] = {
        "stride": drawn.choice([1, 2, (2, 1)]),
        "padding": drawn.choice([0, 1, (2, 0)]),
        "dilation": drawn.choice([1, (1, 2)]),
        "groups": groups,
    }
    if seed % 4 == 3:
        how |= {"stride": 1, "padding": drawn.choice(["same", "valid"])}
    x = normal(drawn.randint(1, 3), depth * groups, 7, drawn.randint(6, 9), dtype=dtype)
    w = normal(each * groups, depth, *taps, dtype=dtype)
    bias = normal(each * groups, dtype=dtype) if seed % 2 else None
    made = check("conv2d", x.to(memory_format=form), w.to(memory_format=form), bias, **how)
    assert made.is_contiguous(memory_format=form)


def test_conv2d_of_one_image() -> None:
    check("conv2d", normal(3, 5, 6), normal(4, 3, 3, 3), normal(4), padding="same")


def test_conv2d_pads_even_windows_behind() -> None:
    x, w = normal(2, 3, 5, 6), normal(4, 3, 2, 4)
    made = ours("conv2d")(x, w, padding="same")
    expected = functional.conv2d(functional.pad(x, (1, 2, 0, 1)), w)
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)


@DTYPES
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("given", list(itertools.product((True, False), repeat=2)))
def test_layer_norm(axes: int, given: tuple[bool, bool], dtype: Any) -> None:
    torch.manual_seed(axes)
    x = normal(3, 4, 5, 6, dtype=dtype)
    shape = tuple(x.shape[-axes:])
    parameters = [normal(*shape, dtype=dtype) if it else None for it in given]
    check("layer_norm", x, shape, *parameters, eps=1e-3)


def test_layer_norm_takes_parameters_of_float32_beside_bfloat16() -> None:
    check("layer_norm", normal(5, 8, dtype=torch.bfloat16), (8,), normal(8), normal(8))


@DTYPES
@pytest.mark.parametrize("seed", range(6))
def test_attention(seed: int, dtype: Any) -> None:
    torch.manual_seed(seed)
    drawn = random.Random(seed)
    heads, rows, keys = drawn.randint(1, 4), drawn.randint(1, 9), drawn.randint(1, 9)
    width, depth = drawn.randint(1, 12), drawn.randint(1, 12)
    front = [[], [2], [2, 3]][seed % 3]
    kinds = ("none", "bool", "float", "causal")
    kind = kinds[seed % len(kinds)]
    how: dict[str, Any] = {"scale": 0.3} if seed % 2 else {}
    if kind == "bool":
        how["attn_mask"] = (torch.rand(rows, keys) > 0.4) | (torch.arange(keys) == 0)
    if kind == "float":
        added = normal(heads, 1, keys, dtype=dtype)
        operands = [normal(*front, heads, n, d, dtype=dtype) for n, d in ((rows, width),)]
        operands += [normal(*front, heads, keys, d, dtype=dtype) for d in (width, depth)]

        def masked(query: Any, key: Any, value: Any, **named: Any) -> Any:
            mask = added.double() if query.dtype == torch.float64 else added
            function = sdpa if query.dtype == torch.float64 else ours("attention")
            return function(query, key, value, attn_mask=mask, **named)

        same_as_theirs(masked, masked, operands, **how)
        return
    how["is_causal"] = kind == "causal"
    query = normal(*front, heads, rows, width, dtype=dtype)
    key = normal(*front, heads, keys, width, dtype=dtype)
    value = normal(*front, heads, keys, depth, dtype=dtype)
    check("attention", query, key, value, **how)


def test_attention_of_heads_that_share_keys() -> None:
    query, key, value = normal(2, 6, 5, 8), normal(2, 3, 7, 8), normal(2, 3, 7, 4)
    check("attention", query, key, value, enable_gqa=True)


def test_the_result_of_attention_lies_as_the_query() -> None:
    both = [normal(2, 5, 3, 8).transpose(1, 2) for _ in range(3)]
    made = check("attention", *both)
    assert made.transpose(1, 2).is_contiguous()


# ---------------------------------------------------------------- layouts, gradients that are asked


def turned(tensor: Any) -> Any:
    return tensor.permute(*reversed(range(tensor.dim())))


def gapped(tensor: Any) -> Any:
    return tensor[..., ::2]


@pytest.mark.parametrize("view", [turned, gapped])
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("linear", [(4, 3, 6), (5, 6), (5,)]),
        ("conv2d", [(2, 3, 6, 7), (4, 3, 3, 2), (4,)]),
        ("layer_norm", [(4, 3, 6), (3, 6), (3, 6)]),
        ("attention", [(2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 4)]),
    ],
)
def test_turned_operands_and_some_with_gaps(
    name: str, shapes: list[tuple[int, ...]], view: Callable[[Any], Any]
) -> None:
    """Gradients of the results lie so, too."""
    torch.manual_seed(0)
    bases = [it[::-1] if view is turned else (*it[:-1], 2 * it[-1]) for it in shapes]

    def viewing(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            first, *rest = map(view, given)
            more = [shapes[1]] if name == "layer_norm" else []
            made = function(first, *more, *rest)
            return turned(made.repeat_interleave(2, -1)) if view is turned else made

        return run

    same_as_theirs(viewing(ours(name)), viewing(THEIRS[name]), [normal(*it) for it in bases])


@pytest.mark.parametrize("name", ["linear", "conv2d", "layer_norm", "attention"])
def test_gradients_are_of_what_requires_them(name: str) -> None:
    torch.manual_seed(0)
    operands: dict[str, list[Any]] = {
        "linear": [normal(2, 4, 6), normal(5, 6), normal(5)],
        "conv2d": [normal(2, 3, 6, 7), normal(4, 3, 3, 3), normal(4)],
        "layer_norm": [normal(4, 6), (6,), normal(6), normal(6)],
        "attention": [normal(3, 4, 5), normal(3, 6, 5), normal(3, 6, 2)],
    }
    function = ours(name)
    whole = [leaf(it) for it in operands[name]]
    function(*whole).sum().backward()
    places = [at for at, it in enumerate(whole) if isinstance(it, torch.Tensor)]
    for wanted in itertools.product((True, False), repeat=len(places)):
        given = [it.detach() if isinstance(it, torch.Tensor) else it for it in whole]
        for at, asked in zip(places, wanted, strict=True):
            given[at].requires_grad_(asked)
        made = function(*given)
        assert made.requires_grad == any(wanted)
        if made.requires_grad:
            made.sum().backward()
        for at, asked in zip(places, wanted, strict=True):
            if asked:
                torch.testing.assert_close(given[at].grad, whole[at].grad, atol=1e-4, rtol=1e-4)
            else:
                assert given[at].grad is None


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("linear", [(0, 6), (5, 6), (5,)]),
        ("linear", [(3, 0), (5, 0), (5,)]),
        ("linear", [(3, 6), (0, 6), (0,)]),
        ("conv2d", [(0, 3, 6, 7), (4, 3, 3, 3), (4,)]),
        ("attention", [(2, 0, 5), (2, 3, 5), (2, 3, 4)]),
        ("attention", [(0, 3, 5), (0, 3, 5), (0, 3, 4)]),
    ],
)
def test_empty_tensors(name: str, shapes: list[tuple[int, ...]]) -> None:
    check(name, *(normal(*it) for it in shapes))


def test_layer_norm_of_no_rows() -> None:
    check("layer_norm", normal(0, 6), (6,), normal(6), normal(6))


def test_a_query_without_keys_has_zeros() -> None:
    query = leaf(normal(2, 3, 5))
    made = ours("attention")(query, normal(2, 0, 5), normal(2, 0, 4))
    made.sum().backward()
    assert made.shape == (2, 3, 4)
    assert not made.any()
    assert not query.grad.any()


def test_results_follow_what_is_written_in_place() -> None:
    """As PyTorch's own: a backward pass of operands that were overwritten is refused."""
    x, w = normal(3, 4), leaf(normal(5, 4))
    made = ours("linear")(x, w)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()
