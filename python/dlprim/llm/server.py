"""Completions and chat over HTTP on this machine, in the form that OpenAI's clients speak."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.llm.generation import Request, Speech, stops_of
from dlprim.llm.packages import package
from dlprim.llm.sampling import Sampling
from dlprim.llm.serving import Engine, Event, Job

if TYPE_CHECKING:
    from dlprim.llm.model import LanguageModel

_MOST_OCTETS = 1 << 22  # of a request
_HOSTS = ["127.0.0.1", "localhost", "[::1]", "testserver"]  # and no name that others resolve
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")


class _Asked:
    """What a client asks for, checked."""

    def __init__(self, engine: Engine, body: Mapping[str, Any], is_chat: bool) -> None:
        model, self.is_chat = engine.model, is_chat
        if model.tokenizer is None:
            raise ValueError("the model has no tokenizer, expected one")
        if body.get("n", 1) != 1:
            raise ValueError(f"n is {body['n']!r:.60}, expected 1")
        self.tokens = self._prompt(model, body)
        room = engine.capacity - len(self.tokens)
        if room < 1:
            raise ValueError(
                f"the prompt has {len(self.tokens)} tokens, expected fewer than {engine.capacity}"
            )
        given = {it: body[it] for it in _SAMPLING if body.get(it) is not None}
        self.sampling = Sampling(**{"temperature": 1.0, **given})
        most = body.get("max_completion_tokens") or body.get("max_tokens") or room
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise ValueError(f"max_tokens is {most!r:.60}, expected an integer of at least 1")
        self.max_new = min(most, room)
        stops, self.stops = stops_of(body.get("stop") or (), model.tokenizer)
        self.ends = stops.union(model.config.stops, model.tokenizer.stops())
        self.is_streamed = body.get("stream") is True

    def _prompt(self, model: LanguageModel, body: Mapping[str, Any]) -> list[int]:
        assert model.tokenizer is not None
        if self.is_chat:
            messages = body.get("messages")
            if not isinstance(messages, list) or not all(isinstance(it, dict) for it in messages):
                raise ValueError("messages is missing, expected a list of objects")
            found = model.tokenizer.conversation(messages, body.get("tools"))
        else:
            prompt = body.get("prompt")
            if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
                prompt = prompt[0]
            if isinstance(prompt, str):
                found = model.tokenizer.encode(prompt)
            elif isinstance(prompt, list) and all(isinstance(it, int) for it in prompt):
                found = prompt
            else:
                raise ValueError("prompt is missing, expected a text or a list of tokens")
        return [int(it) for it in model.checked(np.array(found, np.int64))[0]]

    def job(self, model: LanguageModel, tell: Any) -> Job:
        assert model.tokenizer is not None
        request = Request(self.tokens, self.sampling, self.max_new, self.ends)
        return Job(request, Speech(model.tokenizer.stream(), self.stops), tell)


def application(model: LanguageModel, *, name: str = "dlprim", **how: int) -> Any:
    """An ASGI application that serves a model.

    Parameters
    ----------
    model : LanguageModel
    name : str
        Of the model, for clients.
    **how
        Of the engine: ``capacity`` (4096) and ``clients`` (8).
    """
    responses = package("starlette.responses", "serving")
    engine = Engine(model, **how)

    def refused(error: Exception, status: int = 400) -> Any:
        told = {"message": str(error), "type": "invalid_request_error"}
        return responses.JSONResponse({"error": told}, status)

    async def completions(request: Any) -> Any:
        is_chat = request.url.path.endswith("chat/completions")
        try:
            body = json.loads(await _body(request))
            if not isinstance(body, dict):
                raise ValueError("the request is no object, expected one as OpenAI's clients send")
            asked = _Asked(engine, body, is_chat)
        except (TypeError, ValueError, RecursionError) as error:
            return refused(error)
        events = _events(engine, asked)
        answer = _Answer(name, asked)
        if asked.is_streamed:
            return responses.StreamingResponse(
                answer.stream(events), media_type="text/event-stream"
            )
        return responses.JSONResponse(await answer.whole(events, request))

    async def models(request: Any) -> Any:
        return responses.JSONResponse({"object": "list", "data": [{"id": name, "object": "model"}]})

    routing, hosts = package("starlette.routing", "serving"), "starlette.middleware.trustedhost"
    trusted = package("starlette.middleware", "serving").Middleware(
        package(hosts, "serving").TrustedHostMiddleware, allowed_hosts=_HOSTS
    )
    routes = [
        routing.Route("/v1/completions", completions, methods=["POST"]),
        routing.Route("/v1/chat/completions", completions, methods=["POST"]),
        routing.Route("/v1/models", models),
    ]
    applications = package("starlette.applications", "serving")
    return applications.Starlette(routes=routes, middleware=[trusted])


async def _body(request: Any) -> bytes:
    octets = b""
    async for piece in request.stream():
        octets += piece
        if len(octets) > _MOST_OCTETS:
            raise ValueError(f"the request has more than {_MOST_OCTETS} bytes, expected fewer")
    return octets


async def _events(engine: Engine, asked: _Asked) -> AsyncGenerator[Event, None]:
    """What is written, until the end or until nobody reads on."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Event]()
    job = asked.job(engine.model, lambda it: loop.call_soon_threadsafe(queue.put_nowait, it))
    engine.submit(job)
    try:
        while True:
            event = await queue.get()
            yield event
            if event.end is not None:
                return
    finally:
        job.cancel()


class _Answer:
    """What is sent for the events of a text."""

    def __init__(self, name: str, asked: _Asked) -> None:
        self._asked, kind = asked, "chat.completion" if asked.is_chat else "text_completion"
        streamed = kind + ".chunk" if asked.is_streamed and asked.is_chat else kind
        self._head = {"id": uuid.uuid4().hex, "object": streamed, "created": int(time.time())}
        self._head["model"] = name

    def _with(self, text: str, end: str | None, key: str) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": end}
        if self._asked.is_chat:
            choice[key] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return {**self._head, "choices": [choice]}

    async def whole(self, events: AsyncGenerator[Event, None], request: Any) -> dict[str, Any]:
        text, count, end = "", 0, None
        async with aclosing(events):
            async for event in events:
                text, count, end = text + event.text, event.tokens, event.end
                if await request.is_disconnected():
                    break
        read = len(self._asked.tokens)
        usage = {"prompt_tokens": read, "completion_tokens": count, "total_tokens": read + count}
        return {**self._with(text, end, "message"), "usage": usage}

    async def stream(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[str, None]:
        async with aclosing(events):
            async for event in events:
                yield f"data: {json.dumps(self._with(event.text, event.end, 'delta'))}\n\n"
        yield "data: [DONE]\n\n"


def serve(model: LanguageModel, *, port: int = 8000, **how: Any) -> None:
    """Serves a model on the loopback interface until the process is interrupted.

    Parameters
    ----------
    model : LanguageModel
    port : int
    **how
        As for `application`.
    """
    uvicorn = package("uvicorn", "serving")
    uvicorn.run(application(model, **how), host="127.0.0.1", port=port, log_level="warning")
