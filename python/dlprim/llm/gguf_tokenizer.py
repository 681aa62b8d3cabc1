"""The tokenizer of a GGUF file, where the package tokenizers can express it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlprim.llm.packages import package
from dlprim.llm.tokenizer import Tokenizer
from dlprim.model_file import ModelFileError

_KEY = "tokenizer.ggml."
_CONTROL, _OWN = 3, 4  # kinds of tokens that no merge makes
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
# How texts are cut before merges, by what files call it; None for GPT-2's way.
_DIGITS = r"\p{N}"
_CUTS: dict[str, str | None] = {
    **dict.fromkeys(("default", "gpt-2", "olmo", "phi-2")),
    **dict.fromkeys(("llama-bpe", "dbrx", "smaug-bpe"), rf"{_LETTERS}|\p{{N}}{{1,3}}|{_REST}"),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen"), rf"{_LETTERS}|\p{{N}}|{_REST}"),
    "smollm": _DIGITS,
}


def gguf_tokenizer(fields: Mapping[str, Any]) -> Tokenizer | None:
    """What the fields of a file describe; None where that is another kind.

    Raises
    ------
    ModelFileError
        Lists of tokens, merges and scores do not fit each other.
    """
    kind, tokens = fields.get(_KEY + "model"), fields.get(_KEY + "tokens")
    cut = fields.get(_KEY + "pre", "default")
    if not isinstance(tokens, list) or kind not in ("gpt2", "llama"):
        return None
    if kind == "gpt2" and (not isinstance(cut, str) or cut not in _CUTS):
        return None
    tokenizers = package("tokenizers", "reading texts")
    try:
        made = (_by_bytes if kind == "gpt2" else _by_scores)(tokenizers, fields)
        return _finished(tokenizers, made, fields, tokens)
    except Exception as error:  # tokenizers raises no other
        raise ModelFileError(f"the file describes no tokenizer: {error!s:.200}") from None


def _numbered(fields: Mapping[str, Any]) -> dict[str, int]:
    return {it: place for place, it in enumerate(fields[_KEY + "tokens"])}


def _by_bytes(tokenizers: Any, fields: Mapping[str, Any]) -> Any:
    """Merges of bytes, as GPT-2's."""
    cut = _CUTS[fields.get(_KEY + "pre", "default")]
    pre, decoders = tokenizers.pre_tokenizers, tokenizers.decoders
    merges = [tuple(it.split(" ", 1)) for it in fields.get(_KEY + "merges", [])]
    is_whole = cut not in (None, _DIGITS)  # whether what is a token needs no merges
    bpe = tokenizers.models.BPE(_numbered(fields), merges, ignore_merges=is_whole)
    made = tokenizers.Tokenizer(bpe)
    if cut is None:
        made.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    elif cut == _DIGITS:
        digits = pre.Digits(individual_digits=True)
        made.pre_tokenizer = pre.Sequence([digits, pre.ByteLevel(add_prefix_space=False)])
    else:
        split = pre.Split(tokenizers.Regex(cut), "isolated")
        level = pre.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = pre.Sequence([split, level])
    made.decoder = decoders.ByteLevel()
    return made


def _by_scores(tokenizers: Any, fields: Mapping[str, Any]) -> Any:
    """Merges in the order of scores, as SentencePiece has them; bytes for what is no token."""
    known, scores = _numbered(fields), fields[_KEY + "scores"]
    merges = []
    for token, place in known.items():
        for cut in range(1, len(token)):
            one, two = token[:cut], token[cut:]
            if one in known and two in known:
                merges.append((-scores[place], known[one], known[two], one, two))
    pairs = [(one, two) for *_, one, two in sorted(merges)]
    unknown = fields[_KEY + "tokens"][fields.get(_KEY + "unknown_token_id", 0)]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(known, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    steps = [normalizers.Replace(" ", "\u2581")]
    ends = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if fields.get(_KEY + "add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("\u2581"))
        ends.append(decoders.Strip(" ", 1, 0))
    made.normalizer, made.decoder = normalizers.Sequence(steps), decoders.Sequence(ends)
    return made


def _finished(
    tokenizers: Any, made: Any, fields: Mapping[str, Any], tokens: list[str]
) -> Tokenizer:
    """With tokens that stand for themselves, and those that begin and end a text."""
    kinds = fields.get(_KEY + "token_type") or []
    pairs = list(zip(tokens, kinds, strict=False))
    made.add_special_tokens([it for it, kind in pairs if kind == _CONTROL])
    made.add_tokens(
        [tokenizers.AddedToken(it, normalized=False) for it, kind in pairs if kind == _OWN]
    )
    special = {
        f"{name}_token": tokens[fields[f"{_KEY}{name}_token_id"]]
        for name in ("bos", "eos")
        if f"{_KEY}{name}_token_id" in fields
    }
    is_by_scores = fields[_KEY + "model"] == "llama"
    if fields.get(_KEY + "add_bos_token", is_by_scores) and "bos_token" in special:
        first = special["bos_token"]
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=[first, "$A"], special_tokens=[(first, fields[_KEY + "bos_token_id"])]
        )
    template = fields.get("tokenizer.chat_template")
    return Tokenizer(made, template if isinstance(template, str) else None, special)
