"""Models in files: the classes of their layers and what made them, weights, statistics; no code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from dlprim import model_file
from dlprim.model_file import WRONG, ModelFileError
from dlprim.nn.context import Context
from dlprim.nn.initial import undrawn
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
    others = {kind.__name__: kind for kind in classes}
    modes: list[tuple[Module, bool]] = []  # of those inside of others first

    def module(it: Any) -> Module:
        name, known = it["kind"], _own() if it["own"] else others
        name = _BEFORE.get(name, name) if it["own"] else name
        if name not in known:
            raise LookupError(name)
        given = {key: decoded(value) for key, value in it["arguments"].items()}
        if it["own"] and it["kind"] == "Sliced":
            del given["images"]
        modes.append((known[name](**given), bool(it["training"])))
        return modes[-1][0]

    def decoded(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(decoded, value))
        if not isinstance(value, dict):
            return value
        if "entries" in value:
            return {key: decoded(it) for key, it in value["entries"]}
        return module(value)

    found = module(description)
    for it, mode in reversed(modes):
        it.train(mode)
    return found


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


def save(model: Module, path: str | os.PathLike[str]) -> None:
    """Writes a model into a file that `load` makes it from.

    The file has the classes of the layers and what their constructors took, the dtype and algorithm
    of the model, parameters and statistics with checksums, and the modes of `train` and
    `eval`. It replaces the one that is there at once when it is complete. It has not what passes
    keep: gradients, states of `Recurrent`, the step of `Dropout`.

    Parameters
    ----------
    model : Module
        A module of a class of one's own has a method ``arguments(self)``: what its constructor
        takes to make one like it, as a dict of numbers, strings, None, modules, and lists and
        dicts of them.
    path : str or Path

    Raises
    ------
    TypeError
        model is no Module or holds one that does not say how to make it again, or path is no path.
    OSError
        The file cannot be written; what was there still stands.
    """
    if not isinstance(model, Module):
        raise TypeError(f"model is of type {type(model).__name__}, expected a dlprim.nn.Module")
    target, context = model_file.as_path(path), model.context
    prefix = f"{model.name}." if model.name else ""
    arrays = {name.removeprefix(prefix): it for name, it in model.state_dict().items()}
    header = {
        "model": described(model),
        "context": [context.dtype_name, context.algorithm],
    }
    model_file.write(model_file.LAYERS, target, header, arrays)


def load(path: str | os.PathLike[str], classes: Iterable[type[Module]] = ()) -> Module:
    """The model that `save` wrote into a file, in a context of its own.

    Nothing in the file is executed, and nothing but a file that is exactly as it was written is
    taken. The generator of `dlprim.nn.seed` is left as it is by the layers of this package.

    Parameters
    ----------
    path : str or Path
    classes : iterable of type, optional
        Those that the model holds besides the layers of `dlprim.nn`, found by their names.

    Raises
    ------
    OSError
        The file cannot be read.
    ModelFileError
        It is no file of `save` or another version's, truncated or damaged, holds a class that is
        not among ``classes``, or arrays that are not those of its layers.
    TypeError
        path is no path.
    """
    source = model_file.as_path(path)
    header, arrays = model_file.read(model_file.LAYERS, source)
    try:
        with undrawn(arrays.values()):
            model = made(header["model"], classes)
        dtype, *_, algorithm = header["context"]  # between them, in 0.2, a layout
        model.use(Context(dtype, algorithm=algorithm))
        model.load_state_dict(arrays)
    except LookupError as error:
        if type(error) is LookupError:
            raise ModelFileError(
                f"{source} holds the class {error}, expected it among classes, as in "
                f"dlprim.nn.load(path, classes=[{error}])"
            ) from None
        raise ModelFileError(f"{source} does not fit its layers: {error.args[0]}") from error
    except WRONG as error:
        raise ModelFileError(f"{source} does not describe a model: {error}") from error
    return model
