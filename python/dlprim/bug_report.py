"""What a bug report needs to say of the machine: ``python -m dlprim`` prints it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import dlprim
from dlprim import _core, hardware

# Packages that share a process, its threads and its arrays with dlprim.
_BESIDE = ("torch", "onnx", "onnxruntime", "mpi4py", "scikit-learn", "scipy", "triton")
_OPENMP = re.compile(r"/lib(gomp|iomp5|omp)[-.]")
_VARIABLES = re.compile(r"(DLPRIM|OMP|GOMP|KMP|MKL|OPENBLAS)_")


def lines() -> Iterator[str]:
    """The report. No name of a user, host or folder is in it but those that variables hold."""
    threads = dlprim.get_num_threads()
    yield (
        f"dlprim {dlprim.__version__}, {dlprim.isa()}, "
        f"{threads} thread{'s' * (threads != 1)} ({_core.reason_for_num_threads()})"
    )
    packages = ", ".join(f"{it} {version}" for it, version in _versions(("numpy", "ml_dtypes")))
    yield f"Python {platform.python_version()}, {packages}"
    others = ", ".join(f"{it} {version}" for it, version in _versions(_BESIDE))
    yield f"installed beside it: {others or 'none of ' + ', '.join(_BESIDE)}"
    yield f"system: Linux {platform.release()}, {' '.join(platform.libc_ver())}"
    usable, cores = len(os.sched_getaffinity(0)), os.cpu_count()
    yield f"CPU: {hardware.cpu_name()}, {_core.detected_isa()}, {usable} of {cores} CPUs usable"
    caches = hardware.cache_bytes().items()
    shown = ", ".join(f"{name} {hardware.size_in_words(it)}" for name, it in caches)
    yield f"caches: {shown or 'unknown'}"
    yield f"control group: {', '.join(hardware.group_limits()) or 'no limit'}"
    yield f"OpenMP runtimes loaded: {', '.join(openmp_runtimes()) or 'none'}"
    named = [f"{name}={value}" for name, value in os.environ.items() if _VARIABLES.match(name)]
    yield f"environment: {' '.join(sorted(named)) or 'nothing that changes threads or kernels'}"


def openmp_runtimes() -> list[str]:
    """Those in this process, each with the folder that it came from: ``torch/lib/libgomp.so.1``."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in maps if _OPENMP.search(line)}
    return sorted("/".join(Path(it).parts[-3:]) for it in paths)


def _versions(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Of those that are installed; nothing is imported."""
    for name in names:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
