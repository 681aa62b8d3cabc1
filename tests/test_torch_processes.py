"""`dlprim.torch`: compiled models beside forked processes and several ranks."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from torch_compare import close, compiled  # noqa: E402

pytestmark = [pytest.mark.any_level, pytest.mark.usefixtures("fresh_dynamo")]


class Rows(Dataset):
    """Rows of numbers, made by whoever is asked."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.sin(torch.arange(8.0) + at)


class Predicted(Rows):
    """Rows that a compiled model makes, in the process that is asked."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __getitem__(self, at: int) -> torch.Tensor:
        with torch.no_grad():
            return self.run(super().__getitem__(at)[None])[0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("dataset", ["rows", "predicted"])
def test_workers_are_forked_while_models_are_compiled(dataset: str) -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))
    theirs = copy.deepcopy(model)
    run = compiled(model)
    with torch.no_grad():
        run(torch.randn(1, 8))
    run(torch.randn(6, 8)).sum().backward()  # before the fork
    rows: Dataset = Rows() if dataset == "rows" else Predicted(run)
    loader = DataLoader(rows, batch_size=6, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for batch in loader:
            if dataset == "predicted":
                assert batch.shape == (6, 4)
                continue
            for it, call in ((model, run), (theirs, theirs)):
                it.zero_grad()
                call(batch).square().sum().backward()
            for one, two in zip(model.parameters(), theirs.parameters(), strict=True):
                close(one.grad, two.grad, 1e-5)
    if dataset == "predicted":
        expected = [theirs(Rows()[at][None])[0] for at in range(24)]
        close(torch.cat(list(loader)), torch.stack(expected), 1e-5)


RANK = """
import sys, torch, torch.distributed as dist
from torch import nn
import dlprim.torch

rank, store, is_outer = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "outer"
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))
alone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))
alone.load_state_dict(model.state_dict())
parallel = nn.parallel.DistributedDataParallel
if is_outer:
    run = parallel(torch.compile(model, backend="dlprim"))
else:
    run = torch.compile(parallel(model), backend="dlprim")
theirs = parallel(alone)
for step in range(3):
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(2 * step + rank))
    for it, call in ((model, run), (alone, theirs)):
        it.zero_grad()
        call(x).square().sum().backward()
        with torch.no_grad():
            for parameter in it.parameters():
                parameter.sub_(0.01 * parameter.grad)
    for one, two in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
total = sum(it.double().sum() for it in model.parameters())
both = [torch.zeros((), dtype=torch.float64) for _ in range(2)]
dist.all_gather(both, total)
assert both[0] == both[1]
del run, theirs  # whose reducers hold threads of the group
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", ["outer", "inner"])
def test_two_ranks_of_distributed_data_parallel(order: str, tmp_path: Path) -> None:
    """Around a compiled model, and compiled with it."""
    if not torch.distributed.is_gloo_available():
        pytest.skip("PyTorch has no gloo")
    command = [sys.executable, "-W", "ignore", "-c", RANK]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), order],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [it.communicate(timeout=240)[1] for it in ranks]
    finally:
        for it in ranks:
            it.kill()
    assert [it.returncode for it in ranks] == [0, 0], "\n".join(said)
