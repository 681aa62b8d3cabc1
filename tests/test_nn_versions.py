"""Inference after weights were written, in every way in which they can be: never the old ones."""

from __future__ import annotations

import copy
import pickle
import threading
import weakref
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from dlprim.nn import forms
from dlprim.optim import SGD, AdamW
from dlprim.train.models import LanguageModel
from drawing import RNG

DTYPES = ("float32", "bfloat16")
IMAGES = RNG.standard_normal((2, 3, 8, 8), np.float32)
ROWS = RNG.standard_normal((5, 6), np.float32)
STEPS = RNG.standard_normal((3, 2, 6), np.float32)


def folded() -> nn.Module:
    block = nn.ConvBatchNorm(nn.Conv2d(3, 8, 3, bias=True), nn.BatchNorm2d(8), ("conv", "bn"))
    return nn.Sequential({"block": block, "flat": nn.Flatten()})


def apart() -> nn.Module:
    layers = {"conv": nn.Conv2d(3, 8, 3, 1, 1, bias=True), "bn": nn.BatchNorm2d(8)}
    return nn.Sequential({**layers, "flat": nn.Flatten()})


def language() -> nn.Module:
    model = LanguageModel("lstm", 7, 12, 2)
    model.use(nn.Context())
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "Linear": (lambda: nn.Linear(6, 4, activation="tanh"), ROWS),
    "convolution": (apart, IMAGES),
    "folded": (folded, IMAGES),
    "Embedding": (lambda: nn.Embedding(9, 4), np.arange(9)),
    "lstm": (lambda: nn.Recurrent("lstm", 6, 5, 2), STEPS),
    "gru": (lambda: nn.Recurrent("gru", 6, 5), STEPS),
    "resnet": (lambda: nn.resnet((1, 1), 8, 5), np.tile(IMAGES, (5, 1, 4, 4))),
    "language": (language, np.arange(8).reshape(4, 2) % 7),
}

WRITES: dict[str, Callable[[nn.Parameter], Any]] = {
    "elements": lambda it: it.value.__setitem__(..., it.value + 0.5),
    "in place": lambda it: np.add(it.value, 0.5, out=it.value),
    "assigned": lambda it: setattr(it, "value", it.value + 0.5),
    "row": lambda it: np.add(it.value[-1:], 0.5, out=it.value[-1:]),
    "flat": lambda it: it.value.reshape(-1).__setitem__(slice(None), 0.5),
    "buffer": lambda it: np.frombuffer(it.value, np.float32).__setitem__(slice(None), 0.5),
    "dlpack": lambda it: np.from_dlpack(it.value).__setitem__(slice(None), 0.5),
    "NaN": lambda it: it.value.__setitem__(..., np.nan),
}


def inferred(model: nn.Module, x: Any) -> Any:
    return np.array(model.forward(x, training=False), np.float32)


def fresh(model: nn.Module, x: Any) -> list[Any]:
    """What models say that have never seen other weights: with constants of them, and without."""
    found = []
    for credit in (forms._FIRST_CREDIT, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forms, "_FIRST_CREDIT", credit)
            found.append(inferred(pickle.loads(pickle.dumps(model)), x))
    return found


def is_one_of(y: Any, found: list[Any]) -> bool:
    return any(np.array_equal(y, it, equal_nan=True) for it in found)


def require_current(model: nn.Module, x: Any, before: Any) -> None:
    y, expected = inferred(model, x), fresh(model, x)
    assert is_one_of(y, expected)
    assert not is_one_of(before, expected)


def made(name: str, dtype: str = "float32") -> tuple[nn.Module, Any]:
    make, x = MODELS[name]
    nn.seed(0)
    model = make()
    model.use(nn.Context(dtype))
    for it in model.modules():  # the last of a block begins as zero, behind which nothing shows
        if isinstance(it, nn.BatchNorm2d):
            it.weight.value = np.ones(it.weight.shape)
    return model, x


LONG = {
    "resnet": [("in place", "float32"), ("elements", "bfloat16")],
    "language": [("row", "bfloat16")],
}
CASES = [(name, *it) for name in MODELS for it in LONG.get(name, product(WRITES, DTYPES))]


@pytest.mark.parametrize(("name", "write", "dtype"), CASES)
def test_every_write_of_a_parameter_is_seen(name: str, write: str, dtype: str) -> None:
    model, x = made(name, dtype)
    before, expected = inferred(model, x), fresh(model, x)
    for parameter in model.parameters():
        kept = parameter.value.copy()
        WRITES[write](parameter)
        require_current(model, x, before)
        parameter.value = kept
        assert is_one_of(inferred(model, x), expected)


@pytest.mark.parametrize("name", MODELS)
def test_writes_through_a_view_that_was_kept_are_seen(name: str) -> None:
    model, x = made(name)
    inferred(model, x)
    expected = fresh(model, x)
    views = [it.value[:] for it in model.parameters()]
    for view in views:
        before = inferred(model, x)
        assert is_one_of(before, expected)
        kept = view.copy()
        view += 0.5
        require_current(model, x, before)
        view[...] = kept
    before = inferred(model, x)
    views[0][...] *= -3
    views.clear()  # nobody holds it any more when somebody looks
    del view
    require_current(model, x, before)


