"""Peak resident memory of training, in a process of its own for each side: dlprim and PyTorch.

python bench/bench_memory.py --models resnet50 lstm
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import dlprim
from dlprim.bench import peers
from dlprim.bench.networks.sides import BATCHES, MODELS, Ours, Setting, Theirs

_STEPS = 3
_SIDES = ("dlprim", "torch")


def peak(model: str, dtype: str, side: str, threads: int) -> int:
    """Bytes that this process had resident at most, after some steps of one side."""
    dlprim.set_num_threads(threads)
    setting = Setting(model, dtype, BATCHES[model])
    trained = Ours(setting) if side == "dlprim" else Theirs(peers.torch(threads), setting)
    for step in range(_STEPS):
        trained.step(step)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["resnet50", "lstm"])
    parser.add_argument("--types", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=dlprim.get_num_threads())
    parser.add_argument("--side", choices=_SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(peak(options.models[0], options.types[0], options.side, options.threads))
        return
    for model in options.models:
        for dtype in options.types:
            command = [sys.executable, __file__, "--models", model, "--types", dtype]
            command += ["--threads", str(options.threads), "--side"]
            own, other = (
                int(subprocess.run([*command, side], check=True, stdout=subprocess.PIPE).stdout)
                for side in _SIDES
            )
            print(f"{model} {dtype}: {own / 2**20:.0f} MiB, PyTorch {other / 2**20:.0f}, "
                  f"ratio {own / other:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
