"""Models in one file of the format GGUF, as if they were folders of transformers.

The package gguf reads the file and knows its types of few bits. Weights stay as they are there
until somebody asks for floats, as two of these types are grids that packed weights hold exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.files import opened
from dlprim.llm.checkpoint import Checkpoint, Stored
from dlprim.llm.families import FAMILIES, Family
from dlprim.llm.packages import package
from dlprim.model_file import WRONG, ModelFileError

Array = npt.NDArray[Any]

_MOST_ENTRIES = 1 << 23  # numbers and texts in front of the weights
_FAMILIES = {it: it for it in FAMILIES} | {"gemma3": "gemma3_text"}
_PERMUTED = ("llama", "smollm3")  # whose pairs of turned elements lie side by side
_PARTS = {
    "before_attention": ("attn_norm",),
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "q_norm": ("attn_q_norm",),
    "k_norm": ("attn_k_norm",),
    "out": ("attn_output",),
    "after_attention": ("post_attention_norm",),
    "before_mlp": ("ffn_norm",),
    "up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
    "after_mlp": ("post_ffw_norm",),
}
_FUSED = {"qkv": ("attn_qkv",), "up": ("ffn_up",)}
_TABLES = ("token_embd", "position_embd")
_OUTSIDE = {"tokens": _TABLES[:1], "places": _TABLES[1:], "norm": ("output_norm",)}
_SIZES = ("num_attention_heads", "hidden_size")
# Whose scores are scaled by another number; files do not say it.
_LARGEST = (("gemma2", 46), ("gemma3_text", 62))
_EPSILONS = (".attention.layer_norm_rms_epsilon", ".attention.layer_norm_epsilon")
_ENDS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
_SCALING = {
    "rope_type": "type",
    "factor": "factor",
    "original_max_position_embeddings": "original_context_length",
    "attention_factor": "attn_factor",
}
# By what config.json of a family calls them.
_ENTRIES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
}


class FewBits:
    """Rows of a file in one of its types, (K, bytes), which are floats (K, C)."""

    dtype = np.dtype(np.float32)

    def __init__(self, rows: Array, kind: Any) -> None:
        self.rows, self.kind = rows, kind
        block, octets = package("gguf", "reading weights").GGML_QUANT_SIZES[kind]
        self.shape = (rows.shape[0], rows.shape[1] // octets * block)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found: Array = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)

    def __getitem__(self, places: Any) -> Array:
        rows = self.rows[places]
        flat = rows.reshape(-1, rows.shape[-1])
        quants = package("gguf.quants", "reading weights")
        found: Array = quants.dequantize(np.ascontiguousarray(flat), self.kind)
        return found.reshape(*rows.shape[:-1], self.shape[1])

    def packed(self, bits: int) -> Any:
        """Exactly these weights for `dlprim.linear`; None where so many bits do not hold them."""
        if (self.kind.name, bits) not in (("Q4_0", 4), ("Q8_0", 8)):
            return None
        K, C = self.shape
        blocks = self.rows.reshape(K, C // 32, -1)
        scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
        octets = blocks[..., 2:]
        if bits == 8:
            q = octets ^ np.uint8(128)  # -128 to 127 as 0 to 255
        else:
            q = np.concatenate([octets & 15, octets >> 4], axis=-1)
        made = dlprim.QuantizedWeights.from_integers
        return made(q.reshape(K, C), np.ascontiguousarray(scales), bits=bits)


def joined(pieces: list[Any]) -> Any:
    """Matrices below each other, in few bits where all of them are of one type."""
    if len(pieces) == 1:
        return pieces[0]
    kinds = {it.kind if isinstance(it, FewBits) else None for it in pieces}
    if len(kinds) == 1 and None not in kinds:
        return FewBits(np.concatenate([it.rows for it in pieces]), pieces[0].kind)
    return np.concatenate([np.asarray(it) for it in pieces])


def gguf_fields(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """What a file says of its model, by name, and its arrays as the package gguf describes them.

    Raises
    ------
    ModelFileError
        The file is damaged, or none of GGUF.
    """
    gguf = package("gguf", "reading a file of GGUF")
    with opened(path):
        pass  # a regular file, or an OSError that names it

    class Reader(gguf.GGUFReader):  # type: ignore[misc, name-defined]
        """Refuses numbers behind the end of the file, of which there may be any count."""

        entries = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, *others: Any, **named: Any) -> Any:
            self.entries += 1
            end = int(offset) + np.dtype(dtype).itemsize * int(count)
            if end > len(self.data) or self.entries > _MOST_ENTRIES:
                raise ValueError("it ends too early, or describes itself at too great a length")
            return super()._get(offset, dtype, count, *others, **named)

    try:
        reader = Reader(path)
        fields = {name: it.contents() for name, it in reader.fields.items()}
    except (*WRONG, OSError, OverflowError) as error:
        raise ModelFileError(f"{path} is damaged, or no file of GGUF: {error!s:.200}") from None
    return fields, reader.tensors


def gguf_checkpoint(path: Path, fields: Mapping[str, Any], tensors: list[Any]) -> Checkpoint:
    """The model of a file.

    Raises
    ------
    ModelFileError
        Its family is not known.
    """
    name = _FAMILIES.get(str(fields.get("general.architecture")))
    if name is None:
        raise ModelFileError(
            f"general.architecture of {path} is {fields.get('general.architecture')!r:.60}, "
            f"expected one of {', '.join(sorted(_FAMILIES))}"
        )
    known = {it.name: it for it in tensors}
    entries = _entries(name, fields, known)
    family, arrays = FAMILIES[name], {}
    modules = _modules(family)
    prefix = "transformer." if name == "gpt2" else "model."
    for given, tensor in known.items():
        stem, _, suffix = given.rpartition(".")
        head, _, rest = stem.partition(".")
        layer, _, part = rest.partition(".")
        if head == "blk" and layer.isdecimal() and part in modules:
            own = prefix + family.layers.format(int(layer)) + modules[part]
        elif stem in modules:
            own = prefix + modules[stem] if stem != "output" else "lm_head"
        else:
            continue
        rows = _rows(name, part, entries)
        arrays[f"{own}.{suffix}"] = _stored(tensor, rows, family, suffix == "weight")
    return Checkpoint(str(path), entries, arrays)


def _modules(family: Family) -> dict[str, str]:
    """By the name of a tensor: that of the module of its family that it belongs to."""
    found = {"output": "lm_head"}
    for part, stems in {**_OUTSIDE, **_PARTS}.items():
        own = family.named(part)
        stems = stems if len(own) == len(stems) else _FUSED.get(part, ())
        found |= dict(zip(stems, own, strict=False))
    return found


def _rows(name: str, part: str, entries: Mapping[str, Any]) -> Array | None:
    """Where rows of queries and keys lie whose pairs of turned elements are neighbours."""
    if name not in _PERMUTED or part not in ("attn_q", "attn_k"):
        return None
    heads: Any = entries.get("num_attention_heads" if part == "attn_q" else "num_key_value_heads")
    D: Any = entries.get("head_dim")
    if not all(isinstance(it, int) and 0 < it < 1 << 16 for it in (heads, D)):
        return None  # which the configuration is refused for
    return np.arange(heads * D).reshape(heads, D // 2, 2).swapaxes(1, 2).reshape(-1)


def _stored(tensor: Any, rows: Array | None, family: Family, is_weight: bool) -> Stored:
    shape = tuple(int(it) for it in reversed(tensor.shape))
    is_product = len(shape) == 2 and is_weight
    is_turned = is_product and family.is_transposed and not tensor.name.startswith(tuple(_TABLES))

    def read() -> Any:
        data = tensor.data
        if rows is not None:
            if len(rows) != len(data):
                raise ModelFileError(f"{tensor.name} has {len(data)} rows, expected {len(rows)}")
            data = data[rows]
        if tensor.tensor_type.name == "BF16":
            data = data.view(bfloat16_dtype())
        found = FewBits(data, tensor.tensor_type) if data.dtype == np.uint8 else data
        if is_turned:
            return np.asarray(found).T
        if is_product:
            return found
        return np.asarray(found) - np.float32(family.shift if is_weight else 0)

    return Stored(shape[::-1] if is_turned else shape, tensor.tensor_type.name, read)


def _entries(name: str, fields: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json would say."""
    its = fields["general.architecture"]
    found = {key: fields.get(f"{its}.{it}") for key, it in _ENTRIES.items()}
    table = known.get("token_embd.weight")
    heads, C = (it if isinstance(it := found[key], int) and it > 0 else 1 for key in _SIZES)
    if found["head_dim"] is None:
        found["head_dim"] = C // heads
    found |= {
        "model_type": name,
        "vocab_size": None if table is None else int(table.shape[-1]),
        "num_key_value_heads": found["num_key_value_heads"] or heads,
        "rms_norm_eps": fields.get(
            f"{its}.attention.layer_norm_rms_epsilon",
            fields.get(f"{its}.attention.layer_norm_epsilon"),
        ),
        "tie_word_embeddings": "output.weight" not in known,
        "attention_bias": "blk.0.attn_output.bias" in known,
        "eos_token_id": [
            fields[it]
            for it in (f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot"))
            if it in fields
        ],
        "rope_parameters": _rope(its, fields, known, found),
    }
    if (name, found["num_hidden_layers"]) in _LARGEST:
        found["query_pre_attn_scalar"] = C // heads
    elif name.startswith("gemma"):
        found["query_pre_attn_scalar"] = found["head_dim"]
    renamed = FAMILIES[name].keys
    return {renamed.get(key, key): it for key, it in found.items() if it is not None}


def _rope(
    its: str, fields: Mapping[str, Any], known: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    """The entry of that name: frequencies may be divided by numbers that the file has."""
    told = {key: fields.get(f"{its}.rope.scaling.{it}") for key, it in _SCALING.items()}
    made = {key: it for key, it in told.items() if it is not None and it != "none"}
    D, size = found["head_dim"], fields.get(f"{its}.rope.dimension_count")
    if isinstance(D, int) and isinstance(size, int) and D > 0:
        made["partial_rotary_factor"] = size / D
    for short, long in (("rope_freqs", "rope_freqs"), ("rope_factors_short", "rope_factors_long")):
        pair = known.get(f"{short}.weight"), known.get(f"{long}.weight")
        if None not in pair:
            lists = (np.asarray(it.data, np.float64).reshape(-1).tolist() for it in pair if it)
            made |= dict(zip(("short_factor", "long_factor"), lists, strict=True))
            made["rope_type"] = "longrope"
            made.setdefault("attention_factor", 1.0)
    made.setdefault("rope_type", "default")
    return made


def nearest_dtype(tensors: list[Any]) -> str:
    """Of `load`: the one that is nearest to what most weights of a file have."""
    sizes: dict[str, int] = {}
    for it in tensors:
        sizes[it.tensor_type.name] = sizes.get(it.tensor_type.name, 0) + int(it.n_elements)
    most = max(sizes, key=lambda it: sizes[it], default="F32")
    if most in ("F32", "F64"):
        return "float32"
    if most in ("F16", "BF16"):
        return "bfloat16"
    digits = [it for it in most if it.isdecimal()]
    return "int4" if digits and int(digits[0]) <= 4 else "int8"
