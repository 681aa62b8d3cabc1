"""Files of GGUF: the same logits as of the folder, types of few bits, tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drawing import RNG

pytest.importorskip("gguf", reason='it writes them: pip install "dlprim[llm]"')
pytest.importorskip("safetensors", reason='models are read with it: pip install "dlprim[llm]"')
pytest.importorskip("tokenizers", reason='texts are read with it: pip install "dlprim[llm]"')

import gguf
from gguf_models import write_gguf
from safetensors.numpy import load_file
from tiny_models import V, llama_folder

from dlprim import llm

ENTRIES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
FAMILIES = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "gemma": ("gemma", {"head_dim": 32}),
    "gemma2": ("gemma2", {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32}),
    "gemma3_text": ("gemma3", {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32}),
    "phi3": ("phi3", {}),
    "olmo2": ("olmo2", {"rms_norm_eps": 1e-5}),
    "gpt2": (
        "gpt2",
        {"n_embd": 64, "n_inner": 96, "n_layer": 3, "n_head": 4, "n_positions": 128},
    ),
}


def folder_of(name: str, folder: Path, **others: Any) -> dict[str, np.ndarray]:
    entries = ENTRIES if name != "gpt2" else {"vocab_size": V}
    model = llm.new({"model_type": name, **entries, **FAMILIES[name][1], **others})
    for it in model.parameters():
        it.value = 0.15 * RNG.standard_normal(it.shape) + (len(it.shape) == 1)
    model.save(folder)
    arrays: dict[str, np.ndarray] = load_file(folder / "model.safetensors")
    return arrays


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    arrays = folder_of(name, tmp_path)
    arch, others = FAMILIES[name]
    caps = {"gemma2": (50.0, 30.0)}.get(name)

    def more(writer: Any) -> None:
        if caps is not None:
            writer.add_attn_logit_softcapping(caps[0])
            writer.add_final_logit_softcapping(caps[1])

    entries = {**ENTRIES, **others}
    if name == "gpt2":
        entries.pop("num_key_value_heads")
    write_gguf(tmp_path / "x.gguf", arch, entries, arrays, more=more)
    tokens = RNG.integers(0, V, 20)
    due = llm.load(tmp_path)(tokens)
    model = llm.load(tmp_path / "x.gguf")
    assert model.dtype == "float32"
    assert np.abs(model(tokens) - due).max() < 1e-5 * np.abs(due).max()
    trained = llm.load(tmp_path / "x.gguf", trainable=True).eval()
    assert np.abs(trained(tokens[None])[0] - due).max() < 1e-5 * np.abs(due).max()


def encoded(kind: str, array: np.ndarray) -> tuple[np.ndarray, Any]:
    """Bytes of a matrix; random ones of the types that the package gguf does not write."""
    number = gguf.GGMLQuantizationType[kind]
    if not kind.endswith("_K"):
        return gguf.quants.quantize(np.ascontiguousarray(array, np.float32), number), number
    block, octets = gguf.GGML_QUANT_SIZES[number]
    blocks = array.shape[0], array.shape[1] // block
    drawn = RNG.integers(0, 256, (*blocks, octets), np.uint8)
    scale = (0.002 + 0.001 * RNG.random(blocks)).astype(np.float16)
    places = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[kind]
    for place in places:
        drawn[..., place : place + 2] = scale[..., None].view(np.uint8)
    return drawn.reshape(array.shape[0], -1), number


@pytest.mark.parametrize(
    ("kind", "dtype", "nearest"),
    [
        ("Q4_0", "int4", "int4"),
        ("Q8_0", "int8", "int8"),
        ("Q4_K", "bfloat16", "int4"),
        ("Q5_K", "bfloat16", "int8"),
        ("Q6_K", "bfloat16", "int8"),
        ("F16", "bfloat16", "bfloat16"),
        ("BF16", "bfloat16", "bfloat16"),
    ],
)
def test_types_of_few_bits_are_read(kind: str, dtype: str, nearest: str, tmp_path: Path) -> None:
    """Q4_0 and Q8_0 stay as they are: only activations are rounded."""
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
    arrays = folder_of("llama", tmp_path, **wide)
    path = tmp_path / "x.gguf"
    write_gguf(path, "llama", {**ENTRIES, **wide}, arrays, lambda it: encoded(kind, it))
    tokens = RNG.integers(0, V, 12)
    due = llm.load(path, dtype="float32")(tokens)
    model = llm.load(path, dtype=dtype)
    error = 0.02 if dtype == "bfloat16" else 1e-3
    assert np.abs(model(tokens) - due).max() < error * np.abs(due).max()
    assert llm.load(path).dtype == nearest


def test_frequencies_are_divided_by_what_the_file_says(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    arrays = folder_of("llama", tmp_path, rope_parameters=rope)
    plain = 500.0 ** (-np.arange(0, 16, 2) / 16)
    share = np.clip((32 * plain / (2 * np.pi) - 1) / 3, 0, 1)
    factors = (1 / (share + (1 - share) / 4)).astype(np.float32)

    def more(writer: Any) -> None:
        writer.add_rope_freq_base(500.0)
        writer.add_tensor("rope_freqs.weight", factors)

    write_gguf(tmp_path / "x.gguf", "llama", ENTRIES, arrays, more=more)
    tokens = RNG.integers(0, V, 60)
    due = llm.load(tmp_path)(tokens)
    found = llm.load(tmp_path / "x.gguf")(tokens)
    assert np.abs(found - due).max() < 1e-5 * np.abs(due).max()


def tokenizer_of(path: Path, more: Any) -> llm.Tokenizer:
    arrays = llama_folder(path.parent, num_hidden_layers=1, intermediate_size=96)
    write_gguf(path, "llama", {**ENTRIES, "num_hidden_layers": 1}, arrays, more=more)
    found = llm.load(path).tokenizer
    assert found is not None
    return found


def test_merges_of_bytes_are_read(tmp_path: Path) -> None:
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "</s>", *letters, "he", "ll", "hell", "hello", "\u0120h"]

    def more(writer: Any) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_list(tokens)
        writer.add_token_types([3, 3, *[1] * (len(tokens) - 2)])
        writer.add_token_merges(["h e", "l l", "he ll", "hell o", "\u0120 h"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_add_bos_token(True)
        writer.add_chat_template("{{ bos_token }}{{ messages[0].content }}")

    found = tokenizer_of(tmp_path / "x.gguf", more)
    ids = found.encode("hello he!</s>")
    assert [tokens[it] for it in ids] == ["<s>", "hello", "\u0120", "he", "!", "</s>"]
    assert found.decode(ids) == "hello he!"
    assert found.conversation([{"role": "user", "content": "he"}]) == [0, tokens.index("he")]
    assert found.stops() == (1,)


def test_merges_by_scores_are_read(tmp_path: Path) -> None:
    octets = [f"<0x{it:02X}>" for it in range(256)]
    letters = list("\u2581helo")
    pieces = ["he", "ll", "hell", "hello", "\u2581hello"]
    tokens = ["<unk>", "<s>", "</s>", *octets, *letters, *pieces]

    def more(writer: Any) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores(
            [0.0] * (len(tokens) - len(pieces)) + [-1.0, -2.0, -3.0, -4.0, -5.0]
        )
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(letters) + len(pieces))])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)

    found = tokenizer_of(tmp_path / "x.gguf", more)
    ids = found.encode("hello hell\u00e9")
    due = ["<s>", "\u2581hello", "\u2581", "hell", "<0xC3>", "<0xA9>"]
    assert [tokens[it] for it in ids] == due
    assert found.decode(ids) == "hello hell\u00e9"


def test_unknown_tokenizers_leave_tokens(tmp_path: Path) -> None:
    arrays = folder_of("llama", tmp_path)
    path = tmp_path / "x.gguf"

    def more(writer: Any) -> None:
        writer.add_tokenizer_model("rwkv")
        writer.add_token_list(["a"])

    write_gguf(path, "llama", ENTRIES, arrays, more=more)
    model = llm.load(path)
    assert model.tokenizer is None
    assert len(list(model.generate([1, 2], max_new=3))) == 3


def test_other_architectures_are_named(tmp_path: Path) -> None:
    arrays = folder_of("llama", tmp_path)
    write_gguf(tmp_path / "x.gguf", "mamba", ENTRIES, arrays)
    with pytest.raises(llm.ModelFileError, match="is 'mamba', expected one of gemma, gemma2"):
        llm.load(tmp_path / "x.gguf")
