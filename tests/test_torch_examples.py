"""The programs of examples/torch: they learn what they are shown, and answer several at once."""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is what compiles")

pytestmark = [pytest.mark.any_level, pytest.mark.slow]

FOLDER = Path(__file__).parent.parent / "examples" / "torch"

if not FOLDER.is_dir():
    pytest.skip(f"{FOLDER} is not there: no source checkout", allow_module_level=True)

needs_digits = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="the digits are scikit-learn's"
)


def run(name: str, *flags: str) -> str:
    command = [sys.executable, str(FOLDER / name), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracy(printed: str) -> float:
    found = re.search(r"^accuracy (0\.\d+|1\.000)$", printed, re.M)
    assert found is not None, printed
    return float(found[1])


def test_bert_tells_packages_apart() -> None:
    assert accuracy(run("bert.py")) >= 0.85  # whoever says asyncio has 0.53


@needs_digits
@pytest.mark.parametrize("flags", [(), ("--bfloat16",)], ids=["float32", "bfloat16"])
def test_resnet18_reads_digits(flags: tuple[str, ...]) -> None:
    assert accuracy(run("resnet18.py", *flags)) >= 0.9


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, str(FOLDER / "serve.py"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r":(\d+)$", server.stdout.readline())
        assert found is not None, server.wait()
        yield int(found[1])
        server.terminate()


def ask(port: int, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/", body if isinstance(body, str) else json.dumps(body))
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


@needs_digits
def test_a_server_answers_batches_of_several_at_once(port: int) -> None:
    from sklearn.datasets import load_digits

    found = load_digits()
    sizes = [1, 2, 3, 5, 8, 1, 13, 100, 256, 31, 1, 64] * 3
    ends = np.cumsum(sizes)
    parts = [slice(end - n, end) for n, end in zip(sizes, ends, strict=True)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda it: ask(port, found.data[it].tolist()), parts))
    assert {status for status, _ in answers} == {200}
    assert [len(digits) for _, digits in answers] == [len(found.target[it]) for it in parts]
    digits = np.concatenate([digits for _, digits in answers])
    assert np.mean(digits == found.target[: len(digits)]) >= 0.95
    alone = [digit for row in found.data[:40] for digit in ask(port, [row.tolist()])[1]]
    assert alone == digits[:40].tolist()


@needs_digits
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "Expecting property name"),
        ([], "expected a list of 1 to 256 rows"),
        ([[0.0] * 63], "expected rows of 64 numbers"),
        ([["0"] * 64], "expected rows of 64 numbers"),
    ],
    ids=["no-json", "no-rows", "short", "text"],
)
def test_a_server_says_what_a_request_lacks(port: int, body: Any, said: str) -> None:
    status, answer = ask(port, body)
    assert status == 400
    assert said in answer["error"]
