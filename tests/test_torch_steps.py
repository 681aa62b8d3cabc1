"""What graphs of training become: one piece each way, whose steps are those of `dlprim.nn`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402

from torch_compare import compiled, run_both  # noqa: E402

pytestmark = pytest.mark.any_level

LAST = {"memory_format": torch.channels_last}


class Block(nn.Module):
    """With a shortcut that is a convolution, and a mean whose strides PyTorch writes."""

    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(c, k, 3, 2, 1, bias=False), nn.BatchNorm2d(k))
        self.second = nn.Sequential(nn.Conv2d(k, k, 1, bias=False), nn.BatchNorm2d(k))
        self.short = nn.Sequential(nn.Conv2d(c, k, 1, 2, bias=False), nn.BatchNorm2d(k))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(k, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.relu(self.first(x)))
        y += self.short(x)
        return self.head(torch.flatten(self.pool(torch.relu(y)), 1))


def trained(model: nn.Module, x: torch.Tensor) -> list[Any]:
    """The reports of a step forward and backward."""
    from dlprim.torch.explanation import listening

    torch._dynamo.reset()
    with listening() as found:
        compiled(model)(x).sum().backward()
    return found


def kinds(report: Any) -> list[str]:
    """Of the steps of its one piece."""
    (piece,) = report.pieces
    lines = [line for line in piece.explain().splitlines() if " -> " in line]
    return [line.split("(")[0].rsplit(": ", 1)[1] for line in lines]


def test_a_block_is_one_piece_each_way() -> None:
    torch.manual_seed(0)
    model, x = Block(64, 128).to(**LAST), torch.randn(2, 64, 8, 8).to(**LAST)
    run_both(model, lambda: (x,))
    forward, backward = trained(model, x)
    assert kinds(forward).count("batch_norm") == 3
    assert kinds(backward).count("batch_norm_backward") == 3


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
def test_images_stay_in_blocks_from_pass_to_pass(last: bool) -> None:
    """What is reordered is weights, one pixel of the mean, and images that PyTorch has made."""
    torch.manual_seed(0)
    model, x = Block(64, 128), torch.randn(2, 64, 8, 8)
    if last:
        model, x = model.to(**LAST), x.to(**LAST)
    run_both(model, lambda: (x,))
    moves = [shape for report in trained(model, x) for shape in moved(report)]
    images = [it for it in moves if it[0] == 2 and it[2:] != (1, 1)]
    assert images == ([] if last else 2 * [(2, 64, 8, 8)])  # of x, in each pass


def test_norms_of_bfloat16_convert_nothing() -> None:
    """Statistics stay in float32, and gradients are as near to those of float32 as eager ones."""
    from dlprim.torch.explanation import listening

    torch.manual_seed(0)
    model, x = Block(64, 128).to(**LAST), 3 + torch.randn(4, 64, 8, 8).to(**LAST)

    def narrow(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float()

    def grads(run: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        run(x).square().sum().backward()
        return torch.cat([it.grad.flatten() for it in model.parameters()])

    exact, eager = grads(model), grads(narrow)
    torch._dynamo.reset()
    with listening() as found:
        ours = grads(compiled(narrow))
    assert (ours - exact).norm() <= 1.2 * (eager - exact).norm()
    for report, name in zip(found, ("batch_norm", "batch_norm_backward"), strict=True):
        (piece,) = report.pieces
        assert len(re.findall(rf": {name}\(\d+ bfloat16", piece.explain())) == 3
        assert [it for it in moved(report) if it[0] == 4 and it[2:] != (1, 1)] in ([], [x.shape])


def test_gradients_of_weights_are_rounded_once() -> None:
    """Sums of products of bfloat16 become gradients in float32 as they are, tied or not."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.layer = nn.Conv2d(4, 16, 3), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y = self.layer(self.layer(self.conv(x).mean((2, 3))))
            return y.float()

    torch.manual_seed(0)
    model, x = Tied(), torch.randn(8, 4, 6, 6)
    run_both(model, lambda: (x,), 5e-3)
    _, backward = trained(model, x)
    (piece,) = backward.pieces
    products = re.findall(r"matmul mm\w*: .* -> \d+ (\w+)", piece.explain())
    assert sorted(products).count("float32") == 2
    assert not re.search(r"weights of [^:]*: formula", piece.explain())


def moved(report: Any) -> list[tuple[int, ...]]:
    """Shapes of arrays of four axes that steps reorder."""
    (piece,) = report.pieces
    pattern = r": (?:copy|pack|unpack)\(\d+ \w+ \((\d+, \d+, \d+, \d+)\)"
    return [tuple(map(int, it.split(", "))) for it in re.findall(pattern, piece.explain())]


def test_gradients_by_running_statistics() -> None:
    """Of a norm that is asked as in inference, while it is trained."""
    torch.manual_seed(0)

    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.norm.training = False
            return torch.relu(self.norm(self.conv(x)))

    run_both(Frozen(), lambda: (torch.ones(2, 3, 8, 8).cumsum(3) / 8,))


STRIDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it lies": lambda x: x.as_strided((2, 12), (12, 1)),
    "single axes": lambda x: x.as_strided((2, 1, 3, 4), (12, 5, 4, 1)),
    "turned": lambda x: x.as_strided((3, 2, 4), (4, 12, 1)),
    "a part": lambda x: x.as_strided((2, 2, 4), (12, 4, 1)),
    "windows": lambda x: x.as_strided((2, 5, 2), (12, 2, 1)),
    "behind": lambda x: x.as_strided((2, 3), (3, 1), 4),
}


@pytest.mark.parametrize("see", STRIDED.values(), ids=STRIDED.keys())
def test_strides_see_what_they_see_eagerly(see: Callable[[torch.Tensor], torch.Tensor]) -> None:
    class Seen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.arange(24.0).view(2, 3, 4) - 9)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(see(torch.sin(self.w * x)))

    run_both(Seen(), lambda: (torch.full((), 0.1),))


def test_explanations_have_the_backward_pass() -> None:
    import dlprim.torch

    said = dlprim.torch.explain(nn.Linear(3, 2), torch.ones(2, 3))
    assert [line.split(":")[0] for line in said.splitlines() if not line.startswith(" ")] == [
        "forward", "backward",
    ]  # fmt: skip
