"""Every family against transformers: logits, with and without a cache, greedy words, gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drawing import RNG

pytest.importorskip("safetensors", reason='models are read with it: pip install "dlprim[llm]"')

from tiny_models import MODELS, V, transformers_model

from dlprim import llm

# Whose angles depend on how long a text is, so that reading it in parts is another thing.
LONG = ("llama-dynamic", "phi3-longrope")


def logits_of(model: Any, tokens: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        found: np.ndarray = model(torch.from_numpy(tokens)).logits.numpy()
    return found


def greedy_words(model: Any, tokens: np.ndarray, count: int) -> np.ndarray:
    import torch

    how = {"do_sample": False, "max_new_tokens": count, "eos_token_id": None, "pad_token_id": 0}
    with torch.no_grad():
        found: np.ndarray = model.generate(torch.from_numpy(tokens), **how).numpy()
    return found[:, tokens.shape[1] :]


def assert_close(found: np.ndarray, due: np.ndarray) -> None:
    assert np.abs(found - due).max() < 1e-5 * np.abs(due).max()


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_words_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    expected = transformers_model(name)
    expected.save_pretrained(tmp_path)
    model = llm.load(tmp_path)
    tokens = RNG.integers(3, V, (2, 20))
    due = logits_of(expected, tokens)
    assert_close(model(tokens), due)
    cache = model.cache(40, sequences=2)
    if name not in LONG:
        parts = [model(it, cache) for it in np.split(tokens, [5, 9, 10, 11, 12], axis=1)]
        assert_close(np.concatenate(parts, axis=1), due)
    else:
        model(tokens, cache)
    words = due[:, -1:].argmax(axis=-1)
    made = [words]
    while len(made) < 12:
        made.append(model(made[-1], cache, last=True).argmax(axis=-1)[:, None])
    assert np.concatenate(made, axis=1).tolist() == greedy_words(expected, tokens, 12).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_module_is_the_same_model_and_is_saved_as_it_was(name: str, tmp_path: Path) -> None:
    expected = transformers_model(name)
    expected.save_pretrained(tmp_path / "given")
    model = llm.load(tmp_path / "given", trainable=True).eval()
    tokens = RNG.integers(3, V, (2, 20))
    due = logits_of(expected, tokens)
    assert_close(model(tokens), due)
    model.save(tmp_path / "saved")
    again = type(expected).from_pretrained(tmp_path / "saved")
    assert_close(logits_of(again, tokens), due)
    assert_close(model.trained()(tokens), due)


def test_weights_in_several_files_and_in_bfloat16(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what transformers computes with")
    expected = transformers_model("qwen3").to(torch.bfloat16)
    expected.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    tokens = RNG.integers(3, V, (1, 9))
    wide = type(expected).from_pretrained(tmp_path, dtype=torch.float32)
    due = logits_of(wide, tokens)
    assert_close(llm.load(tmp_path)(tokens), due)
    narrow = llm.load(tmp_path, dtype="bfloat16")
    np.testing.assert_allclose(narrow(tokens), due, atol=0.02 * np.abs(due).max())


def test_language_model_of_one_that_also_sees(tmp_path: Path) -> None:
    """Gemma 3 keeps its configuration and weights inside of others."""
    import json

    from safetensors.numpy import load_file, save_file

    expected = transformers_model("gemma3")
    expected.save_pretrained(tmp_path)
    inner = json.loads((tmp_path / "config.json").read_text())
    whole = {"model_type": "gemma3", "text_config": inner}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    arrays = load_file(tmp_path / "model.safetensors")
    save_file(
        {f"language_model.{it}": a for it, a in arrays.items()}, tmp_path / "model.safetensors"
    )
    tokens = RNG.integers(3, V, (1, 9))
    due = logits_of(expected, tokens)
    assert_close(llm.load(tmp_path)(tokens), due)
