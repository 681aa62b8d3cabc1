"""One side of `bench_torch.py`, in a process of its own: answers questions on stdin.

``make`` makes a model and runs it once, compiled or not; ``save`` writes what that gave; ``time``
runs it again; ``memory`` and ``flops`` say what it took.
"""

from __future__ import annotations

import contextlib
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

import torch_cases
from threads_worker import serve

_SEED = 1  # of the masks of dropout of the first step
_OF_TRAINING = 3  # products of a step for each of the forward pass


def _dlprim(model: torch.nn.Module, is_frozen: bool) -> Callable[..., Any]:
    import dlprim.torch  # for a checkout that is not installed

    assert dlprim.torch.backend is not None
    options = {"freeze": True} if is_frozen else None
    return torch.compile(model, backend="dlprim", options=options)


def _inductor(model: torch.nn.Module, is_frozen: bool) -> Callable[..., Any]:
    torch._inductor.config.freezing = is_frozen
    return torch.compile(model)


_COMPILED: dict[str, Callable[[torch.nn.Module, bool], Callable[..., Any]]] = {
    "dlprim": _dlprim,
    "inductor": _inductor,
    "eager": lambda model, _: model,
}


def _optimizer(side: str, case: torch_cases.Case) -> Any:
    """PyTorch's own as people call them, dlprim's in their place."""
    home: Any = torch.optim
    if side == "dlprim":
        import dlprim.torch as home
    if case.is_adam:
        fused = {} if side == "dlprim" else {"fused": True}
        return home.AdamW(case.model.parameters(), 1e-4, **fused)
    return home.SGD(case.model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)


class Runner:
    """A model, and a step of it."""

    def __init__(
        self, side: str, model: str, training: bool, narrow: bool, batch: int | None,
        tiny: bool, dropout: float,
    ) -> None:  # fmt: skip
        case = torch_cases.make(model, batch, tiny, dropout)
        if case.is_images:
            last = {"memory_format": torch.channels_last}
            case = case._replace(model=case.model.to(**last), src=case.src.to(**last))
        self.case, self.narrow, self.training = case, narrow, training
        case.model.train(training)
        self._run = _COMPILED[side](case.model, not training)
        self._optimizer = _optimizer(side, case)

    def step(self) -> list[np.ndarray]:
        """The loss and the size of each gradient, before the weights move; or the scores."""
        if not self.training:
            with torch.inference_mode(), self._autocast():
                return [self._run(self.case.src).float().numpy()]
        self._optimizer.zero_grad()
        with self._autocast():
            scores = self._run(self.case.src)
            loss = torch.nn.functional.cross_entropy(scores.float(), self.case.targets)
        loss.backward()
        return [loss.detach().numpy()]

    def update(self) -> None:
        if self.training:
            self._optimizer.step()

    def gradients(self) -> list[np.ndarray]:
        grads = [it.grad for it in self.case.model.parameters() if it.grad is not None]
        return [np.array([it.norm().item() for it in grads])] if grads else []

    def _autocast(self) -> Any:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.narrow)


def flops(case: torch_cases.Case) -> float:
    """Nominal operations of the products of a step, or of inference."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # It knows neither the fused attention of CPUs nor oneDNN's LSTM, but what these are of.
    counter = FlopCounterMode(display=False)
    training = case.model.training
    with counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of GPUs that are not there
        with torch.backends.mkldnn.flags(enabled=False):
            case.model.eval()(case.src)
    case.model.train(training)
    return float(counter.get_total_flops()) * (_OF_TRAINING if training else 1)


def _runner(side: str, **how: Any) -> Any:
    if side != "step":
        return Runner(side, **how)
    import torch_steps

    make = partial(torch_cases.make, *(how[it] for it in ("model", "batch", "tiny", "dropout")))
    return torch_steps.StepRunner(how["model"], make, how["narrow"])


@contextlib.contextmanager
def _timed() -> Iterator[list[float]]:
    found: list[float] = []
    begin = time.perf_counter()
    yield found
    found.append(time.perf_counter() - begin)


class _Process:
    """What is asked."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._first: list[np.ndarray] = []

    def answer(self, question: dict[str, Any]) -> Any:
        asked: Callable[..., Any] = getattr(self, question.pop("do"))
        return asked(**question)

    def make(self, threads: int, **how: Any) -> dict[str, Any]:
        """The seconds of the first step, or what went wrong."""
        torch.set_num_threads(threads)
        try:
            self._runner = _runner(**how)
            torch.manual_seed(_SEED)
            with _timed() as found:
                self._first = self._runner.step()
            self._first += self._runner.gradients()
            self._runner.update()
        except Exception as error:  # of a compiler: the other sides are measured all the same
            return {"missing": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        return {"first": found[0]}

    def save(self, to: str) -> None:
        np.savez(to, *self._first)

    def time(self) -> float:
        assert self._runner is not None
        with _timed() as found:
            self._runner.step()
            self._runner.update()
        return found[0]

    def memory(self) -> int:
        """Bytes that were resident at most."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def flops(self) -> float:
        assert self._runner is not None
        return flops(self._runner.case)


if __name__ == "__main__":
    serve(_Process().answer)
