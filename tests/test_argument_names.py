"""One set of names for arguments, in signatures and in what a caller is told of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn, optim
from public_methods import METHODS
from wrong_values import CALLS

pytestmark = pytest.mark.any_level

EVERY = {name: (getattr(dlprim, name), fine) for name, fine in CALLS.items()} | METHODS
ARRAYS = [
    (name, argument)
    for name, (_, fine) in EVERY.items()
    for argument, value in fine.items()
    if isinstance(value, np.ndarray)
]
FUNCTIONS = [
    name
    for name in dlprim.__all__
    if inspect.isroutine(getattr(dlprim, name)) and name not in ("fold_batch_norm", "tune")
]
# Of tensors: on the right what functions on plain arrays call what is on the left in primitives.
PRIMITIVE = {"src": "x", "weights": "w", "dst": "y", "diff_dst": "dy", "diff_src": "dx"}


@pytest.mark.parametrize(("name", "argument"), ARRAYS)
def test_a_wrong_dtype_is_reported_by_the_name_of_the_argument(name: str, argument: str) -> None:
    function, fine = EVERY[name]
    wrong = fine[argument].astype(np.complex128)
    with pytest.raises(TypeError, match=rf"^{argument} has dtype complex128.*, expected "):
        function(**fine | {argument: wrong})


# What scales each channel, (C,), and is no matrix w.
SCALED = ("layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm", "group_norm", "instance_norm",
          "prelu", "batch_norm")  # fmt: skip
SCALES = {f"{name}{which}" for name in SCALED for which in ("", "_backward")}
# What weighs a loss, as PyTorch calls it.
SCALES |= {f"binary_cross_entropy_with_logits{which}" for which in ("", "_backward")}
SCALES |= {"softmax_cross_entropy"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_plain_arrays_have_plain_names(name: str) -> None:
    names = set(inspect.signature(getattr(dlprim, name)).parameters)
    assert not names & {*PRIMITIVE, "epsilon", "relu"}
    assert ("weight" in names) == (name in SCALES)


@pytest.mark.parametrize(
    "method", [name for name in METHODS if name.endswith((".forward", ".backward", "_data"))]
)
def test_primitives_have_the_names_of_packed_tensors(method: str) -> None:
    function, _ = METHODS[method]
    names = set(inspect.signature(function).parameters)
    plain = {"w", "weight", "y", "dx", "epsilon", "relu"}
    if not method.startswith(("LSTM", "GRU", "RNN")):  # whose x and dy are plain
        plain |= {"x", "dy"}
    assert not names & plain


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda: dlprim.add(np.ones(3), np.ones(3), relu=True),
            "add has no argument relu, .*activ",
        ),
        (
            lambda: dlprim.BatchNorm((1, 2, 3, 4), relu=True),
            "BatchNorm has no argument relu, .*act",
        ),
        (
            lambda: dlprim.BatchNorm((1, 2, 3, 4), epsilon=1),
            "BatchNorm has no argument epsilon, .*",
        ),
        (
            lambda: dlprim.fold_batch_norm(1, weight=None, running_mean=1, running_var=1),
            "fold_batch_norm has no argument weight, expected norm_weight",
        ),
    ],
)
def test_old_names_are_told_the_new_ones(call: Callable[[], Any], expected: str) -> None:
    with pytest.raises(TypeError, match=f"^{expected}"):
        call()


def test_one_form_of_activations() -> None:
    x = np.array([-1, 2], np.float32)
    assert dlprim.add(x, x, activation="relu").tolist() == [0, 4]
    for wrong in ("gelu", True, b"relu", np.ones(2)):
        with pytest.raises(ValueError, match=r"^activation is .*, expected None or 'relu'$"):
            dlprim.add(x, x, activation=wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"^activation is .*, expected None or 'relu'$"):
            dlprim.BatchNorm((1, 2, 3, 4), activation=wrong)  # type: ignore[arg-type]
    assert "relu" not in inspect.signature(dlprim.BatchNorm).parameters


KEYWORDS = {
    dlprim.BatchNorm.forward: "src",
    dlprim.BatchNorm.backward: "diff_dst src saved",
    dlprim.LSTM.forward: "x weights h_0 c_0",
    dlprim.GRU.forward: "x weights h_0",
    dlprim.RNN.forward: "x weights h_0",
    dlprim.LSTM.backward: "dy saved weights",
    dlprim.GRU.backward: "dy saved weights",
    dlprim.Linear.forward: "src weights bias",
    dlprim.Conv2d.forward: "src weights bias residual out",
    dlprim.MLP.forward: "src weights biases",
}


@pytest.mark.parametrize("method", KEYWORDS, ids=lambda it: it.__qualname__)
def test_methods_take_the_rest_by_name(method: Callable[..., Any]) -> None:
    _, *found = inspect.signature(method).parameters.values()
    given = [it.name for it in found if it.kind is not it.KEYWORD_ONLY]
    assert given == KEYWORDS[method].split()


def test_batch_norm_has_the_order_of_pytorch() -> None:
    names = list(inspect.signature(dlprim.BatchNorm.forward).parameters)[2:6]
    assert names == ["running_mean", "running_var", "weights", "bias"]


def test_functions_have_no_bias_by_default() -> None:
    for name in FUNCTIONS:
        parameters = inspect.signature(getattr(dlprim, name)).parameters
        for bias in {"bias", "b_ih", "b_hh"} & set(parameters):
            assert parameters[bias].default is None


X, ROWS = np.ones((1, 2, 4, 4), np.float32), np.ones((2, 3), np.float32)
OF_PYTORCH: list[tuple[Callable[[], Any], str]] = [
    (lambda: nn.Linear(in_features=2, out_features=3), "Linear has no argument in_features, .* C$"),
    (lambda: nn.Linear(2, 3, device="cpu"), "Linear has no argument device, expected none: there"),
    (lambda: nn.Conv2d(2, 3, kernel_size=1), "Conv2d has no argument kernel_size, expected kernel"),
    (lambda: nn.BatchNorm2d(num_features=2), "BatchNorm2d has no argument num_features, .* C$"),
    (lambda: nn.LSTM(2, 3, bias=False), "LSTM has no argument bias, expected none: both biases"),
    (lambda: nn.Context(layout="NHWC"), "Context has no argument layout, expected none: networks"),
    (lambda: nn.LSTM(2, 3, num_layers=2), "LSTM has no argument num_layers, expected layers$"),
    (lambda: nn.Embedding(num_embeddings=2), "Embedding has no argument num_embeddings, .* V$"),
    (lambda: nn.MaxPool2d(kernel_size=2), "MaxPool2d has no argument kernel_size, expected kernel"),
    (lambda: nn.ReLU(inplace=True), "ReLU has no argument inplace, expected none: a new array"),
    (lambda: nn.LeakyReLU(0.1, inplace=True), "LeakyReLU has no argument inplace"),
    (lambda: nn.Dropout(0.1, inplace=True), "Dropout has no argument inplace"),
    (lambda: dlprim.softmax(ROWS, dim=-1), "softmax has no argument dim, expected axis$"),
    (lambda: dlprim.reduce_sum(ROWS, keepdim=True), "reduce_sum has no .* keepdim, .* keepdims$"),
    (lambda: dlprim.concat([ROWS], dim=1), "concat has no argument dim, expected axis$"),
    (lambda: dlprim.conv2d(input=X, weight=X), "conv2d has no argument input, expected x$"),
    (lambda: dlprim.conv1d(X[0], weight=X[0]), "conv1d has no argument weight, expected w$"),
    (lambda: dlprim.conv_transpose3d(input=X), "conv_transpose3d has no argument input, .* x$"),
    (lambda: dlprim.max_pool2d(X, kernel_size=2), "max_pool2d has no .* kernel_size, .* kernel$"),
    (lambda: dlprim.attention(X, X, X, is_causal=True), "attention has no .* is_causal, .* causal"),
    (lambda: dlprim.mse_loss(ROWS, target=ROWS), "mse_loss has no argument target, expected y$"),
    (lambda: dlprim.layer_norm(ROWS, normalized_shape=3), "layer_norm has no .* normalized_shape"),
    (lambda: optim.SGD([ROWS], lr=1, dampening=0.1), "SGD has no argument dampening"),
    (lambda: dlprim.linear(ROWS, ROWS, input=ROWS), "linear has no argument input, expected x$"),
    (lambda: dlprim.linear(ROWS, w=ROWS, weight=1), "linear has no argument weight, expected w$"),
    (lambda: dlprim.linear(input=ROWS, weight=ROWS), "linear has no argument input, expected x$"),
    (lambda: dlprim.relu(ROWS, inplace=True), "relu has no argument inplace, expected out=x, "),
    (lambda: dlprim.gelu(ROWS, inplace=True), "gelu has no argument inplace, expected out=x, "),
    (lambda: dlprim.softplus(ROWS, input=ROWS), "softplus has no argument input, expected x$"),
    (lambda: dlprim.dropout(ROWS, 0.5, training=True), "dropout has no argument training, "),
    (lambda: dlprim.prelu(input=ROWS, weight=ROWS), "prelu has no argument input, expected x$"),
    (lambda: dlprim.add(ROWS, ROWS, alpha=2), "add has no argument alpha, expected none: other"),
    (lambda: dlprim.lstm(input=ROWS), "lstm has no argument input, expected x$"),
    (lambda: dlprim.matmul(input=ROWS, other=ROWS), "matmul has no argument input, expected a$"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), OF_PYTORCH)
def test_names_of_pytorch_are_told_those_of_here(call: Callable[[], Any], expected: str) -> None:
    with pytest.raises(TypeError, match=f"^{expected}"):
        call()


def test_other_names_are_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match=r"max_pool2d\(\) got an unexpected .* 'windows'"):
        dlprim.max_pool2d(X, 2, windows=3)  # type: ignore[call-arg]
    for function in (dlprim.linear, dlprim.relu, dlprim.gelu, dlprim.silu):
        assert "others" not in inspect.signature(function).parameters
        named = f"{function.__name__}\\(\\) got an unexpected keyword argument 'z'"
        with pytest.raises(TypeError, match=named):
            function(x=X, z=3, **{"w": X} if function is dlprim.linear else {})  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'features'"):
        nn.Linear(2, 3, features=3)  # type: ignore[call-arg]
