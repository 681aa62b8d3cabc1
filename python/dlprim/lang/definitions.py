"""Formulas in the notation of Tensor Comprehensions, compiled for the arrays they are called on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core, markup
from dlprim.arguments.arrays import Array
from dlprim.arguments.traced import traced_among
from dlprim.lang.compiled import CompiledFormula, core_definition
from dlprim.lang.operands import (
    integers,
    lie_on_gpu,
    readable,
    require_count,
    results_in,
    type_for,
    with_named,
)

# Shapes that a definition stays compiled for: those that were called last.
_MOST_COMPILED = 256


class Definition:
    """One layer of a text; call it on arrays.

    Parameters
    ----------
    definition
        As `define` makes it.

    Attributes
    ----------
    name : str
    parameters, returns : list of str
        Names of the arrays that go in and come out.
    text : str
        What it was made from.
    """

    def __init__(self, definition: _core.Definition) -> None:
        self._definition = definition
        self.name = definition.name
        self.parameters = definition.parameters
        self._types = definition.types
        self.returns = definition.returns
        self.text = definition.text
        self._gradients: dict[str, Definition] = {}
        self._compiled: OrderedDict[Any, CompiledFormula] = OrderedDict()
        # With the sizes it was compiled for, None for none: what is called again is tried first.
        self._latest: tuple[dict[str, int] | None, CompiledFormula] | None = None

    def __repr__(self) -> str:
        taken, given = ", ".join(self.parameters), ", ".join(self.returns)
        return f"<dlprim.Definition {self.name}({taken}) -> ({given})>"

    def _repr_html_(self) -> str:
        return markup.block(self.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.name, self.text)

    def __call__(self, /, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The results for these arrays, compiled for their shapes on the first call.

        Parameters
        ----------
        arrays
            One for each parameter, with any strides: float32, bfloat16, int8 or uint8, and int32 or
            int64 where it holds places. A number stands for a scalar. The last ones, or all, may be
            given by name.
        out : ndarray, or a sequence of them, optional
            C-contiguous arrays that receive the results and share no memory with an operand.
        named
            Arrays by the names of parameters; else extents of indices, or values of sizes, that the
            arrays do not say.

        Returns
        -------
        ndarray, or a tuple of them
            bfloat16 where all arrays are, int32 where all are of 8 bits, else float32.

        Raises
        ------
        TypeError, ValueError
            Where the arrays do not fit the definition, or it cannot be compiled for them.
        IndexError
            Where a place that is read lies outside its array; nothing is written then.
        """
        if named:
            arrays, named = with_named(self.name, self.parameters, arrays, named)
        return self._run(arrays, out, named)

    @property
    def latest(self) -> CompiledFormula | None:
        """What the last call ran that reads none of its results."""
        return None if self._latest is None else self._latest[1]

    def _run(self, arrays: tuple[Any, ...], out: Any, sizes: Mapping[str, int]) -> Any:
        latest = self._latest
        if latest is not None and (sizes or None) == latest[0]:
            results = latest[1].call_if_current(arrays, out)
            if results is not None:
                return results
        require_count(self.name, self.parameters, len(arrays))
        traced = traced_among(arrays)
        if traced is not None:
            return traced.called("formula", (self, arrays, sizes), {"out": out})
        if lie_on_gpu(arrays):
            return import_module("dlprim.gpu").contract(self, *arrays, out=out, **sizes)
        views = list(map(readable, self.parameters, arrays, self._types))
        shapes = self._shapes_of(out)
        compiled = self._compiled_for(views, integers(sizes), shapes)
        if not compiled._reads_results:
            self._latest = (dict(sizes) or None, compiled)
        return compiled._run(views, out)

    def compile(
        self, /, *shapes: Sequence[int], dtype: npt.DTypeLike = np.float32, **named: Any
    ) -> CompiledFormula:
        """The definition for C-contiguous arrays of these shapes, ready to be called.

        Parameters
        ----------
        shapes
            One for each parameter, the last ones or all by name if you like.
        dtype
            Of all arrays of which the definition does not say that they hold integers; those that
            hold places are int64.
        named
            Shapes by name, and sizes as for a call.
        """
        shapes, sizes = with_named(self.name, self.parameters, shapes, named)
        require_count(self.name, self.parameters, len(shapes))
        views = [
            np.empty(tuple(shape), type_for(type_name, dtype))
            for shape, type_name in zip(shapes, self._types, strict=True)
        ]
        return self._compiled_for(views, integers(sizes), ())

    def gradient(self, parameter: str) -> Definition:
        """The gradient by one array, as a definition whose ``text`` shows how it is computed.

        Parameters
        ----------
        parameter : str
            One of `parameters`, or a result that is read before it is written.

        Returns
        -------
        Definition
            Called on the arrays of this one, on what stood in the results that are read before
            they are written, and on the gradient of every result, in that order.

        Raises
        ------
        ValueError
            Where there is no such array, or a function has no derivative.

        Examples
        --------
        >>> square = dlprim.define("def square(float(N) x) -> (y) { y(n) = x(n) * x(n) }").square
        >>> square.gradient("x")(np.full(2, 3, np.float32), np.ones(2, np.float32))
        array([6., 6.], dtype=float32)
        """
        if not isinstance(parameter, str):
            raise TypeError(f"parameter is of type {type(parameter).__name__}, expected a str")
        if parameter not in self._gradients:
            self._gradients[parameter] = Definition(self._definition.gradient(parameter))
        return self._gradients[parameter]

    def _shapes_of(self, out: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of the results that the caller holds."""
        pairs = zip(self.returns, results_in(out, len(self.returns)), strict=True)
        return tuple((name, it.shape) for name, it in pairs if isinstance(it, np.ndarray))

    def _compiled_for(
        self,
        arrays: Sequence[Array],
        sizes: Mapping[str, int],
        shapes: tuple[tuple[str, tuple[int, ...]], ...],
    ) -> CompiledFormula:
        key = (
            tuple((array.shape, array.strides, array.dtype.num) for array in arrays),
            tuple(sizes.items()),
            shapes,
            _core.algorithm_changes(),
        )
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = CompiledFormula(self._definition, arrays, sizes, dict(shapes))
            self._compiled[key] = compiled
            if len(self._compiled) > _MOST_COMPILED:
                self._compiled.popitem(last=False)
        else:
            with suppress(KeyError):  # another thread may have put it out by now
                self._compiled.move_to_end(key)
        return compiled


class Definitions:
    """The layers of a text, by name as attributes: `define` makes it."""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._definitions = {definition.name: definition for definition in definitions}

    def __getattr__(self, name: str) -> Definition:
        # A copy in the making has no attribute yet.
        definitions: dict[str, Definition] = self.__dict__.get("_definitions", {})
        if name not in definitions:
            known = ", ".join(definitions)
            raise AttributeError(f"no definition is called {name}, expected {known}")
        return definitions[name]

    def __repr__(self) -> str:
        return f"<dlprim.Definitions {', '.join(self._definitions)}>"

    def _repr_html_(self) -> str:
        return "".join(it._repr_html_() for it in self)

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._definitions.values())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._definitions]


def define(text: str) -> Definitions:
    """Layers from their formulas, in the notation of Tensor Comprehensions (arXiv 1802.04730).

    Parameters
    ----------
    text : str
        ``def name(float(N,C) x, ..) -> (y) { statements }``, any number of them. A statement holds
        for all values of its indices. Those that stand on its right alone are reduced over:
        ``+=!``, ``*=!``, ``max=!`` and ``min=!`` begin anew, without ``!`` they continue what
        stands in the result. ``x?(i - 1)`` reads 0 outside the array; ``where i in 0:3`` says how
        far an index goes where the arrays do not.

    Returns
    -------
    Definitions
        Callables by name.

    Raises
    ------
    TypeError
        `text` is no str.
    ValueError
        Where the text makes no sense; the message quotes the line and marks the place.

    Examples
    --------
    >>> layers = dlprim.define('''
    ... def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
    ...     y(n,o) +=! x(n,i) * w(o,i)
    ...     y(n,o) = fmax(y(n,o) + b(o), 0)
    ... }''')
    >>> x = np.ones((2, 3), np.float32)
    >>> layers.fcrelu(x, x, np.ones(2, np.float32))
    array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    if not isinstance(text, str):
        raise TypeError(f"text is of type {type(text).__name__}, expected a str")
    return _defined(text)


@lru_cache(maxsize=64)
def _defined(text: str) -> Definitions:
    return Definitions([Definition(it) for it in _core.parse_definitions(text)])


def _remade(name: str, text: str) -> Definition:
    """Of a pickle."""
    return Definition(core_definition(name, text))


@lru_cache(maxsize=256)
def contraction(formula: str) -> Definition:
    """One statement as a definition whose parameters are its tensors in order of appearance."""
    if not isinstance(formula, str):
        raise TypeError("a formula is a str")
    return Definition(_core.Definition(formula))


def contract(
    formula: str, *arrays: Any, out: Any = None, sizes: Mapping[str, int] | None = None
) -> Array:
    """One formula on arrays: products, sums, maxima, convolutions, maps.

    Parameters
    ----------
    formula : str
        A statement as `define` has them, such as ``"y(n,k) +=! x(n,c) * w(k,c)"``.
    arrays
        float32, bfloat16, int8 or uint8, with any strides, in the order in which the formula names
        them; int32 or int64 for what is read as a place.
    out : ndarray, optional
        Receives the result; with ``+=`` it holds what is added to.
    sizes : mapping of str to int, optional
        Extents of indices that the arrays do not say.

    Returns
    -------
    ndarray
        bfloat16 where all arrays are, int32 where all are of 8 bits, else float32.

    Raises
    ------
    TypeError, ValueError
        Where the formula makes no sense, or does not fit the arrays.
    IndexError
        Where a place that is read lies outside its array; nothing is written then.

    Examples
    --------
    >>> x, w = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    >>> dlprim.contract("y(n,k) +=! x(n,c) * w(k,c)", x, w).shape
    (2, 4)
    """
    try:
        definition = contraction(formula)
    except TypeError:
        if isinstance(formula, str):
            raise
        raise TypeError(f"formula is of type {type(formula).__name__}, expected a str") from None
    latest = definition._latest
    if latest is not None and latest[0] is sizes:  # in front of _run: 0.1 us of 1.1
        result: Array | None = latest[1].call_if_current(arrays, out)
        if result is not None:
            return result
    made: Array = definition._run(arrays, out, {} if sizes is None else sizes)
    return made
