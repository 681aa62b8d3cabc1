"""What a kernel refuses: a sentence that names the argument, raised before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import dlprim

pytestmark = pytest.mark.any_level

M, N, K, BATCH = 5, 7, 3, 4

Arguments = dict[str, Any]
Change = Callable[[Arguments], Arguments]


def filled(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def arguments(addressing: str = "stride", bias: bool = False) -> Arguments:
    """A call that is in order."""
    values: Arguments = {"a": filled(BATCH, M, K), "b": filled(BATCH, K, N), "c": filled(M, N)}
    if addressing == "offset":
        for name in "ab":
            values[f"offsets_{name}"] = np.arange(BATCH) * values[name][0].nbytes
    if addressing == "address":
        values |= {"a": list(values["a"]), "b": list(values["b"])}
    if bias:
        values["bias"] = filled(N)
    return values


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 2, np.uint8)
    result = memory[2:].view(np.float32).reshape(array.shape)
    assert not result.flags.aligned
    return result


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def refused(
    error: type[Exception], match: str, change: Change, addressing: str = "stride", **made: Any
) -> Any:
    return pytest.param(error, match, change, addressing, made)


REFUSED_CALLS = {
    # No array at all.
    "a is None": refused(TypeError, "^a is of type NoneType", lambda x: {"a": None}),
    "a list": refused(TypeError, "^a is of type list", lambda x: {"a": x["a"].tolist()}),
    "b is a string": refused(TypeError, "^b is of type str", lambda x: {"b": "b"}),
    "c is bytes": refused(TypeError, "^c is of type bytes", lambda x: {"c": b"c"}),
    "bias is a list": refused(
        TypeError, "^bias is of type list", lambda x: {"bias": [0.0] * N}, bias=True
    ),
    # The wrong element type.
    **{
        f"{name} of {dtype}": refused(
            TypeError,
            f"^{name} has dtype .*expected float32",
            lambda x, name=name, dtype=dtype: {name: x[name].astype(dtype)},
            bias=True,
        )
        for name in ("a", "b", "c", "bias")
        for dtype in (">f4", "f8", "f2", "i4", "c8", "?", "O")
    },
    # Shapes.
    "a of other columns": refused(
        ValueError, r"^a has shape \(4, 5, 4\).*\(5, 3\)", lambda x: {"a": filled(BATCH, M, K + 1)}
    ),
    "b of other rows": refused(
        ValueError, "^b has shape", lambda x: {"b": filled(BATCH, K + 1, N)}
    ),
    "b of other columns": refused(ValueError, "^b has shape", lambda x: {"b": filled(BATCH, K, 1)}),
    "c transposed": refused(ValueError, r"^c has shape \(7, 5\)", lambda x: {"c": filled(N, M)}),
    "c of three dimensions": refused(ValueError, "^c has", lambda x: {"c": filled(1, M, N)}),
    "c of one dimension": refused(ValueError, "^c has shape", lambda x: {"c": filled(M * N)}),
    "a scalar": refused(ValueError, "^a has shape", lambda x: {"a": np.zeros((), np.float32)}),
    "a of four dimensions": refused(
        ValueError, "^a has shape.*stride_a", lambda x: {"a": x["a"][None]}
    ),
    "bias of other length": refused(
        ValueError, r"^bias has shape \(8,\).*\(7,\)", lambda x: {"bias": filled(N + 1)}, bias=True
    ),
    "bias as a row": refused(
        ValueError, "^bias has shape", lambda x: {"bias": filled(1, N)}, bias=True
    ),
    # Memory layout.
    "a with strided columns": refused(
        ValueError,
        "^a has shape.*contiguous rows",
        lambda x: {"a": filled(BATCH, M, 2 * K)[..., ::2]},
    ),
    "a with longer rows": refused(
        ValueError, "^a has shape.*ld=3", lambda x: {"a": filled(BATCH, M, K + 1)[..., :K]}
    ),
    "b in Fortran order": refused(
        ValueError, "^b has shape", lambda x: {"b": np.asfortranarray(x["b"])}
    ),
    "c in Fortran order": refused(
        ValueError, "^c has shape", lambda x: {"c": np.asfortranarray(x["c"])}
    ),
    "c with reversed rows": refused(ValueError, "^c has shape", lambda x: {"c": x["c"][::-1]}),
    "strided bias": refused(
        ValueError, "^bias has.*contiguous", lambda x: {"bias": filled(2 * N)[::2]}, bias=True
    ),
    **{
        f"{name} not aligned": refused(
            ValueError,
            f"^{name} has shape.*not aligned",
            lambda x, name=name: {name: unaligned(x[name])},
            bias=True,
        )
        for name in ("a", "b", "c", "bias")
    },
    "strided plain memory": refused(
        ValueError, "^a has.*contiguous memory", lambda x: {"a": filled(999)[::2], "stride_a": 60}
    ),
    # The result.
    "read-only c": refused(ValueError, "^c is read-only", lambda x: {"c": read_only(x["c"])}),
    "c repeated by a stride of zero": refused(
        ValueError, "^c has shape", lambda x: {"c": as_strided(x["c"], (M, N), (0, 4))}
    ),
    # The batch.
    "negative batch": refused(
        ValueError, "^batch is -1, expected at least 0", lambda x: {"batch": -1}
    ),
    "fractional batch": refused(TypeError, "^batch is of type float", lambda x: {"batch": 1.0}),
    "endless batch": refused(ValueError, "^batch does not fit", lambda x: {"batch": 2**63}),
    "batch too large": refused(
        ValueError, "^a holds 4 matrices.*batch of 5", lambda x: {"batch": BATCH + 1}
    ),
    "batches differ": refused(
        ValueError, "^b holds 3 matrices.*batch of 4", lambda x: {"b": x["b"][:3]}
    ),
    # Strides.
    "stride missing": refused(
        ValueError, "^stride_a is missing", lambda x: {"a": x["a"][0], "batch": BATCH}
    ),
    "stride of a wrong type": refused(
        TypeError, "^stride_a is of type str", lambda x: {"a": x["a"].ravel(), "stride_a": "60"}
    ),
    "stride does not fit": refused(
        ValueError, "^stride_b does not fit", lambda x: {"b": x["b"].ravel(), "stride_b": -(2**64)}
    ),
    "stride not aligned": refused(
        ValueError, "matrix of a .*multiple of 4", lambda x: {"stride_a": 58, "batch": 2}
    ),
    "stride leaves the memory": refused(
        ValueError, "matrix of a .*outside the 240 bytes", lambda x: {"stride_a": 64}
    ),
    "stride leaves the memory downwards": refused(
        ValueError, "matrix of b .*outside", lambda x: {"stride_b": -84}
    ),
    "stride overflows": refused(
        ValueError,
        "(stride_a|stride_b).*64 bits",
        lambda x: {"stride_a": 2**40, "stride_b": 2**40, "batch": 2**40},
    ),
    "stride wraps around to the array": refused(
        ValueError, "64 bits|outside", lambda x: {"stride_a": 2**62, "stride_b": 0, "batch": 5}
    ),
    "plain memory too small": refused(
        ValueError, "matrix of a .*outside", lambda x: {"a": filled(M * K - 1), "batch": 1}
    ),
    # Offsets.
    **{
        f"offsets {word}": refused(
            error, match, lambda x, value=value: {"offsets_a": value}, "offset"
        )
        for word, value, error, match in [
            ("missing", None, ValueError, "^offsets_a is missing"),
            ("in a list", [0] * BATCH, TypeError, "^offsets_a is not a NumPy array"),
            ("of int32", np.zeros(BATCH, np.int32), TypeError, "^offsets_a has dtype int32"),
            ("of uint64", np.zeros(BATCH, np.uint64), TypeError, "^offsets_a has dtype uint64"),
            ("of float", np.zeros(BATCH), TypeError, "^offsets_a has dtype float64"),
            ("in a matrix", np.zeros((BATCH, 1), np.int64), TypeError, "^offsets_a has .* 2 dim"),
            ("negative", np.array([0, 0, -4, 0]), ValueError, "matrix of a .*outside"),
            ("beyond the end", np.array([0, 0, 0, 184]), ValueError, "matrix of a .*outside"),
            ("far away", np.array([0, 0, 2**62, 0]), ValueError, "matrix of a .*outside"),
            ("at the lowest int64", np.array([0, -(2**63), 0, 0]), ValueError, "matrix of a"),
            ("not aligned", np.array([0, 2, 0, 0]), ValueError, "matrix of a .*multiple of 4"),
            ("too few", np.zeros(3, np.int64), ValueError, "^a holds 3 matrices"),
        ]
    },
    "offsets of b beyond the end": refused(
        ValueError,
        "matrix of b .*outside",
        lambda x: {"offsets_b": x["offsets_b"] + 4},
        "offset",
    ),
    "memory of offsets not contiguous": refused(
        ValueError, "^b has.*contiguous memory", lambda x: {"b": filled(999)[::2]}, "offset"
    ),
    # Lists of arrays.
    "an array where a list is wanted": refused(
        TypeError, "^a is not a list or tuple", lambda x: {"a": np.array(x["a"])}, "address"
    ),
    "a list with None": refused(
        TypeError, "^b is of type NoneType", lambda x: {"b": [*x["b"][:3], None]}, "address"
    ),
    "a list with a wrong shape": refused(
        ValueError, "^b has shape", lambda x: {"b": [*x["b"][:3], filled(K, N + 1)]}, "address"
    ),
    "a list with a float64": refused(
        TypeError, "^a has dtype", lambda x: {"a": [*x["a"][:3], np.zeros((M, K))]}, "address"
    ),
    "a list with a batch": refused(
        ValueError, "^a has shape.*two dim", lambda x: {"a": [filled(1, M, K)] * BATCH}, "address"
    ),
    "a shorter list": refused(ValueError, "^b holds 3", lambda x: {"b": x["b"][:3]}, "address"),
    # What does not belong to the kernel.
    "bias missing": refused(ValueError, "^bias is missing", lambda x: {"bias": None}, bias=True),
    "bias not wanted": refused(ValueError, "^bias is given", lambda x: {"bias": filled(N)}),
    **{
        f"{name} not wanted with {addressing}": refused(
            ValueError,
            f"^{name} is given.*'{addressing}'",
            lambda x, name=name: {name: np.zeros(BATCH, np.int64) if "off" in name else 0},
            addressing,
        )
        for addressing, names in {
            "stride": ("offsets_a", "offsets_b"),
            "offset": ("stride_a", "stride_b"),
            "address": ("stride_a", "offsets_b"),
        }.items()
        for name in names
    },
}


@pytest.mark.parametrize(
    ("error", "match", "change", "addressing", "made"),
    REFUSED_CALLS.values(),
    ids=REFUSED_CALLS.keys(),
)
def test_call_is_refused_and_leaves_the_result(
    error: type[Exception], match: str, change: Change, addressing: str, made: dict[str, Any]
) -> None:
    values = arguments(addressing, **made)
    dlprim.Brgemm(M, N, K, addressing=addressing, **made)(**values)  # as it is, it is accepted
    values |= change(values)
    before = values["c"].tobytes() if isinstance(values["c"], np.ndarray) else None
    kernel = dlprim.Brgemm(M, N, K, addressing=addressing, **made)
    with pytest.raises(error, match=match):
        kernel(**values)
    assert before is None or values["c"].tobytes() == before


# ---------------------------------------------------------------- overlap

MEMORY = (M, 2 * max(M, N))


def overlapping(place: str) -> tuple[dict[str, Any], Arguments]:
    """A call whose result shares memory with the operand at `place`."""
    values = arguments(bias=True)
    made: dict[str, Any] = {"bias": True}
    memory = filled(BATCH * M * K + BATCH * K * N + M * N + N)
    values["c"] = memory[10 : 10 + M * N].reshape(M, N)
    if place == "a":
        values["a"] = memory[: BATCH * M * K].reshape(BATCH, M, K)
    elif place == "b":
        values["b"] = memory[10 + M * N - 1 :][: BATCH * K * N].reshape(BATCH, K, N)
    elif place == "bias":
        values["bias"] = values["c"][M - 1]
    elif place == "stride":  # the second matrix of A is C, between the rows of the view
        both = filled(BATCH, M, 2 * K)
        made |= {"lda": 2 * K, "ldc": 2 * K}
        values |= {"a": both[..., :K], "stride_a": 4 * K, "c": both[0, :, K:], "batch": 2}
        values |= {"b": filled(BATCH, K, K), "bias": filled(K)}
    return made, values


@pytest.mark.parametrize("place", ["a", "b", "bias", "stride"])
def test_overlapping_result_is_refused(place: str) -> None:
    made, values = overlapping(place)
    kernel = dlprim.Brgemm(M, values["b"].shape[2], K, **made)
    before = values["c"].tobytes()
    name = "a" if place == "stride" else place
    with pytest.raises(ValueError, match=f"^c shares memory with {name}"):
        kernel(**values)
    assert values["c"].tobytes() == before
