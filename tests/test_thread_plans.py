"""What plans allow on threads that are not there: shares of the ideal speed-up, by price.

The shapes are those of the benchmarks. What falls short stands in `SHORT`, with the share that it
has, so that it is seen to get better, and not to get worse.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD

pytestmark = pytest.mark.any_level

SHAPES = Path(__file__).parents[1] / "bench" / "shapes"
LEAST = {2: 0.93, 4: 0.90, 16: 0.75}  # of the ideal, for layers
WORK = 4e6  # operations for each thread from which on a layer is held to it
SHORT = {
    "3x64 224x224 backward_weights": {2: 0.87, 4: 0.86, 16: 0.43},
    "64x64 56x56 backward_weights": {16: 0.24},
    "db-35 forward": {4: 0.86, 16: 0.69},
    # Of blocks of columns, 22 for 16 threads.
    "db-1760-16 forward": {4: 0.88, 16: 0.62},
    "db-1760-16 backward_data": {4: 0.88, 16: 0.62},
    # Steps of few sequences and channels: four or eight tasks, of some microseconds.
    "paper-256 gru inference": {16: 0.71},
    "small-256": {16: 0.34},
    "small-512": {16: 0.61},
    "deepbench-256": {16: 0.35},
    "deepbench-512": {16: 0.61},
    "infer-512": {2: 0.92, 4: 0.86, 16: 0.43},
    "infer-256": {2: 0.84, 4: 0.73, 16: 0.27},
}
if dlprim.isa() == "avx2":  # whose blocks of columns are other ones
    SHORT |= {
        "mlp-512 forward": {16: 0.71},
        "mlp-512 backward_data": {16: 0.71},
        "dlrm-100 backward_data": {4: 0.82, 16: 0.61},
        "small-256": {16: 0.33},
    }

Calls = dict[str, tuple[float, Callable[[], object]]]  # of passes: operations and the call


def rows(name: str) -> list[dict[str, str]]:
    with (SHAPES / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def convolutions() -> Iterator[tuple[str, Callable[[], Calls]]]:
    def calls(row: dict[str, str]) -> Calls:
        c, k, h, w, r, s = (int(row[key]) for key in "CKHWRS")
        conv = dlprim.Conv2d((4, c, h, w), (k, c, r, s), int(row["stride"]), int(row["pad"]))
        src = conv.pack_src(np.zeros((4, c, h, w), np.float32))
        weights = conv.pack_weights(np.zeros((k, c, r, s), np.float32))
        diff_dst = conv.forward(src, weights)
        return {
            "forward": (conv.flops, lambda: conv.forward(src, weights)),
            "backward_data": (conv.flops, lambda: conv.backward_data(diff_dst, weights)),
            "backward_weights": (conv.flops, lambda: conv.backward_weights(src, diff_dst)),
        }

    for row in rows("resnet50_conv.csv"):
        yield "{C}x{K} {H}x{W}".format(**row), lambda row=row: calls(row)


def linears() -> Iterator[tuple[str, Callable[[], Calls]]]:
    def calls(row: dict[str, str]) -> Calls:
        n, c, k = (int(row[key]) for key in "NCK")
        linear = dlprim.Linear((n, c), k)
        src = linear.pack_src(np.zeros((n, c), np.float32))
        weights = linear.pack_weights(np.zeros((k, c), np.float32))
        diff_dst = linear.forward(src, weights)
        return {
            "forward": (linear.flops, lambda: linear.forward(src, weights)),
            "backward_data": (linear.flops, lambda: linear.backward_data(diff_dst, weights)),
            "backward_weights": (linear.flops, lambda: linear.backward_weights(src, diff_dst)),
        }

    for row in rows("fc.csv"):
        yield row["name"], lambda row=row: calls(row)


STEPS = 10  # of recurrent layers, whose steps are all alike


def recurrent() -> Iterator[tuple[str, Callable[[], Calls]]]:
    def calls(row: dict[str, str], layer: type) -> Calls:
        n, c, k = (int(row[key]) for key in "NCK")
        rnn = layer((STEPS, n, c), k)
        x = np.zeros((STEPS, n, c), np.float32)
        gates = rnn.gates * k
        plain = [np.zeros((gates, c), np.float32), np.zeros((gates, k), np.float32)]
        weights = rnn.pack_weights(*plain, *(np.zeros(gates, np.float32) for _ in range(2)))
        trained = rnn.forward(x, weights, training=True)
        return {
            "inference": (rnn.flops, lambda: rnn.forward(x, weights)),
            "training": (
                3 * rnn.flops,
                lambda: rnn.backward(
                    trained.y, rnn.forward(x, weights, training=True).saved, weights
                ),
            ),
        }

    for row in rows("rnn.csv"):
        if int(row["K"]) > 1024:
            continue  # seconds, and no fewer parts than the smaller ones
        for name, layer in {"lstm": dlprim.LSTM, "gru": dlprim.GRU}.items():
            yield f"{row['name']} {name}", lambda row=row, layer=layer: calls(row, layer)


LAYERS = [*convolutions(), *linears(), *recurrent()]


@pytest.mark.parametrize(("name", "make"), LAYERS, ids=[name for name, _ in LAYERS])
def test_layers(name: str, make: Callable[[], Calls]) -> None:
    for which, (flops, call) in make().items():
        for threads, least in LEAST.items():
            if flops < WORK * threads:
                continue
            known = SHORT.get(f"{name} {which}") or SHORT.get(name.split()[0], {})
            short = known.get(threads, least)
            share = dlprim.allowed_speedup(call, threads) / threads
            assert share >= short, f"{which} on {threads} threads: {share:.3f} of the ideal"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that are none
def test_training_step_of_resnet50() -> None:
    model = nn.resnet50(1000, np.random.default_rng(0))
    optimizer = SGD(model.parameters(), 0.1)
    images, labels = np.zeros((16, 3, 224, 224), np.float32), np.zeros(16, np.int64)

    def step() -> None:
        _, diff = dlprim.softmax_cross_entropy(model.forward(images), labels)
        model.backward(diff)
        optimizer.step()

    step()
    for threads, least in {2: 0.98, 4: 0.95, 16: 0.85}.items():
        assert dlprim.allowed_speedup(step, threads) / threads >= least


def test_price_of_one_thread_is_that_of_all_work() -> None:
    x = np.ones((64, 64), np.float32)
    assert dlprim.allowed_speedup(lambda: dlprim.linear(x, x), 1) == 1
    assert dlprim.allowed_speedup(lambda: None, 16) == 1
    assert dlprim.allowed_speedup(lambda: dlprim.linear(x, x), 16) == 1  # not worth threads


def test_priced_calls_compute_nothing_and_next_ones_do() -> None:
    x = np.ones((256, 256), np.float32)
    out = np.full_like(x, 7)
    dlprim.allowed_speedup(lambda: dlprim.linear(x, x, out=out), 4)
    assert np.array_equal(dlprim.linear(x, x, out=out), 256 * x)


def test_exceptions_leave_nothing_behind() -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        dlprim.allowed_speedup(fail, 3)
    assert dlprim.linear(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))[0, 0] == 2
    with pytest.raises(ValueError, match="threads is 0, expected 1 to 1024"):
        dlprim.allowed_speedup(fail, 0)
    with pytest.raises(TypeError, match="threads is of type float"):
        dlprim.allowed_speedup(fail, 2.0)  # type: ignore[arg-type]
