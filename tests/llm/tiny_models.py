"""Tiny models of every family, with random weights, as folders that transformers writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from drawing import RNG

V = 131
_TINY = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_WIDE = _TINY | {"head_dim": 24}


def _rope(kind: str, **numbers: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **numbers}}


_TRAINED = {"original_max_position_embeddings": 32}
_LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **_TRAINED}
_FACTORS = {
    "short_factor": [1.0, 1.2, 1.3, 1.5],
    "long_factor": [1.0, 2.0, 4.0, 6.0],
    "partial_rotary_factor": 0.5,
}
_GPT2 = {"vocab_size": V, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64}
_WINDOW = {"sliding_window": 6}


class Tiny(NamedTuple):
    """What transformers calls a family, and a configuration of it."""

    family: str
    entries: dict[str, Any]


MODELS = {
    "llama": Tiny("Llama", _WIDE | {"attention_bias": True, "mlp_bias": True}),
    "llama-3": Tiny("Llama", _TINY | _rope("llama3", **_LLAMA3) | {"tie_word_embeddings": True}),
    "llama-linear": Tiny("Llama", _TINY | _rope("linear", factor=4.0)),
    "llama-dynamic": Tiny(
        "Llama", _TINY | _rope("dynamic", factor=4.0) | {"max_position_embeddings": 16}
    ),
    "qwen2": Tiny("Qwen2", _TINY | _WINDOW | {"use_sliding_window": True, "max_window_layers": 2}),
    "qwen2.5-yarn": Tiny("Qwen2", _TINY | _rope("yarn", factor=4.0, **_TRAINED)),
    "qwen3": Tiny("Qwen3", _WIDE),
    "mistral": Tiny("Mistral", _WIDE | _WINDOW),
    "gemma": Tiny("Gemma", _WIDE),
    "gemma2": Tiny("Gemma2", _WIDE | _WINDOW | {"query_pre_attn_scalar": 20}),
    "gemma3": Tiny(
        "Gemma3Text", _WIDE | _WINDOW | {"query_pre_attn_scalar": 20, "num_hidden_layers": 7}
    ),
    "phi3": Tiny("Phi3", _TINY | _WINDOW),
    "phi3-longrope": Tiny(
        "Phi3",
        _TINY
        | _rope("longrope", **_FACTORS, original_max_position_embeddings=12)
        | {"original_max_position_embeddings": 12},
    ),
    "olmo2": Tiny("Olmo2", _TINY),
    "smollm3": Tiny("SmolLM3", _TINY | {"no_rope_layers": [1, 0, 1, 0]}),
    "gpt2": Tiny("GPT2", _GPT2 | {"bos_token_id": 1, "eos_token_id": 2}),
}
_CLASSES = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}


def transformers_model(name: str) -> Any:
    """One of `MODELS` in PyTorch, whose weights `drawing.RNG` draws."""
    reason = "the models are compared with those of transformers: pip install transformers torch"
    transformers = pytest.importorskip("transformers", reason=reason)
    torch = pytest.importorskip("torch", reason=reason)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    family, entries = MODELS[name]
    made = getattr(transformers, f"{family}Config")(**entries)
    model = getattr(transformers, _CLASSES.get(family, f"{family}ForCausalLM"))(made).eval()
    with torch.no_grad():
        for it in model.parameters():
            drawn = 0.15 * RNG.standard_normal(tuple(it.shape)).astype(np.float32)
            it.copy_(torch.from_numpy(drawn + (it.ndim == 1)))
    return model


def llama_folder(folder: Path, **others: Any) -> dict[str, np.ndarray]:
    """A Llama that no transformers is needed for; gives its weights."""
    from dlprim import llm, nn

    nn.seed(int(RNG.integers(1 << 31)))
    model = llm.new({"model_type": "llama", **_TINY, **others})
    for it in model.parameters():
        it.value = 0.15 * RNG.standard_normal(it.shape) + (len(it.shape) == 1)
    model.save(folder)
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")
