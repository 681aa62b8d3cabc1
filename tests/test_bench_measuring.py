"""How the benchmark measures: nothing wrong is timed; ratios and noise; reports, what changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.bench import compare, report
from dlprim.bench.command_line import main
from dlprim.bench.commands import COMMANDS
from dlprim.bench.machine import Machine
from dlprim.bench.measuring import timing
from dlprim.bench.measuring.case import Case, Record, Row, UnavailableError
from dlprim.bench.measuring.runner import Turns, measure
from dlprim.bench.measuring.verification import WrongResultError, close_to, verify, verify_product
from dlprim.bench.progress import Progress
from dlprim.bench.settings import Settings
from dlprim.bench.workloads import conv, linear, rnn
from dlprim.bench.workloads.conv_exact import Layer

pytestmark = pytest.mark.any_level

X = np.linspace(0, 1, 1 << 12, dtype=np.float32)
TURNS = Turns(rounds=5, seconds=0.05)


@pytest.fixture(autouse=True)
def on_the_same_cores() -> Iterator[None]:
    cores, threads = os.sched_getaffinity(0), dlprim.get_num_threads()
    yield
    os.sched_setaffinity(0, cores)
    dlprim.set_num_threads(threads)


def row_of(**case: Any) -> Row:
    made = {"ours": lambda: X + 1, "verify": lambda: None, "traffic": 2.0 * X.nbytes, **case}
    return Row("sums", "small", "float32", lambda: Case(**made))


def measured(row: Row, *peers: str) -> tuple[Record, list[str]]:
    left_out: list[str] = []
    return measure("made", row, TURNS, peers, left_out), left_out


def test_a_wrong_result_is_not_timed() -> None:
    calls = []

    def wrong() -> None:
        raise WrongResultError("small: wrong result, 3.0 times the error bound")

    def ours() -> None:
        calls.append(1)

    with pytest.raises(WrongResultError, match=r"3\.0 times the error bound"):
        measured(row_of(ours=ours, verify=wrong))
    assert calls == []


def test_ratios_say_how_many_times_as_fast_ours_is() -> None:
    slow = lambda: lambda: [X + 1 for _ in range(20)]  # noqa: E731
    record, left_out = measured(row_of(peers={"numpy": slow}), "numpy")
    assert left_out == []
    assert record.ratios["numpy"] > 3
    assert record.rounds >= 3
    assert 0 <= record.noise["numpy"] < 10


def test_a_peer_that_cannot_or_is_wrong_is_named_and_left_out() -> None:
    def unavailable() -> Callable[[], object]:
        raise UnavailableError("it has no kernels for this")

    row = row_of(
        peers={"torch": unavailable, "numpy": lambda: lambda: X + 2, "openvino": unavailable},
        agrees=close_to("sums", X + 1, 1e-6),
    )
    record, left_out = measured(row, "torch", "numpy")
    assert record.ratios == {}
    assert left_out[0] == "sums, small: torch is left out: it has no kernels for this"
    assert "numpy is left out: sums: wrong result" in left_out[1]
    assert len(left_out) == 2


def test_verification_refuses_what_is_beyond_its_bound() -> None:
    a = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    right = a @ a.T
    verify_product("product", right, a, a.T)
    with pytest.raises(WrongResultError, match="product: wrong result"):
        verify_product("product", right * np.float32(1.001), a, a.T)
    with pytest.raises(WrongResultError):
        verify("nan", np.array([np.nan]), np.zeros(1), np.ones(1))


LAYERS = [Layer(1, 6, 4, 9, 8, 3, 2, 2, 1, 1), Layer(2, 8, 8, 7, 7, 3, 3, 1, 1, 1, groups=2),
          Layer(3, 5, 7, 6, 6, 1, 1, 2, 0, 1)]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("which", conv.PASSES)
def test_wrong_convolutions_are_found(layer: Layer, which: str) -> None:
    case = conv.PrimitiveCase(layer, 2, "float32", "blocked")
    case.verify(which)
    call = case.ours(which)

    def spoilt(_: str) -> Any:
        return lambda: call() * np.float32(1.001)

    case.ours = spoilt  # type: ignore[method-assign]
    with pytest.raises(WrongResultError, match=which):
        case.verify(which)


@pytest.mark.parametrize("cell", rnn.CELLS)
@pytest.mark.parametrize("name", ["diff_src", "diff_w_ih", "diff_w_hh", "diff_b_ih", "diff_b_hh"])
def test_wrong_gradients_of_cells_are_found(cell: str, name: str) -> None:
    case = rnn.RnnCase(rnn.Shape("tiny", 3, 5, 7, 4), cell, "float32", False)
    case.verify("backward")
    ours = case.ours

    def spoilt(mode: str) -> Any:
        def call(diff_y: np.ndarray) -> Any:
            found = ours(mode)(diff_y)
            getattr(found, name)[...] *= np.float32(1.01)
            return found

        return call

    case.ours = spoilt  # type: ignore[method-assign]
    with pytest.raises(WrongResultError, match="wrong result"):
        case.verify("backward")


def test_turns_are_alternated_and_ratios_are_medians() -> None:
    order: list[int] = []
    sides = [partial(_turn, order, place) for place in range(3)]
    series = timing.alternate(sides, 9)
    assert [len(it) for it in series] == [9, 9, 9]
    assert [sorted(order[at : at + 3]) for at in range(0, 27, 3)] == [[0, 1, 2]] * 9
    assert timing.median_ratio([2, 4, 90], [1, 2, 3]) == 2
    assert timing.noise([1.0, 1.0, 1.0]) == 0
    assert timing.geometric_mean([1, 4]) == pytest.approx(2)


def _turn(order: list[int], place: int) -> float:
    order.append(place)
    return 1.0


MACHINE = Machine("some CPU", "avx2", 2, {"L1": 32768}, {"fma_avx2": 100.0}, {"memory": 10.0})
RECORD = Record(
    "linear", "forward", "fc", "float32", 1, 2, 5, 1.25, 80.0, 100.0, 0.8, 0.9, 12.5,
    {"torch": 1.5}, {"of_peak": 0.01, "torch": 0.02}, {"algorithm": "direct"},
)  # fmt: skip


def report_of(*rows: Record) -> report.Report:
    return report.Report(MACHINE, "linear", "2026-11-29", list(rows), facts={"it": 1.0})


def test_a_report_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    before = report_of(RECORD, replace(RECORD, name="other", of_peak=None, ratios={}))
    before.write(path)
    after = report.read(path)
    assert after == before
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "dlprim.bench 1"}'])
def test_what_is_no_report_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    assert main(["compare", str(path), str(path)]) == 1
    assert f"python -m dlprim.bench: {path} " in capsys.readouterr().err


def test_compare_says_what_changed_beyond_the_noise() -> None:
    before = report_of(RECORD, replace(RECORD, name="gone"))
    worse = replace(RECORD, of_peak=0.4, ratios={"torch": 1.52})
    lines = compare.lines(before, report_of(worse, replace(RECORD, name="new")), 0.05)
    text = "\n".join(lines)
    assert lines[0].startswith("  0.50     0.800 ->    0.400 of_peak")
    assert "linear forward, fc, float32" in lines[0]
    assert "torch" not in lines[0]
    assert "1 figures worse and 0 better" in text
    assert "1 rows are gone, 1 new." in text


def test_compare_takes_the_noise_into_account() -> None:
    noisy = replace(RECORD, noise={"of_peak": 0.4, "torch": 0.4})
    lines = compare.lines(report_of(noisy), report_of(replace(RECORD, of_peak=0.5)), 0.05)
    assert "0 figures worse" in lines[-1]


def test_compare_says_that_cpus_differ() -> None:
    other = report_of(RECORD)
    other.machine = replace(MACHINE, cpu="another CPU")
    lines = compare.lines(report_of(RECORD), other, 0.05)
    assert lines[0].startswith("The CPUs differ, some CPU (avx2) and another CPU (avx2)")


def test_a_summary_has_means_and_the_worst_row() -> None:
    rows = RECORD, replace(RECORD, name="slow", ratios={"torch": 0.375}, count=1)
    (line,) = report.Report(MACHINE, "linear", "2026-11-29", list(rows)).summary()
    assert "2 rows: 0.800 of peak; 0.900 of bound; 0.75 x torch (worst 0.38: slow)" in line
    assert line.endswith("all layers 1.12")


def test_progress_says_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 25.0, 50.0, 50.0, 75.0])
    monkeypatch.setattr("dlprim.bench.progress.time.monotonic", lambda: next(now))
    with Progress(4) as progress:
        progress.before("first")
        progress.before("second")
    said = capsys.readouterr().err
    assert said == "[1/4] first\n[2/4] second, 2.5 min left\n"


@pytest.mark.parametrize("command", ["kernel", "conv", "linear", "rnn", "layers", "formulas"])
def test_rows_are_few_when_in_a_hurry_and_fewer_when_chosen(command: str) -> None:
    """Making none of them."""
    every = COMMANDS[command].rows(Settings())
    quick = COMMANDS[command].rows(Settings(quick=True, brief=True))
    assert len({(it.group, it.name, it.dtype) for it in every}) == len(every)
    assert len(quick) <= len(every)
    if every:
        assert 0 < len(quick) < 90


def test_layers_of_a_table_are_chosen_by_name() -> None:
    found = list(linear.load_layers(Settings(rows=("db-35",)), "fc"))
    assert found == [linear.Layer("db-35", 700, 2048, 35)]
