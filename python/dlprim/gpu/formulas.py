"""Formulas on arrays of a GPU: parsed and checked as on the CPU, mapped here, kept by geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from dlprim.gpu.arrays import as_given, geometry, require_apart, tensors_of
from dlprim.gpu.emitter import BYTES, PLACES
from dlprim.gpu.mapping import FLOATS, mapped
from dlprim.gpu.steps import Steps
from dlprim.gpu.tree import Array, Statement, program_of, reads_in
from dlprim.lang.definitions import Definition, contraction
from dlprim.lang.operands import integers, require_count, results_in, with_named


class Formula(Steps):
    """A definition for arrays of given shapes, strides and dtypes; `compile` makes it."""

    def __init__(
        self,
        definition: Definition,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        outs: Mapping[str, Array] = {},
        precision: str = "ieee",
    ) -> None:
        self._names, self._returns = definition.parameters, definition.returns
        self._types = definition._types
        known = {name: it.shape for name, it in {**arrays, **outs}.items()}
        statements, shapes = program_of(definition._definition, known, sizes)
        every = {**arrays, **_written(shapes, arrays, outs)}
        self._read_first = _read_first(statements, self._returns)
        steps = mapped(statements, every, self._returns)
        super().__init__(definition.name, steps, every, precision)

    def __repr__(self) -> str:
        return f"<dlprim.gpu.Formula {self.name}({', '.join(self._names)})>"

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The results for arrays like those it was compiled for."""
        require_count(self.name, self._names, len(arrays))
        outs = results_in(out, len(self._returns))
        return self.results(arrays, tensors_of(self._names, arrays, self._types), outs)

    def results(self, arrays: Sequence[Any], tensors: Sequence[Any], outs: Sequence[Any]) -> Any:
        """In the library of ``arrays``; new ones where ``outs`` has None."""
        buffers = dict(zip(self._names, tensors, strict=True))
        for name, out in zip(self._returns, outs, strict=True):
            if out is not None:
                (buffers[name],) = tensors_of([name], [out])
                require_apart(name, buffers[name], buffers)
            elif name in self._read_first:
                raise ValueError(f"{name} is read before it is written, expected an array as out")
        for name, it in buffers.items():
            if geometry(it) != self.arrays[name]:
                raise ValueError(f"{name} is {geometry(it)}, expected {self.arrays[name]}")
        if len({it.device for it in buffers.values()}) > 1:
            raise ValueError(f"{', '.join(buffers)}: on several devices, expected one")
        self.launch(buffers, {})
        made = [
            as_given(buffers[name], arrays) if out is None else out
            for name, out in zip(self._returns, outs, strict=True)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def operands(self, *arrays: Any, **named: Any) -> tuple[dict[str, Any], dict[str, int]]:
        tensors = tensors_of(self._names, arrays, self._types)
        buffers = dict(zip(self._names, tensors, strict=True))
        for name in self._read_first:
            buffers[name] = self.new(name, tensors[0].device).zero_()
        return buffers, {}


def _written(
    shapes: Mapping[str, Sequence[int]], arrays: Mapping[str, Array], outs: Mapping[str, Array]
) -> dict[str, Array]:
    """Results and what is between them."""
    operands = [it for it in arrays.values() if it.dtype not in PLACES]
    types = {it.dtype for it in operands if it.shape} or {it.dtype for it in operands}
    dtype = min(types) if len(types) == 1 else "float32"
    dtype = "int32" if types and types <= BYTES.keys() else dtype
    made = {name: dense(dtype, it) for name, it in shapes.items() if name not in arrays}
    for name, out in outs.items():
        is_float = {dtype, out.dtype} <= set(FLOATS)
        if out.shape != made[name].shape or not (is_float or out.dtype == dtype):
            raise ValueError(f"{name} is {out}, expected {dtype} of shape {made[name].shape}")
    return made | dict(outs)


def dense(dtype: str, shape: Sequence[int]) -> Array:
    return Array(dtype, tuple(shape), torch.empty(shape, device="meta").stride())


def _read_first(statements: Sequence[Statement], returns: Sequence[str]) -> set[str]:
    """Results whose arrays the caller has to give."""
    written, found = set[str](), set[str]()
    for one in statements:
        reads = {it.value for it in reads_in(one.value)}
        found |= (reads if one.initializes else {*reads, one.result}) & {*returns} - written
        written.add(one.result)
    return found


@lru_cache(maxsize=256)
def _kept(
    definition: Definition,
    lie: tuple[Array, ...],
    sizes: tuple[tuple[str, int], ...],
    outs: tuple[tuple[str, Array], ...],
    precision: str,
) -> Formula:
    arrays = dict(zip(definition.parameters, lie, strict=True))
    return Formula(definition, arrays, dict(sizes), dict(outs), precision)


def _prepared(
    formula: Definition | str, arrays: tuple[Any, ...], out: Any, tf32: bool, named: Any
) -> tuple[Formula, tuple[tuple[Any, ...], list[Any], Sequence[Any]]]:
    """The formula for arrays, and these, their tensors, and what receives results."""
    if not isinstance(formula, str | Definition):
        kind = type(formula).__name__
        raise TypeError(f"formula is of type {kind}, expected a str or a definition")
    it = contraction(formula) if isinstance(formula, str) else formula
    arrays, sizes = with_named(it.name, it.parameters, arrays, named)
    require_count(it.name, it.parameters, len(arrays))
    tensors = tensors_of(it.parameters, arrays, it._types)
    outs = results_in(out, len(it.returns))
    lie = tuple(
        (name, geometry(*tensors_of([name], [each])))
        for name, each in zip(it.returns, outs, strict=True)
        if each is not None
    )
    given = tuple(integers(sizes).items())
    made = _kept(it, tuple(map(geometry, tensors)), given, lie, "tf32" if tf32 else "ieee")
    return made, (arrays, tensors, outs)


def compile(
    formula: Definition | str, *arrays: Any, out: Any = None, tf32: bool = False, **named: Any
) -> Formula:
    """A definition, or one formula, for arrays that lie like these.

    Parameters
    ----------
    formula : str or Definition
        As `dlprim.contract` takes it or `dlprim.define` makes it, gradients too.
    arrays
        On a GPU, of any library that has ``__dlpack__``: float32, bfloat16, float16, int8 or uint8,
        and int32 or int64 where they hold places. Numbers for scalars.
    out : array or a sequence of them, optional
        Arrays that receive results, in any order of theirs.
    tf32 : bool
        Products of float32 by TF32, which keeps 10 bits of each factor.
    named
        Arrays by their names, and sizes that the arrays do not say.

    Raises
    ------
    TypeError, ValueError
        As `dlprim.contract`; and for arrays that are not on one GPU.
    """
    return _prepared(formula, arrays, out, tf32, named)[0]


def contract(
    formula: Definition | str, *arrays: Any, out: Any = None, tf32: bool = False, **named: Any
) -> Any:
    """The results of a formula or a definition, compiled on the first call: see `compile`.

    Returns
    -------
    array, or a tuple of them
        Of the first array's library; bfloat16 or float16 where all arrays are, int32 where all are
        of 8 bits, else float32. A place that is read outside its table gives NaN.
    """
    made, given = _prepared(formula, arrays, out, tf32, named)
    return made.results(*given)
