"""`python -m dlprim.bench`: what it refuses, and each subcommand with its smallest rows."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dlprim
from dlprim.bench import held, peers, report, tables
from dlprim.bench.command_line import main
from dlprim.bench.commands import COMMANDS

pytestmark = pytest.mark.any_level

needs_vectors = pytest.mark.skipif(
    dlprim.isa() == "scalar", reason="there is no peak to measure without vectors"
)
FEW = ("--rounds", "3", "--seconds", "0.01", "--peers", "none", "--quick")


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Measuring on one thread holds the process to a core."""
    cores, threads = os.sched_getaffinity(0), dlprim.get_num_threads()
    yield
    os.sched_setaffinity(0, cores)
    dlprim.set_num_threads(threads)


@needs_vectors
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("kernel", "--rounds", "2"), "--rounds: expected an integer >= 3, got '2'"),
        (("kernel", "--seconds", "0"), "--seconds: expected a number above 0, got '0'"),
        (("kernel", "--peers", "mkl"), "mkl is no peer, expected some of numpy,torch"),
        (("kernel", "--isa", "sse"), "--isa: sse is not usable here, expected one of avx2"),
        (("kernel", "--rows", "1x1x1x1"), "expected at least one row, the options leave none"),
        (("kernel", "--dtype", "int4"), "--dtype: invalid choice: 'int4'"),
        (("conv", "--shapes", "alexnet"), "--shapes is alexnet, expected a CSV file or one of"),
        (("conv", "--shapes", "none.csv"), "--shapes: there is no file none.csv"),
        (("conv", "--shapes", "fc"), "fc.csv has the columns name,N,C,K, expected id,C,K,H,W"),
        (("graph", "--shapes", "none.onnx"), "--shapes: there is no file none.onnx"),
        (("linear", "--threads", "2", "--cpu-time"), "--cpu-time: it is the time of one thread"),
        (("linear", "--json", "/nowhere/x.json"), "--json: /nowhere/x.json cannot be written"),
        (("mpi", "--sides", "horovod"), "--sides: invalid choice: 'horovod'"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, tuple) else "",
)
def test_what_cannot_be_measured_is_refused(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@needs_vectors
def test_integers_of_a_table_are_integers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("# mine\nname,N,C,K\nwide,4,x,8\n")
    with pytest.raises(SystemExit):
        main(["linear", "--shapes", str(path)])
    assert "mine.csv has a row 4,x,8, expected integers for N,C,K" in capsys.readouterr().err


SMALLEST = {
    "kernel": ("--rows", "8x8x8x1", "--dtype", "float32", "int8"),
    "conv": ("--rows", "18", "--dtype", "float32", "--passes", "forward", "backward_weights"),
    "conv --plain": ("--rows", "18", "--passes", "forward", "--layouts", "NHWC"),
    "linear": ("--rows", "fc-128-256"),
    "linear --plain": ("--rows", "8x8x8", "--layouts", "Fortran x"),
    "rnn": ("--rows", "small-256", "--kinds", "gru", "--dtype", "float32", "--passes", "backward"),
    "layers": ("--kinds", "pool", "rows", "packing", "--dtype", "bfloat16"),
    "formulas": ("--kinds", "layers", "--rows", "8x8x8", "7x33x65"),
}


@needs_vectors
@pytest.mark.parametrize("command", SMALLEST)
def test_the_smallest_rows_are_verified_and_measured(command: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = [*command.split(), *FEW, *SMALLEST[command], "--json", str(path)]
    assert main(words) == 0
    found = report.read(path)
    assert found.rows
    assert found.machine.peaks
    assert {row.command for row in found.rows} == {command.split()[0]}
    for row in found.rows:
        assert row.milliseconds > 0
        assert row.of_bound is not None


@needs_vectors
@pytest.mark.skipif(
    not installed("torch"),
    reason="PyTorch computes what these rows are verified against: pip install torch",
)
@pytest.mark.parametrize(
    "command", ["conv --shapes axes --rows conv_transpose3d", "train --kinds lstm --dtype float32"]
)
def test_what_pytorch_verifies_is_measured(command: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert main([*command.split(), *FEW, "--peers", "torch", "--json", str(path)]) == 0
    assert all("torch" in row.ratios for row in report.read(path).rows)


@needs_vectors
@pytest.mark.skipif(
    not installed("onnx", "onnxruntime"),
    reason="onnx writes the file and ONNX Runtime is the peer: pip install onnx onnxruntime",
)
def test_a_file_of_the_users_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx.parser

    text = '<ir_version: 8, opset_import: ["" : 17]> n (float[N,8] x) => (float[N,8] y) {y=Relu(x)}'
    path = tmp_path / "mine.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert main(["graph", "--shapes", str(path), *FEW, "--peers", "onnxruntime"]) == 0
    assert "1 row: " in capsys.readouterr().out


@needs_vectors
@pytest.mark.skipif(
    not installed("mpi4py") or not installed("torch") or shutil.which("mpiexec") is None,
    reason="ranks need mpi4py and mpiexec, and PyTorch is their peer",
)
@pytest.mark.slow
def test_ranks_scale_and_one_of_them_reports(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    words = ["mpi", "--quick", "--rounds", "2", "--steps", "1", "--models", "lstm"]
    words += ["--sides", "alone", "apart", "thread", "--modes", "weak", "--json", str(path)]
    run = subprocess.run(
        ["mpiexec", "-n", "2", sys.executable, "-m", "dlprim.bench", *words],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("weak scaling, 2 ranks") == 1
    (figures,) = report.read(path).scaling
    assert set(figures["sides"]) == {"alone", "apart", "thread"}
    assert figures["exchange_seconds"] > 0
    assert [it["nodes"] for it in figures["predicted"]][:2] == [2, 4]


@needs_vectors
def test_a_missing_peer_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(peers.PACKAGES, "torch", "dlprim_nowhere")
    words = ["linear", "--rows", "fc-128-256", "--dtype", "float32", "--passes", "forward"]
    assert main([*words, *FEW, "--peers", "torch"]) == 0
    said = capsys.readouterr().out
    assert said.count("torch is left out: it needs pip install dlprim_nowhere") == 1


def test_the_process_begins_again_with_what_libraries_read(monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    found = held.environment(["kernel", "--threads", "3"])
    assert found["OPENBLAS_NUM_THREADS"] == "3"
    assert "OPENBLAS_CORETYPE" not in found
    found = held.environment(["kernel", "--isa", "avx2"])
    assert found["DLPRIM_MAX_ISA"] == "avx2"
    assert found["OPENBLAS_CORETYPE"] == "Haswell"
    assert found["ONEDNN_MAX_CPU_ISA"] == "AVX2"


@needs_vectors
def test_the_installed_command_says_what_there_is() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dlprim.bench", "--help"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0
    for name in (*COMMANDS, "mpi", "all", "compare"):
        assert f"\n    {name} " in run.stdout


def test_every_table_has_a_command_that_reads_it() -> None:
    named = {
        "brgemm": "kernel", "axes": "conv", "fc": "linear", "plain_linear": "linear", "rnn": "rnn",
        "attention": "layers", "einsum": "formulas", "graphs": "graph",
    }  # fmt: skip
    for path in tables.folder().glob("*.csv"):
        name, _, command = path.stem.rpartition("_")
        name, command = (name, command) if command == "conv" else (path.stem, named[path.stem])
        assert tables.path_of(name, command) == path


def test_reports_hold_no_path_of_the_machine(tmp_path: Path) -> None:
    if dlprim.isa() == "scalar":
        pytest.skip("there is no peak to measure without vectors")
    path = tmp_path / "report.json"
    assert main(["linear", *FEW, "--rows", "fc-128-256", "--json", str(path)]) == 0
    assert str(tmp_path) not in path.read_text()
    assert json.loads(path.read_text())["format"] == report.FORMAT
