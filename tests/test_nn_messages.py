"""What layers, optimisers and files say, to who comes from PyTorch, of what they do not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim import schedule_store as store
from dlprim.optim import SGD, AdamW

pytestmark = pytest.mark.any_level


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# ---------------------------------------------------------------- optimisers


def test_optimisers_take_the_names_of_pytorch() -> None:
    weights = [nn.Parameter(np.ones(2))]
    assert SGD(weights, lr=0.1).learning_rate == AdamW(weights, lr=0.1).learning_rate == 0.1
    assert AdamW(weights, eps=1e-6).eps == 1e-6
    assert SGD(weights).lr == 1e-3
    assert AdamW(weights).eps == 1e-8
    with pytest.raises(ValueError, match=r"^lr is -1"):
        SGD(weights, lr=-1)
    with pytest.raises(ValueError, match=r"^eps is 0"):
        AdamW(weights, eps=0)


# ---------------------------------------------------------------- calls


def test_indices_outside_of_a_table_are_named() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    for wrong, value in ((12, 12), (-1, -1), (-11, -11)):
        for training in (False, True):
            with pytest.raises(
                IndexError, match=rf"x of Embedding '0' holds {value}, expected values in \[0, 10\)"
            ):
                model.forward(np.array([[3, wrong]]), training=training)
    with pytest.raises(IndexError, match=r"x of Embedding holds 5, expected values in \[0, 5\)"):
        nn.Embedding(5, 2)(np.array(5, np.int32))


# ---------------------------------------------------------------- passes


def test_backward_in_inference_mode_says_so() -> None:
    model = nn.Sequential(nn.Linear(2, 2)).eval()
    y = model(values(3, 2))
    with pytest.raises(RuntimeError, match=r"no training forward.*inference mode, which train\(\)"):
        model.backward(np.ones_like(y))
    with pytest.raises(RuntimeError, match=r"in front of each backward$"):
        model.train().backward(np.ones_like(y))


@pytest.mark.parametrize("name", ["Pack", "Images"])
def test_what_is_gone_says_what_stands_in_its_place(name: str) -> None:
    with pytest.raises(
        AttributeError, match=rf"^dlprim\.nn\.{name} is no more since 0\.3, expected"
    ):
        getattr(nn, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = nn.Nothing  # type: ignore[attr-defined]


def test_training_goes_by_name() -> None:
    model = nn.Sequential({"fc": nn.Linear(2, 2)})
    for call, expected in (
        (
            lambda: model.forward(values(3, 2), True),
            r"expected it by name, as in model\.forward\(x, ",
        ),
        (lambda: model(values(3, 2), training=True), r"or model\.eval\(\) in front of model\(x\)$"),
        (lambda: model.forward(values(3, 2), training=1), "^training is 1, expected True or False"),
    ):
        with pytest.raises(TypeError, match=expected):
            call()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("x", [None, "images", 3, {"images": values(2, 3)}])
def test_arguments_that_are_no_arrays_are_named(x: Any, training: bool) -> None:
    named = rf"^x of (Linear|Flatten) 'a' is of type {type(x).__name__}, expected an array$"
    for layer in (nn.Linear(3, 2), nn.Flatten()):
        with pytest.raises(TypeError, match=named):
            nn.Sequential({"a": layer}).forward(x, training=training)
    with pytest.raises(TypeError, match=r"x is None, expected an array of float32 or bfloat16$"):
        nn.Dropout()(None)


def test_a_dict_without_what_is_read_is_no_array_that_is_missing() -> None:
    class Own(nn.Module):
        def forward(self, given: Any) -> Any:
            return given.images

    with pytest.raises(AttributeError, match="has no attribute 'images'"):
        Own()({"other": values(2, 3)})


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_recurrent_layers_take_views_and_name_their_shapes(make: Any) -> None:
    model = nn.Sequential({"rnn": make(3, 4, bidirectional=True)})
    x, dy = values(2, 5, 3), values(2, 5, 8)
    turned, expected = x.transpose(1, 0, 2), x.transpose(1, 0, 2).copy()
    np.testing.assert_array_equal(model.forward(turned), model.forward(expected))
    given = model.backward(dy.transpose(1, 0, 2))
    model.forward(expected)
    np.testing.assert_array_equal(given, model.backward(dy.transpose(1, 0, 2).copy()))
    for wrong in (values(5, 3), values(5, 2, 4)):
        with pytest.raises(ValueError, match=r"^x of \w+ 'rnn' has shape .*expected \(T, N, 3\)"):
            model.forward(wrong)


@pytest.mark.parametrize("training", [False, True])
def test_convolutions_name_themselves_and_channels_last(training: bool) -> None:
    model = nn.Sequential({"stem": nn.Conv2d(3, 4, 3)})
    expected = r"^x of Conv2d 'stem' has shape \(2, 8, 8, 3\), expected \(N, 3, H, W\); .*transpose"
    with pytest.raises(ValueError, match=expected):
        model.forward(values(2, 8, 8, 3), training=training)
    with pytest.raises(ValueError, match=r"expected \(N, 3, H, W\)$"):
        model.forward(values(2, 4, 8, 8), training=training)


def test_help_of_recurrent_layers_and_fixed_attributes() -> None:
    for kind in (nn.LSTM, nn.GRU):
        for word in ("(T, N, C)", "states", "carry", "num_layers"):
            assert word in (kind.__doc__ or "")
        assert "carry" in (nn.Recurrent.__doc__ or "")
    assert nn.Recurrent.layers.__doc__ == "As the layer was made with: layers."


# ---------------------------------------------------------------- arrays and files


TAKERS_OF_INTEGERS = (
    lambda it: dlprim.softmax_cross_entropy(values(2, 3), it).dx,
    lambda it: dlprim.embedding(it, values(4, 3)),
    lambda it: dlprim.embedding_backward(values(2, 3), it, 4),
    lambda it: nn.Embedding(4, 3, generator=np.random.default_rng(0))(it),
)


@pytest.mark.parametrize("call", TAKERS_OF_INTEGERS)
def test_labels_and_indices_are_integers_of_any_kind(call: Any) -> None:
    right = call(np.array([2, 1]))
    for kind in (np.int32, np.uint8, np.int16, np.uint32):
        np.testing.assert_array_equal(call(np.array([2, 1], kind)), right)
    with pytest.raises(TypeError, match=r"dtype float32, expected .*\.astype\(np\.int64\)$"):
        call(np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="dtype bool, expected"):
        call(np.zeros(2, bool))


def test_bfloat16_of_torch_is_told_what_to_do() -> None:
    class Tensor:
        shape = (2,)

        class Kind:
            def __str__(self) -> str:
                return "torch.bfloat16"

        dtype = Kind()

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("Unsupported dtype in DLTensor.")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(TypeError, match=r"^x has dtype torch\.bfloat16.*\.float\(\).*torch\.int16"):
        dlprim.add(Tensor(), values(2))  # type: ignore[arg-type]


def test_a_checkpoint_is_told_who_reads_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "it.npz", x=values(2))
    with pytest.raises(nn.ModelFileError, match=r"dlprim\.train\.load reads checkpoints"):
        nn.load(tmp_path / "it.npz")


def test_a_stale_file_of_schedules_says_what_to_do(stored_schedules: Path) -> None:
    path = store.file_in(stored_schedules)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    with pytest.warns(RuntimeWarning, match=r"are ignored: .*; delete the file, or .*dlprim\.tune"):
        dlprim.Linear((2, 3), 4)
