"""What compare_builds.py measures: calls of the public interface by group and name.

A row is made when it is asked for and belongs to one build, the one that this process imports.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import dlprim
from dlprim.bench import tables
from dlprim.bench.networks import sides
from dlprim.bench.settings import Settings
from dlprim.bench.workloads import conv, kernel, linear, rnn

DTYPES = ("float32", "bfloat16")
_IMAGES = 4  # of a minibatch
_WINOGRAD = (4, 8, 13, 18)  # layers of ResNet-50 with 3x3 filters and stride 1
_TRAINED = {"resnet50": 2, "lstm": 16, "gru": 16}  # images or sequences of a step

Call = Callable[[], object]
Row = tuple[str, str, Callable[[], Call]]  # group, name, what makes the call


def rows() -> Iterator[Row]:
    """All rows, group by group."""
    yield from _kernels()
    yield from _convolutions()
    yield from _recurrent()
    yield from _linear()
    yield from _plain()
    yield from _packing()
    yield from _networks()
    yield from _small_calls()


def _kernels() -> Iterator[Row]:
    def call(shape: kernel.Shape, dtype: str) -> Call:
        case = kernel.Product(shape, kernel.Variant(dtype, dlprim.isa())).make()
        case.verify()
        return partial(case.kernel, case.a, case.b, case.c)

    for row in tables.integers(tables.path_of("brgemm", "kernel"), ("m", "n", "k", "batch")):
        shape = kernel.Shape(**row)
        for dtype in DTYPES:
            yield f"brgemm {dtype}", str(shape), partial(call, shape, dtype)


def _convolutions() -> Iterator[Row]:
    def call(layer: conv.Layer, dtype: str, algorithm: str, which: str) -> Call:
        return conv.PrimitiveCase(layer, _IMAGES, dtype, "blocked", algorithm).ours(which)

    for layer in conv.load_layers(tables.path_of("resnet50", "conv")):
        for dtype in DTYPES:
            for which in conv.PASSES:
                row = partial(call, layer, dtype, "direct", which)
                yield f"conv {which} {dtype}", str(layer), row
        for which in conv.PASSES if layer.id in _WINOGRAD else ():
            row = partial(call, layer, "float32", "winograd", which)
            yield "winograd float32", f"{layer} {which}", row


def _recurrent() -> Iterator[Row]:
    def call(row: rnn.Shape, cell: str, dtype: str, mode: str) -> Call:
        return rnn.RnnCase(row, cell, dtype, prepacked=False).ours(mode)

    for shape in rnn.load_shapes(Settings()):
        if shape.N * shape.T * shape.K * (shape.C + shape.K) > 2e9:
            continue  # seconds a call, and the same code as the smaller ones
        for cell in rnn.CELLS:
            for dtype in DTYPES:
                for mode in ("inference", "backward"):
                    row = partial(call, shape, cell, dtype, mode)
                    yield f"{cell} {mode} {dtype}", shape.name, row


def _linear() -> Iterator[Row]:
    def call(layer: linear.Layer, dtype: str, which: str) -> Call:
        return linear.LinearCase(layer, dtype).ours(which)

    for layer in linear.load_layers(Settings(), "fc"):
        for dtype in DTYPES:
            for which in linear.PASSES:
                yield f"linear {which} {dtype}", layer.name, partial(call, layer, dtype, which)


def _plain() -> Iterator[Row]:
    def call(layer: linear.Layer, function: str) -> Call:
        return linear.PlainCase(layer, function, "plain").ours()

    for layer in linear.load_layers(Settings(), "plain_linear"):
        for function in linear.FUNCTIONS:
            name = ",".join(map(str, layer[1:]))
            yield f"plain {function}", name, partial(call, layer, function)


def _packing() -> Iterator[Row]:
    def call(layer: conv.Layer, dtype: str, what: str) -> Call:
        case = conv.PrimitiveCase(layer, 1, dtype, "blocked")
        x, w, _ = case.plain
        if what == "src":
            return partial(case.conv.pack_src, x, out=case.src)
        if what == "weights":
            return partial(case.conv.pack_weights, w, out=case.direct_weights)
        packed = case.ours("backward_weights")()
        return partial(case.conv.unpack_diff_weights, packed, out=np.empty(w.shape, np.float32))

    for layer in conv.load_layers(tables.path_of("resnet50", "conv"))[:13:3]:
        for dtype in DTYPES:
            for what in ("src", "weights", "diff_weights"):
                yield "packing", f"{layer} {dtype} {what}", partial(call, layer, dtype, what)


def _networks() -> Iterator[Row]:
    def call(setting: sides.Setting, training: bool) -> Call:
        ours = sides.Ours(setting)
        src, targets = sides.batch_of(setting, 0)
        return partial(ours.train, src, targets) if training else partial(ours.infer, src)

    for model, batch in _TRAINED.items():
        for dtype in DTYPES:
            setting = sides.Setting(model, dtype, batch)
            yield f"{model} training", dtype, partial(call, setting, True)
            yield f"{model} inference", dtype, partial(call, setting, False)


def _small_calls() -> Iterator[Row]:
    def kernel() -> Call:
        brgemm = dlprim.Brgemm(8, 8, 8)
        a, b, c = (np.ones(shape, np.float32) for shape in ((1, 8, 8), (1, 8, 8), (8, 8)))
        return partial(brgemm, a, b, c)

    def convolution(algorithm: str) -> Call:
        conv = dlprim.Conv2d((1, 8, 4, 4), (8, 8, 3, 3), padding=1, algorithm=algorithm)
        src = conv.pack_src(np.ones((1, 8, 4, 4), np.float32))
        weights = conv.pack_weights(np.ones((8, 8, 3, 3), np.float32))
        return partial(conv.forward, src, weights, out=conv.forward(src, weights))

    def linear() -> Call:
        layer = dlprim.Linear((4, 16), 16)
        src = layer.pack_src(np.ones((4, 16), np.float32))
        weights = layer.pack_weights(np.ones((16, 16), np.float32))
        return partial(layer.forward, src, weights, out=layer.forward(src, weights))

    yield "small calls", "Brgemm 8x8x8", kernel
    yield "small calls", "Conv2d.forward direct", partial(convolution, "direct")
    yield "small calls", "Linear.forward", linear
