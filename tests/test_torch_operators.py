"""Operators that no common model has, in `dlprim.torch`: results and gradients beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch.nn import functional  # noqa: E402

from torch_compare import close, compiled  # noqa: E402

pytestmark = pytest.mark.any_level

_ROWS = torch.tensor([[2], [0], [2], [1]])
_COLUMNS = torch.tensor([5, 0, 1, 1, 3])
_PLACES = torch.tensor([[2, 0, 2], [1, -1, 2]])
_TAKEN = torch.tensor([[[2, 0, 3, 1]] * 3] * 2)
_MASK = torch.arange(12).reshape(3, 4) % 3 == 1


def _assigned(x: Any, values: Any) -> Any:
    y = x.clone()
    y[:, torch.tensor([2, 0]), torch.tensor([1, 3])] = values
    return y


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elu": lambda x: functional.elu(x, 0.7),
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 0.5),
    "softplus": lambda x: functional.softplus(x, 2.0, 3.0),
    "prelu": lambda x: functional.prelu(x, x[0, :4, 0].abs()),
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tan": lambda x: torch.tan(x / 4),
    "sign": lambda x: torch.sign(x) * x,
    "round": lambda x: torch.round(x * 3) + x,
    "std": lambda x: x.std(1),
    "std of a population": lambda x: x.std((0, 2), correction=0, keepdim=True),
    "var": lambda x: x.var(),
    "var_mean": lambda x: torch.cat(torch.var_mean(x, -1, keepdim=True), -1),
    "std_mean": lambda x: torch.stack(torch.std_mean(x, 0)),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, (1, 2)),
    "norm 2": lambda x: functional.normalize(x, dim=1) * x.norm(),
    "norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), -1, True),
    "cumsum": lambda x: x.cumsum(1) * x.cumsum(-1),
    "roll": lambda x: x.roll((1, -2), (0, 2)) * x.roll(5),
    "index": lambda x: x[:, _PLACES],
    "index of a grid": lambda x: x[:, _ROWS, _COLUMNS],
    "index of pairs": lambda x: x[torch.tensor([2, 0]), torch.tensor([1, -1])],
    "index of pairs behind": lambda x: x[:, torch.tensor([2, 0, 2]), torch.tensor([1, 5, 1])],
    "index of pairs apart": lambda x: x[_PLACES, :, _PLACES],
    "index_put of pairs": lambda x: x.index_put(
        (torch.tensor([2, 0]), torch.tensor([1, 3])), x[0, :2]
    ),
    "index_put of pairs behind": lambda x: _assigned(x, x[0, 0, :2]),
    "a number by a mask": lambda x: torch.index_put(x, (_MASK,), torch.tensor(2.0)) * x,
    "gather": lambda x: x.gather(2, _TAKEN) * x.gather(0, _TAKEN[:1].clamp(max=2)),
    "scatter": lambda x: x.scatter(2, _TAKEN, x[1:, :3, 2:]).scatter(1, _TAKEN[:, :1], 3.0),
    "scatter_add": lambda x: x.scatter_add(2, _TAKEN, x[1:, :3, 2:] * 2),
    "every third": lambda x: x[:, 1::2, ::3] * x[:, ::2, 1::3],
    "arange": lambda x: x * torch.arange(6) + torch.arange(1.0, 4.0, 0.75)[:, None],
    "argmax": lambda x: x * x.argmax(1, keepdim=True) + x.argmin() * x,
    "logsumexp": lambda x: x.logsumexp(1) + x.logaddexp(x * x).sum(1),
    "log1p and expm1": lambda x: torch.log1p(x * x) + torch.expm1(x / 8),
    "log_sigmoid": functional.logsigmoid,
    "arrays of one number": lambda x: x * torch.ones_like(x) + x.new_ones(4, 1) + torch.zeros(6),
    "triangles": lambda x: x.tril(1) * 2 + x.triu(),
    "glu": lambda x: functional.glu(x, 1),
    "huber": lambda x: functional.huber_loss(x, x.flip(0)) + functional.smooth_l1_loss(x, x * x),
    "mse": lambda x: functional.mse_loss(x, x * x),
    "binary cross entropy": lambda x: functional.binary_cross_entropy_with_logits(x, x.sigmoid()),
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.2),
    "hard activations": lambda x: (
        functional.hardswish(x) * functional.hardsigmoid(x) + functional.hardtanh(x)
    ),
    "remainders": lambda x: torch.remainder(x, 0.7) + torch.fmod(x, 1.5),
    "lerp": lambda x: torch.lerp(x, x * x, 0.3) + torch.addcmul(x, x, x, value=0.5),
    "rsub": lambda x: 1 - x,
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x.transpose(0, 1), 2),
    "avg_pool3d": lambda x: functional.avg_pool3d(x[None, None], (3, 2, 2), 1, (1, 0, 1)),
    "max_pool3d": lambda x: functional.max_pool3d(x[None, None], (2, 2, 3), 1, (1, 0, 1)),
    "rms_norm": lambda x: functional.rms_norm(x, (6,)),
    "index_put": lambda x: x.index_put((_PLACES[:, 0],), x[:2] * x[:2], accumulate=True),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_an_operator_is_as_it_is_eagerly(name: str) -> None:
    from dlprim.torch.explanation import listening

    def function(x: Any) -> Any:
        return FUNCTIONS[name](x * 2)

    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(3, 4, 6)
    given = [x.clone().requires_grad_() for _ in range(2)]
    with listening() as found:
        results = [compiled(function)(given[0]), function(given[1])]
        for it in results:
            it.backward(torch.linspace(-1, 1, it.numel()).reshape(it.shape))
    close(*results, 1e-5)
    close(given[0].grad, given[1].grad, 1e-5)
    assert [it.kind for it in found] == ["forward", "backward"]
    reasons = [reason for it in found for reason in it.partition.reasons.values()]
    assert not [it for it in reasons if "has no rule" in it or "instead of" in it], reasons
    assert all(it.pieces and it.pieces[0].refused is None for it in found)


def test_activations_keep_what_is_no_number() -> None:
    x = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, 200.0])
    for function in (functional.elu, functional.selu, functional.softplus, functional.logsigmoid):
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(function)(x), function(x), equal_nan=True)


SAVING: dict[str, Callable[[Any], Any]] = {
    "layer norm": lambda x: functional.layer_norm(x, (6,), x[0, 0, 0] + 1, x[0, 0, 1]),
    "group norm": lambda x: functional.group_norm(x, 2, x[0, :, 0, 0] + 1, x[0, :, 0, 1]),
    "max_pool2d": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "max_pool3d": lambda x: functional.max_pool3d(x[None], 2, ceil_mode=True),
    "attention": lambda x: functional.scaled_dot_product_attention(
        x, x.sin(), x + 1, x[:, :, :6] > 0, scale=0.3
    ),
}


@pytest.mark.parametrize("side", ["dlprim", "PyTorch"])
@pytest.mark.parametrize("name", list(SAVING))
def test_gradients_without_results_of_the_forward_pass(
    name: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the network, and where PyTorch computes a piece that dlprim refuses."""
    from dlprim.torch import piece
    from dlprim.torch.explanation import listening

    def refused(*_: Any) -> None:
        raise ValueError("refused")

    if side == "PyTorch":
        monkeypatch.setattr(piece, "compile_graph", refused)
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6)
    given = [x.clone().requires_grad_() for _ in range(2)]
    with listening() as found:
        results = [compiled(SAVING[name])(given[0]), SAVING[name](given[1])]
        for it in results:
            it.backward(torch.linspace(-1, 1, it.numel()).reshape(it.shape))
    close(*results, 1e-5)
    close(given[0].grad, given[1].grad, 1e-5)
    backward = found[1]
    assert any(
        getattr(it.target, "__name__", "") == "again" for it in backward.pieces[0].part.nodes
    )
    assert (backward.pieces[0].refused is None) is (side == "dlprim")


