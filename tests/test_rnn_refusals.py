"""What lstm, gru and their backward passes refuse, by name and before they compute anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.any_level

F4 = np.float32
T, N, C, K = 3, 4, 5, 6


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, F4)


FINE: dict[str, Any] = {"x": zeros(T, N, C), "w_ih": zeros(4 * K, C), "w_hh": zeros(4 * K, K)}
TWO: dict[str, Any] = {
    "x": zeros(T, N, C),
    "w_ih": [zeros(4 * K, C), zeros(4 * K, C)],
    "w_hh": [zeros(4 * K, K)] * 2,
    "bidirectional": True,
}
BF16 = dlprim.to_bfloat16(zeros(4 * K, K))

WRONG = [
    ({"x": zeros(N, C)}, ValueError, r"^x has shape \(4, 5\), expected three .* \(T, N, C\)"),
    ({"x": zeros(N, C), "batch_first": True}, ValueError, r"^x has .* \(N, T, C\)"),
    ({"x": np.zeros((T, N, C))}, TypeError, r"^x has dtype float64, expected float32 or bfloat16"),
    ({"x": [[[0.0]]]}, TypeError, r"^x is of type list"),
    ({"w_hh": zeros(3 * K, K)}, ValueError, r"^w_hh has .*\(4\*K, K\): an LSTM has 4 gates, i, f"),
    ({"w_hh": zeros(4 * K)}, ValueError, r"^w_hh has shape \(24,\), expected \(4\*K, K\)"),
    ({"w_hh": None}, TypeError, r"^w_hh is of type NoneType"),
    ({"w_hh": BF16}, TypeError, r"^w_hh has dtype .*, expected float32 as x has"),
    ({"w_ih": zeros(3 * K, C)}, ValueError, r"^w_ih has shape \(18, 5\), expected \(24, 5\) \(4 g"),
    ({"w_ih": zeros(4 * K, C + 1)}, ValueError, r"^w_ih has shape \(24, 6\), expected \(24, 5\)"),
    ({"w_ih": BF16[:, :C]}, TypeError, r"^w_ih has dtype .*, expected float32 as x has"),
    ({"w_ih": [zeros(4 * K, C)] * 2}, ValueError, r"^w_ih holds 2 arrays, expected 1, one per lay"),
    ({"b_ih": zeros(3 * K)}, ValueError, r"^b_ih has shape \(18,\), expected \(24,\)"),
    ({"b_hh": zeros(4, K)}, ValueError, r"^b_hh has shape \(4, 6\), expected \(24,\)"),
    ({"b_hh": np.zeros(4 * K)}, TypeError, r"^b_hh has dtype float64"),
    (
        {"h_0": zeros(N, K)},
        ValueError,
        r"^h_0 has shape \(4, 6\), expected \(1, 4, 6\) \(.*num_lay",
    ),
    ({"h_0": dlprim.to_bfloat16(zeros(1, N, K))}, TypeError, r"^h_0 has dtype .*, expected floa"),
    ({"lengths": [1, 2, 3]}, ValueError, r"^lengths has shape \(3,\), expected \(4,\)"),
    ({"lengths": [1, 2, 4, 0]}, ValueError, r"^lengths\[2\] is 4, expected .* from 0 to T = 3"),
    ({"lengths": [0, -1, 1, 1]}, ValueError, r"^lengths\[1\] is -1, expected"),
    ({"lengths": [1.0, 1, 1, 1]}, TypeError, r"^lengths has dtype float64, expected integers"),
    ({"lengths": 3}, ValueError, r"^lengths has shape \(.*\), expected \(4,\)"),
    ({"num_layers": 0}, ValueError, r"^num_layers is 0, expected at least 1"),
    ({"num_layers": 1.0}, TypeError, r"^num_layers is of type float"),
    ({"num_layers": 2}, ValueError, r"^w_ih is no list or tuple, expected 2 arrays, one per"),
    ({"reverse": True, "bidirectional": True}, ValueError, r"^reverse and bidirectional are both"),
]
WRONG_OF_TWO = [
    ({"w_ih": TWO["w_ih"][:1]}, ValueError, r"^w_ih holds 1 arrays, expected 2, one per layer and"),
    ({"w_ih": [zeros(24, 5), zeros(24, 6)]}, ValueError, r"^w_ih\[1\] has shape \(24, 6\)"),
    ({"w_hh": [zeros(24, 6), zeros(28, 7)]}, ValueError, r"^w_hh\[1\] has shape \(28, 7\)"),
    ({"b_ih": [zeros(24), None]}, TypeError, r"^b_ih\[1\] is of type NoneType"),
    ({"num_layers": 2}, ValueError, r"expected 4, .*num_layers is 2, directions 2"),
]


@pytest.mark.parametrize(("change", "error", "match"), WRONG)
def test_lstm_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        dlprim.lstm(**(FINE | change))


@pytest.mark.parametrize(("change", "error", "match"), WRONG_OF_TWO)
def test_lstm_of_two_directions_refuses(
    change: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        dlprim.lstm(**(TWO | change))


def test_input_of_later_layers_has_all_directions() -> None:
    given = {**TWO, "num_layers": 2, "w_hh": [zeros(24, 6)] * 4}
    given["w_ih"] = [zeros(24, 5)] * 2 + [zeros(24, 12)] * 2
    assert dlprim.lstm(**given)[0].shape == (T, N, 2 * K)
    given["w_ih"][3] = zeros(24, 6)
    with pytest.raises(ValueError, match=r"^w_ih\[3\] has shape \(24, 6\), expected \(24, 12\)"):
        dlprim.lstm(**given)


def test_gru_refuses_the_gates_of_an_lstm() -> None:
    with pytest.raises(ValueError, match=r"^w_hh has shape \(24, 6\), .*: a GRU has 3 gates, r, z"):
        dlprim.gru(FINE["x"], FINE["w_ih"], FINE["w_hh"])


def saved_of(cell: str) -> Any:
    rows = (4 if cell == "lstm" else 3) * K
    function = dlprim.lstm if cell == "lstm" else dlprim.gru
    return function(zeros(T, N, C), zeros(rows, C), zeros(rows, K), training=True)[-1]


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"dy": zeros(T, N, C)}, ValueError, r"^dy has shape \(3, 4, 5\), expected \(3, 4, 6\)"),
        ({"dy": np.zeros((T, N, K))}, TypeError, r"^dy has dtype float64"),
        ({"dy": dlprim.to_bfloat16(zeros(T, N, K))}, TypeError, r"^dy has .* float32 as x had"),
        ({"dy": None}, TypeError, r"^dy is of type NoneType"),
        ({"diff_h_n": zeros(N, K)}, ValueError, r"^diff_h_n has shape \(4, 6\), expected \(1, 4"),
        ({"diff_c_n": zeros(1, N, C)}, ValueError, r"^diff_c_n has shape \(1, 4, 5\)"),
        ({"saved": None}, TypeError, r"^saved is of type NoneType, expected what lstm\(\.\.\., tr"),
        ({"saved": saved_of("gru")}, ValueError, r"^saved is from gru, expected what lstm\("),
    ],
)
def test_lstm_backward_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        dlprim.lstm_backward(**({"dy": zeros(T, N, K), "saved": saved_of("lstm")} | change))


def test_gru_backward_refuses_what_an_lstm_saved() -> None:
    with pytest.raises(ValueError, match=r"^saved is from lstm, expected what gru\("):
        dlprim.gru_backward(zeros(T, N, K), saved_of("lstm"))


# ---------------------------------------------------------------- the primitives


class Primitive:
    """An LSTM with operands that fit, and a call of each method with some of them changed."""

    def __init__(self) -> None:
        self.lstm = dlprim.LSTM((T, N, C), K)
        self.plain = {"w_ih": zeros(4 * K, C), "w_hh": zeros(4 * K, K)}
        self.weights = self.lstm.pack_weights(**self.plain)
        *_, self.saved = self.lstm.forward(zeros(T, N, C), self.weights, training=True)

    def pack(self, **changed: Any) -> None:
        self.lstm.pack_weights(**(self.plain | changed))

    def forward(self, **changed: Any) -> None:
        out = np.full((T, N, K), 7, F4)
        fine = {"x": zeros(T, N, C), "weights": self.weights, "out": out}
        try:
            self.lstm.forward(**(fine | changed))
        finally:
            assert (out == 7).all(), "written before it was checked"

    def backward(self, **changed: Any) -> None:
        saved = {name: changed.pop(name) for name in [*changed] if name in self.saved._fields}
        fine = {"dy": zeros(T, N, K), "weights": self.weights}
        fine["saved"] = self.saved._replace(**saved)
        self.lstm.backward(**(fine | changed))


OF_GRU = dlprim.GRU((T, N, C), K)
PACKED_GRU = OF_GRU.pack_weights(zeros(3 * K, C), zeros(3 * K, K))


@pytest.mark.parametrize(
    ("method", "change", "error", "match"),
    [
        (
            "pack",
            {"w_ih": zeros(3 * K, C)},
            ValueError,
            r"^w_ih has shape \(18, 5\).*, expected .*\(24",
        ),
        (
            "pack",
            {"w_hh": zeros(4 * K, C)},
            ValueError,
            r"^w_hh has shape \(24, 5\).*, expected .*\(24",
        ),
        ("pack", {"w_hh": zeros(K, 4 * K).T}, ValueError, r"^w_hh "),
        ("pack", {"b_ih": zeros(K)}, ValueError, r"^b_ih has shape \(6,\).*, expected .*\(24,\)"),
        ("pack", {"out": 3}, TypeError, r"^out is of type int, expected what pack_weights"),
        (
            "forward",
            {"x": zeros(T, N, K)},
            ValueError,
            r"^(x|src) has shape \(3, 4, 6\).*, expected",
        ),
        ("forward", {"x": np.zeros((T, N, C))}, TypeError, r"^(x|src) has dtype float64"),
        ("forward", {"weights": None}, TypeError, r"^weights is of type NoneType"),
        (
            "forward",
            {"weights": PACKED_GRU},
            ValueError,
            r"^weights is packed for gru with C = 5 and K = 6 in float32, "
            r"expected weights of lstm with C = 5 and K = 6 in float32$",
        ),
        ("forward", {"h_0": zeros(1, N, K)}, ValueError, r"^h_0 has "),
        (
            "forward",
            {"c_0": zeros(N, C)},
            ValueError,
            r"^c_0 has shape \(4, 5\).*, expected .*\(4, 6\)",
        ),
        ("forward", {"lengths": [1, 2, 4, 0]}, ValueError, r"^lengths\[2\] is 4, .* from 0 to"),
        ("forward", {"lengths": [1, 2]}, ValueError, r"^lengths has shape \(2,\), expected \(4,\)"),
        ("forward", {"lengths": [0.5] * 4}, TypeError, r"^lengths has dtype float64"),
        ("forward", {"out": zeros(T, N, C)}, ValueError, r"^out has shape \(3, 4, 5\)"),
        ("backward", {"dy": zeros(T, N, C)}, ValueError, r"^dy has shape \(3, 4, 5\)"),
        ("backward", {"diff_c_n": zeros(K, N)}, ValueError, r"^diff_c_n has shape \(6, 4\)"),
        ("backward", {"saved": None}, TypeError, r"^saved is of type NoneType, expected LSTMSaved"),
        ("backward", {"saved": ()}, TypeError, r"^saved is of type tuple, expected LSTMSaved"),
        (
            "backward",
            {"gates": zeros(T, N, 3 * K)},
            ValueError,
            r"^saved\.gates has shape \(3, 4, 18\)",
        ),
        ("backward", {"cells": None}, ValueError, r"^saved\.cells is missing"),
        ("backward", {"dst": zeros(T - 1, N, K)}, ValueError, r"^saved\.dst has shape \(2, 4, 6\)"),
        ("backward", {"lengths": np.full(N, T + 1)}, ValueError, r"^lengths\[0\] is 4"),
    ],
)
def test_lstm_primitive_refuses(
    method: str, change: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        getattr(Primitive(), method)(**change)


@pytest.mark.parametrize(
    ("channels", "dtype"), [(C + 1, "float32"), (C, "bfloat16")], ids=["other C", "other dtype"]
)
def test_weights_of_another_layer_are_refused(channels: int, dtype: str) -> None:
    fine = Primitive()
    bits = fine.weights.w_ih.tobytes()
    other = dlprim.LSTM((T, N, channels), K, dtype=dtype)
    plain = [zeros(4 * K, channels), zeros(4 * K, K)]
    if dtype == "bfloat16":
        plain = [dlprim.to_bfloat16(array) for array in plain]
    weights = other.pack_weights(*plain)
    match = f" is packed for lstm with C = {channels} and K = 6 in {dtype}, expected weights of"
    for method, name in [("forward", "weights"), ("backward", "weights"), ("pack", "out")]:
        with pytest.raises(
            ValueError, match=f"^{name}{match} lstm with C = 5 and K = 6 in float32$"
        ):
            getattr(fine, method)(**{name: weights})
    with pytest.raises(ValueError, match=r"^out is packed for lstm with C = 5 and K = 6"):
        other.pack_weights(*plain, out=fine.weights)
    assert fine.weights.w_ih.tobytes() == bits


def test_weights_of_other_extents_are_packed_again() -> None:
    fine = Primitive()
    longer = dlprim.LSTM((T + 1, N + 2, C), K)
    ones = [zeros(4 * K, C) + 1, zeros(4 * K, K) + 1]
    assert longer.pack_weights(*ones, out=fine.weights) is fine.weights
    assert fine.weights.w_hh.max() == 1


def test_out_over_lengths_is_refused() -> None:
    out = zeros(T, N, K)
    lengths = out.reshape(-1)[: 2 * N].view(np.int64)
    for layer, weights in ((Primitive().lstm, Primitive().weights), (OF_GRU, PACKED_GRU)):
        with pytest.raises(ValueError, match=r"^out shares memory with lengths, expected a result"):
            layer.forward(zeros(T, N, C), weights, lengths=lengths, out=out)
    assert not out.any()


@pytest.mark.parametrize("which", ["recurrence", "diff_recurrence"])
def test_uneven_blocks_of_rows_are_refused(which: str) -> None:
    inner = "g c1" if which == "recurrence" else "s1"
    match = rf"of {which} has the step 48 inside the step 64 of the loop 'n', expected a step that"
    with pytest.raises(ValueError, match=match):
        dlprim.LSTM((1, 100, 3), K, schedule={which: f"K N64 n48 {inner}"})
    dlprim.LSTM((1, 100, 3), K, schedule={which: f"K N64 n32 {inner}"})


def test_gru_primitive_refuses_what_an_lstm_saved() -> None:
    with pytest.raises(TypeError, match=r"^saved is of type LSTMSaved, expected GRUSaved"):
        OF_GRU.backward(zeros(T, N, K), Primitive().saved, PACKED_GRU)


def test_layer_without_bias_takes_none() -> None:
    lstm = dlprim.LSTM((T, N, C), K, bias=False)
    with pytest.raises(ValueError, match=r"^b_ih or b_hh was given, but .* bias=False"):
        lstm.pack_weights(zeros(4 * K, C), zeros(4 * K, K), zeros(4 * K))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"x_shape": (T, N)}, ValueError, r"^x_shape is \(3, 4\), expected three extents"),
        ({"x_shape": 3}, TypeError, r"^x_shape is of type int, expected three integers"),
        ({"K": 2.5}, TypeError, r"^K holds 2\.5, expected an integer"),
        ({"K": 0}, ValueError, r"^K"),
        ({"x_shape": (T, N, 0)}, ValueError, r"^C"),
        ({"x_shape": (-1, N, C)}, ValueError, r"^T"),
        ({"dtype": "float64"}, TypeError, r"^dtype is float64, expected float32 or"),
    ],
)
def test_geometry_is_refused(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    for make in (dlprim.LSTM, dlprim.GRU):
        with pytest.raises(error, match=match):
            make(**({"x_shape": (T, N, C), "K": K} | arguments))
