"""Convolutions in TVM with dlprim's kernel and without it, layer by layer: GFLOP/s on one core.

Columns: `tuned` is the schedule that TVM's meta_schedule found (needs --tuned), `by hand` what TVM
makes of the schedule in conv.py, `kernel` the same loops around dlprim's kernel, `Conv2d` dlprim's
primitive. All work on packed arrays, in turns, and are verified against float64 before. Of the
schedules by hand and of the loops around the kernel the fastest is taken.
"""

import argparse
import csv
import ctypes
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import tvm
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule import tir_integration

import dlprim
from conv import BLOCK, Layer, Product, around_kernel, by_hand, defined, target

LAYERS = Path(__file__).parents[2] / "bench" / "shapes" / "resnet50_conv.csv"
LANES = 16  # floats in a vector register; 28 of the 32 registers hold sums
TURN = 3e-3  # seconds that one side runs before the other's turn

Call = Callable[[], object]


class Operands:
    """Of one layer, plain and packed, and its result in float64."""

    def __init__(self, layer: Layer) -> None:
        random = np.random.default_rng(layer.C + layer.K)
        self.x = random.standard_normal((1, layer.C, layer.H, layer.W), np.float32)
        self.w = random.standard_normal((layer.K, layer.C, layer.R, layer.S), np.float32)
        edge = (layer.pad, layer.pad)
        padded = np.pad(self.x[0], ((0, 0), edge, edge))
        x = padded.reshape(-1, BLOCK, *padded.shape[1:]).transpose(0, 2, 3, 1)
        w = self.w.reshape(-1, BLOCK, layer.C // BLOCK, BLOCK, layer.R, layer.S)
        packed = (x.reshape(layer.x_shape), w.transpose(0, 2, 4, 5, 3, 1))
        self.packed = [np.ascontiguousarray(it) for it in packed]
        self.exact = np.zeros((layer.K, layer.P, layer.Q))
        for r, s in np.ndindex(layer.R, layer.S):
            rows = slice(r, r + layer.stride * (layer.P - 1) + 1, layer.stride)
            columns = slice(s, s + layer.stride * (layer.Q - 1) + 1, layer.stride)
            tap = self.w[:, :, r, s].astype(np.float64)
            self.exact += np.tensordot(tap, padded[:, rows, columns], 1)

    def verify(self, what: str, y: np.ndarray) -> None:
        worst = np.abs(y.reshape(self.exact.shape) - self.exact).max()
        if not worst <= 1e-4 * np.abs(self.exact).max():
            raise SystemExit(f"{what}: wrong by {worst}")


class Compiled:
    """A module on operands; `kept` is what its code refers to."""

    def __init__(self, module: tvm.IRModule, layer: Layer, operands: Operands, kept: object = None):
        self._kept = kept
        shapes = (layer.x_shape, layer.w_shape, layer.y_shape)
        arrays = [*operands.packed, np.full(layer.y_shape, np.nan, np.float32)]
        self.tensors = [
            tvm.runtime.tensor(array.reshape(shape))
            for array, shape in zip(arrays, shapes, strict=True)
        ]
        self._module = tvm.compile(module, target=target()).mod
        self._main = self._module["main"]

    def __call__(self) -> None:
        self._main(*self.tensors)

    def plain(self) -> np.ndarray:
        self()
        _, blocks, rows, columns, block = self.tensors[2].shape
        y = self.tensors[2].numpy().reshape(blocks, rows * columns, block)
        return y.transpose(0, 2, 1)

    def seconds(self) -> float:
        evaluate = self._module.time_evaluator("main", tvm.cpu(0), repeat=3, min_repeat_ms=3)
        return evaluate(*self.tensors).median


def divisors(pixels: int, least: int, most: int) -> list[int]:
    found = [m for m in range(least, most + 1) if pixels % m == 0]
    return found or [pixels]


def pixels_of(layer: Layer) -> int:
    """How many lie side by side, as `with_rows_of` has it."""
    whole = layer.P * layer.Q
    return whole if layer.with_rows_of(whole) is not layer else layer.Q


def with_kernel(layer: Layer, operands: Operands, library: ctypes.CDLL) -> Iterator[Compiled]:
    pixels = pixels_of(layer)
    for m in divisors(pixels, min(14, pixels), 128):
        view = layer.with_rows_of(m)
        product = Product(library, view, m)
        for weights_outside in (True, False):
            module = around_kernel(view, m, weights_outside, product.address)
            yield Compiled(module, view, operands, product)


def without_kernel(layer: Layer, operands: Operands) -> Iterator[Compiled]:
    for vectors in (1, 2, 4):
        m = divisors(pixels_of(layer), 1, 28 // vectors)[-1]
        view = layer.with_rows_of(m)
        for weights_outside in (True, False):
            yield Compiled(by_hand(view, m, vectors * LANES, weights_outside), view, operands)


def tune(layer: Layer, folder: Path, trials: int) -> None:
    """Adds to what `folder` holds. Runs processes that import the main program anew."""
    builder = meta_schedule.builder.LocalBuilder(timeout_sec=240, max_workers=1)
    config = meta_schedule.runner.EvaluatorConfig(number=1, repeat=5, min_repeat_ms=5)
    meta_schedule.tune_tir(
        defined(layer),
        target(),
        str(folder),
        trials,
        num_trials_per_iter=10,
        builder=builder,
        runner=meta_schedule.runner.LocalRunner(timeout_sec=120, evaluator_config=config),
        strategy=meta_schedule.search_strategy.EvolutionarySearch(
            population_size=128, genetic_num_iters=2
        ),
        num_tuning_cores=1,
        seed=1,
    )


def tuned(layer: Layer, operands: Operands, folder: Path) -> Compiled:
    database = meta_schedule.database.JSONDatabase(work_dir=str(folder))
    module = tir_integration.compile_tir(database, defined(layer), target()).mod
    return Compiled(module, layer, operands)


def primitive(layer: Layer, operands: Operands) -> tuple[Call, np.ndarray]:
    conv = dlprim.Conv2d(operands.x.shape, operands.w.shape, layer.stride, layer.pad)
    src, weights = conv.pack_src(operands.x), conv.pack_weights(operands.w)
    dst = conv.forward(src, weights)
    return lambda: conv.forward(src, weights, out=dst), conv.unpack_dst(dst)


def alternate(sides: Iterable[Call], rounds: int) -> list[float]:
    """Median seconds per call of each; the sides take turns."""

    def seconds_per_call(call: Call, repeats: int) -> float:
        call()  # untimed: its operands are back in the caches where they fit
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats

    sides = list(sides)
    repeats = [max(1, round(TURN / seconds_per_call(side, 2))) for side in sides]
    turns = [
        [seconds_per_call(*side) for side in zip(sides, repeats, strict=True)]
        for _ in range(rounds)
    ]
    return [median(seconds) for seconds in zip(*turns, strict=True)]


def gflops(layer: Layer, options: argparse.Namespace, folder: Path | None) -> dict[str, float]:
    operands = Operands(layer)
    compiled = {
        "by hand": min(without_kernel(layer, operands), key=Compiled.seconds),
        "kernel": min(with_kernel(layer, operands, options.library), key=Compiled.seconds),
    }
    if folder is not None:
        compiled = {"tuned": tuned(layer, operands, folder)} | compiled
    for name, side in compiled.items():
        operands.verify(f"{layer}, {name}", side.plain())
    call, y = primitive(layer, operands)
    operands.verify(f"{layer}, Conv2d", y)
    sides: dict[str, Call] = compiled | {"Conv2d": call}
    seconds = alternate(sides.values(), options.rounds)
    return {name: layer.flops / it * 1e-9 for name, it in zip(sides, seconds, strict=True)}


def read_layers(path: Path) -> dict[int, Layer]:
    """Those whose channels fill whole blocks, by their id."""
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    fields = Layer.__dataclass_fields__
    layers = {int(row["id"]): Layer(**{name: int(row[name]) for name in fields}) for row in rows}
    return {key: it for key, it in layers.items() if it.C % BLOCK == 0 == it.K % BLOCK}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--library", type=Path, default=Path("build/tvm/libdlprim_tvm.so"), metavar="FILE"
    )
    parser.add_argument("--layers", type=Path, default=LAYERS, metavar="FILE", help="CSV of layers")
    parser.add_argument("--ids", type=int, nargs="+", help="these layers only")
    parser.add_argument("--tuned", type=Path, metavar="FOLDER", help="what --tune left there")
    parser.add_argument("--tune", type=int, metavar="TRIALS", help="tune every layer, and end")
    parser.add_argument("--rounds", type=int, default=51, help="turns of each side")
    options = parser.parse_args()
    if options.tune and not options.tuned:
        parser.error("--tune needs --tuned, the folder for what it finds")
    return options


def main() -> None:
    options = parse_arguments()
    dlprim.set_num_threads(1)
    layers = read_layers(options.layers)
    if options.ids:
        layers = {key: layers[key] for key in options.ids}
    folders = {key: options.tuned and options.tuned / str(key) for key in layers}
    if options.tune:
        for key, layer in layers.items():
            tune(layer, folders[key], options.tune)
        return
    options.library = ctypes.CDLL(str(options.library.resolve()), ctypes.RTLD_GLOBAL)
    table = []
    for key, layer in layers.items():
        table.append(gflops(layer, options, folders[key]))
        cells = ", ".join(f"{name} {rate:.1f}" for name, rate in table[-1].items())
        print(f"{key}: {layer}: GFLOP/s: {cells}", flush=True)
    for name in [it for it in table[0] if it != "kernel"]:
        mean = geometric_mean(row["kernel"] / row[name] for row in table)
        print(f"kernel over {name}: geometric mean {mean:.2f}")


if __name__ == "__main__":
    main()
