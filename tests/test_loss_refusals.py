"""What callers of mse_loss and binary_cross_entropy_with_logits are told of what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn

pytestmark = pytest.mark.any_level

BCE, BCE_BACKWARD = (
    dlprim.binary_cross_entropy_with_logits,
    dlprim.binary_cross_entropy_with_logits_backward,
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: dlprim.mse_loss(x, x[:2]), r"y has shape \(2, 8\), expected \(4, 8\) as x has"),
        (lambda x: dlprim.mse_loss(x, x[:1]), r"y has shape \(1, 8\), expected \(4, 8\) as x has"),
        (
            lambda x: dlprim.mse_loss(x, dlprim.to_bfloat16(x)),
            "y has dtype .*, expected float32 as x has",
        ),
        (lambda x: dlprim.mse_loss(x, x.astype(int)), "y has dtype int64, expected float32 or bf"),
        (
            lambda x: dlprim.mse_loss(x, x, reduction="all"),
            "reduction is 'all', expected one of 'none', 'mean', 'sum'",
        ),
        (lambda x: dlprim.mse_loss(x, x, reduction=None), "reduction is None, expected one of"),
        (
            lambda x: dlprim.mse_loss(x, x, out=x),
            "out is given with reduction='mean', whose result is a number, expected None",
        ),
        (
            lambda x: dlprim.mse_loss_backward(x, x, x),
            r"dy is an array of shape \(4, 8\), expected",
        ),
        (lambda x: dlprim.mse_loss_backward(None, x, x), "dy is None, expected a finite number"),
        (
            lambda x: dlprim.mse_loss_backward(1.0, x, x, reduction="none"),
            "dy is of type float, expected an array",
        ),
        (
            lambda x: dlprim.mse_loss_backward(x[:2], x, x, reduction="none"),
            r"dy has shape \(2, 8\), expected \(4, 8\) as x has",
        ),
        (
            lambda x: dlprim.mse_loss_backward(1, x[:2], x[2:], out=x.ravel()[8:24].reshape(2, 8)),
            "out shares memory with a part of x, expected x itself or a separate array",
        ),
        (lambda x: BCE(x, x, x[:3]), r"weight has shape \(3, 8\), expected one that is repeated"),
        (lambda x: BCE(x, x, x[None, None]), r"weight has shape \(1, 1, 4, 8\), expected one that"),
        (
            lambda x: BCE(x, x, pos_weight=x[0, :3]),
            r"pos_weight has shape \(3,\), expected one that is repeated to \(4, 8\), the shape",
        ),
        (lambda x: BCE(x, x, 2.0), "weight is of type float, expected an array of float32 or bfl"),
        (
            lambda x: BCE_BACKWARD(1, x[:2], x[2:], x[0], out=x[:2]),
            "out shares memory with weight, expected a separate array",
        ),
        (
            lambda x: dlprim.mse_loss(*[dlprim.Activations((1, 2, 4, 4)).empty()] * 2),
            r"x is packed as \[.*, expected a plain array",
        ),
        (lambda x: nn.MSELoss(reduction="all"), "reduction is 'all', expected one of"),
        (lambda x: nn.MSELoss()(x, x, gradient=1), "gradient is 1, expected True or False"),
        (lambda x: nn.BCEWithLogitsLoss([1, 2]), "weight is of type list, expected an array of f"),
        (
            lambda x: nn.BCEWithLogitsLoss(pos_weight=x.astype(np.float64)),
            "pos_weight has dtype float64, expected float32 or bfloat16",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    before = x.tobytes()
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(x)
    assert x.tobytes() == before
