"""`dlprim.tune`: what the cost models reach of the tuned best, and how soon tuning gets there.

Forward passes of bench/shapes/resnet50_conv.csv and the rows of einsum.csv beside it that have
something to decide, float32, one core. `of best` is the time of what tuning found over that of the
models' choice, 1 where that stays: the two take turns in a comparison after the search.

With --curve: one long search for each layer, and the seconds after which it had what is within
2 % of its best; all that it found on the way is measured against the best again, in turns.
"""

import argparse
import re
import tempfile
from collections.abc import Callable
from time import perf_counter
from typing import Any

import held_isa

# isort: split

import numpy as np

import dlprim
from dlprim import hardware
from dlprim.bench import tables
from dlprim.bench.measuring import timing
from dlprim.bench.workloads.conv import load_layers
from dlprim.bench.workloads.formulas import extents_of

CLOSE = 0.98


def convolutions(batch: int) -> dict[str, Callable[[], dlprim.Conv2d]]:
    return {
        f"{layer}": lambda layer=layer: dlprim.Conv2d(
            layer.x_shape(batch), layer.w_shape, stride=layer.stride, padding=layer.pad
        )
        for layer in load_layers(tables.path_of("resnet50", "conv"))
    }


def formula_of(row: dict[str, str]) -> dlprim.lang.CompiledFormula:
    """A row as a definition: "mk,kn->mn" is t_y(m,n) +=! t_a(m,k) * t_b(k,n)."""
    terms, result = row["spec"].split("->")
    names = "abcdef"[: terms.count(",") + 1]
    read = list(zip(names, terms.split(","), strict=True))
    parameters = ", ".join(f"float({','.join(term.upper())}) t_{name}" for name, term in read)
    factors = " * ".join(f"t_{name}({','.join(term)})" for name, term in read)
    text = f"def f({parameters}) -> (t_y) {{ t_y({','.join(result)}) +=! {factors} }}"
    sizes = extents_of(row["sizes"])
    (definition,) = dlprim.define(text)
    return definition.compile(*([sizes[letter] for letter in term] for _, term in read))


def tuned(item: Any, seconds: float, progress: Callable[[str], object] | None = None) -> float:
    """Times as fast as the models' choice."""
    passes = "forward" if isinstance(item, dlprim.Conv2d) else None
    with tempfile.TemporaryDirectory() as folder:
        gains = dlprim.tune(item, seconds, passes=passes, path=folder, progress=progress)
    return next(iter(gains.values()))


def rows(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {}
    if "conv" in options.kinds:
        made |= convolutions(options.batch)
    if "einsum" in options.kinds:
        contractions = tables.read(tables.path_of("einsum", "formulas"), ("name", "spec", "sizes"))
        made |= {row["name"]: lambda row=row: formula_of(row) for row in contractions}
    names = list(made)
    return {name: made[name] for name in names[options.first : options.end]}


def ranking(options: argparse.Namespace) -> None:
    shares = []
    for name, make in rows(options).items():
        item = make()
        if not (item.schedules if isinstance(item, dlprim.Conv2d) else item.schedule):
            continue
        lines: list[str] = []
        gain = tuned(item, options.seconds, lines.append)
        shares.append(1 / gain)
        found = lines[-1].split(": ", 1)[1]
        tried = lines[-1].split(", ")[1]
        print(f"{name:>32s} of best {shares[-1]:.3f}, {tried}: {found}", flush=True)
    print(f"geometric mean {timing.geometric_mean(shares):.3f}, least {min(shares):.3f}")


def curve(options: argparse.Namespace) -> None:
    for name, make in rows(options).items():
        found: list[tuple[float, str]] = []
        start = perf_counter()

        def note(line: str, found: Any = found, start: float = start) -> None:
            schedule = re.search(r"forward '(.*)'$", line)
            if schedule:
                found.append((perf_counter() - start, schedule[1]))

        conv = make()
        model = conv.schedules["forward"]
        tuned(conv, options.seconds, note)
        steps = [(0.0, model), *found]
        best = conv.schedules["forward"]
        shares = [of_best(make, schedule, best) for _, schedule in steps]
        soon = next(at for (at, _), share in zip(steps, shares, strict=True) if share >= CLOSE)
        print(f"{name:>32s} within 2 % of its best after {soon:.1f} of {options.seconds} s")
        for (at, schedule), share in zip(steps, shares, strict=True):
            print(f"{at:10.1f} s {share:.3f} {schedule}", flush=True)


def of_best(make: Callable[[], dlprim.Conv2d], schedule: str, best: str) -> float:
    """Time of the best over that of a schedule."""
    if schedule == best:
        return 1.0
    sides = []
    random = np.random.default_rng(0)
    for text in (schedule, best):
        conv = make()
        conv._core.set_schedule("forward", text)
        src = conv.pack_src(random.standard_normal(conv.x_shape, np.float32))
        weights = conv.pack_weights(random.standard_normal(conv.w_shape, np.float32))
        out = conv.forward(src, weights)

        def call(conv: Any = conv, operands: Any = (src, weights), out: Any = out) -> None:
            conv.forward(*operands, out=out)

        sides.append(timing.timed(call))
    times = timing.alternate(sides, 21)
    return 1 / timing.median_ratio(times[0], times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    parser.add_argument("--kinds", nargs="+", default=["conv", "einsum"])
    parser.add_argument("--first", type=int, default=0, help="number of the first row")
    parser.add_argument("--end", type=int, default=None, help="and of the first one left out")
    parser.add_argument("--batch", type=int, default=8, help="images of a convolution")
    parser.add_argument("--curve", action="store_true", help="how soon: of convolutions")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    held_isa.add_to(parser)
    options = parser.parse_args()
    timing.place([options.core], 1)
    dlprim.set_num_threads(1)
    print(f"{dlprim.isa()} on {hardware.cpu_name()}")
    curve(options) if options.curve else ranking(options)


if __name__ == "__main__":
    main()
