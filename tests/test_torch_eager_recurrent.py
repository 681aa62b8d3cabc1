"""`dlprim.torch.lstm` and `gru` beside `torch.nn.LSTM` and `GRU` in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch's tensors are what they take")

from torch_eager import BOUNDS, leaf, near, ours, results  # noqa: E402

pytestmark = pytest.mark.any_level

CELLS = pytest.mark.parametrize("cell", ["lstm", "gru"])
KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def module(cell: str, *sizes: int, **how: Any) -> Any:
    return getattr(torch.nn, cell.upper())(*sizes, **how)


def parameters(of: Any) -> dict[str, list[Any]]:
    """By the names of the arguments; of every layer and direction."""
    ways = ("", "_reverse") if of.bidirectional else ("",)
    runs = [f"l{layer}{way}" for layer in range(of.num_layers) for way in ways]
    kinds = KINDS if of.bias else KINDS[:2]
    return {kind: [getattr(of, f"{kind}_{run}") for run in runs] for kind in kinds}


def setting(of: Any) -> dict[str, Any]:
    return {name: getattr(of, name) for name in ("num_layers", "bidirectional", "batch_first")}


@CELLS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("with_states", [True, False])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_layers": 3, "batch_first": True},
        {"num_layers": 2, "bidirectional": True},
        {"bidirectional": True, "batch_first": True, "bias": False},
    ],
    ids=["one", "deep", "both", "plain"],
)
def test_values_and_gradients(
    cell: str, how: dict[str, Any], with_states: bool, dtype: Any
) -> None:
    torch.manual_seed(1)
    first = module(cell, 5, 7, **how).to(dtype)
    second = copy.deepcopy(first).double()
    x = torch.randn(4, 3, 5).to(dtype)
    runs = first.num_layers * (2 if first.bidirectional else 1)
    count = 2 if cell == "lstm" else 1
    batch = 4 if first.batch_first else 3
    begin = [torch.randn(runs, batch, 7).to(dtype) for _ in range(count)] if with_states else []
    given, doubled = leaf([x, *begin]), leaf([x, *begin], torch.float64)

    def hx(tensors: list[Any]) -> Any:
        return None if not tensors else tuple(tensors) if cell == "lstm" else tensors[0]

    made = results(ours(cell)(given[0], **parameters(first), hx=hx(given[1:]), **setting(first)))
    expected = results(second(doubled[0], hx(doubled[1:])))
    diffs = [torch.randn(it.shape).to(dtype) for it in made]
    torch.autograd.backward(made, diffs)
    torch.autograd.backward(expected, [it.double() for it in diffs])
    bound = BOUNDS[dtype] * (2 if dtype == torch.bfloat16 else 1)
    for one, two in zip(made, expected, strict=True):
        assert one.dtype == dtype
        near(one, two, bound)
    own, theirs = [*given, *first.parameters()], [*doubled, *second.parameters()]
    for one, two in zip(own, theirs, strict=True):
        assert one.grad.dtype == dtype
        near(one.grad, two.grad, bound)


@CELLS
def test_one_sequence(cell: str) -> None:
    torch.manual_seed(2)
    it = module(cell, 5, 7)
    x = torch.randn(4, 5)
    states = [torch.randn(1, 7) for _ in range(2 if cell == "lstm" else 1)]
    hx = tuple(states) if cell == "lstm" else states[0]
    single = {name: listed[0] for name, listed in parameters(it).items()}
    for one, two in zip(results(ours(cell)(x, **single, hx=hx)), results(it(x, hx)), strict=True):
        torch.testing.assert_close(one, two)


@CELLS
def test_only_some_results_go_on(cell: str) -> None:
    """Gradients by the last states alone, and with frozen parameters."""
    torch.manual_seed(3)
    it = module(cell, 5, 7, num_layers=2)
    for frozen in (it.weight_hh_l0, it.bias_ih_l1):
        frozen.requires_grad_(False)
    x, y = (leaf(torch.ones(4, 3, 5)) for _ in range(2))
    ours(cell)(x, **parameters(it), num_layers=2)[1][0].sum().backward()
    own = [p.grad for p in it.parameters()]
    it.zero_grad()
    it(y)[1][0].sum().backward()
    theirs = [p.grad for p in it.parameters()]
    for one, two in zip([x.grad, *own], [y.grad, *theirs], strict=True):
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@CELLS
def test_no_sequences_at_all(cell: str) -> None:
    it = module(cell, 5, 7)
    x = leaf(torch.zeros(4, 0, 5))
    made = results(ours(cell)(x, **parameters(it)))
    assert [tuple(each.shape) for each in made] == [
        (4, 0, 7), *[(1, 0, 7)] * (len(made) - 1)
    ]  # fmt: skip
    made[0].sum().backward()
    assert x.grad.shape == x.shape
    assert not any(p.grad.any() for p in it.parameters())


@CELLS
def test_nothing_is_kept_without_gradients(cell: str) -> None:
    it = module(cell, 5, 7)
    made = ours(cell)(torch.ones(4, 3, 5), **parameters(it))
    assert made[0].grad_fn is not None
    with torch.no_grad():
        plain = ours(cell)(torch.ones(4, 3, 5), **parameters(it))
    assert plain[0].grad_fn is None
    torch.testing.assert_close(plain[0], made[0])


@CELLS
def test_wrong_operands(cell: str) -> None:
    it = module(cell, 5, 7)
    x, given = torch.ones(4, 3, 5), parameters(it)
    function = ours(cell)
    count = 4 if cell == "lstm" else 3
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (x[0, 0], {}, r"input has shape \(5,\), expected \(T, N, C\)"),
        (torch.ones(4, 3, 6), {}, rf"weight_ih has shape \({count * 7}, 5\), expected"),
        (x, {"num_layers": 2}, "weight_ih holds 1 tensors, expected 2"),
        (x, {"num_layers": 0}, "num_layers is 0, expected at least 1"),
        (x, {"bias_hh": None}, "bias_ih or bias_hh is None, expected both or none"),
        (x.double(), {}, "input is of torch.float64, expected torch.float32 or torch.bfloat16"),
        (x.bfloat16(), {}, "weight_ih is of torch.float32, expected torch.bfloat16"),
        (x, {"weight_hh": [torch.ones(28, 7).double()]}, r"weight_hh\[0\] is of torch.float64"),
        (x, {"weight_hh": [None]}, r"weight_hh\[0\] is of type NoneType, expected a torch.Tensor"),
    ]
    for operand, how, sentence in wrong:
        with pytest.raises((TypeError, ValueError), match=sentence):
            function(operand, **given | how)
    state = torch.ones(1, 2, 7)
    hx = (state, state) if cell == "lstm" else state
    with pytest.raises(
        ValueError, match=r"h_0 has shape \(1, 2, 7\), expected \(R, N, K\) with R = 1, N = 3"
    ):
        function(x, **given, hx=hx)


def test_states_of_an_lstm_are_a_pair() -> None:
    it = module("lstm", 5, 7)
    with pytest.raises(TypeError, match=r"hx is of type Tensor, expected a pair \(h_0, c_0\)"):
        ours("lstm")(torch.ones(4, 3, 5), **parameters(it), hx=torch.ones(1, 3, 7))


@CELLS
def test_an_operator_that_kept_nothing_says_so(cell: str) -> None:
    it = module(cell, 5, 7)
    ours(cell)  # which defines the operator
    weights = [each for (each,) in parameters(it).values()]
    states = [None] * (2 if cell == "lstm" else 1)
    operator = getattr(torch.ops.dlprim, cell).default
    made = operator(torch.ones(4, 3, 5), weights, *states, 1, False, False)
    with pytest.raises(RuntimeError, match="training is False, expected True"):
        made[0].sum().backward()
