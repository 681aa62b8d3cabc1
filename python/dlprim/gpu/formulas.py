"""Formulas on arrays of a GPU: parsed and checked as on the CPU, mapped here, kept by geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from dlprim.gpu.arrays import as_given, geometry, require_apart, tensors_of
from dlprim.gpu.mapping import mapped
from dlprim.gpu.steps import Steps
from dlprim.gpu.tree import BYTES, FLOATS, PLACES, Array, Statement, program_of, reads_in
from dlprim.lang.definitions import Definition, contraction
from dlprim.lang.operands import integers, require_count, results_in, with_named


class Formula(Steps):
    """A definition for arrays, results that are given too, that lie in one way: see `compile`."""

    def __init__(
        self,
        definition: Definition,
        arrays: Mapping[str, Array],
        sizes: Mapping[str, int],
        precision: str = "ieee",
    ) -> None:
        self._definition = definition
        known = {name: it.shape for name, it in arrays.items()}
        statements, shapes = program_of(definition._definition, known, sizes)
        self._read_first = _read_first(statements, definition.returns)
        every = _every(definition, shapes, arrays)
        steps = mapped(statements, every, definition.returns)
        super().__init__(definition.name, steps, every, precision)

    def __repr__(self) -> str:
        return f"<dlprim.gpu.Formula {self.name}({', '.join(self._definition.parameters)})>"

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """The results for arrays like those it was compiled for."""
        buffers = _tensors(self._definition, arrays, out)
        for name, it in buffers.items():
            if geometry(it) != self.arrays[name]:
                raise ValueError(f"{name} is {geometry(it)}, expected {self.arrays[name]}")
        return self.results(buffers, arrays, out)

    def results(self, buffers: dict[str, Any], arrays: Sequence[Any], out: Any) -> Any:
        """In the library of ``arrays``; new ones where ``out`` has None."""
        returns = self._definition.returns
        for name in returns:
            if name in buffers:
                require_apart(name, buffers[name], buffers)
            elif name in self._read_first:
                raise ValueError(f"{name} is read before it is written, expected an array as out")
        self.launch(buffers, {})
        made = [
            as_given(buffers[name], arrays) if given is None else given
            for name, given in zip(returns, results_in(out, len(returns)), strict=True)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    def operands(self, *arrays: Any, **named: Any) -> tuple[dict[str, Any], dict[str, int]]:
        buffers = _tensors(self._definition, arrays, named.get("out"))
        device = next(iter(buffers.values())).device
        for name in self._read_first - buffers.keys():
            buffers[name] = self.new(name, device).zero_()
        return buffers, {}


def _tensors(definition: Definition, arrays: Sequence[Any], out: Any) -> dict[str, Any]:
    """Of all parameters, and of results that are given."""
    require_count(definition.name, definition.parameters, len(arrays))
    outs = zip(definition.returns, results_in(out, len(definition.returns)), strict=True)
    given = {name: it for name, it in outs if it is not None}
    names, types = [*definition.parameters, *given], [*definition._types, *["any"] * len(given)]
    tensors = tensors_of(names, [*arrays, *given.values()], types)
    return dict(zip(names, tensors, strict=True))


def _every(
    definition: Definition, shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Array]
) -> dict[str, Array]:
    """Results and what is between them, too."""
    operands = [arrays[it] for it in definition.parameters if arrays[it].dtype not in PLACES]
    types = {it.dtype for it in operands if it.shape} or {it.dtype for it in operands}
    dtype = min(types) if len(types) == 1 else "float32"
    dtype = "int32" if types and types <= BYTES.keys() else dtype
    made = {name: arrays.get(name) or dense(dtype, it) for name, it in shapes.items()}
    for name in definition.returns:
        it = made[name]
        is_float = {dtype, it.dtype} <= set(FLOATS)
        if it.shape != shapes[name] or not (is_float or it.dtype == dtype):
            raise ValueError(f"{name} is {it}, expected {dtype} of shape {shapes[name]}")
    return made


def dense(dtype: str, shape: tuple[int, ...]) -> Array:
    return Array(dtype, shape, torch.empty(shape, device="meta").stride())


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
    arrays: tuple[tuple[str, Array], ...],
    sizes: tuple[tuple[str, int], ...],
    precision: str,
) -> Formula:
    return Formula(definition, dict(arrays), dict(sizes), precision)


def _prepared(
    formula: Definition | str, arrays: tuple[Any, ...], out: Any, tf32: bool, named: Any
) -> tuple[Formula, dict[str, Any], tuple[Any, ...]]:
    """The formula for arrays, their tensors by name, and all arrays in order."""
    if not isinstance(formula, str | Definition):
        kind = type(formula).__name__
        raise TypeError(f"formula is of type {kind}, expected a str or a definition")
    it = contraction(formula) if isinstance(formula, str) else formula
    arrays, sizes = with_named(it.name, it.parameters, arrays, named)
    buffers = _tensors(it, arrays, out)
    lie = tuple((name, geometry(each)) for name, each in buffers.items())
    made = _kept(it, lie, tuple(integers(sizes).items()), "tf32" if tf32 else "ieee")
    return made, buffers, arrays


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
    made, buffers, arrays = _prepared(formula, arrays, out, tf32, named)
    return made.results(buffers, arrays, out)
