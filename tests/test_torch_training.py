"""`dlprim.torch`: what people do around a compiled model while they train it."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from torch_compare import close, compiled, run_both  # noqa: E402

pytestmark = [pytest.mark.any_level, pytest.mark.usefixtures("fresh_dynamo")]


def mlp(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), *between, nn.Linear(16, 4))


def grown(model: nn.Module, call: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    """The gradients of one step."""
    model.zero_grad()
    (call(x) ** 2).sum().backward()
    return [it.grad for it in model.parameters()]


def alike(ours: Any, theirs: Any, bound: float = 1e-5) -> None:
    for one, two in zip(ours, theirs, strict=True):
        close(one, two, bound)


# ---------------------------------------------------------------- hooks


def test_hooks_of_modules_run_and_may_change_what_passes() -> None:
    seen: list[str] = []

    def doubled(module: nn.Module, given: Any, made: torch.Tensor) -> torch.Tensor:
        seen.append("forward")
        return made * 2

    def shifted(module: nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (given[0] + 1,)

    model = mlp()
    model[1].register_forward_hook(doubled)
    model[2].register_forward_pre_hook(shifted)
    theirs, x = copy.deepcopy(model), torch.randn(3, 8)
    run = compiled(model)
    alike(grown(model, run, x), grown(theirs, theirs, x))
    assert "forward" in seen


def test_hooks_of_tensors_and_parameters_run_in_each_backward_pass() -> None:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = self.body[1](self.body[0](x))
            return self.body[2](inner)

    model = Hooked()
    theirs, x = copy.deepcopy(model), torch.randn(3, 8)
    counts = []
    for it in (model, theirs):
        it.body[0].weight.register_hook(lambda grad: grad * 3)
        it.body[2].bias.register_post_accumulate_grad_hook(lambda it: counts.append(it.grad))
    run = compiled(model)
    for _ in range(2):
        ours = grown(model, run, x)
        alike(ours, grown(theirs, theirs, x))
    assert len(counts) == 4


def test_full_backward_hooks_of_the_whole_model() -> None:
    model, x = mlp(), torch.randn(3, 8, requires_grad=True)
    run, seen = compiled(model), []
    model.register_full_backward_hook(lambda module, by, diffs: seen.append(diffs[0].clone()))
    y = run(x)
    y.sum().backward()
    assert [it.shape for it in seen] == [y.shape]


# ---------------------------------------------------------------- files


def test_a_model_is_saved_and_loaded_while_it_is_compiled() -> None:
    model, x = mlp().eval(), torch.randn(3, 8)
    run = compiled(model)
    with torch.no_grad():
        expected = run(x)
    whole, states = io.BytesIO(), io.BytesIO()
    torch.save(model, whole)
    torch.save(run.state_dict(), states)
    whole.seek(0)
    states.seek(0)
    again = torch.load(whole, weights_only=False)
    named = {it.removeprefix("_orig_mod."): value for it, value in torch.load(states).items()}
    other = mlp().eval()
    other.load_state_dict(named)
    with torch.no_grad():
        for it in (again, other, compiled(again), compiled(other)):
            close(it(x), expected, 1e-5)


@pytest.mark.parametrize("freeze", [False, True])
def test_a_model_is_compiled_once_more_after_its_weights_were_loaded(freeze: bool) -> None:
    model, source, x = mlp().eval(), mlp().eval(), torch.randn(3, 8)
    how = {"options": {"freeze": True}} if freeze else {}
    first = compiled(model, **how)
    with torch.no_grad():
        close(first(x), model(x), 1e-5)
        model.load_state_dict(source.state_dict())
        second = compiled(model, **how)
        for run in (second, first):
            close(run(x), source(x), 1e-5)
    model.train()
    source.train()
    alike(grown(model, second, x), grown(source, source, x))


# ---------------------------------------------------------------- steps


def test_an_exception_in_the_middle_of_a_step_leaves_nothing_behind() -> None:
    class HookError(Exception):
        pass

    def fail(grad: torch.Tensor) -> None:
        raise HookError

    model = mlp()
    theirs, x = copy.deepcopy(model), torch.randn(3, 8)
    run = compiled(model)
    expected = grown(theirs, theirs, x)
    alike(grown(model, run, x), expected)
    y = run(x)
    y.register_hook(fail)
    with pytest.raises(HookError):
        y.sum().backward()  # before the backward graph
    given = model[0].weight.register_hook(fail)
    with pytest.raises(HookError):
        run(x).sum().backward()  # behind it
    given.remove()
    with pytest.raises(RuntimeError):
        run(torch.randn(3, 9))
    run(x)  # and never backward
    alike(grown(model, run, x), expected)


def test_a_backward_pass_goes_over_what_is_kept_twice() -> None:
    model, x = mlp(), torch.randn(3, 8)
    loss = compiled(model)(x).sum()
    loss.backward(retain_graph=True)
    first = [it.grad.clone() for it in model.parameters()]
    loss.backward()
    alike([it.grad for it in model.parameters()], [2 * it for it in first])
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_of_batches_are_summed_over_a_step() -> None:
    model = mlp()
    theirs = copy.deepcopy(model)
    batches = [torch.randn(3, 8) for _ in range(4)]
    run = compiled(model)
    for it, call in ((model, run), (theirs, theirs)):
        optimizer = torch.optim.SGD(it.parameters(), 0.1, momentum=0.9)
        for at, x in enumerate(batches * 2):
            (call(x).square().mean() / 2).backward()
            if at % 2:
                optimizer.step()
                optimizer.zero_grad()
    alike(model.parameters(), theirs.parameters())


def test_layers_are_frozen_and_thawed_between_steps() -> None:
    model = mlp()
    theirs, x = copy.deepcopy(model), torch.randn(3, 8)
    run = compiled(model)
    for frozen in (False, True, False):
        for it in (model, theirs):
            it[0].requires_grad_(not frozen)
        for one, two in zip(grown(model, run, x), grown(theirs, theirs, x), strict=True):
            assert (one is None) == (two is None)
            if one is not None:
                close(one, two, 1e-5)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.0, 1.0])
def test_the_same_seed_draws_the_same_masks(share: float) -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(nn.Dropout(share))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.dropout(self.body(x), share, self.training)

    model, x = Dropped(), torch.randn(32, 8)
    theirs = copy.deepcopy(model)
    run = compiled(model)
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        ours = run(x), run(x)
        torch.manual_seed(seed)
        alike(ours, (theirs(x), theirs(x)))
    run_both(model, lambda: (x,))


def test_autocast_around_the_call_and_a_scale_of_the_loss() -> None:
    model, x = mlp(), torch.randn(16, 8)
    theirs = copy.deepcopy(model)
    run = compiled(model)
    for it, call in ((model, run), (theirs, theirs)):
        for is_on in (True, False, True):
            it.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_on):
                y = call(x)
            assert y.dtype == (torch.bfloat16 if is_on else torch.float32)
            (y.float().square().mean() * 1024).backward()
    alike([it.grad for it in model.parameters()], [it.grad for it in theirs.parameters()], 0.05)
