"""Texts that are written side by side: a step reads the latest token of all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlprim.arguments.scalars import integer, shown
from dlprim.llm.cache import Cache
from dlprim.llm.sampling import Sampling
from dlprim.llm.tokenizer import Stream, Tokenizer

if TYPE_CHECKING:
    from dlprim.llm.model import LanguageModel

_CHUNK = 256  # tokens of a beginning that are read at once, while others wait


@dataclass(frozen=True)
class Request:
    """What is asked for: the tokens to begin with, how others are chosen, and when to stop.

    Attributes
    ----------
    tokens : sequence of int
    sampling : Sampling
    max_new : int
        The most tokens that are written.
    stops : frozenset of int
        Tokens that end the text, which are no part of it.
    place : int
        Of the sequence, for its random numbers.
    """

    tokens: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    max_new: int = 256
    stops: frozenset[int] = frozenset()
    place: int = 0


class Written(NamedTuple):
    """A token of a text, or None, and why the text ends: "stop", "length", "full", or None."""

    slot: int
    token: int | None
    end: str | None


class _Text:
    """A request on its way."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.unread = list(request.tokens)
        self.seen = set(request.tokens)
        self.draw = request.sampling.generator(request.place)
        self.latest: int | None = None  # the token that was written and not read
        self.count = 0

    def choose(self, logits: Any) -> tuple[int | None, str | None]:
        token = self.request.sampling.chosen(logits, self.seen, self.draw)
        if token in self.request.stops:
            return None, "stop"
        self.latest, self.count = token, self.count + 1
        self.seen.add(token)
        return token, "length" if self.count >= self.request.max_new else None


class Batch:
    """Texts in the sequences of a cache, which come and go by themselves.

    Parameters
    ----------
    model : LanguageModel
    cache : Cache
        A text each.
    """

    def __init__(self, model: LanguageModel, cache: Cache) -> None:
        self._model, self._cache = model, cache
        self._texts: dict[int, _Text] = {}

    @property
    def free(self) -> list[int]:
        """Sequences without a text."""
        return [it for it in range(len(self._cache)) if it not in self._texts]

    def add(self, slot: int, request: Request) -> None:
        """Begins a text behind what the cache has read of a sequence."""
        self._texts[slot] = _Text(request)

    def remove(self, slot: int) -> None:
        """Ends a text."""
        self._texts.pop(slot, None)

    def step(self) -> list[Written]:
        """Reads a piece of one prompt and the latest token of each text; chooses what follows."""
        going = [slot for slot, it in self._texts.items() if it.latest is not None]
        made = self._begun() + self._ended(going)
        going = [slot for slot in going if slot in self._texts]
        if going:
            tokens = np.array([[self._texts[slot].latest] for slot in going])
            logits = self._model(tokens, self._cache[going], last=True)
            made += [self._chosen(slot, row) for slot, row in zip(going, logits, strict=True)]
        return made

    def _begun(self) -> list[Written]:
        """Of the first text whose beginning is not read, if that is by now."""
        slot = next((slot for slot, it in self._texts.items() if it.unread), None)
        if slot is None:
            return []
        text = self._texts[slot]
        piece, text.unread = text.unread[:_CHUNK], text.unread[_CHUNK:]
        logits = self._model(piece, self._cache[slot], last=True)
        return [] if text.unread else [self._chosen(slot, logits)]

    def _ended(self, slots: Sequence[int]) -> list[Written]:
        """Those that find no room for their latest token."""
        full = [it for it in slots if self._cache[it].room < 1]
        for slot in full:
            self.remove(slot)
        return [Written(slot, None, "full") for slot in full]

    def _chosen(self, slot: int, logits: Any) -> Written:
        token, end = self._texts[slot].choose(logits)
        if end is not None:
            self.remove(slot)
        return Written(slot, token, end)


class Speech:
    """The text of one sequence as it is written, up to a text that ends it.

    Parameters
    ----------
    stream : Stream
    stops : sequence of str
    """

    def __init__(self, stream: Stream, stops: Sequence[str]) -> None:
        self._stream, self._stops, self._waiting = stream, stops, ""

    def push(self, token: int) -> tuple[str, bool]:
        """What can be shown by now, and whether the text ends there."""
        self._waiting += self._stream.push(token)
        found = [place for it in self._stops if (place := self._waiting.find(it)) >= 0]
        if found:
            shown, self._waiting = self._waiting[: min(found)], ""
            return shown, True
        keep = max((self._begun(it) for it in self._stops), default=0)
        cut = len(self._waiting) - keep
        shown, self._waiting = self._waiting[:cut], self._waiting[cut:]
        return shown, False

    def rest(self) -> str:
        """What waited for the rest of a text that would have ended it."""
        shown, self._waiting = self._waiting, ""
        return shown

    def _begun(self, stop: str) -> int:
        """How much of what waits may be the beginning of a stop."""
        most = min(len(stop) - 1, len(self._waiting))
        return next((it for it in range(most, 0, -1) if self._waiting.endswith(stop[:it])), 0)


