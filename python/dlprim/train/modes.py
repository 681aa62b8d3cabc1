"""A model in one mode for a while, as if nothing had been asked of it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dlprim.nn import Module, Recurrent


@contextmanager
def in_mode(model: Module, training: bool) -> Iterator[None]:
    """All layers in one mode, and afterwards each in its own again.

    Outside of training, states that recurrent layers carry on begin anew, and come back.
    """
    before = [(it, it.training) for it in model.modules()]
    recurrent = [] if training else [it for it, _ in before if isinstance(it, Recurrent)]
    kept = [(it, it.states, it.carry) for it in recurrent]
    for it in recurrent:
        it.states = []
    model.train(training)
    try:
        yield
    finally:
        for layer, mode in before:
            layer.training = mode
        for it, states, carry in kept:
            it.states, it.carry = states, carry
