"""What each layer makes of an input: shapes and work without a run, values, and times.

All of it comes from the networks that a model is: nodes are called as the layers are that wrote
them, and a watcher in the trace sees what each module gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from dlprim.arguments.traced import RUNNING
from dlprim.graph.compiled import compile_graph
from dlprim.graph.profile import StepTime
from dlprim.graph.room import half_of_memory
from dlprim.graph.work import multiply_adds
from dlprim.nn.forms import Form
from dlprim.nn.module import TRACING, Module
from dlprim.tracing.compiled import CompiledFunction
from dlprim.tracing.traces import traced

_BACK = "gradient of "


class Layer(NamedTuple):
    """What a module made in a trace.

    Attributes
    ----------
    y : object
        Its result.
    multiply_adds : int
        Without those of modules inside.
    """

    module: Module
    y: Any
    multiply_adds: int


@contextmanager
def _watching(layers: list[Layer]) -> Iterator[None]:
    """Around a trace: the layers, as they come to their ends."""
    inside = [0]

    def watch(module: Module, run: Callable[[], Any]) -> Any:
        nodes = RUNNING.tracer.build.nodes
        begin = len(nodes)
        inside.append(0)
        y = run()
        count = sum(map(multiply_adds, nodes[begin:]))
        layers.append(Layer(module, y, count - inside.pop()))
        inside[-1] += count
        return y

    before, TRACING.watch = TRACING.watch, watch
    try:
        yield
    finally:
        TRACING.watch = before


def trace(module: Module, x: Any) -> list[Layer]:
    """The layers in inference for an input, of which shape and dtype matter, without a run."""
    form, layers = Form(module, False), list[Layer]()
    call = form.training._call((x,), {})
    shapes = [it.shape for it in call.arrays]
    with _watching(layers):
        traced(form.forward, call, shapes, half_of_memory())
    return layers


def results(module: Module, *args: Any, **named: Any) -> list[tuple[str, Any]]:
    """Names of layers, innermost first, and the arrays that they give, in the modes they are in."""
    form, names = Form(module, None), list[str]()

    def forward(*args: Any, **named: Any) -> list[Any]:
        layers: list[Layer] = []
        with _watching(layers):
            form.forward(*args, **named)
        arrays = [it for it in layers if hasattr(it.y, "shape")]
        names[:] = [it.module.name or type(it.module).__name__ for it in arrays]
        return [it.y for it in arrays]

    dtype = module.context.dtype_name
    found = CompiledFunction(forward, dtype, 1, None)(*args, **named)
    return list(zip(names, found, strict=True))


def times(module: Module, x: Any, training: bool, runs: int) -> list[tuple[StepTime, float]]:
    """The steps of a pass, or of both in training, each with its multiply-adds; seconds are means.

    Steps are called as the layers are that wrote their nodes; `part_of` says which, and the pass.
    """
    form = Form(module, training)
    found = form.training if training else form.inference(module)
    call = found._call((x,), {})
    shapes = [it.shape for it in call.arrays]
    made, rest = found._made(call, shapes)
    graph = made.graph if rest is None else rest.graph
    network = compile_graph(graph, dtype=module.context.dtype_name)
    own = [*call.arrays, *[it.held for it in made.held]]
    slopes = [np.ones(it.shape, it.dtype) for it in graph.inputs[len(own) :]]
    inputs = (*own, *slopes)
    network.run(inputs)
    profiles = [network.profile(inputs) for _ in range(runs)]
    work: dict[str, int] = {}
    for node in graph.nodes:
        work[node.name] = work.get(node.name, 0) + multiply_adds(node)
    steps = []
    for each in zip(*profiles, strict=True):
        kind, name, _ = each[0]
        seconds = sum(seconds for *_, seconds in each) / runs
        steps.append((StepTime(kind, name, seconds), float(work.pop(name, 0))))
    return steps


def part_of(name: str) -> tuple[str, str]:
    """The layer of a step, and the pass: forward or backward."""
    layer = name.removeprefix(_BACK)
    return layer, "forward" if layer == name else "backward"
