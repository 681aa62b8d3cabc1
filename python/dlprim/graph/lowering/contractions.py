"""Steps for formulas as they are written, and for sums of Einstein's kind as formulas."""

from __future__ import annotations

from collections.abc import Sequence

from dlprim.graph.graph import Node
from dlprim.graph.lowering.formulas import definition_text, geometry_of, is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.operators.formulas import formula_of


def lower_formula(to: Lowering, node: Node) -> bool:
    """The formula, on arrays as they lie."""
    if not all(value.size for value in (*node.operands, *node.outputs)):
        return False
    places = [to.place(value) for value in node.operands]
    geometries = tuple(map(geometry_of, places))
    formula, _ = to.call(formula_of, geometries, node.attributes)
    results = [to.number(to.result(value)) for value in node.outputs]
    numbers = [to.number(place) for place in places]
    to.network.formula(formula, numbers, results, f"formula {node.name}")
    return True


def _einsum_text(equation: str, shapes: Sequence[tuple[int, ...]]) -> str:
    """Axes of one element are read at 0, those of all operands but the result's are summed over."""
    written, _, result = equation.partition("->")
    extents: dict[str, int] = {}
    for term, shape in zip(written.split(","), shapes, strict=True):
        for letter, extent in zip(term, shape, strict=True):
            if extent != 1:
                extents[letter] = extent
    reads = []
    for place, (term, shape) in enumerate(zip(written.split(","), shapes, strict=True)):
        index = (f"i{it}" if n != 1 else "0" for it, n in zip(term, shape, strict=True))
        reads.append(f"a{place}({','.join(index)})")
    left = ",".join(f"i{letter}" for letter in result)
    sign = "+=!" if set(extents) - set(result) else "="
    single = [f"i{letter} in 0:1" for letter in result if letter not in extents]
    where = f" where {', '.join(single)}" if single else ""
    names = [f"a{place}" for place in range(len(shapes))]
    statement = f"y({left}) {sign} {' * '.join(reads)}{where}"
    return definition_text(list(zip(names, shapes, strict=True)), [statement])


def lower_einsum(to: Lowering, node: Node) -> bool:
    """One statement, which the core makes a product of where it is one."""
    if not is_computed(*(it.dtype for it in node.operands)) or not node.output.size:
        return False
    if not all(value.size and value.shape for value in node.operands):
        return False
    places = [to.place(value) for value in node.operands]
    text = to.call(_einsum_text, node.attributes["equation"], [it.shape for it in places])
    result = to.new(node.output.shape, node.output.dtype)
    if not to.formula(text, places, result, f"einsum {node.name}"):
        return False
    to.put(node.output, result)
    return True
