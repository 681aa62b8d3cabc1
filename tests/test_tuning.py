"""tune: what it finds is right, used and kept; arguments."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import dlprim
from conftest import RunPython
from dlprim import schedule_store as store
from dlprim.functions import convolution
from dlprim.primitives.conv_arguments import geometry
from dlprim.tuning import tune
from dlprim.tuning.passes import pass_of
from dlprim.tuning.search import Choices, Search, Winner
from tuning_cases import PASSES, SHAPES, assert_close, result, variants


@pytest.fixture(autouse=True)
def folder(stored_schedules: Path) -> Path:
    return stored_schedules


@pytest.fixture
def rigged(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The search finds what the model ranks last of four; returned for the convolution SHAPES."""
    conv = dlprim.Conv2d(**SHAPES)
    found = {which: conv._core.candidates(which, 4)[-1] for which in PASSES}
    assert all(found[which] != conv.schedules[which] for which in PASSES)

    def run(search: Search, seeds: list[Choices], end: float) -> Winner:
        return Winner({search._work.which: found[search._work.which]}, 1.5, 1)

    monkeypatch.setattr(Search, "run", run)
    return found


def test_no_time_changes_nothing(folder: Path) -> None:
    schedules = {"forward": dlprim.Conv2d(**SHAPES)._core.candidates("forward", 3)[-1]}
    conv = dlprim.Conv2d(**SHAPES, schedule=schedules)
    before = conv.schedules
    assert dlprim.tune(conv, budget_s=1e-9, progress=None) == dict.fromkeys(PASSES, 1.0)
    assert conv.schedules == before
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------- results


@variants
def test_tuned_computes_the_same(layout: str, dtype: str) -> None:
    conv = dlprim.Conv2d(**SHAPES, layout=layout, dtype=dtype)
    expected = {which: result(conv, which) for which in PASSES}
    lines = list[str]()
    gains = dlprim.tune(conv, budget_s=0.3, progress=lines.append)
    assert gains.keys() == set(PASSES)
    assert min(gains.values()) >= 1.0
    assert all(any(line.startswith(which) for line in lines) for which in PASSES)
    for which in PASSES:
        assert_close(result(conv, which), expected[which], dtype)
    assert dlprim.Conv2d(**SHAPES, layout=layout, dtype=dtype).schedules == conv.schedules


def test_workers_are_put_back() -> None:
    before = dlprim.get_num_threads()
    conv = dlprim.Conv2d(**SHAPES, bias=True, activation="relu")
    gains = dlprim.tune(conv, 0.1, workers=before + 1, passes="forward", progress=None)
    assert gains.keys() == {"forward"}
    assert dlprim.get_num_threads() == before


def test_winners_are_used_and_kept(
    rigged: dict[str, str], run_python: RunPython, capsys: pytest.CaptureFixture[str]
) -> None:
    conv = dlprim.Conv2d(**SHAPES)
    untouched = conv.schedules
    assert dlprim.tune(conv, passes=iter(["forward"])) == {"forward": 1.5}
    assert conv.schedules == {**untouched, "forward": rigged["forward"]}
    assert dlprim.tune(conv, 1) == dict.fromkeys(PASSES, 1.5)
    assert conv.schedules == rigged
    assert capsys.readouterr().err == ""
    run = run_python(f"import dlprim; print(dlprim.Conv2d(**{SHAPES}).schedules)")
    assert (run.stdout, run.stderr) == (f"{rigged}\n", "")


def test_somebody_who_watches_sees_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", screen)
    dlprim.tune(dlprim.Conv2d(**SHAPES), 0.1, passes="forward")
    assert " %|" in screen.getvalue()


def test_functions_use_them_at_once(rigged: dict[str, str]) -> None:
    numbers = geometry(**SHAPES, stride=1, dilation=1)
    arguments = ("auto", None, numbers, "float32", "float32", "blocked", "none", False)
    before = convolution._prepared(*arguments).schedules
    dlprim.tune(dlprim.Conv2d(**SHAPES), progress=None)
    assert convolution._prepared(*arguments).schedules == rigged != before


def test_default_that_wins_again_is_not_kept(
    rigged: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conv = dlprim.Conv2d(**SHAPES)
    model = conv.schedules
    dlprim.tune(conv, progress=None)
    monkeypatch.setattr(
        Search,
        "run",
        lambda search, *_: Winner({search._work.which: model[search._work.which]}, 1.0, 5),
    )
    assert dlprim.tune(conv, progress=None) == dict.fromkeys(PASSES, 1.0)
    assert conv.schedules == dlprim.Conv2d(**SHAPES).schedules == model


def test_path_is_another_folder(rigged: dict[str, str], folder: Path) -> None:
    other = folder / "a" / "b"
    dlprim.tune(dlprim.Conv2d(**SHAPES), path=str(other), progress=None)
    assert dlprim.Conv2d(**SHAPES).schedules != rigged
    assert len(store.load(other)) == len(PASSES)
    work = pass_of(dlprim.Conv2d(**SHAPES), "forward")
    assert tune._seeds(work, other)[1] == {"forward": rigged["forward"]}


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("keywords", "error", "sentence"),
    [
        ({"budget_s": "1"}, TypeError, "^budget_s is of type str, expected"),
        ({"budget_s": 0}, ValueError, "^budget_s is 0, expected a positive"),
        ({"budget_s": float("nan")}, ValueError, "^budget_s is nan"),
        ({"budget_s": float("inf")}, ValueError, "^budget_s is inf"),
        ({"workers": 1.0}, TypeError, "^workers is 1.0, expected an integer"),
        ({"workers": 0}, ValueError, "^workers is 0, expected an integer of at least 1"),
        ({"seed": "a"}, TypeError, "^seed is 'a', expected an integer"),
        ({"seed": -1}, ValueError, "^seed is -1, expected an integer of at least 0"),
        ({"generations": 0}, ValueError, "^generations is 0, expected an integer of at least 1"),
        ({"population": 2.5}, TypeError, "^population is 2.5, expected an integer"),
        ({"passes": "sideways"}, ValueError, "^passes names 'sideways', expected some of forward,"),
        ({"passes": ["forward", 3]}, ValueError, "^passes names 3, expected"),
    ],
)
def test_refused(keywords: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        dlprim.tune(dlprim.Conv2d(**SHAPES), **keywords)


@pytest.mark.parametrize("primitive", [None, "conv", dlprim.Conv2d])
def test_only_primitives_are_tuned(primitive: object) -> None:
    with pytest.raises(TypeError, match=r"^primitive is of type \w+, expected a Conv2d, "):
        dlprim.tune(primitive)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x_shape": (2, 8, 9, 9), "w_shape": (8, 1, 3, 3), "groups": 8}, "depthwise"),
        ({"x_shape": (0, 8, 9, 9), "w_shape": (8, 8, 3, 3)}, "no images"),
    ],
)
def test_nothing_to_tune(arguments: dict[str, Any], reason: str, folder: Path) -> None:
    lines = list[str]()
    assert dlprim.tune(dlprim.Conv2d(**arguments), progress=lines.append) == {}
    assert len(lines) == 1
    assert reason in lines[0]
    assert list(folder.iterdir()) == []
