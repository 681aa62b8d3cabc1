"""Models in files: what comes back, what is kept out, and files that are not as they were."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim import model_file, nn
from dlprim.arguments.floats import bfloat16_dtype
from dlprim.train.models import LanguageModel
from drawing import RNG

pytestmark = pytest.mark.any_level

IMAGES = RNG.standard_normal((2, 3, 32, 32), np.float32)


def convolutions() -> nn.Module:
    return nn.Sequential(
        {
            "conv": nn.Conv2d(3, 8, (3, 5), (2, 1), ((1, 0), (2, 2)), dilation=(1, 2)),
            "same": nn.Conv2d(8, 8, 3, 1, "same", groups=4, bias=False, activation="relu"),
            "norm": nn.BatchNorm2d(8, activation="relu", eps=1e-3, momentum=0.3),
            "relu": nn.ReLU(),
            "groups": nn.GroupNorm(2, 8, 1e-3),
            "slopes": nn.PReLU(8, 0.1),
            "each": nn.InstanceNorm2d(8, affine=True),
            "max": nn.MaxPool2d(2),
            "mean": nn.AvgPool2d((2, 3), stride=2, padding=1, count_include_pad=False),
            "up": nn.Upsample(None, (1.5, 2), "bilinear", align_corners=True),
            "border": nn.ReflectionPad2d((1, 0, 2, 1)),
            "rim": nn.ReplicationPad2d(1),
            "zeros": nn.ZeroPad2d([1, -1, 0, 0]),  # type: ignore[arg-type]
            "again": nn.CircularPad2d((0, 1, 1, 0)),
            "branches": nn.Concat({"one": nn.ReLU(), "two": nn.Conv2d(8, 8, 1)}),
            "narrow": nn.Conv2d(16, 8, 1),
            "bins": nn.AdaptiveAvgPool2d((None, 3)),
            "drop": nn.Dropout(0.2),
            "pool": nn.GlobalAvgPool2d(),
            "flat": nn.Flatten(),
            "fc": nn.Linear(8, 5, activation="gelu"),
        }
    )


def rows() -> nn.Module:
    layers: dict[str, nn.Module] = {
        "gelu": nn.GELU("tanh"),
        "leaky": nn.LeakyReLU(0.2),
        "elu": nn.ELU(1.5),
        "soft": nn.Softplus(2.0, 10.0),
        "norm": nn.LayerNorm((6, 32), eps=1e-4, bias=False),
        "plain": nn.LayerNorm(32, elementwise_affine=False),
        "rms": nn.RMSNorm(32),
        "max": nn.Softmax(1),
        "log": nn.LogSoftmax(),
        "groups": nn.GroupNorm(1, 2, affine=False),
        "each": nn.InstanceNorm2d(2),
        "slope": nn.PReLU(),
    }
    kinds = (nn.Sigmoid, nn.Tanh, nn.SiLU, nn.SELU, nn.Hardswish, nn.Hardsigmoid, nn.Mish)
    return nn.Sequential(layers | {kind.__name__: kind() for kind in kinds})


def text() -> nn.Module:
    layers = {"words": nn.Embedding(7, 6), "rnn": nn.Recurrent("gru", 6, 5, 2)}
    return nn.Sequential(layers | {"fc": nn.Linear(5, 7, bias=False)})


MODELS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "convolutions": (convolutions, IMAGES),
    "resnet": (lambda: nn.resnet((1, 1), 8, 5), IMAGES),
    "text": (text, np.arange(6).reshape(3, 2)),
    "layer": (lambda: nn.Linear(32, 4), IMAGES),
    "rows": (rows, IMAGES[0, :, :12].reshape(3, 2, 6, 32)),
}


def trained(name: str, context: nn.Context) -> tuple[nn.Module, Any]:
    make, x = MODELS[name]
    model = make()
    model.use(context)
    y = model(x)
    model.backward(np.ones_like(y))
    for it in model.parameters():
        it.value += RNG.standard_normal(it.shape, np.float32) * np.float32(0.1)
    return model, x


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back(name: str, dtype: str, tmp_path: Path) -> None:
    model, x = trained(name, nn.Context(dtype, algorithm="direct"))
    model.eval()
    nn.save(model, tmp_path / "model")
    nn.seed(3)
    other = nn.load(str(tmp_path / "model"))
    drawn = nn.Linear(2, 2).weight.value
    nn.seed(3)
    np.testing.assert_array_equal(nn.Linear(2, 2).weight.value, drawn)
    assert repr(other) == repr(model)
    for one, two in zip(model.modules(), other.modules(), strict=True):
        assert (type(one), one.name, one.training) == (type(two), two.name, two.training)
    context = other.context
    assert (context.dtype_name, context.algorithm) == (dtype, "direct")
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[key], value, key)
    np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))
    for it in (*model.modules(), *other.modules()):
        if isinstance(it, nn.Dropout):
            it.step = 0  # which is not kept
    for it in (model, other):
        it.backward(np.ones_like(it.forward(x, training=True)))
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(p.gradient, q.gradient)


def test_a_part_of_a_model_comes_back(tmp_path: Path) -> None:
    model = nn.resnet((1, 1), 8, 5)
    part = model.children()["layer3"] if "layer3" in model.children() else model.children()["fc"]
    nn.save(part, tmp_path / "part")
    other = nn.load(tmp_path / "part")
    for key, value in other.state_dict().items():
        np.testing.assert_array_equal(value, model.state_dict()[f"{part.name}.{key}"])


PADDED: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: nn.Conv1d(2, 2, 3, padding=((1, 0),)), (1, 2, 7)),
    (lambda: nn.Conv2d(2, 2, 3, padding=((1, 0), (1, 0))), (1, 2, 7, 7)),
    (lambda: nn.Conv2d(2, 2, 3, padding=((1, 1), (0, 0))), (1, 2, 7, 7)),
    (lambda: nn.Conv3d(2, 2, 3, padding=((1, 0),) * 3), (1, 2, 7, 7, 7)),
    (lambda: nn.Conv3d(2, 2, 3, padding=([1, 0], [1, 0], [1, 0])), (1, 2, 7, 7, 7)),
    (lambda: nn.Conv3d(2, 2, 3, padding=((1, 1), (1, 0), (0, 0))), (1, 2, 7, 7, 7)),
]


@pytest.mark.parametrize(("make", "shape"), PADDED)
def test_paddings_of_each_side_come_back(make: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    layer, x = make().eval(), np.ones(shape, np.float32)
    nn.save(layer, tmp_path / "it")
    np.testing.assert_array_equal(nn.load(tmp_path / "it")(x), layer(x))


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_of_other_weights_comes_back(kind: Any, tmp_path: Path) -> None:
    layer = kind(4, 6, 3, groups=2, bias=False).eval()
    layer.weight = nn.Parameter(layer.weight.value[:, :1, ..., :2])
    layer.K = 7  # an attribute of whoever assigns it
    nn.save(layer, tmp_path / "it")
    other: Any = nn.load(tmp_path / "it")
    x = np.ones((1, 4 if layer.is_transposed else 2, *(7,) * layer.axes), np.float32)
    np.testing.assert_array_equal(other(x), layer(x))
    assert ((4, 2) if layer.is_transposed else (2, 6)) == (other.C, other.K)
    assert other.kernel == (2 if layer.axes == 1 else (3, 2))


class Scaled(nn.Module):
    """A class of one's own that says how to make it again."""

    def __init__(self, inner: nn.Module, factor: float, shift: np.ndarray | None = None) -> None:
        super().__init__()
        self.inner, self.factor = inner, factor
        self.shift = np.zeros(3, bfloat16_dtype())

    def arguments(self) -> dict[str, Any]:
        return {"inner": self.inner, "factor": np.float64(self.factor)}

    def own_statistics(self) -> dict[str, Any]:
        return {"shift": self.shift}

    def forward(self, x: Any) -> Any:
        return self.inner(x) * np.float32(self.factor)


