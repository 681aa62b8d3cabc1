"""LSTM, GRU and RNN on plain arrays: PyTorch's parameters, shapes and defaults."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

from dlprim.arguments.floats import holds_bits
from dlprim.arguments.instead import instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag
from dlprim.functions.recurrent_arguments import Settings
from dlprim.functions.recurrent_stack import SavedRecurrence, backward, forward
from dlprim.primitives.rnn_operands import (
    GRUGradients,
    LSTMGradients,
    RNNResult,
)

Arrays: TypeAlias = Any  # an array, or a sequence of arrays, one per layer and direction


@instead(input="x", hx="h_0 and c_0")
def lstm(
    x: Any,
    w_ih: Arrays,
    w_hh: Arrays,
    b_ih: Arrays = None,
    b_hh: Arrays = None,
    *,
    h_0: Any = None,
    c_0: Any = None,
    lengths: Any = None,
    reverse: bool = False,
    bidirectional: bool = False,
    num_layers: int = 1,
    batch_first: bool = False,
    training: bool = False,
    dtype: npt.DTypeLike | None = None,
) -> Any:
    """A long short-term memory: ``i, f, o = sigmoid, g = tanh`` of ``w_ih x + w_hh h + b``, \
``c = f c + i g``, ``h = o tanh(c)``.

    Parameters are PyTorch's, in its order. D is 2 if `bidirectional`, otherwise 1. If num_layers *
    D is more than one, parameters are sequences of that many arrays: layer 0, layer 0 reverse,
    layer 1, ...

    Parameters
    ----------
    x : array of float32 or bfloat16, (T, N, C)
        (N, T, C) with `batch_first`, which costs a copy.
    w_ih : array of the same dtype, (4*K, C), or a sequence
        The gates i, f, g, o with K rows each. (4*K, D*K) for layers after the first.
    w_hh : array of the same dtype, (4*K, K), or a sequence
    b_ih, b_hh : array of float32 or bfloat16, (4*K,), or a sequence, optional
        Both are added.
    h_0 : array of the dtype of x, (num_layers * D, N, K), optional
        Zeros by default.
    c_0 : array of float32 or the dtype of x, (num_layers * D, N, K), optional
        Zeros by default.
    lengths : integers, (N,), optional
        Steps of each sequence, 0 to T. At later steps y is zero and states do not change, whatever
        x contains there. A reverse run starts at the last valid step.
    reverse : bool
        Run from the last step to the first; y stays in the order of x.
    bidirectional : bool
        Run every layer in both directions; y contains both results, concatenated.
    num_layers : int
        Number of layers; the y of one is the x of the next.
    batch_first : bool
        x and y are (N, T, ...). States are not affected.
    training : bool
        Also return what `lstm_backward` needs.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; y, h_n and gradients of
        their dtype are then uint16 too.

    Returns
    -------
    LSTMResult
        ``(y, h_n, c_n)``: h of the last layer after every step, of the dtype of x, (T, N, D*K) or
        (N, T, D*K), and the states after the last valid step, (num_layers * D, N, K), h_n of the
        dtype of x and c_n of float32; h_0 and c_0 if there is no step. The bits do not depend on
        the number of threads.
    LSTMTrained
        ``(y, h_n, c_n, saved)``, with `training`. Of the `SavedRecurrence`, `weights` and `states`
        hold num_layers * D entries each: the `PackedWeights` and the `LSTMSaved`, tuples of plain
        arrays, of every layer and direction. They refer to x, h_0, c_0 and y, which must not change
        before `lstm_backward`; w_ih, w_hh, b_ih and b_hh may. In addition to these and y of every
        layer, 5 * T * N * K float32 values are kept per layer and direction.

    Raises
    ------
    TypeError
        An argument is not an array, or has the wrong dtype.
    ValueError
        Shapes do not agree, the number of parameters does not match the layers and directions, a
        length is out of range, or both `reverse` and `bidirectional` are requested.

    Notes
    -----
    Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of
    Gers et al. (2000); on the batch-reduce GEMM kernel after arXiv 1906.06440.
    """
    named = {"w_ih": w_ih, "w_hh": w_hh, "b_ih": b_ih, "b_hh": b_hh}
    settings = Settings(reverse, bidirectional, num_layers, batch_first)
    others = lengths, training, holds_bits(dtype)
    return forward("lstm", x, named, settings, {"h_0": h_0, "c_0": c_0}, others)


@instead(input="x", hx="h_0")
def gru(
    x: Any,
    w_ih: Arrays,
    w_hh: Arrays,
    b_ih: Arrays = None,
    b_hh: Arrays = None,
    *,
    h_0: Any = None,
    lengths: Any = None,
    reverse: bool = False,
    bidirectional: bool = False,
    num_layers: int = 1,
    batch_first: bool = False,
    reset_after: bool = True,
    training: bool = False,
    dtype: npt.DTypeLike | None = None,
) -> Any:
    """A gated recurrent unit: with ``p = w_ih x + b_ih`` and ``q = w_hh h + b_hh``, \
