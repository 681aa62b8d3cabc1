"""The file of tuned schedules: what is loaded, what is ignored with a warning, how it is kept."""

from __future__ import annotations

import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dlprim
from conftest import RunPython
from dlprim import schedule_store as store
from dlprim.primitives.operands import scheduled

pytestmark = pytest.mark.any_level

SHAPES = {"x_shape": (3, 34, 9, 7), "w_shape": (70, 17, 3, 2), "groups": 2, "padding": 1}
MODEL = dlprim.Conv2d(**SHAPES, schedule={}).schedules
OTHER = dlprim.Conv2d(**SHAPES, schedule={})._core.candidates("forward", 4)[-1]
NAME = store.key("forward", dlprim.Conv2d(**SHAPES)._stored_as)
ENTRY = {"schedule": OTHER, "gain": 1.5}


@pytest.fixture(autouse=True)
def folder(stored_schedules: Path) -> Path:
    return stored_schedules


def stored(folder: Path) -> dict[str, Any]:
    return json.loads(store.file_in(folder).read_text())


def forward() -> str:
    return dlprim.Conv2d(**SHAPES).schedules["forward"]


# ---------------------------------------------------------------- loading


def test_stored_schedule_is_used(folder: Path) -> None:
    assert forward() == MODEL["forward"]
    store.save(folder, {NAME: ENTRY})
    assert dlprim.Conv2d(**SHAPES).schedules == {**MODEL, "forward": OTHER}
    assert dlprim.Conv2d(**SHAPES, bias=True, activation="relu").schedules["forward"] == OTHER


def test_only_for_the_same_convolution(folder: Path) -> None:
    store.save(folder, {NAME: ENTRY})
    for change in ({"layout": "NHWC"}, {"dtype": "bfloat16"}, {"padding": 2}, {"stride": 2}):
        arguments = {**SHAPES, **change}
        untuned = dlprim.Conv2d(**arguments, schedule={}).schedules
        assert dlprim.Conv2d(**arguments).schedules == untuned


def test_schedule_of_the_caller_comes_first(folder: Path) -> None:
    store.save(folder, {NAME: ENTRY})
    assert dlprim.Conv2d(**SHAPES, schedule={}).schedules == MODEL
    assert dlprim.Conv2d(**SHAPES, schedule=MODEL["forward"]).schedules == MODEL


def test_loading_can_be_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(folder, {NAME: ENTRY})
    monkeypatch.setenv("DLPRIM_TUNE", "0")
    assert forward() == MODEL["forward"]
    monkeypatch.setenv("DLPRIM_TUNE", "1")
    assert forward() == OTHER


def test_file_is_read_once(folder: Path) -> None:
    store.save(folder, {NAME: ENTRY})
    store.file_in(folder).unlink()
    assert forward() == OTHER


def test_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert store.default_folder() == tmp_path
    monkeypatch.delenv("DLPRIM_TUNE_DIR")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert store.default_folder() == Path("/cache/dlprim")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.default_folder() == Path("/home/me/.cache/dlprim")


def test_another_instruction_set_has_another_file(folder: Path, run_python: RunPython) -> None:
    store.save(folder, {NAME: ENTRY})
    name = store.file_in(folder).name
    assert name.endswith(f"-{dlprim.isa()}.json")
    source = "from dlprim import schedule_store as s; print(s.file_in(s.default_folder()).name)"
    assert run_python(source).stdout == f"{name}\n"
    scalar = name.replace(dlprim.isa(), "scalar")
    assert run_python(source, DLPRIM_MAX_ISA="scalar").stdout == f"{scalar}\n"


def travelled(schedule: str) -> store.Travelled:
    return store.Travelled(
        {**store._identity(), "entries": {NAME: {**ENTRY, "schedule": schedule}}}
    )


def test_schedules_of_a_model_do_not_replace_those_of_the_machine(folder: Path) -> None:
    conv = dlprim.Conv2d(**SHAPES)
    assert scheduled(conv, travelled(OTHER)).schedules["forward"] == OTHER
    assert forward() == MODEL["forward"]
    store.save(folder, {NAME: ENTRY})
    assert scheduled(dlprim.Conv2d(**SHAPES), travelled("n k c")).schedules["forward"] == OTHER


def test_schedules_of_a_model_that_do_not_fit_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    came = travelled("no schedule")
    with pytest.warns(RuntimeWarning, match="'no schedule' for .*, which came with a model, is ig"):
        conv = scheduled(dlprim.Conv2d(**SHAPES), came)
    assert conv.schedules == MODEL
    assert came.entries == {}
    monkeypatch.setenv("DLPRIM_TUNE", "0")
    assert scheduled(conv, travelled(OTHER)).schedules == MODEL


# ---------------------------------------------------------------- files of no use


