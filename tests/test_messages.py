"""What callers are told who mix up flags and operands, shapes and arrays, layers and primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn

pytestmark = pytest.mark.any_level


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


KERNEL = dlprim.Brgemm(4, 4, 4)
MATRIX = ones(4, 4)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: KERNEL(MATRIX, MATRIX), r"called with 2 arguments by position, expected a, b and"),
        (lambda: KERNEL(MATRIX, MATRIX, ones(4, 4), 1), r"called with 4 arguments by position"),
        (lambda: KERNEL(MATRIX, MATRIX, ones(4, 4), size=1), r"no argument 'size'$"),
        (
            lambda: KERNEL(MATRIX, np.ma.masked_array(MATRIX), ones(4, 4)),
            r"^b is a masked array, expected an ndarray",
        ),
        (
            lambda: dlprim.Brgemm(4, 4, 4, bias=ones(4)),
            r"^bias is an array of shape \(4,\), expected True or False: .* call of the kernel$",
        ),
        (lambda: dlprim.Brgemm(4, 4, 4, None), r"^dtype is None, expected a dtype such as"),
        (
            lambda: dlprim.Linear((1, 2), 3, dtype=None),
            r"^dtype is None, expected a dtype such as 'float32'$",
        ),
        (
            lambda: dlprim.tune(nn.Linear(4, 4)),  # type: ignore[arg-type]
            r"^primitive is of type dlprim\.nn\.Linear, expected a Conv2d, .* of dlprim itself",
        ),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(TypeError, match=match):
        call()


@pytest.mark.parametrize(
    ("call", "name", "axes"),
    [
        (lambda x: dlprim.Conv2d(x, (4, 2, 1, 1)), "x_shape", r"\(N, C, H, W\)"),
        (lambda x: dlprim.Conv2d((1, 2, 3, 3), x), "w_shape", r"\(K, C/groups, R, S\)"),
        (lambda x: dlprim.Linear(x, 3), "x_shape", r"\(N, C\)"),
        (lambda x: dlprim.MLP(x, [3]), "x_shape", r"\(N, C\)"),
        (lambda x: dlprim.LSTM(x, 3), "x_shape", r"\(T, N, C\)"),
        (lambda x: dlprim.GRU(x, 3), "x_shape", r"\(T, N, C\)"),
        (lambda x: dlprim.BatchNorm(x), "shape", r"\(N, C, H, W\)"),
        (lambda x: dlprim.MaxPool2d(x, 3), "shape", r"\(N, C, H, W\)"),
        (lambda x: dlprim.Activations(x), "shape", r"\(N, C, H, W\)"),
    ],
)
def test_an_array_is_no_shape(call: Callable[[Any], Any], name: str, axes: str) -> None:
    expected = rf"^{name} is an array of shape \(1, 2, 3, 3\), expected the shape itself, .* {axes}"
    with pytest.raises(TypeError, match=expected):
        call(ones(1, 2, 3, 3))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: dlprim.Linear((1, 2), x), "K"),
        (lambda x: dlprim.LSTM((1, 2, 3), x), "K"),
        (lambda x: dlprim.MLP((1, 2), x), "widths"),
        (lambda x: dlprim.MaxPool2d((1, 2, 3, 3), x), "kernel"),
        (lambda x: dlprim.Activations((1, 2, 3, 3), groups=x), "groups"),
    ],
)
def test_messages_do_not_print_elements(call: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} (is|holds) an array of shape \(7, 7\), expected"):
        call(ones(7, 7))


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_read_only_statistics_are_said_to_be_read_only(name: str) -> None:
    layer = dlprim.BatchNorm((1, 4, 1, 1))
    src = layer.activations.pack(ones(1, 4, 1, 1))
    running = {"running_mean": ones(4), "running_var": ones(4)}
    running[name].flags.writeable = False
    with pytest.raises(ValueError, match=rf"^{name} is read-only, expected a writeable array: tr"):
        layer.forward(src, **running)
    layer.forward(src, **running, training=False)
