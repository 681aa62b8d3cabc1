"""lstm and gru with the parameters of PyTorch's modules, unchanged: its results and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rnn_cases import Rnn
from rnn_stack import BACKWARD, FORMS, FORWARD, Form, Problem

torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")


# In reverse alone PyTorch does not run.
@pytest.mark.parametrize("form", [form for form in FORMS if not form.reverse], ids=str)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_results_and_gradients(form: Form, cell: str) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, cell.upper())(
        7, 19, form.layers, bias=form.bias, batch_first=form.batch_first,
        bidirectional=form.bidirectional,
    )  # fmt: skip
    problem = Problem(Rnn(cell, 5, 6, 7, 19), form)
    x = torch.from_numpy(problem.outer(problem.x)).requires_grad_()
    names = {"w_ih": "weight_ih", "w_hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}
    suffixes = [
        f"_l{layer}{reverse}"
        for layer in range(form.layers)
        for reverse in ("", "_reverse")[: 1 + form.bidirectional]
    ]
    state = module.state_dict()
    own = {
        name: [state[long + suffix] for suffix in suffixes]
        for name, long in names.items()
        if form.bias or "bias" not in long
    }
    start, end = problem.states("h_0", "c_0"), problem.states("diff_h_n", "diff_c_n")
    theirs = [torch.from_numpy(each).requires_grad_() for each in start.values()]
    hidden = (tuple(theirs) if cell == "lstm" else theirs[0]) if theirs else None
    source: Any = x
    if form.lengths:
        problem.lengths = np.maximum(problem.lengths, 1)
        problem.lengths[0] = 5
        source = torch.nn.utils.rnn.pack_padded_sequence(
            x, problem.lengths, batch_first=form.batch_first, enforce_sorted=False
        )
    y, last = module(source, hidden)
    if form.lengths:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=form.batch_first)
    lasts = last if cell == "lstm" else (last,)
    diffs = [torch.from_numpy(each) for each in (problem.outer(problem.diff_y), *end.values())]
    torch.autograd.backward([y, *lasts[: len(end)]], diffs)

    *results, saved = FORWARD[cell](
        x.detach(), **own, **start, lengths=problem.lengths, **form.keywords, training=True
    )
    gradients = BACKWARD[cell](diffs[0], saved, **end)
    pairs = [*zip(results, (y, *lasts), strict=True), (gradients.diff_src, x.grad)]
    for name, tensor in zip(("diff_h_0", "diff_c_0"), theirs, strict=False):
        pairs.append((getattr(gradients, name), tensor.grad))
    for name, long in names.items():
        for one, suffix in zip(getattr(gradients, f"diff_{name}") or (), suffixes, strict=False):
            pairs.append((one, getattr(module, long + suffix).grad))
    for one, other in pairs:
        np.testing.assert_allclose(one, other.detach(), rtol=1e-4, atol=1e-4)
