"""Arguments that layers, optimisers and `dlprim.nn` refuse: by name, and with nothing written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD, AdamW

pytestmark = pytest.mark.any_level

SHAPE = (2, 5, 3, 4)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def norm(**more: Any) -> Any:
    layer = dlprim.BatchNorm(SHAPE)
    src = layer.activations.pack(np.arange(120, dtype=np.float32).reshape(SHAPE))
    return layer.forward(**({"src": src} | more))


def backward(**more: Any) -> Any:
    layer = dlprim.BatchNorm(SHAPE)
    src = layer.activations.pack(ones(*SHAPE))
    return layer.backward(**({"diff_dst": src, "src": src, "saved": ones(2, 5)} | more))


def saved_over(running: Any) -> Any:
    return norm(running_mean=running[0], running_var=ones(5), saved=running)


def twice(array: Any) -> Any:
    return norm(running_mean=array, running_var=array)


def fold(**more: Any) -> Any:
    given = {"w": ones(4, 3), "bias": None, "norm_weight": None, "norm_bias": None}
    return dlprim.fold_batch_norm(
        **(given | {"running_mean": ones(4), "running_var": ones(4)} | more)
    )


def mlp(*widths: int, dtype: str = "float32") -> Any:
    return dlprim.MLP((2, 3), widths, dtype=dtype)


def step(gradients: Any, kind: Any = SGD) -> Any:
    kind([ones(3), ones(2)], 0.1).step(gradients)


def overlapping() -> Any:
    array = ones(10)
    return SGD([array[:6], ones(2), array[5:]], 0.1)


def of_itself(kind: Any) -> Any:
    array = ones(10)
    kind([ones(3), array[:8]], 0.1).step([None, array[2:]])


def rate_of(kind: Any, value: Any) -> Any:
    optimizer = kind([ones(3)], 0.1)
    optimizer.learning_rate = value
    optimizer.step([ones(3)])


def loaded(kind: Any, **more: Any) -> Any:
    optimizer = kind([ones(3)], 0.1)
    optimizer.load_state_dict(optimizer.state_dict() | more)


CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "momentum=None": (lambda: norm(momentum=None), TypeError, "momentum is None, expected a"),
    "momentum='a'": (lambda: norm(momentum="a"), TypeError, "momentum is 'a', expected a"),
    "momentum=nan": (lambda: norm(momentum=np.nan), ValueError, "momentum is nan"),
    "momentum=5": (lambda: norm(momentum=5), ValueError, r"momentum is 5, .* in \[0, 1\]"),
    "momentum=-1": (lambda: norm(momentum=-1), ValueError, "momentum is -1"),
    "running twice": (lambda: twice(ones(5)), ValueError, "running_mean shares memory with runn"),
    "saved": (lambda: saved_over(ones(2, 5)), ValueError, "running_mean shares memory with saved"),
    "src=None": (lambda: norm(src=None), TypeError, "src is None, expected a packed array"),
    "diff_dst=None": (lambda: backward(diff_dst=None), TypeError, "diff_dst is None"),
    "backward src": (lambda: backward(src=None), TypeError, "src is None"),
    "eps": (lambda: dlprim.BatchNorm(SHAPE, eps=None), TypeError, "eps is None"),
    "groups": (lambda: dlprim.Activations(SHAPE, groups="a"), TypeError, "groups is 'a', expected"),
    "max": (lambda: dlprim.MaxPool2d(SHAPE, 2).forward(None), TypeError, "^src is"),
    "avg": (lambda: dlprim.AvgPool2d(SHAPE, 2).backward(None), TypeError, "^diff_dst is"),
    "p=None": (lambda: dlprim.dropout(ones(3), None, seed=1), TypeError, "p is None, expected a"),
    "p='x'": (lambda: dlprim.dropout(ones(3), "x", seed=1), TypeError, "p is 'x', expected a"),
    "p=2": (lambda: dlprim.dropout(ones(3), 2, seed=1), ValueError, r"p is 2, .* in \[0, 1\]"),
    "seed": (
        lambda: dlprim.dropout(ones(3), 0.5, seed=1.5),
        TypeError,
        "seed is 1.5, expected an int",
    ),
    "seed large": (
        lambda: dlprim.dropout(ones(3), 0.5, seed=2**64),
        ValueError,
        "seed is 18446744",
    ),
    "ignore_index": (
        lambda: dlprim.softmax_cross_entropy(ones(2, 3), np.zeros(2, int), ignore_index=2**70),
        ValueError,
        "ignore_index is 1180591620717411303424, expected an integer",
    ),
    "variance": (lambda: fold(running_var=-ones(4)), ValueError, "running_var is -1.0 in a chan"),
    "no variance": (lambda: fold(running_var=0 * ones(4), eps=0), ValueError, "a sum above 0"),
    "fold eps": (lambda: fold(eps=-5), ValueError, "eps is -5, expected"),
    "fold w": (lambda: fold(w=np.float32(1)), (TypeError, ValueError), "^w "),  # type: ignore[dict-item]
    "widths": (lambda: dlprim.MLP((2, 3), None), TypeError, "widths is None, expected a sequence"),
    "mlp int8": (lambda: mlp(3, 4, dtype="int8"), TypeError, "dtype is int8, expected float32"),
    "mlp pack": (lambda: mlp(3, 4).pack_weights([ones(3, 3)]), ValueError, "weights has 1 entries"),
    "mlp none": (lambda: mlp(3).pack_weights(None), TypeError, "weights is of type NoneType"),
    "array": (lambda: SGD(ones(3), 0.1), TypeError, "parameters is of type ndarray, expected a l"),
    "float64": (lambda: SGD([np.ones(3)], 0.1), TypeError, r"parameters\[0\] has dtype float64"),
    "no rate": (lambda: SGD([ones(3)], None), TypeError, "lr is None, expected a"),
    "rate='a'": (lambda: SGD([ones(3)], "a"), TypeError, "lr is 'a'"),
    "sgd momentum": (lambda: SGD([ones(3)], 0.1, "a"), TypeError, "momentum is 'a'"),
    "copies": (lambda: SGD([ones(3)], 0.1, copies=[3]), TypeError, r"copies\[0\] is 3, expected"),
    "overlap": (overlapping, ValueError, r"parameters\[0\] and parameters\[2\] share memory"),
    "betas": (
        lambda: AdamW([ones(3)], betas=(0.9,)),
        ValueError,
        r"betas is \(0.9,\), expected two",
    ),
    "one beta": (lambda: AdamW([ones(3)], betas=0.9), ValueError, "betas is 0.9, expected two"),
    "beta": (lambda: AdamW([ones(3)], betas=(0.9, 1)), ValueError, r"betas\[1\] is 1, expected"),
    "adam epsilon": (lambda: AdamW([ones(3)], eps="a"), TypeError, "eps is 'a'"),
    "list": (lambda: step([ones(3), [1, 2]]), TypeError, r"gradients\[1\] is of type list"),
    "gradient": (
        lambda: step([ones(3), np.ones(2)]),
        TypeError,
        r"gradients\[1\] has dtype float6",
    ),
    "gradients": (lambda: step(5), TypeError, "gradients is of type int, expected a list"),
    "no gradients": (lambda: step(None), TypeError, "gradients is None, expected one per param"),
    "itself": (lambda: of_itself(SGD), ValueError, r"shares memory.*, of parameters\[1\]$"),
    "itself adam": (lambda: of_itself(AdamW), ValueError, r"memory.*, of parameters\[1\]$"),
    "rate later": (lambda: rate_of(SGD, None), TypeError, "learning_rate is None"),
    "rate nan": (lambda: rate_of(AdamW, np.nan), ValueError, "learning_rate is nan"),
    "steps": (lambda: loaded(AdamW, steps=-1), ValueError, "steps is -1, expected"),
    "no steps": (lambda: loaded(AdamW, steps=None), TypeError, "steps is None"),
    "load rate": (lambda: loaded(SGD, learning_rate=-1), ValueError, "learning_rate is -1"),
    "load": (lambda: SGD([], 0.1).load_state_dict(None), TypeError, "state is of type NoneType"),
    "algorithm": (lambda: nn.Context(algorithm="fft"), ValueError, "algorithm is 'fft', expected"),
    "kernel": (lambda: nn.Conv2d(3, 4, 0), ValueError, "kernel is 0, expected"),
    "kernels": (
        lambda: nn.Conv2d(3, 4, (3,)),
        ValueError,
        r"kernel is \(3,\), expected an integer or a p",
    ),
    "kernel 2": (lambda: nn.Conv2d(3, 4, (3, 0)), ValueError, r"kernel\[1\] is 0, expected an int"),
    "dilation": (lambda: nn.Conv2d(3, 4, 3, dilation=0), ValueError, "dilation is 0"),
    "padding": (
        lambda: nn.Conv2d(3, 4, 3, 1, ((1, 2), (-1, 2))),
        ValueError,
        r"padding\[1\]\[0\] is",
    ),
    "padding name": (
        lambda: nn.Conv2d(3, 4, 3, 1, "full"),
        ValueError,
        "padding is 'full', expect",
    ),
    "same": (lambda: nn.Conv2d(3, 4, 3, 2, "same"), ValueError, "padding is 'same' and stride is"),
    "stride": (lambda: nn.Conv2d(3, 4, 3, stride=0), ValueError, "stride is 0"),
    "divisor": (
        lambda: nn.Conv2d(4, 3, 3, groups=2),
        ValueError,
        "groups is 2, expected a divisor",
    ),
    "no groups": (lambda: nn.Conv2d(4, 4, 3, groups=0), ValueError, "groups is 0"),
    "nn p": (lambda: nn.Dropout(2, seed=0), ValueError, r"p is 2, expected a number in \[0, 1\)"),
    "nn p=1": (lambda: nn.Dropout(1.0, seed=0), ValueError, "p is 1.0"),
    "nn p='a'": (lambda: nn.Dropout("a", seed=0), TypeError, "p is 'a'"),
    "nn seed": (lambda: nn.Dropout(0.5, seed=-1), ValueError, "seed is -1"),
    "C": (lambda: nn.BatchNorm2d(0), ValueError, "C is 0"),
    "nn epsilon": (lambda: nn.BatchNorm2d(3, eps=-1), ValueError, "eps is -1"),
    "cumulative": (lambda: nn.BatchNorm2d(3, momentum=None), TypeError, "momentum is None"),
    "K": (lambda: nn.Linear(4, "5"), TypeError, "K is '5', expected an integer"),
    "activation": (
        lambda: nn.Linear(4, 5, activation="bogus"),
        ValueError,
        "activation is 'bogus'",
    ),
    "layers": (lambda: nn.Recurrent("lstm", 3, 4, 0), ValueError, "layers is 0"),
    "V": (lambda: nn.Embedding(0, 4), ValueError, "V is 0"),
    "blocks": (lambda: nn.resnet((1, -1), 8, 4), ValueError, r"blocks\[1\] is -1"),
    "x": (
        lambda: nn.Linear(4, 5).forward(np.ones((2, 4))),
        TypeError,
        "x of Linear has dtype float64, exp",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refusals_name_the_argument(case: str) -> None:
    call, error, message = CASES[case]
    with pytest.raises(error, match=message):
        call()


def test_wrong_momentum_writes_nothing() -> None:
    mean, var, out = ones(5), ones(5), np.zeros((2, 1, 3, 4, 5), np.float32)
    for momentum in (None, "a", np.nan, 5, -1):
        with pytest.raises((TypeError, ValueError), match="momentum"):
            norm(running_mean=mean, running_var=var, out=out, momentum=momentum)
    assert not out.any()
    assert (mean == 1).all()
    assert (var == 1).all()


@pytest.mark.parametrize("bad", [np.full(3, "abc"), np.full(3, None), np.full(3, 1e300), 3])
def test_state_of_an_optimiser_that_does_not_fit_changes_nothing(bad: Any) -> None:
    optimizer = AdamW([ones(3)], 0.1)
    optimizer.step([ones(3)])
    before = optimizer.state_dict()
    other = {"state0.0": 9 * ones(3), "state1.0": bad, "learning_rate": 5.0, "steps": 7}
    with pytest.raises((TypeError, ValueError), match=r"state1\.0"):
        optimizer.load_state_dict(other)
    for name, value in optimizer.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
