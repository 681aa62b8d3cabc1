"""Language models: decoders of text from files, which read, write, chat and train.

`load` reads a folder as transformers saves it. It needs the packages of the extra ``llm``
(``pip install "dlprim[llm]"``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, overload

from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag
from dlprim.llm.cache import Cache
from dlprim.llm.checkpoint import folder_checkpoint
from dlprim.llm.config import Config
from dlprim.llm.families import config_of
from dlprim.llm.gguf_file import gguf_checkpoint, gguf_fields, nearest_dtype
from dlprim.llm.gguf_tokenizer import gguf_tokenizer
from dlprim.llm.model import DTYPES, LanguageModel
from dlprim.llm.sampling import Sampling
from dlprim.llm.tokenizer import Tokenizer, folder_tokenizer
from dlprim.llm.trained import LowRank, TrainableModel, adapt, trainable_of
from dlprim.llm.weights import Weights
from dlprim.model_file import ModelFileError
from dlprim.nn.context import Context

__all__ = [
    "Cache",
    "Config",
    "LanguageModel",
    "LowRank",
    "ModelFileError",
    "Sampling",
    "Tokenizer",
    "TrainableModel",
    "adapt",
    "load",
    "new",
]


@overload
def load(
    model: str | os.PathLike[str], *, dtype: str | None = None, trainable: Literal[False] = False
) -> LanguageModel: ...


@overload
def load(
    model: str | os.PathLike[str], *, dtype: str | None = None, trainable: Literal[True]
) -> TrainableModel: ...


def load(
    model: str | os.PathLike[str], *, dtype: str | None = None, trainable: bool = False
) -> LanguageModel | TrainableModel:
    """A language model of a folder as transformers saves it, or of a file of GGUF.

    Parameters
    ----------
    model : path
        Of the folder, with config.json and safetensors, or of the file.
        Weights may be in several files. Token embeddings stay in their file, which
        must not be written to while the model lives.
    dtype : "float32", "bfloat16", "int8" or "int4", optional
        Of weights; 8 and 4 bits are in groups of 32 with a scale. Sums and activations are float32,
        and keys and values in caches bfloat16 unless this is "float32". By
        default "float32" for a folder, and for a file of GGUF what is nearest to its weights.
    trainable : bool
        Whether to make a module of `dlprim.nn` of it, whose parameters are float32; ``dtype`` is
        then that of activations, float32 or bfloat16.

    Raises
    ------
    ModelFileError
        A file is damaged, the family of the model is not known, or a weight is missing or of
        another shape than the configuration says.
    OSError
        A file cannot be opened.
    ImportError
        A package is missing.
    """
    if dtype is not None:
        one_of_names("dtype", dtype, DTYPES)
    path, tokenizer = Path(model), None
    if path.is_dir() or path.suffix != ".gguf":
        checkpoint, nearest = folder_checkpoint(path), "float32"
    else:
        fields, tensors = gguf_fields(path)
        checkpoint, nearest = gguf_checkpoint(path, fields, tensors), nearest_dtype(tensors)
        tokenizer = gguf_tokenizer(fields)
    weights = Weights(checkpoint, config_of(checkpoint.entries))
    if not flag("trainable", trainable):
        tokenizer = folder_tokenizer(path) if path.is_dir() else tokenizer
        return LanguageModel(weights, dtype or nearest, tokenizer)
    found = trainable_of(weights)
    found.use(Context(dtype or "float32"))
    return found


def new(entries: Mapping[str, Any]) -> TrainableModel:
    """A model to train from the beginning, with weights that `dlprim.nn.seed`'s generator draws.

    Parameters
    ----------
    entries : mapping
        As in config.json: ``model_type``, ``vocab_size``, ``hidden_size`` and so on.

    Raises
    ------
    ModelFileError
        An entry is missing, or is none of what it may be.
    """
    return TrainableModel(dict(entries))
