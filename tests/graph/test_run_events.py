"""What waits for outputs of a run, from Python: told beside it, and woken by its end."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from dlprim import _core
from dlprim.graph.builder import Builder
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.telling import run_telling

pytestmark = pytest.mark.any_level


def chain(length: int) -> CompiledGraph:
    """The square of x, the square of that, and so on: each an output."""
    b = Builder()
    value = b.input("x", (8, 8), np.dtype(np.float32))
    found = []
    for _ in range(length):
        (value,) = b.emit("matmul", [value, value])
        found.append(value)
    return compile_graph(b.graph(found))


X = np.eye(8, dtype=np.float32)


def test_outputs_are_told_of_in_their_order_with_their_values() -> None:
    network = chain(4)
    out = [np.full((8, 8), -1, np.float32), None, *np.full((2, 8, 8), -1, np.float32)]
    told = []
    found = run_telling(
        network,
        out,
        lambda it: told.append((it, out[it].copy())),
        lambda events: network.run([X], out, events),
    )
    assert [it for it, _ in told] == [0, 2, 3]
    for number, values in told:
        np.testing.assert_array_equal(values, X)
        assert found[number] is out[number]
    assert network.final_first() == [0, 1, 2, 3]


def test_what_it_raises_is_raised_behind_the_run() -> None:
    network, out = chain(2), list(np.zeros((2, 8, 8), np.float32))

    def tell(number: int) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError, match="0"):
        run_telling(network, out, tell, lambda events: network.run([X], out, events))
    np.testing.assert_array_equal(out[1], X)


def test_a_run_that_is_refused_tells_of_nothing() -> None:
    network, out = chain(2), list(np.zeros((2, 8, 8), np.float32))
    told: list[int] = []
    with pytest.raises(TypeError, match="float64"):
        run_telling(
            network, out, told.append, lambda it: network.run([X.astype(np.float64)], out, it)
        )
    assert told == []
    assert not any(it.name == "dlprim-events" for it in threading.enumerate())


def test_events_are_of_one_run() -> None:
    network, events = chain(1), _core.RunEvents()
    assert not events.wait(0, 0.0)
    network.run([X], None, events)
    assert events.wait(0, 0.0)
    assert events.wait(1, 60.0)
    with pytest.raises(ValueError, match="array is 2, but the run has 2"):
        events.wait(2, 0.0)
    with pytest.raises(ValueError, match="expected new ones"):
        network.run([X], None, events)


def test_the_end_wakes_who_waits() -> None:
    events = _core.RunEvents()
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(events.wait(0, 60.0)))
    thread.start()
    events.end()
    thread.join()
    assert found == [False]


def test_ctrl_c_ends_a_wait() -> None:
    events = _core.RunEvents()
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        events.wait(0, 60.0)
    timer.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_a_run_of_its_parent() -> None:
    events = _core.RunEvents()
    child = os.fork()
    if child == 0:
        try:
            events.wait(0, 60.0)
        except RuntimeError as error:
            os._exit(0 if "another process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
