"""Nodes that no exporter writes: every operator with any number of inputs of any rank and type, and
with attributes of any kind.

`systematic` changes one thing at a time, `drawn` all of them together, with the ends of integers
and what is no number among the elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, ModelProto, helper, numpy_helper

from dlprim.graph.graph import Array
from dlprim.onnx.attributes import signature_of
from dlprim.onnx.proto import DTYPES
from dlprim.onnx.reader import NEWEST_OPSET, OLDEST_OPSET
from dlprim.onnx.registry import OPERATORS, Operator
from dlprim.onnx.schema import types_of_inputs

TYPES = [DTYPES[code] for code in sorted(DTYPES)]
_USUAL = [np.dtype(it) for it in ("float32", "float32", "float32", "int64", "int64")]
_INTEGERS = (0, 1, 2, 3, -1, -2, 7, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, 1.0, 2.0, 0.5, -1.0, 3.0, np.nan, np.inf, 1e30)
_TEXTS = ("", "nearest", "linear", "constant", "SAME_UPPER", "forward", "ij,jk->ik", "LEFT", "Tanh")
_MOST_RANK = 6

Key = tuple[str, str]


class Drawn(NamedTuple):
    """A model of one node, and what its inputs are given."""

    what: str
    model: ModelProto
    given: dict[str, np.ndarray]


def elements(dtype: np.dtype[Any], shape: Sequence[int], random: np.random.Generator) -> np.ndarray:
    if dtype.kind == "f" or "float" in dtype.name:
        with np.errstate(all="ignore"):
            return np.asarray(random.choice(np.float32(_FLOATS), shape)).astype(dtype)
    wide = np.asarray(random.choice(np.array(_INTEGERS[: random.choice([4, 11])]), shape))
    is_narrow = dtype.name.endswith(("int4", "int2"))
    return (wide & 1).astype(np.int8).astype(dtype) if is_narrow else wide.astype(dtype)


def _texts(random: np.random.Generator) -> list[str]:
    return [str(it) for it in random.choice(_TEXTS, random.integers(4))]


def _attribute(name: str, kind: Any, random: np.random.Generator) -> AttributeProto:
    if kind is Array:
        array = elements(TYPES[random.integers(len(TYPES))], (int(random.integers(3)),), random)
        return helper.make_attribute(name, numpy_helper.from_array(array))
    number, text = float(random.choice(_FLOATS)), str(random.choice(_TEXTS))
    count, least = int(random.integers(5)), random.choice([4, 11])
    integers = [int(it) for it in random.choice(np.array(_INTEGERS[:least]), count + 1)]
    values = {
        float: (number, AttributeProto.FLOAT),
        int: (integers[0], AttributeProto.INT),
        str: (text, AttributeProto.STRING),
        tuple[float, ...]: ([number] * count, AttributeProto.FLOATS),
        tuple[int, ...]: (integers[1:], AttributeProto.INTS),
        tuple[str, ...]: (_texts(random), AttributeProto.STRINGS),
    }
    value, code = values[kind]
    return helper.make_attribute(name, value, attr_type=code)


KINDS = (float, int, str, Array, tuple[float, ...], tuple[int, ...], tuple[str, ...])


def _known_kinds(kinds: Sequence[Any]) -> list[Any]:
    return [it for it in KINDS if it in kinds]


def _node(
    key: Key,
    since: int,
    arrays: Sequence[np.ndarray | None],
    constants: Sequence[int],
    attributes: Sequence[AttributeProto],
    what: str,
    outputs: int = 1,
) -> Drawn:
    (domain, name), given, initializers, inputs = key, {}, [], []
    for place, array in enumerate(arrays):
        if array is not None and place in constants:
            initializers.append(numpy_helper.from_array(array, f"x{place}"))
        elif array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(f"x{place}", kind, array.shape))
            given[f"x{place}"] = array
    names = ["" if it is None else f"x{place}" for place, it in enumerate(arrays)]
    results = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(name, names, results, domain=domain)
    node.attribute.extend(attributes)
    shown = [helper.make_tensor_value_info(it, 1, None) for it in results]
    graph = helper.make_graph([node], "drawn", inputs, shown, initializers)
    opset = NEWEST_OPSET if domain else min(max(since, OLDEST_OPSET), NEWEST_OPSET)
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, since)] if domain else []
    return Drawn(what, helper.make_model(graph, opset_imports=opsets, ir_version=9), given)


def _required(operator: Operator, random: np.random.Generator) -> list[AttributeProto]:
    signature = signature_of(operator)
    return [
        _attribute(name, _known_kinds(signature.kinds[name])[0], random)
        for name in sorted(signature.required)
    ]


def systematic(key: Key, operator: Operator) -> Iterator[Drawn]:
    """Numbers of inputs, ranks, types and kinds of attributes, one after the other."""
    random = np.random.default_rng(len(key[1]))
    signature = signature_of(operator)
    most = signature.least + 2 if signature.most is None else signature.most
    usual = np.dtype(np.float32)
    for count in range(most + 2):
        arrays = [elements(usual, (2, 2), random) for _ in range(count)]
        yield _node(key, operator.since, arrays, (), _required(operator, random), f"{count} inputs")
    for rank, dtype in [(it, usual) for it in range(_MOST_RANK + 1)] + [(2, it) for it in TYPES]:
        for constants in (range(most), range(1, most)):
            arrays = [elements(dtype, (2,) * rank, random) for _ in range(most)]
            what = f"{dtype} of rank {rank}, constants {list(constants)}"
            required = _required(operator, random)
            yield _node(key, operator.since, arrays, constants, required, what)
    for name in signature.kinds:
        for kind in KINDS:
            others = [it for it in _required(operator, random) if it.name != name]
            arrays = [elements(usual, (1, 2, 2, 2), random) for _ in range(most)]
            attributes = [*others, _attribute(name, kind, random)]
            yield _node(key, operator.since, arrays, (), attributes, f"{name} of {kind}")


def drawn(key: Key, operator: Operator, number: int) -> Drawn:
    """Everything at once, mostly of the types that the operator takes."""
    random = np.random.default_rng([number, operator.since, *map(ord, key[1])])
    signature, types = signature_of(operator), types_of_inputs(*key, NEWEST_OPSET)
    most = 4 if signature.most is None else signature.most
    is_wild = random.random() < 0.3
    least, beyond = (0, most + 2) if is_wild else (signature.least, most + 1)
    count = int(random.integers(least, beyond))
    shape = tuple(int(it) for it in random.integers(0, 4, random.integers(_MOST_RANK + 1)))
    usual = _USUAL[random.integers(len(_USUAL))]
    arrays: list[np.ndarray | None] = []
    for place in range(count):
        dtype = usual if random.random() < 0.8 else TYPES[random.integers(len(TYPES))]
        known = types[min(place, len(types) - 1)] if types else {dtype.name}
        if dtype.name not in known and random.random() < 0.9:
            listed = [it for it in TYPES if it.name in known] or TYPES
            dtype = listed[random.integers(len(listed))]
        extents = shape if random.random() < 0.5 else shape[: random.integers(len(shape) + 1)]
        extents = extents[:1] if place and dtype.name == "int64" else extents
        is_there = random.random() > 0.05
        arrays.append(elements(dtype, extents, random) if is_there else None)
    attributes = []
    for name, kinds in signature.kinds.items():
        if name in signature.required or random.random() < 0.5:
            listed_kinds = _known_kinds(kinds) if random.random() < 0.9 else KINDS
            kind = listed_kinds[random.integers(len(listed_kinds))]
            attributes.append(_attribute(name, kind, random))
    constants = [place for place in range(count) if random.random() < 0.5]
    outputs = int(random.choice([1, 1, 1, 2, 3]))
    return _node(key, operator.since, arrays, constants, attributes, f"draw {number}", outputs)


def operators() -> list[Key]:
    return sorted(OPERATORS)