class Asked(NamedTuple):
    """What `LanguageModel.generate` is asked besides its prompt."""

    max_new: int
    stop: Any
    cache: Cache | None
    sampling: dict[str, Any]


def prompts_of(model: LanguageModel, prompt: Any) -> tuple[list[list[int]], bool, bool]:
    """The argument as tokens of texts; whether it is texts, and whether it is a single one."""
    if isinstance(prompt, str):
        return [_tokens(model, prompt)], True, True
    several = prompt if isinstance(prompt, np.ndarray) else list(prompt)
    if len(several) == 0:
        raise ValueError("prompt is empty, expected one token at least")
    if isinstance(several[0], str):
        return [_tokens(model, it) for it in several], True, False
    is_one = np.ndim(several[0]) == 0
    found = [model.checked(it)[0].tolist() for it in ([several] if is_one else several)]
    return found, False, is_one


def _tokens(model: LanguageModel, text: str) -> list[int]:
    if model.tokenizer is None:
        raise ValueError(
            "prompt is a text, expected tokens: the model has no tokenizer, as its folder has no "
            "tokenizer.json"
        )
    found = model.tokenizer.encode(text)
    if not found:
        raise ValueError("prompt is empty, expected one token at least")
    return found


def begun(
    model: LanguageModel, texts: list[list[int]], is_text: bool, is_one: bool, asked: Asked
) -> Iterator[Any]:
    """Checks what is asked; the iterator of `LanguageModel.generate`."""
    tokenizer, config = model.tokenizer, model.config
    tokens, endings = stops_of(asked.stop, tokenizer if is_text else None)
    max_new, sampling = integer("max_new", asked.max_new, 1), Sampling(**asked.sampling)
    for it in texts:
        model.checked(it)
    longest, cache = max(map(len, texts)), asked.cache
    if cache is None:
        most = config.length if config.has_places else longest + max_new
        cache = model.cache(min(most, longest + max_new), sequences=len(texts))
    if len(cache) != len(texts):
        raise ValueError(f"cache is of {len(cache)} sequences, expected the {len(texts)} of prompt")
    if longest > cache.room:
        raise ValueError(
            f"prompt has {longest} tokens, expected at most the {cache.room} that the cache has "
            "room for"
        )
    stops = tokens.union(config.stops, tokenizer.stops() if tokenizer else ())
    requests = [Request(it, sampling, max_new, stops, place) for place, it in enumerate(texts)]
    speeches = None
    if is_text and tokenizer is not None:
        speeches = [Speech(tokenizer.stream(), endings) for _ in texts]
    found = _written(Batch(model, cache), requests, speeches)
    return (piece for _, piece in found) if is_one else found


def stops_of(stop: Any, tokenizer: Tokenizer | None) -> tuple[frozenset[int], list[str]]:
    """The argument: tokens, and texts, which need a tokenizer."""
    several = [stop] if isinstance(stop, str | int | np.integer) else stop
    if not isinstance(several, list | tuple | set | frozenset):
        raise TypeError(f"stop is {shown(stop)}, expected a text, a token, or a list of some")
    texts = [it for it in several if isinstance(it, str)]
    if "" in texts:
        raise ValueError("stop holds an empty text, expected one that is written")
    if texts and tokenizer is None:
        raise ValueError("stop holds a text, expected tokens, as the prompt is tokens")
    tokens = [integer("stop", it, 0) for it in several if not isinstance(it, str)]
    return frozenset(tokens), texts


def _written(
    batch: Batch, requests: Sequence[Request], speeches: Sequence[Speech] | None
) -> Iterator[tuple[int, Any]]:
    """Places of requests and pieces of their texts, tokens or strings, as they are written."""
    for slot, request in enumerate(requests):
        batch.add(slot, request)
    while len(batch.free) < len(requests):
        for slot, token, end in batch.step():
            if end == "full":
                raise ValueError(
                    "the cache is full, expected room for all that is written; a larger one has "
                    "it, and when_full='slide' forgets the oldest"
                )
            if speeches is None:
                if token is not None:
                    yield slot, token
                continue
            piece, ended = ("", False) if token is None else speeches[slot].push(token)
            if ended:
                batch.remove(slot)
            elif end is not None:
                piece += speeches[slot].rest()
            if piece:
                yield slot, piece
