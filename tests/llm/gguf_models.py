"""Files of GGUF of tiny models, by the rules that llama.cpp's converters have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Encoded = tuple[np.ndarray, Any]

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}


def gguf_name(name: str, has_four: bool) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{suffix}"
    layer, _, part = stem.partition("layers.")[2].partition(".") or ("", "", "")
    if not layer:
        layer, _, part = stem.partition("transformer.h.")[2].partition(".")
    names = {
        **_NAMES,
        "post_attention_layernorm": "post_attention_norm" if has_four else "ffn_norm",
    }
    return f"blk.{layer}.{names[part]}.{suffix}"


def write_gguf(
    path: Path,
    arch: str,
    entries: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    encoded: Callable[[np.ndarray], Encoded] | None = None,
    more: Callable[[Any], None] = lambda writer: None,
) -> None:
    """A model of arrays by transformers' names; ``encoded`` gives bytes and a type of a matrix."""
    import gguf

    writer = gguf.GGUFWriter(path, arch)
    heads, kv_heads = entries["num_attention_heads"], entries.get("num_key_value_heads")
    writer.add_context_length(entries["max_position_embeddings"])
    writer.add_embedding_length(entries["hidden_size"])
    writer.add_feed_forward_length(entries["intermediate_size"])
    writer.add_block_count(entries["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads or heads)
    D = entries.get("head_dim", entries["hidden_size"] // heads)
    writer.add_key_length(D)
    eps = writer.add_layer_norm_eps if arch == "gpt2" else writer.add_layer_norm_rms_eps
    eps(entries.get("rms_norm_eps", 1e-5 if arch == "gpt2" else 1e-6))
    if entries.get("sliding_window"):
        writer.add_sliding_window(entries["sliding_window"])
    more(writer)
    has_four = any("pre_feedforward" in it for it in arrays) or arch == "olmo2"
    for name, array in arrays.items():
        count = heads if "q_proj" in name else kv_heads if "k_proj" in name else 0
        if arch == "llama" and count:
            halves = array.reshape(count, 2, D // 2, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        if arch.startswith("gemma") and "norm" in name:
            array = array + 1
        if arch == "gpt2" and array.ndim == 2 and ".h." in name:
            array = array.T
        own = gguf_name(name, has_four)
        if encoded is None or array.ndim == 1:
            writer.add_tensor(own, np.ascontiguousarray(array, np.float32))
        else:
            octets, kind = encoded(array)
            writer.add_tensor(own, octets, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
