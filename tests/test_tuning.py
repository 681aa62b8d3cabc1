"""tune: the search by clocks that tests make, results by real ones, neighbours, arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from dlprim.functions import convolution
from dlprim.primitives.conv_arguments import geometry
from dlprim.tuning import moves, store, tune
from dlprim.tuning.search import Pass, Search, Winner

PASSES = ("forward", "backward_data", "backward_weights")
SHAPES = {"x_shape": (3, 34, 9, 7), "w_shape": (70, 17, 3, 2), "groups": 2, "padding": 1}
SECONDS = 1.0  # for a search that may have more to try than a test needs
every_pass = pytest.mark.parametrize("which", PASSES)
variants = pytest.mark.parametrize(
    ("layout", "dtype"),
    [(layout, dtype) for layout in ("blocked", "NHWC") for dtype in ("float32", "bfloat16")],
)


@pytest.fixture(autouse=True)
def folder(stored_schedules: Path) -> Path:
    return stored_schedules


@pytest.fixture
def rigged(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The search finds what the model ranks last of four; returned for the convolution SHAPES."""
    conv = dlprim.Conv2d(**SHAPES)
    found = {which: conv._core.candidates(which, 4)[-1] for which in PASSES}
    assert all(found[which] != conv.schedules[which] for which in PASSES)

    def run(search: Search, seeds: list[str], end: float) -> Winner:
        return Winner(found[search._which], 1.5, 1)

    monkeypatch.setattr(Search, "run", run)
    return found


def result(conv: dlprim.Conv2d, which: str) -> np.ndarray:
    """Of a pass, plain; NaN where nothing is written."""
    random = np.random.default_rng(0)
    shapes = (conv.x_shape, conv.w_shape, conv.y_shape)
    plain = [random.standard_normal(shape, np.float32) for shape in shapes]
    if conv.dtype != np.float32:
        plain = [dlprim.to_bfloat16(each) for each in plain]
    src, weights = conv.pack_src(plain[0]), conv.pack_weights(plain[1])
    diff_dst = conv.pack_diff_dst(plain[2])
    run, operands, unpack = {
        "forward": (conv.forward, (src, weights), conv.unpack_dst),
        "backward_data": (conv.backward_data, (diff_dst, weights), conv.unpack_diff_src),
        "backward_weights": (conv.backward_weights, (src, diff_dst), conv.unpack_diff_weights),
    }[which]
    out = run(*operands)
    out.view(np.uint8).fill(0xFF)
    return unpack(run(*operands, out=out)).astype(np.float32)


