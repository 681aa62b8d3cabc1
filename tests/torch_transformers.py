"""Architectures of transformers: models with small random configurations, and their inputs."""

from __future__ import annotations

from typing import Any

import torch
import transformers

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
INNER = {**SMALL, "intermediate_size": 64}
PADS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
DISTILBERT = {"vocab_size": 64, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
OPT = {**SMALL, "ffn_dim": 64, "max_position_embeddings": 32, "word_embed_proj_dim": 32}
IMAGE = {"image_size": 32, "patch_size": 8}
ROTARY = {**INNER, **PADS, "num_key_value_heads": 2}
DEBERTA = {**INNER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
BART = {"vocab_size": 64, "d_model": 32, "max_position_embeddings": 32, **PADS}
for _side in ("encoder", "decoder"):
    BART |= {f"{_side}_layers": 2, f"{_side}_attention_heads": 4, f"{_side}_ffn_dim": 64}
WHISPER = {**BART, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32}
NEO = {"attention_types": [[["global", "local"], 1]], "window_size": 4, "num_heads": 4}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4]}
CONVNEXT = {"num_stages": 2, "depths": [1, 1], "hidden_sizes": [8, 16]}
CLIP_TEXT = {**INNER, **PADS, "projection_dim": 16, "max_position_embeddings": 32}
CLIP = {"text_config": CLIP_TEXT, "vision_config": {**INNER, **IMAGE, "projection_dim": 16}}
# What the configuration is called, the model, and its sizes.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("Bert", "ForSequenceClassification", INNER),
    "roberta": ("Roberta", "ForMaskedLM", {**INNER, **PADS}),
    "distilbert": ("DistilBert", "ForMaskedLM", DISTILBERT),
    "albert": ("Albert", "ForMaskedLM", {**INNER, "embedding_size": 16}),
    "electra": ("Electra", "ForTokenClassification", {**INNER, "embedding_size": 16}),
    "deberta": ("DebertaV2", "ForSequenceClassification", DEBERTA),
    "gpt2": ("GPT2", "LMHeadModel", {**GPT2, **PADS}),
    "gptneo": ("GPTNeo", "ForCausalLM", {**SMALL, **PADS, **NEO, "num_layers": 2}),
    "neox": ("GPTNeoX", "ForCausalLM", {**INNER, **PADS}),
    "opt": ("OPT", "ForCausalLM", {**OPT, **PADS}),
    "llama": ("Llama", "ForCausalLM", ROTARY),
    "mistral": ("Mistral", "ForCausalLM", {**ROTARY, "sliding_window": 4}),
    "qwen2": ("Qwen2", "ForCausalLM", ROTARY),
    "gemma": ("Gemma", "ForCausalLM", {**ROTARY, "head_dim": 8}),
    "phi": ("Phi", "ForCausalLM", ROTARY),
    "t5": ("T5", "ForConditionalGeneration", {**T5, **PADS, "decoder_start_token_id": 0}),
    "bart": ("Bart", "ForConditionalGeneration", {**BART, "decoder_start_token_id": 2}),
    "whisper": ("Whisper", "ForConditionalGeneration", {**WHISPER, "decoder_start_token_id": 2}),
    "vit": ("ViT", "ForImageClassification", {**INNER, **IMAGE}),
    "deit": ("DeiT", "ForImageClassification", {**INNER, **IMAGE}),
    "swin": ("Swin", "ForImageClassification", {**SWIN, "window_size": 4}),
    "convnext": ("ConvNext", "ForImageClassification", CONVNEXT),
    "clip": ("CLIP", "Model", CLIP),
}
OF_IMAGES = ("vit", "deit", "swin", "convnext")
UNCACHED = (*OF_IMAGES, "bert", "roberta", "distilbert", "albert", "electra", "deberta", "clip")


def inputs_of(name: str) -> dict[str, Any]:
    torch.manual_seed(1)
    images = torch.randn(2, 3, 32, 32)
    if name in OF_IMAGES:
        return {"pixel_values": images}
    words = torch.randint(3, 64, (2, 12))
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": words}
    kept = torch.ones(2, 12, dtype=torch.int64)
    kept[1, 9:] = 0
    texts = {"input_ids": words, "attention_mask": kept}
    if name == "clip":
        return {**texts, "pixel_values": images}
    return {**texts, "decoder_input_ids": words[:, :5]} if name in ("t5", "bart") else texts


def built(name: str) -> Any:
    """The model of an architecture, with random weights."""
    kind, model, how = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**how)
    return getattr(transformers, f"{kind}{model}")(config)


class Without(torch.nn.Module):
    """A model that returns its scores and nothing that it keeps for the next call."""

    def __init__(self, model: Any, cached: bool) -> None:
        super().__init__()
        self.model, self.how = model, {"use_cache": False} if cached else {}

    def forward(self, given: dict[str, Any]) -> Any:
        found = self.model(**given, **self.how)
        return found.logits if hasattr(found, "logits") else found.logits_per_text