class Silent(Scaled):
    """One that leaves it to the class that it is made from, whose constructor may be another."""


class Mute(nn.Linear):
    """The same of a class of dlprim."""


def test_classes_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model = nn.Sequential({"a": Scaled(nn.Linear(4, 3), 1 / 3), "b": nn.Linear(3, 2)})
    model.children()["a"].shift[...] = 1.5  # type: ignore[attr-defined]
    nn.save(model, path)
    with pytest.raises(nn.ModelFileError, match=r"holds the class Scaled, expected it among clas"):
        nn.load(path)
    other = nn.load(path, classes=[Scaled])
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(other.eval()(x), model.eval()(x))
    np.testing.assert_array_equal(other.children()["a"].shift, model.children()["a"].shift)  # type: ignore[attr-defined]
    before = path.read_bytes()
    for bad in (Mute(2, 2), Silent(nn.Linear(2, 2), 1.0)):
        with pytest.raises(TypeError, match=rf"a {type(bad).__name__}, a class .*\.state_dict\(\)"):
            nn.save(nn.Sequential({"it": bad}), path)
    wrong = Scaled(nn.Linear(2, 2), 1.0)
    wrong.arguments = lambda: {"factor": np.ones(3)}  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="argument 'factor' of Scaled is of type ndarray"):
        nn.save(wrong, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_models_of_the_program(tmp_path: Path) -> None:
    model = LanguageModel("lstm", 7, 5, 2, embedded=4)
    model.use(nn.Context("bfloat16"))
    nn.save(model, tmp_path / "it")
    other = nn.load(tmp_path / "it", classes=[LanguageModel])
    x = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(other.eval()(x), model.eval()(x))


def test_what_is_no_model_or_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"model is of type dict, expected a dlprim\.nn\.Module"):
        nn.save({}, tmp_path / "it")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path is of type int, expected a str or Path"):
        nn.save(nn.Linear(2, 2), 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path is of type NoneType"):
        nn.load(None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="nowhere/it cannot be written"):
        nn.save(nn.Linear(2, 2), tmp_path / "nowhere" / "it")
    with pytest.raises(FileNotFoundError, match="it"):
        nn.load(tmp_path / "it")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "it"
    layers = {"a": nn.Linear(5, 3), "n": nn.Linear(3, 2, activation="tanh")}
    nn.save(nn.Sequential(layers), path)
    return path.read_bytes()


def require_refused(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    with pytest.raises(nn.ModelFileError, match=message) as found:
        nn.load(path)
    assert str(found.value).startswith(f"{path} ")


def test_every_changed_byte_is_seen(tmp_path: Path, whole: bytes) -> None:
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << RNG.integers(8)
        require_refused(tmp_path / "it", bytes(data), "is damaged|is no file|is truncated|expected")


def test_every_truncated_file_is_seen(tmp_path: Path, whole: bytes) -> None:
    for size in range(len(whole)):
        require_refused(tmp_path / "it", whole[:size], "is truncated|is empty|header is not what")
    require_refused(tmp_path / "it", whole + b"\0", "is damaged: it has .* bytes, expected")
    require_refused(tmp_path / "it", whole + whole, "is damaged: it has .* bytes, expected")


def test_the_array_that_is_damaged_is_named(tmp_path: Path, whole: bytes) -> None:
    for name, back in (("n.bias", 33), ("a.weight", 33 + 64 * 3)):
        data = bytearray(whole)
        data[-back] ^= 4
        require_refused(tmp_path / "it", bytes(data), f"the values of '{name}' do not have their")


def test_foreign_files_are_named_for_what_they_are(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "it"
    np.savez(tmp_path / "it.npz", a=np.ones(3))
    require_refused(path, (tmp_path / "it.npz").read_bytes(), "is no file of dlprim.nn.save: it b")
    require_refused(path, pickle.dumps(nn.Linear(2, 2)), r"is no file of dlprim\.nn\.save")
    require_refused(path, b"", r"is no file of dlprim\.nn\.save: it is empty")
    require_refused(path, whole.replace(b"model 1", b"model 2", 1), "is 'dlprim.nn model 2', expe")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: it["model"].update(kind="Exec"), "holds the class Exec"),
        (lambda it: it["model"].update(kind=None), "holds the class None"),
        (lambda it: it.update(model=3), "does not describe a model"),
        (lambda it: it.pop("model"), "does not fit its layers: model"),
        (lambda it: it.update(context=["float16", "auto"]), "dtype is float16"),
        (lambda it: it["model"]["arguments"].update(C=-1), "C is -1"),
        (lambda it: it["model"]["arguments"].update(K=5), r"weight has shape \(3, 2\), expected"),
        (lambda it: it["model"]["arguments"].update(nose=5), "unexpected keyword argument 'nose'"),
        (lambda it: it["model"]["arguments"].update(bias=False), "bias is unknown"),
        (lambda it: it["model"]["arguments"].update(K=10**12, C=10**12), "does not describe"),
    ],
)
def test_whole_files_that_describe_no_model(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    nn.save(nn.Linear(2, 3), path)
    header, arrays = model_file.read(model_file.LAYERS, path)
    header = json.loads(json.dumps(header))
    change(header)
    model_file.write(
        model_file.LAYERS, path, {key: header[key] for key in header if key != "arrays"}, arrays
    )
    require_refused(path, path.read_bytes(), message)


def test_a_failing_write_leaves_what_was_there(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "it"
    nn.save(nn.Linear(2, 3), path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dlprim.files.os.fsync", full)
    with pytest.raises(OSError, match="it cannot be written: No space left"):
        nn.save(nn.Linear(2, 3), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["it"]
