"""A language model that reads and writes: weights packed once, a step of direct calls per layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.scalars import flag
from dlprim.llm.blocks import block, capped, last_norm
from dlprim.llm.cache import Cache
from dlprim.llm.generation import Asked, begun, prompts_of
from dlprim.llm.rotary import Turn, turn_of
from dlprim.llm.tokenizer import Tokenizer
from dlprim.llm.weights import NORMS, PRODUCTS, Pair, Source, norm_size

Array = npt.NDArray[Any]
DTYPES = ("float32", "bfloat16")


class _Product:
    """``x @ weight.T + bias``, with the weight as its type is computed with."""

    def __init__(self, pair: Pair, dtype: str) -> None:
        self._weight, self._bias = packed(pair.weight, dtype), pair.bias

    def __call__(self, x: Array) -> Array:
        return dlprim.linear(x, self._weight, self._bias)


def packed(weight: Array, dtype: str) -> Any:
    """A matrix (K, C) of floats as `dlprim.linear` is to take it."""
    return np.ascontiguousarray(weight, np.float32 if dtype == "float32" else bfloat16_dtype())


class _Norm(NamedTuple):
    weight: Array
    bias: Array | None
    eps: float


class _Layer:
    """The parts of a layer, None for those that its family has not."""

    def __init__(self, weights: Source, place: int, dtype: str) -> None:
        c = weights.config
        for part in PRODUCTS:
            setattr(self, part, _Product(weights.product(place, part), dtype))
        for part in NORMS:
            has_norm = norm_size(c, part) > 0
            setattr(self, part, _Norm(*weights.norm(place, part), c.eps) if has_norm else None)


class LanguageModel:
    """A decoder of text; `load` makes it.

    ``model(tokens, cache)`` reads words and gives logits of those that follow.

    Attributes
    ----------
    config : Config
    dtype : str
        Of the weights.
    tokenizer : Tokenizer or None
    """

    def __init__(self, weights: Source, dtype: str, tokenizer: Tokenizer | None = None) -> None:
        self.tokenizer = tokenizer
        self.config, self.dtype = weights.config, dtype
        c = weights.config
        self._rows = bfloat16_dtype() if dtype == "bfloat16" else np.dtype(np.float32)
        self._table = weights.table()
        self._places = weights.places() if c.has_places else None
        self._layers = [_Layer(weights, place, dtype) for place in range(c.layers)]
        self._norm = _Norm(*weights.norm(None, "norm"), c.eps)
        head = Pair(self._table, None) if c.is_tied else weights.head()
        self._head = _Product(head, dtype)

    def cache(self, capacity: int, *, sequences: int = 1, when_full: str = "refuse") -> Cache:
        """Room for the keys and values of what the model reads.

        Parameters
        ----------
        capacity : int
            Places of a sequence. Memory is taken as they are filled.
        sequences : int
        when_full : "refuse" or "slide"
            What a step does that finds no room: raise a ValueError, or forget the oldest quarter.

        Raises
        ------
        TypeError, ValueError
            A number is no integer or below 1, when_full is another word, or the model has rows of
            places, and fewer than asked for.
        """
        return Cache(self.config, capacity, sequences, when_full, self._rows)

    def __call__(self, tokens: Any, cache: Cache | None = None, *, last: bool = False) -> Array:
        """Logits, float32, of what follows each word.

        Parameters
        ----------
        tokens : integers (T,) or (N, T)
            One sequence, or as many as the cache has.
        cache : Cache, optional
            What was read before; the words are added. Without one they are the beginning.
        last : bool
            Whether to compute logits of the last word alone, (V,) or (N, V).

        Returns
        -------
        ndarray of float32, (T, V) or (N, T, V)

        Raises
        ------
        TypeError, ValueError
            Tokens are no integers, none, or outside of the vocabulary; or the cache is full, or of
            other sequences. It is as it was then.
        """
        words, flag_last = self.words(tokens), flag("last", last)
        N, T = words.shape
        room = self.cache(T, sequences=N) if cache is None else cache
        if not isinstance(room, Cache):
            raise TypeError(f"cache is of type {type(room).__name__}, expected what cache() makes")
        if len(room) != N:
            raise ValueError(f"cache is of {len(room)} sequences, expected the {N} of tokens")
        rows = self._read(words, room)
        logits = self._logits(rows[:, -1:] if flag_last else rows)
        logits = logits[:, 0] if flag_last else logits
        return logits[0] if np.ndim(tokens) == 1 else logits

    def generate(
        self,
        prompt: Any,
        *,
        max_new: int = 256,
        stop: Any = (),
        cache: Cache | None = None,
        **sampling: Any,
    ) -> Iterator[Any]:
        """Continues one text or several, word by word.

        Parameters
        ----------
        prompt : str, integers, or a list of several of one kind
        max_new : int
            The most words that are written for each.
        stop : str, int, or a list of some
            What ends a text besides the words that the model ends texts with; it is not shown.
        cache : Cache, optional
            What was read before of each text. Without one there is room for all that is written.
        **sampling
            As for `Sampling`: temperature, top_k, top_p, min_p, repetition_penalty, seed. By
            default each word is the likeliest.

        Returns
        -------
        iterator
            Of pieces of text, or of words where the prompt is integers; of several texts, pairs of
            a place in the list and a piece. Who stops iterating stops the model.

        Raises
        ------
        TypeError, ValueError
            An argument is of another kind; a prompt is empty, holds words outside of the
            vocabulary, or does not fit into the cache; or, while iterating, the cache is full.
        """
        return begun(self, *prompts_of(self, prompt), Asked(max_new, stop, cache, sampling))

    def chat(self, messages: Sequence[Mapping[str, Any]], **how: Any) -> Iterator[str]:
        """The answer to a conversation, piece by piece.

        Parameters
        ----------
        messages : sequence of dict
            ``{"role": "user", "content": "..."}``, by the model's chat template.
        **how
            As for `generate`.

        Returns
        -------
        iterator of str

        Raises
        ------
        TypeError, ValueError
            As from `generate`; or the model has no tokenizer or template, or it refuses messages.
        """
        if self.tokenizer is None:
            raise ValueError("the model has no tokenizer, expected one with a chat template")
        words = self.tokenizer.conversation(messages)
        asked = Asked(how.pop("max_new", 256), how.pop("stop", ()), how.pop("cache", None), how)
        return begun(self, [words], True, True, asked)

    def words(self, tokens: Any) -> Array:
        """Tokens as (N, T), checked."""
        found = np.asarray(tokens)
        if found.dtype.kind not in "iu" or found.ndim not in (1, 2):
            raise TypeError(
                f"tokens are {found.dtype} of shape {found.shape}, expected integers (T,) or (N, T)"
            )
        if not found.size:
            raise ValueError(f"tokens have shape {found.shape}, expected one word at least")
        low, high = int(found.min()), int(found.max())
        if low < 0 or high >= self.config.V:
            raise ValueError(
                f"tokens hold {low if low < 0 else high}, expected words from 0 to "
                f"{self.config.V - 1}, which is the vocabulary of the model"
            )
        return found.reshape(-1, found.shape[-1]).astype(np.int64)

    def _read(self, words: Array, cache: Cache) -> Array:
        """What the last layer gives for each word, normalised."""
        c = self.config
        places = cache.places(words.shape[1])
        x = self._table[words].astype(np.float32) * np.float32(c.embedding_scale)
        if self._places is not None:
            x += self._places[places]
        rows: tuple[Any, Any] = x.astype(self._rows), None
        turns = self._turns(places)
        how = {"scale": c.scale, "softcap": c.softcap}
        for place, layer in enumerate(self._layers):
            window = c.windows[place]

            def attend(
                q: Array, k: Array, v: Array, place: int = place, window: int | None = window
            ) -> Array:
                return cache.attend(place, (q, k, v), window, **how)

            rows = block(layer, c, rows, turns[place], attend)
        cache.advance(words.shape[1])
        found: Array = last_norm(self._norm, rows)
        return found

    def _turns(self, places: Array) -> list[Turn | None]:
        length = int(places.max()) + 1
        kinds = {it for it in self.config.ropes if it is not None}
        made = {it: turn_of(it, places, length) for it in kinds}
        return [None if it is None else made[it] for it in self.config.ropes]

    def _logits(self, rows: Array) -> Array:
        found: Array = capped(self._head(rows).astype(np.float32), self.config.final_softcap)
        return found
