"""The side `step` of `bench_torch.py`: `dlprim.nn.Step` on dlprim's own models, PyTorch's weights.

Names of `transformers` become those of `dlprim.nn`: what several arrays are called by is one array,
in which they lie one after the other (queries, keys, values).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import torch_cases
from dlprim import nn, optim

State = dict[str, np.ndarray]

_BERT = {
    r"model\.bert\.embeddings\.": "", r"model\.classifier": "head",
    r"model\.bert\.pooler\.dense": "pooler", r"model\.bert\.encoder\.layer\.": "layers.",
    "word_embeddings": "tokens", "token_type_embeddings": "segments",
    "position_embeddings": "positions", r"^LayerNorm": "norm",
    r"attention\.self\.(query|key|value)\.": "self_attn.in_proj_",
    r"attention\.output\.dense": "self_attn.out_proj",
    r"attention\.output\.LayerNorm": "norm1", r"output\.LayerNorm": "norm2",
    r"intermediate\.dense": "linear1", r"output\.dense": "linear2",
}  # fmt: skip
_GPT = {
    r"model\.model\.transformer\.": "", "^wte": "tokens", "^wpe": "positions", "^ln_f": "norm",
    r"^h\.": "layers.", r"attn\.c_attn\.": "self_attn.in_proj_",
    r"attn\.c_proj": "self_attn.out_proj", "ln_1": "norm1", "ln_2": "norm2",
    r"mlp\.c_fc": "linear1", r"mlp\.c_proj": "linear2", r"^model\.model\.lm_head.*": "",
}  # fmt: skip
_VIT = {
    r"model\.vit\.": "", r"model\.classifier": "heads.head",
    r"embeddings\.cls_token": "class_token",
    r"embeddings\.position_embeddings": "encoder.pos_embedding",
    r"embeddings\.patch_embeddings\.projection": "conv_proj", r"^layernorm\.": "encoder.ln.",
    r"^layers\.": "encoder.layers.encoder_layer_",
    r"attention\.[qkv]_proj\.": "self_attention.in_proj_",
    r"attention\.o_proj": "self_attention.out_proj", "layernorm_before": "ln_1",
    "layernorm_after": "ln_2", r"mlp\.fc1": "mlp.0", r"mlp\.fc2": "mlp.3",
}  # fmt: skip


def _renamed(state: State, names: dict[str, str]) -> State:
    """The arrays by other names, those of one name joined; what has none is left out."""
    found: dict[str, list[np.ndarray]] = {}
    for name, array in state.items():
        for pattern, own in names.items():
            name = re.sub(pattern, own, name)
        found.setdefault(name, []).append(array)
    return {
        name: parts[0] if len(parts) == 1 else np.concatenate(parts)
        for name, parts in found.items()
        if name
    }


def _bert(state: State, config: Any) -> tuple[nn.Module, State]:
    model = nn.bert(
        config.vocab_size, config.max_position_embeddings, config.hidden_size,
        config.num_hidden_layers, 2, heads=config.num_attention_heads,
        hidden=config.intermediate_size, dropout=config.hidden_dropout_prob,
    )  # fmt: skip
    return model, _renamed(state, _BERT)


def _gpt(state: State, config: Any) -> tuple[nn.Module, State]:
    """GPT-2 has its weights the other way around."""
    model = nn.gpt(
        config.vocab_size, config.n_positions, config.n_embd, config.n_layer, heads=config.n_head,
        dropout=config.attn_pdrop, activation="gelu_tanh",
    )  # fmt: skip
    turned = {name: it.T if ".c_" in name and it.ndim == 2 else it for name, it in state.items()}
    return model, _renamed(turned, _GPT)


def _vit(state: State, config: Any) -> tuple[nn.Module, State]:
    model = nn.vit(
        config.num_labels, image=config.image_size, patch=config.patch_size,
        C=config.hidden_size, layers=config.num_hidden_layers, heads=config.num_attention_heads,
        hidden=config.intermediate_size,
    )  # fmt: skip
    return model, _renamed(state, _VIT)


def _resnet50(state: State, config: Any) -> tuple[nn.Module, State]:
    return nn.resnet50(), state


def _perceptron(state: State, config: Any) -> tuple[nn.Module, State]:
    """Weights are (out, in)."""
    last = max(int(name.split(".")[0]) for name in state)
    layers: list[nn.Module] = []
    for at in range(0, last + 1, 2):
        K, C = state[f"{at}.weight"].shape
        layers += [nn.Linear(C, K), nn.ReLU()]
    return nn.Sequential(*layers[:-1]), state


def _digits(state: State, config: Any) -> tuple[nn.Module, State]:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    return model, state


MODELS: dict[str, Callable[[State, Any], tuple[nn.Module, State]]] = {
    "resnet50": _resnet50, "bert_base": _bert, "gpt2_small": _gpt, "gpt": _gpt, "vit_b16": _vit,
    "mlp_784": _perceptron, "mlp_64": _perceptron, "digits": _digits,
}  # fmt: skip


class StepRunner:
    """A training step of the model of dlprim; PyTorch's goes when its weights are copied."""

    def __init__(self, name: str, make: Callable[[], torch_cases.Case], narrow: bool) -> None:
        if name not in MODELS:
            raise ValueError(f"dlprim.nn has no {name}")
        self._make, case = make, make()
        state = {key: it.detach().numpy() for key, it in case.model.state_dict().items()}
        configs = (getattr(it, "config", None) for it in case.model.modules())
        model, own = MODELS[name](state, next(filter(None, configs), None))
        model.use(nn.Context("bfloat16" if narrow else "float32"))
        model.load_state_dict(own)
        values = model.parameters()
        optimizer: Any = optim.AdamW(values, 1e-4)
        if not case.is_adam:
            optimizer = optim.SGD(values, 0.01, momentum=0.9, weight_decay=1e-4)
        self._step = nn.Step(model, nn.CrossEntropyLoss(), optimizer)
        targets = case.targets.numpy()
        if case.src.ndim == 2 and targets.size == case.src.numel():  # a class at each place
            targets = targets.reshape(case.src.shape)
        self._batch = np.ascontiguousarray(case.src.numpy()), targets

    @property
    def case(self) -> torch_cases.Case:
        """Made again, for whoever counts its operations."""
        return self._make()

    def step(self) -> list[np.ndarray]:
        """The loss of the weights before; they have moved."""
        return [np.asarray(self._step(*self._batch))]

    def gradients(self) -> list[np.ndarray]:
        return []  # a step keeps none

    def update(self) -> None:
        """Done in the step."""
