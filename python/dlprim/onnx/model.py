"""Models that run: graphs made for the shapes they meet, a bounded number of them kept."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim import markup
from dlprim.arguments.arrays import refuse_masked
from dlprim.graph import Graph
from dlprim.graph.graph import Array
from dlprim.graph.profile import Profile
from dlprim.graph.quantization import Table, weights_among
from dlprim.graph.room import half_of_memory
from dlprim.onnx.parts.executor import Executor
from dlprim.onnx.parts.part import Part, Settings
from dlprim.onnx.parts.single import SingleStep
from dlprim.onnx.program import Port, Program
from dlprim.onnx.proto import ModelError, dtype_named
from dlprim.onnx.source import Source
from dlprim.onnx.strings import Texts
from dlprim.schedule_store import Travelled

if TYPE_CHECKING:
    from dlprim.onnx.cached import CachedModel

_PROFILED_RUNS = 5
# Of how many shapes networks are kept unless somebody says another number.
KEPT_SHAPES = 32


class OnnxModel:
    """A model in ONNX's format; `dlprim.onnx.load` makes it.

    Calls from several threads at once are fine.

    Attributes
    ----------
    inputs, outputs : mapping of str to Port
        What it takes and gives, by name and in order. A port has ``name``, ``dtype`` and ``shape``,
        which has a name or None where an extent may be any.
    table : Table or None
        What is quantised, where `dlprim.onnx.quantize` made the model.
    source : Source
    dtype : str or None
        What floats are computed in, where `dlprim.onnx.load` was told.
    max_bytes : int
        What a call may take, as `dlprim.onnx.load` was told.
    kept_shapes : int
        Of how many shapes networks are kept, as it was told.
    schedules : Travelled or None
        What its file holds, where `dlprim.load` made it.
    """

    def __init__(
        self,
        program: Program,
        source: Source,
        table: Table | None = None,
        dtype: str | None = None,
        schedules: Travelled | None = None,
        max_bytes: int | None = None,
        kept_shapes: int = KEPT_SHAPES,
        states: Mapping[str, str] | None = None,
    ) -> None:
        self.table, self.source, self.dtype, self.schedules = table, source, dtype, schedules
        self.max_bytes = half_of_memory() if max_bytes is None else max_bytes
        self.inputs = MappingProxyType({port.name: port for port in program.inputs})
        self.outputs = MappingProxyType({port.name: port for port in program.outputs})
        self._program = program
        self.kept_shapes = kept_shapes
        most = self.max_bytes, kept_shapes
        how = Settings(table, dtype, schedules, *most, program.defaults, states or {})
        self._executor = Executor(program, how)
        self._call_exact = self._executor.core.call_exact

    def __repr__(self) -> str:
        in_bytes = "" if self.table is None else ", quantised"
        taken, given = _listed(self.inputs), _listed(self.outputs)
        return f"<dlprim.onnx.OnnxModel ({taken}) -> ({given}){in_bytes}>"

    def _repr_html_(self) -> str:
        ports = [("input", it) for it in self.inputs.values()]
        ports += [("output", it) for it in self.outputs.values()]
        in_bytes = "" if self.table is None else ", quantised"
        head = f"{markup.code('dlprim.onnx.OnnxModel')}{in_bytes}"
        rows = [(way, port.name, _form(port)) for way, port in ports]
        return head + markup.table(("", "name", "type"), rows)

    def __reduce__(self) -> tuple[Any, ...]:
        from dlprim.onnx.saving import contents, remade  # which makes models

        return remade, (*contents(self), self.max_bytes, self.kept_shapes)

    def __call__(self, /, *inputs: Any, **named: Any) -> Array | tuple[Array, ...]:
        """The outputs: one array, or a tuple in the order of ``outputs``.

        Parameters
        ----------
        *inputs : ndarray
            In the order of ``inputs``.
        **named : ndarray
            The others by name; those for which the model has a value may be left out.

        Returns
        -------
        ndarray or tuple of ndarray
            New arrays.

        Raises
        ------
        TypeError
            Where an input is missing, unknown, or of another dtype.
        ValueError
            Where a shape is not what the model says, or cannot be computed with.
        """
        if not named:
            known: Array | tuple[Array, ...] | None
            known = self._call_exact(self._executor, inputs)
            if known is not None:
                return known
        results = tuple(self.run(self.named(inputs, named)))
        return results[0] if len(results) == 1 else results

    def run(self, given: Mapping[str, Any]) -> list[Array]:
        """The outputs as a list, of inputs by name, whatever these names are.

        Parameters
        ----------
        given : mapping of str to ndarray

        Returns
        -------
        list of ndarray

        Raises
        ------
        TypeError
            Where an input is missing, unknown, or of another dtype.
        ValueError
            Where a shape is not what the model says, or cannot be computed with.
        """
        known: list[Array] | None = self._executor.core.run_exact(self._executor, given)
        if known is not None:
            return known
        texts = Texts()
        results = self._executor.run(self._checked(given, texts))
        return self._executor.told(results, texts)

    def profile(self, /, *inputs: Any, **named: Any) -> Profile:
        """Where the time of a run goes: of some runs that which took the least.

        Parameters
        ----------
        *inputs, **named : ndarray
            As in a call.

        Returns
        -------
        Profile
            Printed, a table; its ``save`` writes a file for Chrome's tracing.

        Raises
        ------
        TypeError
            Where an input is missing, unknown, or of another dtype.
        ValueError
            Where a shape is not what the model says, or cannot be computed with.
        """
        arrays = self._checked(self.named(inputs, named))
        self._executor.run(arrays)
        profiles = [self._profiled(arrays) for _ in range(_PROFILED_RUNS)]
        return min(profiles, key=lambda profile: profile.seconds)

    def explain(self, threads: int | None = None) -> str:
        """What it takes and gives, and the steps of the network that ran last.

        Parameters
        ----------
        threads : int, optional
            Instead of memory and fusions, for every step the tasks that threads share and how many
            times as fast as one thread so many would be, from 1 to 1024. They need not be there:
            this is what the plan allows.

        Returns
        -------
        str
        """
        lines = [f"inputs: {_listed(self.inputs)}", f"outputs: {_listed(self.outputs)}"]
        whole = self._executor.whole
        parts = list(self._executor.parts()) if whole is None else [(0, whole)]
        steps = in_python = 0
        for depth, it in parts:
            text = it.step.label if isinstance(it, SingleStep) else _explained(it, threads)
            lines += [f"{'  ' * depth}{line}" for line in text.splitlines()]
            found, calls = _steps_of(it)
            steps, in_python = steps + found, in_python + calls
        if threads is None and steps:
            lines.append(f"steps in Python: {in_python} of {steps}")
        return "\n".join(lines)

    def cached(
        self, places: int, *, batch: int = 1, pairs: Mapping[str, str] | None = None
    ) -> CachedModel:
        """The model with caches of keys and values that stay between calls.

        Each is an input that a call no longer takes, an array that the call writes in place of an
        output. How many of its places count is said by other inputs, as `TensorScatter` with
        `Attention` (opset 24) and `GroupQueryAttention` have them, so that all steps of a sequence
        run in one network and copy nothing.

        Parameters
        ----------
        places : int
            Room in each cache, for the extents that the model leaves open but the first one.
        batch : int
            The first extent, if the model leaves it open.
        pairs : mapping of str to str, optional
            Inputs, and the outputs that they become. If None, inputs with "past" in their names
            and the outputs of the same name with "present" in place of "past" or
            "past_key_values".

        Returns
        -------
        CachedModel

        Raises
        ------
        TypeError
            places or batch is no integer.
        ValueError
            A name is none of the model's, there are no pairs, or a pair is no cache of float32 or
            bfloat16. As `ModelError`, where the model does not run as one network.
        """
        from dlprim.onnx.cached import CachedModel  # which makes models

        return CachedModel.of(self, places, batch, pairs)

    def with_states(self, states: Mapping[str, str]) -> OnnxModel:
        """The same model without the outputs that the inputs ``states`` become in place."""
        program = self._program
        kept = [it for it, port in enumerate(program.outputs) if port.name not in states.values()]
        block = replace(program.block, outputs=tuple(program.block.outputs[it] for it in kept))
        values = dict(zip(self.outputs, program.block.outputs, strict=True))
        named = {name: values[it] for name, it in states.items()}
        program = program._replace(outputs=tuple(program.outputs[it] for it in kept), block=block)
        how = (self.table, self.dtype, self.schedules, self.max_bytes, self.kept_shapes)
        made = OnnxModel(program, self.source, *how, named)
        if made._executor.whole is None:
            raise ModelError("the model runs in several networks, expected one that has its caches")
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model into one file that `dlprim.load` makes it from.

        The file has what was imported with all weights, the quantisation, and the tuned schedules
        that are in use, with checksums. It replaces the one that is there at once when it is
        complete.

        Parameters
        ----------
        path : str or Path

        Raises
        ------
        TypeError
            path is no path.
        OSError
            The file cannot be written; what was there still stands.
        """
        from dlprim.onnx.saving import save  # which makes models

        save(self, path)

    def _quantized(self, calibration: Any, **settings: Any) -> OnnxModel:
        """What `dlprim.quantize` gives of it."""
        from dlprim.onnx.quantization import quantize  # which imports this

        return quantize(self, calibration, **settings)

    def quantized(self, table: Table, graphs: Iterable[Graph]) -> OnnxModel:
        """The same model, quantised as a table says that was made of graphs of it.

        Weights that they read as those of quantised layers alone are rounded, so that a file has
        them in 8 bits.
        """
        constants, known = self._program.constants, self.source.arrays
        weights = weights_among(
            {it: constants[it] for it in known if it in constants}, graphs, table
        )
        floats = {name: it.floats for name, it in weights.items()}
        program = self._program._replace(constants={**constants, **floats})
        source = Source(self.source.model, {**known, **floats}, weights)
        how = (self.dtype, self.schedules, self.max_bytes, self.kept_shapes)
        return OnnxModel(program, source, table, *how)

    def traced(
        self, given: Mapping[str, Any], graphs: OrderedDict[Any, Graph]
    ) -> list[tuple[Graph, list[Array]]]:
        """The graphs for these inputs, and the arrays they are given.

        Norms are folded into weights. Inputs of the same shapes share one of the graphs, to which
        new ones are added.
        """
        arrays = self._checked(given)
        found: list[tuple[Graph, list[Array]]] = []
        self._executor.run(arrays, lambda part, given: found.append(part.traced(given, graphs)))
        return found

    def named(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs by name, of some in order and others by name."""
        if len(inputs) > len(self.inputs):
            raise TypeError(
                f"{len(inputs)} inputs are given, expected at most {len(self.inputs)}: "
                f"{_listed(self.inputs)}"
            )
        given = dict(zip(self.inputs, inputs, strict=False))
        for name, array in named.items():
            if name in given:
                raise TypeError(f"input '{name}' is given twice, by position and by name")
            given[name] = array
        return given

    # ------------------------------------------------------------ inside

    def _profiled(self, arrays: Mapping[str, Any]) -> Profile:
        rows: list[tuple[str, str, float]] = []
        self._executor.run(arrays, lambda part, given: rows.extend(part.profile(given)))
        return Profile(rows)

    def _checked(self, given: Mapping[str, Any], texts: Texts | None = None) -> dict[str, Array]:
        """All inputs as arrays, of codes where they are texts."""
        texts = texts or Texts()
        for name in given:
            if name not in self.inputs:
                raise TypeError(f"'{name}' is no input, expected {_listed(self.inputs)}")
        arrays: dict[str, Array] = {}
        for port in self.inputs.values():
            if port.name in given:
                arrays[port.name] = _checked_input(port, given[port.name], texts)
            elif port.name in self._program.defaults:
                arrays[port.name] = self._program.defaults[port.name]
            else:
                raise TypeError(f"input '{port.name}' is missing, expected {_listed(self.inputs)}")
        return arrays


def _steps_of(part: Part | SingleStep) -> tuple[int, int]:
    """How many steps there are, and how many of them run in Python."""
    if isinstance(part, SingleStep):
        return 1, 1
    graph = part.latest or part.networks.latest
    return (0, 0) if graph is None else graph.steps()


def _explained(part: Part, threads: int | None) -> str:
    graph = part.latest or part.networks.latest
    if graph is None:
        return "no graph is made yet: no inputs were given"
    return f"for inputs {list(graph.graph.inputs)}:\n{graph.explain(threads)}"


def _listed(ports: Mapping[str, Port]) -> str:
    return ", ".join(map(_described, ports.values())) or "none"


def _described(port: Port) -> str:
    return f"{port.name}: {_form(port)}"


def _form(port: Port) -> str:
    if port.keys:
        return "list of dicts"
    kind = "" if port.kind == "tensor" else f"{port.kind} of "
    return f"{kind}{port.dtype or '?'}{_shown(port.shape)}"


def _shown(shape: tuple[int | str | None, ...] | None) -> str:
    if shape is None:
        return "[...]"
    return "[" + ", ".join("?" if it is None else str(it) for it in shape) + "]"


def _checked_input(port: Port, given: Any, texts: Texts) -> Any:
    """An array, a list of them or None, as the port is."""
    if given is None and port.kind.startswith("optional"):
        return None
    if not port.kind.endswith("sequence"):
        return _checked_array(port, given, texts)
    if not isinstance(given, list | tuple):
        named = type(given).__name__
        raise TypeError(f"input '{port.name}' is of type {named}, expected a list of arrays")
    return [_checked_array(port, it, texts) for it in given]


def _checked_array(port: Port, given: Any, texts: Texts) -> Array:
    if type(given) is not np.ndarray:
        refuse_masked({f"input '{port.name}'": given})
    array = np.asarray(given)
    if port.dtype == "string":
        array = _in_codes(port, array, texts)
    elif port.dtype is None or array.dtype != dtype_named(port.dtype):
        raise TypeError(f"input '{port.name}' has dtype {array.dtype}, expected {port.dtype}")
    shape = port.shape
    if shape is not None and (
        len(shape) != array.ndim
        or any(isinstance(a, int) and a != b for a, b in zip(shape, array.shape, strict=True))
    ):
        raise ValueError(
            f"input '{port.name}' has shape {list(array.shape)}, expected {_shown(shape)}"
        )
    return array


def _in_codes(port: Port, array: Array, texts: Texts) -> Array:
    """Of an array of NumPy's strings, or of objects that are str."""
    if array.dtype.kind not in "OUT":
        raise TypeError(f"input '{port.name}' has dtype {array.dtype}, expected str")
    try:
        return texts.coded(array.astype(object))
    except TypeError as error:
        raise TypeError(f"input '{port.name}': {error}") from None