@pytest.mark.parametrize("which", ["running_mean", "running_var", "eps"])
@pytest.mark.parametrize("name", ["folded", "convolution"])
def test_statistics_that_are_written_are_seen(name: str, which: str) -> None:
    model, x = made(name)
    norm = next(it for it in model.modules() if isinstance(it, nn.BatchNorm2d))
    before = inferred(model, x)
    setattr(norm, which, 0.5 + getattr(norm, which))
    require_current(model, x, before)
    if which != "eps":
        before, kept = inferred(model, x), getattr(norm, which)
        inferred(model, x)
        kept *= 2
        require_current(model, x, before)
        with pytest.raises(
            ValueError, match=rf"value of '{which}' has shape \(2,\), expected \(8,"
        ):
            setattr(norm, which, np.ones(2))
    before = inferred(model, x)
    model.forward(x)
    require_current(model, x, before)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("make", [SGD, AdamW])
@pytest.mark.parametrize("name", [it for it in MODELS if it != "Embedding"])
def test_steps_of_optimisers_are_seen(name: str, make: Any, keeps: bool) -> None:
    model, x = made(name)
    parameters: Any = model.parameters()
    optimizer = make([it.value for it in parameters] if keeps else parameters, 0.1)
    for _ in range(3):
        y = model.forward(x)
        model.backward(np.ones_like(y))
        before = inferred(model, x)
        optimizer.step([it.gradient for it in parameters])
        require_current(model, x, before)
    before = inferred(model, x)
    model.load_state_dict({k: v * 3 for k, v in model.state_dict().items()})
    require_current(model, x, before)


def test_another_parameter_in_its_place_is_seen() -> None:
    model, x = made("Linear")
    before = inferred(model, x)
    model.weight = nn.Parameter(np.ones((4, 6)))  # type: ignore[attr-defined]
    require_current(model, x, before)
    before = inferred(model, x)
    model.activation = "relu"  # type: ignore[attr-defined]
    require_current(model, x, before)


class Counted(nn.Module):
    """Whose class knows how often it was traced."""

    traces = 0

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        Counted.traces += 1
        return self.inner(x)


@pytest.mark.parametrize("name", ["Linear", "lstm", "language"])
def test_weights_that_nobody_writes_are_compiled_in_once(name: str) -> None:
    inner, x = made(name)
    model = Counted(inner)
    inferred(model, x)
    held = [it.value for it in model.parameters()]
    inferred(model, x)
    first = Counted.traces
    for _ in range(4):
        inferred(model, x)  # which compares, and makes nothing
    assert Counted.traces == first
    del held
    state = model.state_dict()
    inferred(model, x)
    assert Counted.traces == first + 1
    inferred(model, x)
    assert Counted.traces == first + 1
    assert state


def test_training_leaves_nothing_that_is_compared() -> None:
    model, x = made("resnet")
    optimizer = SGD(model.parameters(), 0.1, 0.9)
    for _ in range(2):
        inferred(model, x)  # which finds out that `made` has let go
        model.backward(np.ones_like(model.forward(x)))
        optimizer.step()
    norms = [it for it in model.modules() if isinstance(it, nn.BatchNorm2d)]
    tracked = [*model.parameters(), *(it.mean for it in norms), *(it.var for it in norms)]
    assert all(it.current is not None for it in tracked)


def test_bare_addresses_need_a_word() -> None:
    model, x = made("Linear")
    parameter = model.parameters()[0]
    address = parameter.value.ctypes.data
    before = inferred(model, x)
    inferred(model, x)
    bare = (np.ctypeslib.ctypes.c_float * 24).from_address(address)
    bare[0] = 7.0
    model.changed()
    require_current(model, x, before)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda it: it,
    "view": lambda it: it[1:],
    "view of a view": lambda it: it[1:].T[1:],
    "bytes": lambda it: it.view(np.uint8),
    "memoryview": memoryview,
    "dlpack": lambda it: it.__dlpack__(),
    "iterator": lambda it: it.flat,
    "strides": lambda it: np.lib.stride_tricks.as_strided(it[0], (2,), (4,)),
    "weak": weakref.ref,
}


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("name", HOLDERS)
def test_who_holds_a_value_is_known(name: str, copied: bool) -> None:
    it = nn.Parameter(np.ones((3, 4)))
    if copied:
        it = copy.deepcopy(it)
    first = it.version
    assert it.version == first
    held = HOLDERS[name](it.value)
    second = it.version
    assert second != first
    assert it.version == second
    it.held[1, 2] = 5  # as the holder might
    third = it.version
    assert third != second
    del held
    fourth = it.version
    assert fourth != third
    it.held[1, 2] = 6  # which nobody can who says nothing
    assert it.version == fourth
    it.written()
    assert it.version != fourth


def test_threads_that_look_at_once_see_the_same() -> None:
    model, x = made("Linear")
    seen: list[Any] = []

    def run(turns: int) -> None:
        for _ in range(turns):
            with gate:
                model.parameters()[0].value *= -1
                seen.append((inferred(model, x), fresh(model, x)))
            inferred(model, x)

    gate = threading.Lock()
    threads = [threading.Thread(target=run, args=(40,)) for _ in range(3)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    for mine, expected in seen:
        assert is_one_of(mine, expected)


def test_a_parameter_does_not_share_what_it_was_made_of() -> None:
    given = np.ones((3, 4), np.float32)
    it = nn.Parameter(given)
    given[...] = 2
    assert (it.value == 1).all()
