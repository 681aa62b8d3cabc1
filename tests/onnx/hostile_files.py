"""Files that lie about themselves: tensors, external data, versions, damaged bytes.

`write` puts every hostile model into a folder and says where each is; `mutations` are damaged forms
of a sound one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_graphs
import numpy as np
import onnx.helper
import onnx.parser

_ADD = "float zero = {0}> { y = Add(x, w) }"


def _tensor(**fields: object) -> onnx.ModelProto:
    """`y = x + w` with a tensor `w` of these fields."""
    model = hostile_graphs.parsed(_ADD)
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type = "w", onnx.TensorProto.FLOAT
    for key, value in fields.items():
        if isinstance(value, list):
            getattr(tensor, key).extend(value)
        else:
            setattr(tensor, key, value)
    return model


def _external(location: str, **others: str) -> onnx.ModelProto:
    model = _tensor(dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **others}.items():
        entry = model.graph.initializer[-1].external_data.add()
        entry.key, entry.value = key, value
    return model


def _opset(version: int | None) -> onnx.ModelProto:
    model = hostile_graphs.parsed(
        "float zero = {0}> { y = Relu(x) }", 18 if version is None else version
    )
    if version is None:
        del model.opset_import[:]
    return model


def _twice() -> onnx.ModelProto:
    model = _tensor(dims=[4], raw_data=bytes(16))
    model.graph.initializer.append(model.graph.initializer[-1])
    return model


def _recursive() -> onnx.ModelProto:
    model = hostile_graphs.parsed("float zero = {0}> { y = own.f(x) }")
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    inner = onnx.helper.make_node("f", ["a"], ["b"], domain="own")
    imports = list(model.opset_import)
    model.functions.append(onnx.helper.make_function("own", "f", ["a"], ["b"], [inner], imports))
    return model


def _input(kind: onnx.TypeProto) -> onnx.ModelProto:
    model = hostile_graphs.parsed("float zero = {0}> { y = Relu(x) }")
    model.graph.input[0].type.CopyFrom(kind)
    return model


def _no_results() -> onnx.ModelProto:
    model = hostile_graphs.parsed(_ADD)
    del model.graph.output[:], model.graph.node[:]
    return model


def _name(name: str) -> onnx.ModelProto:
    model = hostile_graphs.parsed("float zero = {0}> { y = Relu(x) }")
    model.graph.node[0].op_type = name
    return model


def _of_type(kind: int) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(kind, [2, 4])


_REFUSED: dict[str, Callable[[], onnx.ModelProto | bytes]] = {
    "dims_that_overflow": lambda: _tensor(dims=[2**32, 2**32]),
    "dims_that_overflow_to_four": lambda: _tensor(dims=[2**62, 2**62, 4], raw_data=bytes(16)),
    "dims_below_zero": lambda: _tensor(dims=[-4], raw_data=bytes(16)),
    "two_dims_below_zero": lambda: _tensor(dims=[-2, -2], raw_data=bytes(16)),
    "data_cut_off": lambda: _tensor(dims=[4], raw_data=bytes(3)),
    "data_left_over": lambda: _tensor(dims=[4], raw_data=bytes(20)),
    "floats_missing": lambda: _tensor(dims=[4], float_data=[1.0, 2.0]),
    "data_missing": lambda: _tensor(dims=[2**20, 2**20]),
    "data_in_another_field": lambda: _tensor(dims=[4], int64_data=[1, 2, 3, 4]),
    "data_type_unknown": lambda: _tensor(dims=[4], data_type=99, raw_data=bytes(16)),
    "data_type_undefined": lambda: _tensor(dims=[4], data_type=0, raw_data=bytes(16)),
    "tensor_twice": _twice,
    "external_above": lambda: _external("../secret"),
    "external_far_above": lambda: _external("data/../../secret"),
    "external_absolute": lambda: _external("/etc/hostname"),
    "external_by_link": lambda: _external("link"),
    "external_by_linked_folder": lambda: _external("folder/secret"),
    "external_folder": lambda: _external("."),
    "external_pipe": lambda: _external("pipe"),
    "external_missing": lambda: _external("nowhere"),
    "external_without_a_name": lambda: _external(""),
    "external_beyond": lambda: _external("data", offset="64"),
    "external_far_beyond": lambda: _external("data", offset=str(2**62)),
    "external_before": lambda: _external("data", offset="-16"),
    "external_short": lambda: _external("data", length="8"),
    "external_long": lambda: _external("data", length=str(2**50)),
    "external_offset_no_number": lambda: _external("data", offset="many"),
    "opset_of_the_future": lambda: _opset(999),
    "opset_zero": lambda: _opset(0),
    "opset_below_zero": lambda: _opset(-3),
    "opset_missing": lambda: _opset(None),
    "function_of_itself": _recursive,
    "input_of_strings": lambda: _input(_of_type(onnx.TensorProto.STRING)),
    "input_of_unknown_type": lambda: _input(_of_type(77)),
    "input_of_a_sequence": lambda: _input(onnx.helper.make_sequence_type_proto(_of_type(1))),
    "input_without_type": lambda: _input(onnx.TypeProto()),
    "no_results": _no_results,
    "operator_without_name": lambda: _name(""),
    "operator_of_a_long_name": lambda: _name("R" * 1_000_000),
    "no_bytes": lambda: b"",
    "no_model": lambda: b"\x80\x02This is no model." * 99,
    "no_graph": lambda: onnx.ModelProto(ir_version=8).SerializeToString(),
}
# Names of what must be refused, and of what may also run.
REFUSED = (*hostile_graphs.REFUSED, *_REFUSED)
SURVIVED = (*hostile_graphs.SURVIVED, "branches_within_branches", "external")


def write(folder: Path) -> dict[str, Path]:
    """All models, with the files that some of them point at, by name."""
    models: dict[str, onnx.ModelProto | bytes] = {
        name: hostile_graphs.parsed(text)
        for name, text in {**hostile_graphs.REFUSED, **hostile_graphs.SURVIVED}.items()
    }
    models["branches_within_branches"] = hostile_graphs.nested(30)
    models |= {name: make() for name, make in _REFUSED.items()}
    models["external"] = _external("data", offset="16", length="16")
    (folder / "outside").mkdir()
    for secret in (folder / "secret", folder / "outside" / "secret"):
        secret.write_bytes(bytes(64))
    inside = folder / "inside"
    inside.mkdir()
    (inside / "data").write_bytes(bytes(64))
    (inside / "link").symlink_to(folder / "secret")
    (inside / "folder").symlink_to(folder / "outside")
    os.mkfifo(inside / "pipe")
    paths = {name: inside / f"{name}.onnx" for name in models}
    for name, model in models.items():
        paths[name].write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return paths


def mutations(model: bytes, count: int) -> Iterator[bytes]:
    """Cut off, with bytes changed, taken out, doubled or drawn anew: the same ones every time."""
    random = np.random.default_rng(0)
    for number in range(count):
        damaged = bytearray(model)
        for _ in range(random.integers(1, 5)):
            at = int(random.integers(len(damaged)))
            length = int(random.integers(1, 9))
            kind = number % 5
            if kind == 0:
                damaged[at] ^= 1 << int(random.integers(8))
            elif kind == 1:
                damaged[at : at + length] = random.bytes(length)
            elif kind == 2:
                del damaged[at : at + length]
            elif kind == 3:
                damaged[at:at] = damaged[at : at + length]
            else:
                del damaged[max(at, 1) :]
        yield bytes(damaged)
