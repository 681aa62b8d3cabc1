"""Tokens of texts, texts of tokens, and conversations as a model was trained on them."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlprim.llm.checkpoint import json_of
from dlprim.llm.packages import package
from dlprim.model_file import ModelFileError

_FILE, _SETTINGS, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
_MOST_CHARACTERS = 1 << 24  # of what a template may repeat or write


class Tokenizer:
    """The tokens of a model.

    Parameters
    ----------
    library : tokenizers.Tokenizer
    template : str, optional
        How conversations are written, for jinja2.
    special : mapping
        Texts that the template may name: "bos_token" and "eos_token".
    """

    def __init__(
        self, library: Any, template: str | None = None, special: Mapping[str, str] | None = None
    ) -> None:
        self._library, self.template, self.special = library, template, dict(special or {})

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """That of a folder as transformers saves it.

        Raises
        ------
        ModelFileError
            There is no tokenizer.json, or it describes none.
        """
        found = folder_tokenizer(Path(folder))
        if found is None:
            raise ModelFileError(f"{folder} has no {_FILE}")
        return found

    def __len__(self) -> int:
        return int(self._library.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text.

        Parameters
        ----------
        text : str
        special : bool
            Whether to put what begins and ends a text around it.
        """
        if not isinstance(text, str):
            raise TypeError(f"text is of type {type(text).__name__}, expected a str")
        return list(self._library.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._library.decode(list(tokens)))

    def stream(self) -> Stream:
        """What gives the text of tokens that come one by one."""
        return Stream(self._library)

    def stops(self) -> tuple[int, ...]:
        """The token that ends a text, if there is one."""
        found = self._library.token_to_id(self.special.get("eos_token", ""))
        return () if found is None else (found,)

    def conversation(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> list[int]:
        """The tokens of a conversation, up to where an answer begins.

        Parameters
        ----------
        messages : sequence of dict
            ``{"role": "user", "content": "..."}``; roles are those that the template knows.
        tools : sequence, optional
            Descriptions of functions, for templates that take them.

        Raises
        ------
        ValueError
            The model has no template, or the template refuses the messages.
        """
        return self.encode(self._written(messages, tools), special=False)

    def _written(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> str:
        if self.template is None:
            raise ValueError(
                "the model has no chat template, expected one that was trained on conversations; "
                "generate() continues plain texts"
            )
        jinja2 = package("jinja2", "writing conversations")
        try:
            template = _environment(jinja2).from_string(self.template)
            text = template.render(
                messages=[dict(it) for it in messages],
                tools=tools,
                add_generation_prompt=True,
                **self.special,
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(f"the chat template refuses the messages: {error}") from error
        except (LookupError, RecursionError, MemoryError) as error:
            raise ValueError(f"the chat template fails: {error!r:.200}") from error
        return str(text)


class Stream:
    """The text of tokens that come one by one: some wait for the rest of a character."""

    def __init__(self, library: Any) -> None:
        decoders = package("tokenizers.decoders", "text")
        self._library, self._stream = library, decoders.DecodeStream(skip_special_tokens=True)

    def push(self, token: int) -> str:
        """What a token adds to the text, which may be nothing yet."""
        return self._stream.step(self._library, token) or ""


def _environment(jinja2: Any) -> Any:
    """A sandbox: templates are part of files that others wrote."""
    sandbox = package("jinja2.sandbox", "writing conversations")

    class Bounded(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc, name-defined]
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            texts = [it for it in (left, right) if isinstance(it, str | list | tuple)]
            numbers = [it for it in (left, right) if isinstance(it, int)]
            if operator == "**" or (texts and numbers and len(texts[0]) * numbers[0] > 1 << 20):
                raise jinja2.TemplateError("it repeats something too often")
            return super().call_binop(context, operator, left, right)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def as_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    made = Bounded(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.filters["tojson"] = as_json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def folder_tokenizer(folder: Path) -> Tokenizer | None:
    """That of a folder; None where it has no tokenizer.json."""
    path = folder / _FILE
    if not path.exists():
        return None
    tokenizers = package("tokenizers", "reading tokenizer.json")
    json_of(path)  # which bounds it
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises no other
        raise ModelFileError(f"{path} describes no tokenizer: {error!s:.200}") from None
    settings = json_of(folder / _SETTINGS) if (folder / _SETTINGS).exists() else {}
    return Tokenizer(library, _template(folder, settings), _special(settings))


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    path = folder / _TEMPLATE
    if path.exists():
        return path.read_text()[:_MOST_CHARACTERS]
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, of names
        named = {it.get("name"): it.get("template") for it in found if isinstance(it, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _special(settings: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name in ("bos_token", "eos_token"):
        value = settings.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[name] = value
    return found