def assert_close(value: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    scale = np.abs(expected).max() * (1e-5 if dtype == "float32" else 1e-2)
    np.testing.assert_allclose(value, expected, rtol=0, atol=scale)


# ---------------------------------------------------------------- the search


def searched(
    which: str, cost: Callable[[str], float], wrong: Callable[[str], bool] = lambda _: False
) -> tuple[Winner, str, list[str]]:
    """Who wins where a call takes as long as `cost` says; the model's choice; what was reported."""
    conv = dlprim.Conv2d(**SHAPES)
    copies = conv._new_core(), conv._new_core()
    model = copies[0].schedules[which]
    now, out, lines = [0.0], np.zeros(3, np.float32), list[str]()

    def run(core: dlprim._core.Conv2d) -> None:
        schedule = core.schedules[which]
        now[0] += cost(schedule)
        out[:] = 2 if wrong(schedule) else 1

    search = Search(Pass(which, run, out), copies, lambda: now[0], lines.append)
    return search.run(copies[0].candidates(which, 8), perf_counter() + SECONDS), model, lines


@every_pass
def test_fastest_wins(which: str) -> None:
    core = dlprim.Conv2d(**SHAPES)._core
    shared = {t: moves.tasks(t, core.loops(which)) for t in core.candidates(which, 20)}
    least = next(iter(shared.values()))  # the default's; a first level may be the parts of a sum
    firsts = [moves.parse(t)[:3] for t, n in shared.items() if n >= least]
    letters = next(levels for levels in firsts if levels != firsts[0])

    def cost(schedule: str) -> float:
        return 0.5 if moves.parse(schedule)[:3] == letters else 1.0

    winner, model, lines = searched(which, cost)
    assert (cost(model), cost(winner.schedule), winner.gain) == (1.0, 0.5, 2.0)
    assert winner.tried > 4
    assert lines[-1].startswith(which)
    assert winner.schedule in lines[-1]


@every_pass
@pytest.mark.parametrize("others", [1.0, 0.995, 3.0])
def test_default_stays_unless_another_is_clearly_faster(which: str, others: float) -> None:
    conv = dlprim.Conv2d(**SHAPES)
    model = conv.schedules[which]
    same = {model, moves.normal(model, conv._core.loops(which))}
    winner, _, _ = searched(which, lambda schedule: 1.0 if schedule in same else others)
    assert (winner.schedule, winner.gain) == (model, 1.0)
    assert winner.tried > 4


def test_what_computes_something_else_never_wins() -> None:
    outermost = dlprim.Conv2d(**SHAPES).schedules["forward"][0].lower()

    def differs(schedule: str) -> bool:
        return moves.parse(schedule)[0].letter != outermost

    winner, _, lines = searched("forward", lambda s: 0.5 if differs(s) else 1.0, differs)
    assert not differs(winner.schedule)
    assert any("computes something else" in line for line in lines)


def test_threads_find_as_many_tasks_as_the_model_leaves_them() -> None:
    extents = dlprim.Conv2d(**SHAPES)._core.loops("forward")

    winner, model, _ = searched("forward", lambda s: 1 + moves.tasks(s, extents))
    least = min(32, moves.tasks(model, extents))
    assert moves.tasks(winner.schedule, extents) >= least


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
    monkeypatch.setattr(Search, "run", lambda search, *_: Winner(model[search._which], 1.0, 5))
    assert dlprim.tune(conv, progress=None) == dict.fromkeys(PASSES, 1.0)
    assert conv.schedules == dlprim.Conv2d(**SHAPES).schedules == model


def test_path_is_another_folder(rigged: dict[str, str], folder: Path) -> None:
    other = folder / "a" / "b"
    dlprim.tune(dlprim.Conv2d(**SHAPES), path=str(other), progress=None)
    assert dlprim.Conv2d(**SHAPES).schedules != rigged
    assert len(store.load(other)) == len(PASSES)
    assert tune._seeds(dlprim.Conv2d(**SHAPES), "forward", other)[1] == rigged["forward"]


# ---------------------------------------------------------------- neighbours


@every_pass
@variants
def test_neighbours_are_refused_or_compute_the_same(which: str, layout: str, dtype: str) -> None:
    conv = dlprim.Conv2d(**SHAPES, layout=layout, dtype=dtype)
    extents, expected = conv._core.loops(which), result(conv, which)
    random, schedule, accepted = Random(1), conv.schedules[which], set()
    for _ in range(150):
        neighbour = moves.mutate(schedule, extents, random)
        levels = moves.parse(neighbour)
        assert moves.text_of(levels) == neighbour
        assert moves.normal(neighbour, extents) == neighbour
        assert {level.letter for level in levels} == extents.keys()
        try:
            conv._core.set_schedule(which, neighbour)
        except ValueError:
            continue
        assert conv.schedules[which] == neighbour
        schedule = neighbour
        if neighbour not in accepted:
            accepted.add(neighbour)
            assert_close(result(conv, which), expected, dtype)
    assert len(accepted) > 5


@pytest.mark.parametrize(
    ("text", "name", "tasks"),
    [
        ("N K c8 P", "N K P c8", 3 * 4 * 5),
        ("n k c p", "n k c p", 1),
        ("N2 P3 n K9 c2 p K", "N2 P3 n c2 p K", 2 * 2 * 4),
        ("C4 N9 K4 P5 C", "C4 C n3 k4 p5", 2 * 4),
    ],
)
def test_normal_form(text: str, name: str, tasks: int) -> None:
    extents = {"n": 3, "k": 4, "c": 8, "p": 5}
    assert moves.normal(text, extents) == name
    assert moves.tasks(text, extents) == moves.tasks(name, extents) == tasks


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("keywords", "error", "sentence"),
    [
        ({"budget_s": "1"}, TypeError, "^budget_s is of type str, expected"),
        ({"budget_s": 0}, ValueError, "^budget_s is 0, expected a positive"),
        ({"budget_s": float("nan")}, ValueError, "^budget_s is nan"),
        ({"budget_s": float("inf")}, ValueError, "^budget_s is inf"),
        ({"workers": 1.0}, TypeError, "^workers is of type float, expected"),
        ({"workers": 0}, ValueError, "^workers is 0, expected 1 to 1024"),
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