def _by_statistics(statistics: Callable[[Any], Any], changed: Callable[..., Any]) -> Any:
    """A layer norm by a gradient of PyTorch's, given statistics of its own."""

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            mean, factor = statistics(x)
            ctx.save_for_backward(x, mean, factor)
            return (x - mean) * factor

        @staticmethod
        def backward(ctx: Any, diff: Any) -> Any:
            x, *saved = changed(*ctx.saved_tensors)
            backward = torch.ops.aten.native_layer_norm_backward
            return backward(diff, x, x.shape[-1:], *saved, None, None, [True, False, False])[0]

    return Norm.apply


def _of_layer_norm(x: Any) -> Any:
    return torch.ops.aten.native_layer_norm(x, x.shape[-1:], None, None, 1e-5)[1:]


def _unbound(x: Any) -> Any:
    factor = (x.var(-1, keepdim=True, unbiased=False) + 0.5).rsqrt()
    return torch.unbind(torch.stack([x.mean(-1, keepdim=True), factor]))


def _in_two_blocks() -> Any:
    """Attention whose keys are in two blocks, as in a ring, joined by the sums of both."""
    aten = torch.ops.aten

    class Ring(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            blocks = [it.contiguous() for it in x.chunk(2, 2)]
            flash = aten._scaled_dot_product_flash_attention_for_cpu
            found = [flash(x, it, it) for it in blocks]
            whole = torch.logaddexp(found[0][1], found[1][1])
            y = sum(it * (one - whole).exp()[..., None] for it, one in found)
            ctx.save_for_backward(x, y, whole)
            return y

        @staticmethod
        def backward(ctx: Any, diff: Any) -> Any:
            x, y, whole = ctx.saved_tensors
            blocks = [it.contiguous() for it in x.chunk(2, 2)]
            flash = aten._scaled_dot_product_flash_attention_for_cpu_backward
            found = [flash(diff, x, it, it, y, whole, 0.0, False) for it in blocks]
            by_blocks = torch.cat([it[1] + it[2] for it in found], 2)
            return found[0][0] + found[1][0] + by_blocks

    return Ring.apply


OTHERS: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "statistics of no norm": lambda: _by_statistics(_unbound, lambda *it: it),
    "a changed mean": lambda: _by_statistics(_of_layer_norm, lambda x, m, f: (x, m + 1, f)),
    "in another order": lambda: _by_statistics(_of_layer_norm, lambda x, m, f: (x, f, m)),
    "of another operand": lambda: _by_statistics(_of_layer_norm, lambda x, m, f: (x.sin(), m, f)),
    "blocks of keys": _in_two_blocks,
}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # by PyTorch itself
@pytest.mark.parametrize("name", list(OTHERS))
def test_gradients_by_what_is_no_result_of_their_forward_operator(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6)
    given = [x.clone().requires_grad_() for _ in range(2)]
    function = OTHERS[name]()
    results = [compiled(function)(given[0]), function(given[1])]
    for it in results:
        it.backward(torch.linspace(-1, 1, it.numel()).reshape(it.shape))
    close(*results, 1e-5)
    close(given[0].grad, given[1].grad, 1e-5)


def _pool_gradient(x: Any) -> Any:
    diff, first = x[:, :, :3, :3].contiguous(), torch.zeros(2, 4, 3, 3, dtype=torch.int64)
    backward = torch.ops.aten.max_pool2d_with_indices_backward
    return backward(diff, x, [2, 2], [2, 2], [0, 0], [1, 1], False, first)


def _attention_gradient(x: Any) -> Any:
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(x.cos(), x, x, x, x.sin(), x.sum(-1), 0.0, False)[0]


@pytest.mark.parametrize("function", [_pool_gradient, _attention_gradient])
def test_gradients_that_are_called_take_what_they_are_given(
    function: Callable[[Any], Any],
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6)
    close(compiled(function)(x), function(x), 1e-5)
