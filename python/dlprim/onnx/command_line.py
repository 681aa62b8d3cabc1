"""The program ``python -m dlprim.onnx``: runs a model, times it, and checks it against others."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dlprim import model_file
from dlprim.files import opened
from dlprim.graph.graph import Array
from dlprim.onnx import ModelError, OnnxModel, Port, load, quantize, saving
from dlprim.onnx.proto import DTYPES

_RUNS = 10
_DTYPES = {dtype.name: dtype for dtype in DTYPES.values()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dlprim.onnx", description=__doc__)
    parser.add_argument("model", help="a file in ONNX's format, or one of --save")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="a .npy file for an input, the first that has none unless it is named; "
        "numbers are drawn for the others",
    )
    parser.add_argument(
        "--extent",
        action="append",
        default=[],
        metavar="NAME=N",
        help="what an extent with a name is where numbers are drawn, or INPUT:AXIS=N of one "
        "without a name; 1 unless it is said",
    )
    parser.add_argument(
        "--quantize",
        metavar="FILE.npz",
        help="compute in 8 bits, calibrated on arrays by the names of inputs whose first axis "
        "goes through the samples",
    )
    parser.add_argument("--save", metavar="FILE", help="write the model there, for dlprim.load")
    parser.add_argument("--output", metavar="FOLDER", help="write the results there, as .npy files")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="what to compute in")
    parser.add_argument(
        "--max-bytes",
        type=int,
        metavar="N",
        help="what a run may take, half of the machine's memory unless it is said",
    )
    parser.add_argument("--explain", action="store_true", help="show what runs")
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument("--trace", metavar="FILE", help="write the profile for Chrome's tracing")
    parser.add_argument(
        "--check", action="store_true", help="compare with onnxruntime, or onnx's own reference"
    )
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Runs the program; 0 unless the model is refused, or differs from what it is checked with."""
    given = _parser().parse_args(words)
    try:
        return _run(given)
    except (ModelError, OSError, TypeError, ValueError) as error:
        print(f"dlprim.onnx: {error}", file=sys.stderr)
        return 1


def _run(given: argparse.Namespace) -> int:
    start = time.perf_counter()
    model = _loaded(given)
    if given.quantize:
        model = quantize(model, _samples(model, Path(given.quantize)))
    if given.save:
        model.save(given.save)
    arrays = _inputs(model, given.input, given.extent)
    results = model.run(arrays)
    print(f"ready after {time.perf_counter() - start:.3f} s")
    for name, array in _by_name(model, results).items():
        is_list = isinstance(array, list)
        what = f"{len(array)} dicts" if is_list else f"{array.dtype} of {list(array.shape)}"
        print(f"{name}: {what}")
    print(f"{1e3 * _least_seconds(model, arrays):.3f} ms, the least of {_RUNS} runs")
    if given.output:
        _write(Path(given.output), _by_name(model, results))
    if given.explain:
        print(model.explain())
    if given.profile or given.trace:
        profile = model.profile(**arrays)
        print(profile)
        if given.trace:
            profile.save(given.trace)
    return _check(given, model, arrays, results) if given.check else 0


def _loaded(given: argparse.Namespace) -> OnnxModel:
    path = Path(given.model)
    if not _is_own(path):
        model: OnnxModel = load(path, dtype=given.dtype, max_bytes=given.max_bytes)
        return model
    if given.dtype:
        raise ValueError(f"--dtype {given.dtype}: {path} says what it computes in")
    return saving.load(path, given.max_bytes)


def _is_own(path: Path) -> bool:
    """Whether it is a file of `OnnxModel.save`."""
    with opened(path) as (file, _):
        begin = file.read(model_file.MOST_OF_LINE)
    return model_file.reader_of(begin) == model_file.NETWORK.reader


def _samples(model: OnnxModel, path: Path) -> Iterator[dict[str, Array]]:
    """A call of the model for each sample, or for as many as its first extent says."""
    with opened(path) as (file, _):
        try:
            arrays = dict(np.load(file, allow_pickle=False))
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"--quantize {path}: expected an .npz file of arrays") from error
    calls: dict[str, list[Array]] = {}
    for name, array in arrays.items():
        if name not in model.inputs:
            raise ValueError(f"--quantize {path}: {name!r} is no input, but {list(model.inputs)}")
        calls[name] = _calls(model.inputs[name], array)
    counts = {name: len(each) for name, each in calls.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"--quantize {path}: expected as many calls of each input, not {counts}")
    for number in range(min(counts.values())):
        yield {name: each[number] for name, each in calls.items()}


def _calls(port: Port, array: Array) -> list[Array]:
    """Parts of an array along its first axis, which the input has, too, or has not."""
    rank = array.ndim if port.shape is None else len(port.shape)
    if array.ndim == rank + 1:
        return list(array)
    first = port.shape[0] if port.shape else None
    step = first if isinstance(first, int) and first > 0 else 1
    return [array[at : at + step] for at in range(0, len(array) - step + 1, step)]


def _least_seconds(model: OnnxModel, arrays: Mapping[str, Array]) -> float:
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        model.run(arrays)
        times.append(time.perf_counter() - start)
    return min(times)


def _by_name(model: OnnxModel, results: Sequence[Any]) -> dict[str, Any]:
    """Arrays and lists of dicts, those in lists of arrays by their places, without what is None."""
    found: dict[str, Any] = {}
    for name, it in zip(model.outputs, results, strict=True):
        if isinstance(it, list) and not model.outputs[name].keys:
            found.update((f"{name}[{place}]", one) for place, one in enumerate(it))
        elif it is not None:
            found[name] = it
    return found


