"""Whatever returns more than one thing returns them by name, and still in their order."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import dlprim
from public_methods import METHODS
from wrong_values import CALLS

pytestmark = pytest.mark.any_level

FIELDS = {
    "linear_backward": "dx dw db",
    "attention_backward": "dq dk dv",
    "conv2d_backward": "dx dw db",
    **{f"conv{axes}_backward": "dx dw db" for axes in ("1d", "3d")},
    **{f"conv_transpose{axes}_backward": "dx dw db" for axes in ("1d", "2d", "3d")},
    "layer_norm_backward": "dx dw db",
    "rms_norm_backward": "dx dw",
    "group_norm_backward": "dx dw db",
    "batch_norm_backward": "dx dw db",
    "instance_norm_backward": "dx dw db",
    "prelu_backward": "dx dw",
    "add_layer_norm": "y sum",
    "add_rms_norm": "y sum",
    "add_layer_norm_backward": "dx dw db",
    "add_rms_norm_backward": "dx dw",
    "quantization_parameters": "scale zero_point",
    "softmax_cross_entropy": "loss dx",
    "fold_batch_norm": "w bias",
    "lstm": "y h_n c_n saved",
    "gru": "y h_n saved",
    "rnn": "y h_n",
    "lstm_backward": "diff_src diff_h_0 diff_c_0 diff_w_ih diff_w_hh diff_b_ih diff_b_hh",
    "gru_backward": "diff_src diff_h_0 diff_w_ih diff_w_hh diff_b_ih diff_b_hh",
    "LSTM.forward": "y h_n c_n saved",
    "GRU.forward": "y h_n saved",
    "RNN.forward": "y h_n",
    "LSTM.backward": "diff_src diff_h_0 diff_c_0 diff_w_ih diff_w_hh diff_b_ih diff_b_hh",
    "GRU.backward": "diff_src diff_h_0 diff_w_ih diff_w_hh diff_b_ih diff_b_hh",
    "Linear.forward": "dst saved",
    "Linear.backward_activation": "diff_dst diff_bias",
    "MLP.backward": "diff_src diff_weights diff_biases",
    "BatchNorm.forward": "dst saved",
    "BatchNorm.backward": "diff_src diff_residual diff_weights diff_bias",
}
EVERY = {name: (getattr(dlprim, name), fine) for name, fine in CALLS.items()} | METHODS
EVERY.pop("threads")  # warns where its result is not used


@pytest.mark.parametrize("name", EVERY)
def test_results_have_names(name: str) -> None:
    function, fine = EVERY[name]
    found = function(**fine)
    if not isinstance(found, tuple):
        assert name not in FIELDS
        return
    fields: tuple[str, ...] = getattr(found, "_fields", ())
    assert " ".join(fields) == FIELDS[name.split(" ")[0]]
    for one, other in zip(found, fields, strict=True):
        assert getattr(found, other) is one
    documented = inspect.getdoc(type(found)) or ""
    where = documented + (inspect.getdoc(dlprim.lstm_backward) or "")
    assert all(field in where for field in fields)
    assert type(found).__name__ in (inspect.getdoc(function) or "")


def test_without_training_there_is_nothing_saved() -> None:
    def fields(name: str) -> Any:
        function, fine = EVERY[name]
        return getattr(function(**fine | {"training": False}), "_fields", None)

    assert fields("lstm") == fields("LSTM.forward") == ("y", "h_n", "c_n")
    assert fields("gru") == fields("GRU.forward") == ("y", "h_n")
    assert fields("Linear.forward") is None
    assert fields("MLP.forward") is None
    function, fine = EVERY["MLP.forward"]
    dst, saved = function(**fine | {"training": True})
    assert isinstance(dst, np.ndarray)
    assert [each._fields for each in saved] == [("src", "saved")] * 2
