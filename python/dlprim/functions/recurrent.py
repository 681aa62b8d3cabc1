"""LSTM and GRU on plain arrays: PyTorch's parameters, shapes and defaults, arrays in and out."""

from typing import Any, TypeAlias

from dlprim.functions.recurrent_arguments import Settings
from dlprim.functions.recurrent_stack import SavedRecurrence, backward, forward
from dlprim.primitives.rnn_operands import GRUGradients, LSTMGradients

Arrays: TypeAlias = Any  # an array, or a sequence of arrays, one per layer and direction


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
) -> tuple[Any, ...]:
    """A long short-term memory: ``i, f, o = sigmoid, g = tanh`` of ``w_ih x + w_hh h + b``, \
``c = f c + i g``, ``h = o tanh(c)``.

    Parameters are PyTorch's, in its order; with D directions, 2 if `bidirectional`, else 1, they
    are sequences of num_layers * D arrays for more than one: layer 0, layer 0 reverse, layer 1, ...

    Parameters
    ----------
    x : array of float32 or bfloat16, (T, N, C)
        (N, T, C) with `batch_first`, which costs a copy.
    w_ih : array of the same dtype, (4*K, C), or a sequence
        The gates i, f, g, o, K rows each. (4*K, D*K) for the layers after the first.
    w_hh : array of the same dtype, (4*K, K), or a sequence
    b_ih, b_hh : array of float32 or bfloat16, (4*K,), or a sequence, optional
        Both are added.
    h_0 : array of the dtype of x, (num_layers * D, N, K), optional
        Zeros by default.
    c_0 : array of float32 or the dtype of x, (num_layers * D, N, K), optional
        Zeros by default.
    lengths : integers, (N,), optional
        Steps of every sequence, 0 to T. At later ones y is zero and states stay as they are,
        whatever stands in x there. A run in reverse begins at the last valid step.
    reverse : bool
        Run from the last step to the first; y stays in the order of x.
    bidirectional : bool
        Run every layer in both directions; y holds both results one after the other.
    num_layers : int
        Layers; the y of one is the x of the next.
    batch_first : bool
        x and y are (N, T, ...). States are not affected.
    training : bool
        Return in addition what `lstm_backward` needs.

    Returns
    -------
    y : ndarray of the dtype of x, (T, N, D*K) or (N, T, D*K)
        h of the last layer after every step. The same bits for any number of threads.
    h_n : ndarray of the dtype of x, (num_layers * D, N, K)
    c_n : ndarray of float32, (num_layers * D, N, K)
        The states after the last valid step; h_0 and c_0 where there is none.
    saved : SavedRecurrence
        Only with `training`. Its `weights` and `states` hold num_layers * D entries each: the
        `PackedWeights` and the `LSTMSaved`, tuples of plain arrays, of every layer and direction.
        They refer to x, h_0, c_0 and y, which must not change before `lstm_backward`; w_ih, w_hh,
        b_ih and b_hh may. Beside these and y of every layer, 5 * T * N * K float32 values are kept
        per layer and direction.

    TypeError where an argument is no array, or of another dtype; ValueError where shapes do not
    agree, there are more or fewer parameters than layers and directions, a length is out of range,
    or both `reverse` and `bidirectional` are asked for.

    Source: Hochreiter and Schmidhuber, "Long short-term memory" (1997), with the forget gate of
    Gers et al. (2000); on the batch-reduce GEMM kernel after arXiv 1906.06440.
    """
    named = {"w_ih": w_ih, "w_hh": w_hh, "b_ih": b_ih, "b_hh": b_hh}
    settings = Settings(reverse, bidirectional, num_layers, batch_first)
    return forward("lstm", x, named, settings, {"h_0": h_0, "c_0": c_0}, (lengths, training))


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
    training: bool = False,
) -> tuple[Any, ...]:
    """A gated recurrent unit: with ``p = w_ih x + b_ih`` and ``q = w_hh h + b_hh``, \
``r, z = sigmoid(p + q)``, ``n = tanh(p + r q)``, ``h = (1 - z) n + z h``.

    As in PyTorch and cuDNN r is applied after the product with w_hh.

    Parameters
    ----------
    w_ih : array of the dtype of x, (3*K, C), or a sequence
        The gates r, z, n, K rows each. (3*K, D*K) for the layers after the first.
    w_hh : array of the dtype of x, (3*K, K), or a sequence
    b_ih, b_hh : array of float32 or bfloat16, (3*K,), or a sequence, optional
        Not interchangeable: r multiplies what the n rows of b_hh are added to.
    x, h_0, lengths, reverse, bidirectional, num_layers, batch_first, training
        As for `lstm`.

    Returns
    -------
    y, h_n
        As from `lstm`.
    saved : SavedRecurrence
        Only with `training`: what `gru_backward` needs, as from `lstm`, with a `GRUSaved` of
        4 * T * N * K float32 values per layer and direction.

    Errors: as `lstm` does.

    Source: Cho et al., arXiv 1406.1078, in the variant of its first version; on the batch-reduce
    GEMM kernel after arXiv 1906.06440.
    """
    named = {"w_ih": w_ih, "w_hh": w_hh, "b_ih": b_ih, "b_hh": b_hh}
    settings = Settings(reverse, bidirectional, num_layers, batch_first)
    return forward("gru", x, named, settings, {"h_0": h_0}, (lengths, training))


def lstm_backward(
    dy: Any, saved: SavedRecurrence, diff_h_n: Any = None, diff_c_n: Any = None
) -> LSTMGradients:
    """Gradients of `lstm` through all steps, layers and directions.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to y. Not read after the end of a sequence.
    saved : SavedRecurrence
        From ``lstm(..., training=True)``. May be used again.
    diff_h_n : array of the dtype of x, (num_layers * D, N, K), optional
    diff_c_n : array of float32 or the dtype of x, (num_layers * D, N, K), optional
        Gradients with respect to h_n and c_n; zeros by default.

    Returns
    -------
    diff_src : ndarray of the dtype of x, the shape of x
        With respect to x; zero after the end of a sequence.
    diff_h_0 : ndarray of the dtype of x, (num_layers * D, N, K)
    diff_c_0 : ndarray of float32, (num_layers * D, N, K)
    diff_w_ih, diff_w_hh, diff_b_ih, diff_b_hh : ndarray of float32, or a list
        In the shapes of the parameters, lists where w_ih was a sequence. None for the biases where
        there was none of them.

    TypeError where saved is something else, or an argument is no array, or of another dtype;
    ValueError where saved is from `gru`, or a shape does not agree with it.
    """
    states = {"diff_h_n": diff_h_n, "diff_c_n": diff_c_n}
    found: LSTMGradients = backward("lstm", dy, saved, states)
    return found


def gru_backward(dy: Any, saved: SavedRecurrence, diff_h_n: Any = None) -> GRUGradients:
    """Gradients of `gru` through all steps, layers and directions, from its `saved`.

    Parameters, results, which lack diff_c_0, and errors are those of `lstm_backward`.
    """
    found: GRUGradients = backward("gru", dy, saved, {"diff_h_n": diff_h_n})
    return found
