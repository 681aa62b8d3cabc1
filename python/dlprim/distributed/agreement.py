"""Ranks that differ in code or model are found before the first step, not in its results.

Averaging gradients of different models either fails far from its cause or gives numbers without
meaning. So ranks compare a digest of the package's files and the list of their parameters. What
these checks raise is raised on every rank, with the same message: one of them has to print it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dlprim
from dlprim.distributed.failure import CollectiveError
from dlprim.distributed.group import Group


def require_same_code(group: Group) -> None:
    """Raise CollectiveError unless all ranks run the same dlprim, to the byte."""
    code = f"dlprim {dlprim.__version__} ({_digest_of_package()[:12]})"
    _require_same(group, code, "code")


def require_same_parameters(group: Group, parameters: Sequence[Any]) -> None:
    """Raise CollectiveError unless the parameters have the same names, shapes and order."""
    listed = [(parameter.name, tuple(parameter.value.shape)) for parameter in parameters]
    digest = hashlib.sha256(repr(listed).encode()).hexdigest()
    if len(set(group.allgather(digest))) == 1:
        return
    everywhere = group.allgather(listed)
    for rank, other in enumerate(everywhere):
        if other == everywhere[0]:
            continue
        if len(other) != len(everywhere[0]):
            difference = f"{len(everywhere[0])} parameters, rank {rank} has {len(other)}"
        else:
            pairs = zip(everywhere[0], other, strict=True)
            ours, theirs = next((a, b) for a, b in pairs if a != b)
            difference = f"{_shown(ours)}, rank {rank} has {_shown(theirs)}"
        raise CollectiveError(f"The ranks train different models: rank 0 has {difference}")


def _require_same(group: Group, value: str, what: str) -> None:
    everywhere = group.allgather((value, group.host))
    for rank, (other, host) in enumerate(everywhere):
        if other != everywhere[0][0]:
            first, first_host = everywhere[0]
            raise CollectiveError(
                f"The ranks run different {what}: rank 0 on {first_host} has {first}, "
                f"rank {rank} on {host} has {other}"
            )


def _shown(parameter: tuple[str, tuple[int, ...]]) -> str:
    return f"{parameter[0]} of shape {parameter[1]}"


def _digest_of_package() -> str:
    package = Path(dlprim.__file__).parent
    files = sorted([*package.rglob("*.py"), *package.glob("_core*.so")])
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(package)).encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
