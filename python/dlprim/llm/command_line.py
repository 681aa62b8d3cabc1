"""The program: continues a text, chats, measures, serves."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from dlprim.llm import LanguageModel, load
from dlprim.llm.bench import SHAPES, RandomWeights, measured
from dlprim.llm.model import DTYPES


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(prog="python -m dlprim.llm", description=__doc__)
    add = made.add_argument
    add("model", nargs="?", help="a folder of transformers, or a file of GGUF")
    add("--dtype", choices=DTYPES, help="of the weights")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--prompt", help="a text to continue")
    what.add_argument("--chat", action="store_true", help="answer what is typed")
    what.add_argument("--serve", action="store_true", help="OpenAI's protocol on 127.0.0.1")
    what.add_argument("--bench", action="store_true", help="tokens a second")
    add("--shape", choices=[*SHAPES], help="with --bench: random weights of this size")
    add("--depth", type=int, default=0, help="with --bench: tokens in the cache")
    add("--port", type=int, default=8000)
    add("--clients", type=int, default=8, help="texts that --serve writes at once")
    add("--context", type=int, default=4096, help="tokens of a text, with its prompt")
    add("--max-new", type=int, default=256, help="the most tokens that are written")
    add("--temperature", type=float, default=0.0)
    add("--top-k", type=int, default=0)
    add("--top-p", type=float, default=1.0)
    add("--min-p", type=float, default=0.0)
    add("--repetition-penalty", type=float, default=1.0)
    add("--seed", type=int)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; the status."""
    asked = parser().parse_args(arguments)
    if asked.shape and asked.bench:
        model = LanguageModel(RandomWeights(SHAPES[asked.shape]), asked.dtype or "int4")
    elif asked.model is None:
        parser().error("expected a model: a folder of transformers, or a file of GGUF")
    else:
        try:
            model = load(asked.model, dtype=asked.dtype)
        except (OSError, ValueError, ImportError) as error:
            print(error, file=sys.stderr)
            return 1
    try:
        return _run(model, asked)
    except (ValueError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(model: LanguageModel, asked: Any) -> int:
    if asked.bench:
        return _bench(model, asked)
    if asked.serve:
        from dlprim.llm.server import serve

        print(f"http://127.0.0.1:{asked.port}/v1", flush=True)
        serve(model, port=asked.port, capacity=asked.context, clients=asked.clients)
        return 0
    names = ("max_new", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    how = {it: getattr(asked, it) for it in names}
    if asked.chat:
        return _chat(model, how)
    if asked.prompt is None:
        parser().error("expected one of --prompt, --chat, --serve and --bench")
    _show(model.generate(asked.prompt, **how))
    return 0


def _chat(model: LanguageModel, how: dict[str, Any]) -> int:
    messages: list[dict[str, str]] = []
    while True:
        try:
            text = input("> ")
        except EOFError:
            return 0
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": _show(model.chat(messages, **how))})


def _show(pieces: Any) -> str:
    found = ""
    for piece in pieces:
        print(piece, end="", flush=True)
        found += piece
    print()
    return found


def _bench(model: LanguageModel, asked: Any) -> int:
    began = time.perf_counter()
    found = measured(model, depth=asked.depth)
    print(
        f"{model.dtype}, {model.nbytes / 1e6:.0f} MB of weights, {asked.depth} tokens cached\n"
        f"prompt of 128  {found.prompt:8.1f} tokens/s\n"
        f"decode         {found.decode:8.1f} tokens/s, {found.fraction:.2f} of reading memory\n"
        f"measured in {time.perf_counter() - began:.0f} s"
    )
    return 0
