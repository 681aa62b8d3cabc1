"""The cache of generated kernels, and filling it ahead of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

from dlprim import _core
from dlprim.arguments.scalars import shown
from dlprim.kernel.brgemm import Brgemm


def kernel_cache_info() -> dict[str, int]:
    """The caches of generated code.

    Returns
    -------
    dict
        ``entries`` and ``bytes`` of code held now with their bounds ``max_entries`` and
        ``max_bytes``; ``mapped_bytes`` of executable memory in slabs that kernels share, each kept
        while any of its kernels is; ``hits``, ``misses`` and ``evictions`` since the start or the
        last `kernel_cache_clear`; ``row_programs`` and ``row_program_bytes``, the code of row
        programs (softmax, normalisation, optimisers); ``generated``, the functions of machine code
        generated since then, copies included. Kernels that differ only in loop counts share one.
    """
    return _core.kernel_cache_info()


def kernel_cache_clear() -> None:
    """Forget all cached code and counters. Kernels that are still referenced stay alive."""
    _core.kernel_cache_clear()


def warmup(specs: Iterable[Mapping[str, Any]]) -> list[float]:
    """Generate kernels ahead, so that no later call waits for one.

    The kernels are then in the cache, as long as it has room for all of them.

    Parameters
    ----------
    specs : iterable of mappings
        The arguments of a `Brgemm` each: ``[dict(m=64, n=64, k=64, dtype="bfloat16")]``.

    Returns
    -------
    list of float
        Microseconds for each, in the order of `specs`; 0.0 for one that was already cached, for
        example by an equal spec before it.

    Raises
    ------
    TypeError, ValueError
        As for `Brgemm`, with the index of the spec. The kernels of those before it are cached.
    """
    if not isinstance(specs, Iterable):
        raise TypeError(f"specs is {shown(specs)}, expected an iterable of mappings")
    return [_microseconds(number, spec) for number, spec in enumerate(specs)]


def _microseconds(number: int, spec: Mapping[str, Any]) -> float:
    if not isinstance(spec, Mapping):
        raise TypeError(
            f"specs[{number}] is of type {type(spec).__name__}, "
            "expected a mapping of the arguments of Brgemm"
        )
    generated = _core.kernel_cache_info()["misses"]
    start = perf_counter()
    try:
        Brgemm(**spec)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"specs[{number}]: {error}") from error
    elapsed = perf_counter() - start
    return 0.0 if _core.kernel_cache_info()["misses"] == generated else elapsed * 1e6
