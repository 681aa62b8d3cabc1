"""Architectures of transformers with small random configurations, compiled and run eagerly."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")
transformers = pytest.importorskip("transformers", reason="the models are its own")

from torch_compare import run_both  # noqa: E402

pytestmark = [
    pytest.mark.any_level,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of transformers
]

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
INNER = {**SMALL, "intermediate_size": 64}
PADS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
DISTILBERT = {"vocab_size": 64, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
OPT = {**SMALL, "ffn_dim": 64, "max_position_embeddings": 32, "word_embed_proj_dim": 32}
VIT = {**INNER, "image_size": 32, "patch_size": 8}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertForSequenceClassification", INNER),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM", DISTILBERT),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {**GPT2, **PADS}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**INNER, "num_key_value_heads": 2, **PADS}),
    "neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**INNER, **PADS}),
    "opt": ("OPTConfig", "OPTForCausalLM", {**OPT, **PADS}),
    "t5": ("T5Config", "T5ForConditionalGeneration", {**T5, **PADS, "decoder_start_token_id": 0}),
    "vit": ("ViTConfig", "ViTForImageClassification", VIT),
}


def inputs_of(name: str) -> tuple[Any, ...]:
    torch.manual_seed(1)
    if name == "vit":
        return (torch.randn(2, 3, 32, 32),)
    words = torch.randint(3, 64, (2, 12))
    kept = torch.ones(2, 12, dtype=torch.int64)
    kept[1, 9:] = 0
    return (words, kept, words[:, :5]) if name == "t5" else (words, kept)


class Without(torch.nn.Module):
    """A model that returns its scores and nothing that it keeps for the next call."""

    def __init__(self, model: Any, cached: bool) -> None:
        super().__init__()
        self.model, self.how = model, {"use_cache": False} if cached else {}

    def forward(self, x: Any, *rest: Any) -> Any:
        named = dict(zip(("attention_mask", "decoder_input_ids"), rest, strict=False))
        return self.model(x, **named, **self.how).logits


@pytest.mark.parametrize("name", list(MODELS))
def test_an_architecture_is_as_it_is_eagerly(name: str) -> None:
    config, model, how = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**how))
    whole = Without(made, name not in ("bert", "distilbert", "vit"))
    inputs = inputs_of(name)
    run_both(whole, lambda: inputs, 1e-3)
