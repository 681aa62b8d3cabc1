"""Products: matmul, einsum and what is said by it, as transposes, sums and products of matrices.

That is what the compiler knows best: einsum of two arrays is a product of matrices, possibly many
of them, after axes that only one of the arrays has are summed over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.tracing.array import METHODS, UFUNCS, TracedArray, implements
from dlprim.tracing.functions.moves import lifted
from dlprim.tracing.functions.reductions import axes_within
from dlprim.tracing.refusals import refuse, user_line
from dlprim.tracing.tracer import made, result_type, tracer_of

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Factors as arrays of one type; integers smaller than NumPy's stay what they are."""
    tracer, due = tracer_of((a, b)), result_type((a, b))[0]
    first, second = (TracedArray(tracer, tracer.value(it, due)) for it in (a, b))
    return first, second


def multiplied(a: Any, b: Any, dtype: Any = None) -> Any:
    """``np.matmul``; vectors become matrices."""
    a, b = pair(a, b)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"{user_line()}: matmul takes no array without axes")
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        listed = f"{list(a.shape)} and {list(b.shape)}"
        raise ValueError(f"{user_line()}: matrices of {listed} cannot be multiplied")
    build = a.tracer.build
    y = made(a.tracer, lambda: build.matmul(left.value, right.value))
    shape = y.shape
    if b.ndim == 1:
        shape = shape[:-1]
    if a.ndim == 1:
        shape = (*shape[:-2], *shape[-1:]) if b.ndim > 1 else shape[:-1]
    return y if shape == y.shape else made(y.tracer, lambda: build.reshape(y.value, shape))


UFUNCS[np.matmul] = multiplied


def _vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    return np.sum(a * b, axis=axis)


for _name, _function in {
    "vecdot": _vecdot,
    "matvec": lambda a, b: multiplied(a, b[..., None])[..., 0],
    "vecmat": lambda a, b: multiplied(a[..., None, :], b)[..., 0, :],
}.items():
    if hasattr(np, _name):
        UFUNCS[getattr(np, _name)] = _function


# ---------------------------------------------------------------- einsum


def einsum(subscripts: str, *operands: Any) -> Any:
    """Einstein's sum: two operands at a time, those first that `np.einsum_path` says."""
    tracer = tracer_of(operands)
    due = result_type(operands)[0]
    arrays = [TracedArray(tracer, tracer.value(it, due)) for it in operands]
    terms, result = _terms(subscripts, arrays)
    arrays = [_without_repeats(x, term) for x, term in zip(arrays, terms, strict=True)]
    terms = ["".join(dict.fromkeys(it)) for it in terms]
    while len(arrays) > 1:
        first, second = _next_pair(arrays, terms, result)
        one, other = arrays[first], arrays[second]
        names = terms[first], terms[second]
        rest = [it for place, it in enumerate(terms) if place not in (first, second)]
        needed = set(result).union(*rest)
        kept = "".join(it for it in dict.fromkeys(names[0] + names[1]) if it in needed)
        y = contracted((one, names[0]), (other, names[1]), kept)
        arrays = [it for place, it in enumerate(arrays) if place not in (first, second)] + [y]
        terms = [*rest, kept]
    return _arranged(arrays[0], terms[0], result)


