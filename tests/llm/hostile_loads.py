"""Loads damaged models in bounded memory: each is refused in a sentence, or is another whole one.

    python hostile_loads.py FOLDER KIND SEED COUNT

The folder holds a model and ``x.gguf``. What was raised otherwise is printed; what dies by a
signal, or takes more memory, ends the process.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import dlprim
from dlprim import llm
from forged_files import changed

BYTES = 1 << 30  # beyond what the imports have taken
SECONDS = 30  # for one of them


def damaged(data: bytes, front: int, random: np.random.Generator) -> bytes:
    """Cut, or with some bytes changed, most of them in front."""
    if random.random() < 0.2:
        return data[: random.integers(len(data))]
    octets = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 5, 20])):
        place = int(random.integers(front if random.random() < 0.9 else len(octets)))
        if random.random() < 0.3:
            octets[place : place + 8] = int(random.integers(2**63)).to_bytes(8, "little")
        else:
            octets[place] = int(random.integers(256))
    return bytes(octets)


def safetensors_damaged(data: bytes, random: np.random.Generator) -> bytes:
    """The bytes, or what the header says."""
    size = int.from_bytes(data[:8], "little")
    if random.random() < 0.5:
        return damaged(data, 8 + size, random)
    header = json.dumps(changed(json.loads(data[8 : 8 + size]), random)).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def mutated(folder: Path, kind: str, random: np.random.Generator) -> Path:
    """Writes a damaged file in place of the whole one; gives what is to be loaded."""
    whole = folder / "whole"
    if kind == "gguf":
        path = folder / "x.gguf"
        data = (whole / path.name).read_bytes()
        path.write_bytes(damaged(data, 6000, random))
        return path
    name = {"safetensors": "model.safetensors", "config": "config.json"}.get(kind, kind)
    data = (whole / name).read_bytes()
    if kind == "safetensors":
        data = safetensors_damaged(data, random)
    elif random.random() < 0.1:
        data = damaged(data, len(data), random)
    else:
        data = json.dumps(changed(json.loads(data), random)).encode()
    (folder / name).write_bytes(data)
    return folder


def outcome(path: Path) -> str:
    """What was raised that is no sentence of ours; empty otherwise."""
    try:
        model = llm.load(path)
        model([1, 2, 3], model.cache(4))
        list(model.generate("ab" if model.tokenizer else [1, 2], max_new=2))
    except (ValueError, OSError) as error:
        return "" if len(str(error)) > 15 else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    given, kind, seed, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dlprim.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=given.parent))
    shutil.copytree(given, folder / "whole")
    shutil.copytree(given, folder, dirs_exist_ok=True)
    outcome(folder)  # which imports the rest
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for number in range(seed, seed + count):
        signal.alarm(SECONDS)
        found = outcome(mutated(folder, kind, np.random.default_rng([number])))
        signal.alarm(0)
        if found:
            print(number, found[:300], flush=True)
    print("done")


main()
