"""The training program: that it learns, repeats itself bit for bit, and refuses what it must.

The arithmetic is checked against float64 NumPy written from the equations; what a run reports is
checked through its result file, because that is what other programs read.
"""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
import dlprim.optim
import dlprim.train
from dlprim.optim import SGD
from dlprim.train import data, main
from dlprim.train.loop import DivergenceError, TrainConfig, Trainer
from dlprim.train.loss import softmax_cross_entropy
from dlprim.train.mlp import MLP
from dlprim.train.records import check_writable, write_lines

SMALL = ("--epochs", "3", "--hidden", "32")


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    before = dlprim.get_num_threads()
    yield
    dlprim.set_num_threads(before)


@pytest.fixture
def digits() -> None:
    pytest.importorskip("sklearn", reason="the digits data set is part of scikit-learn")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def results(path: Path, *flags: str) -> list[dict[str, Any]]:
    """Runs the program in this process and returns the records of its result file."""
    assert main([*flags, "--json", str(path)]) == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


def curve(records: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """What a run must repeat bit for bit; JSON keeps every bit of a float."""
    return [(record["train_loss"], record["test_accuracy"]) for record in records]


def blobs(samples: int = 50) -> data.Dataset:
    """Two well separated classes, so that tests of the loop need no scikit-learn."""
    labels = np.arange(samples) % 2
    src = generator().standard_normal((samples, 3), dtype=np.float32)
    src[:, 0] += 6 * labels - 3
    return data.Dataset("blobs", 2, src, labels, src, labels)


# ---------------------------------------------------------------- the program


@pytest.mark.usefixtures("digits")
def test_default_run_learns_the_digits(tmp_path: Path) -> None:
    records = results(tmp_path / "run.jsonl")
    assert records[-1]["test_accuracy"] > 0.97
    assert records[-1]["train_loss"] < records[0]["train_loss"] / 10


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_same_seed_repeats_every_bit(tmp_path: Path, threads: str) -> None:
    flags = (*SMALL, "--hidden", "32", "16", "--batch-size", "50", "--seed", "7")
    expected = curve(results(tmp_path / "one.jsonl", *flags, "--threads", "1"))
    again = results(tmp_path / "again.jsonl", *flags, "--threads", threads)
    assert again[-1]["environment"]["threads"] == int(threads)
    assert curve(again) == expected


@pytest.mark.usefixtures("digits")
def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    losses = {
        results(tmp_path / "run.jsonl", *SMALL, "--seed", seed)[-1]["train_loss"]
        for seed in ("0", "1", "2")
    }
    assert len(losses) == 3


@pytest.mark.usefixtures("digits")
def test_result_file_has_a_line_per_epoch_and_a_final_one(tmp_path: Path) -> None:
    *epochs, final = results(tmp_path / "run.jsonl", *SMALL, "--lr", "0.05", "--threads", "1")
    assert [record["record"] for record in epochs] == ["epoch"] * 3
    assert [record["epoch"] for record in epochs] == [1, 2, 3]
    assert final["record"] == "final"
    assert final["schema_version"] == 1
    assert final["test_accuracy"] == epochs[-1]["test_accuracy"]
    assert final["samples"] == sum(record["samples"] for record in epochs)
    for record in (*epochs, final):
        assert math.isfinite(record["train_loss"])
        assert 0 <= record["test_accuracy"] <= 1
        assert record["samples_per_s"] > 0
    assert final["config"]["hidden"] == [32]
    assert final["config"]["lr"] == 0.05
    assert final["environment"] == {
        "dlprim": dlprim.__version__,
        "isa": dlprim.isa(),
        "threads": 1,
        "numpy": np.__version__,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.usefixtures("digits")
def test_module_runs_and_prints_a_line_per_epoch() -> None:
    command = [sys.executable, "-m", "dlprim.train", "--epochs", "2", "--hidden", "8"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert [line.startswith("epoch ") for line in lines] == [False, True, True, False]
    assert lines[1].startswith("epoch 1/2 ")
    assert all(word in lines[1] for word in ("train loss", "test accuracy", "samples/s"))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--epochs", "0", "an integer >= 1"),
        ("--epochs", "1.5", "an integer >= 1"),
        ("--batch-size", "0", "an integer >= 1"),
        ("--hidden", "0", "an integer from 1"),
        ("--hidden", "10000000000000", "an integer from 1"),
        ("--lr", "-1", "a finite number > 0"),
        ("--lr", "0", "a finite number > 0"),
        ("--lr", "nan", "a finite number > 0"),
        ("--lr", "inf", "a finite number > 0"),
        ("--momentum", "1", "a number >= 0 and < 1"),
        ("--noise", "nan", "a finite number >= 0"),
        ("--seed", "-1", "an integer >= 0"),
        ("--threads", "0", "an integer >= 1"),
        ("--threads", "two", "an integer >= 1"),
    ],
)
def test_wrong_flag_is_refused(
    flag: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([flag, value])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"argument {flag}: expected {expected}" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("place", ["missing/run.jsonl", "", "file/run.jsonl", "n" * 300])
def test_unwritable_result_file_is_refused_before_training(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stop:
        main(["--json", str(tmp_path / place)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"argument --json: {tmp_path / place} cannot be written" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.usefixtures("digits")
def test_diverging_run_stops_and_leaves_the_earlier_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("earlier")
    assert main([*SMALL, "--lr", "1e30", "--json", str(path)]) == 1
    error = capsys.readouterr().err
    assert "The training loss is " in error
    assert "in epoch 1, step 2 of 45: a learning rate below 1e+30 may help." in error
    assert path.read_text() == "earlier"


@pytest.mark.usefixtures("digits")
def test_interrupt_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SGD, "step", interrupt)
    assert main([*SMALL]) == 130
    assert capsys.readouterr().err == "python -m dlprim.train: interrupted.\n"


def test_missing_scikit_learn_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main([]) == 1
    error = capsys.readouterr().err
    assert 'pip install "dlprim[train]"' in error
    assert error.count("\n") == 1


# ---------------------------------------------------------------- the loop


def test_output_that_diverges_in_the_last_step_is_noticed() -> None:
    dataset = blobs()
    config = TrainConfig(epochs=1, batch_size=dataset.train_labels.size, lr=1e38)
    model = MLP((3, 4, 2), generator())
    model.biases[0][...] = 1e8
    with pytest.raises(DivergenceError, match="test set is not finite in epoch 1, after its last"):
        list(Trainer(model, dataset, config, generator()).run())


def test_every_sample_is_used_once_per_epoch() -> None:
    dataset = blobs(samples=50)
    batches = list(data.minibatches(dataset, batch_size=16, noise=0, generator=generator()))
    assert [labels.size for _, labels in batches] == [16, 16, 16, 2]
    seen = np.concatenate([src for src, _ in batches])
    np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(dataset.train_src, axis=0))


def test_noise_leaves_the_data_set_alone() -> None:
    dataset = blobs(samples=2000)
    before = dataset.train_src.copy()
    ((src, _),) = data.minibatches(dataset, batch_size=2000, noise=0.4, generator=generator())
    np.testing.assert_array_equal(dataset.train_src, before)
    # Columns 1 and 2 are unit normals; independent variances add.
    assert src[:, 1:].std() == pytest.approx(math.sqrt(1 + 0.4**2), rel=0.05)


def test_split_is_stratified_disjoint_and_complete() -> None:
    labels = np.repeat(np.arange(3), (10, 20, 35))
    train, test = data.stratified_split(labels, 0.2, generator())
    assert sorted([*train, *test]) == list(range(65))
    assert np.bincount(labels[test]).tolist() == [2, 4, 7]


# ---------------------------------------------------------------- the arithmetic


def reference_loss(
    parameters: list[NDArray[np.float64]], src: NDArray[np.float64], labels: NDArray[np.int64]
) -> float:
    """The mean cross-entropy of an MLP in float64: all weights first, then all biases."""
    layers = len(parameters) // 2
    for layer, (weights, bias) in enumerate(
        zip(parameters[:layers], parameters[layers:], strict=True)
    ):
        src = src @ weights.T + bias
        if layer < layers - 1:
            src = np.maximum(src, 0)
    log_softmax = src - np.log(np.exp(src).sum(axis=1, keepdims=True))
    return float(-log_softmax[np.arange(labels.size), labels].mean())


@pytest.mark.parametrize("widths", [(5, 3), (5, 17, 3), (1, 4, 6, 2)])
def test_gradients_match_float64_central_differences(widths: tuple[int, ...]) -> None:
    random = generator(1)
    model = MLP(widths, random)
    for bias in model.biases:
        bias += random.standard_normal(bias.shape, dtype=np.float32)
    src = random.standard_normal((7, widths[0]), dtype=np.float32)
    labels = random.integers(0, widths[-1], 7)
    loss, diff_dst = softmax_cross_entropy(model.forward(src), labels)
    model.backward(diff_dst)

    exact = [parameter.astype(np.float64) for parameter in model.parameters]
    exact_src = src.astype(np.float64)
    assert loss / 7 == pytest.approx(reference_loss(exact, exact_src, labels), rel=1e-5)
    step = 1e-6
    for parameter, gradient in zip(exact, model.gradients, strict=True):
        expected = np.empty_like(parameter)
        for index in np.ndindex(parameter.shape):
            centre = parameter[index]
            parameter[index] = centre + step
            above = reference_loss(exact, exact_src, labels)
            parameter[index] = centre - step
            below = reference_loss(exact, exact_src, labels)
            parameter[index] = centre
            expected[index] = (above - below) / (2 * step)
        # Gradients of a mean are of order one; float32 rounds some 1e-7 in each of a few terms.
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=2e-6)


def test_loss_is_finite_for_large_outputs_and_not_for_infinite_ones() -> None:
    labels = np.array([0, 1])
    loss, diff_dst = softmax_cross_entropy(np.array([[1e30, 0], [1e30, 0]], np.float32), labels)
    assert loss == pytest.approx(1e30)
    np.testing.assert_array_equal(diff_dst, np.array([[0, 0], [0.5, -0.5]], np.float32))
    for bad in (math.nan, math.inf):
        with np.errstate(invalid="ignore"):
            loss, _ = softmax_cross_entropy(np.array([[bad, 0], [0, 0]], np.float32), labels)
        assert not math.isfinite(loss)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_follows_its_formula(momentum: float, weight_decay: float) -> None:
    random = generator(2)
    parameters = [random.standard_normal(shape, dtype=np.float32) for shape in [(3, 4), (5,), ()]]
    parameters = [np.asarray(parameter) for parameter in parameters]
    expected = [parameter.astype(np.float64) for parameter in parameters]
    velocities = [np.zeros_like(parameter) for parameter in expected]
    optimiser = SGD(parameters, 0.5, momentum, weight_decay)
    for learning_rate in (0.5, 0.25, 0.125):
        gradients = [
            np.asarray(random.standard_normal(parameter.shape, dtype=np.float32))
            for parameter in parameters
        ]
        optimiser.learning_rate = learning_rate
        optimiser.step(gradients)
        for index, gradient in enumerate(gradients):
            velocities[index] = (
                momentum * velocities[index] + gradient + weight_decay * expected[index]
            )
            expected[index] = expected[index] - learning_rate * velocities[index]
    for parameter, value in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(parameter, value, rtol=1e-5, atol=1e-6)


def test_sgd_refuses_what_it_cannot_follow() -> None:
    parameter = np.ones((2, 3), np.float32)
    for bad in (dict(learning_rate=-1.0), dict(learning_rate=math.nan), dict(momentum=1.0)):
        with pytest.raises(ValueError, match=next(iter(bad))):
            SGD([parameter], **({"learning_rate": 0.1} | bad))
    with pytest.raises(ValueError, match="weight_decay"):
        SGD([parameter], 0.1, weight_decay=-1.0)
    with pytest.raises(TypeError, match=r"parameters\[0\] is float64"):
        SGD([np.ones(2)], 0.1)  # type: ignore[list-item]
    optimiser = SGD([parameter], 0.1)
    for gradients in ([], [np.ones(3, np.float32)], [parameter.copy(), parameter.copy()]):
        with pytest.raises(ValueError, match="gradients have the shapes"):
            optimiser.step(gradients)
    np.testing.assert_array_equal(parameter, 1)


def test_mlp_needs_an_input_and_an_output() -> None:
    for widths in ((), (3,), (3, 0, 2)):
        with pytest.raises(ValueError, match="widths"):
            MLP(widths, generator())


def test_numpy_does_no_matrix_product() -> None:
    """The claim of the program is that dlprim does them all."""
    sources = [Path(dlprim.optim.__file__), *Path(dlprim.train.__file__).parent.glob("*.py")]
    assert len(sources) > 5
    products = {"matmul", "dot", "vdot", "vecdot", "inner", "outer", "einsum", "tensordot"}
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.MatMult), source
            assert not (isinstance(node, ast.Attribute) and node.attr in products), source


# ---------------------------------------------------------------- the result file


def test_link_is_followed_and_rights_are_the_usual_ones(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("earlier")
    link = tmp_path / "link"
    link.symlink_to(ordinary)
    check_writable(link)
    write_lines(link, [{"a": 1}, {"b": [2.5]}])
    assert link.is_symlink()
    assert ordinary.read_text() == '{"a": 1}\n{"b": [2.5]}\n'
    other = tmp_path / "other"
    other.touch()
    assert ordinary.stat().st_mode == other.stat().st_mode


def test_device_is_not_replaced() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        check_writable(Path("/dev/null"))


def test_failed_write_leaves_the_earlier_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("earlier")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_lines(path, [{"fine": 1.0}, {"bad": math.nan}])
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [
        ("run.jsonl", "earlier")
    ]
