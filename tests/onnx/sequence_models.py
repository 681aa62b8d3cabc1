"""Networks on sequences: transformers' models with small random configurations, LSTM and GRU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 64,
    "max_position_embeddings": 32,
}


class First(nn.Module):
    """A model of transformers with positional inputs, and the first of its results."""

    def __init__(self, model: Any, names: tuple[str, ...], result: str) -> None:
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, first: Any, second: Any = None) -> Any:
        given = {self.names[0]: first}
        if len(self.names) > 1:
            given[self.names[1]] = second
        return getattr(self.model(**given), self.result)


def _wrapped(model: Any, *names: str, result: str = "last_hidden_state") -> nn.Module:
    return First(model, names or ("input_ids", "attention_mask"), result)


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return _wrapped(BertModel(BertConfig(**_SMALL), add_pooling_layer=False))


def roberta() -> nn.Module:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(**{**_SMALL, "max_position_embeddings": 40}, num_labels=3)
    return _wrapped(RobertaForSequenceClassification(config), result="logits")


def distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=64, dim=32, hidden_dim=48, n_layers=1, n_heads=4)
    return _wrapped(DistilBertModel(config))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=4, n_positions=32)
    config.use_cache = False
    return _wrapped(GPT2LMHeadModel(config), result="logits")


def t5() -> nn.Module:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4, use_cache=False
    )
    model = T5EncoderModel(config)
    # PyTorch 2.13 cannot decompose the fused attention of T5 for the exporter.
    model.set_attn_implementation("eager")
    return _wrapped(model)


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
        image_size=32, patch_size=8,
    )  # fmt: skip
    return _wrapped(ViTModel(config, add_pooling_layer=False), "pixel_values")


def whisper() -> nn.Module:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=32, encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=48,
        num_mel_bins=8, max_source_positions=20,
    )  # fmt: skip
    return _wrapped(WhisperEncoder(config), "input_features")


def _decoder(kind: str) -> nn.Module:
    """Rotary positions, RMS norm, gated units; two heads of keys serve four of queries."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        **_SMALL, num_key_value_heads=2, use_cache=False, pad_token_id=0
    )
    return _wrapped(getattr(transformers, f"{kind}ForCausalLM")(config), result="logits")


def llama() -> nn.Module:
    return _decoder("Llama")


def qwen2() -> nn.Module:
    return _decoder("Qwen2")


def mistral() -> nn.Module:
    return _decoder("Mistral")


class Speech(nn.Module):
    """Convolution over time, recurrent layers, a classifier of every step."""

    def __init__(self, kind: type[nn.Module], bidirectional: bool) -> None:
        super().__init__()
        self.front = nn.Conv1d(8, 12, 3, stride=2, padding=1)
        self.recurrent = kind(12, 16, 2, batch_first=True, bidirectional=bidirectional)
        self.last = nn.Linear(32 if bidirectional else 16, 7)

    def forward(self, x: Any) -> Any:
        steps, _ = self.recurrent(torch.relu(self.front(x)).transpose(1, 2))
        return torch.log_softmax(self.last(steps), -1)


def lstm() -> nn.Module:
    return Speech(nn.LSTM, bidirectional=False)


def bidirectional_lstm() -> nn.Module:
    return Speech(nn.LSTM, bidirectional=True)


def gru() -> nn.Module:
    return Speech(nn.GRU, bidirectional=False)


class Mixer(nn.Module):
    """`nn.TransformerEncoderLayer` as PyTorch has it, and a mean of the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(
            16, 2, 24, batch_first=True, activation="gelu", norm_first=True
        )

    def forward(self, x: Any) -> Any:
        return self.layer(self.embedding(x)).mean(1)
