"""The families of models, a row each: what sets one apart, and what its files call the weights.

Sources: arXiv 2302.13971 (Llama), 2407.21783 (Llama 3), 2309.16609 (Qwen), 2310.06825 (Mistral),
2403.08295, 2408.00118 and 2503.19786 (Gemma), 2404.14219 (Phi-3), 2501.00656 (OLMo 2), and Radford
et al. 2019, "Language models are unsupervised multitask learners" (GPT-2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlprim.llm.config import Config, Fields, Rope
from dlprim.llm.rotary import rope_of
from dlprim.model_file import ModelFileError

_ACTIVATIONS = {
    "silu": "swish",
    "swish": "swish",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# What a model that also sees images keeps its language model under.
_INSIDE = {"gemma3": ("gemma3_text", "text_config")}

# By parts of a decoder: the names of weights that are one product here, rows below rows.
_NAMES: dict[str, tuple[str, ...]] = {
    "tokens": ("embed_tokens",),
    "norm": ("norm",),
    "before_attention": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "q_norm": ("self_attn.q_norm",),
    "k_norm": ("self_attn.k_norm",),
    "out": ("self_attn.o_proj",),
    "before_mlp": ("post_attention_layernorm",),
    "up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
_AROUND = {
    "after_attention": ("post_attention_layernorm",),
    "before_mlp": ("pre_feedforward_layernorm",),
    "after_mlp": ("post_feedforward_layernorm",),
}
_GPT2_NAMES = {
    "tokens": ("wte",),
    "places": ("wpe",),
    "norm": ("ln_f",),
    "before_attention": ("ln_1",),
    "qkv": ("attn.c_attn",),
    "out": ("attn.c_proj",),
    "before_mlp": ("ln_2",),
    "up": ("mlp.c_fc",),
    "down": ("mlp.c_proj",),
}
_GPT2_KEYS = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation_function",
}


@dataclass(frozen=True)
class Family:
    """A row of the table.

    Attributes
    ----------
    names : mapping
        What differs from `_NAMES`.
    layers : str
        The prefix of a layer.
    keys : mapping
        What config.json calls its entries where it is not what Llama calls them.
    defaults : mapping
        Entries that a config.json may leave out.
    biases : mapping
        Parts that have a bias; by an entry that says so, or always where that is "".
    fixed : mapping
        Fields of `Config` that are the same for all models of a family.
    is_local : callable
        ``is_local(fields, layer)`` says whether a layer sees the nearest places alone.
    shift : float
        Added to the weights of norms.
    is_transposed : bool
        Whether weights of products lie with their inputs as rows.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    layers: str = "layers.{}."
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    biases: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    is_local: Callable[[Fields, int], bool] = lambda fields, layer: False
    shift: float = 0.0
    is_transposed: bool = False

    def named(self, part: str) -> tuple[str, ...]:
        """The names of the modules of a part, without those of what they are in."""
        return self.names.get(part) or _NAMES.get(part, ())


def _in_last_layers(fields: Fields, layer: int) -> bool:
    return fields.flag("use_sliding_window", False) and layer >= fields.count("max_window_layers")


_ATTENTION = {"qkv": "attention_bias", "out": "attention_bias"}
_LLAMA = {**_ATTENTION, "up": "mlp_bias", "down": "mlp_bias"}
_POST = ("before_attention", "after_attention", "before_mlp", "after_mlp")
_GEMMA = {"head_dim": 256, "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"}
_GEMMA2 = _GEMMA | {"query_pre_attn_scalar": 256, "sliding_window": 4096}
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}

FAMILIES = {
    "llama": Family(biases=_LLAMA),
    "smollm3": Family(biases=_LLAMA, defaults={"tie_word_embeddings": True}),
    "mistral": Family(is_local=lambda fields, layer: True),
    "qwen2": Family(
        biases={"qkv": ""}, defaults={"max_window_layers": 28}, is_local=_in_last_layers
    ),
    "qwen3": Family(
        biases=_ATTENTION,
        defaults={"max_window_layers": 28, "head_dim": 128},
        fixed={"head_norms": "each"},
        is_local=_in_last_layers,
    ),
    "gemma": Family(biases=_ATTENTION, defaults=_GEMMA, shift=1.0),
    "gemma2": Family(
        names=_AROUND,
        biases=_ATTENTION,
        defaults=_GEMMA2 | _CAPS,
        fixed={"norms": _POST},
        is_local=lambda fields, layer: layer % 2 == 0,
        shift=1.0,
    ),
    "gemma3_text": Family(
        names=_AROUND,
        biases=_ATTENTION,
        defaults=_GEMMA2 | {"sliding_window_pattern": 6, "rope_local_base_freq": 10000.0},
        fixed={"norms": _POST, "head_norms": "each"},
        is_local=lambda fields, layer: (layer + 1) % fields.count("sliding_window_pattern") > 0,
        shift=1.0,
    ),
    "phi3": Family(
        names={"qkv": ("self_attn.qkv_proj",), "up": ("mlp.gate_up_proj",)},
        is_local=lambda fields, layer: True,
    ),
    "olmo2": Family(
        names=_AROUND,
        biases=_ATTENTION,
        defaults={"rms_norm_eps": 1e-5},
        fixed={"norms": ("after_attention", "after_mlp"), "head_norms": "all"},
    ),
    "gpt2": Family(
        names=_GPT2_NAMES,
        layers="h.{}.",
        keys=_GPT2_KEYS,
        defaults={
            "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu_new",
            "tie_word_embeddings": True,
        },
        biases={"qkv": "", "out": "", "up": "", "down": ""},
        fixed={"norm": "layer", "gated": False, "has_places": True},
        is_transposed=True,
    ),
}


