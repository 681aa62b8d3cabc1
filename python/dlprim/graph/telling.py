"""Runs that tell of their outputs before they have ended.

The thread that runs a network is busy with its steps, so another one waits for what becomes final,
without the GIL, and passes it on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dlprim import _core
from dlprim.graph.compiled import CompiledGraph
from dlprim.graph.graph import Array


def run_telling(
    network: CompiledGraph,
    out: Sequence[Array | None],
    tell: Callable[[int], Any],
    run: Callable[[Any], list[Array]],
) -> list[Array]:
    """As ``run(events)``, and ``tell(number)`` for each output with an array in out.

    The network may be in its second part: out then is of the last outputs, and numbers count those.

    It is called on another thread as soon as no step reads or writes that array any more, one
    after the other in the order in which they become final. What it raises is raised here when the
    run has ended; a run that raises tells of nothing more.
    """
    events, inputs = _core.RunEvents(), len(network.graph.inputs)
    begin = len(network.graph.outputs) - len(out)
    order = [it - begin for it in network.final_first() if it >= begin]
    numbers = [it for it in order if out[it] is not None]
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            for number in numbers:
                if not events.wait(inputs + begin + number, math.inf):
                    return
                tell(number)
        except BaseException as error:  # handed to the thread that computes
            failures.append(error)

    thread = threading.Thread(target=watch, name="dlprim-events", daemon=True)
    thread.start()
    try:
        found = run(events)
    finally:
        events.end()
        thread.join()
    if failures:
        raise failures[0]
    return found
