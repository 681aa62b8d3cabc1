"""Optimisers against their equations in float64, and against PyTorch where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim
from dlprim.optim import LAMB, SGD, Adam, AdamW, RMSprop

pytestmark = pytest.mark.every_level

SHAPES = [(3, 5), (17,), (1,), (40001,), (0, 4)]


def arrays(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape, np.float32) for shape in SHAPES]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd(momentum, decay, nesterov):
    parameters = arrays(0)
    copies = [dlprim.to_bfloat16(parameter) for parameter in parameters]
    exact = [parameter.astype(np.float64) for parameter in parameters]
    velocity = [np.zeros_like(parameter) for parameter in exact]
    optimiser = SGD(parameters, 0.1, momentum, weight_decay=decay, nesterov=nesterov, copies=copies)
    for step in range(3):
        gradients = arrays(step + 1)
        optimiser.step(gradients)
        for w, v, g in zip(exact, velocity, gradients, strict=True):
            slope = g + decay * w
            v[...] = momentum * v + slope
            w -= 0.1 * (slope + momentum * v if nesterov else v)
    for parameter, copy, w in zip(parameters, copies, exact, strict=True):
        np.testing.assert_allclose(parameter, w, 2e-6, 2e-6)
        assert copy.tobytes() == dlprim.to_bfloat16(parameter).tobytes()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(decay):
    parameters = arrays(0)
    copies = [dlprim.to_bfloat16(parameter) for parameter in parameters]
    exact = [parameter.astype(np.float64) for parameter in parameters]
    means = [np.zeros_like(parameter) for parameter in exact]
    squares = [np.zeros_like(parameter) for parameter in exact]
    optimiser = Adam(parameters, 0.01, weight_decay=decay, copies=copies)
    for step in range(1, 5):
        gradients = arrays(step)
        optimiser.step(gradients)
        for w, m, v, g in zip(exact, means, squares, gradients, strict=True):
            g = g + decay * w
            m[...] = 0.9 * m + 0.1 * g
            v[...] = 0.999 * v + 0.001 * g**2
            w -= 0.01 * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    for parameter, copy, w in zip(parameters, copies, exact, strict=True):
        np.testing.assert_allclose(parameter, w, 2e-6, 2e-6)
        assert copy.tobytes() == dlprim.to_bfloat16(parameter).tobytes()


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rmsprop(centered, momentum, decay):
    parameters = arrays(0)
    copies = [dlprim.to_bfloat16(parameter) for parameter in parameters]
    exact = [parameter.astype(np.float64) for parameter in parameters]
    squares, means, velocities = ([np.zeros_like(it) for it in exact] for _ in range(3))
    more = {"weight_decay": decay, "momentum": momentum, "centered": centered}
    optimiser = RMSprop(parameters, 0.01, 0.9, 1e-4, **more, copies=copies)
    for step in range(3):
        gradients = arrays(step + 1)
        optimiser.step(gradients)
        for w, s, m, v, g in zip(exact, squares, means, velocities, gradients, strict=True):
            g = g + decay * w
            s[...] = 0.9 * s + 0.1 * g**2
            m[...] = 0.9 * m + 0.1 * g
            v[...] = momentum * v + g / (np.sqrt(s - m**2 if centered else s) + 1e-4)
            w -= 0.01 * v
    for parameter, copy, w in zip(parameters, copies, exact, strict=True):
        # The difference s - m**2 has lost bits where gradients are alike.
        np.testing.assert_allclose(parameter, w, 2e-6, 2e-5 if centered else 2e-6)
        assert copy.tobytes() == dlprim.to_bfloat16(parameter).tobytes()


def test_centered_rmsprop_of_gradients_that_are_alike():
    """Whose variance falls below zero by rounding."""
    gradient = np.random.default_rng(0).standard_normal(1000, np.float32)
    for alpha, steps in ((0.99, 3000), (0.5, 300)):
        parameter = np.zeros(1000, np.float32)
        optimiser = RMSprop([parameter], 1e-3, alpha=alpha, centered=True, eps=1.0)
        for _ in range(steps):
            optimiser.step([gradient])
        assert np.isfinite(parameter).all()


def test_rmsprop_of_nan_is_nan():
    for centered in (False, True):
        parameter = np.zeros(20, np.float32)
        gradient = np.where(np.arange(20) == 3, np.nan, 1).astype(np.float32)
        RMSprop([parameter], centered=centered).step([gradient])
        assert np.isnan(parameter).tolist() == np.isnan(gradient).tolist()


def test_adamw():
    parameters = arrays(0)
    exact = [parameter.astype(np.float64) for parameter in parameters]
    means = [np.zeros_like(parameter) for parameter in exact]
    squares = [np.zeros_like(parameter) for parameter in exact]
    optimiser = AdamW(parameters, 0.01, weight_decay=0.1)
    for step in range(1, 5):
        gradients = arrays(step)
        optimiser.step(gradients)
        for w, m, v, g in zip(exact, means, squares, gradients, strict=True):
            g = g.astype(np.float64)
            w *= 1 - 0.01 * 0.1
            m[...] = 0.9 * m + 0.1 * g
            v[...] = 0.999 * v + 0.001 * g**2
            w -= 0.01 * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    for parameter, w in zip(parameters, exact, strict=True):
        np.testing.assert_allclose(parameter, w, 2e-6, 2e-6)


def test_lamb():
    parameters = [*arrays(0), np.zeros(6, np.float32)]
    exact = [parameter.astype(np.float64) for parameter in parameters]
    means = [np.zeros_like(parameter) for parameter in exact]
    squares = [np.zeros_like(parameter) for parameter in exact]
    optimiser = LAMB(parameters, 0.01, (0.8, 0.95), weight_decay=0.1)
    for step in range(1, 5):
        gradients = [*arrays(step), np.ones(6, np.float32)]
        optimiser.step(gradients)
        for w, m, v, g in zip(exact, means, squares, gradients, strict=True):
            g = g.astype(np.float64)
            m[...] = 0.8 * m + 0.2 * g
            v[...] = 0.95 * v + 0.05 * g**2
            d = m / (1 - 0.8**step) / (np.sqrt(v / (1 - 0.95**step)) + 1e-6) + 0.1 * w
            length = np.linalg.norm(w)
            w -= 0.01 * (length / np.linalg.norm(d) if length > 0 and d.any() else 1) * d
    for parameter, w in zip(parameters, exact, strict=True):
        np.testing.assert_allclose(parameter, w, 5e-6, 5e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SGD(p, 0.1, 0.9),
        lambda p: AdamW(p, 0.1),
        lambda p: LAMB(p, 0.1),
        lambda p: Adam(p, 0.1, weight_decay=0.1),
        lambda p: RMSprop(p, momentum=0.9),
        lambda p: RMSprop(p, centered=True),
    ],
)
def test_state_continues_and_threads_do_not_matter(make):
    parameters, others = arrays(0), arrays(0)
    one, other = make(parameters), make(others)
    one.step(arrays(1))
    with dlprim.threads(3):
        other.step(arrays(1))
    resumed = make(others)
    resumed.load_state_dict(other.state_dict())
    one.step(arrays(2))
    resumed.step(arrays(2))
    for a, b in zip(parameters, others, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("resumes", [False, True])
def test_a_parameter_that_is_thawed_late_is_corrected_as_a_new_one(kind, resumes):
    """Each is updated as by an optimiser of its own, whichever others have a gradient."""
    random = np.random.default_rng(3)
    parameters, alone = arrays(0), arrays(0)
    optimiser, own = kind(parameters, 0.01), [kind([it], 0.01) for it in alone]
    for step in range(40):
        given = [
            gradient if position == 0 or (step > 30 and random.integers(2)) else None
            for position, gradient in enumerate(arrays(step + 1))
        ]
        optimiser.step(given)
        for each, gradient in zip(own, given, strict=True):
            each.step([gradient])
        if resumes:
            state = optimiser.state_dict()
            optimiser = kind(parameters, 0.01)
            optimiser.load_state_dict({name: np.asarray(it) for name, it in state.items()})
    for position, (one, other) in enumerate(zip(parameters, alone, strict=True)):
        assert one.tobytes() == other.tobytes(), position
    assert optimiser.steps == tuple(each.steps[0] for each in own)
    assert optimiser.steps[0] == 40
    assert 0 < optimiser.steps[1] < 10


def test_none_leaves_a_parameter_alone():
    parameters = arrays(0)
    before = parameters[0].copy()
    SGD(parameters, 0.1).step([None, *arrays(1)[1:]])
    assert parameters[0].tobytes() == before.tobytes()
    assert parameters[1].tobytes() != arrays(0)[1].tobytes()


def test_wrong_arguments_are_refused():
    parameters = arrays(0)
    with pytest.raises(ValueError, match="nesterov"):
        SGD(parameters, 0.1, nesterov=True)
    with pytest.raises(TypeError, match=r"copies\[0\] is float32"):
        SGD(parameters, 0.1, copies=parameters)
    with pytest.raises(ValueError, match="copies has 1"):
        AdamW(parameters, copies=[None])
    with pytest.raises(ValueError, match="gradients have the shapes"):
        AdamW(parameters).step(parameters[:1])
    with pytest.raises(ValueError, match="betas"):
        AdamW(parameters, betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="place"):
        SGD([np.ones((4, 4), np.float32).T[:2]], 0.1)
    optimiser = AdamW(parameters)
    with pytest.raises(KeyError):
        optimiser.load_state_dict({"steps": 1})
    with pytest.raises(TypeError, match=r"gradients\[0\] has dtype float64"):
        optimiser.step([g.astype(np.float64) for g in arrays(1)])


def test_agrees_with_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    for ours, theirs in [
        (lambda p: SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
         lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True)),
        (lambda p: AdamW(p, 0.01), lambda p: torch.optim.AdamW(p, 0.01)),
        (lambda p: Adam(p, weight_decay=0.1), lambda p: torch.optim.Adam(p, weight_decay=0.1)),
        (RMSprop, torch.optim.RMSprop),
        (lambda p: RMSprop(p, 0.01, 0.9, 1e-3, 0.1, 0.9, True),
         lambda p: torch.optim.RMSprop(p, 0.01, 0.9, 1e-3, 0.1, 0.9, True)),
    ]:  # fmt: skip
        parameters = arrays(0)
        tensors = [torch.nn.Parameter(torch.from_numpy(p.copy())) for p in parameters]
        one, other = ours(parameters), theirs(tensors)
        for step in range(5):
            gradients = arrays(step + 1)
            gradients[1] = gradients[1] if step > 2 else None  # thawed
            one.step(gradients)
            for tensor, gradient in zip(tensors, gradients, strict=True):
                tensor.grad = None if gradient is None else torch.from_numpy(gradient)
            other.step()
        for parameter, tensor in zip(parameters, tensors, strict=True):
            np.testing.assert_allclose(parameter, tensor.detach().numpy(), 1e-5, 1e-6)
