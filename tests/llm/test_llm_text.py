"""Texts as words and back, conversations, and tokenizers that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drawing import RNG

pytest.importorskip("safetensors", reason='models are read with it: pip install "dlprim[llm]"')
pytest.importorskip("tokenizers", reason='texts are read with it: pip install "dlprim[llm]"')
pytest.importorskip("jinja2", reason='templates are written in it: pip install "dlprim[llm]"')

from tiny_models import V, llama_folder

from dlprim import llm

TEMPLATE = """{%- for message in messages %}
{{- '<' + message.role + '>' + message['content'] | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<bot>' }}{%- endif %}"""


def bytes_tokenizer(folder: Path, vocabulary: int = V) -> None:
    """Of bytes of ASCII, each a word, and <s>, </s> and <bot> as special ones."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors

    letters = pre_tokenizers.ByteLevel.alphabet()
    ordered = sorted(letters, key=lambda it: (len(it.encode()) > 1, it))[: vocabulary - 3]
    words = {it: place for place, it in enumerate(["<s>", "</s>", "<bot>", *ordered])}
    made = tokenizers.Tokenizer(models.BPE(words, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>", "<bot>"])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    made.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture
def model(tmp_path: Path) -> llm.LanguageModel:
    llama_folder(tmp_path)
    bytes_tokenizer(tmp_path)
    return llm.load(tmp_path)


def test_texts_are_words_and_back(model: llm.LanguageModel) -> None:
    assert model.tokenizer is not None
    words = model.tokenizer.encode("Hello<bot>")
    assert words[0] == 0
    assert words[-1] == 2
    assert model.tokenizer.decode(words) == "Hello"
    assert len(model.tokenizer) == V
    assert model.tokenizer.stops() == (1,)


def test_pieces_are_the_text_of_the_words(model: llm.LanguageModel) -> None:
    assert model.tokenizer is not None
    words = list(model.generate(model.tokenizer.encode("ab"), max_new=30, temperature=3.0, seed=1))
    pieces = model.generate("ab", max_new=30, temperature=3.0, seed=1)
    # The rest of a character may be missing in the end.
    assert "".join(pieces) == model.tokenizer.decode(words).rstrip("\ufffd")


def test_texts_end_a_text(model: llm.LanguageModel) -> None:
    how = {"max_new": 40, "temperature": 3.0, "seed": 2}
    whole = "".join(model.generate("ab", **how))
    stop = whole[7:10]
    assert "".join(model.generate("ab", stop=stop, **how)) == whole[: whole.index(stop)]
    unmet = whole[-2:] + "never"  # which the end of the text begins
    assert "".join(model.generate("ab", stop=["xyz", unmet], **how)) == whole
    found = ["", ""]
    for place, piece in model.generate(["ab", "c"], stop=stop, **how):
        found[place] += piece
    assert found[0] == whole[: whole.index(stop)]


def test_conversations_are_written_by_the_template(model: llm.LanguageModel) -> None:
    messages = [{"role": "user", "content": " Hi "}, {"role": "it", "content": "Yes"}]
    assert model.tokenizer is not None
    words = model.tokenizer.conversation(messages)
    due = model.tokenizer.encode("<user>Hi</s><it>Yes</s><bot>", special=False)
    assert words == due
    answer = "".join(model.chat(messages, max_new=9))
    assert answer == model.tokenizer.decode(model.generate(words, max_new=9))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "the model has no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "refuses the messages: roles must alter"),
        ("{% for %}", "refuses the messages"),
        ("{{ messages.__class__.__mro__ }}", "refuses the messages"),
        ("{{ 'a' * 10000000000 }}", "repeats something too often"),
        ("{{ 9 ** 9999999 }}", "repeats something too often"),
        ("{{ range(100000000) | list }}", "refuses the messages|fails"),
        ("{{ messages[5].content }}", "refuses the messages|fails"),
    ],
)
def test_templates_that_fail_are_sentences(
    template: str | None, message: str, model: llm.LanguageModel
) -> None:
    assert model.tokenizer is not None
    model.tokenizer.template = template
    with pytest.raises(ValueError, match=message):
        model.chat([{"role": "user", "content": "Hi"}])


def test_words_beyond_the_vocabulary_are_refused(tmp_path: Path) -> None:
    llama_folder(tmp_path, vocab_size=64)
    bytes_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="expected tokens from 0 to 63, which is the vocabulary"):
        llm.load(tmp_path).generate("hello")


def test_damaged_tokenizers_are_refused(tmp_path: Path) -> None:
    llama_folder(tmp_path)
    bytes_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    whole = path.read_text()
    for text in ("{}", "[]", whole[: len(whole) // 2], whole.replace("BPE", "ABC")):
        path.write_text(text)
        with pytest.raises(llm.ModelFileError, match="tokenizer"):
            llm.load(tmp_path)


def test_missing_tokenizer_leaves_words(tmp_path: Path) -> None:
    llama_folder(tmp_path)
    words = RNG.integers(3, V, 4).tolist()
    assert len(list(llm.load(tmp_path).generate(words, max_new=3, stop=[]))) <= 3
