"""`nn.Recurrent` in two directions and with lengths, beside `dlprim.lstm` and `dlprim.gru`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn, optim
from dlprim.tracing import compiled as tracing
from drawing import RNG

X = RNG.standard_normal((6, 4, 5), np.float32)
DY = RNG.standard_normal((6, 4, 14), np.float32)
LENGTHS = np.array([6, 0, 3, 5])


ROUND: dict[str, Callable[[Any], Any]] = {
    "float32": lambda it: it,
    "bfloat16": dlprim.to_bfloat16,
}


def function_of(model: nn.Recurrent, cell: str, dtype: str, lengths: Any) -> tuple[Any, Any]:
    """The result of the function, and its gradients by the names of parameters; x's by "x"."""
    narrow = ROUND[dtype]
    parts: list[list[Any]] = [[], [], [], []]
    names = list(model.own_parameters())
    for place, parameter in enumerate(model.parameters()):
        value = parameter.value
        parts[place % 4].append(narrow(value) if place % 4 < 2 else value)
    x, dy = narrow(X), narrow(DY[..., : 7 * (1 + model.bidirectional)].copy())
    how = {"bidirectional": model.bidirectional, "num_layers": model.layers, "training": True}
    run = dlprim.lstm if cell == "lstm" else dlprim.gru
    back: Any = dlprim.lstm_backward if cell == "lstm" else dlprim.gru_backward
    y, *_, saved = run(x, *parts, lengths=lengths, **how)  # type: ignore[operator]
    found = back(dy, saved)
    kinds = (found.diff_w_ih, found.diff_w_hh, found.diff_b_ih, found.diff_b_hh)
    lists = [it if isinstance(it, list) else [it] for it in kinds]
    gradients = {name: lists[place % 4][place // 4] for place, name in enumerate(names)}
    return y, gradients | {"x": found.diff_src}


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("layers", "both"), [(1, True), (2, True), (2, False)])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_directions_and_lengths(
    cell: str, layers: int, both: bool, dtype: str, lengths: Any
) -> None:
    nn.seed(0)
    make = nn.LSTM if cell == "lstm" else nn.GRU
    model = make(5, 7, layers, bidirectional=both)
    model.use(nn.Context(dtype), "rnn")
    expected, gradients = function_of(model, cell, dtype, lengths)
    x = ROUND[dtype](X)
    for training in (False, False, True):
        y = model.forward(x, lengths, training=training)
        np.testing.assert_array_equal(y, expected)
    dx, of_lengths = model.backward(ROUND[dtype](DY[..., : y.shape[2]].copy()))
    assert of_lengths is None
    assert dx.dtype == x.dtype
    found = {name: it.gradient for name, it in model.own_parameters().items()} | {"x": dx}
    for name, it in gradients.items():
        np.testing.assert_array_equal(np.float32(found[name]), np.float32(it), name)
    assert model.states == []


def test_names_are_those_of_pytorch() -> None:
    model = nn.GRU(3, 4, 2, bidirectional=True)
    assert list(model.own_parameters())[:8] == [
        f"{kind}_{which}_l0{direction}"
        for direction in ("", "_reverse")
        for kind in ("weight", "bias")
        for which in ("ih", "hh")
    ]
    assert model.own_parameters()["weight_ih_l1_reverse"].shape == (12, 8)


def test_two_directions_do_not_carry() -> None:
    model = nn.LSTM(5, 7, bidirectional=True)
    model(X)
    model.carry = True
    with pytest.raises(ValueError, match="carry is True and bidirectional too, expected one"):
        model(X)
    with pytest.raises(TypeError, match="bidirectional is 'no', expected True or False"):
        nn.LSTM(5, 7, bidirectional="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_states_go_from_one_call_to_the_next(make: Any, dtype: str) -> None:
    nn.seed(0)
    model = make(5, 7, 2)
    model.use(nn.Context(dtype))
    whole = np.float32(model(X))
    assert model.states == []
    model.carry = True
    bound = 1e-6 if dtype == "float32" else 0.01
    for training in (True, False):
        model.states = []
        parts = [np.float32(model.forward(it, training=training)) for it in (X[:2], X[2:])]
        np.testing.assert_allclose(np.concatenate(parts), whole, atol=bound)
    states = model.states
    assert [it.shape for each in states for it in each] == [(4, 7)] * (4 if make is nn.LSTM else 2)
    np.testing.assert_array_equal(states[-1][0], parts[1][-1])
    again = model(X)
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        twin.states = states
        np.testing.assert_array_equal(twin(X), again)
    states[0][0][...] = np.nan  # a copy
    model.states = []
    np.testing.assert_allclose(np.float32(model(X)), whole, atol=bound)


def test_gradients_are_of_the_latest_call_alone() -> None:
    model = nn.GRU(5, 7)
    model.carry = True
    model(X)
    (state,) = model.states
    model(X)
    model.backward(DY[..., :7].copy())
    weights = [it.value for it in model.parameters()]
    *_, saved = dlprim.gru(X, *weights, h_0=state[0][None], training=True)  # type: ignore[misc]
    found = dlprim.gru_backward(DY[..., :7].copy(), saved)
    expected = (found.diff_w_ih, found.diff_w_hh, found.diff_b_ih, found.diff_b_hh)
    for it, due in zip(model.parameters(), expected, strict=True):
        np.testing.assert_allclose(it.gradient, due, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("states", "error", "message"),
    [
        (None, TypeError, r"^states of LSTM 'rnn' is no list of tuples, expected \[\], or"),
        ([3, 4], TypeError, r"is no list of tuples"),
        ([(1, 2)], ValueError, r"has \[2\] arrays by layer, expected .* \(h, c\) of 2 layers$"),
        (
            [(np.ones((3, 7)),) * 2, (np.ones((2, 7)),) * 2],
            ValueError,
            r"^states\[1\]\[0\] of LSTM 'rnn' has shape \(2, 7\), expected \(3, 7\)",
        ),
        (
            [(np.ones((3, 7)), np.full((3, 7), "a"))] * 2,
            TypeError,
            r"states\[0\]\[1\] of .* dtype <U1",
        ),
    ],
)
def test_states_that_do_not_fit_change_nothing(states: Any, error: Any, message: str) -> None:
    model = nn.LSTM(5, 7, 2)
    model.use(nn.Context(), "rnn")
    model.carry = True
    model(X)
    before = model.states
    with pytest.raises(error, match=message):
        model.states = states
    for one, other in zip(before, model.states, strict=True):
        np.testing.assert_array_equal(one, other)


def test_they_are_shown_and_kept(tmp_path: Path) -> None:
    model = nn.LSTM(5, 7, 2, bidirectional=True).eval()
    assert repr(model).startswith("LSTM(C=5, K=7, layers=2, bidirectional=True)")
    nn.save(model, tmp_path / "it")
    np.testing.assert_array_equal(nn.load(tmp_path / "it")(X), model(X))
    assert model.summary(X.shape).rows[0].shape == (6, 4, 14)
    before = model(X)
    model.own_parameters()["weight_hh_l1_reverse"].value += 0.5
    assert (model(X) != before).any()


@pytest.mark.parametrize("how", ["training", "inference", "a step"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_lists_of_lengths_are_data(cell: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One network for all of them, with the results of arrays."""
    model = nn.Recurrent(cell, 4, 5, bidirectional=True)
    x = np.random.default_rng(0).standard_normal((6, 3, 4), np.float32)
    step = nn.Step(model, lambda y, _: (y * y).mean(), optim.SGD(model.parameters(), lr=0.0))
    compiled = []
    compile_graph = tracing.compile_graph

    def counted(*args: Any) -> Any:
        compiled.append(args)
        return compile_graph(*args)

    def run(lengths: Any) -> Any:
        if how == "a step":
            step.explain(x, lengths, np.float32(0))
            return step(x, lengths, np.float32(0))
        y = model.forward(x, lengths, training=how == "training")
        return y if how == "inference" else np.concatenate([y, model.backward(y)[0]], axis=2)

    monkeypatch.setattr(tracing, "compile_graph", counted)
    for lengths in ([3, 5, 2], (1, 6, 2), [6, 6, 6], [0, 1, 2], list(np.array([4, 2, 1]))):
        np.testing.assert_array_equal(run(lengths), run(np.array(lengths)))
    assert len(compiled) == 1


def test_lengths_that_are_wrong_are_named() -> None:
    model, x = nn.LSTM(4, 5), np.zeros((6, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"lengths\[1\] is 7, expected an integer from 0 to T = 6"):
        model(x, [3, 7, 2])
    with pytest.raises(ValueError, match=r"lengths has shape \(2,\), expected \(3,\)"):
        model(x, [3, 2])
    for wrong, kind in (([5, True, 2], "bool"), ([5.0, 2.0, 1.0], "float"), ([[5], [2]], "list")):
        message = f"lengths of LSTM is a list with a {kind} in it, expected integers"
        for call in (lambda it: model(x, it), lambda it: model(x, lengths=it)):
            with pytest.raises(TypeError, match=message):
                call(wrong)
    for large in (2**63, np.uint64(2**63), 2**70):
        with pytest.raises(ValueError, match=f"lengths of LSTM holds {large}, expected values of"):
            model(x, [5, 2, large])


def test_a_step_explains_what_it_takes() -> None:
    model, x = nn.LSTM(4, 5), np.zeros((6, 3, 4), np.float32)
    step = nn.Step(model, lambda y, _: (y * y).mean(), optim.SGD(model.parameters(), lr=0.0))
    with pytest.raises(TypeError, match="x of LSTM is a list of numbers, expected an array"):
        step.explain([1.0, 2.0], np.float32(0))
    with pytest.raises(TypeError, match="step is given 1 arguments"):
        step.explain(x)
