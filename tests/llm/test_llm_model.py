"""A language model of a folder: exact sums, caches of several sequences, windows, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from conftest import RunPython
from drawing import RNG

pytest.importorskip("safetensors", reason='models are read with it: pip install "dlprim[llm]"')

from tiny_models import V, llama_folder

import dlprim
from dlprim import llm, nn
from dlprim.optim import AdamW


def llama(w: dict[str, np.ndarray], tokens: np.ndarray, heads: int, kv_heads: int) -> np.ndarray:
    """Logits of (T,) words in float64 (arXiv 2302.13971, 2305.13245)."""
    w = {name: it.astype(np.float64) for name, it in w.items()}
    x = w["model.embed_tokens.weight"][tokens]
    T, D = len(tokens), x.shape[1] // heads
    angles = np.arange(T)[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
    turn = np.exp(1j * angles)[:, None]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]

    def turned(x: np.ndarray) -> np.ndarray:
        z = (x[..., : D // 2] + 1j * x[..., D // 2 :]) * turn
        return np.concatenate([z.real, z.imag], axis=-1)

    for layer in range(4):
        at = f"model.layers.{layer}"
        h = norm(x, f"{at}.input_layernorm")
        q, k, v = ((h @ w[f"{at}.self_attn.{it}_proj.weight"].T).reshape(T, -1, D) for it in "qkv")
        q, k = turned(q), turned(k)
        y = np.empty((T, heads, D))
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, group].T / np.sqrt(D)
            scores[np.triu_indices(T, 1)] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            y[:, head] = shares / shares.sum(-1, keepdims=True) @ v[:, group]
        x = x + y.reshape(T, -1) @ w[f"{at}.self_attn.o_proj.weight"].T
        h = norm(x, f"{at}.post_attention_layernorm")
        gate, up = (h @ w[f"{at}.mlp.{it}_proj.weight"].T for it in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"{at}.mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def test_logits_are_those_of_plain_sums(tmp_path: Path) -> None:
    weights = llama_folder(tmp_path)
    tokens = RNG.integers(0, V, 17)
    due = llama(weights, tokens, 4, 2)
    model = llm.load(tmp_path)
    np.testing.assert_allclose(model(tokens), due, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model(tokens, last=True), due[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "int4"])
def test_narrow_weights_are_those_of_the_model(dtype: str, tmp_path: Path) -> None:
    llama_folder(tmp_path)
    tokens = RNG.integers(0, V, 30)
    rounded = llm.load(tmp_path, trainable=True)
    bits = {"bfloat16": 16, "int8": 8, "int4": 4}[dtype]
    for name, it in rounded.named_parameters():
        if len(it.shape) == 2 and "tokens" not in name:
            it.value = dlprim.quantize_weights(it.value, bits).dequantize()
    due = rounded.trained()(tokens)
    model = llm.load(tmp_path, dtype=dtype)
    whole = model(tokens)
    error = 0.02 if dtype == "bfloat16" else 0.002
    assert np.abs(whole - due).max() < error * np.abs(due).max()
    cache = model.cache(30)  # whose keys are rounded
    parts = [model(it, cache) for it in np.split(tokens, [12, 13, 16, 28])]
    assert np.abs(np.concatenate(parts) - whole).max() < 0.03 * np.abs(due).max()


def test_sequences_of_a_cache_have_lengths_of_their_own(tmp_path: Path) -> None:
    llama_folder(tmp_path, sliding_window=None)
    model = llm.load(tmp_path)
    texts = [RNG.integers(0, V, size) for size in (3, 11, 7)]
    cache = model.cache(16, sequences=3)
    for place, text in enumerate(texts):
        model(text, cache[place])
    assert cache.lengths.tolist() == [3, 11, 7]
    following = RNG.integers(0, V, (2, 1))
    logits = model(following, cache[[2, 0]])
    for row, place in enumerate((2, 0)):
        whole = model(np.append(texts[place], following[row]))
        np.testing.assert_allclose(logits[row, 0], whole[-1], rtol=1e-5, atol=1e-5)
    assert cache.lengths.tolist() == [4, 11, 8]


def test_kept_places_are_read_again(tmp_path: Path) -> None:
    llama_folder(tmp_path)
    model, tokens = llm.load(tmp_path), RNG.integers(0, V, 9)
    cache = model.cache(9)
    first = model(tokens, cache)
    cache.keep(4)
    np.testing.assert_allclose(model(tokens[4:], cache), first[4:], rtol=1e-5, atol=1e-5)
    cache.clear()
    assert cache.lengths.tolist() == [0]
    with pytest.raises(ValueError, match=r"^length is 1, expected an integer of at least 0 and"):
        cache.keep(1)


def test_full_cache_refuses_or_slides(tmp_path: Path) -> None:
    llama_folder(tmp_path)
    model, tokens = llm.load(tmp_path), RNG.integers(0, V, 40)
    cache = model.cache(8)
    model(tokens[:6], cache)
    with pytest.raises(ValueError, match="has 8 places, 6 of which are filled, expected at most 2"):
        model(tokens[6:9], cache)
    assert cache.lengths.tolist() == [6]
    model(tokens[6:8], cache)

    sliding = model.cache(8, when_full="slide")
    for it in tokens:
        found = model([int(it)], sliding, last=True)
    assert 6 <= sliding.lengths[0] <= 8
    # Keys of the first layer are those of the latest words; deeper ones have seen earlier ones.
    assert np.isfinite(found).all()
    with pytest.raises(ValueError, match="expected at most"):
        model(tokens[:9], sliding)


def test_a_window_of_keys_is_what_a_slid_cache_has(tmp_path: Path) -> None:
    """One layer of a cache that slid sees the words that are left, at their distances."""
    llama_folder(tmp_path, num_hidden_layers=1)
    model, tokens = llm.load(tmp_path), RNG.integers(0, V, 12)
    sliding = model.cache(8, when_full="slide")
    for it in tokens:
        found = model([int(it)], sliding, last=True)
    left = int(sliding.lengths[0])
    np.testing.assert_allclose(found, model(tokens[-left:])[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        ([1.5], TypeError, "expected integers"),
        ([], TypeError, "expected integers"),
        (np.zeros((1, 0), np.int64), ValueError, "expected one token at least"),
        ([0, V], ValueError, f"tokens hold {V}, expected tokens from 0 to {V - 1}"),
        ([-1], ValueError, "tokens hold -1"),
        ([[[1]]], TypeError, r"of shape \(1, 1, 1\)"),
    ],
)
def test_wrong_words_are_refused(
    tokens: object, error: type[Exception], message: str, tmp_path: Path
) -> None:
    llama_folder(tmp_path)
    with pytest.raises(error, match=message):
        llm.load(tmp_path)(tokens)


def test_wrong_caches_are_refused(tmp_path: Path) -> None:
    llama_folder(tmp_path)
    model = llm.load(tmp_path)
    with pytest.raises(TypeError, match=r"expected what cache\(\) makes"):
        model([1], {})
    with pytest.raises(ValueError, match="cache is of 2 sequences, expected the 1 of tokens"):
        model([1], model.cache(4, sequences=2))
    with pytest.raises(ValueError, match="expected each sequence once"):
        model.cache(4, sequences=2)[[0, 0]]
    with pytest.raises(ValueError, match="when_full"):
        model.cache(4, when_full="grow")
    gpt = {"model_type": "gpt2", "vocab_size": 9, "n_embd": 8, "n_layer": 1, "n_head": 2}
    learned = llm.new({**gpt, "n_positions": 6}).trained()
    with pytest.raises(ValueError, match="at most the 6 places"):
        learned.cache(7)
    with pytest.raises(ValueError, match="when_full is 'slide', expected 'refuse'"):
        learned.cache(6, when_full="slide")


def changed(folder: Path, **entries: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model_type": "mamba"}, "model_type of the configuration is 'mamba', expected one of"),
        ({"hidden_size": None}, "the configuration has no hidden_size"),
        ({"hidden_size": 32}, r"has shape \(131, 64\), expected \(131, 32\) as the configuration"),
        ({"num_hidden_layers": 5}, "has no array model.layers.4.self_attn.q_proj.weight"),
        ({"num_key_value_heads": 3}, "expected a divisor of 4"),
        ({"hidden_act": "cube"}, "hidden_act of the configuration is 'cube'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, expected"),
        ({"vocab_size": -4}, "vocab_size is -4"),
        (
            {"rope_parameters": {"rope_type": "spiral"}},
            "rope_type of the configuration is 'spiral'",
        ),
        ({"rope_parameters": {"rope_type": "linear"}}, "the configuration has no factor"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(
    entries: dict[str, object], message: str, tmp_path: Path
) -> None:
    llama_folder(tmp_path)
    changed(tmp_path, **entries)
    with pytest.raises(llm.ModelFileError, match=message):
        llm.load(tmp_path)


def test_missing_and_older_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"config\.json"):
        llm.load(tmp_path)
    llama_folder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(llm.ModelFileError, match="weights as pytorch_model"):
        llm.load(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b"}}')
    with pytest.raises(llm.ModelFileError, match="expected names of files beside it"):
        llm.load(tmp_path)


def test_missing_package_is_named(run_python: RunPython) -> None:
    run = run_python(
        "import sys; sys.modules['safetensors'] = None\n"
        "from pathlib import Path\n"
        "import dlprim.llm, dlprim.llm.checkpoint as c\n"
        "try: c.safetensors_arrays(Path('x'))\n"
        "except ImportError as error: print(error)\n"
    )
    assert 'reading weights needs the package safetensors: pip install "dlprim[llm]"' in run.stdout


def test_adapters_learn_and_leave_the_model_as_it_is(tmp_path: Path) -> None:
    llama_folder(tmp_path)
    model = llm.load(tmp_path, trainable=True)
    tokens = RNG.integers(0, V, (4, 9))
    before = model(tokens[:, :-1])
    kept = {name: it.value.copy() for name, it in model.named_parameters()}
    adapters = llm.adapt(model, 4, parts=("qkv", "down"))
    np.testing.assert_allclose(model.eval()(tokens[:, :-1]), before, rtol=1e-5, atol=1e-5)
    step = nn.Step(model.train(), nn.CrossEntropyLoss(), AdamW(adapters, 3e-2))
    losses = [step(tokens[:, :-1], tokens[:, 1:]) for _ in range(12)]
    assert losses[-1] < 0.7 * losses[0]
    found = {name.replace(".base", ""): it.value for name, it in model.named_parameters()}
    assert all((found[name] == it).all() for name, it in kept.items())
    due = model.eval()(tokens)
    np.testing.assert_allclose(model.trained()(tokens), due, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="qkv of the model is adapted"):
        llm.adapt(model)
