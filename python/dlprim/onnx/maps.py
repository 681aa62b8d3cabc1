"""Outputs that are lists of dicts, which `ZipMap` makes of the rows of an array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dlprim.graph.graph import Array
from dlprim.onnx.operators.ml.labels import zip_map
from dlprim.onnx.program import Block, Port
from dlprim.onnx.proto import ModelError


def keys_of(output: str, block: Block) -> tuple[str, ...] | tuple[int, ...]:
    """The keys of the dicts that an output is; none where it is an array.

    Raises
    ------
    ModelError
        Where another node reads the dicts.
    """
    maker = next((it for it in block.steps if output in it.outputs), None)
    if maker is None or maker.function is not zip_map:
        return ()
    if any(output in step.reads() for step in block.steps):
        raise ModelError(f"{maker.label}: its dicts are read by a node, expected an output only")
    kinds = ("classlabels_strings", "classlabels_int64s")
    labels = next(filter(None, map(maker.attributes.get, kinds)), ())
    if len(set(labels)) < max(1, len(labels)):
        raise ModelError(f"{maker.label}: labels are {list(labels)}, expected some, each once")
    return tuple(labels)


def in_dicts(results: Sequence[Array], outputs: Iterable[Port]) -> list[Any]:
    """Results as the caller gets them."""
    return [
        [
            dict(zip(port.keys, row, strict=True))
            for row in result.reshape(-1, len(port.keys)).tolist()
        ]
        if port.keys
        else result
        for result, port in zip(results, outputs, strict=True)
    ]
