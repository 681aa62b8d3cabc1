"""Angles that queries and keys are turned by, and how they are stretched for longer texts.

Sources: arXiv 2104.09864; scaled for longer texts: 2306.15595 (linear), 2309.00071 (yarn, dynamic),
2402.13753 (longrope), 2407.21783 (llama3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dlprim.llm.config import Fields, Rope
from dlprim.model_file import ModelFileError

Frequencies: TypeAlias = npt.NDArray[np.float64]


class Turn(NamedTuple):
    """Cosines of places, (..., T, 1, 1, size / 2), and sines, (..., T, 1, 2, size / 2), signed."""

    cos: Any
    sin: Any


class _Kind(NamedTuple):
    """How frequencies are scaled.

    Attributes
    ----------
    scaled : callable
        ``scaled(rope, frequencies, length, **numbers)`` for a text of a length.
    takes : mapping
        The numbers and their defaults; None where there is none.
    """

    scaled: Callable[..., Frequencies]
    takes: Mapping[str, float | None] = {}


def _default(rope: Rope, plain: Frequencies, length: int) -> Frequencies:
    return plain


def _linear(rope: Rope, plain: Frequencies, length: int, factor: float) -> Frequencies:
    return np.divide(plain, factor)


def _llama3(
    rope: Rope,
    plain: Frequencies,
    length: int,
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
) -> Frequencies:
    """Short waves stay, long ones are stretched, and those between are a mean of both."""
    turns = rope.length * plain / (2 * math.pi)  # in the text that it was trained for
    share = (turns - low_freq_factor) / max(high_freq_factor - low_freq_factor, 1e-6)
    share = np.clip(share, 0, 1)
    return np.multiply(plain, share + (1 - share) / factor)


def _yarn(
    rope: Rope, plain: Frequencies, length: int, *, factor: float, beta_fast: float, **others: float
) -> Frequencies:
    """The same by places of frequencies."""

    def place(turns: float) -> float:
        return rope.size * math.log(rope.length / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    first, last = place(beta_fast), place(others["beta_slow"])
    if others["truncate"]:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.size - 1)
    ramp = (np.arange(rope.size // 2) - first) / (last - first or 0.001)
    stretched = np.clip(ramp, 0, 1)
    found: Frequencies = plain * (1 - stretched + stretched / factor)
    return found


def _longrope(
    rope: Rope, plain: Frequencies, length: int, *, short_factor: Any, long_factor: Any, **_: float
) -> Frequencies:
    found: Frequencies = plain / np.array(long_factor if length > rope.length else short_factor)
    return found


def _dynamic(rope: Rope, plain: Frequencies, length: int, factor: float) -> Frequencies:
    longer = max(length, rope.length) / rope.length
    stretched = (factor * longer - (factor - 1)) ** (1 / max(rope.size - 2, 1))
    found: Frequencies = plain * stretched ** -np.arange(0, rope.size, 2)
    return found


_STRETCHED = {"factor": 0.0, "attention_factor": 0.0}
KINDS = {
    "default": _Kind(_default),
    "linear": _Kind(_linear, {"factor": None}),
    "dynamic": _Kind(_dynamic, {"factor": None}),
    "llama3": _Kind(_llama3, {"factor": None, "low_freq_factor": None, "high_freq_factor": None}),
    "yarn": _Kind(
        _yarn,
        {
            **_STRETCHED,
            **{"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.0, "mscale_all_dim": 0.0},
            "truncate": 1.0,
        },
    ),
    "longrope": _Kind(_longrope, {**_STRETCHED, "short_factor": None, "long_factor": None}),
}


def rope_of(fields: Fields, given: Fields, D: int) -> Rope:
    """What a configuration says, in an entry of its own or among all others."""
    kind = given.get("rope_type") or given.get("type") or "default"
    if not isinstance(kind, str) or kind not in KINDS:
        raise ModelFileError(
            f"rope_type of the configuration is {kind!r:.60}, expected one of {', '.join(KINDS)}"
        )
    share = given.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0))
    size = int(D * min(share, 2.0))
    if not 2 <= size <= D or size % 2:
        raise ModelFileError(
            f"the configuration has {size} elements of a head turned by its place, expected an "
            f"even number of at most {D}"
        )
    base = given.number("rope_theta", fields.number("rope_theta", 10000.0, 1.0), 1.0)
    longest = fields.count("max_position_embeddings")
    name = "original_max_position_embeddings"
    length = longest if kind == "dynamic" else given.count(name, fields.count(name, longest))
    numbers = {it: _number(given, it, size, least) for it, least in KINDS[kind].takes.items()}
    if numbers.get("factor") == 0:
        numbers["factor"] = longest / length
    return Rope(max(base, 1.001), size, kind, length, tuple(numbers.items()))


def _number(given: Fields, name: str, size: int, default: float | None) -> Any:
    if name == "truncate":
        return float(given.flag(name, True))
    if name not in ("short_factor", "long_factor"):
        least = 1e-6 if default is None else 0.0
        return given.number(name, default, least)
    found = given.listed(name, size // 2)
    if found is None:
        raise ModelFileError(f"the configuration has no {name}")
    return tuple(Fields({name: it}).number(name, least=1e-6) for it in found)


@lru_cache(maxsize=64)
def _frequencies(rope: Rope, length: int) -> tuple[Frequencies, float]:
    """Radians for each place in a text of a length, and what turned pairs are multiplied by."""
    numbers = dict(rope.numbers)
    told = numbers.pop("attention_factor", 0.0)
    plain = rope.base ** (-np.arange(0, rope.size, 2) / rope.size)
    return KINDS[rope.kind].scaled(rope, plain, length, **numbers), told or _gain(rope, numbers)


def _gain(rope: Rope, numbers: Mapping[str, float]) -> float:
    """Longer texts have flatter shares, which larger scores make up for."""
    factor = numbers.get("factor", 1.0)
    if rope.kind not in ("yarn", "longrope") or factor <= 1:
        return 1.0
    if rope.kind == "longrope":
        return math.sqrt(1 + math.log(factor) / math.log(max(rope.length, 2)))
    one, all_of_it = (0.1 * numbers[it] * math.log(factor) for it in ("mscale", "mscale_all_dim"))
    return (one + 1) / (all_of_it + 1) if one and all_of_it else 0.1 * math.log(factor) + 1


def turn_of(rope: Rope, places: Any, length: int = 0) -> Turn:
    """The turn of places (..., T) in a text of a length, as float32."""
    frequencies, gain = _frequencies(rope, rope.length_of(length))
    angles = places[..., None, None, None] * frequencies
    cos, sin = (f(angles) * gain for f in (np.cos, np.sin))
    signed = np.concatenate([-sin, sin], axis=-2)
    return Turn(cos.astype(np.float32), signed.astype(np.float32))


def turned(x: Any, turn: Turn) -> Any:
    """Heads (..., T, H, D): elements of the first half of those turned pair with the second's."""
    size = 2 * turn.cos.shape[-1]
    pairs = x[..., :size].reshape(*x.shape[:-1], 2, size // 2)
    y = (pairs * turn.cos + pairs[..., ::-1, :] * turn.sin).reshape(*x.shape[:-1], size)
    return y if size == x.shape[-1] else np.concatenate([y, x[..., size:]], axis=-1)
