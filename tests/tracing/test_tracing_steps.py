"""Training steps as one network: the loop by hand, step by step, to rounding or bit for bit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import optim
from dlprim.nn import Parameter
from dlprim.tracing.steps import TrainingStep, training_step

Array = np.ndarray[Any, Any]
Tree = dict[str, Any]

OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "nesterov": lambda p: optim.SGD(p, 0.1, 0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, 0.01, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, 0.01),
    "lamb": lambda p: optim.LAMB(p, 0.01),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
}


def loss_of(params: Tree, x: Any, labels: Any) -> Any:
    hidden = np.maximum(x @ params["first"]["w"] + params["first"]["b"], 0)
    scores = hidden @ params["last"]
    return dlprim.softmax_cross_entropy(scores, labels, gradient=False).loss


def drawn_parameters(seed: int = 0) -> Tree:
    generator = np.random.default_rng(seed)
    draw = generator.standard_normal
    first = {"w": draw((6, 7), np.float32) / 3, "b": np.zeros(7, np.float32)}
    return {"first": first, "last": draw((7, 4), np.float32) / 3}


def leaves(params: Tree) -> list[Any]:
    return [params["first"]["w"], params["first"]["b"], params["last"]]


def batch(seed: int, count: int = 9) -> tuple[Array, Array]:
    generator = np.random.default_rng(100 + seed)
    return generator.standard_normal((count, 6), np.float32), generator.integers(4, size=count)


VALUE_AND_GRAD = dlprim.value_and_grad(loss_of)


def by_hand(params: Tree, optimizer: Any, seeds: list[int], limit: float | None = None) -> Array:
    """A step of all these batches; the losses."""
    losses = []
    total = [np.zeros_like(it) for it in leaves(params)]
    for seed in seeds:
        loss, grads = VALUE_AND_GRAD(params, *batch(seed))
        losses.append(loss)
        for to, it in zip(total, leaves(grads), strict=True):
            to += it
    if limit is not None:
        held = [Parameter(it) for it in total]
        for one, it in zip(held, total, strict=True):
            one.gradient[...] = it
        optim.clip_grad_norm(held, limit)
        total = [it.gradient for it in held]
    optimizer.step(total)
    return np.array(losses)


def check_alike(one: tuple[Tree, Any], other: tuple[Tree, Any]) -> None:
    for first, last in zip(leaves(one[0]), leaves(other[0]), strict=True):
        np.testing.assert_allclose(first, last, rtol=1e-5, atol=1e-6)
    known, expected = one[1].state_dict(), other[1].state_dict()
    assert known.keys() == expected.keys()
    for name, it in known.items():
        if isinstance(it, np.ndarray):
            np.testing.assert_allclose(it, expected[name], rtol=1e-5, atol=1e-6)
        else:
            assert it == expected[name], name


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("limit", [None, 0.1])
def test_steps_follow_the_loop_by_hand_and_alternate_with_it(
    name: str, limit: float | None
) -> None:
    params, expected = drawn_parameters(), drawn_parameters()
    optimizer, second = (OPTIMIZERS[name](leaves(it)) for it in (params, expected))
    step = training_step(loss_of, params, optimizer, clip_norm=limit)
    for seed in range(5):
        right = by_hand(expected, second, [seed], limit)
        is_by_hand = seed == 2
        found = by_hand(params, optimizer, [seed], limit)[0] if is_by_hand else step(*batch(seed))
        np.testing.assert_allclose(found, right[0], rtol=1e-5)
        check_alike((params, optimizer), (expected, second))
        optimizer.lr = second.lr = 0.05 / (seed + 1)
    assert (step.norm is None) == (limit is None)


@pytest.mark.parametrize("name", ["nesterov", "adamw"])
@pytest.mark.parametrize("accumulate", [2, 3])
def test_gradients_of_several_calls_are_added_up(name: str, accumulate: int) -> None:
    params, expected = drawn_parameters(), drawn_parameters()
    optimizer, second = (OPTIMIZERS[name](leaves(it)) for it in (params, expected))
    step = training_step(loss_of, params, optimizer, accumulate=accumulate, clip_norm=0.5)
    for update in range(3):
        seeds = [accumulate * update + it for it in range(accumulate)]
        before = [it.copy() for it in leaves(params)]
        found = [step(*batch(seeds[0]))]
        for one, other in zip(leaves(params), before, strict=True):
            np.testing.assert_array_equal(one, other)
        found += [step(*batch(seed)) for seed in seeds[1:]]
        np.testing.assert_allclose(found, by_hand(expected, second, seeds, 0.5), rtol=1e-5)
        check_alike((params, optimizer), (expected, second))


def test_a_checkpoint_goes_from_a_step_to_the_loop_and_back() -> None:
    params, expected = drawn_parameters(), drawn_parameters()
    optimizer, second = (optim.Adam(leaves(it), 0.01) for it in (params, expected))
    step = training_step(loss_of, params, optimizer)
    step(*batch(0))
    by_hand(expected, second, [0])
    state = optimizer.state_dict()
    assert state["steps"] == (1, 1, 1)
    again = optim.Adam(leaves(params), 0.5)
    again.load_state_dict(state)
    training_step(loss_of, params, again)(*batch(1))
    by_hand(expected, second, [1])
    check_alike((params, again), (expected, second))


def test_parameters_that_are_frozen_shared_or_not_read_go_as_by_hand() -> None:
    w, frozen, unused = (np.full((3, 3), it, np.float32) for it in (0.5, 2.0, 3.0))
    optimizer = optim.AdamW([w, unused], 0.1)

    def loss(params: Tree, x: Any) -> Any:
        return np.mean((x @ params["one"] @ params["frozen"] @ params["same"]) ** 2)

    tree = {"one": w, "same": w, "frozen": frozen, "unused": unused, "none": None}
    x = np.eye(3, dtype=np.float32)
    gradient = dlprim.grad(lambda it, other: loss({"one": it, "same": it, "frozen": other}, x))
    expected, decayed = w.copy(), unused.copy()
    second = optim.AdamW([expected, decayed], 0.1)
    second.step([gradient(w, frozen), np.zeros_like(decayed)])
    training_step(loss, tree, optimizer)(x)
    np.testing.assert_allclose(w, expected, rtol=1e-6)
    assert (frozen == 2).all()
    assert (unused < 3).all()
    np.testing.assert_allclose(unused, decayed, rtol=1e-6)
    assert optimizer.steps == second.steps == (1, 1)


def test_parameters_of_nn_tell_that_they_changed() -> None:
    w = Parameter(np.ones((6, 4), np.float32), "w")
    optimizer = optim.SGD([w], 0.1)
    before = w.version
    step = training_step(lambda p, x: np.mean((x @ p["w"]) ** 2), {"w": w}, optimizer)
    step(batch(0)[0])
    assert w.version != before
    assert (w.value != 1).any()


def test_a_function_with_states_and_results_beside_the_loss() -> None:
    w, mean, count = np.ones((6, 2), np.float32), np.zeros(6, np.float32), np.zeros((), np.int64)

    def loss(params: Any, states: Any, x: Any) -> Any:
        y = (x - states["mean"]) @ params
        behind = {"mean": 0.9 * states["mean"] + 0.1 * np.mean(x, 0), "count": states["count"] + 1}
        return (np.mean(y**2), {"y": y}), behind

    states = {"mean": mean, "count": count}
    step = training_step(loss, w, optim.SGD([w], 0.0), states=states, has_aux=True)
    expected = np.zeros(6)
    for seed in range(3):
        x = batch(seed)[0]
        value, aux = step(x)
        np.testing.assert_allclose(aux["y"], (x - expected) @ w, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value, np.mean(aux["y"] ** 2), rtol=1e-5)
        expected = 0.9 * expected + 0.1 * x.mean(0)
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
    assert count == 3


def test_a_step_that_raises_leaves_everything_as_it_was() -> None:
    params = drawn_parameters()
    optimizer = optim.Adam(leaves(params), 0.01)
    step = training_step(loss_of, params, optimizer, accumulate=2)
    step(*batch(0))
    x, labels = batch(1)
    wrong = labels.copy()
    wrong[3] = 4
    before = [it.copy() for it in leaves(params)], optimizer.state_dict()
    for given in ((x, wrong), (x[:, :5], labels), ("x", labels)):
        with pytest.raises((IndexError, TypeError, ValueError)):
            step(*given)
    for one, other in zip(leaves(params), before[0], strict=True):
        np.testing.assert_array_equal(one, other)
    assert str(optimizer.state_dict()) == str(before[1])
    expected = drawn_parameters()
    second = optim.Adam(leaves(expected), 0.01)
    step(x, labels)
    by_hand(expected, second, [0, 1])
    check_alike((params, optimizer), (expected, second))


def trained(threads: int) -> list[Array]:
    with dlprim.threads(threads):
        generator = np.random.default_rng(0)
        params = [generator.standard_normal((300, 300), np.float32) / 17 for _ in range(3)]

        def loss(weights: list[Any], x: Any) -> Any:
            for w in weights:
                x = np.tanh(x @ w)
            return np.mean(x**2)

        step = training_step(loss, params, optim.AdamW(params, 0.01), clip_norm=0.01)
        x = generator.standard_normal((40, 300), np.float32)
        return [*(step(x) for _ in range(3)), *params]


def test_results_are_the_same_bits_for_any_number_of_threads() -> None:
    one, two, four = (trained(it) for it in (1, 2, 4))
    for first, second, fourth in zip(one, two, four, strict=True):
        np.testing.assert_array_equal(second, first)
        np.testing.assert_array_equal(fourth, first)


def test_eight_threads_on_one_step_take_turns() -> None:
    params = drawn_parameters()
    optimizer = optim.SGD(leaves(params), 0.1)
    step = training_step(loss_of, params, optimizer)
    given = batch(0)
    threads = [threading.Thread(target=lambda: [step(*given) for _ in range(5)]) for _ in range(8)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    expected = drawn_parameters()
    second = optim.SGD(leaves(expected), 0.1)
    for _ in range(40):
        by_hand(expected, second, [0])
    for one, other in zip(leaves(params), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_a_forked_child_trains_its_own_copy() -> None:
    params = drawn_parameters()
    step = training_step(loss_of, params, optim.SGD(leaves(params), 0.1))
    step(*batch(0))
    before = [it.copy() for it in leaves(params)]
    child = os.fork()
    if child == 0:
        loss = float(step(*batch(1)))
        os._exit(0 if np.isfinite(loss) and (leaves(params)[0] != before[0]).any() else 1)
    assert os.waitpid(child, 0)[1] == 0
    for one, other in zip(leaves(params), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_shapes_of_batches_are_one_network() -> None:
    params, expected = drawn_parameters(), drawn_parameters()
    optimizer, second = (optim.SGD(leaves(it), 0.1) for it in (params, expected))
    step = training_step(loss_of, params, optimizer)
    for count in (9, 5, 7, 9, 12, 30, 5, 1):
        x, labels = batch(count, count)
        loss, grads = VALUE_AND_GRAD(expected, x, labels)
        second.step(leaves(grads))
        np.testing.assert_allclose(step(x, labels), loss, rtol=1e-5)
    check_alike((params, optimizer), (expected, second))


def test_a_step_in_bfloat16_keeps_masters_and_rounded_copies() -> None:
    params = drawn_parameters()
    import ml_dtypes

    copies = [np.zeros(it.shape, ml_dtypes.bfloat16) for it in leaves(params)]
    optimizer = optim.SGD(leaves(params), 0.1, copies=copies)
    expected = drawn_parameters()
    second = optim.SGD(leaves(expected), 0.1)
    step = training_step(loss_of, params, optimizer, dtype="bfloat16")
    found, right = step(*batch(0)), by_hand(expected, second, [0])[0]
    np.testing.assert_allclose(found, right, rtol=2e-2)
    for master, copy, other in zip(leaves(params), copies, leaves(expected), strict=True):
        np.testing.assert_array_equal(copy, master.astype(ml_dtypes.bfloat16))
        np.testing.assert_allclose(master, other, rtol=5e-2, atol=5e-3)


def test_against_pytorch() -> None:
    torch = pytest.importorskip("torch")
    params = drawn_parameters()
    theirs = [torch.tensor(it.copy(), requires_grad=True) for it in leaves(params)]
    other = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.1)
    optimizer = optim.AdamW(leaves(params), 0.01, weight_decay=0.1)
    step: TrainingStep = training_step(loss_of, params, optimizer, clip_norm=0.3)
    for seed in range(4):
        x, labels = batch(seed)
        other.zero_grad()
        w, b, last = theirs
        scores = torch.relu(torch.tensor(x) @ w + b) @ last
        loss = torch.nn.functional.cross_entropy(scores, torch.tensor(labels))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs, 0.3)
        other.step()
        np.testing.assert_allclose(step(x, labels), loss.item(), rtol=1e-5)
        assert step.norm == pytest.approx(norm.item(), rel=1e-5)
        for one, it in zip(leaves(params), theirs, strict=True):
            np.testing.assert_allclose(one, it.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_arguments_are_checked() -> None:
    params = drawn_parameters()
    optimizer = optim.SGD(leaves(params), 0.1)
    with pytest.raises(ValueError, match="accumulate"):
        training_step(loss_of, params, optimizer, accumulate=0)
    with pytest.raises(ValueError, match="clip_norm"):
        training_step(loss_of, params, optimizer, clip_norm=-1.0)
    vector = training_step(lambda p, x: x @ p["last"], params, optimizer)
    with pytest.raises(TypeError, match="expected a scalar"):
        vector(np.ones((2, 7), np.float32))
    with pytest.raises(TypeError, match="x is of type object"):
        training_step(loss_of, params, optimizer)(object(), batch(0)[1])
