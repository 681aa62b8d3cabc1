"""`dlprim.torch.SGD` and `AdamW` beside those of PyTorch."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest

import dlprim

torch = pytest.importorskip("torch", reason="PyTorch is what they are like")

from torch import nn  # noqa: E402

from torch_compare import close  # noqa: E402

pytestmark = pytest.mark.any_level

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    ("AdamW", {"lr": torch.tensor(0.01), "amsgrad": True, "maximize": True, "fused": True}),
]


def ours(name: str) -> Any:
    import dlprim.torch

    return getattr(dlprim.torch, name)


def theirs(name: str) -> Any:
    return getattr(torch.optim, name)


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 9, 5, bias=False))
    return made.to(dtype)


def pair(name: str, dtype: torch.dtype = torch.float32, **how: Any) -> list[tuple[Any, Any]]:
    """The same model twice, with our optimiser and with theirs."""
    first = model(dtype)
    second = copy.deepcopy(first)
    kinds = ours(name), theirs(name)
    return [
        (it, kind(it.parameters(), **how)) for it, kind in zip((first, second), kinds, strict=True)
    ]


def train(it: Any, optimizer: Any, seeds: range = range(6)) -> None:
    """Steps along drawn gradients, so that those of two models are the same."""
    for seed in seeds:
        drawn = torch.Generator().manual_seed(seed)
        for parameter in it.parameters():
            made = torch.randn(parameter.shape, generator=drawn)
            parameter.grad = made.to(parameter.dtype)
        optimizer.step()


def same(first: Any, second: Any, bound: float = 2e-6) -> None:
    for one, two in zip(first.parameters(), second.parameters(), strict=True):
        close(one, two, bound)


@pytest.mark.parametrize(("name", "how"), SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_steps_are_those_of_pytorch(name: str, how: dict[str, Any], dtype: torch.dtype) -> None:
    (first, one), (second, two) = pair(name, dtype, **how)
    train(first, one)
    train(second, two)
    same(first, second, 2e-6 if dtype == torch.float32 else 2e-2)
    assert one.state_dict()["state"].keys() == two.state_dict()["state"].keys()
    for left, right in zip(one.state.values(), two.state.values(), strict=True):
        assert left.keys() == right.keys()
        for key in left:
            if left[key] is not None:
                close(left[key], right[key], 2e-6 if dtype == torch.float32 else 2e-2)


def test_bfloat16_is_rounded_once() -> None:
    """One step, from zero states, in float64 and rounded."""
    weight, slope = torch.randn(2, 1000, generator=torch.Generator().manual_seed(1))
    parameter = nn.Parameter(weight.bfloat16())
    before = parameter.detach().double()
    parameter.grad = slope.bfloat16()
    ours("AdamW")([parameter], 0.01, weight_decay=0.1).step()
    g = parameter.grad.double()
    exact = before * (1 - 0.001) - 0.01 * g / (g.abs() + 1e-8)
    # Half of the last place, and what is computed in float32 in front of it.
    last = torch.exp2(torch.floor(torch.log2(exact.abs())) - 7)
    assert ((parameter.double() - exact).abs() <= 0.501 * last + 1e-6).all()


@pytest.mark.parametrize(("name", "how"), [SETTINGS[2], SETTINGS[4], SETTINGS[6]])
@pytest.mark.parametrize("ours_first", [True, False], ids=["from ours", "from theirs"])
def test_states_go_either_way(name: str, how: dict[str, Any], ours_first: bool) -> None:
    (first, one), (second, two) = pair(name, **how)
    beginning, ending = (ours(name), theirs(name)) if ours_first else (theirs(name), ours(name))
    del one
    begun = beginning(first.parameters(), **how)
    train(first, begun, range(3))
    stored = io.BytesIO()
    torch.save((first.state_dict(), begun.state_dict()), stored)
    stored.seek(0)
    weights, states = torch.load(stored)
    other = model()
    other.load_state_dict(weights)
    ended = ending(other.parameters(), **how)
    ended.load_state_dict(states)
    train(other, ended, range(3, 6))
    train(second, two)
    same(other, second)


def test_groups_schedules_closures_and_hooks() -> None:
    first = model()
    second = copy.deepcopy(first)
    ended, seen = [], []
    for it, kind in ((first, ours("AdamW")), (second, theirs("AdamW"))):
        groups = [{"params": it[0].parameters(), "lr": 0.05}, {"params": it[2].parameters()}]
        optimizer = kind(groups, lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)
        optimizer.register_step_post_hook(lambda *_: seen.append(1))
        x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(3))

        def closure(it: Any = it, optimizer: Any = optimizer, x: Any = x) -> Any:
            optimizer.zero_grad()
            loss = it(x).square().mean()
            loss.backward()
            return loss

        for _ in range(6):
            loss = optimizer.step(closure)
            schedule.step()
        ended.append(loss.item())
    assert ended[0] == pytest.approx(ended[1], rel=1e-4)
    assert len(seen) == 12
    same(first, second, 1e-4)


def test_a_scaled_gradient_and_one_that_overflowed() -> None:
    (first, one), (second, two) = pair("AdamW", fused=True)
    for it, optimizer in ((first, one), (second, two)):
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        for place in range(3):
            optimizer.zero_grad()
            scaler.scale(it(torch.full((2, 3, 5, 5), 0.1)).square().sum()).backward()
            if place == 1:
                it[0].weight.grad[0, 0, 0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
    same(first, second, 1e-5)


def test_parameters_and_gradients_that_lie_in_another_order() -> None:
    (first, one), (second, two) = pair("AdamW")
    first[0].to(memory_format=torch.channels_last)
    table = torch.randn(6, 8)
    for it, optimizer in ((first, one), (second, two)):
        own = nn.Parameter(table.clone()[:, ::2] if it is first else table[:, ::2].clone())
        optimizer.add_param_group({"params": [own]})
        it.extra = own
        train(it, optimizer)
    assert first[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert not first.extra.is_contiguous()
    same(first, second)


def test_what_is_refused_in_one_group_leaves_the_others() -> None:
    it = model()
    wrong = nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = ours("AdamW")([{"params": it.parameters()}, {"params": [wrong]}])
    before = copy.deepcopy(it.state_dict())
    for each in (*it.parameters(), wrong):
        each.grad = torch.ones_like(each)
    with pytest.raises(TypeError, match=r"a parameter is of torch\.float64"):
        optimizer.step()
    assert not optimizer.state
    for name, value in it.state_dict().items():
        assert torch.equal(value, before[name])


def test_parameters_without_gradient_stay() -> None:
    it = model()
    optimizer = ours("AdamW")(it.parameters())
    before = copy.deepcopy(it.state_dict())
    it[0].bias.grad = torch.ones(8)
    optimizer.step()
    assert torch.equal(it[0].weight, before["0.weight"])
    assert not torch.equal(it[0].bias, before["0.bias"])
    assert len(optimizer.state) == 1


def test_steps_are_counted_as_writes_and_the_same_for_any_number_of_threads() -> None:
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            it = nn.Linear(300, 300)
            torch.manual_seed(0)
            nn.init.normal_(it.weight)
            nn.init.zeros_(it.bias)
            version = it.weight._version
            train(it, ours("AdamW")(it.parameters()))
            assert it.weight._version > version
            found.append(it.weight.detach().clone())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)
    assert dlprim.get_num_threads() >= 1


REFUSED: dict[str, Callable[[], Any]] = {
    "a gradient is sparse": lambda: torch.zeros(4, 4).to_sparse(),
    "a parameter is of torch.float64": lambda: torch.zeros(4, 4, dtype=torch.float64),
    "a parameter is of torch.complex64": lambda: torch.zeros(4, 4, dtype=torch.complex64),
}


@pytest.mark.parametrize("sentence", list(REFUSED))
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_what_it_does_not_take_is_refused(name: str, sentence: str) -> None:
    gradient = REFUSED[sentence]()
    parameter = nn.Parameter(torch.ones(4, 4, dtype=gradient.dtype))
    parameter.grad = gradient
    with pytest.raises(TypeError, match=sentence):
        ours(name)([parameter]).step()
    assert (parameter == 1).all()


def test_a_step_that_is_differentiated_is_refused() -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    with pytest.raises(ValueError, match="differentiable is True, expected False"):
        ours("AdamW")([parameter], differentiable=True).step()


def test_a_parameter_whose_sign_is_not_applied_is_refused() -> None:
    """Rather than a copy of it being updated."""
    parameter = nn.Parameter(torch._neg_view(torch.ones(4)))
    parameter.grad = torch.ones(4)
    with pytest.raises(RuntimeError, match="negative bit"):
        ours("SGD")([parameter], lr=0.1).step()