def _write(folder: Path, results: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place, (name, array) in enumerate(results.items()):
        # Names of outputs may be paths.
        file = folder / f"{place}-{''.join(c if c.isalnum() else '_' for c in name)}.npy"
        np.save(file, _saved(array))


def _saved(result: Any) -> Array:
    """Texts in NumPy's own type, which needs no pickle, and of dicts the numbers."""
    if isinstance(result, list):
        return np.array([list(it.values()) for it in result], np.float32)
    return result.astype(str) if result.dtype == object else np.asarray(result)


def _inputs(model: OnnxModel, files: Sequence[str], extents: Sequence[str]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    sizes = _sizes(extents)
    known = {it for port in model.inputs.values() for it in port.shape or () if isinstance(it, str)}
    known |= {name for port in model.inputs.values() for name, _ in _unnamed(port)}
    for name in sizes:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none that may be any"
            raise ValueError(f"--extent {name}: the model has no extent of that name, but {listed}")
    for word in files:
        name, is_named, file = word.partition("=")
        if not is_named:
            free = [it for it in model.inputs if it not in arrays]
            if not free:
                raise ValueError(f"--input {word}: the model has {len(model.inputs)} inputs")
            name, file = free[0], word
        with opened(Path(file)) as (data, _):
            arrays[name] = np.load(data, allow_pickle=False)
    random = np.random.default_rng(0)
    for name, port in model.inputs.items():
        if name not in arrays and not port.is_optional:
            drawn = _drawn(port, sizes, random)
            arrays[name] = [drawn] if port.kind.endswith("sequence") else drawn
    return arrays


def _unnamed(port: Port) -> Iterator[tuple[str, int]]:
    """What extents without a name are called, and their axes."""
    for axis, extent in enumerate(port.shape or ()):
        if extent is None:
            yield f"{port.name}:{axis}", axis


def _sizes(extents: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for word in extents:
        name, _, size = word.rpartition("=")
        if not size.isdecimal():
            raise ValueError(f"--extent {word}: expected NAME=N, with a number of elements")
        sizes[name] = int(size)
    return sizes


def _drawn(port: Port, sizes: Mapping[str, int], random: np.random.Generator) -> Array:
    if port.shape is None:
        raise ValueError(f"input '{port.name}' may have any shape, expected --input for it")
    called = {axis: name for name, axis in _unnamed(port)}
    shape = []
    for axis, extent in enumerate(port.shape):
        name = extent if isinstance(extent, str) else called.get(axis, "")
        if not isinstance(extent, int) and name not in sizes:
            print(f"input '{port.name}': extent {name} is taken as 1; --extent {name}=N says it")
        shape.append(extent if isinstance(extent, int) else sizes.get(name, 1))
    if port.dtype == "string":
        return np.full(shape, "", object)
    dtype = _DTYPES[port.dtype or "float32"]
    if dtype.kind in "biu":  # indices, of which 0 is one of any table
        return np.full(shape, dtype.kind == "b", dtype)
    return random.standard_normal(shape).astype(dtype)


def _check(
    given: argparse.Namespace,
    model: OnnxModel,
    arrays: Mapping[str, Array],
    results: Sequence[Any],
) -> int:
    name, others = _others(given.model, model, arrays)
    found, expected = (_by_name(model, it) for it in (results, others))
    if list(found) != list(expected):
        print(f"{name} gives {list(expected)}, expected {list(found)}")
        return 1
    known = found.values()
    is_low = model.dtype == "bfloat16" or any(_saved(it).dtype.itemsize == 2 for it in known)
    most, worst = 0.1 if model.table else 2e-2 if is_low else 1e-4, 0.0
    for ours, theirs in zip(known, expected.values(), strict=True):
        wide, right = _comparable(ours, theirs)
        if wide.shape != right.shape:
            print(f"{name} gives {list(right.shape)}, expected {list(wide.shape)}")
            return 1
        difference = np.where((wide == right) | (np.isnan(wide) & np.isnan(right)), 0, wide - right)
        finite = np.abs(right[np.isfinite(right)])
        scale = max(finite.max(initial=0), 1e-12)
        worst = max(worst, float(np.abs(difference).max(initial=0) / scale))
    is_close = worst <= most  # which what is no number is not
    print(f"{name}: differs by {worst:.2e} of the largest element, expected at most {most:.0e}")
    return 0 if is_close else 1


def _comparable(ours: Any, theirs: Any) -> tuple[Array, Array]:
    """Results as numbers, those of texts 0 for ours and 1 for what differs from it."""
    if not isinstance(ours, list) and ours.dtype == object:
        differs = ours != np.asarray(theirs, object)
        return np.zeros(ours.shape), np.asarray(differs, np.float64)
    pair = (_saved(it) if isinstance(it, list) else it for it in (ours, theirs))
    wide, right = (np.asarray(it, np.float64) for it in pair)
    return wide, right


def _others(path: str, model: OnnxModel, arrays: Mapping[str, Array]) -> tuple[str, Sequence[Any]]:
    whole = model.source.whole() if _is_own(Path(path)) else None
    try:
        onnxruntime = import_module("onnxruntime")
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return "onnx.reference", list(ReferenceEvaluator(whole or path).run(None, dict(arrays)))
    file = path if whole is None else whole.SerializeToString()
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return "onnxruntime", session.run(None, dict(arrays))
