"""What tests are given: ISA levels, the thread count put back, numbers, a Python of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import dlprim
import levels
from dlprim import nn
from drawing import RNG, seed_by

BYTE_LEVELS = ("avx2_vnni", "avx2_vnni_int8")  # which a CPU may lack where it has higher ones
# The lowest first.
LEVELS = ("scalar", "avx2", *BYTE_LEVELS, "avx512", "avx512_vnni", "avx512_bf16", "amx")
KERNEL_LEVELS = ("scalar", "avx2", "avx512")  # that float32 kernels are generated for

settings.register_profile("dlprim", derandomize=True, deadline=None, database=None)
settings.load_profile("dlprim")


# What a user has tuned must not decide what is tested, here and in the processes started here.
STORED_SCHEDULES = tempfile.mkdtemp(prefix="dlprim-tests-")
os.environ["DLPRIM_TUNE_DIR"] = STORED_SCHEDULES


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(STORED_SCHEDULES, ignore_errors=True)


def pytest_configure(config: pytest.Config) -> None:
    # To report a failure hypothesis imports Black where that is installed, and Black this.
    config.addinivalue_line(
        "filterwarnings", "ignore:mypy_extensions.TypedDict is deprecated:DeprecationWarning"
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-case",
        action="store_true",
        help="run all cases on a level below the CPU's own, too (tests/levels.py)",
    )


def case_of(item: pytest.Item) -> levels.Case:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return levels.Case(
        item.nodeid,
        item.nodeid.partition("[")[0],
        frozenset(mark.name for mark in item.iter_markers()),
        max((getattr(it, "products", 0) for it in parameters), default=0),
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("every_case"):
        os.environ[levels.EVERY_CASE] = "1"  # for the processes that tests start
    cases = {item.nodeid: case_of(item) for item in items}
    quick = levels.one_of_each(it for it in cases.values() if "slow" not in it.marks)
    for item in items:
        if item.nodeid in quick:
            item.add_marker("quick")
    asked = config.option.keyword or any("::" in argument for argument in config.args)
    if not (asked or config.getoption("every_case")) and is_lowered():
        taken = levels.drawn(cases.values(), dlprim.isa())
        config.hook.pytest_deselected(items=[it for it in items if it.nodeid not in taken])
        items[:] = [it for it in items if it.nodeid in taken]


def is_lowered() -> bool:
    """Whether DLPRIM_MAX_ISA holds this run below the CPU's own level."""
    if not os.environ.get("DLPRIM_MAX_ISA"):
        return False
    free = {name: it for name, it in os.environ.items() if name != "DLPRIM_MAX_ISA"}
    command = [sys.executable, "-c", "import dlprim; print(dlprim.isa())"]
    own = subprocess.run(command, env=free, capture_output=True, text=True, check=True).stdout
    return own.strip() != dlprim.isa()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who is done takes what waits behind a long test: C++ tests take minutes."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def runs(level: str) -> bool:
    """Whether this is a level of the CPU, up to the one in use."""
    if LEVELS.index(level) > LEVELS.index(dlprim.isa()):
        return False
    return level not in BYTE_LEVELS or dlprim.Brgemm(1, 1, 1, "int8", isa=level).isa == level


def level_of_float32(level: str) -> str:
    """Of the kernels where this is the level in use."""
    return [it for it in KERNEL_LEVELS if LEVELS.index(it) <= LEVELS.index(level)][-1]


@pytest.fixture(scope="session", params=KERNEL_LEVELS)
def isa(request: pytest.FixtureRequest) -> str:
    """Every level that kernels can be generated for and that can run here."""
    if not runs(request.param):
        pytest.skip(f"{request.param} kernels do not run here: dlprim.isa() is {dlprim.isa()}")
    return request.param


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    before = dlprim.get_num_threads()
    yield
    if dlprim.get_num_threads() != before:
        dlprim.set_num_threads(before)


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        seed_by(collector.path.name)  # for what it draws where it is imported


def pytest_runtest_setup(item: pytest.Item) -> None:
    seed_by(f"{item.path.name} {item.name}")
    nn.seed(0)  # of the process, which earlier cases have drawn from


@pytest.fixture
def random() -> np.random.Generator:
    """Numbers of the case's own."""
    return RNG


@pytest.fixture
def stored_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for what `dlprim.tune` stores, from which `Conv2d` loads."""
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path))
    monkeypatch.delenv("DLPRIM_TUNE", raising=False)
    return tmp_path


RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """PyTorch compiles everything anew, and draws from a seed."""
    torch: Any = pytest.importorskip("torch", reason="PyTorch is what compiles")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def run_python() -> RunPython:
    """Runs source text in a fresh interpreter: for what must not happen to this one.

    Keyword arguments are environment variables; None removes one. A run that hangs is killed and
    fails the test.
    """

    def run(
        source: str, *arguments: str, timeout: float = 60, **environment: str | None
    ) -> subprocess.CompletedProcess[str]:
        merged = {**os.environ, **environment}
        return subprocess.run(
            [sys.executable, "-c", source, *arguments],
            env={name: value for name, value in merged.items() if value is not None},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
