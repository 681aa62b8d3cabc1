"""A corpus of characters that every Python has: the sources of its own standard library."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlprim.train.data import MissingDataError, digest_of

ALPHABET = "\n" + "".join(map(chr, range(32, 127))) + "\ufffd"  # the last for all others
_HELD_OUT = 20  # every so many files


@dataclass(frozen=True)
class Corpus:
    """Characters as places in `ALPHABET`, int64, apart for training and test."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def digest(self) -> str:
        """Tells this text from any other."""
        return digest_of(self.train.astype(np.uint8), self.test.astype(np.uint8))


def standard_library(generator: np.random.Generator) -> Corpus:
    """Returns the modules of the standard library, whole files of which are held out.

    Args:
        generator: decides the order of the files; every twentieth is held out.

    Raises:
        MissingDataError: this Python comes without sources.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(folder.glob("*.py"))
    if len(paths) < 2 * _HELD_OUT:
        raise MissingDataError(f"{folder} holds {len(paths)} Python sources, expected more")
    order = generator.permutation(len(paths))
    parts = [encoded(paths[place].read_text(encoding="utf-8", errors="replace")) for place in order]
    test = [part for number, part in enumerate(parts) if number % _HELD_OUT == 0]
    train = [part for number, part in enumerate(parts) if number % _HELD_OUT != 0]
    return Corpus(np.concatenate(train), np.concatenate(test))


def encoded(text: str) -> NDArray[np.int64]:
    """Places of characters in `ALPHABET`."""
    codes = np.frombuffer(text.encode("utf-32-le", errors="replace"), np.uint32)
    places = np.full(128, len(ALPHABET) - 1, np.int64)
    for place, character in enumerate(ALPHABET[:-1]):
        places[ord(character)] = place
    places[ord("\t")] = places[ord(" ")]
    return places[np.where(codes < 127, codes, 127)]


def decoded(places: NDArray[np.int64]) -> str:
    """The text of places in `ALPHABET`."""
    return "".join(ALPHABET[place] for place in places)
