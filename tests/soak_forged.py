"""Forged files with right checksums: refused in a sentence, quickly, in little memory.

Networks and layers of dlprim, checkpoints, schedules, and models in ONNX's format with external
data are written with contents that are drawn. What reads them takes them for whole, refuses them
with its own error, or, of schedules, goes on without them.

    python tests/soak_forged.py 1000            every kind, that many of each
    python tests/soak_forged.py 1000 layers     one kind
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "onnx"))

import small_models

import dlprim
import dlprim.onnx
import forged_files
from dlprim import model_file, nn, train
from dlprim import schedule_store as store
from dlprim.onnx import saving
from dlprim.train.folder import FILE as CHECKPOINT

SECONDS = 20  # of a file
BYTES = 1 << 30  # beyond what the process has
MAX_BYTES = 1 << 26  # of a call of a network

Draw = np.random.Generator
# Writes a forged file and reads it; what it may raise.
Case = tuple[Callable[[Draw], Any], tuple[type[Exception], ...]]


def damaged(data: bytes, draw: Draw) -> bytes:
    """With some bytes changed, left out or repeated."""
    octets = bytearray(data)
    for _ in range(draw.integers(1, 5)):
        place = int(draw.integers(len(octets)))
        how = draw.integers(3)
        if how == 0:
            octets[place] ^= 1 << int(draw.integers(8))
        elif how == 1:
            del octets[place : place + int(draw.integers(1, 9))]
        else:
            octets[place:place] = octets[place : place + int(draw.integers(1, 9))]
        octets = octets or bytearray(b"\0")
    return bytes(octets)


def _networks(folder: Path) -> Case:
    path, known = folder / "it", []
    for name in ("mlp", "residual", "attention"):
        model = dlprim.onnx.load(small_models.model(name))
        arrays = small_models.inputs(name, 2)
        for it in (model, *_quantized(model, arrays)):
            it.save(path)
            known.append((arrays, model_file.read(model_file.NETWORK, path)))

    def case(draw: Draw) -> None:
        arrays, (header, parts) = known[draw.integers(len(known))]
        forged, given = dict(header), dict(parts)
        if draw.integers(2):
            forged = forged_files.changed({k: v for k, v in header.items() if k != "arrays"}, draw)
        if draw.integers(2):
            given["model"] = np.frombuffer(damaged(parts["model"].tobytes(), draw), np.uint8)
        if not draw.integers(4):
            _change_array(given, draw)
        model_file.write(model_file.NETWORK, path, forged, given)
        model = saving.load(path, MAX_BYTES)
        with contextlib.suppress(TypeError, ValueError):  # it may take other arrays by now
            model(**arrays)

    return case, (model_file.ModelFileError,)


def _quantized(model: Any, arrays: Any) -> list[Any]:
    try:
        return [dlprim.quantize(model, [arrays], max_error=1)]
    except ValueError:  # no layer can be
        return []


def _change_array(arrays: dict[str, Any], draw: Draw) -> None:
    name = sorted(arrays)[draw.integers(len(arrays))]
    others = [
        np.zeros(0, np.float32), np.zeros((3, 1), np.int64), np.ones((2,) * 20, np.uint8),
        arrays[name].reshape(-1)[:1], arrays[name] == 0, np.array("word", "U4"),
    ]  # fmt: skip
    arrays[name] = others[draw.integers(len(others))]
    if not draw.integers(4):
        arrays[f"{name}x"] = arrays.pop(name)


def _layers(folder: Path) -> Case:
    path, known = folder / "it", []
    for model in (
        nn.Linear(2, 3),
        nn.LSTM(3, 4, layers=2),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.LayerNorm(5)),
        nn.resnet((1, 1), 8, 3, np.random.default_rng(0)),
        nn.Sequential(nn.Embedding(5, 6), nn.GRU(6, 4)),
    ):
        nn.save(model, path)
        known.append(forged_files.parts_of(model_file.LAYERS, path))

    def case(draw: Draw) -> None:
        header, arrays = known[draw.integers(len(known))]
        forged_files.put(model_file.LAYERS, path, forged_files.changed(header, draw), arrays)
        nn.load(path)

    return case, (model_file.ModelFileError,)


def _checkpoints(folder: Path) -> Case:
    flags = ("--model", "lstm", "--hidden", "8", "--epochs", "1", "--steps", "2", "--length", "6")
    with contextlib.redirect_stdout(io.StringIO()):
        train.main([*flags, "--checkpoint", str(folder)])
    path = folder / CHECKPOINT
    with np.load(path) as arrays:
        whole = dict(arrays)
    description = json.loads(whole["description"].tobytes())

    def case(draw: Draw) -> None:
        made, told = dict(whole), description
        if draw.integers(4):
            told = forged_files.changed(description, draw)
        if draw.integers(2):
            _change_array(made, draw)
        text = json.dumps(told).encode()
        np.savez(path, **made | {"description": np.frombuffer(text, np.uint8)})
        train.load(folder)

    return case, (train.CheckpointError,)


def _schedules(folder: Path) -> Case:
    os.environ["DLPRIM_TUNE_DIR"] = str(folder)
    draw = np.random.default_rng(1)
    x, w = (draw.standard_normal(it).astype(np.float32) for it in ((1, 16, 9, 9), (24, 16, 3, 3)))
    conv, linear = dlprim.Conv2d(x.shape, w.shape), dlprim.Linear((24, 96), 40)
    text = "def f(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }"
    lengths = np.ones((24, 96), np.float32), np.ones((40, 96), np.float32)

    def right() -> list[Any]:
        layer = dlprim.define(text).f
        layer._compiled.clear()
        layer._latest = None
        conv_of = dlprim.Conv2d(x.shape, w.shape)
        y = conv_of.forward(conv_of.pack_src(x), conv_of.pack_weights(w))
        flat = dlprim.Linear((24, 96), 40)
        z = flat.forward(flat.pack_src(lengths[0]), flat.pack_weights(lengths[1]))
        return [conv_of.unpack_dst(y), flat.unpack_dst(z), layer(*lengths)]

    expected = right()
    entries = {
        store.key(which, made._stored_as, getattr(made, "algorithms", {}).get(which, "direct")): {
            "schedule": schedule,
            "gain": 1.5,
        }
        for made in (conv, linear)
        for which, schedule in made.schedules.items()
    }
    path = store.file_in(folder)
    store.save(folder, entries)
    whole = json.loads(path.read_text())

    def case(draw: Draw) -> None:
        document = whole
        if draw.integers(2):
            document = forged_files.changed(whole, draw)
        else:
            document = json.loads(json.dumps(whole))
            for entry in document["entries"].values():
                octets = damaged(entry["schedule"].encode() or b" ", draw)
                entry["schedule"] = octets.decode("latin1")
        path.write_text(json.dumps(document))
        store._known.clear()
        store._warned.clear()
        for found, wanted in zip(right(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)

    return case, ()


def _external(folder: Path) -> Case:
    import onnx as format_of_onnx

    model, arrays = small_models.model("attention"), small_models.inputs("attention", 2)
    path, data = folder / "it.onnx", folder / "data"
    how: Any = {"save_as_external_data": True, "size_threshold": 8, "location": "data"}
    format_of_onnx.save(model, path, **how)
    sound, octets = format_of_onnx.load(path, load_external_data=False), data.read_bytes()
    words = ("", "data", "../data", "/dev/zero", "no", "-1", "0", "1", "4096", "x", str(2**40),
             str(2**63), str(2**64), "9" * 400, "1.5", "\0", ".", "it.onnx")  # fmt: skip

    def case(draw: Draw) -> None:
        forged = type(sound)()
        forged.CopyFrom(sound)
        tensors = [it for it in forged.graph.initializer if it.external_data]
        for _ in range(draw.integers(1, 3)):
            tensor = tensors[draw.integers(len(tensors))]
            entry = tensor.external_data[draw.integers(len(tensor.external_data))]
            how = draw.integers(6)
            if how == 0:
                entry.key = ("location", "offset", "length", "checksum", "x")[draw.integers(5)]
            elif how == 1:
                del tensor.external_data[:]
                break
            elif how == 2:
                tensor.dims.append(int(draw.choice([-1, 0, 1, 2, 2**31, 2**62])))
            elif how == 3:
                tensor.data_type = int(draw.integers(0, 30))
            else:
                entry.value = words[draw.integers(len(words))]
        written = forged.SerializeToString()
        path.write_bytes(damaged(written, draw) if not draw.integers(8) else written)
        data.write_bytes(octets[: draw.integers(len(octets))] if not draw.integers(8) else octets)
        loaded = dlprim.onnx.load(path, max_bytes=MAX_BYTES)
        with contextlib.suppress(TypeError, ValueError):
            loaded(**arrays)

    return case, (dlprim.onnx.ModelError, OSError)


KINDS: dict[str, Callable[[Path], Case]] = {
    "networks": _networks,
    "layers": _layers,
    "checkpoints": _checkpoints,
    "schedules": _schedules,
    "external": _external,
}


def forge(kind: str, count: int) -> int:
    """How many files were refused; the first one that went wrong is a SystemExit."""
    warnings.simplefilter("ignore")
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        case, expected = KINDS[kind](Path(folder))
        for seed in range(count):
            signal.alarm(SECONDS)
            try:
                case(np.random.default_rng(seed))
            except expected as error:
                refused += 1
                if not str(error).strip():
                    raise SystemExit(f"{kind} {seed}: no sentence: {error!r}") from error
            except Exception as error:
                raise SystemExit(f"{kind} {seed}: {type(error).__name__}: {error}") from error
            finally:
                signal.alarm(0)
    return refused


def _bounded() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(count: int, kinds: list[str]) -> int:
    if len(kinds) == 1:
        dlprim.set_num_threads(1)
        _bounded()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        print(f"{kinds[0]}: {forge(kinds[0], count)} of {count} refused", flush=True)
        return 0
    failed = 0
    for kind in kinds:
        run = subprocess.run([sys.executable, __file__, str(count), kind])
        if run.returncode:
            failed += 1
            print(f"{kind}: ended with {run.returncode}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sys.argv[2:3] or list(KINDS)))
