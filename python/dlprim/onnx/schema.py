"""The types that ONNX's own schemas let the inputs of operators have."""

from __future__ import annotations

from functools import cache

from dlprim.onnx.proto import DTYPES
from dlprim.onnx.strings import STRING

# In which strings travel, or are compared; others would compute with their codes.
_OF_STRINGS = {
    "ArrayFeatureExtractor",
    "CategoryMapper",
    "Compress",
    "Concat",
    "DepthToSpace",
    "Equal",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "LabelEncoder",
    "Loop",
    "OneHotEncoder",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "Pad",
    "Reshape",
    "ReverseSequence",
    "Scan",
    "SequenceConstruct",
    "SequenceInsert",
    "SequenceMap",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "Where",
}


@cache
def types_of_inputs(domain: str, name: str, newest: int) -> tuple[frozenset[str], ...]:
    """For each input, the last one for all behind it, too; none where there is no schema.

    They are those of the newest version up to an opset, which takes what older ones took.
    """
    from onnx import TensorProto, defs

    try:
        schema = defs.get_schema(name, newest, domain)
    except defs.SchemaError:  # an operator of others, or newer than the package
        return ()
    found = []
    for formal in schema.inputs:
        names = (it[len("tensor(") : -1].upper() for it in formal.types if it.startswith("tensor("))
        codes = (TensorProto.DataType.Value(it) for it in names)
        known = {**DTYPES, TensorProto.STRING: STRING} if name in _OF_STRINGS else DTYPES
        found.append(frozenset(known[it].name for it in codes if it in known))
    return tuple(found)