``r, z = sigmoid(p + q)``, ``n = tanh(p + r q)``, ``h = (1 - z) n + z h``.

    As in PyTorch and cuDNN, r is applied after the product with w_hh, unless `reset_after` is
    False.

    Parameters
    ----------
    w_ih : array of the dtype of x, (3*K, C), or a sequence
        The gates r, z, n with K rows each. (3*K, D*K) for layers after the first.
    w_hh : array of the dtype of x, (3*K, K), or a sequence
    b_ih, b_hh : array of float32 or bfloat16, (3*K,), or a sequence, optional
        Not interchangeable: r multiplies the sum that contains the n rows of b_hh.
    reset_after : bool
        If False, ``n = tanh(w_ih x + b_ih + w_hh (r h) + b_hh)`` with the n rows of both, as
        published and as in ONNX by default. For inference only, so not with `training`.
    x, h_0, lengths, reverse, bidirectional, num_layers, batch_first, training, dtype
        As for `lstm`.

    Returns
    -------
    GRUResult
        ``(y, h_n)``, as from `lstm`.
    GRUTrained
        ``(y, h_n, saved)``, with `training`: what `gru_backward` needs, as from `lstm`, with a
        `GRUSaved` of 4 * T * N * K float32 values per layer and direction.

    Raises
    ------
    TypeError, ValueError
        As for `lstm`, or `training` is requested with ``reset_after=False``.

    Notes
    -----
    Cho et al., arXiv 1406.1078, in the variant of its first version; on the batch-reduce
    GEMM kernel after arXiv 1906.06440.
    """
    named = {"w_ih": w_ih, "w_hh": w_hh, "b_ih": b_ih, "b_hh": b_hh}
    options = (("reset_after", flag("reset_after", reset_after)),)
    settings = Settings(reverse, bidirectional, num_layers, batch_first, options)
    others = lengths, training, holds_bits(dtype)
    return forward("gru", x, named, settings, {"h_0": h_0}, others)


@instead(input="x", hx="h_0")
def rnn(
    x: Any,
    w_ih: Arrays,
    w_hh: Arrays,
    b_ih: Arrays = None,
    b_hh: Arrays = None,
    *,
    h_0: Any = None,
    activation: str = "tanh",
    lengths: Any = None,
    reverse: bool = False,
    bidirectional: bool = False,
    num_layers: int = 1,
    batch_first: bool = False,
    dtype: npt.DTypeLike | None = None,
) -> RNNResult:
    """A plain recurrence, for inference: ``h = tanh(w_ih x + b_ih + w_hh h + b_hh)``.

    Parameters
    ----------
    w_ih : array of the dtype of x, (K, C), or a sequence
        (K, D*K) for the layers after the first.
    w_hh : array of the dtype of x, (K, K), or a sequence
    b_ih, b_hh : array of float32 or bfloat16, (K,), or a sequence, optional
        Both are added.
    activation : "tanh" or "relu"
    x, h_0, lengths, reverse, bidirectional, num_layers, batch_first, dtype
        As for `lstm`.

    Returns
    -------
    RNNResult
        ``(y, h_n)``, as from `lstm`.

    Raises
    ------
    TypeError, ValueError
        As for `lstm`, or the activation is unknown.

    Notes
    -----
    Elman, "Finding structure in time" (1990); on the batch-reduce GEMM kernel after arXiv
    1906.06440.
    """
    named = {"w_ih": w_ih, "w_hh": w_hh, "b_ih": b_ih, "b_hh": b_hh}
    options = (("activation", one_of_names("activation", activation, ("tanh", "relu"))),)
    settings = Settings(reverse, bidirectional, num_layers, batch_first, options)
    found: RNNResult = forward(
        "rnn", x, named, settings, {"h_0": h_0}, (lengths, False, holds_bits(dtype))
    )
    return found


def lstm_backward(
    dy: Any, saved: SavedRecurrence, *, diff_h_n: Any = None, diff_c_n: Any = None
) -> LSTMGradients:
    """Gradients of `lstm` through all steps, layers and directions.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to y. Not read after the end of a sequence. uint16 only if
        x was.
    saved : SavedRecurrence
        From ``lstm(..., training=True)``. May be used again.
    diff_h_n : array of the dtype of x, (num_layers * D, N, K), optional
    diff_c_n : array of float32 or the dtype of x, (num_layers * D, N, K), optional
        Gradients with respect to h_n and c_n; zeros by default.

    Returns
    -------
    LSTMGradients
        diff_src is with respect to x, of its dtype and shape, and zero after the end of a sequence;
        diff_h_0 and diff_c_0 are (num_layers * D, N, K); diff_w_ih, diff_w_hh, diff_b_ih and
        diff_b_hh are float32 in the shapes of the parameters, lists if w_ih was a sequence.
        Gradients of absent biases are None.

    Raises
    ------
    TypeError
        saved is something else, or an argument is not an array or has the wrong dtype.
    ValueError
        saved is from `gru`, or a shape does not agree with it.
    """
    states = {"diff_h_n": diff_h_n, "diff_c_n": diff_c_n}
    found: LSTMGradients = backward("lstm", dy, saved, states)
    return found


def gru_backward(dy: Any, saved: SavedRecurrence, *, diff_h_n: Any = None) -> GRUGradients:
    """Gradients of `gru` through all steps, layers and directions.

    Parameters
    ----------
    dy, diff_h_n : array
        As for `lstm_backward`.
    saved : SavedRecurrence
        From ``gru(..., training=True)``. May be used again.

    Returns
    -------
    GRUGradients
        As from `lstm_backward`, without diff_c_0.

    Raises
    ------
    TypeError, ValueError
        As for `lstm_backward`.
    """
    found: GRUGradients = backward("gru", dy, saved, {"diff_h_n": diff_h_n})
    return found
