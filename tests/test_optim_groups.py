"""Parameter groups of all optimisers, and LAMB, against PyTorch and equations in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
from dlprim import nn
from dlprim.optim import LAMB, SGD, Adam, AdamW, RMSprop

pytestmark = pytest.mark.every_level

SHAPES = [(3, 5), (17,), (1,), (4001,)]
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    # the class, settings of all groups, those of the second one
    "SGD": (SGD, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1}),
    "Adam": (Adam, {}, {"betas": (0.5, 0.9), "weight_decay": 0.1}),
    "AdamW": (AdamW, {"weight_decay": 0.2}, {"weight_decay": 0.0, "eps": 1e-3}),
    "RMSprop": (RMSprop, {"momentum": 0.9}, {"alpha": 0.5, "weight_decay": 0.1}),
}


def arrays(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape, np.float32) for shape in SHAPES]


def grouped(parameters: list[Any], own: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.05, **own}]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_agree_with_pytorch(kind: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    make, usual, own = KINDS[kind]
    parameters = arrays(0)
    tensors = [torch.nn.Parameter(torch.from_numpy(it.copy())) for it in parameters]
    ours = make(grouped(parameters, own), 0.01, **usual)
    theirs = getattr(torch.optim, kind)(grouped(tensors, own), lr=0.01, **usual)
    for step in range(6):
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["lr"] = 0.01 * (1 + step)
        gradients = arrays(step + 1)
        ours.step(gradients)
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = torch.from_numpy(gradient)
        theirs.step()
    for parameter, tensor in zip(parameters, tensors, strict=True):
        np.testing.assert_allclose(parameter, tensor.detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("kind", [*KINDS, "LAMB"])
def test_groups_are_optimisers_of_their_own_and_continue(kind: str) -> None:
    make, usual, own = KINDS.get(kind, (LAMB, {}, {"weight_decay": 0.0}))
    parameters, apart = arrays(0), arrays(0)
    whole = make(grouped(parameters, own), 0.01, **usual)
    parts = [make(apart[:2], 0.01, **usual), make(apart[2:], 0.05, **{**usual, **own})]
    for step in range(4):
        gradients = arrays(step + 1)
        whole.step(gradients)
        parts[0].step(gradients[:2])
        parts[1].step(gradients[2:])
        state = {name: np.asarray(it) for name, it in whole.state_dict().items()}  # as in a file
        whole = make(grouped(parameters, {}), 0.5, **usual)
        whole.load_state_dict(state)
    assert whole.param_groups[1]["lr"] == 0.05
    for one, other in zip(parameters, apart, strict=True):
        assert one.tobytes() == other.tobytes()


def test_settings_of_groups() -> None:
    body, head = nn.Linear(3, 4), nn.Linear(4, 2)
    groups = [{"params": body.parameters(), "lr": 0.5}, {"params": head.weight}]
    optimizer = SGD(groups, 0.1, weight_decay=0.25)
    first, second = optimizer.param_groups
    assert (first["lr"], second["lr"], optimizer.lr) == (0.5, 0.1, 0.5)
    assert set(first) == {"params", "lr", "momentum", "weight_decay", "nesterov"}
    assert second["params"] == [head.weight]
    assert "lr': 0.1" in repr(second)
    optimizer.lr = 0.75
    assert first["lr"] == second["lr"] == 0.75
    second["weight_decay"] = 1
    assert (first["weight_decay"], second["weight_decay"]) == (0.25, 1)
    assert len(SGD(body.parameters(), 0.1).param_groups) == 1


def test_wrong_groups_are_refused() -> None:
    p = np.ones(3, np.float32)
    wrong: list[tuple[Any, type[Exception], str]] = [
        ([{"lr": 1}], ValueError, r"parameters\[0\] has no 'params'"),
        ([{"params": [p]}, p.copy()], TypeError, r"parameters\[1\] is of type ndarray, expected a"),
        ([{"params": [p], "rate": 1}], ValueError, "has 'rate', expected only params, lr, mom"),
        ([{"params": [p], "lr": -1}], ValueError, "lr is -1, expected a finite number >= 0"),
        ([{"params": [p], "momentum": 0.5}], ValueError, "momentum is 0.5, expected 0 as this"),
        ([{"params": [p]}, {"params": [p]}], ValueError, "share memory"),
    ]
    for groups, error, said in wrong:
        with pytest.raises(error, match=said):
            SGD(groups, 0.1)
    group = AdamW([p]).param_groups[0]
    with pytest.raises(KeyError, match="steps is no setting of a group, expected one of lr, bet"):
        group["steps"] = 3
    with pytest.raises(ValueError, match="betas"):
        group["betas"] = (2, 0)
    with pytest.raises(TypeError, match="cannot be deleted"):
        del group["lr"]
    assert group["betas"] == (0.9, 0.999)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lamb_follows_its_equations(decay: float) -> None:
    parameters = [*arrays(0), np.zeros(5, np.float32)]
    copies = [dlprim.to_bfloat16(it) for it in parameters]
    exact = [it.astype(np.float64) for it in parameters]
    means, squares = ([np.zeros_like(it) for it in exact] for _ in range(2))
    optimizer = LAMB(parameters, 0.02, weight_decay=decay, copies=copies)
    for step in range(1, 6):
        gradients: list[NDArray[Any]] = [*arrays(step), np.ones(5, np.float32)]
        optimizer.step(gradients)
        for w, m, v, g in zip(exact, means, squares, gradients, strict=True):
            m[...] = 0.9 * m + 0.1 * g
            v[...] = 0.999 * v + 0.001 * g.astype(np.float64) ** 2
            r = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + decay * w
            own, length = np.linalg.norm(w), np.linalg.norm(r)
            w -= 0.02 * (own / length if own > 0 and length > 0 else 1) * r
    for parameter, copy, w in zip(parameters, copies, exact, strict=True):
        np.testing.assert_allclose(parameter, w, 1e-5, 1e-6)
        assert copy.tobytes() == dlprim.to_bfloat16(parameter).tobytes()


def test_lamb_leaves_a_parameter_without_gradient_alone() -> None:
    parameters = arrays(0)
    LAMB(parameters).step([None, *arrays(1)[1:]])
    assert parameters[0].tobytes() == arrays(0)[0].tobytes()
    assert parameters[1].tobytes() != arrays(0)[1].tobytes()
