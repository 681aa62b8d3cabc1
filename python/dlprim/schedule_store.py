"""Schedules that were measured to be best, in a file per CPU model that later runs load.

A schedule changes how fast a primitive is and never what it may do, so nothing here stops a
program: a file that cannot be used is ignored with a warning. A file is read once per process. It
is written whole beside the old one and then renamed, so that no reader sees half of it, and what
other processes have added meanwhile is kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from dlprim import _core
from dlprim.files import opened, replaced, temporary_in

# {"schedule": str, of a formula {"name": str, ...}, "gain": float}
Entry: TypeAlias = dict[str, Any]
Entries: TypeAlias = dict[str, Entry]  # by `key`

_known: dict[Path, Entries] = {}
_warned: set[Path] = set()


class Problem(NamedTuple):
    """What schedules are stored for, besides the pass. The epilogue is not part of it."""

    kind: str
    geometry: Mapping[str, Any]
    dtype: str
    layout: str


def key(which: str, problem: Problem, algorithm: str = "direct") -> str:
    """What a pass of a primitive is called in a file."""
    numbers = " ".join(f"{name}={value}" for name, value in problem.geometry.items())
    how = which if algorithm == "direct" else f"{which} {algorithm}"
    return f"{problem.kind} {how} {problem.dtype} {problem.layout} {numbers}"


def default_folder() -> Path:
    place = os.environ.get
    return _folder(place("DLPRIM_TUNE_DIR"), place("XDG_CACHE_HOME"), place("HOME"))


# Asked for whatever has a schedule, in each first call of a shape.
@lru_cache(maxsize=16)
def _folder(chosen: str | None, caches: str | None, home: str | None) -> Path:
    """By environment variables, of which ``home`` is read in here."""
    if chosen:
        return Path(chosen)
    return Path(caches or os.path.expanduser("~/.cache"), "dlprim")


@lru_cache(maxsize=16)
def file_in(folder: Path) -> Path:
    """The file of this CPU and the instruction set in use."""
    name = "-".join(_identity()[part] for part in ("cpu", "isa"))
    return folder / (re.sub(r"[^A-Za-z0-9-]+", "_", name) + ".json")


def load(folder: Path) -> Entries:
    """What is stored in the folder; nothing where there is no file, or, with a warning, no use."""
    path = file_in(folder)
    if path not in _known:
        _known[path] = _read(path)
    return _known[path]


def use_stored(
    core: _core.Conv2d | _core.PlainConv2d | _core.Linear | _core.Rnn,
    problem: Problem,
    travelled: Travelled | None = None,
) -> None:
    """Give every pass of a primitive the schedule that is stored for it, if there is one.

    Of those of this machine, or of those that came with a model.

    ValueError where ``DLPRIM_TUNE`` is neither 0 nor 1.
    """
    if not (has_entries() if travelled is None else _is_wanted() and travelled.entries):
        return
    algorithms = getattr(core, "algorithms", {})
    for which in core.schedules:
        name = key(which, problem, algorithms.get(which, "direct"))
        schedule = stored(name) if travelled is None else travelled.stored(name)
        if schedule is None:
            continue
        try:
            core.set_schedule(which, schedule)
        except (ValueError, TypeError) as error:
            (ignore if travelled is None else travelled.ignore)(name, str(error))


def has_entries() -> bool:
    """Whether any schedule may be used."""
    return _is_wanted() and bool(load(default_folder()))


def stored(name: str) -> Any:
    """The schedule of that entry, None where there is none, or none is wanted."""
    entry = load(default_folder()).get(name) if _is_wanted() else None
    return None if entry is None else entry["schedule"]


def ignore(name: str, reason: str) -> None:
    """From now on, with a warning."""
    entry = load(default_folder()).pop(name, None)
    if entry is not None:
        warnings.warn(
            f"{file_in(default_folder())}: the schedule {entry['schedule']!r} for {name} is "
            f"ignored: {reason}",
            RuntimeWarning,
            stacklevel=5,
        )


def _is_wanted() -> bool:
    chosen = os.environ.get("DLPRIM_TUNE") or "1"
    if chosen not in ("0", "1"):
        raise ValueError(
            f"DLPRIM_TUNE is {chosen!r}, expected 0, with which no stored schedule is used, or 1"
        )
    return chosen == "1"


def document(travelled: Travelled | None = None) -> dict[str, Any]:
    """What is used on this CPU, for files that travel with a model."""
    came = {} if travelled is None else travelled.entries
    return {**_identity(), "entries": {**came, **load(default_folder())}}


class Travelled:
    """Schedules that came with a model: for it alone, and where this machine has none of its own.

    Those of another CPU, or of another version, are of no use and no mistake.
    """

    def __init__(self, document: Any) -> None:
        self.entries: Entries = {}
        with suppress(ValueError, AttributeError):
            self.entries.update(_checked(document))

    def stored(self, name: str) -> Any:
        """As the function `stored`."""
        if name not in self.entries or not _is_wanted() or name in load(default_folder()):
            return None
        return self.entries[name]["schedule"]

    def ignore(self, name: str, reason: str) -> None:
        """As the function `ignore`."""
        entry = self.entries.pop(name)
        warnings.warn(
            f"the schedule {entry['schedule']!r} for {name}, which came with a model, is ignored: "
            f"{reason}",
            RuntimeWarning,
            stacklevel=2,
        )

    @contextmanager
    def used(self) -> Iterator[None]:
        """Networks that this thread makes meanwhile are of that model."""
        before = _travelled.set(self if self.entries else None)
        try:
            yield
        finally:
            _travelled.reset(before)


_travelled: ContextVar[Travelled | None] = ContextVar("_travelled", default=None)


def travelled() -> Travelled | None:
    """What came with the model whose network is made, where schedules did."""
    return _travelled.get()


def save(folder: Path, changes: Mapping[str, Entry | None]) -> None:
    """Put entries into the file of the folder, or with None take them out.

    Raises
    ------
    OSError
        The file cannot be written; it then is what it was.
    """
    path = file_in(folder)
    with _locked(folder):
        merged = {**_read(path), **changes}
        entries = {name: entry for name, entry in merged.items() if entry is not None}
        with replaced(path) as file:
            text = json.dumps({**_identity(), "entries": entries}, indent=1)
            file.write(f"{text}\n".encode())
    _known[path] = entries


def require_writable(folder: Path) -> None:
    """Make the folder and try to write there, before anyone measures for minutes.

    Raises
    ------
    OSError
        In a sentence that names the folder and the reason.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_in(folder):
            pass
    except OSError as error:
        raise OSError(
            f"{folder} cannot hold tuned schedules: {error.strerror or error}; pass another path "
            "or set DLPRIM_TUNE_DIR"
        ) from error


