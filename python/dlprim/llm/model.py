"""A language model that reads and writes: weights packed once, a step of direct calls per layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.arguments.scalars import flag
from dlprim.llm.blocks import block, capped, last_norm
from dlprim.llm.cache import Cache
from dlprim.llm.generation import Asked, begun, prompts_of
from dlprim.llm.gguf_file import FewBits
from dlprim.llm.rotary import turn_of
from dlprim.llm.tokenizer import Tokenizer
from dlprim.llm.weights import NORMS, PRODUCTS, Pair, Source, norm_size

Array = npt.NDArray[Any]
BITS = {"bfloat16": 16, "int8": 8, "int4": 4}
DTYPES = ("float32", *BITS)


class _Product:
    """``x @ weight.T + bias``, with the weight as its type is computed with."""

    def __init__(self, pair: Pair, dtype: str) -> None:
        self._weight, self._bias = packed(pair.weight, dtype), pair.bias

    def __call__(self, x: Array) -> Array:
        return dlprim.linear(x, self._weight, self._bias)

    @property
    def nbytes(self) -> int:
        return int(self._weight.nbytes)


def packed(weight: Array | FewBits, dtype: str) -> Any:
    """A matrix (K, C) of floats as `dlprim.linear` is to take it."""
    exact = weight.packed(BITS.get(dtype, 0)) if isinstance(weight, FewBits) else None
    if exact is not None:
        return exact
    weight = np.asarray(weight)
    if dtype == "float32":
        return np.ascontiguousarray(weight, np.float32)
    wide = weight.astype(np.float32) if weight.dtype == np.float64 else weight
    return dlprim.quantize_weights(np.ascontiguousarray(wide), BITS[dtype])


class _Norm(NamedTuple):
    weight: Array
    bias: Array | None
    eps: float


class _Layer:
    """The parts of a layer, None for those that its family has not.

    Attributes
    ----------
    rope : int or None
        Which of the model's.
    """

    rope: int | None

    def __init__(self, weights: Source, place: int, dtype: str) -> None:
        c = weights.config
        for part in PRODUCTS:
            setattr(self, part, _Product(weights.product(place, part), dtype))
        for part in NORMS:
            has_norm = norm_size(c, part) > 0
            setattr(self, part, _Norm(*weights.norm(place, part), c.eps) if has_norm else None)


class LanguageModel:
    """A decoder of text; `load` makes it.

    ``model(tokens, cache)`` reads tokens and gives logits of those that follow.

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
        self._table = weights.table()
        self._places = weights.places() if c.has_places else None
        self._layers = [_Layer(weights, place, dtype) for place in range(c.layers)]
        self._ropes = [*{it for it in c.ropes if it is not None}]
        for layer, rope in zip(self._layers, c.ropes, strict=True):
            layer.rope = None if rope is None else self._ropes.index(rope)
        self._scores: dict[str, Any] = {"scale": c.scale, "softcap": c.softcap}
        self._norm = _Norm(*weights.norm(None, "norm"), c.eps)
        head = Pair(self._table, None) if c.is_tied else weights.head()
        self._head = _Product(head, dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of weights that each step reads."""
        products = (getattr(layer, it) for layer in self._layers for it in PRODUCTS)
        return self._head.nbytes + sum(int(it.nbytes) for it in products)

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
            A number is no integer or below 1, when_full is another token, or the model has rows of
            places, and fewer than asked for.
        """
        return Cache(
            self.config,
            capacity,
            sequences,
            when_full,
            np.dtype(np.float32 if self.dtype == "float32" else bfloat16_dtype()),
        )

    def __call__(self, tokens: Any, cache: Cache | None = None, *, last: bool = False) -> Array:
        """Logits, float32, of what follows each token.

        Parameters
        ----------
        tokens : integers (T,) or (N, T)
            One sequence, or as many as the cache has.
        cache : Cache, optional
            What was read before; the tokens are added. Without one they are the beginning.
        last : bool
            Whether to compute logits of the last token alone, (V,) or (N, V).

        Returns
        -------
        ndarray of float32, (T, V) or (N, T, V)

        Raises
        ------
        TypeError, ValueError
            Tokens are no integers, none, or outside of the vocabulary; or the cache is full, or of
            other sequences. It is as it was then.
        """
        ids, flag_last = self.checked(tokens), flag("last", last)
        N, T = ids.shape
        room = self.cache(T, sequences=N) if cache is None else cache
        if not isinstance(room, Cache):
            raise TypeError(f"cache is of type {type(room).__name__}, expected what cache() makes")
        if len(room) != N:
            raise ValueError(f"cache is of {len(room)} sequences, expected the {N} of tokens")
        rows = self._read(ids, room)
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
        """Continues one text or several, token by token.

        Parameters
        ----------
        prompt : str, integers, or a list of several of one kind
        max_new : int
            The most tokens that are written for each.
        stop : str, int, or a list of some
            What ends a text besides the tokens that the model ends texts with; it is not shown.
        cache : Cache, optional
            What was read before of each text. Without one there is room for all that is written.
        **sampling
            As for `Sampling`: temperature, top_k, top_p, min_p, repetition_penalty, seed. By
            default each token is the most probable.

        Returns
        -------
        iterator
            Of pieces of text, or of tokens where the prompt is integers; of several texts, pairs of
            a place in the list and a piece. Who stops iterating stops the model.

        Raises
        ------
        TypeError, ValueError
            An argument is of another kind; a prompt is empty, holds tokens outside of the
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
        ids = self.tokenizer.conversation(messages)
        asked = Asked(how.pop("max_new", 256), how.pop("stop", ()), how.pop("cache", None), how)
        return begun(self, [ids], True, True, asked)

    def checked(self, tokens: Any) -> Array:
        """Tokens as (N, T), checked."""
        found = np.asarray(tokens)
        if found.dtype.kind not in "iu" or found.ndim not in (1, 2):
            raise TypeError(
                f"tokens are {found.dtype} of shape {found.shape}, expected integers (T,) or (N, T)"
            )
        if not found.size:
            raise ValueError(f"tokens have shape {found.shape}, expected one token at least")
        low, high = int(found.min()), int(found.max())
        if low < 0 or high >= self.config.V:
            raise ValueError(
                f"tokens hold {low if low < 0 else high}, expected tokens from 0 to "
                f"{self.config.V - 1}, which is the vocabulary of the model"
            )
        return found.reshape(-1, found.shape[-1]).astype(np.int64)

    def _read(self, tokens: Array, cache: Cache) -> Array:
        """What the last layer gives for each token, normalised."""
        c = self.config
        step = cache.step(tokens.shape[1])
        x = self._table[tokens].astype(np.float32) * np.float32(c.embedding_scale)
        if self._places is not None:
            x += self._places[step.places]
        rows: tuple[Any, Any] = x, None
        length = int(step.places.max()) + 1
        turns = [turn_of(it, step.places, length) for it in self._ropes]
        for place, layer in enumerate(self._layers):
            attend = partial(step.attend, place, window=c.windows[place], **self._scores)
            turn = None if layer.rope is None else turns[layer.rope]
            rows = block(layer, c, rows, turn, attend)
        cache.filled_by(tokens.shape[1])
        found: Array = last_norm(self._norm, rows)
        return found

    def _logits(self, rows: Array) -> Array:
        found: Array = capped(self._head(rows), self.config.final_softcap)
        return found
