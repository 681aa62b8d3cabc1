"""`dlprim.torch`: what a compiled module does beside computing what it does eagerly."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dlprim

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from torch_compare import close, compiled, run_both  # noqa: E402

pytestmark = [pytest.mark.any_level, pytest.mark.usefixtures("fresh_dynamo")]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def listened(run: Any, *inputs: Any) -> tuple[Any, list[Any]]:
    """The results, and reports on graphs that were compiled."""
    from dlprim.torch.explanation import listening

    with listening() as found:
        made = run(*inputs)
    return made, found


def test_dlprim_alone_imports_no_torch() -> None:
    code = "import sys, dlprim; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_installed_package_is_known_by_name(tmp_path: Path) -> None:
    """By the entry point that a wheel has, without an import."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    group = "torch_dynamo_backends"
    points = tomllib.loads(text)["project"]["entry-points"][group]
    installed = tmp_path / "dlprim-0.dist-info"
    installed.mkdir()
    lines = [f"[{group}]", *(f"{name} = {it}" for name, it in points.items())]
    (installed / "entry_points.txt").write_text("\n".join(lines))
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: dlprim\nVersion: 0\n")
    code = (
        "import sys, torch; assert 'dlprim' not in sys.modules\n"
        "run = torch.compile(lambda x: x * 2 + 1, backend='dlprim')\n"
        "assert run(torch.ones(3)).tolist() == [3.0] * 3 and 'dlprim.torch.piece' in sys.modules"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=False, env=environment).returncode == 0


def test_the_backend_has_a_name() -> None:
    import dlprim.torch

    assert dlprim.torch.backend is not None
    assert "dlprim" in torch._dynamo.list_backends()


def test_an_option_that_is_not_there_is_refused() -> None:
    import dlprim.torch

    with pytest.raises(TypeError, match=r"options has \['fast'\], expected 'freeze'"):
        dlprim.torch.backend(torch.fx.symbolic_trace(mlp()), [], options={"fast": True})


def test_explain_names_pieces_reasons_and_the_share() -> None:
    import dlprim.torch

    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x @ x) @ x

    text = dlprim.torch.explain(Odd(), torch.randn(8, 8))
    assert text.startswith("inference: 2 pieces, 2 of 3 nodes, 100.0% of")
    assert "aten.special_bessel_j0.default has no rule" in text
    whole = dlprim.torch.explain(nn.Linear(8, 4), torch.randn(8, 8))
    assert whole.startswith("forward: 1 piece, ")


# ---------------------------------------------------------------- training


def test_gradients_are_accumulated_and_checkpoints_run() -> None:
    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.body, x, use_reentrant=False)

    ours = Checked()
    theirs, x = copy.deepcopy(ours), torch.randn(3, 8)
    run = compiled(ours)
    for _ in range(3):
        run(x).sum().backward()
        theirs(x).sum().backward()
    for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(one.grad, two.grad, 1e-5)


def test_training_goes_as_it_does_eagerly() -> None:
    ours = mlp()
    theirs = copy.deepcopy(ours)
    run, x, y = compiled(ours), torch.randn(16, 8), torch.randint(0, 4, (16,))
    losses = []
    for model, call in ((ours, run), (theirs, theirs)):
        optimizer = torch.optim.AdamW(model.parameters(), 0.01, fused=True)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = functional.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_class_that_is_ignored() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            z = self.layer(x)
            means = (
                functional.cross_entropy(z, y),
                functional.cross_entropy(z, y.abs() % 5, ignore_index=2),
            )
            single = functional.cross_entropy(z, y, reduction="none")
            sums = functional.nll_loss(z, y, reduction="sum"), functional.mse_loss(z, x[:, :5])
            return *means, *sums, single

    y = torch.tensor([0, 2, -100, 4])
    x = torch.randn(4, 8)
    run_both(Loss(), lambda: (x, y))


def test_a_second_gradient_is_refused() -> None:
    model, x = mlp(), torch.randn(3, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(compiled(model)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        slope.sum().backward()


# ---------------------------------------------------------------- types


def test_autocast_computes_in_bfloat16() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.body = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.body(functional.relu(self.norm(self.conv(x))).mean((2, 3)))

    model, x = Mixed(), torch.randn(4, 3, 6, 6)
    run_both(model, lambda: (x,), 0.05)
    assert compiled(model)(x).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float16])
