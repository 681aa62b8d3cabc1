"""What the library runs on: instruction set and threads."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dlprim import _core
from dlprim.arguments.scalars import typed_integer


def isa() -> str:
    """The highest instruction set level in use.

    One of ``"scalar"``, ``"avx2"``, ``"avx512"``, ``"avx512_vnni"``, ``"avx512_bf16"``: what the
    CPU and the operating system support, lowered to the environment variable ``DLPRIM_MAX_ISA``
    where that is set. A kernel says in ``Brgemm.isa`` which level it needs itself.

    ValueError where ``DLPRIM_MAX_ISA`` names no level.
    """
    return _core.isa()


def get_num_threads() -> int:
    """Threads that the next call of a primitive on this Python thread uses.

    Starts from ``OMP_NUM_THREADS`` and follows ``threadpoolctl``. It is 1 in a process that was
    forked after dlprim had started threads.
    """
    return _core.num_threads()


def set_num_threads(n: int) -> None:
    """Use ``n`` threads from now on, on every Python thread.

    Results do not depend on the number of threads, bit for bit.

    TypeError where ``n`` is not an integer; ValueError where it is less than 1 or more than 1024;
    RuntimeError where it is more than 1 in a process that was forked after dlprim had started
    threads.
    """
    count = typed_integer("n", n)
    if not 1 <= count <= 1024:
        raise ValueError(f"n is {count}, expected 1 to 1024 threads")
    _core.set_num_threads(count)


@contextmanager
def threads(n: int) -> Iterator[None]:
    """``with dlprim.threads(n):`` uses ``n`` threads inside the block.

    Errors: as `set_num_threads` does.
    """
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        # In a child that was forked inside the block there are no threads to go back to.
        with suppress(RuntimeError):
            set_num_threads(before)
