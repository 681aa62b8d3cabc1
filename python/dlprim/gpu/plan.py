"""A definition as steps: products with their ends, and rows that several statements share.

Statements are one kernel where each element is needed by one program alone: what that asks of their
indices is more than the CPU's planner asks of distances, and nothing of caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from dlprim.gpu.emitter import Array
from dlprim.gpu.product import Product, product_in, with_end
from dlprim.gpu.rows import Rows, rows_of, with_next
from dlprim.gpu.tree import Statement, reads_in

Step: TypeAlias = Product | Rows


def steps_of(
    statements: Sequence[Statement], arrays: Mapping[str, Array], returns: Sequence[str]
) -> list[Step]:
    """In order; of each what has to be written to memory, because others read it."""
    steps: list[Step] = []
    waiting = list(statements)
    while waiting:
        first = waiting.pop(0)
        step: Step = product_in(first, arrays) or rows_of(first)
        while waiting and (longer := _longer(step, waiting[0], arrays)):
            step = longer
            waiting.pop(0)
        results = {one.result for one in step.statements}
        stored = frozenset(it for it in results if _is_read(it, waiting, returns))
        steps.append(replace(step, stored=stored))
    return steps


def _longer(step: Step, following: Statement, arrays: Mapping[str, Array]) -> Step | None:
    if product_in(following, arrays) is not None:
        return None
    reads = [read for one in step.statements for read in reads_in(one.value)]
    # Other programs may not have read yet what it writes.
    if any(
        it.value == following.result and it.operands != following.target.operands for it in reads
    ):
        return None
    return with_end(step, following) if isinstance(step, Product) else with_next(step, following)


def _is_read(name: str, later: Sequence[Statement], returns: Sequence[str]) -> bool:
    """Before it is written anew."""
    for one in later:
        if any(it.value == name for it in reads_in(one.value)):
            return True
        if one.result == name:
            return not one.initializes
    return name in returns
