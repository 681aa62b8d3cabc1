"""What a shape costs that was not met before: networks, and plain functions beside PyTorch's.

A network meets one length after the other, each twice; a figure is the median over lengths of the
CPU time of the first call, over that of the second. A function meets random extents; a figure is
what its first call takes more than its second, and PyTorch's. Memory is what is resident after
many different shapes, over after ten.

    python bench/bench_shapes.py
    python bench/bench_shapes.py --shapes 1000 --rows memory
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dlprim
import dlprim.onnx
from dlprim.bench.measuring import timing
from shape_models import Feed, encoder, images, recogniser, resnet50

NETWORKS: dict[str, tuple[Callable[[], tuple[Any, Feed]], range]] = {
    "encoder of 6 layers of 768": (lambda: encoder(6, 768, 12), range(20, 44)),
    "encoder of 12 layers of 128": (lambda: encoder(12, 128, 4), range(10, 34)),
    "five convolutions of images 64 high": (images, range(64, 160, 4)),
    "ResNet-50": (resnet50, range(160, 288, 8)),
    "text recogniser": (recogniser, range(64, 256, 8)),
}


def functions() -> Iterator[tuple[str, Callable[[int], Any], Callable[[int], Any]]]:
    """Name, and of an extent the call of dlprim and that of PyTorch."""
    import torch

    torch.set_num_threads(1)
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return random.standard_normal(shape, np.float32)

    def both(
        ours: Callable[..., Any], theirs: Callable[..., Any], make: Callable[[int], Any]
    ) -> Any:
        def of(n: int) -> tuple[Any, Any]:
            arrays = make(n)
            tensors = [torch.from_numpy(it) for it in arrays]
            return (lambda: ours(*arrays)), (lambda: theirs(*tensors))

        return of

    f = torch.nn.functional
    for size in (3, 1):
        w = drawn(64, 64, size, size)
        yield (
            f"conv2d {size} x {size}",
            *_sides(both(
                lambda x, w, p=size // 2: dlprim.conv2d(x, w, padding=p),
                lambda x, w, p=size // 2: f.conv2d(x, w, padding=p),
                lambda n, w=w: (drawn(1, 64, n, n + 3), w),
            )),
        )  # fmt: skip
    w = drawn(512, 512)
    yield "linear", *_sides(both(dlprim.linear, f.linear, lambda n: (drawn(n, 512), w)))
    heads = both(
        dlprim.attention, f.scaled_dot_product_attention, lambda n: (drawn(1, 8, n, 64),) * 3
    )
    yield "attention", *_sides(heads)
    layer = torch.nn.LSTM(128, 128).requires_grad_(False)
    parameters = [it.numpy() for it in layer.parameters()]
    recurrent = both(lambda x: dlprim.lstm(x, *parameters), layer, lambda n: (drawn(n, 2, 128),))
    yield "lstm", *_sides(recurrent)
    products = both(
        lambda a, b: dlprim.contract("y(i,j) +=! a(i,k) * b(k,j)", a, b),
        torch.matmul,
        lambda n: (drawn(n, 64), drawn(64, 48)),
    )
    yield "contract", *_sides(products)


def _sides(
    of: Callable[[int], tuple[Any, Any]],
) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    return (lambda n: of(n)[0]), (lambda n: of(n)[1])


def cpu_seconds(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def more_than_again(side: Callable[[int], Any], extents: list[int]) -> tuple[float, float]:
    """Medians of what a first call takes more, and of a second one."""
    firsts, again = [], []
    for n in extents:
        call = side(n)
        firsts.append(cpu_seconds(call))
        again.append(min(cpu_seconds(call) for _ in range(3)))
    pairs = list(zip(firsts, again, strict=True))[2:]
    return median(a - b for a, b in pairs), median(b for _, b in pairs)


def show_networks() -> None:
    for name, (make, extents) in NETWORKS.items():
        model, feed = make()
        loaded = dlprim.onnx.load(model)
        firsts, again = [], []
        for n in extents:
            call = partial(loaded.run, feed(n))
            firsts.append(cpu_seconds(call))
            again.append(min(cpu_seconds(call) for _ in range(3)))
        ratio = median(a / b for a, b in list(zip(firsts, again, strict=True))[2:])
        print(f"{name}: {ratio:.2f} of the second call ({1e3 * median(again):.2f} ms)", flush=True)


def show_functions() -> None:
    draw = np.random.default_rng(1)
    for name, ours, theirs in functions():
        extents = draw.permutation(np.arange(20, 120))[:40].tolist()
        mine, call = more_than_again(ours, extents)
        other, _ = more_than_again(theirs, extents)
        print(
            f"{name}: a new shape {1e3 * mine:.3f} ms more than a call of {1e3 * call:.3f}, "
            f"PyTorch {1e3 * other:.3f}: {mine / max(other, 1e-6):.2f}",
            flush=True,
        )


def resident() -> float:
    """Megabytes."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def show_memory(shapes: int) -> None:
    model, feed = encoder(12, 128, 4)
    loaded = dlprim.onnx.load(model)
    early = 0.0
    for place in range(shapes):
        loaded.run(feed(10 + place))
        if place == 9:
            early = resident()
    late = resident()
    print(
        f"resident after {shapes} lengths: {late:.0f} MB, after 10 {early:.0f}: {late / early:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=["networks", "functions", "memory"])
    parser.add_argument("--shapes", type=int, default=300, help="of the row memory")
    options = parser.parse_args()
    timing.place([0], 1)
    dlprim.set_num_threads(1)
    rows = {
        "networks": show_networks,
        "functions": show_functions,
        "memory": lambda: show_memory(options.shapes),
    }
    for row in options.rows:
        rows[row]()


if __name__ == "__main__":
    main()
