"""tune of compiled formulas: all choices compute the same; what is found is used and kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from dlprim import schedule_store as store
from dlprim.tuning import moves
from dlprim.tuning.moves import Decision
from dlprim.tuning.passes import pass_of
from dlprim.tuning.search import Choices, Search, Winner

FCRELU = """
def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
    y(n,o) +=! x(n,i) * w(o,i)
    y(n,o) = fmax(y(n,o) + b(o), 0)
}"""
ATTENTION = """
def attention(float(B,Q,D) q, float(B,K,D) k, float(B,K,D) v) -> (o) {
    s(b,i,j) +=! 0.125 * q(b,i,d) * k(b,j,d)
    highest(b,i) max=! s(b,i,j)
    s(b,i,j) = exp(s(b,i,j) - highest(b,i))
    total(b,i) +=! s(b,i,j)
    o(b,i,d) +=! s(b,i,j) * v(b,j,d)
    o(b,i,d) = o(b,i,d) / total(b,i)
}"""
LOOKUP = """
def lookup(float(E,D) table, int64(B,L) words, float(K,D) w) -> (y) {
    bag(b,d) +=! table(words(b,l),d)
    y(b,k) +=! bag(b,d) * w(k,d)
}"""
SGEMM = """
def sgemm(float(M,K) a, float(K,N) b) -> (c) {
    c(i,j) = 0.5 * c(i,j)
    c(i,j) += a(i,k) * b(k,j)
}"""
STEPS = """
def steps(float(N,C,H,W) x, float(K,C,R,S) w, float(M,K) u) -> (y) {
    t(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)
    y(n,m,p,q) +=! relu(t(n,k,p,q)) * u(m,k)
}"""
CHAIN = (
    "def chain(float(I,K) a, float(K,L) b, float(L,J) c) -> (y) { y(i,j) +=! a(i,k)*b(k,l)*c(l,j) }"
)
FEW = "def few(float(M,K) x, float(N,K) w) -> (y) { y(m,n) +=! x(m,k) * w(n,k) }"
CASES = [
    (FCRELU, [(33, 70), (50, 70), (50,)], "float32"),
    (FCRELU, [(33, 70), (50, 70), (50,)], "bfloat16"),
    (ATTENTION, [(3, 37, 16), (3, 45, 16), (3, 45, 16)], "float32"),
    (LOOKUP, [(9, 40), (6, 5), (35, 40)], "float32"),
    (STEPS, [(2, 5, 9, 8), (20, 5, 3, 2), (18, 20)], "float32"),
    (CHAIN, [(30, 17), (17, 40), (40, 21)], "float32"),
    (FEW, [(3, 200), (90, 200)], "float32"),
    (FEW, [(3, 200), (90, 200)], "int8"),
]
cases = pytest.mark.parametrize(("text", "shapes", "dtype"), CASES, ids=range(len(CASES)))


@pytest.fixture(autouse=True)
def folder(stored_schedules: Path) -> Path:
    return stored_schedules


def compiled(
    text: str = FCRELU, shapes: Any = CASES[0][1], dtype: str = "float32"
) -> dlprim.lang.CompiledFormula:
    (layer,) = dlprim.define(text)
    # A layer that is new: the old one keeps what was compiled.
    return dlprim.lang.Definition(layer._definition).compile(*shapes, dtype=dtype)


def rig(monkeypatch: pytest.MonkeyPatch, choices: Choices) -> None:
    monkeypatch.setattr(Search, "run", lambda *_: Winner(choices, 1.5, 1))


def other_choices(formula: dlprim.lang.CompiledFormula) -> Choices:
    """The second one of what can run its products."""
    changes = {
        name: options[1]
        for name, _, options, _ in formula._formula.decisions(1)
        if name.startswith("product")
    }
    return {name: chosen for name, chosen, *_ in formula._made(changes).decisions(1)}


# ---------------------------------------------------------------- results


@cases
def test_all_choices_compute_the_same(text: str, shapes: Any, dtype: str) -> None:
    work = pass_of(compiled(text, shapes, dtype), "formula")
    model = work.made({})
    decisions, expected = work.decisions(model), work.result(model)
    random, seen = Random(3), set[Any]()
    for step in range(60):
        current = decisions if step % 6 else work.decisions(model)
        changed = moves.changed(current, random)
        core = work.made({name: it.chosen for name, it in changed.items()})
        decisions = work.decisions(core)
        seen.add(tuple(it.chosen for it in decisions.values()))
        with dlprim.threads(2):
            result = work.result(core)
        assert work.agree(result, expected), decisions
        with dlprim.threads(1):
            again = work.result(core)
        for one, other in zip(result, again, strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(seen) > 4


@cases
def test_steps_near_the_end_of_integers_compute_the_same(
    text: str, shapes: Any, dtype: str
) -> None:
    work = pass_of(compiled(text, shapes, dtype), "formula")
    model = work.made({})
    expected = work.result(model)
    for name, order, *_ in model.decisions(1):
        for level in order.split() if name.startswith("order") else ():
            endless = order.replace(level, f"{level[0]}{2**63 - 1}")
            assert work.agree(work.result(work.made({name: endless})), expected), endless


def test_what_is_read_before_it_is_written_is_no_number_that_hides_mistakes() -> None:
    work = pass_of(compiled_sgemm(), "formula")
    (result,) = work.result(work.made({}))
    assert np.isfinite(result).all()
    assert not work.agree([result + 1], [result])


def compiled_sgemm() -> dlprim.lang.CompiledFormula:
    (layer,) = dlprim.define(SGEMM)
    a, b, c = (np.ones(shape, np.float32) for shape in ((20, 30), (30, 40), (20, 40)))
    layer(a, b, out=c)
    return next(reversed(layer._compiled.values()))


@cases
def test_tuned_computes_the_same(text: str, shapes: Any, dtype: str) -> None:
    formula = compiled(text, shapes, dtype)
    work = pass_of(formula, "formula")
    expected = work.result(formula._formula)
    lines = list[str]()
    assert formula.tune(seconds=0.1, progress=lines.append) >= 1.0
    assert lines[-1].startswith("formula, ")
    assert work.agree(work.result(formula._formula), expected)
    assert compiled(text, shapes, dtype).schedule == formula.schedule


def test_calls_meanwhile_are_right() -> None:
    formula, random = compiled(), np.random.default_rng(0)
    arrays = [random.standard_normal(shape, np.float32) for shape in CASES[0][1]]
    x, w, b = arrays
    with ThreadPoolExecutor(3) as pool:
        tuned = pool.submit(formula.tune, seconds=0.3, progress=None)
        while not tuned.done():
            for y in pool.map(lambda _: formula(*arrays), range(4)):
                np.testing.assert_allclose(y, np.maximum(x @ w.T + b, 0), rtol=1e-4, atol=1e-4)
    assert tuned.result() >= 1.0


# ---------------------------------------------------------------- what is kept


def test_winners_are_used_and_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run_python: RunPython
) -> None:
    formula = compiled()
    choices = other_choices(formula)
    rig(monkeypatch, choices)
    before = formula.explain()
    assert dlprim.tune(formula, 1, progress=None) == {"formula": 1.5}
    assert formula.schedule == choices
    assert formula.explain() != before
    assert compiled().schedule == choices
    assert compiled(FCRELU, [(34, 70), (50, 70), (50,)]).schedule != choices
    assert compiled(FCRELU, CASES[0][1], "bfloat16").schedule != choices
    source = (
        "import dlprim\n"
        f"(layer,) = dlprim.define({FCRELU!r})\n"
        f"print(layer.compile(*{CASES[0][1]!r}).schedule)"
    )
    run = run_python(source)
    assert (run.stdout, run.stderr) == (f"{choices}\n", "")
    run = run_python(source, DLPRIM_TUNE="0")
    assert run.stdout != f"{choices}\n"


@pytest.mark.parametrize(
    "schedule",
    ["n k c", {}, {"product 1": "by magic"}, {"order 1": "x y z"}, {"order 1": ""}, {"other": "n"}],
    ids=str,
)
def test_schedule_that_does_not_fit_is_ignored(folder: Path, schedule: Any) -> None:
    formula = compiled()
    store.save(folder, {formula._stored_as: {"schedule": schedule, "gain": 2.0}})
    with pytest.warns(RuntimeWarning, match="is ignored: it does not fit"):
        assert compiled().schedule == formula.schedule
    assert compiled().schedule == formula.schedule


def test_formulas_without_decisions_have_nothing_to_tune() -> None:
    formula = compiled("def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }", [(5,)])
    lines = list[str]()
    assert formula.schedule == {}
    assert formula.tune(seconds=5, progress=lines.append) == 1.0
    assert "has nothing to tune" in lines[0]


def test_what_a_definition_is_called_with_can_be_tuned() -> None:
    (layer,) = dlprim.define(FCRELU)
    with pytest.raises(TypeError, match=r"^primitive is of type Definition, expected .* compile"):
        dlprim.tune(layer)
    x, w, b = (np.ones(shape, np.float32) for shape in CASES[0][1])
    expected = layer(x, w, b)
    assert layer.latest is not None
    layer.latest.tune(generations=1, population=3, seconds=0.2, seed=7, progress=None)
    np.testing.assert_allclose(layer(x, w, b), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("keywords", "error", "sentence"),
    [
        ({"seconds": 0}, ValueError, "^seconds is 0, expected a positive"),
        ({"population": 0}, ValueError, "^population is 0, expected an integer of at least 1"),
        ({"seed": 1.5}, TypeError, "^seed is 1.5, expected an integer"),
        ({"weight": 1}, TypeError, "weight"),
    ],
)
def test_refused(keywords: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        compiled().tune(**keywords)


# ---------------------------------------------------------------- children


def test_children_take_each_choice_from_a_parent() -> None:
    loops = {"a": 8, "b": 8}
    parents = [
        {
            "product": Decision(way, ["in place", "packed"], {}),
            "order": Decision(order, ["a b"], loops if way == "in place" else {"a": 4}),
        }
        for way, order in (("in place", "a2 B a"), ("packed", "a"), ("in place", "B4 A b"))
    ]
    random = Random(0)
    made = {tuple(it.chosen for it in moves.child(parents, random).values()) for _ in range(100)}
    assert {way for way, _ in made} == {"in place", "packed"}
    assert len(made) > 4
