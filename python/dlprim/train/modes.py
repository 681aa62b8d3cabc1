"""A model in one mode for a while, as if nothing had been asked of it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from dlprim.nn import Module, Recurrent
from dlprim.nn.module import TRACING


@contextmanager
def in_mode(model: Module, training: bool) -> Iterator[None]:
    """All layers in one mode, and afterwards each in its own again.

    Outside of training, states that recurrent layers carry on begin anew, and come back.
    """
    before = _modes_of(model)
    recurrent = [] if training else [it for it, _ in before if isinstance(it, Recurrent)]
    kept = [(it, it.states, it.carry) for it in recurrent]
    for it in recurrent:
        it.states = []
    model.train(training)
    try:
        yield
    finally:
        _restore(before)
        for it, states, carry in kept:
            it.states, it.carry = states, carry


@contextmanager
def in_test(model: Module) -> Iterator[None]:
    """Inference between steps of a training, to the same bits whatever ran before."""
    before, TRACING.freezes = TRACING.freezes, False
    try:
        with in_mode(model, False):
            yield
    finally:
        TRACING.freezes = before


@contextmanager
def in_training(model: Module) -> Iterator[None]:
    """Training mode, but where a model that is in it has layers that are not: these stay so."""
    before = _modes_of(model)
    if not model.training:
        model.train()
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def as_callers(model: Module, was_training: bool) -> Iterator[None]:
    """The mode that callers left their model in, inside of `in_training`.

    Modes of layers that are set meanwhile last as long as that, unless the model itself was left in
    inference.
    """
    before = _modes_of(model)
    with nullcontext() if was_training else in_mode(model, False):
        yield
    if not model.training:
        _restore(before)


def _modes_of(model: Module) -> list[tuple[Module, bool]]:
    return [(it, it.training) for it in model.modules()]


def _restore(modes: list[tuple[Module, bool]]) -> None:
    for layer, mode in modes:
        layer.training = mode
