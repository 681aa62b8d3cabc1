"""What the library runs on: instruction set and threads."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from dlprim import _core
from dlprim.arguments.scalars import typed_integer

_DELAYED: dict[str, Callable[[Any], bool]] = {
    "a generator function": inspect.isgeneratorfunction,
    "a coroutine function": inspect.iscoroutinefunction,
    "an asynchronous generator function": inspect.isasyncgenfunction,
}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def isa() -> str:
    """The highest instruction set level in use.

    One of ``"scalar"``, ``"avx2"``, ``"avx2_vnni"``, ``"avx2_vnni_int8"``, ``"avx512"``,
    ``"avx512_vnni"``, ``"avx512_bf16"``, ``"amx"``: what the CPU and the operating system support,
    lowered to the environment variable ``DLPRIM_MAX_ISA`` if that is set, or below it if the CPU
    lacks that level. ``Brgemm.isa`` is the level that a kernel needs.

    The first call of any kernel asks Linux for permission to use AMX tiles, if the CPU has them and
    ``DLPRIM_MAX_ISA`` allows them. Linux refuses if a thread has a signal stack that is too small
    for their contents, and refuses such stacks from then on.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        ``DLPRIM_MAX_ISA`` is not a level.
    """
    return _core.isa()


def get_num_threads() -> int:
    """The number of threads that the next call on this Python thread may use.

    The first of the following that is set: `threads` (or ``threadpoolctl``) on this Python thread;
    `set_num_threads`; the environment variable ``DLPRIM_NUM_THREADS``; ``OMP_NUM_THREADS``; the
    CPUs that the process may use, by its affinity mask and the quota of its control group, divided
    among the MPI ranks of a node that are bound to the same CPUs. ``python -m dlprim`` prints the
    number and its origin.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        ``DLPRIM_NUM_THREADS`` is not a number from 1 to 1024.
    """
    return _core.num_threads()


def set_num_threads(n: int) -> None:
    """Use ``n`` threads from now on, for calls from every Python thread.

    All calling threads share them. Results have the same bits for any number. No more threads run
    at once than the process has CPUs.

    Parameters
    ----------
    n : int
        From 1 to 1024.

    Raises
    ------
    TypeError
        n is not an integer.
    ValueError
        n is less than 1 or more than 1024.
    """
    _core.set_num_threads(_count(n))


def threads(n: int) -> Threads:
    """``with dlprim.threads(n):`` uses ``n`` threads for this Python thread's calls in the block.

    It also holds for coroutines of the same Python thread while the block waits.

    The call alone sets nothing, and gives a RuntimeWarning if its result is never entered.
    `set_num_threads` sets the number permanently, for all Python threads.

    Parameters
    ----------
    n : int
        From 1 to 1024.

    Returns
    -------
    Threads
        For ``with``, or as a decorator around a function.

    Raises
    ------
    TypeError, ValueError
        As for `set_num_threads`.
    """
    return Threads(n)


def allowed_speedup(call: Callable[[], object], threads: int) -> float:
    """The speedup that ``threads`` threads could reach over one, by the plans of ``call``.

    The threads need not exist. ``call`` runs once normally, to prepare everything, and then twice
    on this Python thread only, where kernels add up their estimated times instead of computing and
    loops distribute their tasks to that many threads. A loop costs 5 microseconds, or 1 directly
    after another one. Memory bandwidth, which threads share, is not included.

    Whatever ``call`` writes holds no meaningful numbers afterwards: results, gradients and, for a
    training step, the parameters and running statistics of the model.

    Parameters
    ----------
    call : callable
        Called without arguments; for example a training step.
    threads : int
        From 1 to 1024.

    Returns
    -------
    float
        1 if nothing is estimated.

    Raises
    ------
    TypeError, ValueError
        As for `set_num_threads`.

    Examples
    --------
    >>> x, w = np.ones((4096, 512), np.float32), np.ones((512, 512), np.float32)
    >>> 3 < dlprim.allowed_speedup(lambda: dlprim.linear(x, w), threads=4) <= 4
    True
    """
    n = _count(threads, "threads")
    call()
    alone = _core.priced(call, 1)[0]
    shared = _core.priced(call, n)[1]
    return alone / shared if shared > 0 else 1.0


class Threads(ContextDecorator):
    """What `threads` returns; for ``with``, or as a decorator around a function.

    TypeError where that is a generator function or a coroutine function, which run after the call.
    """

    def __init__(self, n: int) -> None:
        self._is_used = True  # as far as `__del__` knows, until n is a number of threads
        self._n = _count(n)
        self._before: list[int] = []
        self._is_used = False

    def _recreate_cm(self) -> Threads:
        """For each call of a decorated function: several Python threads may be inside of it."""
        return Threads(self._n)

    def __enter__(self) -> None:
        self._is_used = True
        self._before.append(_core.set_threads_of_caller(self._n))

    def __exit__(self, *raised: object) -> None:
        _core.set_threads_of_caller(self._before.pop())

    def __call__(self, func: _Function) -> _Function:
        self._is_used = True
        for kind, is_kind in _DELAYED.items():
            if is_kind(func):
                raise TypeError(
                    f"func is {kind}, whose body runs behind the call and outside of the block, "
                    f"expected `with dlprim.threads({self._n}):` inside of it"
                )
        return super().__call__(func)

    def __del__(self) -> None:
        if not self._is_used:
            warnings.warn(
                f"dlprim.threads({self._n}) was never entered and has set nothing, expected "
                f"`with dlprim.threads({self._n}):` or dlprim.set_num_threads({self._n})",
                RuntimeWarning,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"<dlprim.threads({self._n}), which holds inside a with block>"


def _count(n: int, name: str = "n") -> int:
    count = typed_integer(name, n)
    if not 1 <= count <= 1024:
        raise ValueError(f"{name} is {count}, expected 1 to 1024 threads")
    return count
