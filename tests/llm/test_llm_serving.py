"""The server: answers of several clients at once, streams, clients that leave, wrong requests."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

for package in ("safetensors", "tokenizers", "jinja2", "starlette", "uvicorn"):
    pytest.importorskip(package, reason='it is served with it: pip install "dlprim[llm]"')

from test_llm_text import bytes_tokenizer  # noqa: E402
from tiny_models import llama_folder  # noqa: E402

from dlprim import llm  # noqa: E402
from dlprim.llm.command_line import main  # noqa: E402
from dlprim.llm.server import application  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llama_folder(tmp_path)
    bytes_tokenizer(tmp_path)
    return tmp_path


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    import uvicorn

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    made = application(llm.load(folder), clients=4, capacity=96)
    server = uvicorn.Server(uvicorn.Config(made, port=number, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield number
    server.should_exit = True
    thread.join()


def asked(port: int, path: str, body: Any, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, octets, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def completion(port: int, prompt: str, **others: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 12, **others}
    status, text = asked(port, "/v1/completions", body)
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def test_eight_clients_get_what_each_would_alone(port: int, folder: Path) -> None:
    prompts = [f"say{it}" for it in range(8)]
    model = llm.load(folder)
    due = ["".join(model.generate(it, max_new=12)) for it in prompts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda it: completion(port, it), prompts))
    assert [it["choices"][0]["text"] for it in found] == due
    ends = {it["choices"][0]["finish_reason"] for it in found}
    assert ends <= {"stop", "length"}
    assert found[0]["usage"]["prompt_tokens"] == 5


def test_streams_are_the_text_in_pieces(port: int) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    body = {"messages": messages, "temperature": 2.0, "seed": 3, "max_tokens": 20}
    status, text = asked(port, "/v1/chat/completions", body)
    whole = json.loads(text)["choices"][0]["message"]["content"]
    assert status == 200
    status, text = asked(port, "/v1/chat/completions", {**body, "stream": True})
    lines = [it.removeprefix("data: ") for it in text.split("\n\n") if it]
    assert lines.pop() == "[DONE]"
    parts = [json.loads(it)["choices"][0] for it in lines]
    assert "".join(it["delta"]["content"] for it in parts) == whole
    assert parts[-1]["finish_reason"] in ("stop", "length")
    if len(whole) > 4:
        stopped = completion(port, "Hi", temperature=2.0, seed=3, stop=whole[2:4])
        assert whole[2:4] not in stopped["choices"][0]["text"]


def test_clients_that_leave_make_room_for_others(port: int) -> None:
    for _ in range(6):  # more than are served at once
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = json.dumps({"prompt": "a", "max_tokens": 90, "stream": True}).encode()
            head = (
                f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
            )
            client.sendall(head.encode() + b"\r\n\r\n" + body)
            client.recv(10)
    assert completion(port, "b")["choices"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "Expecting"),
        (b"[]", "the request is no object"),
        ({}, "prompt is missing"),
        ({"prompt": 3}, "prompt is missing"),
        ({"prompt": [10**6]}, "expected tokens from 0 to 130"),
        ({"prompt": "a" * 200}, "expected fewer than 96"),
        ({"prompt": "a", "n": 2}, "n is 2, expected 1"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens is -1"),
        ({"prompt": "a", "temperature": "hot"}, "temperature is 'hot'"),
        ({"prompt": "a", "stop": 2.5}, "stop is 2.5"),
    ],
)
def test_wrong_requests_are_sentences(body: Any, message: str, port: int) -> None:
    status, text = asked(port, "/v1/completions", body)
    assert status == 400
    assert message in json.loads(text)["error"]["message"]


def test_other_names_of_this_machine_are_refused(port: int) -> None:
    """A page that a browser shows must not reach it by a name that it resolves to 127.0.0.1."""
    status, _ = asked(port, "/v1/completions", {"prompt": "a"}, Host="evil.example")
    assert status == 400


def test_program_continues_and_chats(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    due = "".join(llm.load(folder).generate("ab", max_new=8))
    assert main([str(folder), "--prompt", "ab", "--max-new", "8"]) == 0
    assert capsys.readouterr().out == due + "\n"
    lines = iter(["Hi"])

    def line(prompt: str) -> str:
        found = next(lines, None)
        if found is None:
            raise EOFError
        return found

    monkeypatch.setattr("builtins.input", line)
    assert main([str(folder), "--chat", "--max-new", "4"]) == 0
    assert main([str(folder / "none"), "--prompt", "a"]) == 1
    assert "none" in capsys.readouterr().err
    assert main([str(folder), "--prompt", "a", "--temperature", "-1"]) == 1
    assert "temperature is -1" in capsys.readouterr().err


def test_program_measures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "--bench", "--dtype", "int8", "--depth", "20"]) == 0
    assert "decode" in capsys.readouterr().out
