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
from dlprim.graph.passes.algebra import join_training
from dlprim.graph.room import half_of_memory
from dlprim.graph.work import multiply_adds
from dlprim.nn.forms import Form
from dlprim.nn.module import TRACING, Module
from dlprim.primitives.conv_algorithm import conv_algorithm
from dlprim.tracing.compiled import CompiledFunction
from dlprim.tracing.traces import traced


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


class Work(NamedTuple):
    """Of one layer in one pass."""

    seconds: float
    flops: float


def times(module: Module, x: Any, training: bool, runs: int) -> dict[tuple[str, str], Work]:
    """By layer and pass, "forward", "backward" or "inference"; seconds are means of some runs.

    What is fused into a step counts where the step does. Steps that no layer wrote, such as those
    that bring x into blocks, go by their own names.
    """
    form = Form(module, training)
    found = form.training if training else form.inference(module)
    call = found._call((x,), {})
    whole = module.name or type(module).__name__  # of steps that it wrote itself
    before, RUNNING.place = RUNNING.place, whole
    try:
        made, rest = found._made(call, tuple(it.shape for it in call.arrays))
    finally:
        RUNNING.place = before
    graph = made.graph if rest is None else rest.graph
    with conv_algorithm(module.context.algorithm):
        network = compile_graph(graph, dtype=module.context.dtype_name)
    own = [*call.arrays, *[it.held for it in made.held]]
    inputs = (*own, *[np.ones(it.shape, it.dtype) for it in graph.inputs[len(own) :]])
    network.run(inputs)
    names = {whole, *[it.name for it in module.modules() if it.name]}
    work: dict[tuple[str, str], list[float]] = {}
    for _ in range(runs):
        for _, name, seconds in network.profile(inputs):
            work.setdefault(_part(name, names, training), [0.0, 0.0])[0] += seconds / runs
    for node in join_training(graph).nodes:
        flops = 2.0 * multiply_adds(node)
        if flops:
            work.setdefault(_part(node.name, names, training), [0.0, 0.0])[1] += flops
    return {part: Work(*it) for part, it in work.items()}


def _part(name: str, layers: set[str], training: bool) -> tuple[str, str]:
    """The layer that a step is of, and the pass."""
    words = [it for it in name.split() if it in layers or it.rpartition(".")[0] in layers]
    is_back = "gradient" in name
    layer = next((it if it in layers else it.rpartition(".")[0] for it in words), "")
    which = "backward" if is_back else "forward" if training else "inference"
    return layer or name, which
