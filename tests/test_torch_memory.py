"""`dlprim.torch`: parameters that change, buffers and inputs that are written, views, strides."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402

from torch_compare import close, compiled, run_both  # noqa: E402

pytestmark = [pytest.mark.any_level, pytest.mark.usefixtures("fresh_dynamo")]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


# ---------------------------------------------------------------- parameters


def changed(model: nn.Module, how: str) -> None:
    weight = model[0].weight
    with torch.no_grad():
        if how == "in place":
            weight.mul_(2)
        elif how == "data":
            weight.data.add_(1)
        elif how == "new storage":
            weight.data = weight.data + 1
        elif how == "numpy":
            weight.detach().numpy()[...] = 0.5
        elif how == "assigned":
            other = {name: it + 1 for name, it in model.state_dict().items()}
            model.load_state_dict(other, assign=True)
        elif how == "another":
            model[0].weight = nn.Parameter(weight + 1)
        else:
            weight.grad = torch.ones_like(weight)
            torch.optim.SGD([weight], 0.5, fused=True).step()


CHANGES = ["in place", "data", "new storage", "numpy", "assigned", "another", "fused optimiser"]


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_of_a_parameter_is_seen(how: str) -> None:
    model, x = mlp().eval(), torch.randn(3, 8)
    run = compiled(model, options={"freeze": True})
    with torch.no_grad():
        close(run(x), model(x), 1e-5)
        close(run(x), model(x), 1e-5)
    changed(model, how)
    with torch.no_grad():
        close(run(x), model(x), 1e-5)


def test_parameters_that_change_often_become_operands() -> None:
    model, x = mlp().eval(), torch.randn(3, 8)
    run = compiled(model, options={"freeze": True})
    for _ in range(8):
        with torch.no_grad():
            close(run(x), model(x), 1e-5)
            model[0].weight.add_(0.1)


def test_parameters_are_read_in_every_call() -> None:
    model, x = mlp().eval(), torch.randn(3, 8)
    run = compiled(model)
    with torch.no_grad():
        close(run(x), model(x), 1e-5)
        model[0].weight.data[0, 0] += 1
        close(run(x), model(x), 1e-5)


def test_frozen_and_unused_parameters_have_no_gradient() -> None:
    class Some(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.unused = mlp(), nn.Linear(3, 3)
            self.body[0].weight.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

    x = torch.randn(3, 8)
    run_both(Some(), lambda: (x,))


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 8)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.table(x)))

    x = torch.randint(0, 11, (3, 5))
    run_both(Tied(), lambda: (x,))


# ---------------------------------------------------------------- writes and views


def test_buffers_that_are_written() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("total", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x.detach().sum(0))
            return self.layer(x) * self.total

    x = torch.randn(3, 8)
    run_both(Counting(), lambda: (x,))


def test_inputs_that_are_written_and_views_of_them() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y.mul_(2)
        return x.t(), x[1:], (x @ y.t()).relu_(), y

    a, b = torch.randn(3, 8), torch.randn(3, 8)
    other = b.clone()
    found = compiled(f)(a, b)
    expected = f(a, other)
    close(b, other, 0)
    for one, two in zip(found, expected, strict=True):
        close(one, two, 1e-5)
        assert one.stride() == two.stride()
    assert found[0].data_ptr() == found[0]._base.data_ptr() == a.data_ptr()
    assert found[3] is b


def test_results_do_not_share_memory() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y.clone(), y.view(-1)

    first, second, third = compiled(f)(torch.zeros(2, 3))
    first.add_(1)
    assert second.sum() == 6
    assert third.sum() == 12


FORMS = {
    "transposed": lambda: torch.randn(8, 3).t(),
    "a part": lambda: torch.randn(3, 16)[:, ::2],
    "repeated": lambda: torch.randn(3, 1).expand(3, 8),
    "behind": lambda: torch.randn(4, 8)[1:],
    "turned": lambda: torch.randn(8, 1, 3).permute(2, 1, 0)[:, 0],
}


@pytest.mark.parametrize("form", list(FORMS))
def test_tensors_as_they_lie(form: str) -> None:
    model = mlp().eval()
    run = compiled(model)
    with torch.inference_mode():
        for _ in range(2):
            x = FORMS[form]()
            close(run(x), model(x), 1e-5)


def test_a_repeated_tensor_is_as_large_as_in_its_own_call() -> None:
    run = compiled(lambda x: (torch.relu(x) * 2, torch.exp(x).sum()))
    x = torch.randn(1, 8)
    for n in (4, 7, 3, 5, 5, 1, 2):
        doubled, total = run(x.expand(n, 8))
        assert doubled.shape == (n, 8)
        close(doubled, torch.relu(x).expand(n, 8) * 2, 1e-5)
        close(total, torch.exp(x).sum() * n, 1e-5)


def test_a_tensor_in_another_order_is_not_copied() -> None:
    from dlprim.torch.forms import form_of

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    form = form_of(tuple(x.shape), x.stride())
    assert form.order == (0, 2, 3, 1)
    assert not form.has_gaps
    assert form.array(x).ctypes.data == x.data_ptr()
