"""softmax_cross_entropy with weights of classes, smoothed labels and every reduction."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import dlprim
import row_reference
from bfloat16 import bits_of, rounded
from dlprim import nn

pytestmark = pytest.mark.every_level

REDUCTIONS = ["mean", "sum", "none"]
SMOOTHING = [0.0, 0.1, 1.0]
SHAPES = [(1, 1), (5, 3), (7, 17), (64, 1000), (3, 40001)]
IGNORED = -100


def problem(shape: tuple[int, int], seed: int = 0) -> tuple[Any, Any, Any]:
    """Logits, targets of which one is ignored, and weights of which one is 0."""
    random = np.random.default_rng(seed)
    x = (3 * random.standard_normal(shape)).astype(np.float32)
    targets = random.integers(0, shape[1], shape[0])
    if shape[0] > 3:
        targets[1] = IGNORED
    weight = random.uniform(0.5, 2, shape[1]).astype(np.float32)
    if shape[1] > 2:
        weight[0] = 0
    return x, targets, weight


def exact(x: Any, targets: Any, weight: Any, smoothing: float, reduction: str) -> tuple[Any, Any]:
    """The loss and its gradient, in float64."""
    classes = x.shape[1]
    w = np.ones(classes) if weight is None else weight.astype(np.float64)
    logs = row_reference.log_softmax(x.astype(np.float64))
    counts = targets != IGNORED
    hits = np.where(counts, targets, 0)
    # Of each row the factors of -log p.
    factors = np.tile(smoothing / classes * w, (len(x), 1))
    factors[np.arange(len(x)), hits] += (1 - smoothing) * w[hits]
    factors *= counts[:, None]
    loss = -(factors * logs).sum(1)
    dx = np.exp(logs) * factors.sum(1, keepdims=True) - factors
    if reduction == "none":
        return loss, dx
    divisor = (w[hits] * counts).sum() if reduction == "mean" else 1
    return loss.sum() / divisor, dx / divisor


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_classes_lie_along_the_last_axis_of_any_number(reduction: str) -> None:
    x, targets, weight = problem((24, 17))
    how: dict[str, Any] = {"weight": weight, "label_smoothing": 0.1, "reduction": reduction}
    flat = dlprim.softmax_cross_entropy(x, targets, **how)
    out = np.empty((2, 3, 4, 17), np.float32)
    found = dlprim.softmax_cross_entropy(
        x.reshape(2, 3, 4, 17), targets.reshape(2, 3, 4), **how, out=out
    )
    assert found.dx is out
    np.testing.assert_array_equal(out.reshape(x.shape), flat.dx)
    np.testing.assert_array_equal(np.ravel(found.loss), np.ravel(flat.loss))
    assert np.shape(found.loss) == ((2, 3, 4) if reduction == "none" else ())
    criterion = nn.CrossEntropyLoss(**how)
    np.testing.assert_array_equal(
        criterion(x.reshape(4, 6, 17), targets.reshape(4, 6)).dx, flat.dx.reshape(4, 6, 17)
    )


def test_classes_along_the_second_axis_are_told_apart() -> None:
    expected = r"^targets has shape \(2, 5\), expected \(2, 3\) .*np\.moveaxis\(logits, 1, -1\)"
    with pytest.raises(ValueError, match=expected):
        dlprim.softmax_cross_entropy(np.ones((2, 3, 5), np.float32), np.zeros((2, 5), int))


def check(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.loss, expected[0], rtol=1e-5, atol=1e-6)
    largest = np.abs(expected[1]).max(initial=1e-30)
    np.testing.assert_allclose(found.dx, expected[1], rtol=1e-5, atol=3e-6 * largest)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, int], smoothing: float, reduction: str) -> None:
    x, targets, weight = problem(shape)
    for of_class in (None, weight):
        more: dict[str, Any] = {"label_smoothing": smoothing, "reduction": reduction}
        found = dlprim.softmax_cross_entropy(x, targets, weight=of_class, **more)
        check(found, exact(x, targets, of_class, smoothing, reduction))
        assert isinstance(found.loss, np.ndarray if reduction == "none" else float)
        loss, dx = dlprim.softmax_cross_entropy(x, targets, weight=of_class, **more, gradient=False)
        np.testing.assert_array_equal(loss, found.loss)
        assert dx is None
        in_place = x.copy()
        again = nn.CrossEntropyLoss(of_class, **more)(in_place, targets, out=in_place)
        assert again.dx is in_place
        assert in_place.tobytes() == found.dx.tobytes()
        np.testing.assert_array_equal(again.loss, found.loss)


def test_gradients_are_those_of_the_values() -> None:
    x, targets, weight = problem((4, 5))
    for smoothing, reduction in itertools.product(SMOOTHING, ("mean", "sum")):
        _, dx = exact(x, targets, weight, smoothing, reduction)
        for place in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[place] = 1e-5
            above, below = (
                exact(x + sign * step, targets, weight, smoothing, reduction)[0] for sign in (1, -1)
            )
            assert (above - below) / 2e-5 == pytest.approx(dx[place], rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_bfloat16_is_float32_rounded_once(smoothing: float, reduction: str) -> None:
    x, targets, weight = problem((7, 170))
    half = dlprim.to_bfloat16(x)
    more: dict[str, Any] = {"label_smoothing": smoothing, "reduction": reduction}
    for of_class in (None, dlprim.to_bfloat16(weight)):
        found = dlprim.softmax_cross_entropy(half, targets, weight=of_class, **more)
        wide = None if of_class is None else dlprim.to_float32(of_class)
        expected = dlprim.softmax_cross_entropy(
            dlprim.to_float32(half), targets, weight=wide, **more
        )
        np.testing.assert_array_equal(found.loss, expected.loss)
        np.testing.assert_array_equal(bits_of(found.dx), rounded(expected.dx))


def test_nothing_counts() -> None:
    x, _, weight = problem((4, 5))
    for rows in (0, 4):
        targets = np.full(rows, IGNORED)
        for smoothing in (0.0, 0.1):
            more: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing}
            for reduction, expected in (("mean", np.nan), ("sum", 0), ("none", np.zeros(rows))):
                found = dlprim.softmax_cross_entropy(x[:rows], targets, reduction=reduction, **more)
                np.testing.assert_array_equal(found.loss, expected)
                assert not found.dx.any()
    # As in PyTorch: of targets that weigh nothing the mean is none.
    loss, dx = dlprim.softmax_cross_entropy(x, np.zeros(4, int), weight=weight)
    assert np.isnan(loss)
    assert np.isnan(dx).all()


def test_infinite_logits() -> None:
    x = np.zeros((3, 4), np.float32)
    x[0, 1], x[1, 2], x[2, 3] = -np.inf, np.inf, np.nan
    targets, weight = np.array([0, 0, 0]), np.array([1, 2, 0, 3], np.float32)
    loss, dx = dlprim.softmax_cross_entropy(x, targets, weight=weight, reduction="none")
    assert loss[0] == pytest.approx(np.log(3))
    assert np.isfinite(dx[0]).all()
    assert np.isnan(loss[1:]).all()
    assert np.isnan(dx[1:]).all()
    # A class that cannot be has its part of the smoothed target.
    loss = dlprim.softmax_cross_entropy(x, targets, label_smoothing=0.1, reduction="none").loss
    assert loss[0] == np.inf


def test_threads_do_not_change_a_bit() -> None:
    x, targets, weight = problem((700, 333))
    found = []
    for threads in (1, 3):
        with dlprim.threads(threads):
            loss, dx = dlprim.softmax_cross_entropy(
                x, targets, weight=weight, label_smoothing=0.1, reduction="sum"
            )
            found.append((loss, dx.tobytes()))
    assert found[0] == found[1]


def test_a_model_learns_with_it() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((64, 8)).astype(np.float32)
    targets = (x[:, 0] > 0).astype(np.int64)
    model = nn.Sequential(nn.Linear(8, 16, activation="relu"), nn.Linear(16, 2))
    optimizer = dlprim.optim.Adam(model.parameters(), 1e-2)
    criterion = nn.CrossEntropyLoss(np.array([1, 2], np.float32), label_smoothing=0.05)
    first = criterion(model.eval()(x), targets, gradient=False).loss
    model.train()
    for _ in range(40):
        loss, diff = criterion(model(x), targets)
        model.backward(diff)
        dlprim.optim.clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
    assert loss < first / 2


def test_settings_are_shown_copied_and_kept() -> None:
    weight = np.ones(3, np.float32)
    shown = {
        "CrossEntropyLoss()": nn.CrossEntropyLoss(),
        "CrossEntropyLoss(weight=an array of shape (3,), label_smoothing=0.1)": nn.CrossEntropyLoss(
            weight, label_smoothing=0.1
        ),
        "MSELoss(reduction='sum')": nn.MSELoss(reduction="sum"),
        "BCEWithLogitsLoss(pos_weight=an array of shape (3,))": nn.BCEWithLogitsLoss(
            pos_weight=weight
        ),
    }
    assert [repr(it) for it in shown.values()] == list(shown)
    x, targets, _ = problem((5, 3))
    criterion = nn.CrossEntropyLoss(weight, ignore_index=1, reduction="sum")
    expected = criterion(x, np.abs(targets) % 3)
    weight[...] = 5
    for twin in (criterion, copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        assert twin(x, np.abs(targets) % 3).loss == expected.loss
    criterion.reduction = "mean"
    assert criterion(x, np.abs(targets) % 3).loss < expected.loss


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"weight": np.ones(4, np.float32)}, r"weight has shape \(4,\), expected \(3,\)"),
        ({"weight": np.ones((1, 3), np.float32)}, r"weight has shape \(1, 3\), expected \(3,\)"),
        ({"weight": np.ones(3)}, "weight has dtype float64, expected float32 or bfloat16"),
        ({"weight": [1, 2, 3]}, "weight is of type list, expected an array of float32 or bfloat1"),
        ({"label_smoothing": 1.5}, r"label_smoothing is 1.5, expected a number in \[0, 1\]"),
        ({"label_smoothing": "a"}, "label_smoothing is 'a', expected a finite number"),
        (
            {"reduction": "batchmean"},
            "reduction is 'batchmean', expected one of 'none', 'mean', 's",
        ),
    ],
)
def test_refusals(more: Any, message: str) -> None:
    x, targets, _ = problem((2, 3))
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        dlprim.softmax_cross_entropy(x, targets, **more)


def test_weights_are_not_written() -> None:
    x, targets, _ = problem((2, 3))
    with pytest.raises(ValueError, match=r"^out shares memory with weight, expected a separate"):
        dlprim.softmax_cross_entropy(x, targets, weight=x[0], out=x)
    for wrong in (np.ones((2, 2), np.float32), np.ones(0, np.float32)):
        with pytest.raises(ValueError, match=r"^weight has shape .*, expected \(K,\) with K >= 1"):
            nn.CrossEntropyLoss(wrong)
    with pytest.raises(TypeError, match=r"^ignore_index is 0\.5, expected an integer"):
        nn.CrossEntropyLoss(ignore_index=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_against_pytorch(smoothing: float, reduction: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    x, targets, weight = problem((7, 17))
    for of_class in (None, weight):
        leaf = torch.from_numpy(x).requires_grad_()
        their_weight = None if of_class is None else torch.from_numpy(of_class)
        expected = torch.nn.functional.cross_entropy(
            leaf, torch.from_numpy(targets), their_weight, label_smoothing=smoothing,
            reduction=reduction,
        )  # fmt: skip
        expected.sum().backward()
        found = nn.CrossEntropyLoss(of_class, label_smoothing=smoothing, reduction=reduction)(
            x, targets
        )
        np.testing.assert_allclose(found.loss, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.dx, leaf.grad.numpy(), rtol=1e-5, atol=1e-6)