def test_other_types_stay_with_pytorch(dtype: torch.dtype) -> None:
    x = torch.randn(4, 4).to(dtype)
    found, reports = listened(compiled(lambda a: a @ a + a), x)
    close(torch.view_as_real(found) if found.is_complex() else found,
          torch.view_as_real(x @ x + x) if found.is_complex() else x @ x + x, 1e-2)  # fmt: skip
    assert [it.pieces for it in reports] == [()]
    assert "is not computed" in str(reports[0])


def test_nan_and_infinity() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        masked = x.masked_fill(x > 1, float("-inf"))
        return masked.softmax(-1), functional.relu(x), x.clamp(-1, 1), x.amax(-1), x.sum(-1)

    x = torch.tensor([[0.5, 2.0, float("nan")], [2.0, 3.0, 4.0], [float("inf"), -1, -0.0]])
    for one, two in zip(compiled(f)(x), f(x), strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)


# ---------------------------------------------------------------- sizes and threads


def test_a_new_size_costs_no_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    import dlprim.torch.piece as piece

    model = mlp().eval()
    run = compiled(model, dynamic=True)
    counted = []
    original = piece.compile_graph

    def counting(*args: Any, **named: Any) -> Any:
        counted.append(args)
        return original(*args, **named)

    monkeypatch.setattr(piece, "compile_graph", counting)
    with torch.no_grad():
        for count in (5, 6, 7, 9, 12, 31, 6):
            x = torch.randn(count, 8)
            close(run(x), model(x), 1e-5)
    assert len(counted) <= 2


def test_dynamic_sizes_in_training() -> None:
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.layer(x))
            return torch.cat([y, x.flip(0)], 1).view(-1, 4, 2)[:, 1:].mean(1)

    model = Sized()
    theirs = copy.deepcopy(model)
    run = compiled(model)
    for count in (3, 5, 8):
        x = torch.randn(count, 8)
        torch._dynamo.mark_dynamic(x, 0)
        for it, call in ((model, run), (theirs, theirs)):
            it.zero_grad()
            (call(x) ** 2).sum().backward()
        for one, two in zip(model.parameters(), theirs.parameters(), strict=True):
            close(one.grad, two.grad, 1e-4)


def test_threads_are_those_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    from dlprim.torch.piece import Piece

    seen = []
    original = Piece._run
    monkeypatch.setattr(
        Piece, "_run", lambda *it: (seen.append(dlprim.get_num_threads()), original(*it))[1]
    )
    before = torch.get_num_threads()
    run = compiled(mlp().eval())
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            with torch.no_grad():
                run(torch.randn(3, 8))
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2, 1]


# ---------------------------------------------------------------- faults


def test_an_exception_goes_through_and_the_next_call_runs() -> None:
    model, run = nn.Embedding(5, 4), None
    run = compiled(lambda x: model(x) * 2)
    close(run(torch.tensor([0, 4])), model(torch.tensor([0, 4])) * 2, 1e-6)
    with pytest.raises(IndexError):
        run(torch.tensor([0, 5]))
    close(run(torch.tensor([1, 2])), model(torch.tensor([1, 2])) * 2, 1e-6)


@pytest.mark.parametrize("place", [-1, 5])
def test_places_outside_are_refused(place: int) -> None:
    table, scores = torch.randn(5, 4), torch.randn(2, 5)
    for call in (
        lambda it: functional.embedding(it, table) + 1,
        lambda it: functional.cross_entropy(scores, it) + 1,
    ):
        run = compiled(call)
        with pytest.raises(IndexError):
            run(torch.tensor([0, place]))


def test_a_shape_that_is_refused_is_run_by_pytorch() -> None:
    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.adaptive_avg_pool2d(x * 2, 2)

    model = Pooled()
    run = compiled(model, dynamic=True)
    for size in (4, 5, 6):
        x = torch.randn(1, 2, size, size)
        close(run(x), model(x), 1e-5)
