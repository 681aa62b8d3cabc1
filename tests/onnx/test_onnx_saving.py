"""`model.save` and `dlprim.load`: what comes back computes the same, and damage is seen."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import shutil
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
import forged_files
from dlprim import LSTM, Conv2d, Linear, model_file, nn
from dlprim import schedule_store as store
from dlprim.model_file import ModelFileError

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.reference", reason="onnx makes the models that are read here")
small: Any = import_module("small_models")
onnx: Any = import_module("dlprim.onnx")


def saved(name: str, path: Path) -> Any:
    model = onnx.load(small.model(name))
    model.save(path)
    return model


def equal(left: Any, right: Any) -> None:
    for a, b in zip(np.atleast_1d(left), np.atleast_1d(right), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", small.NAMES)
def test_a_model_comes_back(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path / "it")
    other = dlprim.load(tmp_path / "it")
    for port, it in zip(model.inputs, other.inputs, strict=True):
        assert port == it
    arrays = small.inputs(name, 3)
    left, right = model(**arrays), other(**arrays)
    if not isinstance(left, tuple):
        left, right = (left,), (right,)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)
    # And once more, from what was loaded.
    other.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "it").read_bytes()


def test_a_quantised_model_comes_back_with_its_table(tmp_path: Path) -> None:
    model = onnx.load(small.model("residual"))
    quantized = dlprim.quantize(model, [small.inputs("residual", 4)], max_error=0.5)
    quantized.save(tmp_path / "it")
    other = dlprim.load(str(tmp_path / "it"))
    assert other.table == quantized.table
    x = small.inputs("residual", 3)["x"]
    np.testing.assert_array_equal(other(x), quantized(x))


def test_data_outside_of_the_file_comes_inside(tmp_path: Path) -> None:
    import onnx as format_of_onnx

    made = small.model("attention")
    folder = tmp_path / "with data"
    folder.mkdir()
    format_of_onnx.save(
        made, folder / "it.onnx", save_as_external_data=True, size_threshold=8, location="data"
    )
    model = onnx.load(folder / "it.onnx")
    shutil.rmtree(folder)
    model.save(tmp_path / "it")
    arrays = small.inputs("attention", 2)
    np.testing.assert_array_equal(dlprim.load(tmp_path / "it")(**arrays), model(**arrays))


def test_the_weights_are_kept_once(tmp_path: Path) -> None:
    """And not those of the file that a model was read from."""
    import onnx as format_of_onnx

    weights = np.random.default_rng(0).standard_normal((7, 500), np.float32)
    text = '<ir_version: 9, opset_import: ["": 20]> it (float[n,7] x) => (float[n,500] y)'
    text += " { y = MatMul(x, w) }"
    made = format_of_onnx.parser.parse_model(text)
    made.graph.initializer.append(format_of_onnx.numpy_helper.from_array(weights, "w"))
    before = made.SerializeToString()
    model = onnx.load(made)
    assert len(model.source.model) < 1000
    assert made.SerializeToString() == before
    model.save(tmp_path / "it")
    assert weights.nbytes < (tmp_path / "it").stat().st_size < weights.nbytes + 4000


def entries_of(path: Path) -> Any:
    return model_file.read(model_file.NETWORK, path)[0]["schedules"]["entries"]


def test_schedules_travel_to_the_same_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tuned"
    folder.mkdir()
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(folder))
    entries = {"some layer": {"schedule": "a", "gain": 1.5}}
    store.save(folder, entries)
    model = saved("mlp", tmp_path / "it")
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path / "other"))
    dlprim.load(tmp_path / "it").save(tmp_path / "again")
    assert entries_of(tmp_path / "again") == entries
    assert not (tmp_path / "other").exists()  # they are used, and no file is written
    header, arrays = model_file.read(model_file.NETWORK, tmp_path / "it")
    header["schedules"]["cpu"] = "another one"
    model_file.write(model_file.NETWORK, tmp_path / "it", header, arrays)
    other = dlprim.load(tmp_path / "it")
    np.testing.assert_array_equal(
        other(**small.inputs("mlp", 2))[0],
        model(**small.inputs("mlp", 2))[0],
    )
    other.save(tmp_path / "again")
    assert entries_of(tmp_path / "again") == {}


LAYERS = {
    "convolution": (Conv2d, (3, 64, 17, 17), (80, 64, 3, 2)),
    "linear": (Linear, (24, 96), (40, 96)),
    "lstm": (LSTM, (5, 3, 24), (1, 160, 24)),
}


def layer_of(kind: str) -> tuple[Any, Any]:
    """A model of one layer, and the same layer as a primitive on its own."""
    from onnx import numpy_helper, parser

    primitive, shape, w_shape = LAYERS[kind]
    weights = {"w": np.random.default_rng(0).standard_normal(w_shape, np.float32)}
    text = "y = Conv(x, w)"
    own = partial(primitive, shape, w_shape, dtype="float32")
    if kind == "linear":
        text, weights["w"] = "y = MatMul(x, w)", np.ascontiguousarray(weights["w"].T)
        own = partial(primitive, shape, 40, layout="plain")
    if kind == "lstm":
        text = "y = LSTM<hidden_size: int = 40>(x, w, r)"
        weights["r"] = np.zeros((1, 160, 40), np.float32)
        own = partial(primitive, shape, 40)
    extents = ",".join(map(str, shape))
    head = '<ir_version: 9, opset_import: ["": 20]> it'
    model = parser.parse_model(f"{head} (float[{extents}] x) => (float[] y) {{ {text} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return onnx.load(model), own


@pytest.mark.parametrize("kind", LAYERS)
def test_schedules_of_a_file_are_for_its_model_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_schedules: Path
) -> None:
    """Whichever of the two comes first, and where one asks for what the other has made."""
    plain, own = layer_of(kind)
    untuned = own()
    which = "projection" if kind == "lstm" else "forward"
    others = [it for it in untuned._core.candidates(which, 4) if it != untuned.schedules[which]]
    name = store.key(
        which, untuned._stored_as, getattr(untuned, "algorithms", {}).get(which, "direct")
    )
    store.save(stored_schedules, {name: {"schedule": others[-1], "gain": 1.5}})
    plain.save(tmp_path / "it")
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path / "other"))

    made: list[tuple[Any, str]] = []
    for network_step in ("conv2d", "linear", "rnn"):
        steps = getattr(dlprim._core.Network, network_step)

        def noted(network: Any, layer: Any, *rest: Any, call: Any = steps, **named: Any) -> Any:
            made.append(layer.schedules[which])
            return call(network, layer, *rest, **named)

        monkeypatch.setattr(dlprim._core.Network, network_step, noted)
    x = np.ones(LAYERS[kind][1], np.float32)
    for order in ("plain", "loaded", "plain", "loaded"):
        layer_of(kind)[0](x) if order == "plain" else dlprim.load(tmp_path / "it")(x)
    assert made == [untuned.schedules[which], others[-1]] * 2
    assert own().schedules == untuned.schedules
    assert store.load(store.default_folder()) == {}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "it"
    saved("quantized", path)
    return path.read_bytes()


def require_refused(path: Path, data: bytes, message: str) -> None:
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message) as found:
        dlprim.load(path)
    assert str(found.value).startswith(f"{path} ")


def test_damage_is_seen(tmp_path: Path, whole: bytes) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "it"
    for place in random.choice(len(whole), 300, replace=False):
        data = bytearray(whole)
        data[place] ^= 1 << random.integers(8)
        require_refused(path, bytes(data), "is damaged|is no file|is truncated|expected")
    for size in random.choice(len(whole), 300, replace=False):
        require_refused(path, whole[:size], "is truncated|is no file|header is not what")
    require_refused(path, whole + b"\0", "is damaged: it has .* bytes, expected")


def test_other_files_are_named_for_what_they_are(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "it"
    newer = whole.replace(b"network 1", b"network 2", 1)
    require_refused(path, newer, "is 'dlprim network 2', expected 'dlprim network 1'")
    nn.save(nn.Linear(2, 2), path)
    require_refused(path, path.read_bytes(), r"dlprim\.nn\.load reads it")
    require_refused(path, small.model("mlp").SerializeToString(), "is no file of the save of")
    path.write_bytes(whole)
    with pytest.raises(ModelFileError, match=r"dlprim\.load reads it"):
        nn.load(path)
    with pytest.raises(TypeError, match="path is of type int"):
        dlprim.load(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        dlprim.load(tmp_path / "none")
    with pytest.raises(OSError, match="cannot be written"):
        onnx.load(small.model("mlp")).save(tmp_path / "nowhere" / "it")


def any_table(header: Any) -> Any:
    header["quantization"] = {"arrays": {}, "layers": {}, "excluded": {}}
    return header["quantization"]["arrays"]


@pytest.mark.parametrize("name", ["mlp", "residual", "attention"])
def test_drawn_changes_with_right_checksums(name: str, tmp_path: Path) -> None:
    """What is taken for a model computes, or says that it cannot."""
    model, path = onnx.load(small.model(name)), tmp_path / "it"
    arrays = small.inputs(name, 2)
    if name == "residual":
        model = dlprim.quantize(model, [arrays], max_error=0.5)
    model.save(path)
    header, data = forged_files.parts_of(model_file.NETWORK, path)
    for seed in range(60):
        forged = forged_files.changed(header, np.random.default_rng(seed))
        forged_files.put(model_file.NETWORK, path, forged, data)
        with contextlib.suppress(ModelFileError, onnx.ModelError):
            dlprim.load(path)(**arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, arrays: arrays.pop("model"), "does not describe a model"),
        (lambda header, arrays: arrays.update(model=np.zeros(9, np.uint8)), "cannot be read"),
        (lambda header, arrays: arrays.update({"weight z": np.zeros(9)}), r"initializers \['z'\]"),
        (lambda header, arrays: header.pop("quantization"), "does not describe a model"),
        (lambda header, arrays: header.update(quantization=3), "quantisation table"),
        (lambda header, arrays: any_table(header).update(x=[0.1, 300, "uint8"]), "no 8 bits"),
        (lambda header, arrays: any_table(header).update(x=[0.1, -1, "uint8"]), "no 8 bits"),
        (lambda header, arrays: any_table(header).update(x=[1e300, 0, "int8"]), "no 8 bits"),
        (lambda header, arrays: any_table(header).update(x=[np.nan, 0, "int8"]), "no 8 bits"),
        (lambda header, arrays: any_table(header).update(x=[1, np.inf, "int8"]), "cannot be read"),
    ],
)
def test_whole_files_that_describe_no_model(
    tmp_path: Path, whole: bytes, change: Any, message: str
) -> None:
    path = tmp_path / "it"
    path.write_bytes(whole)
    header, arrays = model_file.read(model_file.NETWORK, path)
    header = json.loads(json.dumps(header))
    change(header, arrays)
    model_file.write(model_file.NETWORK, path, header, arrays)
    require_refused(path, path.read_bytes(), message)


# ---------------------------------------------------------------- other files, other copies


def test_each_loader_names_the_one_that_reads_a_file(tmp_path: Path) -> None:
    network, layers, foreign = (tmp_path / name for name in ("a.dlprim", "b.dlprim", "c.onnx"))
    saved("mlp", network)
    nn.save(nn.Linear(2, 3), layers)
    foreign.write_bytes(small.model("mlp").SerializeToString())
    expected = {
        (onnx.load, network): "a.dlprim is a file of dlprim's own, which dlprim.load reads",
        (onnx.load, layers): "b.dlprim is a file of dlprim's own, which dlprim.nn.load reads",
        (dlprim.load, layers): "dlprim.nn.load reads it",
        (dlprim.load, foreign): "in ONNX's format; dlprim.onnx.load reads those",
        (nn.load, network): "dlprim.load reads it",
        (nn.load, foreign): "in ONNX's format; dlprim.onnx.load reads those",
    }
    for (load, path), match in expected.items():
        with pytest.raises(ValueError, match=match):
            load(path)


def test_models_are_pickled_and_copied() -> None:
    model = onnx.load(small.model("residual"), max_bytes=10**8, kept_shapes=3)
    arrays = small.inputs("residual", 2)
    quantized = dlprim.quantize(model, [arrays], max_error=0.5)
    for it in (model, quantized, onnx.load(small.model("residual"), dtype="bfloat16")):
        for other in (pickle.loads(pickle.dumps(it)), copy.copy(it), copy.deepcopy(it)):
            equal(other(**arrays), it(**arrays))
            assert (other.max_bytes, other.kept_shapes) == (it.max_bytes, it.kept_shapes)
            assert other.table == it.table
            assert repr(other) == repr(it)


def test_what_is_printed_of_a_model() -> None:
    model = onnx.load(small.model("mlp"))
    text = repr(model)
    assert text.startswith("<dlprim.onnx.OnnxModel (")
    for port in (*model.inputs.values(), *model.outputs.values()):
        assert f"{port.name}: {port.dtype}[" in text