def document(**changes: Any) -> str:
    return json.dumps({**store._identity(), "entries": {NAME: ENTRY}, **changes})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        (document()[:-9], "Unterminated"),
        ("[" * 100_000, "recursion"),
        (b"\xff\xfe\x00", "decode"),
        ("[]", "it holds no entries"),
        (document(entries=[]), "it holds no entries"),
        (document(entries={NAME: OTHER}), "has no schedule"),
        (document(entries={NAME: {"schedule": 3}}), "has no schedule"),
        (document(version="0.0.1"), "its version is '0.0.1', expected"),
        (document(cpu="Z80"), "its cpu is 'Z80', expected"),
        (document(isa="mmx"), "its isa is 'mmx', expected"),
    ],
    ids=range(11),
)
def test_bad_file_is_ignored(folder: Path, content: str | bytes, reason: str) -> None:
    path = store.file_in(folder)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.warns(RuntimeWarning, match=reason) as caught:
        assert forward() == MODEL["forward"]
    assert len(caught) == 1
    assert str(path) in str(caught[0].message)
    assert caught[0].filename == __file__
    assert forward() == MODEL["forward"]  # and does not warn again, which would be an error
    store.save(folder, {NAME: ENTRY})
    assert forward() == OTHER
    assert stored(folder)["entries"] == {NAME: ENTRY}


def test_unreadable_file_is_ignored(folder: Path) -> None:
    store.file_in(folder).mkdir()
    with pytest.warns(RuntimeWarning, match="directory"):
        assert forward() == MODEL["forward"]


@pytest.mark.parametrize("schedule", ["", "?!", "n", "z", "N P G K C Q7", "n0 p g k c"])
def test_schedule_that_does_not_fit_is_ignored(folder: Path, schedule: str) -> None:
    store.save(folder, {NAME: {"schedule": schedule, "gain": 2.0}})
    with pytest.warns(RuntimeWarning, match="is ignored") as caught:
        assert dlprim.Conv2d(**SHAPES).schedules == MODEL
    assert len(caught) == 1
    assert dlprim.Conv2d(**SHAPES).schedules == MODEL


# ---------------------------------------------------------------- writing


def test_content(folder: Path) -> None:
    store.save(folder, {NAME: ENTRY})
    content = stored(folder)
    assert content.keys() == {"version", "cpu", "isa", "entries"}
    assert (content["version"], content["isa"]) == (dlprim.__version__, dlprim.isa())
    assert content["entries"] == {NAME: ENTRY}
    store.save(folder, {NAME: None, "another": ENTRY})
    assert stored(folder)["entries"] == {"another": ENTRY}


def test_failing_write_leaves_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(folder, {NAME: ENTRY})
    before = stored(folder)

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="the disk is gone"):
                store.save(folder, {"another": ENTRY})
    assert stored(folder) == before
    assert list(folder.iterdir()) == [store.file_in(folder)]
    assert forward() == OTHER


def test_killed_writer_leaves_the_file(folder: Path, run_python: RunPython) -> None:
    store.save(folder, {NAME: ENTRY})
    before = stored(folder)
    run = run_python(
        "import os, dlprim; from dlprim import schedule_store as s\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "s.save(s.default_folder(), {'another': {'schedule': 'n', 'gain': 2.0}})"
    )
    assert run.returncode == 9
    assert stored(folder) == before
    assert forward() == OTHER


def test_entries_of_other_processes_are_kept(folder: Path, run_python: RunPython) -> None:
    """Those written since the file was read here, and those written at the same time."""
    assert store.load(folder) == {}
    source = (
        "import sys; from dlprim import schedule_store as s\n"
        "for n in range(20):\n"
        "    s.save(s.default_folder(), {f'{sys.argv[1]} {n}': {'schedule': 'n', 'gain': 2.0}})"
    )
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda writer: run_python(source, writer), "abc"))
    assert [run.stderr for run in runs] == [""] * 3
    store.save(folder, {NAME: ENTRY})
    names = {f"{writer} {n}" for writer in "abc" for n in range(20)}
    assert stored(folder)["entries"].keys() == store.load(folder).keys() == {*names, NAME}


def test_without_locks_it_is_written_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(store.fcntl, "flock", fail)
    store.save(folder, {NAME: ENTRY})
    assert forward() == OTHER


def test_folder_that_cannot_be_made_is_refused_first(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(
        OSError, match=r"^/.*/file/x cannot hold tuned schedules: .*DLPRIM_TUNE_DIR"
    ):
        dlprim.tune(dlprim.Conv2d(**SHAPES), path=folder / "file" / "x")


def test_nothing_is_written_without_tuning(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dlprim.Conv2d(**SHAPES)
    assert list(folder.iterdir()) == []
