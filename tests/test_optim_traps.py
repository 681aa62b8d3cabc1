"""Calls of optimisers that would silently do something else than they say."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from dlprim.optim import SGD, Adam, AdamW, RMSprop

pytestmark = pytest.mark.any_level

Optimizer = SGD | Adam | RMSprop


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


MAKE: dict[str, Callable[[], Optimizer]] = {
    "SGD": lambda: SGD([ones(3)], 0.1),
    "momentum": lambda: SGD([ones(3)], 0.1, 0.9),
    "AdamW": lambda: AdamW([ones(3)], 0.1),
    "Adam": lambda: Adam([ones(3)], 0.1),
    "RMSprop": lambda: RMSprop([ones(3)], 0.1),
    "centered": lambda: RMSprop([ones(3)], 0.1, momentum=0.9, centered=True),
}


@pytest.mark.parametrize(
    ("own", "other"),
    [("SGD", "AdamW"), ("momentum", "AdamW"), ("Adam", "AdamW"), ("RMSprop", "momentum")],
)
def test_state_of_another_kind_is_refused_by_name(own: str, other: str) -> None:
    for one, two in ((own, other), (other, own)):
        optimizer, state = MAKE[one](), MAKE[two]().state_dict()
        kinds = f"state is one of {type(MAKE[two]()).__name__}, .* {type(optimizer).__name__}"
        state["learning_rate"] = 5.0
        with pytest.raises(ValueError, match=kinds):
            optimizer.load_state_dict(state)
        with pytest.raises(ValueError, match=kinds):  # as a file gives it back
            optimizer.load_state_dict({name: np.asarray(it) for name, it in state.items()})
        assert optimizer.learning_rate == 0.1


def test_state_that_does_not_say_its_kind() -> None:
    """Version 0.1 stored none: it loads, unless something in it has no place."""
    for name, make in MAKE.items():
        state = make().state_dict() | {"learning_rate": 0.5}
        del state["kind"]
        optimizer = make()
        optimizer.load_state_dict(state)
        assert optimizer.learning_rate == 0.5, name
    state = MAKE["AdamW"]().state_dict()
    del state["kind"]
    with pytest.raises(ValueError, match=r"state has '.*', which an SGD with"):
        MAKE["momentum"]().load_state_dict(state)
    with pytest.raises(ValueError, match=r"state has 'state0\.0', which an SGD"):
        MAKE["SGD"]().load_state_dict(MAKE["momentum"]().state_dict())


@pytest.mark.parametrize("kind", MAKE)
def test_lr_is_the_learning_rate(kind: str) -> None:
    optimizer = MAKE[kind]()
    optimizer.lr = 3
    assert optimizer.learning_rate == optimizer.lr == 3
    optimizer.learning_rate = 0.25
    assert optimizer.lr == 0.25
    for name in ("lr", "learning_rate"):
        for bad, error in ((-1, ValueError), (np.nan, ValueError), ("a", TypeError)):
            with pytest.raises(error, match=f"{name} is"):
                setattr(optimizer, name, bad)
    assert optimizer.lr == 0.25


@pytest.mark.parametrize("kind", MAKE)
def test_other_attributes_are_not_assigned(kind: str) -> None:
    optimizer = MAKE[kind]()
    for name in ("learning_rat", "epsilon", "dampening", "parameters"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}' to assign, expected"):
            setattr(optimizer, name, 1)


ASSIGNED: dict[str, tuple[str, str, Any, str]] = {
    "nesterov": ("momentum", "nesterov", "no", "nesterov is 'no', expected True or False"),
    "nothing to look ahead": ("SGD", "nesterov", True, "nesterov is True, which needs"),
    "no room": ("SGD", "momentum", 0.9, "momentum is 0.9, expected 0 as this SGD was made"),
    "momentum": ("momentum", "momentum", 1.5, "momentum is 1.5"),
    "decay": ("SGD", "weight_decay", -1, "weight_decay is -1"),
    "betas": ("AdamW", "betas", (0.9,), "betas is"),
    "epsilon": ("AdamW", "eps", 0, "eps is 0"),
    "steps": ("AdamW", "steps", -3, "steps is -3"),
    "alpha": ("RMSprop", "alpha", 1.0, r"alpha is 1.0, expected a number in \[0, 1\)"),
    "no velocity": ("RMSprop", "momentum", 0.5, "momentum is 0.5, expected 0 as this RMSprop was"),
    "not centered": ("RMSprop", "centered", True, "centered is True, expected False as this RMSpr"),
    "always centered": ("centered", "centered", False, "centered is False, expected True as this"),
    "centered by a word": ("centered", "centered", "no", "centered is 'no', expected True or Fals"),
    "tiny": ("Adam", "eps", 1e-60, "eps is 1e-60, expected a finite number above 0 in float32"),
    "small": ("RMSprop", "eps", 0, "eps is 0, expected a finite number above 0"),
}


@pytest.mark.parametrize("case", ASSIGNED)
def test_settings_are_checked_when_assigned(case: str) -> None:
    kind, name, value, message = ASSIGNED[case]
    optimizer = MAKE[kind]()
    before = getattr(optimizer, name)
    with pytest.raises((TypeError, ValueError), match=message):
        setattr(optimizer, name, value)
    assert getattr(optimizer, name) == before


def test_momentum_of_nesterov_stays_above_zero() -> None:
    optimizer = SGD([ones(3)], 0.1, 0.9, nesterov=np.bool_(True))  # type: ignore[arg-type]
    assert optimizer.nesterov is True
    with pytest.raises(ValueError, match="momentum is 0, expected a number above 0 for nesterov"):
        optimizer.momentum = 0
    with pytest.raises(TypeError, match="nesterov is 'False', expected True or False"):
        SGD([ones(3)], 0.1, 0.9, nesterov="False")  # type: ignore[arg-type]


def test_what_pytorch_has_elsewhere_goes_by_name() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        SGD([ones(3)], 0.1, 0.9, 0, 1e-4)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional argument"):
        AdamW([ones(3)], 0.1, (0.9, 0.99), 1e-8, 0.01, False)  # type: ignore[misc]


def test_parameters_of_a_model_are_taken() -> None:
    model, other = nn.Linear(3, 4), nn.Linear(3, 4)
    other.load_state_dict(model.state_dict())
    for it in (*model.parameters(), *other.parameters()):
        it.gradient[...] = 2
    SGD(model.parameters(), 0.1).step()
    arrays = SGD([it.value for it in other.parameters()], 0.1)
    arrays.step([it.gradient for it in other.parameters()])
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name], value)
    with pytest.raises(TypeError, match="gradients is None, expected one per parameter"):
        arrays.step()
    with pytest.raises(TypeError, match=r"parameters is of type .*, expected a list of dlprim"):
        SGD(iter(model.parameters()), 0.1)  # type: ignore[arg-type]


def test_gradients_that_are_parameters_are_named() -> None:
    model = nn.Linear(3, 4)
    optimizer = SGD(model.parameters(), 0.1)
    with pytest.raises(TypeError, match=r"gradients\[0\] is a Parameter, .* \[it\.gradient for"):
        optimizer.step(model.parameters())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_optimiser_is_not_copied(kind: str, duplicate: Callable[[Any], Any]) -> None:
    """Its copy, beside that of its model too, would update arrays that no model holds."""
    optimizer = MAKE[kind]()
    with pytest.raises(TypeError, match=r"cannot be copied or pickled: .* load_state_dict"):
        duplicate((nn.Linear(2, 2), optimizer) if duplicate is not copy.copy else optimizer)


OTHERS: dict[str, Callable[[], Optimizer]] = {
    "momentum": lambda: SGD([ones(3)], 0.2, 0.5, weight_decay=0.1, nesterov=True),
    "AdamW": lambda: AdamW([ones(3)], 0.2, (0.5, 0.75), 1e-3, 0.3),
    "Adam": lambda: Adam([ones(3)], 0.2, (0.5, 0.75), 1e-3, 0.3),
    "RMSprop": lambda: RMSprop([ones(3)], 0.2, 0.5, 1e-3, 0.3),
    "centered": lambda: RMSprop([ones(3)], 0.2, 0.5, 1e-3, 0.3, 0.25, True),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("stored", [lambda it: it, np.asarray])
def test_a_state_has_every_setting(kind: str, stored: Callable[[Any], Any]) -> None:
    """What goes on with another decay or other betas than before goes on to other weights."""
    one, other = OTHERS[kind](), MAKE[kind]()
    state = one.state_dict()
    assert set(type(one)._settings) <= set(state)
    other.load_state_dict({name: stored(it) for name, it in state.items()})
    for name in type(one)._settings:
        assert getattr(other, name) == getattr(one, name), name
        assert type(getattr(other, name)) is type(getattr(one, name)), name
    (weights,), (others,) = one._given, other._given
    for _ in range(3):
        one.step([ones(3)])
        other.step([ones(3)])
    assert weights.tobytes() == others.tobytes()


@pytest.mark.parametrize("kind", OTHERS)
def test_a_state_with_one_wrong_setting_changes_nothing(kind: str) -> None:
    wrong = {"momentum": 1.5, "nesterov": 2, "betas": [0.5], "centered": 1, "steps": [1, 2]}
    optimizer = MAKE[kind]()
    before = optimizer.state_dict()
    for name in type(optimizer)._settings:
        state = OTHERS[kind]().state_dict() | {name: wrong.get(name, -1)}
        with pytest.raises((TypeError, ValueError), match=f"^{name} (is|has) "):
            optimizer.load_state_dict(state)
        assert all(np.array_equal(optimizer.state_dict()[it], before[it]) for it in before)


def test_settings_of_a_state_are_taken_together() -> None:
    for one, other in ((0.9, 0.0), (0.0, 0.9)):
        optimizer, last = SGD([ones(3)], 0.1, 0.9), SGD([ones(3)], 0.1, 0.9)
        optimizer.momentum, last.momentum = one, other
        optimizer.nesterov, last.nesterov = one > 0, other > 0
        optimizer.load_state_dict(last.state_dict())
        assert (optimizer.momentum, optimizer.nesterov) == (other, other > 0)
    with pytest.raises(ValueError, match="momentum is 0, expected a number above 0 for nesterov"):
        optimizer.load_state_dict(last.state_dict() | {"momentum": 0.0})
    assert optimizer.momentum == 0.9


def test_states_of_version_0_1_are_loaded() -> None:
    """They have one count of steps for all, and of the settings the learning rate alone."""
    optimizer = AdamW([ones(3), ones(2)], 0.1, weight_decay=0.5)
    new = optimizer.state_dict()
    old = {name: it for name, it in new.items() if name.startswith(("state", "learning"))}
    with pytest.raises(KeyError, match="steps is missing"):
        optimizer.load_state_dict(old)
    for steps in (7, np.asarray(7)):
        optimizer.load_state_dict(old | {"steps": steps})
        assert optimizer.steps == (7, 7)
        assert optimizer.weight_decay == 0.5


def test_masked_arrays_are_named_as_they_were_passed() -> None:
    masked = np.ma.array(ones(3), mask=[True, False, False])
    with pytest.raises(TypeError, match=r"^parameters\[0\] is a masked array"):
        SGD([masked], 0.1)
    with pytest.raises(TypeError, match=r"^gradients\[0\] is a masked array"):
        SGD([ones(3)], 0.1).step([masked])
    with pytest.raises(TypeError, match=r"^copies\[0\] is a masked array"):
        SGD([ones(3)], 0.1, copies=[np.ma.zeros(3, np.uint16)])


def test_copies_that_a_step_cannot_write_are_refused_at_once() -> None:
    one, two, locked = ones(3), ones(3), np.zeros(3, np.uint16)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match=r"copies\[0\] is read-only"):
        SGD([one], 0.1, copies=[locked])
    shared = np.zeros(3, np.uint16)
    with pytest.raises(ValueError, match=r"copies\[0\] and copies\[1\] share memory"):
        SGD([one, two], 0.1, copies=[shared, shared])
    with pytest.raises(ValueError, match=r"copies\[0\] and parameters\[1\] share memory"):
        AdamW([one, two], 0.1, copies=[two.view(np.uint16)[:3], None])
    for wrong in (5, shared, (it for it in [shared])):
        with pytest.raises(TypeError, match=r"copies is of type .*, expected a list of bfloat16"):
            SGD([one], 0.1, copies=wrong)  # type: ignore[arg-type]


def test_a_subclass_has_attributes_of_its_own_and_the_state_of_its_kind() -> None:
    class Counted(SGD):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.count = 0

    optimizer = Counted([ones(3)], 0.1, 0.9)
    optimizer.count += 1
    MAKE["momentum"]().load_state_dict(optimizer.state_dict())
    optimizer.load_state_dict(MAKE["momentum"]().state_dict())
    with pytest.raises(ValueError, match="momentum is 2"):
        optimizer.momentum = 2


def test_numbers_beyond_every_range_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"lr is 1000*, expected a finite number"):
        SGD([ones(3)], 10**400)
    with pytest.raises(ValueError, match=f"of at least 0 and below {2**63}"):
        MAKE["AdamW"]().steps = 2**64  # type: ignore[union-attr, assignment]
