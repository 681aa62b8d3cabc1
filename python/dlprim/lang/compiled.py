"""A definition compiled for the arrays it is called on: its calls, what was decided, tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dlprim import _core, markup
from dlprim import schedule_store as store
from dlprim.arguments.arrays import Array, aligned, result_array
from dlprim.arguments.scalars import flag, shown
from dlprim.lang.operands import (
    dtype_of,
    readable,
    require_count,
    result_type,
    results_in,
    with_named,
)
from dlprim.primitives import conv_algorithm

_MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
# Shape, strides and dtype of each array.
Geometries: TypeAlias = list[tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]]
_WINOGRAD = "Winograd's algorithm"  # as a product's decision has it


class CompiledFormula:
    """A definition for arrays of given shapes, strides and dtypes; made by `Definition.compile`.

    Attributes
    ----------
    name : str
        Of the definition.
    flops : float
        Multiplications and additions of a call, those of the order that is computed in.
    scratch_bytes : int
        Bytes that temporaries take in a call, without what products pack.
    call : callable
        New results for a tuple of ndarrays that are exactly like those it was compiled for, or
        `out`; None for anything else.
    call_if_current : callable
        The same, and None where another algorithm of convolutions has been set since it was made.
    """

    def __init__(
        self,
        definition: _core.Definition,
        arrays: Sequence[Array],
        sizes: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._made_at = _core.algorithm_changes()
        self._definition, self._sizes, self._shapes = definition, dict(sizes), dict(shapes)
        self._geometries = [(array.shape, array.strides, array.dtype) for array in arrays]
        self._type = result_type(arrays)
        self.name = definition.name
        self._names = definition.parameters
        self._types = definition.types
        self._use(self._with_stored(arrays))
        self._results = [
            (name, dtype_of(dtype), shape, is_read)
            for name, dtype, shape, is_read in self._formula.results()
        ]
        for name, _, shape, _ in self._results:
            if len(shape) > _MOST_AXES:
                raise ValueError(
                    f"{name} has {len(shape)} dimensions, expected NumPy's {_MOST_AXES} at most"
                )
        self._reads_results = any(is_read for *_, is_read in self._results)
        self.flops = self._formula.flops

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name}: {dtype.name}{list(shape)}"
            for name, (shape, _, dtype) in zip(self._names, self._geometries, strict=True)
        )
        return f"<dlprim.CompiledFormula {self.name}({shapes})>"

    def _repr_html_(self) -> str:
        arrays = zip(self._names, self._geometries, strict=True)
        rows = [("takes", name, f"{dtype.name}{list(it)}") for name, (it, _, dtype) in arrays]
        rows += [("gives", name, f"{dtype.name}{list(it)}") for name, dtype, it, _ in self._results]
        rows.append(("computes", f"{self.flops:,.0f}", "multiplications and additions"))
        return markup.block(self._definition.text) + markup.table(("", "name", "type"), rows)

    def __reduce__(self) -> tuple[Any, ...]:
        of = self._definition
        return _remade, (of.name, of.text, self._geometries, self._sizes, self._shapes)

    def __call__(self, /, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The results of the definition for arrays like those it was compiled for.

        The last ones, or all, may be given by name.
        """
        if named:
            arrays, others = with_named(self.name, self._names, arrays, named)
            for name in others:
                raise TypeError(
                    f"{self.name} has no array {name}, expected {', '.join(self._names)}: sizes "
                    "are those that it was compiled for"
                )
        results = self.call(arrays, out)
        if results is not None:
            return results
        require_count(self.name, self._names, len(arrays))
        return self._run(list(map(readable, self._names, arrays, self._types)), out)

    def _run(self, arrays: Sequence[Array], out: Any) -> Any:
        outs = results_in(out, len(self._results))
        written: list[Array] = []
        for (name, dtype, shape, is_read), given in zip(self._results, outs, strict=True):
            if is_read and given is None:
                raise ValueError(
                    f"{name} is read before it is written, expected an array as out that holds it"
                )
            if given is None:
                written.append(aligned(shape, dtype))
                continue
            operands = dict(zip(self._names, arrays, strict=True))
            array = result_array(given, shape, operands, dtype)
            if any(np.may_share_memory(array, it) for it in written):
                raise ValueError(
                    f"{name} shares memory with another result, expected separate arrays"
                )
            written.append(array)
        self._formula.run(arrays, written)
        return written[0] if len(written) == 1 else tuple(written)

    def explain(self, *, all: bool = False, instruction: str | None = None) -> str:
        """What runs, and why: for every statement its product of matrices, or why there is none.

        Of a product the cuts into calls of the kernel follow, with the cycles that the model
        expects of each; the chosen one stands in front.

        Parameters
        ----------
        all : bool
            Every cut, else the best few.
        instruction : str, optional
            How products would go on this instruction alone, which need not be one of this machine:
            ``"tdpbf16ps"`` (AMX), ``"mma.m16n8k16"`` (a GPU's).

        Raises
        ------
        TypeError
            `all` is no bool, or `instruction` no str.
        ValueError
            Where no instruction is called so; the message lists those that are known.

        Examples
        --------
        >>> layers = dlprim.define(
        ...     "def fc(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }")
        >>> fc = layers.fc.compile((64, 96), (128, 96))
        >>> print(fc.explain(instruction="tdpbf16ps").splitlines()[1])
          96 instructions, 100 % of whose products are needed, 1536 cycles: i: n, j: k, k u: c; \
A in place, B packed, C in place
        """
        if not isinstance(instruction, str | None):
            raise TypeError(f"instruction is {shown(instruction)}, expected a str or None")
        return self._formula.described(flag("all", all), instruction)

    @property
    def scratch_bytes(self) -> int:
        return self._formula.scratch_bytes

    @property
    def schedule(self) -> dict[str, str]:
        """What is decided, by name: pieces, rows, what runs a product, the order of its loops."""
        return {name: chosen for name, chosen, *_ in self._formula.decisions(1)}

    def tune(
        self,
        generations: int = 25,
        population: int = 100,
        seconds: float = 60.0,
        **keywords: Any,
    ) -> float:
        """Search for the fastest `schedule` by measurement, use it, and keep it for later runs.

        Later runs load it where the same definition is compiled for arrays of the same shapes,
        strides and dtypes. Sums may be cut in other places then, so last bits may change.

        Parameters
        ----------
        generations, population : int
            At most as many candidates as their product are tried; the tenth of a population that
            is fittest has children.
        seconds : float
            To take about, at most.
        keywords
            seed, workers, path and progress, as of `dlprim.tune`.

        Returns
        -------
        float
            How many times as fast as the cost models' choice it now is; 1.0 where that stays.

        Raises
        ------
        TypeError, ValueError, OSError
            As for `dlprim.tune`.
        """
        from dlprim.tuning.tune import require_seconds, tune  # which imports this

        require_seconds("seconds", seconds)
        keywords |= {"generations": generations, "population": population}
        return tune(self, seconds, **keywords).get("formula", 1.0)

    @property
    def _stored_as(self) -> str:
        """What its schedule is called in a file."""
        lie = {
            name: f"{dtype.name}{shape}{strides}".replace(" ", "")
            for name, (shape, strides, dtype) in zip(self._names, self._geometries, strict=True)
        }
        text = " ".join(self._definition.text.split())
        problem = store.Problem(
            "formula", {**lie, **self._sizes, **self._shapes}, self._type, "strided"
        )
        return store.key(text, problem)

    def _made(
        self, choices: Mapping[str, str], arrays: Sequence[Array] | None = None
    ) -> _core.Formula:
        """By these choices, as far as they fit, and else the cost models'."""
        if conv_algorithm.get_conv_algorithm() == "direct":
            choices = {**choices, "convolutions": "direct"}
        return _core.Formula(
            self._definition,
            _arrays_of(self._geometries) if arrays is None else arrays,
            self._shapes,
            self._sizes,
            [self._type],
            dict(choices),
            self._made_at,
        )

    @staticmethod
    def _follows(formula: _core.Formula, choices: Any) -> bool:
        """Whether it is as the choices say, but for Winograd's where sums are asked for."""
        made = {name: chosen for name, chosen, *_ in formula.decisions(1)}
        if conv_algorithm.get_conv_algorithm() != "direct" or not isinstance(choices, dict):
            return bool(choices == made)
        asked = {name: it for name, it in choices.items() if it != _WINOGRAD}
        return all(made.get(name) == it for name, it in asked.items())

    def _use(self, formula: _core.Formula) -> None:
        """From the next call on."""
        self._formula = formula
        self.call: Callable[..., Any] = formula.call
        self.call_if_current: Callable[..., Any] = formula.call_if_current

    def _new_results(self) -> list[tuple[Array, bool]]:
        """Arrays for the results, and whether what stands in them is read."""
        return [(aligned(shape, dtype), is_read) for _, dtype, shape, is_read in self._results]

    def _with_stored(self, arrays: Sequence[Array]) -> _core.Formula:
        choices = store.stored(self._stored_as) if store.has_entries() else None
        if choices is None:
            return self._made({}, arrays)
        formula = self._made(choices) if isinstance(choices, dict) else self._made({})
        if not self._follows(formula, choices):
            store.ignore(self._stored_as, "it does not fit")
            return self._made({})
        return formula


def core_definition(name: str, text: str) -> _core.Definition:
    """Of a text that has one; a formula alone has no name."""
    if not name:
        return _core.Definition(text)
    return next(it for it in _core.parse_definitions(text) if it.name == name)


def _remade(
    name: str, text: str, geometries: Geometries, sizes: dict[str, int], shapes: dict[str, Any]
) -> CompiledFormula:
    """Of a pickle."""
    return CompiledFormula(core_definition(name, text), _arrays_of(geometries), sizes, shapes)


def _arrays_of(geometries: Geometries) -> list[Array]:
    """Arrays that lie so, on no memory of that size."""
    return [
        np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
        for shape, strides, dtype in geometries
    ]
