"""What keeps ranks from training is found before the first step, and all of them leave together.

Averaging gradients of different models either fails far from its cause or gives numbers without
meaning. So ranks compare a digest of the package's files, the list of their parameters and how they
exchange gradients. What these checks raise is raised on every rank, with the same message: one of
them has to print it.
The same goes for preparations of which any rank's may fail, such as reading a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import dlprim
from dlprim.distributed.failure import EXPECTED, CollectiveError
from dlprim.distributed.group import Group

_T = TypeVar("_T")


def prepare_together(group: Group, preparation: Callable[[], _T]) -> _T:
    """What ``preparation`` returns here, once it has succeeded on every rank.

    It must not communicate, or ranks would wait for one that has failed.

    Raises
    ------
    CollectiveError
        It raised an expected exception on some rank: on all ranks, with the words of the lowest. A
        group of one sees the exception itself.
    """
    if group.size == 1:
        return preparation()
    failure: str | None = None
    try:
        prepared = preparation()
    except EXPECTED as error:
        failure = str(error) or type(error).__name__
    everywhere = group.allgather((failure, group.host))
    failed = [rank for rank, (text, _) in enumerate(everywhere) if text is not None]
    if not failed:
        return prepared
    text, host = everywhere[failed[0]]
    if len(failed) < group.size:
        text = f"rank {failed[0]} of {group.size} on {host}: {text}"
    raise CollectiveError(text)


def require_same_code(group: Group) -> None:
    """Raise CollectiveError unless all ranks run the same dlprim, to the byte."""
    code = f"dlprim {dlprim.__version__} ({_digest_of_package()[:12]})"
    _require_same(group, {"": code}, "run different code")


def require_same_settings(group: Group, settings: Mapping[str, Any]) -> None:
    """Raise CollectiveError unless all ranks have the same settings."""
    shown = {name: f"{name} {value!r}" for name, value in settings.items()}
    _require_same(group, shown, "have different settings")


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


def _require_same(group: Group, values: Mapping[str, str], what: str) -> None:
    everywhere = group.allgather((values, group.host))
    first, first_host = everywhere[0]
    for rank, (others, host) in enumerate(everywhere):
        for name in [*first, *(it for it in others if it not in first)]:
            one, other = first.get(name, f"no {name}"), others.get(name, f"no {name}")
            if one != other:
                raise CollectiveError(
                    f"The ranks {what}: rank 0 on {first_host} has {one}, "
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
