"""The program ``python -m dlprim.onnx``, and dlprim as a backend of ONNX."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim.onnx

pytestmark = pytest.mark.any_level

onnx: Any = pytest.importorskip("onnx.helper", reason="onnx makes the models that are read here")
backend: Any = import_module("dlprim.onnx.backend")
small: Any = import_module("small_models")
command_line: Any = import_module("dlprim.onnx.command_line")


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(small.model("mlp").SerializeToString())
    return path


def test_program_runs_times_and_checks(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = small.inputs("mlp", 3)["x"]
    np.save(tmp_path / "x.npy", x)
    trace = tmp_path / "trace.json"
    words = ["--input", str(tmp_path / "x.npy"), "--check", "--explain", "--trace", str(trace)]
    assert command_line.main([str(mlp), *words, "--output", str(tmp_path / "results")]) == 0
    shown = capsys.readouterr().out
    assert "y: float32 of [3, 5]" in shown
    assert "differs by" in shown
    events = json.loads(trace.read_text())["traceEvents"]
    assert events
    assert all(event["dur"] >= 0 for event in events)
    saved = np.load(tmp_path / "results" / "0-y.npy")
    np.testing.assert_array_equal(saved, dlprim.onnx.load(mlp)(x)[0])


def test_program_gives_lists_of_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_parser: Any = import_module("onnx.parser")
    text = """<ir_version: 8, opset_import: ["" : 17]>
    lists (seq(float[n,3]) x) => (seq(float[n,3]) y) { y = SequenceInsert(x, w) }"""
    made = onnx_parser.parse_model(text)
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    made.graph.initializer.append(import_module("onnx.numpy_helper").from_array(w, "w"))
    path, folder = tmp_path / "lists.onnx", tmp_path / "results"
    path.write_bytes(made.SerializeToString())
    words = ["--extent", "n=4", "--check", "--output", str(folder)]
    assert command_line.main([str(path), *words]) == 0
    shown = capsys.readouterr().out
    assert "y[0]: float32 of [4, 3]" in shown
    assert "y[1]: float32 of [2, 3]" in shown
    np.testing.assert_array_equal(np.load(folder / "1-y_1_.npy"), w)


def test_program_draws_what_is_not_given(mlp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([str(mlp), "--extent", "n=6", "--dtype", "bfloat16", "--check"]) == 0
    assert "y: float32 of [6, 5]" in capsys.readouterr().out


def test_program_names_the_extents_that_it_takes_as_1(
    mlp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main([str(mlp)]) == 0
    assert "input 'x': extent n is taken as 1; --extent n=N says it" in capsys.readouterr().out


def test_program_takes_extents_without_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = small.model("mlp")
    dimension = proto.graph.input[0].type.tensor_type.shape.dim[0]
    dimension.ClearField("dim_param")
    path = tmp_path / "unnamed.onnx"
    path.write_bytes(proto.SerializeToString())
    assert command_line.main([str(path), "--extent", "x:0=6"]) == 0
    shown = capsys.readouterr().out
    assert "y: float32 of [6, 5]" in shown
    assert "taken as 1" not in shown
    assert command_line.main([str(path)]) == 0
    assert "extent x:0 is taken as 1" in capsys.readouterr().out


def test_program_quantises_saves_and_runs_what_it_saved(
    mlp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples, kept = tmp_path / "calibration.npz", tmp_path / "mlp.dlprim"
    x = 2 * np.random.default_rng(1).standard_normal((24, 7), np.float32)
    np.savez(samples, x=x)
    words = ["--quantize", str(samples), "--save", str(kept), "--extent", "n=4", "--check"]
    assert command_line.main([str(mlp), *words]) == 0
    expected = dlprim.quantize(dlprim.onnx.load(mlp), list(x[:, None]))
    found = dlprim.load(kept)
    assert found.table is not None
    for one, other in zip(expected(x), found(x), strict=True):
        np.testing.assert_array_equal(one, other)
    capsys.readouterr()
    assert (
        command_line.main([str(kept), "--extent", "n=2", "--check", "--max-bytes", "9999999"]) == 0
    )
    assert "y: float32 of [2, 5]" in capsys.readouterr().out
    assert command_line.main([str(kept), "--extent", "n=2", "--max-bytes", "9"]) == 1
    assert command_line.main([str(kept), "--dtype", "bfloat16"]) == 1
    assert "says what it computes in" in capsys.readouterr().err
    np.savez(samples, x=x, other=x)
    assert command_line.main([str(mlp), "--quantize", str(samples)]) == 1
    assert "'other' is no input, but ['x']" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["missing.onnx"], "missing.onnx"),
        (["MODEL", "--input", "z=missing.npy"], "missing.npy"),
        (["MODEL", "--extent", "n=many"], "expected NAME=N"),
        (["MODEL", "--extent", "m=3"], "--extent m: the model has no extent of that name, but n"),
        (["MODEL", "--extent", "=3"], "the model has no extent of that name, but n"),
        (["MODEL", "--extent", "n=999", "--max-bytes", "99"], "expected at most 99 (max_bytes)"),
        (["MODEL", "--max-bytes", "0"], "max_bytes is 0, expected at least 1"),
    ],
)
def test_program_says_what_is_wrong(
    words: list[str], part: str, mlp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main([str(mlp) if word == "MODEL" else word for word in words]) == 1
    assert part in capsys.readouterr().err


def test_backend_prepares_and_runs() -> None:
    model = small.model("mlp")
    arrays = small.inputs("mlp", 2)
    (result, _), (right, _) = (
        backend.run_model(model, list(arrays.values())),
        small.run(model, arrays),
    )
    np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    assert backend.is_compatible(model)


def test_backend_runs_a_node() -> None:
    node = onnx.make_node("Add", ["a", "b"], ["sum"])
    a, b = np.ones((2, 3), np.float32), np.full((3,), 2, np.float32)
    np.testing.assert_array_equal(backend.run_node(node, [a, b]).sum, a + b)


def test_backend_skips_what_is_refused() -> None:
    runner: Any = import_module("onnx.backend.test.runner")
    node = onnx.make_node("Bernoulli", ["a"], ["b"])
    with pytest.raises(runner.BackendIsNotSupposedToImplementIt, match="Bernoulli"):
        backend.run_node(node, [np.ones(3, np.float32)])
