"""What the kernel tells of this machine, as reports of bugs and of benchmarks name it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

_ENDLESS = 1 << 60  # bytes, by which version 1 of control groups means no limit


def cpu_name() -> str:
    """The CPU as the kernel names it."""
    for line in _text(Path("/proc/cpuinfo")).splitlines():
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


def size_in_words(size: int) -> str:
    """In KiB or MiB."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def group_limits(root: Path = Path("/")) -> list[str]:
    """What the control groups of this process limit, as the kernel writes it, such as
    ``cpu.max 150000 100000``; of nested groups the innermost first."""
    return [it for folder in _groups(root) for it in _limits(folder)]


def _limits(group: Path) -> Iterator[str]:
    """Of one group, of version 2 or 1."""
    cpu, quota = _text(group / "cpu.max"), _text(group / "cpu.cfs_quota_us")
    if cpu and not cpu.startswith("max"):
        yield f"cpu.max {cpu}"
    if quota and not quota.startswith("-1"):
        yield f"cpu.cfs_quota_us {quota} of {_text(group / 'cpu.cfs_period_us')}"
    for name in ("memory.max", "memory.limit_in_bytes"):
        memory = _text(group / name)
        if memory.isdigit() and int(memory) < _ENDLESS:
            yield f"{name} {size_in_words(int(memory))}"


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the groups, from the inside out."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "cpu,cpuacct", "cpu", "memory"):
            inner = mounted / controllers / path.strip("/")
            yield from (it for it in (inner, *inner.parents) if it.is_relative_to(mounted))


def _text(path: Path) -> str:
    """Without spaces around it; empty where there is no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
