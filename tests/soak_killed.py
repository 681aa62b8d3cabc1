"""Writers that are killed: a whole file each time, and no litter once the next one has written.

Networks, layers, checkpoints and schedules are saved again and again by processes that are killed
at drawn times; what is there is loaded after each.

    python tests/soak_killed.py 110            of each kind
    python tests/soak_killed.py 110 layers     of one
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "onnx"))


class Writer(NamedTuple):
    """A program that writes into a folder again and again, and what reads that."""

    begin: str
    write: str
    read: Callable[[Path], Any]

    def program(self) -> str:
        return _ENDLESS.format(begin=self.begin, write=self.write)


# It is killed after it has written once.
_ENDLESS = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
{begin}
{write}
print("ready", flush=True)
while True:
    {write}
"""


def _layers(folder: Path) -> Any:
    from dlprim import nn

    return nn.load(folder / "it")


def _networks(folder: Path) -> Any:
    import dlprim

    return dlprim.load(folder / "it")


def _checkpoints(folder: Path) -> Any:
    from dlprim import train

    return train.load(folder)


def _schedules(folder: Path) -> Any:
    import json

    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())["entries"]["it"]


_TRAINED = """
import contextlib, os, tempfile
from dlprim import train
from dlprim.train import checkpoint
kept, save = [], checkpoint.save
checkpoint.save = lambda *given: kept.append(given)
with contextlib.redirect_stdout(open(os.devnull, "w")), tempfile.TemporaryDirectory() as own:
    train.main(["--model", "lstm", "--hidden", "64", "--epochs", "1", "--steps", "1",
                "--length", "6", "--checkpoint", own])
"""
WRITERS = {
    "layers": Writer(
        "from dlprim import nn\nmodel = nn.Linear(512, 512)",
        'nn.save(model, folder / "it")',
        _layers,
    ),
    "networks": Writer(
        "import dlprim.onnx, small_models\n"
        'model = dlprim.onnx.load(small_models.model("attention"))',
        'model.save(folder / "it")',
        _networks,
    ),
    "checkpoints": Writer(_TRAINED, "save(folder, *kept[-1][1:])", _checkpoints),
    "schedules": Writer(
        "from dlprim import schedule_store as store",
        'store.save(folder, {"it": {"schedule": "n", "gain": 2.0}})',
        _schedules,
    ),
}


def kill(kind: str, count: int) -> None:
    """Kills so many writers; SystemExit says what was not whole, or what was left."""
    writer, draw = WRITERS[kind], np.random.default_rng(0)
    paths = [str(Path(__file__).parent / "onnx"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(count):
            running = subprocess.Popen(
                [sys.executable, "-c", writer.program(), name],
                stdout=subprocess.PIPE,
                env=environment,
            )
            assert running.stdout is not None
            if running.stdout.readline() != b"ready\n":
                raise SystemExit(f"{kind} {number}: the writer did not begin")
            time.sleep(draw.uniform(0, 0.05))
            running.kill()
            running.communicate()
            try:
                writer.read(folder)
            except Exception as error:
                raise SystemExit(f"{kind} {number}: {type(error).__name__}: {error}") from error
            # Of the one that was killed last; the next one removes it.
            left = [it.name for it in folder.iterdir() if it.name.endswith(".tmp")]
            if len(left) > 1:
                raise SystemExit(f"{kind} {number}: {left} are there, expected one at most")


def main(count: int, kinds: list[str]) -> None:
    for kind in kinds:
        kill(kind, count)
        print(f"{kind}: {count} killed, whole each time", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 110, sys.argv[2:3] or list(WRITERS))
