"""One thread that writes the texts of all clients: they share each reading of the weights."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dlprim.llm.generation import Batch, Request, Speech

if TYPE_CHECKING:
    from dlprim.llm.model import LanguageModel


class Event(NamedTuple):
    """A piece of text, how many tokens were written, and why the text ends, or None."""

    text: str
    tokens: int
    end: str | None


class Job:
    """A text that a client waits for.

    Parameters
    ----------
    request : Request
    speech : Speech
    tell : callable
        Called with each `Event` by the thread that writes.
    """

    def __init__(self, request: Request, speech: Speech, tell: Callable[[Event], None]) -> None:
        self.request, self.speech, self.tell = request, speech, tell
        self.is_cancelled, self.tokens = False, 0

    def cancel(self) -> None:
        """Says that nobody waits any more."""
        self.is_cancelled = True

    def written(self, token: int | None, end: str | None) -> bool:
        """Tells what a token adds; whether the text is at its end."""
        piece, stopped = "", False
        if token is not None:
            self.tokens += 1
            piece, stopped = self.speech.push(token)
        reason = "stop" if stopped else "length" if end == "full" else end
        if reason is not None and not stopped:
            piece += self.speech.rest()
        if piece or reason is not None:
            self.tell(Event(piece, self.tokens, reason))
        return reason is not None


class Engine:
    """Writes texts of several clients at once, and lets others wait.

    Parameters
    ----------
    model : LanguageModel
    capacity : int
        Tokens of a text, with its prompt.
    clients : int
        Texts that are written at once.
    """

    def __init__(self, model: LanguageModel, *, capacity: int = 4096, clients: int = 8) -> None:
        self.model, self.capacity = model, min(capacity, model.config.length)
        self._cache = model.cache(self.capacity, sequences=clients)
        self._batch = Batch(model, self._cache)
        self._jobs: dict[int, Job] = {}
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_open = True
        self._thread = threading.Thread(target=self._run, daemon=True, name="dlprim.llm")
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Lets a job wait for its turn."""
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def close(self) -> None:
        """Stops writing."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while self._take():
            try:
                self._step()
            except Exception as error:  # the other texts are at fault no less than any
                for slot in list(self._jobs):
                    self._jobs[slot].tell(Event("", 0, f"error: {error}"))
                    self._end(slot)

    def _take(self) -> bool:
        """Gives waiting jobs a place; waits where there is nothing to do."""
        with self._changed:
            while self._is_open and not self._jobs and not self._waiting:
                self._changed.wait()
            for slot in self._batch.free:
                if self._waiting and self._is_open:
                    self._begin(slot, self._waiting.popleft())
            return self._is_open

    def _begin(self, slot: int, job: Job) -> None:
        if not job.is_cancelled:
            self._cache[slot].clear()
            self._batch.add(slot, job.request)
            self._jobs[slot] = job

    def _step(self) -> None:
        for slot in [slot for slot, it in self._jobs.items() if it.is_cancelled]:
            self._end(slot)
        for slot, token, end in self._batch.step() if self._jobs else ():
            if self._jobs[slot].written(token, end):
                self._end(slot)

    def _end(self, slot: int) -> None:
        self._batch.remove(slot)
        del self._jobs[slot]
