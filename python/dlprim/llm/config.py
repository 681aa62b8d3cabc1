"""What a decoder of text is, as numbers: the same for every family, whatever its files call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlprim.arguments.scalars import flag, integer, real
from dlprim.model_file import ModelFileError

MOST = 1 << 24  # channels, tokens and places: a file may say anything
_MOST_LAYERS = 4096


@dataclass(frozen=True)
class Rope:
    """How queries and keys are turned by their places.

    Attributes
    ----------
    base : float
        Of the wave lengths.
    size : int
        Elements of a head that are turned, the first ones.
    kind : str
        "default", "linear", "llama3", "yarn", "longrope" or "dynamic".
    length : int
        Places that the model was trained for.
    numbers : tuple
        Pairs of a name and a number, or a tuple of some: what else the kind takes.
    """

    base: float
    size: int
    kind: str = "default"
    length: int = 0
    numbers: tuple[tuple[str, Any], ...] = ()

    def length_of(self, length: int) -> int:
        """What angles depend on of the length of a text: nothing, or all of it where it is long."""
        depends = self.kind in ("dynamic", "longrope") and length > self.length
        return int(length) if depends else 0


@dataclass(frozen=True)
class Config:
    """The architecture of a model.

    Attributes
    ----------
    family : str
        As ``model_type`` of config.json.
    V, C, hidden : int
        Tokens, channels, and channels inside of the feed-forward part.
    heads, kv_heads, D : int
        Heads of queries, those of keys and values, and elements of a head.
    length : int
        Places that the model was trained for.
    norm : "rms" or "layer"
    norms : tuple of str
        Which there are of "before_attention", "after_attention", "before_mlp", "after_mlp".
    head_norms : None, "each" or "all"
        Queries and keys are normalised head by head, or all heads of a place as one.
    activation : str
        Of the feed-forward part, as an argument of `dlprim.linear`.
    gated : bool
        Whether a second product is multiplied with the activated one.
    biases : frozenset of str
        Which of "qkv", "out", "up", "down" and "head" have one.
    ropes, windows : tuple
        For each layer the `Rope` or None, and how many places back a query sees, or None.
    scale, softcap, final_softcap, embedding_scale : float
        Of scores; caps of scores and logits, 0 for none; of rows of the table.
    has_places : bool
        Whether position embeddings are added to those of tokens.
    is_tied : bool
        Whether logits are products with the table of token embeddings.
    stops : tuple of int
        Tokens that end a text.
    """

    family: str
    V: int
    C: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    D: int
    length: int
    eps: float
    ropes: tuple[Rope | None, ...]
    windows: tuple[int | None, ...]
    scale: float
    norm: str = "rms"
    norms: tuple[str, ...] = ("before_attention", "before_mlp")
    head_norms: str | None = None
    activation: str = "swish"
    gated: bool = True
    biases: frozenset[str] = field(default_factory=frozenset)
    softcap: float = 0.0
    final_softcap: float = 0.0
    embedding_scale: float = 1.0
    has_places: bool = False
    is_tied: bool = False
    stops: tuple[int, ...] = ()


class Fields:
    """The entries of a config.json, checked when they are asked for.

    Parameters
    ----------
    entries : mapping
    names : mapping
        What an entry is called here, for those that are called otherwise than in most families.
    """

    def __init__(self, entries: Mapping[str, Any], names: Mapping[str, str] | None = None) -> None:
        self._entries, self._names = entries, names or {}

    def get(self, name: str) -> Any:
        return self._entries.get(self._names.get(name, name))

    def inside(self, name: str) -> Fields:
        """An entry that holds others; empty where there is none."""
        found = self.get(name)
        if found is not None and not isinstance(found, dict):
            raise ModelFileError(f"{name} of the configuration is {found!r:.60}, expected a dict")
        return Fields(found or {})

    def number(self, name: str, default: float | None = None, least: float = 0.0) -> float:
        return float(self._checked(name, default, lambda it: real(name, it, least)))

    def count(self, name: str, default: int | None = None, most: int = MOST) -> int:
        return int(self._checked(name, default, lambda it: integer(name, it, 1, most + 1)))

    def layers(self) -> int:
        return self.count("num_hidden_layers", most=_MOST_LAYERS)

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._checked(name, default, lambda it: flag(name, it)))

    def listed(self, name: str, length: int) -> list[Any] | None:
        """A list of so many entries, or None."""
        found = self.get(name)
        if found is not None and (not isinstance(found, list) or len(found) != length):
            raise ModelFileError(
                f"{name} of the configuration is {found!r:.60}, expected a list of {length} entries"
            )
        return found

    def _checked(self, name: str, default: Any, check: Any) -> Any:
        found = self.get(name)
        found = default if found is None else found
        if found is None:
            raise ModelFileError(f"the configuration has no {self._names.get(name, name)}")
        try:
            return check(found)
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"of the configuration, {error}") from None
