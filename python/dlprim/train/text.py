"""A corpus of characters: files of one's own, or those that every Python has: its library's."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlprim.files import opened
from dlprim.train.data import MissingDataError, digest_of

ALPHABET = "\n" + "".join(map(chr, range(32, 127))) + "\ufffd"  # the last for all others
_HELD_OUT = 20  # every so many files, or that part of a file


@dataclass(frozen=True)
class Corpus:
    """Characters as places in `ALPHABET`, int64, apart for training and test."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    name: str = "text"

    @property
    def digest(self) -> str:
        """Tells this text from any other."""
        return digest_of(self.train.astype(np.uint8), self.test.astype(np.uint8))


def corpus_of(data: str, generator: np.random.Generator) -> Corpus:
    """Returns the text of files, whole files of which are held out, or the end of a single one.

    Args:
        data: the path of a folder or a file; "text" for the modules of the standard library.
        generator: decides the order of the files; every twentieth is held out.

    Raises:
        MissingDataError: there is no text.
    """
    if data == "text":
        folder = Path(sysconfig.get_paths()["stdlib"])
        name, texts = "the standard library's sources", _texts(folder.glob("*.py"))
    else:
        folder = Path(data)
        name = data
        texts = _texts(folder.rglob("*") if folder.is_dir() else [folder])
    if len(texts) == 1 and not folder.is_dir():
        cut = len(texts[0]) * (_HELD_OUT - 1) // _HELD_OUT
        return Corpus(encoded(texts[0][:cut]), encoded(texts[0][cut:]), name)
    if len(texts) < 2:
        raise MissingDataError(
            f"{folder} holds {len(texts)} files of text, expected two or more, or the path of one"
        )
    parts = [encoded(texts[place]) for place in generator.permutation(len(texts))]
    test = [part for number, part in enumerate(parts) if number % _HELD_OUT == 0]
    train = [part for number, part in enumerate(parts) if number % _HELD_OUT != 0]
    return Corpus(np.concatenate(train), np.concatenate(test), name)


def _texts(paths: Iterable[Path]) -> list[str]:
    """Of those that are regular files without zero bytes, in the order of their paths."""
    found = []
    for path in sorted(it for it in paths if it.is_file()):
        try:
            with opened(path) as (file, _):
                content = file.read()
        except OSError as error:
            raise MissingDataError(f"{path} cannot be read: {error}") from error
        if b"\0" not in content:
            found.append(content.decode("utf-8", errors="replace").replace("\r\n", "\n"))
    return found


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