def _terms(subscripts: str, arrays: Sequence[Any]) -> tuple[list[str], str]:
    """Letters of each operand and of the result, an ellipsis as letters that nobody uses."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(arrays):
        raise ValueError(f"{user_line()}: einsum of {len(arrays)} operands has {len(terms)} terms")
    free = [it for it in _LETTERS if it not in text]
    found, most = [], 0
    for term, x in zip(terms, arrays, strict=True):
        count = x.ndim - len(term.replace("...", "")) if "..." in term else 0
        most = max(most, count)
        if count < 0 or len(term.replace("...", "")) + count != x.ndim:
            raise ValueError(f"{user_line()}: '{term}' of einsum is an operand of {x.ndim} axes")
        found.append(term.replace("...", "." * count, 1))
    spread = free[:most]
    terms = ["".join(_named(it, spread)) for it in found]
    if arrow:
        result = "".join(_named(result.replace("...", "." * most), spread))
    else:
        whole = "".join(terms)
        once = sorted(it for it in set(whole) if whole.count(it) == 1 and it not in spread)
        result = "".join([*spread, *once])
    if len(set(result)) < len(result) or not set(result) <= set("".join(terms)):
        raise ValueError(f"{user_line()}: '{subscripts}' of einsum has no such result")
    return terms, result


def _named(term: str, spread: Sequence[str]) -> list[str]:
    """Dots stand for the last of the spread letters."""
    letters = iter(spread[len(spread) - term.count(".") :])
    return [next(letters) if it == "." else it for it in term]


def _without_repeats(x: Any, term: str) -> Any:
    """The diagonal where a letter is there twice."""
    while len(set(term)) < len(term):
        letter = next(it for it in term if term.count(it) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        if x.shape[first] != x.shape[second]:
            raise ValueError(f"{user_line()}: {letter} of einsum has two extents")
        x = np.moveaxis(np.diagonal(x, 0, first, second), -1, first)
        term = term[:second] + term[second + 1 :]
    return x


def _next_pair(arrays: Sequence[Any], terms: Sequence[str], result: str) -> tuple[int, int]:
    if len(arrays) == 2:
        return 0, 1
    shapes = [np.broadcast_to(np.float32(0), it.shape) for it in arrays]
    path = np.einsum_path(f"{','.join(terms)}->{result}", *shapes, optimize="greedy")[0]
    first, second = sorted(path[1][:2])
    return int(first), int(second)


def contracted(one: tuple[Any, str], other: tuple[Any, str], result: str) -> Any:
    """The sum over letters that are not in the result, with each letter once in a term."""
    (a, left), (b, right) = one, other
    extents: dict[str, int] = {}
    for x, term in (one, other):
        for letter, extent in zip(term, x.shape, strict=True):
            known = extents.get(letter, 1)
            if 1 not in (known, extent) and known != extent:
                raise ValueError(f"{user_line()}: {letter} of einsum is {known} and {extent}")
            extents[letter] = extent if known == 1 else known
    a, left = _reduced(a, left, right + result)
    b, right = _reduced(b, right, left + result)
    # Axes of one element go with any: they are left out where the other array has more.
    a, left = _squeezed(a, left, extents)
    b, right = _squeezed(b, right, extents)
    batch = [it for it in left if it in right and it in result]
    summed = [it for it in left if it in right and it not in result]
    rows = [it for it in left if it not in right]
    columns = [it for it in right if it not in left]
    a, b = _reduced_to(a, left, result, summed), _reduced_to(b, right, result, summed)
    left = "".join(it for it in left if it in result or it in summed)
    right = "".join(it for it in right if it in result or it in summed)
    rows, columns = [it for it in rows if it in result], [it for it in columns if it in result]

    def size(letters: Sequence[str]) -> int:
        return math.prod(extents[it] for it in letters)

    lead = tuple(extents[it] for it in batch)
    x = _arranged(a, left, [*batch, *rows, *summed]).reshape(*lead, size(rows), size(summed))
    y = _arranged(b, right, [*batch, *summed, *columns]).reshape(*lead, size(summed), size(columns))
    product = multiplied(x, y) if summed else x * y
    shape = tuple(extents[it] for it in (*batch, *rows, *columns))
    return _arranged(product.reshape(shape), [*batch, *rows, *columns], result)


def _reduced(x: Any, term: str, others: str) -> tuple[Any, str]:
    """Summed over letters that nothing else has."""
    axes = tuple(place for place, it in enumerate(term) if it not in others)
    if not axes:
        return x, term
    return np.sum(x, axis=axes), "".join(it for it in term if it in others)


def _squeezed(x: Any, term: str, extents: dict[str, int]) -> tuple[Any, str]:
    axes = tuple(at for at, it in enumerate(term) if x.shape[at] == 1 and extents[it] != 1)
    if not axes:
        return x, term
    return np.squeeze(x, axes), "".join(it for at, it in enumerate(term) if at not in axes)


def _reduced_to(x: Any, term: str, result: Any, summed: Sequence[str]) -> Any:
    """Summed over letters that the other array had as one element."""
    return _reduced(x, term, "".join([*result, *summed]))[0]


def _arranged(x: Any, term: Sequence[str], result: Sequence[str]) -> Any:
    """With its axes in the order of the result; the others are summed over."""
    extra = tuple(place for place, it in enumerate(term) if it not in result)
    if extra:
        x, term = np.sum(x, axis=extra), [it for it in term if it in result]
    order = tuple(list(term).index(it) for it in result)
    return x if order == tuple(range(len(order))) else np.transpose(x, order)


@implements(np.einsum)
def _einsum(*operands: Any, optimize: Any = False, **named: Any) -> Any:
    if named.keys() - {"dtype", "order", "casting"} or not isinstance(operands[0], str):
        refuse("np.einsum is called with lists of axes", "letters, such as 'ij,jk->ik'")
    return einsum(*operands)


# ---------------------------------------------------------------- what einsum says


def _operands(*arrays: Any) -> list[Any]:
    tracer = tracer_of(arrays)
    return [lifted(it, tracer) for it in arrays]


@implements(np.dot)
def _dot(a: Any, b: Any) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return np.multiply(a, b)
    if np.ndim(b) <= 2:
        return multiplied(a, b)
    return np.tensordot(a, b, ((-1,), (-2,)))


@implements(np.inner)
def _inner(a: Any, b: Any) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return np.multiply(a, b)
    return np.tensordot(a, b, ((-1,), (-1,)))


@implements(np.vdot)
def _vdot(a: Any, b: Any) -> Any:
    return multiplied(np.ravel(a), np.ravel(b))


@implements(np.outer)
def _outer(a: Any, b: Any) -> Any:
    return np.multiply(np.ravel(a)[:, None], np.ravel(b)[None])


@implements(np.kron)
def _kron(a: Any, b: Any) -> Any:
    a, b = _operands(a, b)
    rank = max(a.ndim, b.ndim)
    first, second = ((1,) * (rank - it.ndim) + it.shape for it in (a, b))
    spread = a.reshape([it for n in first for it in (n, 1)])
    across = b.reshape([it for n in second for it in (1, n)])
    return (spread * across).reshape([n * m for n, m in zip(first, second, strict=True)])


@implements(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = _operands(a, b)
    if isinstance(axes, int):
        axes = (tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes)))
    first, second = (axes_within(it, x.ndim) for it, x in zip(axes, (a, b), strict=True))
    if [a.shape[it] for it in first] != [b.shape[it] for it in second]:
        raise ValueError(f"{user_line()}: shape-mismatch for sum")
    left = list(_LETTERS[: a.ndim])
    right = list(_LETTERS[a.ndim : a.ndim + b.ndim])
    for one, other in zip(first, second, strict=True):
        right[other] = left[one]
    kept = [it for at, it in enumerate(left) if at not in first]
    kept += [it for at, it in enumerate(right) if at not in second]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", a, b)


@implements(np.cross)
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    one, other = (axisa, axisb) if axis is None else (axis, axis)
    a, b = np.moveaxis(a, one, -1), np.moveaxis(b, other, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        refuse("np.cross is called with vectors of another length", "3")
    turned = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.moveaxis(np.stack(turned, axis=-1), -1, axisc if axis is None else axis)


METHODS.pop((np.matmul, "outer"), None)
