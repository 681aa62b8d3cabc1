"""LSTM, GRU and RNN in every form that ONNX has, in generated code."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

# Without the package this very folder passes for one named `onnx`: ask for a module in it.
pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
onnx_of_dlprim: Any = import_module("dlprim.onnx")

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS: dict[str, Any] = {
    "Affine": lambda x, a, b: a * x + b,
    "Elu": lambda x, a, b: np.where(x < 0, a * (np.exp(x) - 1), x),
    "HardSigmoid": lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1),
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x, a, b: np.log(1 + np.exp(x)),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Tanh": lambda x, a, b: np.tanh(x),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0),
}
TAKEN = {"Affine": 2, "HardSigmoid": 2, "ScaledTanh": 2, "Elu": 1, "LeakyRelu": 1}
TAKEN |= {"ThresholdedRelu": 1}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
Arrays = list[Any]


def drawn(*shape: int) -> np.ndarray:
    return (0.4 * RNG.standard_normal(shape)).astype(np.float32)


def case_of(
    op: str,
    extents: tuple[int, int, int, int],
    *,
    lengths: Any = None,
    peepholes: bool = False,
    states: bool = True,
    constants: Any = (1, 2, 3, 7),
    **attributes: Any,
) -> Any:
    """A node with weights as ONNX has them; X is (T, N, C)."""
    steps, samples, channels, hidden = extents
    ways, rows = 1 + (attributes.get("direction") == "bidirectional"), GATES[op] * hidden
    arrays: Arrays = [drawn(steps, samples, channels), drawn(ways, rows, channels)]
    arrays += [drawn(ways, rows, hidden), drawn(ways, 2 * rows)]
    arrays.append(None if lengths is None else np.array(lengths, np.int32))
    state = (samples, ways, hidden) if attributes.get("layout") else (ways, samples, hidden)
    arrays += [drawn(*state) if states else None for _ in range(1 + (op == "LSTM"))]
    arrays += [drawn(ways, 3 * hidden)] if peepholes else []
    if attributes.get("layout"):
        arrays[0] = arrays[0].transpose(1, 0, 2).copy()
    named = {"hidden_size": hidden, **attributes}
    return one.Case(op, arrays, named, 14, constants=constants, outputs=2 + (op == "LSTM"))


def activations_of(case: Any, way: int) -> list[Any]:
    """The functions of a direction, each with the numbers that are its by their order."""
    named = case.attributes
    count = len(USUAL[case.op])
    names = named.get("activations", USUAL[case.op] * (way + 1))
    alphas, betas = list(named.get("activation_alpha", [])), list(named.get("activation_beta", []))
    made = []
    for name in names:
        alpha = alphas.pop(0) if TAKEN.get(name, 0) > 0 and alphas else 0
        beta = betas.pop(0) if TAKEN.get(name, 0) > 1 and betas else 0
        made.append(lambda x, of=FUNCTIONS[name], a=alpha, b=beta: of(x, a, b))
    return made[way * count : (way + 1) * count]


def step_of(case: Any, way: int, gates: Arrays, h: np.ndarray, c: Any, looks: Any) -> Arrays:
    """A sample's next states by the equations in the operator's text."""
    named, clip = case.attributes, case.attributes.get("clip", np.inf)
    f, *others = (lambda x, of=of: of(np.clip(x, -clip, clip)) for of in activations_of(case, way))
    x_parts, r, bias = gates
    if case.op == "RNN":
        return [f(x_parts[0] + r[0] @ h + bias[0]), c]
    if case.op == "GRU":
        z, reset = (f(x_parts[i] + r[i] @ h + bias[i]) for i in (0, 1))
        if named.get("linear_before_reset"):
            n = others[0](x_parts[2] + reset * (r[2] @ h + bias[2]))
        else:
            n = others[0](x_parts[2] + r[2] @ (reset * h) + bias[2])
        return [(1 - z) * n + z * h, c]
    i, o, forget, new = (x_parts[it] + r[it] @ h + bias[it] for it in range(4))
    i = f(i + looks[0] * c)
    forget = 1 - i if named.get("input_forget") else f(forget + looks[2] * c)
    c = forget * c + i * others[0](new)
    return [f(o + looks[1] * c) * activations_of(case, way)[2](c), c]


def right(case: Any) -> Arrays:
    """The results in float64, sample by sample."""
    x, w, r, bias, lengths, h_0, c_0, looks = (
        None if it is None else it.astype(np.float64) for it in (*case.arrays, *[None] * 4)[:8]
    )
    layout = case.attributes.get("layout")
    if layout:
        x = x.transpose(1, 0, 2)
        h_0, c_0 = (None if it is None else it.transpose(1, 0, 2) for it in (h_0, c_0))
    (steps, samples, _), (ways, _, hidden) = x.shape, r.shape
    gates, direction = GATES[case.op], case.attributes.get("direction", "forward")
    y, ends = np.zeros((steps, ways, samples, hidden)), np.zeros((2, ways, samples, hidden))
    for way in range(ways):
        parts = [it.reshape(gates, hidden, -1) for it in (w[way], r[way])]
        b = bias[way].reshape(2, gates, hidden)
        for n in range(samples):
            count = steps if lengths is None else int(lengths[n])
            order = range(count)[:: -1 if direction == "reverse" or way else 1]
            h, c = (np.zeros(hidden) if it is None else it[way, n] for it in (h_0, c_0))
            look = np.zeros(3) if looks is None else looks[way].reshape(3, hidden)
            for t in order:
                x_parts = parts[0] @ x[t, n] + b[0]
                h, c = step_of(case, way, [x_parts, parts[1], b[1]], h, c, look)
                y[t, way, n] = h
            ends[:, way, n] = h, c
    if layout:
        y, ends = y.transpose(2, 0, 1, 3), ends.transpose(0, 2, 1, 3)
    return [y, *ends][: case.outputs]


def loaded(case: Any, **how: Any) -> Any:
    model = one.model(case)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = 1
    return onnx_of_dlprim.load(model, **how)


def agrees(case: Any) -> None:
    for found, wanted in zip(one.by_dlprim(case), right(case), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


# T, N, C, K: two panels of the state with one that is not full, one step, one sample.
SHAPES = [(9, 5, 7, 70), (1, 3, 4, 5), (12, 1, 138, 25), (3, 70, 16, 32)]
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {"peepholes": True}),
    ("LSTM", {"clip": 0.3}),
    ("LSTM", {"input_forget": 1}),
    ("LSTM", {"activations": ["Sigmoid", "Relu", "Softsign"]}),
    ("LSTM", {"peepholes": True, "clip": 0.5, "input_forget": 1}),
    ("GRU", {}),
    ("GRU", {"clip": 0.3}),
    ("GRU", {"linear_before_reset": 1, "clip": 0.2, "activations": ["Softsign", "Softplus"]}),
    ("RNN", {}),
    ("RNN", {"activations": ["Relu"], "clip": 1.5}),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("op", "form"), FORMS, ids=str)
def test_forms_compute_what_their_equations_say(op: str, form: Any, shape: Any) -> None:
    steps, samples = shape[:2]
    lengths = RNG.integers(0, steps + 1, samples)
    way = ("forward", "reverse", "bidirectional")[int(RNG.integers(3))]
    named = dict(form)
    if "activations" in form:
        named["activations"] = form["activations"] * (1 + (way == "bidirectional"))
    agrees(case_of(op, shape, lengths=lengths, direction=way, **named))
    agrees(case_of(op, shape, states=False, direction=way, **named))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("op", GATES)
def test_every_function_takes_its_numbers(op: str, name: str) -> None:
    count = TAKEN.get(name, 0)
    functions = [name, *USUAL[op][1:], *USUAL[op][:-1], name]
    numbers: dict[str, Any] = {"activation_alpha": [0.3, 0.7]} if count else {}
    numbers |= {"activation_beta": [0.6, 0.4]} if count > 1 else {}
    named = {"activations": functions, "direction": "bidirectional", **numbers}
    agrees(case_of(op, (4, 3, 5, 20), **named))


@pytest.mark.parametrize("op", GATES)
def test_weights_and_lengths_may_be_inputs(op: str) -> None:
    case = case_of(op, (5, 4, 6, 20), lengths=[5, 0, 3, 1], constants=(), peepholes=op == "LSTM")
    agrees(case)
    model = loaded(case)
    model(**one.given(case))
    assert "call #" not in model.explain()


@pytest.mark.parametrize("op", GATES)
def test_samples_may_be_in_front(op: str) -> None:
    case = case_of(op, (5, 4, 6, 20), direction="bidirectional", layout=1)
    agrees(case)


@pytest.mark.parametrize(("op", "form"), FORMS, ids=str)
def test_no_form_is_a_step_of_python(op: str, form: Any) -> None:
    case = case_of(op, (4, 2, 5, 3), **form)
    assert {it.operator for it in one.graph(case).nodes} <= {"recurrent", "slice", "reshape"}
    model = loaded(case)
    model(**one.given(case))
    assert "call #" not in model.explain()


@pytest.mark.parametrize(("op", "form"), [("LSTM", {}), *FORMS], ids=str)
def test_networks_in_bfloat16_have_layers_in_bfloat16(op: str, form: Any) -> None:
    case = case_of(op, (8, 6, 24, 10), lengths=[8, 3, 0, 5, 8, 1], **form)
    model = loaded(case, dtype="bfloat16")
    results = model(**one.given(case))
    assert "bfloat16 (8, 6, 24)" in model.explain()
    for found, wanted in zip(results, right(case), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0.05, atol=0.03)


def test_weights_that_are_inputs_may_be_bfloat16() -> None:
    case = case_of("GRU", (5, 4, 6, 20), constants=())
    for found, wanted in zip(
        loaded(case, dtype="bfloat16")(**one.given(case)), right(case), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=0.05, atol=0.03)


@pytest.mark.parametrize("wrong", [[6, 1], [-1, 2]])
def test_lengths_beyond_the_steps_are_refused(wrong: Any) -> None:
    case = case_of("RNN", (5, 2, 3, 4), lengths=wrong)
    with pytest.raises(ValueError, match=r"lengths\[0\] is .*expected an integer from 0 to T = 5"):
        one.by_dlprim(case)


def test_a_clip_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"clip is -1.0, expected a number of at least 0"):
        one.by_dlprim(case_of("GRU", (5, 2, 3, 4), clip=-1.0))


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("extents", [(0, 2, 4, 8), (3, 0, 4, 8)], ids=str)
@pytest.mark.parametrize("op", GATES)
def test_states_stay_where_there_are_no_steps(op: str, extents: Any, states: bool) -> None:
    case = case_of(op, extents, states=states, direction="bidirectional")
    model = loaded(case)
    found = model.run(one.given(case))
    steps, samples, _, hidden = extents
    assert found[0].shape == (steps, 2, samples, hidden)
    for state, first in zip(found[1:], case.arrays[5:], strict=False):
        due = np.zeros((2, samples, hidden), np.float32) if first is None else first
        np.testing.assert_array_equal(state, due)
    assert "call(" not in model.explain()
