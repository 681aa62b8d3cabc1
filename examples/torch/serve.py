"""Serves a compiled PyTorch model over HTTP from several threads.

python examples/torch/serve.py --port 8000

A request is a batch of digits as JSON, `POST /` with ``[[64 numbers from 0 to 16], ...]``, and the
answer the digit that each row shows, ``[3, 1, ...]``. Several requests run at once: a compiled
model may be called from any number of threads. Batches of all sizes share one graph, and
single rows have one of their own, both traced before the first request.
"""

from __future__ import annotations

import argparse
import http.server
import json
from typing import Any

import sklearn.datasets
import torch
from torch import nn
from torch.nn import functional

import dlprim.torch

PIXELS = 64
MOST = 256  # digits of a request


def trained() -> nn.Module:
    """A small network that knows the digits of scikit-learn."""
    torch.manual_seed(0)
    found = sklearn.datasets.load_digits()
    images = torch.tensor(found.data, dtype=torch.float32)
    digits = torch.tensor(found.target)
    model = nn.Sequential(nn.BatchNorm1d(PIXELS), nn.Linear(PIXELS, 128), nn.ReLU())
    model.append(nn.Linear(128, 10))
    fast = torch.compile(model, backend="dlprim", dynamic=False)
    optimizer = dlprim.torch.AdamW(model.parameters(), 3e-3)
    for _ in range(4):
        for chosen in torch.randperm(len(images) // 64 * 64).split(64):
            loss = functional.cross_entropy(fast(images[chosen]), digits[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


class Service:
    """A model whose parameters are packed once, called by any thread."""

    def __init__(self, model: nn.Module) -> None:
        self._model = torch.compile(model, backend="dlprim", options={"freeze": True})
        several = torch.zeros(MOST, PIXELS)
        torch._dynamo.mark_dynamic(several, 0, min=2, max=MOST)
        for x in (several, torch.zeros(1, PIXELS)):  # PyTorch traces one row apart
            self(x)

    def __call__(self, x: torch.Tensor) -> list[int]:
        with torch.inference_mode():
            found: list[int] = self._model(x).argmax(1).tolist()
        return found


def batch_of(body: bytes) -> torch.Tensor:
    """The rows of a request; ValueError says what is wrong with it."""
    rows: Any = json.loads(body)
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST:
        raise ValueError(f"expected a list of 1 to {MOST} rows")
    if any(not isinstance(it, list) or len(it) != PIXELS for it in rows):
        raise ValueError(f"expected rows of {PIXELS} numbers")
    try:
        return torch.tensor(rows, dtype=torch.float32)
    except (TypeError, ValueError):
        raise ValueError(f"expected rows of {PIXELS} numbers") from None


def handler_of(service: Service) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # a connection may ask more than once

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                self._answer(200, service(batch_of(body)))
            except ValueError as error:
                self._answer(400, {"error": str(error)})

        def _answer(self, status: int, content: Any) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Requests are not printed."""

    return Handler


def serving(port: int) -> http.server.ThreadingHTTPServer:
    """A server with a thread for each connection; `serve_forever` runs it."""
    service = Service(trained())
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler_of(service))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0: one that is free")
    server = serving(parser.parse_args().port)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
