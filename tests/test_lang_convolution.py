"""Formulas of convolutions by 3x3 filters, which are Winograd's algorithm where they lie so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import schedule_store as store
from drawing import RNG

N, C, K, H, W = 2, 64, 48, 24, 20
X = RNG.standard_normal((N, C, H, W)).astype(np.float32)
FILTERS = RNG.standard_normal((K, C, 3, 3)).astype(np.float32)
BIAS = RNG.standard_normal(K).astype(np.float32)
LAST = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
WINOGRAD = "a convolution by Winograd's algorithm"
INNER = "y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)"
PADDED = f"y(n,k,p,q) +=! x?(n,c,p+r-1,q+s-1) * w(k,c,r,s) where p in 0:{H}, q in 0:{W}"


def layer(text: str, parameters: str = "float(N,C,H,W) x, float(K,C,R,S) w") -> Any:
    return dlprim.define(f"def f({parameters}) -> (y) {{ {text} }}").f


def directly(padding: int, **keywords: Any) -> Any:
    return dlprim.conv2d(X, FILTERS, padding=padding, algorithm="direct", **keywords)


def runs(definition: Any, *arrays: Any) -> tuple[Any, bool]:
    """The result, and whether Winograd's algorithm made it."""
    made = definition.compile(*(it.shape for it in arrays))
    return definition(*arrays), WINOGRAD in made.explain()


def agree(found: Any, right: Any) -> None:
    largest = max(np.abs(right).max(), np.abs(directly(0)).max())
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize(("text", "padding"), [(INNER, 0), (PADDED, 1)], ids=["inner", "padded"])
def test_channels_first(text: str, padding: int) -> None:
    found, is_winograd = runs(layer(text), X, FILTERS)
    assert is_winograd
    agree(found, directly(padding))
    one, is_winograd = runs(layer(text), X[:1], FILTERS)
    assert is_winograd
    agree(one, directly(padding)[:1])


def test_filters_as_the_first_factor() -> None:
    found, is_winograd = runs(layer("y(n,k,p,q) +=! w(k,c,r,s) * x(n,c,p+r,q+s)"), X, FILTERS)
    assert is_winograd
    agree(found, directly(0))


def test_channels_last() -> None:
    text = layer("y(n,p,q,k) +=! x(n,p+r,q+s,c) * w(k,c,r,s)", "float(N,H,W,C) x, float(K,C,R,S) w")
    found, is_winograd = runs(text, LAST, FILTERS)
    assert is_winograd
    agree(found, directly(0).transpose(0, 2, 3, 1))


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
def test_a_bias_and_an_activation_are_part_of_it(activation: str | None) -> None:
    end = "y(n,k,p,q) = " + (activation or "") + "(y(n,k,p,q) + b(k))"
    definition = layer(f"{INNER} {end}", "float(N,C,H,W) x, float(K,C,R,S) w, float(K) b")
    found, is_winograd = runs(definition, X, FILTERS, BIAS)
    assert is_winograd
    assert "then, in place" not in definition.compile(X.shape, FILTERS.shape, (K,)).explain()
    agree(found, directly(0, bias=BIAS, activation=activation))


def test_a_bias_of_pixels_is_added_behind_it() -> None:
    text = f"{INNER} y(n,k,p,q) = y(n,k,p,q) + b(q)"
    along = RNG.standard_normal(W - 2).astype(np.float32)
    definition = layer(text, "float(N,C,H,W) x, float(K,C,R,S) w, float(Q) b")
    agree(definition(X, FILTERS, along), directly(0) + along)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (
            "y(n,k,p,q) +=! x(n,c,p+2*r,q+2*s) * w(k,c,r,s)",
            lambda: directly(0, dilation=2),
        ),
        (
            "y(n,k,p,q) +=! x(n,c,2*p+r,2*q+s) * w(k,c,r,s)",
            lambda: directly(0, stride=2),
        ),
        (
            "y(n,k,p,q) +=! x(n,c,p+2-r,q+2-s) * w(k,c,r,s)",
            lambda: dlprim.conv2d(X, FILTERS[:, :, ::-1, ::-1].copy(), algorithm="direct"),
        ),
        (
            "y(n,k,p,q) +=! x(n,c,p+s,q+r) * w(k,c,r,s)",
            lambda: dlprim.conv2d(X, FILTERS.swapaxes(2, 3).copy(), algorithm="direct"),
        ),
        (
            "y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s) where p in 0:20, q in 0:17",
            lambda: directly(0)[:, :, :20, :17],
        ),
        ("y(n,p,k,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)", lambda: directly(0).swapaxes(1, 2)),
        ("y(n,k,p,q) +=! 2.0 * x(n,c,p+r,q+s) * w(k,c,r,s)", lambda: 2 * directly(0)),
    ],
    ids=["dilated", "strided", "mirrored", "turned", "a part", "result in another order", "scaled"],
)
def test_what_looks_like_it_is_summed_directly(text: str, right: Any) -> None:
    found, is_winograd = runs(layer(text), X, FILTERS)
    assert not is_winograd
    agree(found, right())


def test_short_sums_and_bfloat16_are_direct() -> None:
    few = np.ascontiguousarray(X[:, :3]), np.ascontiguousarray(FILTERS[:, :3])
    assert not runs(layer(INNER), *few)[1]
    made = layer(INNER).compile(X.shape, FILTERS.shape, dtype=dlprim.to_bfloat16(X).dtype)
    assert WINOGRAD not in made.explain()


def test_who_asks_for_direct_convolutions_gets_sums() -> None:
    definition = layer(INNER)
    assert runs(definition, X, FILTERS)[1]
    dlprim.set_conv_algorithm("direct")
    try:
        found, is_winograd = runs(definition, X, FILTERS)
        assert not is_winograd
        agree(found, directly(0))
    finally:
        dlprim.set_conv_algorithm("auto")
    assert runs(definition, X, FILTERS)[1]


def test_einsum_on_windows_asks_who_is_set_now() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), (2, 3))
    try:
        fast, _ = (dlprim.einsum("ncpqrs,kcrs->nkpq", windows, FILTERS) for _ in range(2))
        dlprim.set_conv_algorithm("direct")
        slow = dlprim.einsum("ncpqrs,kcrs->nkpq", windows, FILTERS)
    finally:
        dlprim.set_conv_algorithm("auto")
    agree(fast, slow)
    assert not np.array_equal(fast, slow)


def test_what_was_tuned_is_kept_while_convolutions_are_direct(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    definition = layer(INNER)
    tuned = dict(definition.compile(X.shape, FILTERS.shape).schedule)
    assert "Winograd's algorithm" in tuned.values()
    monkeypatch.setattr(store, "stored", lambda name: tuned)
    monkeypatch.setattr(store, "ignore", lambda name, why: pytest.fail(why))
    try:
        dlprim.set_conv_algorithm("direct")
        assert not runs(definition, X, FILTERS)[1]
    finally:
        dlprim.set_conv_algorithm("auto")
    assert dict(definition.compile(X.shape, FILTERS.shape).schedule) == tuned


def test_any_number_of_threads_gives_the_same_bits() -> None:
    definition, before = layer(PADDED), dlprim.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            dlprim.set_num_threads(threads)
            results.append(definition(X, FILTERS))
    finally:
        dlprim.set_num_threads(before)
    assert all(np.array_equal(results[0], it) for it in results)
