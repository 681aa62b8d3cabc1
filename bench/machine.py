"""The machine's roofs on one core: peaks of multiply-add and read bandwidth per cache level.

Every benchmark prints fractions of these, measured in its own run. By itself,
``python bench/machine.py`` prints them.
"""

import argparse
import json
import platform
from pathlib import Path
from statistics import median

import dlprim
from dlprim.testing import fma_peak, read_bandwidth

STREAM_BYTES = 1 << 28  # far beyond any last-level cache share of one core
_ROUNDS = 9


def cpu_name() -> str:
    """The CPU as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def cache_bytes() -> dict[str, int]:
    """Sizes of the data caches that the first core sees, in bytes."""
    sizes = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (folder / "type").read_text().strip() in ("Data", "Unified"):
            kib = (folder / "size").read_text().strip().removesuffix("K")
            sizes["L" + (folder / "level").read_text().strip()] = int(kib) * 1024
    return sizes


def usable_levels() -> list[str]:
    """The vector ISA levels of this CPU up to the one in use."""
    between = ["avx2_vnni", "avx2_vnni_int8"]  # which CPUs may lack that have higher ones
    levels = ["avx2", *between, "avx512", "avx512_vnni", "avx512_bf16", "amx"]
    return [
        level
        for level in levels[: levels.index(dlprim.isa()) + 1]
        if level not in between or dlprim.Brgemm(1, 1, 1, "int8", isa=level).isa == level
    ]


def peaks() -> dict[str, float]:
    """GFLOP/s of every multiply-add instruction that is usable, by name."""
    instructions = {
        "fma_avx2": ("avx2", "float32"),
        "fma_avx512": ("avx512", "float32"),
        "dot_int8": ("avx512_vnni", "uint8"),
        "dot_int8_avx2": ("avx2_vnni", "uint8"),
        "dot_bf16": ("avx512_bf16", "bfloat16"),
        "tiles_int8": ("amx", "uint8"),
        "tiles_bf16": ("amx", "bfloat16"),
    }
    usable = usable_levels()
    return {
        name: median(fma_peak(isa, 0.01, dtype) for _ in range(_ROUNDS)) * 1e-9
        for name, (isa, dtype) in instructions.items()
        if isa in usable
    }


def environment() -> dict[str, object]:
    """Facts that belong to every record."""
    return {
        "cpu": cpu_name(),
        "isa": dlprim.isa(),
        "dlprim": dlprim.__version__,
        "python": platform.python_version(),
    }


def stream_bandwidth() -> float:
    """Bytes per second of one core reading from memory."""
    return median(read_bandwidth(STREAM_BYTES, seconds=0.02) for _ in range(_ROUNDS))


def report() -> dict[str, float]:
    """Roofs in GFLOP/s and GB/s, by name, medians."""
    roofs = peaks()
    for level, size in cache_bytes().items():
        if level != "L3":  # shared, so one core's share is unknown
            half = [read_bandwidth(size // 2, seconds=0.005) for _ in range(_ROUNDS)]
            roofs[f"read_{level}"] = median(half) * 1e-9
    roofs["read_memory"] = stream_bandwidth() * 1e-9
    return roofs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args()
    if dlprim.isa() == "scalar":
        raise SystemExit("no vector ISA level is usable here: there is no FMA peak to measure")
    roofs = report()
    if options.json:
        print(json.dumps(environment() | roofs))
        return
    print(f"{cpu_name()}, {dlprim.isa()}, one core")
    for name, value in roofs.items():
        print(f"  {name:13s} {value:8.1f} {'GB/s' if name.startswith('read') else 'GFLOP/s'}")


if __name__ == "__main__":
    main()
