"""True and False where a number is expected, and arrays that other libraries convert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD, AdamW

pytestmark = pytest.mark.any_level

SQUARE = np.ones((4, 4), np.float32)

FLAGS: dict[str, Callable[[], Any]] = {
    "C": lambda: nn.Linear(True, 2),
    "padding": lambda: nn.Conv2d(4, 4, 3, 1, True),  # meant for bias
    "weight": lambda: nn.BatchNorm2d(3, weight=True),
    "momentum": lambda: nn.BatchNorm2d(3, momentum=False),
    "scale": lambda: nn.Linear(3, 2, scale=True),
    "p": lambda: nn.Dropout(False, seed=0),
    "value": lambda: nn.seed(True),
    "lr": lambda: SGD([SQUARE.copy()], True),
    "weight_decay": lambda: AdamW([SQUARE.copy()], weight_decay=False),
    "layers": lambda: nn.Recurrent("lstm", 3, 4, True),
    "n": lambda: dlprim.set_num_threads(True),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_no_numbers(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} is (True|False|of type bool), expected a"):
        FLAGS[name]()


class Converted:
    """An array as another library has it, without DLPack."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._make()


def broken() -> Any:
    raise RuntimeError("the server is gone")


def test_masks_of_converted_arrays_are_not_dropped() -> None:
    masked = Converted(lambda: np.ma.array(SQUARE, mask=SQUARE > 0))
    with pytest.raises(TypeError, match=r"^x is a masked array"):
        dlprim.linear(masked, SQUARE)
    layer = nn.Linear(4, 4, bias=False)
    with pytest.raises(TypeError, match=r"^weight is a masked array"):
        layer.load_state_dict({"weight": masked})
    np.testing.assert_array_equal(
        dlprim.linear(Converted(lambda: SQUARE), SQUARE), dlprim.linear(SQUARE, SQUARE)
    )


def test_arrays_that_cannot_be_converted_are_named() -> None:
    class Exported:
        def __dlpack__(self, **_: Any) -> Any:
            raise KeyError("stream")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(
        TypeError, match=r"^x cannot be viewed as a NumPy array: the server is gone"
    ):
        dlprim.linear(Converted(broken), SQUARE)
    with pytest.raises(TypeError, match=r"^w of type Exported cannot be viewed"):
        dlprim.linear(SQUARE, Exported())


def test_bits_are_no_values_of_a_state() -> None:
    """What np.load gives of bfloat16 weights that were saved as their bits."""
    layer, bits = nn.Linear(2, 2, bias=False), dlprim.to_bfloat16(np.eye(2, dtype=np.float32))
    with pytest.raises(
        TypeError, match=r"^weight has dtype uint16, .*\.view\(ml_dtypes\.bfloat16\)"
    ):
        layer.load_state_dict({"weight": bits.view(np.uint16)})
    layer.load_state_dict({"weight": dlprim.to_float32(bits.view(np.uint16), dtype="bfloat16")})
    np.testing.assert_array_equal(layer.weight.value, np.eye(2))
