"""The oracle of LSTM and GRU against numerical differentiation and PyTorch in float64."""

from __future__ import annotations

import numpy as np
import pytest

import rnn_reference as reference
from rnn_reference import State, Weights

pytestmark = pytest.mark.any_level

T, N, C, K = 4, 5, 3, 2
LENGTHS = np.array([4, 0, 2, 1, 3])

cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
reversals = pytest.mark.parametrize("reverse", [False, True])


class Drawn:
    """Float64 operands of every argument, in the shapes of `shapes`."""

    def __init__(self, cell: str, channels: int = C, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        rows = reference.GATES[cell] * K
        self.x = random.standard_normal((T, N, channels))
        self.weights = Weights(
            random.standard_normal((rows, channels)),
            random.standard_normal((rows, K)),
            random.standard_normal(rows),
            random.standard_normal(rows),
        )
        self.start, self.diff_end = (
            State(random.standard_normal((N, K)), random.standard_normal((N, K))) for _ in range(2)
        )
        self.diff_y = random.standard_normal((T, N, K))


@pytest.mark.parametrize("cell", reference.GATES)
@reversals
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
def test_gradients_are_the_slopes(cell: str, reverse: bool, lengths: np.ndarray | None) -> None:
    d = Drawn(cell)
    if cell != "lstm":
        d.start, d.diff_end = (State(s.h, np.zeros((N, K))) for s in (d.start, d.diff_end))

    def loss() -> float:
        result = reference.forward(cell, d.x, d.weights, d.start, lengths, reverse)
        terms = ((result.y, d.diff_y), (result.h_n, d.diff_end.h), (result.c_n, d.diff_end.c))
        return sum(float((value * diff).sum()) for value, diff in terms)

    result = reference.forward(cell, d.x, d.weights, d.start, lengths, reverse)
    gradients = reference.backward(cell, d.weights, result, d.diff_y, d.diff_end)
    for operand, gradient in zip((d.x, *d.start, *d.weights), gradients, strict=True):
        slopes = np.empty_like(operand)
        for index in np.ndindex(operand.shape):
            value, sides = operand[index], []
            for step in (1e-6, -1e-6):
                operand[index] = value + step
                sides.append(loss())
            operand[index] = value
            slopes[index] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(gradient, slopes, rtol=1e-7, atol=1e-7)


@cells
@pytest.mark.parametrize("bidirectional", [False, True])
def test_agrees_with_torch(cell: str, bidirectional: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    directions = (False, True)[: 1 + bidirectional]
    layers = [Drawn(cell, C if n < len(directions) else len(directions) * K, n)
              for n in range(2 * len(directions))]  # fmt: skip
    first, random = layers[0], np.random.default_rng(9)
    module = getattr(torch.nn, cell.upper())(
        C, K, num_layers=2, bidirectional=bidirectional, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter, value in zip(
            module.parameters(), (w for layer in layers for w in layer.weights), strict=True
        ):
            parameter.copy_(torch.from_numpy(value))
    lengths = np.maximum(LENGTHS, 1)  # PyTorch packs no empty sequence
    start = State(*(np.stack([layer.start[i] for layer in layers]) for i in range(2)))
    ends = State(*(random.standard_normal(start.h.shape) for _ in range(2)))
    diff_y = random.standard_normal((T, N, len(directions) * K))
    if cell == "gru":
        start, ends = (State(s.h, np.zeros(s.h.shape)) for s in (start, ends))
    weights = [layer.weights for layer in layers]
    result, runs = reference.stack_forward(cell, first.x, weights, start, directions, lengths)
    diff_x, gradients = reference.stack_backward(cell, weights, runs, diff_y, ends, len(directions))

    x, h_0, c_0 = (torch.from_numpy(each).requires_grad_() for each in (first.x, *start))
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    y, end = module(packed, (h_0, c_0) if cell == "lstm" else h_0)
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(y)
    h_n, c_n = end if cell == "lstm" else (end, c_0 * 0)
    torch.autograd.backward([y, h_n, c_n], [torch.from_numpy(d) for d in (diff_y, *ends)])
    mine = [result.y, result.h_n, result.c_n, diff_x]
    theirs = [y, h_n, torch.from_numpy(start.c) if cell == "gru" else c_n, x.grad]
    mine += [np.stack([each.diff_h_0 for each in gradients])]
    mine += [np.stack([each.diff_c_0 for each in gradients])]
    theirs += [h_0.grad, c_0.grad]
    mine += [each for gradient in gradients for each in gradient[3:]]
    theirs += [parameter.grad for parameter in module.parameters()]
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-10, atol=1e-12)
