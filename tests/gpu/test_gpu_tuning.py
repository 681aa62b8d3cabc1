"""The cost model's choices, genes, and what `tune` finds and keeps, by device."""

from __future__ import annotations

from pathlib import Path

import pytest

# isort: split
from gpu_peers import drawn, torch

# isort: split
from assembled import TARGETS

from dlprim import gpu
from dlprim import schedule_store as store
from dlprim.gpu import choice

pytestmark = pytest.mark.any_level
LINEAR = "y(n,k) +=! x(n,c) * w(k,c)"


def test_the_model_ranks_what_fits_a_device() -> None:
    for on in TARGETS.values():
        for size in (64, 512, 4096):
            kernel = gpu.Brgemm(size, size, size, "bfloat16")
            tiles = choice.tiles_for(kernel.steps[0], kernel.arrays, on, "ieee")
            assert len(tiles) == len(set(tiles)) > 3
            for tile in tiles:
                stages = tile.stages - (on.warp_size == 64)
                assert (tile.m + tile.n) * tile.k * 2 * stages <= on.shared_memory_per_block_optin
    kernel, on = gpu.Brgemm(4096, 4096, 4096, "bfloat16"), TARGETS["sm_90"]
    large = choice.tiles_for(kernel.steps[0], kernel.arrays, on, "ieee")[0]
    assert large.m * large.n >= 128 * 128
    assert large.split == 1


def test_long_sums_of_few_tiles_are_split() -> None:
    x, w = drawn(16, 4096), drawn(16, 4096)
    made = gpu.compile(LINEAR, x, w)
    assert made.steps[0].factors
    assert int(made.schedule["kernel 1 split"]) > 1
    torch.testing.assert_close(made(x, w), x @ w.T, rtol=1e-4, atol=1e-3)


def test_genes_are_kept_for_the_device_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path))
    x, w = drawn(40, 64), drawn(24, 64)
    made, lines = gpu.compile(LINEAR, x, w), list[str]()
    gain = made.tune(x, w, seconds=2.0, seed=1, progress=lines.append)
    assert gain >= 1.0
    assert lines
    torch.testing.assert_close(made(x, w), x @ w.T, rtol=1e-4, atol=1e-4)
    schedule = {**made.schedule, "kernel 1 m": "32", "kernel 1 k": "16"}
    store.save(tmp_path, {made.stored_as: {"schedule": schedule, "gain": 1.5}})
    again = gpu.Formula(
        gpu.formulas.contraction(LINEAR), {name: made.arrays[name] for name in "xw"}, {}
    )
    assert again.schedule == schedule
    assert choice.device().name in made.stored_as
    torch.testing.assert_close(again(x, w), x @ w.T, rtol=1e-4, atol=1e-4)


def test_what_computes_with_a_batch_is_tuned_on_its_operands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path))
    kernel = gpu.Brgemm(32, 32, 32, beta=1, bias=True)
    a, b, c = drawn(2, 32, 32), drawn(2, 32, 32), drawn(32, 32)
    before, bias = c.clone(), drawn(32)
    kernel.tune(a, b, c, bias=bias, seconds=1.0, progress=None)
    assert torch.equal(c, before)
    kernel(a, b, c, bias=bias)
    torch.testing.assert_close(c, before + (a @ b).sum(0) + bias, rtol=1e-4, atol=1e-4)


def test_genes_that_make_no_sense_are_refused() -> None:
    kernel = gpu.Brgemm(32, 32, 32)
    with pytest.raises(ValueError, match=r"^genes are \[0, .*\], expected positive integers$"):
        kernel.use({"kernel 1 m": "0"})
