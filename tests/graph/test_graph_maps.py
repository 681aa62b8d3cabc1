"""Which maps are joined."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.graph import Builder, interpret
from dlprim.graph.passes.maps import join_maps

pytestmark = pytest.mark.any_level


def test_integers_made_floats_stay_in_front_of_what_is_compiled() -> None:
    """The engine does not read them, and would leave the whole map to NumPy."""
    b = Builder()
    x, zero = b.input("x", (3, 4), "float32"), b.input("zero", (), "uint8")
    y = b.apply("exp", b.apply("subtract", x, b.cast(zero, "float32")))
    graph = b.graph([y])
    result = join_maps(graph)
    assert [len(node.operands) for node in result.nodes] == [1, 2]
    arrays = [np.ones((3, 4), np.float32), np.array(3, np.uint8)]
    np.testing.assert_array_equal(interpret(result, arrays)[0], interpret(graph, arrays)[0])