@cache
def _identity() -> dict[str, str]:
    """For which a measured schedule is the best one."""
    from dlprim import __version__  # which the package has when all its modules are there

    return {"version": __version__, "cpu": _cpu_model(), "isa": _core.isa()}


def _cpu_model() -> str:
    """The name with family and model number: virtual machines shorten names to "AMD EPYC"."""
    fields: dict[str, str] = {}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                break  # the next core
            fields[name.strip()] = value.strip()
    name, family, model = (
        fields.get(field, "unknown") for field in ("model name", "cpu family", "model")
    )
    return f"{name} family {family} model {model}"


def _read(path: Path) -> Entries:
    try:
        with opened(path) as (file, _):
            return _checked(json.loads(file.read().decode()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        if path not in _warned:
            _warned.add(path)
            warnings.warn(
                f"the tuned schedules in {path} are ignored: {reason}; delete the file, or replace "
                "it with dlprim.tune",
                RuntimeWarning,
                stacklevel=7,
            )
        return {}


def _checked(document: Any) -> Entries:
    """The entries of a file's document; ValueError says why they cannot be used."""
    if not isinstance(document, dict) or not isinstance(document.get("entries"), dict):
        raise ValueError("it holds no entries")
    for part, value in _identity().items():
        if document.get(part) != value:
            raise ValueError(f"its {part} is {document.get(part)!r}, expected {value!r}")
    entries: Entries = document["entries"]
    for name, entry in entries.items():
        schedule = entry.get("schedule") if isinstance(entry, dict) else None
        texts = list(schedule.values()) if isinstance(schedule, dict) else [schedule]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"its entry {name!r} has no schedule")
    return entries


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time, where the file system has locks; without, the last of two remains."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
