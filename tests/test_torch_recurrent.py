"""`dlprim.torch`: models with `torch.nn.LSTM` and `GRU`, compiled beside themselves run eagerly."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what compiles")

from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

from torch_compare import close, compiled, run_both, tensors  # noqa: E402

pytestmark = [pytest.mark.any_level, pytest.mark.usefixtures("fresh_dynamo")]
CELLS = [nn.LSTM, nn.GRU]


class Sequences(nn.Module):
    """A recurrent layer and a head on all its steps."""

    def __init__(self, cell: Any, **how: Any) -> None:
        super().__init__()
        self.cell = cell(8, 6, **how)
        self.head = nn.Linear(12 if how.get("bidirectional") else 6, 4)

    def forward(self, x: torch.Tensor, *states: Any) -> tuple[Any, ...]:
        y, last = self.cell(x, *states)
        return self.head(y), last


def listened(model: nn.Module, *inputs: Any, bound: float = 2e-4) -> list[Any]:
    """Reports on the graphs of a model that is found to be as it is eagerly."""
    from dlprim.torch.explanation import listening

    with listening() as found:
        run_both(model, lambda: inputs, bound)
    return found


FORMS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers both ways": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "without biases": {"bias": False, "bidirectional": True},
    "dropout between layers": {"num_layers": 3, "dropout": 0.4, "batch_first": True},
}


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("cell", CELLS)
def test_a_layer_is_one_piece_each_way(cell: Any, form: str) -> None:
    reports = listened(Sequences(cell, **FORMS[form]), torch.randn(3, 5, 8))
    assert [it.kind for it in reports] == ["inference", "forward", "backward"]
    for it in reports:
        assert [piece.refused for piece in it.pieces] == [None]
        ours, whole = it.flops
        assert ours == whole > 0


@pytest.mark.parametrize("cell", CELLS)
def test_states_are_given_and_returned(cell: Any) -> None:
    model, count = Sequences(cell, num_layers=2), 2 if cell is nn.LSTM else 1
    states = tuple(torch.randn(2, 5, 6) for _ in range(count))
    listened(model, torch.randn(3, 5, 8), states if count == 2 else states[0])
    alone = tuple(it[:, 0] for it in states)
    listened(model, torch.randn(3, 8), alone if count == 2 else alone[0])


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_the_last_states_alone(cell: Any) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(8, 6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            last = self.cell(x)[1]
            return last[1][0] if isinstance(last, tuple) else last[0]

    listened(Last(), torch.randn(3, 5, 8))


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_autocast(cell: Any, around: bool) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.body = nn.Linear(8, 8), Sequences(cell, num_layers=2)

        def forward(self, x: torch.Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16, enabled=not around):
                return self.body(self.first(x) if around else x)

    model, x = Mixed(), torch.randn(3, 5, 8)
    if not around:
        listened(model, x, bound=0.05)
        return
    theirs = copy.deepcopy(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, expected = compiled(model)(x), theirs(x)
    for one, two in zip(tensors(found), tensors(expected), strict=True):
        close(one, two, 0.05)


@pytest.mark.parametrize("cell", CELLS)
def test_sequences_of_many_lengths(cell: Any) -> None:
    model = Sequences(cell, num_layers=2, dropout=0.0)
    theirs, run = copy.deepcopy(model), None
    run = compiled(model)
    for steps, count in ((3, 2), (5, 4), (7, 3), (1, 1)):
        x = torch.randn(steps, count, 8)
        for it, call in ((model, run), (theirs, theirs)):
            it.zero_grad()
            call(x)[0].square().sum().backward()
        for one, two in zip(model.parameters(), theirs.parameters(), strict=True):
            close(one.grad, two.grad, 1e-4)


@pytest.mark.parametrize("cell", CELLS)
def test_models_with_other_shares_of_dropout_of_one_class(cell: Any) -> None:
    """TorchDynamo makes a symbol of the share then."""
    x = torch.randn(3, 5, 8)
    for share in (0.0, 0.2, 0.5):
        model = Sequences(cell, num_layers=2, dropout=share)
        theirs = copy.deepcopy(model)
        torch.manual_seed(1)
        found = compiled(model)(x)[0]
        torch.manual_seed(1)
        close(found, theirs(x)[0], 1e-4)


# ---------------------------------------------------------------- what stays with PyTorch


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of TorchDynamo's own
@pytest.mark.parametrize("cell", CELLS)
def test_packed_sequences(cell: Any) -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(8, 6)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            return pad_packed_sequence(self.cell(packed)[0])[0]

    lengths = torch.tensor([2, 5, 3])
    model, x = Packed(), torch.randn(5, 3, 8)
    theirs = copy.deepcopy(model)
    found, expected = compiled(model)(x, lengths), theirs(x, lengths)
    close(found, expected, 1e-5)
    for made in (found, expected):
        made.square().sum().backward()
    for one, two in zip(model.parameters(), theirs.parameters(), strict=True):
        close(one.grad, two.grad, 1e-5)


OTHERS = {
    "projected": (lambda: nn.LSTM(8, 6, proj_size=3), torch.float32),
    "float64": (lambda: nn.LSTM(8, 6).double(), torch.float64),
    "float64 gru": (lambda: nn.GRU(8, 6).double(), torch.float64),
    "plain": (lambda: nn.RNN(8, 6), torch.float32),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", list(OTHERS))
def test_other_layers_are_computed_as_ever(name: str) -> None:
    make, dtype = OTHERS[name]
    model, x = make(), torch.randn(3, 5, 8, dtype=dtype)
    theirs = copy.deepcopy(model)
    found, expected = compiled(model)(x), theirs(x)
    close(found[0], expected[0], 1e-5)
    found[0].square().sum().backward()
    expected[0].square().sum().backward()
    for one, two in zip(model.parameters(), theirs.parameters(), strict=True):
        close(one.grad, two.grad, 1e-5)
