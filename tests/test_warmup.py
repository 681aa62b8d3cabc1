"""Generating kernels ahead of time."""

from __future__ import annotations

import pytest

import dlprim

pytestmark = pytest.mark.any_level

SPECS = [
    {"m": 64, "n": 64, "k": 64},
    {"m": 8, "n": 8, "k": 8, "dtype": "bfloat16"},
    {"m": 3, "n": 40, "k": 5, "bias": True, "activation": "relu", "isa": "scalar"},
]


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    dlprim.kernel_cache_clear()


def counts() -> tuple[int, int, int]:
    info = dlprim.kernel_cache_info()
    return info["entries"], info["misses"], info["hits"]


def test_kernels_are_generated_and_kept() -> None:
    times = dlprim.warmup(SPECS)
    assert len(times) == len(SPECS)
    assert all(type(time) is float and 0 < time < 60e6 for time in times)
    assert counts() == (3, 3, 0)
    for spec in SPECS:
        dlprim.Brgemm(**spec)
    assert counts() == (3, 3, 3)


def test_cached_kernels_take_no_time() -> None:
    dlprim.Brgemm(**SPECS[1])
    first, cached, last, again = dlprim.warmup([*SPECS, SPECS[0]])
    assert first > 0 < last
    assert cached == again == 0.0
    assert dlprim.warmup(SPECS) == [0.0, 0.0, 0.0]


def test_any_iterable_of_specs_will_do() -> None:
    assert dlprim.warmup([]) == []
    assert len(dlprim.warmup({"m": m, "n": 4, "k": 5} for m in range(1, 8))) == 7
    assert counts() == (7, 7, 0)


@pytest.mark.parametrize(
    ("spec", "error", "match"),
    [
        ({"m": 4, "n": 4}, TypeError, r"^specs\[2\]: .*missing.*'k'"),
        ({"m": 4, "n": 4, "k": 4, "q": 4}, TypeError, r"^specs\[2\]: .*'q'"),
        ({"m": 4, "n": 4, "k": 4.0}, TypeError, r"^specs\[2\]: k is of type float"),
        ({"m": 0, "n": 4, "k": 4}, ValueError, r"^specs\[2\]: m=0"),
        ({"m": 4, "n": 4, "k": 4, "beta": 2}, ValueError, r"^specs\[2\]: beta is 2"),
        ({"m": 4, "n": 4, "k": 4, "isa": "sse"}, ValueError, r"^specs\[2\]: isa: 'sse'"),
        ((4, 4, 4), TypeError, r"^specs\[2\] is of type tuple, expected a mapping"),
    ],
)
def test_bad_spec_is_named_and_those_before_it_stay(
    spec: object, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        dlprim.warmup([*SPECS[:2], spec, SPECS[2]])
    assert counts() == (2, 2, 0)
    assert dlprim.warmup(SPECS[:2]) == [0.0, 0.0]


def test_specs_that_are_no_iterable_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^specs is 3, expected an iterable"):
        dlprim.warmup(3)
