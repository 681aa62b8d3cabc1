"""What the training program does between its flags and its result: the loop, batches, data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlprim import nn
from dlprim.optim import SGD
from dlprim.train import data, tasks, text
from dlprim.train.config import TrainConfig, configured
from dlprim.train.loop import DivergenceError, Exchange, Trainer
from dlprim.train.models import build, mlp

pytestmark = pytest.mark.any_level


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def blobs(samples: int = 50) -> data.Dataset:
    """Two well separated classes, so that tests of the loop need no scikit-learn."""
    labels = np.arange(samples) % 2
    src = generator().standard_normal((samples, 3), dtype=np.float32)
    src[:, 0] += 6 * labels - 3
    return data.Dataset("blobs", 2, src, labels, src, labels)


def trainer(config: TrainConfig, dataset: data.Dataset, exchange: Any = None) -> Trainer:
    task = tasks.ImageTask(dataset, config)
    return Trainer(build(config, task.shape, task.classes, generator()), task, config, exchange)


# ---------------------------------------------------------------- the loop


def test_output_that_diverges_in_the_last_step_is_noticed() -> None:
    dataset = blobs()
    config = TrainConfig(epochs=1, batch_size=dataset.train_labels.size, lr=1e38, hidden=(4,))
    run = trainer(config, dataset)
    run.model.parameters()[1].value[...] = 1e8
    with pytest.raises(DivergenceError, match=r"test set is not finite .* epoch 1, after its last"):
        list(run.run())


def test_diverging_layer_is_named() -> None:
    run = trainer(TrainConfig(epochs=1, hidden=(4, 4)), blobs())
    run.model.parameters()[2].value[0, 0] = math.nan
    with pytest.raises(DivergenceError, match=r"layer '1'\) in epoch 1, step 1 of 2"):
        run.run_step()


def test_exchange_sees_every_gradient_once_and_finishes_before_the_update() -> None:
    seen: list[str] = []

    class Recorder(Exchange):
        def ready(self, parameter: nn.Parameter) -> None:
            seen.append(parameter.name)

        def finish(self) -> tuple[float, int]:
            seen.append("finish")
            for parameter in run.model.parameters():
                parameter.gradient[...] = 0
            return super().finish()

    run = trainer(TrainConfig(epochs=1, hidden=(4,)), blobs(), Recorder())
    before = [it.value.copy() for it in run.model.parameters()]
    run.run_step()
    assert [set(seen[:2]), set(seen[2:4])] == [{f"{it}.weight", f"{it}.bias"} for it in "10"]
    assert seen[4:] == ["finish"]
    for parameter, value in zip(run.model.parameters(), before, strict=True):
        np.testing.assert_array_equal(parameter.value, value)


def test_every_sample_is_used_once_per_epoch() -> None:
    dataset = blobs(samples=50)
    task = tasks.ImageTask(dataset, TrainConfig(batch_size=16, noise=0))
    for epoch in range(2):
        batches = [task.batch(4 * epoch + step) for step in range(4)]
        assert [labels.size for _, labels in batches] == [16, 16, 16, 2]
        seen = np.concatenate([src for src, _ in batches])
        np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(dataset.train_src, axis=0))


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    config = TrainConfig(batch_size=16)
    one, other = tasks.ImageTask(blobs(), config), tasks.ImageTask(blobs(), config)
    for step in range(9):
        one.batch(step)
    for found, expected in zip(one.batch(3), other.batch(3), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_noise_leaves_the_data_set_alone() -> None:
    dataset = blobs(samples=2000)
    before = dataset.train_src.copy()
    src, _ = tasks.ImageTask(dataset, TrainConfig(batch_size=2000, noise=0.4)).batch(0)
    np.testing.assert_array_equal(dataset.train_src, before)
    # Columns 1 and 2 are unit normals; independent variances add.
    assert src[:, 1:].std() == pytest.approx(math.sqrt(1 + 0.4**2), rel=0.05)


def test_split_is_stratified_disjoint_and_complete() -> None:
    labels = np.repeat(np.arange(3), (10, 20, 35))
    train, test = data.stratified_split(labels, 0.2, generator())
    assert sorted([*train, *test]) == list(range(65))
    assert np.bincount(labels[test]).tolist() == [2, 4, 7]


# ---------------------------------------------------------------- the data


def test_windows_of_text_follow_each_other() -> None:
    columns = tasks.streams(np.arange(50), 2)
    src, targets = tasks.window(columns, 0, 4)
    np.testing.assert_array_equal(src, [[0, 25], [1, 26], [2, 27], [3, 28]])
    np.testing.assert_array_equal(targets.reshape(4, 2), src + 1)
    np.testing.assert_array_equal(tasks.window(columns, 1, 4)[0], src + 4)
    np.testing.assert_array_equal(tasks.window(columns, 6, 4)[0], src)


def test_text_comes_back_and_unknown_characters_are_one() -> None:
    assert text.decoded(text.encoded("def f(x):\n\treturn é")) == "def f(x):\n return \ufffd"
    corpus = text.corpus_of("text", generator())
    assert corpus.train.size > 10 * corpus.test.size > 0


def test_text_of_a_folder_and_of_a_file(tmp_path: Path) -> None:
    for number in range(41):
        (tmp_path / f"{number % 2}").mkdir(exist_ok=True)
        (tmp_path / f"{number % 2}" / f"{number}.txt").write_bytes(b"%d\r\n" % number)
    (tmp_path / "image.png").write_bytes(b"\0\1")
    folder = text.corpus_of(str(tmp_path), generator())
    lines = [sorted(text.decoded(it).split(), key=int) for it in (folder.train, folder.test)]
    assert (len(lines[0]), len(lines[1])) == (38, 3)
    assert sorted(lines[0] + lines[1], key=int) == [str(it) for it in range(41)]
    (tmp_path / "book.txt").write_text("ab" * 50)
    book = text.corpus_of(str(tmp_path / "book.txt"), generator())
    assert (book.train.size, text.decoded(book.test)) == (95, "babab")
    for lacking in ("nowhere", "image.png"):
        with pytest.raises(data.MissingDataError, match=rf"{lacking} holds 0 files of text, exp"):
            text.corpus_of(str(tmp_path / lacking), generator())


def test_enlarged_digits_keep_their_mean() -> None:
    src = generator().standard_normal((2, 1, 8, 8), np.float32)
    large = data.images_of(src, 1, 32, "them")
    assert large.shape == (2, 1, 32, 32)
    assert large.mean() == pytest.approx(src.mean(), abs=1e-6)


def test_shifted_images_stand_before_a_background() -> None:
    src = np.arange(18, dtype=np.float32).reshape(2, 1, 3, 3)
    moved = data.shifted(src, np.array([[1, 0], [0, -2]]), -1)
    np.testing.assert_array_equal(moved[0, 0], [[-1, -1, -1], [0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(moved[1, 0], [[11, -1, -1], [14, -1, -1], [17, -1, -1]])


def test_npz_is_read_and_a_wrong_one_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    images = np.arange(40 * 48, dtype=np.int64).reshape(40, 3, 4, 4) % 256
    labels = np.arange(40) % 2
    np.savez(path, images=images.astype(np.uint8), labels=labels)
    loaded = data.load_npz(path, generator())
    assert (loaded.train_src.shape, loaded.test_src.shape) == ((32, 3, 4, 4), (8, 3, 4, 4))
    assert (loaded.train_src.min(), loaded.train_src.max(), loaded.classes) == (-1, 1, 2)
    wrong: list[tuple[dict[str, NDArray[Any]], str]] = [
        ({"x": images}, "images.npz holds .'x'.*expected .'images', 'labels'."),
        ({"images": images, "labels": labels[:-1]}, "images is int64 .*N = 39"),
        ({"images": images, "labels": labels / 2}, "labels is float64"),
        ({"images": images, "labels": labels - 1}, "labels holds -1"),
    ]
    for arrays, expected in wrong:
        np.savez(path, **arrays)  # type: ignore[arg-type]
        with pytest.raises(data.MissingDataError, match=expected):
            data.load_npz(path, generator())
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(data.MissingDataError, match=r"cannot be read as an \.npz file"):
        data.load_npz(path, generator())


def test_model_and_data_must_go_together() -> None:
    assert configured({"model": "gru"}).data == "text"
    for wrong in ({"model": "lstm", "data": "digits"}, {"data": "text"}, {"data": "nothing"}):
        with pytest.raises(ValueError, match="data is"):
            configured(wrong)


# ---------------------------------------------------------------- the arithmetic


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_follows_its_formula(momentum: float, weight_decay: float) -> None:
    random = generator(2)
    parameters = [random.standard_normal(shape, dtype=np.float32) for shape in [(3, 4), (5,), ()]]
    parameters = [np.asarray(parameter) for parameter in parameters]
    expected = [parameter.astype(np.float64) for parameter in parameters]
    velocities = [np.zeros_like(parameter) for parameter in expected]
    optimiser = SGD(parameters, 0.5, momentum, weight_decay=weight_decay)
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
    for bad in (dict(lr=-1.0), dict(lr=math.nan), dict(momentum=1.0)):
        with pytest.raises(ValueError, match=next(iter(bad))):
            SGD([parameter], **({"lr": 0.1} | bad))
    with pytest.raises(ValueError, match="weight_decay"):
        SGD([parameter], 0.1, weight_decay=-1.0)
    with pytest.raises(TypeError, match=r"parameters\[0\] has dtype float64"):
        SGD([np.ones(2)], 0.1)  # type: ignore[list-item]
    optimiser = SGD([parameter], 0.1)
    for gradients in ([], [np.ones(3, np.float32)], [parameter.copy(), parameter.copy()]):
        with pytest.raises(ValueError, match="gradients have the shapes"):
            optimiser.step(gradients)
    np.testing.assert_array_equal(parameter, 1)


def test_mlp_needs_an_input_and_an_output() -> None:
    for widths in ((), (3,), (3, 0, 2)):
        with pytest.raises(ValueError, match="widths"):
            mlp(widths, generator())