def config_of(entries: Mapping[str, Any]) -> Config:
    """The architecture that a config.json describes.

    Raises
    ------
    ModelFileError
        Its family is not in the table, an entry is missing, or is none of what it may be.
    """
    name = entries.get("model_type")
    if isinstance(name, str) and name in _INSIDE:
        name, place = _INSIDE[name]
        inside = entries.get(place)
        if not isinstance(inside, dict):
            raise ModelFileError(f"the configuration has no {place}")
        entries = {"tie_word_embeddings": True} | inside
    if not isinstance(name, str) or name not in FAMILIES:
        raise ModelFileError(
            f"model_type of the configuration is {name!r:.60}, expected one of "
            f"{', '.join(sorted([*FAMILIES, *_INSIDE]))}"
        )
    family = FAMILIES[name]
    return _config(name, family, Fields({**family.defaults, **entries}, family.keys))


def _config(name: str, family: Family, fields: Fields) -> Config:
    C, heads, layers = (
        fields.count("hidden_size"),
        fields.count("num_attention_heads"),
        fields.layers(),
    )
    D = fields.count("head_dim", max(1, C // heads))
    kv_heads = fields.count("num_key_value_heads", heads)
    if heads % kv_heads:
        raise ModelFileError(
            f"num_key_value_heads of the configuration is {kv_heads}, expected a divisor of {heads}"
        )
    length = fields.count("max_position_embeddings")
    windows = _windows(family, fields, layers)
    is_gemma = family.shift != 0
    ropes = (None,) * layers if "has_places" in family.fixed else _ropes(fields, D, windows)
    return Config(
        family=name,
        V=fields.count("vocab_size"),
        C=C,
        hidden=fields.count("intermediate_size", 4 * C),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        D=D,
        length=length,
        eps=fields.number("rms_norm_eps", 1e-6),
        ropes=ropes,
        windows=windows,
        scale=fields.number("query_pre_attn_scalar", D, 1e-6) ** -0.5,
        activation=_activation(fields),
        biases=frozenset(
            it for it, key in family.biases.items() if not key or fields.flag(key, False)
        ),
        softcap=fields.number("attn_logit_softcapping", 0.0),
        final_softcap=fields.number("final_logit_softcapping", 0.0),
        embedding_scale=math.sqrt(C) if is_gemma else 1.0,
        is_tied=fields.flag("tie_word_embeddings", False),
        stops=stops_of(fields.get("eos_token_id")),
        **family.fixed,
    )


def _activation(fields: Fields) -> str:
    found = fields.get("hidden_activation") or fields.get("hidden_act") or "silu"
    if not isinstance(found, str) or found not in _ACTIVATIONS:
        raise ModelFileError(
            f"hidden_act of the configuration is {found!r:.60}, expected one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[found]


def stops_of(found: Any) -> tuple[int, ...]:
    """eos_token_id: a number, several, or none."""
    several = found if isinstance(found, list) else [found]
    return tuple(it for it in several if isinstance(it, int) and not isinstance(it, bool))


def _windows(family: Family, fields: Fields, layers: int) -> tuple[int | None, ...]:
    if fields.get("sliding_window") is None:
        return (None,) * layers
    window = fields.count("sliding_window")
    kinds = fields.listed("layer_types", layers)
    if kinds is None:
        local = [family.is_local(fields, layer) for layer in range(layers)]
    else:
        other = {repr(it) for it in kinds} - {"'full_attention'", "'sliding_attention'"}
        if other:
            raise ModelFileError(
                f"layer_types of the configuration holds {min(other):.60}, expected "
                "full_attention or sliding_attention"
            )
        local = [it == "sliding_attention" for it in kinds]
    return tuple(window if it else None for it in local)


def _ropes(fields: Fields, D: int, windows: tuple[int | None, ...]) -> tuple[Rope | None, ...]:
    """Of each layer; local ones may have a kind of their own, and some layers none."""
    layers = len(windows)
    turned = fields.listed("no_rope_layers", layers)
    if turned is None and fields.get("no_rope_layer_interval") is not None:
        step = fields.count("no_rope_layer_interval")
        turned = [(layer + 1) % step for layer in range(layers)]
    given = fields.get("rope_parameters") or {}
    if isinstance(given, dict) and "full_attention" in given:
        parts = Fields(given)
        far, near = (
            rope_of(fields, parts.inside(f"{it}_attention"), D) for it in ("full", "sliding")
        )
    else:
        name = "rope_parameters" if given else "rope_scaling"
        far = near = rope_of(fields, fields.inside(name), D)
        if fields.get("rope_local_base_freq") is not None:
            near = Rope(fields.number("rope_local_base_freq", least=1.0), D)
    return tuple(
        None if turned is not None and not turned[layer] else far if window is None else near
        for layer, window in enumerate(windows)
    )
