"""What a model is made of, as text: the classes of its layers and what their constructors took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from dlprim.nn.models.images import UNet, ViT
from dlprim.nn.models.text import BERT, GPT
from dlprim.nn.module import Module

# What layers of files of 0.2 are now: images needed packing, and large ones went in slices.
_BEFORE = {"Pack": "Identity", "Sliced": "Sequential"}


@cache
def _own() -> dict[str, type[Module]]:
    """The classes of this package by name: those that are public, and what functions make."""
    from dlprim import nn  # which imports this module

    public = [getattr(nn, name) for name in nn.__all__]
    known: list[type[Module]] = [UNet, ViT, GPT, BERT]
    known += [it for it in public if isinstance(it, type) and issubclass(it, Module)]
    return {it.__name__: it for it in known if it is not Module}


def described(module: Module) -> dict[str, Any]:
    """A module as JSON can hold it.

    Raises
    ------
    TypeError
        It holds a module of a class that is not of dlprim and does not say what its constructor
        takes, or an argument of another kind.
    """
    kind = type(module)
    own = _own().get(kind.__name__) is kind
    arguments = module.arguments() if own or "arguments" in vars(kind) else None
    if arguments is None:
        what = f"layer {module.name!r} of the model" if module.name else "the model"
        raise TypeError(
            f"{what} is a {kind.__name__}, a class of its own that does not say how "
            "to make it again: expected a method arguments(self) that returns its constructor's "
            "arguments as a dict; or keep model.state_dict() and the code that makes the model"
        )
    return {
        "kind": kind.__name__,
        "own": own,
        "training": module.training,
        "arguments": {
            name: _encoded(f"argument {name!r} of {kind.__name__}", value)
            for name, value in arguments.items()
        },
    }


def made(description: Any, classes: Iterable[type[Module]] = ()) -> Module:
    """The module of a description, with parameters that are to be filled.

    Raises
    ------
    LookupError
        It holds a class that is not of dlprim and not among ``classes``.
    Exception
        Whatever constructors raise, or a description that is none leads to.
    """
    return _module(description, {kind.__name__: kind for kind in classes})


def _module(description: Any, others: Mapping[str, type[Module]]) -> Module:
    name, known = description["kind"], _own() if description["own"] else others
    name = _BEFORE.get(name, name) if description["own"] else name
    if name not in known:
        raise LookupError(name)
    arguments = description["arguments"].items()
    given = {key: _decoded(value, others) for key, value in arguments}
    if description["own"] and description["kind"] == "Sliced":
        del given["images"]
    modes = [(it, it.training) for layer in _layers_in(given) for it in layer.modules()]
    module = known[name](**given).train(bool(description["training"]))
    for it, mode in modes:  # what its constructor made has that of the module
        it.training = mode
    return module


def _layers_in(value: Any) -> Iterator[Module]:
    if isinstance(value, Module):
        yield value
    elif isinstance(value, dict | list):
        for it in value.values() if isinstance(value, dict) else value:
            yield from _layers_in(it)


def _encoded(what: str, value: Any) -> Any:
    if isinstance(value, Module):
        return described(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{what} has the key {key!r}, expected a string")
        return {"entries": [[key, _encoded(what, it)] for key, it in value.items()]}
    if isinstance(value, list | tuple):
        return [_encoded(what, it) for it in value]
    if getattr(value, "ndim", 1) == 0 and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{what} is of type {type(value).__name__}, expected numbers, strings, modules, None, and "
        "lists and dicts of them"
    )


def _decoded(value: Any, others: Mapping[str, type[Module]]) -> Any:
    if isinstance(value, list):
        return [_decoded(it, others) for it in value]
    if isinstance(value, dict):
        if "entries" in value:
            return {key: _decoded(it, others) for key, it in value["entries"]}
        return _module(value, others)
    return value
