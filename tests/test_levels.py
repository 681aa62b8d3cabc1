"""The draw of cases by ISA level: each test keeps a case, levels see others, marks are followed."""

from __future__ import annotations

import pytest

from levels import EVERY_CASE, SIZES, Case, Sizes, drawn, few, one_of_each

pytestmark = pytest.mark.any_level

MANY = [Case(f"{test}[{n}]", test) for test in ("a", "b") for n in range(100)]


@pytest.mark.parametrize("level", ["scalar", "avx2", "avx512"])
def test_a_share_of_every_test_is_drawn_and_at_least_one_case(level: str) -> None:
    alone = Case("alone", "alone")
    taken = drawn([*MANY, alone], level)
    share = SIZES.get(level, Sizes()).share
    for test in ("a", "b"):
        assert len([it for it in MANY if it.test == test and it.name in taken]) == 100 * share
    assert "alone" in taken


def test_levels_see_other_cases() -> None:
    scalar, avx2 = drawn(MANY, "scalar"), drawn(MANY, "avx2")
    assert len(scalar & avx2) < len(scalar)
    assert avx2 == drawn(reversed(MANY), "avx2")  # whatever the order of cases


def test_marks_decide_first() -> None:
    whole = [Case(f"w{n}", "w", frozenset({"every_level"})) for n in range(9)]
    once = [Case(f"o{n}", "o", frozenset({"any_level"})) for n in range(9)]
    assert drawn([*whole, *once], "avx2") == {it.name for it in whole}


def test_plain_loops_get_small_cases() -> None:
    most = SIZES["scalar"].most_products
    big = [Case(f"l{n}", "t", products=int(most) + 1 + n) for n in range(50)]
    assert drawn([*big, Case("small", "t", products=int(most))], "scalar") == {"small"}
    assert drawn(big, "scalar") == {"l0"}
    assert len(drawn(big, "avx2")) == 20
    network = Case("n", "n", frozenset({"large"}))
    assert drawn([network], "scalar") == set()
    assert drawn([network], "avx2") == {"n"}


def test_one_of_each_is_the_least() -> None:
    cases = [Case("a1", "a", products=5), Case("a2", "a", products=3), Case("b1", "b")]
    assert one_of_each(cases) == {"a2", "b1"}


def test_every_level_has_some_of_what_a_test_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EVERY_CASE, raising=False)
    assert few("abc", "avx512") == [(0, "a"), (1, "b"), (2, "c")]
    assert few(range(24), "scalar")[:2] == [(0, 0), (7, 7)]
    monkeypatch.setenv(EVERY_CASE, "1")
    assert len(few(range(24), "scalar")) == 24
