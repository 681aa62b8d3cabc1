"""`einsum` and `matmul` as formulas."""

from __future__ import annotations

import string
import sys
from functools import lru_cache
from operator import is_
from typing import Any

from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import float_view
from dlprim.arguments.instead import instead
from dlprim.arguments.traced import traced_among
from dlprim.lang.compiled import CompiledFormula
from dlprim.lang.definitions import Definition, contraction

_ELLIPSIS = "..."
_SPREAD = sys.maxunicode - 64  # letters of an ellipsis, which nobody writes
# What ran last for these subscripts, on operands of which no axis is left out: it says of others
# whether they are the same to it.
_recent: dict[str, CompiledFormula] = {}
_MOST_RECENT = 1024


def einsum(subscripts: str, *arrays: Any, out: Any = None) -> Array:
    """Einstein's sum over products of elements, as `numpy.einsum` and `torch.einsum`.

    Products of several arrays are computed in the order with the fewest operations, each as a
    product of matrices where one hides in it.

    Parameters
    ----------
    subscripts : str
        ``"bij,bjk->bik"``: a letter for every axis, repeated letters are the diagonal, letters that
        are not on the right are summed over, ``...`` stands for axes that broadcast. Without
        ``->`` the result has all letters that occur once, in alphabetical order.
    arrays
        float32 or bfloat16 with any strides. An axis of extent 1 goes with any other.
    out : ndarray, optional
        C-contiguous array that receives the result and shares no memory with an operand.

    Returns
    -------
    ndarray
        Of the dtype of the arrays.

    Raises
    ------
    ValueError
        Where subscripts and arrays do not fit.

    Examples
    --------
    >>> a, b = np.ones((5, 2, 3), np.float32), np.ones((5, 3, 4), np.float32)
    >>> dlprim.einsum("bij,bjk->bik", a, b).shape
    (5, 2, 4)
    """
    if not isinstance(subscripts, str):
        raise TypeError(f"subscripts is of type {type(subscripts).__name__}, expected a str")
    recent = _recent.get(subscripts)
    if recent is not None:
        known: Array | None = recent.call_if_current(arrays, out)
        if known is not None:
            return known
    traced = traced_among(arrays)
    if traced is not None:
        how = {"out": out}
        return traced.called("einsum", (subscripts, *arrays), how)  # type: ignore[no-any-return]
    views = [float_view(f"operand {i}", array) for i, array in enumerate(arrays)]
    letters, kept, definition = _prepared(subscripts, tuple(view.shape for view in views))
    squeezed = [
        view if len(axes) == view.ndim else _without(view, axes)
        for view, axes in zip(views, kept, strict=True)
    ]
    result: Array = definition._run(tuple(squeezed), out, letters)
    if definition.latest is not None and all(map(is_, squeezed, views)):
        if len(_recent) >= _MOST_RECENT:
            _recent.clear()
        _recent[subscripts] = definition.latest
    return result


@instead(input="a", other="b")
def matmul(a: Any, b: Any, out: Any = None) -> Array:
    """The product of matrices in the last two axes, the axes before broadcast: `numpy.matmul`.

    Parameters
    ----------
    a : array of float32 or bfloat16, (..., m, k) or (k,)
    b : array of the same dtype, (..., k, n) or (k,)
        Any strides: a transposed view is multiplied as it lies.
    out : ndarray, optional
        C-contiguous array that receives the result and shares no memory with an operand.

    Returns
    -------
    ndarray
        (..., m, n), without m where a is a vector and without n where b is one.

    Raises
    ------
    ValueError
        Where shapes do not fit.
    TypeError
        For an array that is neither float32 nor bfloat16.
    """
    try:
        a, b = float_view("a", a), float_view("b", b)
    except TypeError:
        traced = traced_among((a, b))
        if traced is None:
            raise
        return traced.called("matmul", (a, b), {"out": out})  # type: ignore[no-any-return]
    for name, operand in (("a", a), ("b", b)):
        if operand.ndim == 0:
            raise ValueError(f"{name} is a number, expected a vector, a matrix or several matrices")
    terms, extent = a.shape[-1], b.shape[0 if b.ndim == 1 else -2]
    if extent != terms:
        raise ValueError(f"b has {extent} rows, expected {terms} as a has columns")
    left = "k" if a.ndim == 1 else "...mk"
    right = "k" if b.ndim == 1 else "...kn"
    row, column = "" if a.ndim == 1 else "m", "" if b.ndim == 1 else "n"
    return einsum(f"{left},{right}->...{row}{column}", a, b, out=out)


def _without(view: Array, axes: tuple[int, ...]) -> Array:
    """The array without its axes of extent 1 that are not among these."""
    return view[tuple(slice(None) if axis in axes else 0 for axis in range(view.ndim))]


@lru_cache(maxsize=1024)
def _prepared(
    subscripts: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[dict[str, int], list[tuple[int, ...]], Definition]:
    """Extents of letters, the axes of each operand that the formula has, and the formula."""
    terms, result = _terms(subscripts, [len(shape) for shape in shapes])
    extents: dict[str, int] = {}
    for number, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for letter, extent in zip(term, shape, strict=True):
            known = extents.setdefault(letter, extent)
            if known == 1:
                extents[letter] = extent
            elif extent not in (1, known):
                raise ValueError(
                    f"operand {number} has extent {extent} along {letter!r} of {subscripts!r}, "
                    f"expected {known} as before"
                )
    kept = [
        tuple(axis for axis, letter in enumerate(term) if shape[axis] == extents[letter])
        for term, shape in zip(terms, shapes, strict=True)
    ]
    names = {letter: f"i{number}" for number, letter in enumerate(extents)}
    reads = [
        f"x{number}({','.join(names[term[axis]] for axis in axes)})"
        for number, (term, axes) in enumerate(zip(terms, kept, strict=True))
    ]
    target = f"y({','.join(names[letter] for letter in result)})"
    definition = contraction(f"{target} +=! {' * '.join(reads)}")
    return {names[letter]: extent for letter, extent in extents.items()}, kept, definition


def _terms(subscripts: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, those of an ellipsis made up."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{subscripts!r} has {len(terms)} operands, but {len(ranks)} were given")
    most = max(
        (rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term),
        default=0,
    )
    spread = [chr(_SPREAD + number) for number in range(most)]
    full = []
    for number, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        missing = rank - len(term.replace(_ELLIPSIS, "", 1))
        if missing < 0 or (missing > 0 and _ELLIPSIS not in term):
            raise ValueError(
                f"operand {number} has {rank} axes, expected as many as in {term!r} of "
                f"{subscripts!r}"
            )
        full.append(term.replace(_ELLIPSIS, "".join(spread[len(spread) - missing :]), 1))
    letters = "".join(full)
    if not arrow:
        once = sorted(it for it in set(letters) if letters.count(it) == 1 and it not in spread)
        right = _ELLIPSIS * (_ELLIPSIS in left) + "".join(once)
    result = right.replace(_ELLIPSIS, "".join(spread), 1)
    known = {*string.ascii_letters, *spread}
    strange = [it for it in letters + result if it not in known]
    if strange:
        raise ValueError(f"{subscripts!r} has {strange[0]!r}, expected a letter for every axis")
    for letter in result:
        if letter not in letters:
            raise ValueError(f"{subscripts!r} has {letter!r} on its right alone")
        if result.count(letter) > 1:
            raise ValueError(f"{subscripts!r} has {letter!r} twice on its right")
    return full, result
