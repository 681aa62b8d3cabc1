"""Models in files: architecture, weights and statistics, without code."""

from __future__ import annotations

import os
from collections.abc import Iterable

from dlprim import model_file
from dlprim.model_file import WRONG, ModelFileError
from dlprim.nn.architecture import described, made
from dlprim.nn.context import Context
from dlprim.nn.initial import undrawn
from dlprim.nn.module import Module


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
