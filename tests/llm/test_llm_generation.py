"""Texts that are written: words as the model chooses them, several at once, and where they end."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drawing import RNG

pytest.importorskip("safetensors", reason='models are read with it: pip install "dlprim[llm]"')

from tiny_models import V, llama_folder

from dlprim import llm


@pytest.fixture
def model(tmp_path: Path) -> llm.LanguageModel:
    llama_folder(tmp_path, eos_token_id=None)
    return llm.load(tmp_path)


def greedy(model: llm.LanguageModel, words: list[int], count: int) -> list[int]:
    """By reading everything anew for each word."""
    words = list(words)
    for _ in range(count):
        words.append(int(model(words, last=True).argmax()))
    return words[-count:]


def test_likeliest_words_of_several_texts_are_those_of_each(model: llm.LanguageModel) -> None:
    prompts = [RNG.integers(0, V, size).tolist() for size in (3, 9, 1)]
    due = [greedy(model, it, 6) for it in prompts]
    assert [list(model.generate(it, max_new=6)) for it in prompts] == due
    found: list[list[int]] = [[], [], []]
    for place, word in model.generate(prompts, max_new=6):
        found[place].append(word)
    assert found == due


def test_texts_go_on_where_a_cache_ends(model: llm.LanguageModel) -> None:
    prompt = RNG.integers(0, V, 5).tolist()
    due = greedy(model, prompt, 8)
    cache = model.cache(13)
    first = list(model.generate(prompt, max_new=4, cache=cache))
    assert first + list(model.generate(first[-1:], max_new=4, cache=cache)) == due
    with pytest.raises(ValueError, match="prompt has 2 tokens, expected at most the 1 that"):
        model.generate([1, 2], cache=cache)


def test_who_stops_iterating_stops_the_model(model: llm.LanguageModel) -> None:
    cache = model.cache(64)
    texts = model.generate([1, 2], cache=cache)
    assert len(list(islice(texts, 3))) == 3
    texts.close()
    assert cache.lengths[0] == 4


def test_full_cache_ends_in_a_sentence_or_slides(model: llm.LanguageModel) -> None:
    words = model.generate([1, 2, 3], max_new=20, cache=model.cache(6))
    assert len(list(islice(words, 4))) == 4
    with pytest.raises(ValueError, match="the cache is full, expected room for all"):
        next(words)
    sliding = model.cache(6, when_full="slide")
    assert len(list(model.generate([1, 2, 3], max_new=20, cache=sliding))) == 20


def test_words_end_a_text(model: llm.LanguageModel) -> None:
    due = greedy(model, [5, 6], 8)
    place = due.index(due[4])
    assert list(model.generate([5, 6], max_new=8, stop=due[4])) == due[:place]
    assert list(model.generate([5, 6], max_new=8, stop=[V - 1, due[4]])) == due[:place]


def chosen(logits: list[float], count: int = 200, **how: Any) -> set[int]:
    sampling = llm.Sampling(**how, seed=1)
    draw = sampling.generator(0)
    return {sampling.chosen(np.array(logits, np.float32), (), draw) for _ in range(count)}


def test_words_are_drawn_among_likely_ones() -> None:
    logits = np.log([0.5, 0.05, 0.3, 0.15]).tolist()
    assert chosen(logits) == {0}
    assert chosen(logits, temperature=1.0) == {0, 1, 2, 3}
    assert chosen(logits, temperature=1.0, top_k=2) == {0, 2}
    assert chosen(logits, temperature=1.0, top_p=0.75) == {0, 2}
    assert chosen(logits, temperature=1.0, top_p=0.85) == {0, 2, 3}
    assert chosen(logits, temperature=1.0, min_p=0.2) == {0, 2, 3}
    assert chosen(logits, temperature=1.0, top_k=3, top_p=0.6) == {0, 2}
    assert chosen(logits, temperature=0.01) == {0}
    assert chosen([1.0] * 50, 900, temperature=1.0, top_p=0.99) == set(range(50))


def test_shares_of_drawn_words_are_those_of_the_softmax() -> None:
    logits = RNG.standard_normal(6).astype(np.float32)
    sampling = llm.Sampling(temperature=0.7, seed=5)
    draw = sampling.generator(0)
    words = [sampling.chosen(logits.copy(), (), draw) for _ in range(20000)]
    due = np.exp(logits / 0.7)
    found = np.bincount(words, minlength=6) / len(words)
    np.testing.assert_allclose(found, due / due.sum(), atol=0.02)


def test_repetition_is_penalised() -> None:
    sampling = llm.Sampling(repetition_penalty=2.0)
    draw = sampling.generator(0)
    assert sampling.chosen(np.array([3.0, 2.0, 1.0], np.float32), {0}, draw) == 1
    assert sampling.chosen(np.array([-3.0, -2.0, -9.0], np.float32), {1}, draw) == 0


def test_seeds_repeat_texts_whatever_stands_beside_them(model: llm.LanguageModel) -> None:
    how: dict[str, Any] = {"max_new": 6, "temperature": 1.0, "seed": 7}
    alone = list(model.generate([1, 2], **how))
    assert alone == list(model.generate([1, 2], **how))
    beside = [word for place, word in model.generate([[1, 2], [3]], **how) if place == 0]
    assert alone == beside
    assert alone != list(model.generate([1, 2], **{**how, "seed": 8}))


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"temperature": -1}, ValueError, "temperature is -1"),
        ({"top_p": 1.5}, ValueError, "top_p is 1.5"),
        ({"top_k": 2.5}, TypeError, "top_k is 2.5"),
        ({"min_p": -0.1}, ValueError, "min_p is -0.1"),
        ({"repetition_penalty": 0}, ValueError, "repetition_penalty is 0"),
        ({"max_new": 0}, ValueError, "max_new is 0"),
        ({"heat": 1.0}, TypeError, "heat"),
        ({"stop": "\n"}, ValueError, "stop holds a text, expected tokens"),
        ({"stop": 2.5}, TypeError, "stop is 2.5, expected a text, a token, or a list"),
    ],
)
def test_wrong_settings_are_refused(
    how: dict[str, Any], error: type[Exception], message: str, model: llm.LanguageModel
) -> None:
    with pytest.raises(error, match=message):
        model.generate([1], **how)


def test_wrong_prompts_are_refused(model: llm.LanguageModel) -> None:
    for prompt in ([], [[]], [V], [[1], [V]]):
        with pytest.raises((TypeError, ValueError), match=r"^(prompt|tokens)"):
            model.generate(prompt)
    with pytest.raises(ValueError, match=r"no tokenizer, as its folder has no tokenizer\.json"):
        model.generate("Hello")
    with pytest.raises(ValueError, match="the model has no tokenizer, expected one with a chat"):
        model.chat([{"role": "user", "content": "Hello"}])
