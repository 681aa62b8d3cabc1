"""Errors of Winograd convolution and of the direct sum, both against float64.

Prints tables in Markdown: for ResNet-50's 3x3 layers and several distributions of the inputs, the
largest and the root of the mean square error of each pass over the largest exact result; then what
Winograd's largest error is in units of the direct one, and the largest of these ratios. Weights
are N(0, 1), and so are gradients of results in backward-weights. The other operand is N(0, 1);
uniform in [0, 1); N(0, 1) + 100, as images that nobody centred; and smooth, with a spectrum that
falls with the frequency as that of photographs does.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import dlprim

LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels, size
PASSES = ("forward", "backward_data", "backward_weights")
WAYS: dict[str, dict[str, str]] = {
    "direct": {"algorithm": "direct"},
    "winograd": {"algorithm": "winograd"},
    "high": {"algorithm": "winograd", "accuracy": "high"},
}

Random = np.random.Generator
Shape = tuple[int, int, int, int]
Row = tuple[str, str]  # the layer and its inputs


class Error(NamedTuple):
    largest: float
    rms: float


def smooth(random: Random, shape: Shape) -> np.ndarray:
    """Random images with amplitudes in inverse proportion to the frequency, from 0 to 1."""
    rows, columns = (np.fft.fftfreq(extent)[:, None] for extent in shape[2:])
    frequency = np.hypot(rows, columns.T)
    frequency[0, 0] = 1 / max(shape[2:])
    waves = np.fft.fft2(random.standard_normal(shape)) / frequency
    images = np.fft.ifft2(waves).real
    low, high = (each(images, axis=(2, 3), keepdims=True) for each in (np.min, np.max))
    return (images - low) / (high - low)


DISTRIBUTIONS: dict[str, Callable[[Random, Shape], np.ndarray]] = {
    "N(0,1)": lambda random, shape: random.standard_normal(shape),
    "uniform 0..1": lambda random, shape: random.random(shape),
    "N(0,1) + 100": lambda random, shape: random.standard_normal(shape) + 100,
    "smooth 0..1": smooth,
}


def doubles(array: np.ndarray) -> np.ndarray:
    widened = array if array.dtype == np.float32 else dlprim.to_float32(array, dtype="bfloat16")
    return widened.astype(np.float64)


def rows_of(images: np.ndarray) -> np.ndarray:
    """Every 3x3 neighbourhood of the padded images as a row: pixels of all images x (C * 9)."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, images.shape[1] * 9)


def exact(which: str, *operands: np.ndarray) -> np.ndarray:
    x, w, dy = (doubles(each) for each in operands)
    batch, channels, size, _ = x.shape
    if which == "backward_weights":
        return (dy.transpose(1, 0, 2, 3).reshape(channels, -1) @ rows_of(x)).reshape(w.shape)
    if which == "backward_data":
        x, w = dy, w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    y = w.reshape(channels, -1) @ rows_of(x).T
    return y.reshape(channels, batch, size, size).transpose(1, 0, 2, 3)


def computed(
    which: str, way: dict[str, str], x: np.ndarray, w: np.ndarray, dy: np.ndarray
) -> np.ndarray:
    dtype = "float32" if x.dtype == np.float32 else "bfloat16"
    conv = dlprim.Conv2d(x.shape, w.shape, padding=1, dtype=dtype, **way)
    if which == "forward":
        return conv.unpack_dst(conv.forward(conv.pack_src(x), conv.pack_weights(w)))
    diff_dst = conv.pack_diff_dst(dy)
    if which == "backward_data":
        return conv.unpack_diff_src(conv.backward_data(diff_dst, conv.pack_weights(w)))
    return conv.unpack_diff_weights(conv.backward_weights(conv.pack_src(x), diff_dst))


def errors(which: str, x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> list[Error]:
    expected = exact(which, x, w, dy)
    scale = np.abs(expected).max()
    made = []
    for way in WAYS.values():
        difference = (doubles(computed(which, way, x, w, dy)) - expected) / scale
        made.append(Error(np.abs(difference).max(), np.sqrt(np.square(difference).mean())))
    return made


def errors_of_row(shape: Shape, inputs: str, options: argparse.Namespace) -> dict[str, list[Error]]:
    """Of every pass, in every way."""
    channels = shape[1]
    random = np.random.default_rng(channels)
    convert = dlprim.to_bfloat16 if options.dtype == "bfloat16" else np.asarray
    w = random.standard_normal((channels, channels, 3, 3), np.float32)
    x, like_x = (DISTRIBUTIONS[inputs](random, shape).astype(np.float32) for _ in range(2))
    normal = random.standard_normal(shape, np.float32)
    made = {}
    for which in options.passes:
        # Backward-data reads gradients as forward reads images.
        dy = like_x if which == "backward_data" else normal
        made[which] = errors(which, convert(x), convert(w), convert(dy))
    return made


def print_table(title: str, rows: dict[Row, dict[str, str]]) -> None:
    passes = next(iter(rows.values()))
    print(f"\n{title}\n")
    print(f"| layer | inputs | {' | '.join(passes)} |")
    print("|---|---|" + "---|" * len(passes))
    for (layer, inputs), cells in rows.items():
        print(f"| {layer} | {inputs} | {' | '.join(cells.values())} |")


def cells_of(
    rows: dict[Row, dict[str, list[Error]]], text: Callable[[list[Error]], str]
) -> dict[Row, dict[str, str]]:
    return {key: {which: text(made) for which, made in row.items()} for key, row in rows.items()}


def ratio(made: list[Error]) -> float:
    """Winograd's largest error over that of the direct sum."""
    direct, winograd, _ = made
    return winograd.largest / direct.largest


def print_batch(batch: int, options: argparse.Namespace) -> None:
    rows = {
        (f"{channels},{channels},{size}", inputs): errors_of_row(
            (batch, channels, size, size), inputs, options
        )
        for channels, size in LAYERS
        for inputs in options.inputs
    }
    for index, what in enumerate(("Largest error", "Root of the mean square error")):
        cells = cells_of(rows, lambda made, i=index: " / ".join(f"{e[i] * 1e7:.3g}" for e in made))
        print_table(f"{what}, times 1e7, N = {batch}: {' / '.join(WAYS)}", cells)
    cells = cells_of(rows, lambda made: f"{ratio(made):.2f}")
    print_table(f"Largest error of winograd over that of direct, N = {batch}", cells)
    worst = max(
        (ratio(made), which, *key) for key, row in rows.items() for which, made in row.items()
    )
    print(f"\nN = {batch}: the largest ratio is {worst[0]:.2f}, {', '.join(worst[1:])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=PASSES)
    parser.add_argument("--inputs", nargs="+", choices=DISTRIBUTIONS, default=list(DISTRIBUTIONS))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="images")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    for batch in options.batch:
        print_batch(batch, options)


if __name__ == "__main__":
    main()
