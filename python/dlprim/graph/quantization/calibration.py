"""From calibration inputs to a table: ranges, parameters, errors, and what they exclude."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.functions.rows.quantization import quantization_parameters
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.graph import Array, Graph
from dlprim.graph.passes.precision.parameters import Parameters
from dlprim.graph.quantization.choice import Choice, choose
from dlprim.graph.quantization.errors import relative, with_errors
from dlprim.graph.quantization.layers import attention_names
from dlprim.graph.quantization.ranges import Range, ranges
from dlprim.graph.quantization.table import Table, names_of

Batch = tuple[Graph, Sequence[Array]]


class Settings(NamedTuple):
    """How to quantise; `dlprim.onnx.quantize` says what each means."""

    method: str = "minmax"
    percentile: float = 99.99
    symmetric: bool = False
    exclude: frozenset[str] = frozenset()
    max_error: float = 0.1


def calibrate(batches: Sequence[Batch], settings: Settings) -> Table:
    """What to quantise of a model, whose graphs are given with inputs for them.

    Batches of the same shapes share one graph object.

    Raises
    ------
    ValueError
        No layer can be quantised, one that is excluded is not there, or calibration gives elements
        that are no finite numbers.
    """
    graphs = list(dict.fromkeys(graph for graph, _ in batches))
    attention = {graph: attention_names(graph) for graph in graphs}
    choices = {it: choose(it, attention[it], settings.exclude) for it in graphs}
    _check_names(choices, settings)
    parameters = _parameters(batches, choices, settings)
    errors = _errors(batches, choices, parameters)
    excluded = {name: error for name, error in errors.items() if not error <= settings.max_error}
    arrays: dict[str, Parameters] = {}
    for graph in graphs:
        names = names_of(graph)
        away = {it.nodes[-1].name for it in choices[graph].layers if names[it.output] in excluded}
        values = choose(graph, attention[graph], settings.exclude | away).values
        arrays.update(
            {names[it]: parameters[names[it]] for it in values if names[it] in parameters}
        )
    kept = {name: error for name, error in errors.items() if name not in excluded}
    return Table(arrays, kept, excluded)


def _check_names(choices: dict[Graph, Choice], settings: Settings) -> None:
    there = {node.name for graph in choices for node in graph.nodes}
    for name in sorted(settings.exclude - there):
        raise ValueError(f"exclude names {name!r}, which is no node of the model")
    if not any(choice.layers for choice in choices.values()):
        raise ValueError("the model has no layer that can be quantised and is not excluded")


def _parameters(
    batches: Sequence[Batch], choices: dict[Graph, Choice], settings: Settings
) -> dict[str, Parameters]:
    """Of each array by name, over all graphs that have it."""
    names = {
        graph: [names_of(graph)[it] for it in choice.values] for graph, choice in choices.items()
    }
    every = list(dict.fromkeys(name for listed in names.values() for name in listed))
    runs = {
        graph: compile_graph(Graph(graph.inputs, choice.values, graph.nodes, graph.constants))
        for graph, choice in choices.items()
    }

    def visit(see: Callable[[Sequence[Array]], None]) -> None:
        for graph, arrays in batches:
            results = dict(zip(names[graph], runs[graph].run(arrays), strict=True))
            see([results.get(name, np.zeros(0, np.float32)) for name in every])

    found = ranges(visit, len(every), settings.method, settings.percentile, settings.symmetric)
    shares = {
        names_of(graph)[layer.nodes[-1].operands[0]]
        for graph, choice in choices.items()
        for layer in choice.layers
        if layer.is_attention
    }  # are never below zero, and of no use in 7 bits
    return {
        name: _of_range((0.0, it[1]), False)
        if name in shares
        else _of_range(it, settings.symmetric)
        for name, it in zip(every, found, strict=True)
    }


def _of_range(limits: Range, is_symmetric: bool) -> Parameters:
    """int8 around zero, or uint8 with a zero point."""
    dtype = "int8" if is_symmetric else "uint8"
    ends = np.asarray(limits, np.float32)
    scale, zero_point = quantization_parameters(ends, dtype, symmetric=is_symmetric)
    return Parameters(float(np.float32(scale)), int(zero_point), dtype)


def _errors(
    batches: Sequence[Batch], choices: dict[Graph, Choice], parameters: dict[str, Parameters]
) -> dict[str, float]:
    """Of each layer by the name of its result."""
    sums: dict[str, Any] = {}
    runs: dict[Graph, CompiledGraph] = {}
    for graph, arrays in batches:
        names, choice = names_of(graph), choices[graph]
        if graph not in runs:
            known = {it: parameters[names[it]] for it in choice.values}
            runs[graph] = compile_graph(with_errors(graph, choice.layers, known))
        found = np.asarray([float(it) for it in runs[graph].run(arrays)]).reshape(-1, 2)
        for layer, both in zip(choice.layers, found, strict=True):
            name = names[layer.output]
            sums[name] = sums.get(name, 0) + both
    return dict(zip(sums, relative(np.asarray(list(sums.values()))), strict=True))
