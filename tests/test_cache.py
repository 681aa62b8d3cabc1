"""The cache of kernels: one generation per request whoever asks, bounds, and clearing."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from reference import assert_close, brgemm

pytestmark = pytest.mark.any_level

KEYS = {
    "entries", "bytes", "mapped_bytes", "hits", "misses", "evictions", "max_entries", "max_bytes",
    "row_programs", "row_program_bytes", "generated",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    dlprim.kernel_cache_clear()


def info(*names: str) -> tuple[int, ...]:
    values = dlprim.kernel_cache_info()
    return tuple(values[name] for name in names)


def test_info_of_an_empty_cache() -> None:
    values = dlprim.kernel_cache_info()
    assert values.keys() == KEYS
    assert all(type(value) is int for value in values.values())
    assert values["max_entries"] > 1000
    assert values["max_bytes"] > 2**20
    assert info("entries", "bytes", "hits", "misses", "evictions") == (0, 0, 0, 0, 0)


def test_equal_requests_share_a_kernel(isa: str) -> None:
    kernels = [dlprim.Brgemm(3, 4, 5, isa=isa) for _ in range(3)]
    dlprim.Brgemm(3, 4, 5, lda=5, ldb=4, ldc=4, dtype="f4", beta=0, isa=isa)
    assert info("entries", "misses", "hits") == (1, 1, 3)
    assert len({kernel.name for kernel in kernels}) == 1


DIFFERENT = [
    {},
    {"m": 4},
    {"n": 5},
    {"k": 6},
    {"lda": 6},
    {"ldb": 6},
    {"ldc": 6},
    {"trans_a": True, "lda": 5},
    {"beta": 1},
    {"addressing": "offset"},
    {"addressing": "address"},
    {"bias": True},
    {"activation": "relu"},
    {"bias": True, "activation": "relu"},
]


def test_everything_that_makes_a_request_tells_kernels_apart(isa: str) -> None:
    names = {dlprim.Brgemm(**{"m": 3, "n": 4, "k": 5, **each}, isa=isa).name for each in DIFFERENT}
    assert len(names) == len(DIFFERENT)
    assert info("entries", "misses", "hits") == (len(DIFFERENT), len(DIFFERENT), 0)


def test_bytes_are_those_of_the_code_and_kernels_share_pages(isa: str) -> None:
    kernels = [dlprim.Brgemm(m, 40, 5, isa=isa) for m in range(1, 30)]
    held, mapped = info("bytes", "mapped_bytes")
    assert held == sum(len(kernel.code) for kernel in kernels)
    assert mapped % mmap.PAGESIZE == 0
    assert mapped >= held


def test_a_thousand_small_kernels_take_less_than_a_page_each() -> None:
    (before,) = info("mapped_bytes")
    kernels = [dlprim.Brgemm(m, n, 3) for m in range(1, 26) for n in range(1, 41)]
    (after,) = info("mapped_bytes")
    assert len(kernels) == 1000
    assert after - before < len(kernels) * mmap.PAGESIZE / 2


def test_refused_request_leaves_no_trace() -> None:
    with pytest.raises(ValueError, match="beta"):
        dlprim.Brgemm(1, 1, 1, beta=7)
    assert info("entries", "misses") == (0, 0)


def test_kernels_live_on_after_clear(isa: str, random: np.random.Generator) -> None:
    a = random.standard_normal((2, 9, 7), np.float32)
    b = random.standard_normal((2, 7, 33), np.float32)
    c = np.empty((9, 33), np.float32)
    kernel = dlprim.Brgemm(9, 33, 7, isa=isa)
    code = kernel.code
    dlprim.kernel_cache_clear()
    assert info("entries", "bytes", "misses") == (0, 0, 0)
    others = [dlprim.Brgemm(m, 33, 7, isa=isa) for m in range(1, 9)]
    kernel(a, b, c)
    assert_close(c, brgemm(a, b))
    again = dlprim.Brgemm(9, 33, 7, isa=isa)
    assert info("entries", "misses", "hits") == (len(others) + 1, len(others) + 1, 0)
    assert (again.name, again.code, kernel.code) == (kernel.name, code, code)


def test_least_recently_used_kernels_go_first() -> None:
    """Scalar kernels are quick to make, so the bound on their number is within reach."""
    (most,) = info("max_entries")
    held = dlprim.Brgemm(1, 1, 1, isa="scalar")  # in use: stays
    for i in range(most + 100):
        dlprim.Brgemm(1, 1, 2 + i, isa="scalar")
    assert info("entries", "evictions", "misses") == (most, 101, most + 101)
    dlprim.Brgemm(1, 1, 1, isa="scalar")
    dlprim.Brgemm(1, 1, 2 + most + 99, isa="scalar")
    assert info("hits", "misses") == (2, most + 101)
    dlprim.Brgemm(1, 1, 2, isa="scalar")
    assert info("hits", "misses") == (2, most + 102)
    assert held.name.startswith("brgemm_scalar")


# ---------------------------------------------------------------- many threads


def at_once(threads: int, work: Callable[[int], None]) -> None:
    """Starts every thread's work at the same moment and passes exceptions on."""
    start = threading.Barrier(threads, timeout=60)

    def run(thread: int) -> None:
        start.wait()
        work(thread)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))


def test_eight_threads_ask_for_the_same_200_kernels(isa: str, random: np.random.Generator) -> None:
    shapes = [(1 + i % 20, 1 + 3 * (i // 20), 1 + i % 7) for i in range(200)]
    problems = []
    for m, n, k in shapes:
        a = random.standard_normal((1, m, k), np.float32)
        b = random.standard_normal((1, k, n), np.float32)
        problems.append((a, b, brgemm(a, b)))
    names: list[list[str]] = [[] for _ in range(8)]

    def work(thread: int) -> None:
        for (m, n, k), (a, b, expected) in zip(shapes, problems, strict=True):
            kernel = dlprim.Brgemm(m, n, k, isa=isa)
            c = np.full((m, n), np.nan, np.float32)
            kernel(a, b, c)
            assert_close(c, expected)
            names[thread].append(kernel.name)

    at_once(8, work)
    assert info("misses", "hits", "entries", "evictions") == (200, 1400, 200, 0)
    assert all(each == names[0] for each in names)


CLEARING = """
import sys, threading
import dlprim
done = threading.Event()
def make(thread):
    for i in range(1500):
        dlprim.Brgemm(1 + i % 100, 1 + thread, 1 + i // 100, isa=sys.argv[1])
def clear():
    while not done.is_set():
        dlprim.kernel_cache_clear()
makers = [threading.Thread(target=make, args=(thread,)) for thread in range(4)]
clearer = threading.Thread(target=clear)
for thread in (*makers, clearer):
    thread.start()
for thread in makers:
    thread.join()
done.set()
clearer.join()
dlprim.kernel_cache_clear()
assert [dlprim.kernel_cache_info()[name] for name in ("entries", "bytes")] == [0, 0]
"""


def test_cache_is_cleared_while_others_fill_it(isa: str, run_python: RunPython) -> None:
    run = run_python(CLEARING, isa)
    assert (run.returncode, run.stderr) == (0, "")
