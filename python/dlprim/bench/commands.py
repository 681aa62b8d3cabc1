"""The subcommands that measure rows, and what each has to choose from."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlprim.bench.measuring.case import Row
from dlprim.bench.settings import Settings

_FLOATS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Command:
    """What it says in --help, where its rows are made, and its options' choices."""

    summary: str
    module: str
    peers: tuple[str, ...] = ("torch",)
    dtypes: tuple[str, ...] = _FLOATS
    passes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()  # of --shapes, --batch, --plain, --prepacked, --algorithm, --cache

    def rows(self, settings: Settings) -> list[Row]:
        """Raises `TableError` and `UnavailableError`."""
        made: Iterator[Row] = self._module().rows(settings)
        return list(made)

    def facts(self) -> dict[str, float]:
        """Figures that are no rows."""
        found: dict[str, float] = getattr(self._module(), "facts", dict)()
        return dict(found)

    def _module(self) -> Any:
        return importlib.import_module(f"dlprim.bench.{self.module}")


COMMANDS = {
    "kernel": Command(
        "the BRGEMM kernel: every type on every ISA level, and epilogues",
        "workloads.kernel", ("numpy", "torch", "libxsmm"),
        dtypes=(*_FLOATS, "uint8", "int8"), flags=("shapes",),
    ),
    "conv": Command(
        "convolutions of a network, and of one and three axes (--shapes axes)",
        "workloads.conv", ("torch", "onednn"),
        passes=("forward", "backward_data", "backward_weights", "forward_transforming", "backward"),
        layouts=("blocked", "NHWC", "NCHW"), flags=("shapes", "batch", "plain", "algorithm"),
    ),
    "linear": Command(
        "linear layers, packed or (--plain) on arrays in several orders",
        "workloads.linear", ("numpy", "torch", "onednn"),
        passes=("forward", "backward_data", "backward_weights", "linear", "linear_backward"),
        layouts=("plain", "transposed w", "strided x", "Fortran x"), flags=("shapes", "plain"),
    ),
    "rnn": Command(
        "LSTM and GRU: inference, training forward, forward and backward",
        "workloads.rnn", passes=("inference", "training", "backward"), kinds=("lstm", "gru"),
        flags=("shapes", "plain", "prepacked"),
    ),
    "layers": Command(
        "what stands around the products: norms, pooling, losses, optimisers, attention, packing",
        "workloads.layers", ("torch", "onnxruntime", "openvino"),
        kinds=("norm", "pool", "flat", "embedding", "optimizer", "rows",
               "attention", "packing"),
        layouts=("blocked", "NHWC"), passes=("forward", "backward"), flags=("shapes", "batch"),
    ),
    "formulas": Command(
        "formulas beside dlprim's own functions, definitions and einsum beside peers",
        "workloads.formulas", ("numpy", "torch", "compile"), dtypes=("float32",),
        kinds=("layers", "definitions", "einsum"), flags=("shapes",),
    ),
    "graph": Command(
        "whole networks from ONNX files, yours too: --shapes MODEL.onnx",
        "networks.graph", ("torch", "compile", "onnxruntime", "openvino"),
        dtypes=(*_FLOATS, "int8"), flags=("shapes", "batch", "cache"),
    ),
    "train": Command(
        "training and inference of whole networks",
        "networks.train", kinds=("resnet50", "lstm", "gru", "mlp"),
        passes=("training", "inference"), flags=("batch", "algorithm"),
    ),
}  # fmt: skip
