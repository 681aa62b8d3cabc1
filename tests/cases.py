"""The shapes that tests run over, each group with the reason why it is here."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple


class Brgemm(NamedTuple):
    m: int
    n: int
    k: int
    batch: int


class Linear(NamedTuple):
    N: int
    C: int
    K: int


# What the benchmark measures: workloads/brgemm.csv.
WORKLOADS = [
    Brgemm(64, 64, 64, 16),  # square cache block
    Brgemm(32, 32, 32, 16),  # small block
    Brgemm(28, 64, 64, 9),  # 3x3 convolution, row of a 28-wide map
    Brgemm(14, 64, 64, 9),  # 3x3 convolution, row of a 14-wide map
    Brgemm(7, 64, 64, 9),  # 3x3 convolution, row of a 7-wide map
    Brgemm(56, 64, 64, 4),  # 1x1 convolution on a 56-wide map
    Brgemm(49, 64, 64, 8),  # 1x1 convolution on a fused 7x7 map
    Brgemm(6, 16, 64, 16),  # one-vector tile
    Brgemm(24, 64, 64, 16),  # batch block of a recurrent network
    Brgemm(64, 16, 64, 16),  # narrow n
    Brgemm(64, 48, 64, 16),  # three vectors
    Brgemm(64, 64, 64, 1),  # single GEMM
    Brgemm(32, 32, 32, 1),  # single small GEMM
    Brgemm(16, 16, 16, 1),  # tiny GEMM
    Brgemm(8, 8, 8, 1),  # half a vector of AVX-512
    Brgemm(17, 13, 19, 5),  # all tails
    Brgemm(1, 64, 64, 16),  # m = 1, like GEMV
    Brgemm(5, 100, 33, 3),  # tails in m and n, odd k
]

# One, one below, at and above a vector of AVX-512, in every position.
AROUND_A_VECTOR = [Brgemm(m, n, k, 2) for m, n, k in product((1, 15, 16, 17), repeat=3)]

# Nothing divides a prime.
PRIMES = [
    Brgemm(*shape)
    for shape in [
        (2, 3, 5, 7),
        (7, 11, 13, 2),
        (19, 23, 29, 3),
        (31, 37, 41, 2),
        (43, 47, 53, 1),
        (59, 61, 67, 2),
        (71, 73, 79, 1),
        (97, 101, 103, 1),
    ]
]

# Every remainder of n by both vector lengths, and every number of vectors in a column block.
COLUMNS = [Brgemm(3, n, 5, 2) for n in (*range(1, 34), 47, 48, 49, 63, 64, 65, 80, 96, 127, 128)]

# Every height of a register tile at one, two, three and four vectors, and one row more.
ROWS = [Brgemm(m, n, 5, 2) for n in (16, 32, 48, 64) for m in (*range(1, 16), 27, 28, 29, 30, 31)]

# k below, at and above four (elements of A are loaded in fours), the unrolling and its remainder.
DEPTHS = [
    Brgemm(m, n, k, 2)
    for (m, n) in ((1, 1), (2, 40), (6, 16), (28, 16))
    for k in (2, 3, 4, 6, 7, 8, 12, 31, 32, 33, 63, 65, 127, 447, 448, 449, 1000)
]

# The batch is a run-time argument.
BATCHES = [Brgemm(4, 20, 6, batch) for batch in (0, 1, 3, 10, 1000)]

BRGEMM = sorted({*WORKLOADS, *AROUND_A_VECTOR, *PRIMES, *COLUMNS, *ROWS, *DEPTHS, *BATCHES})

# Shapes for everything besides the shape: each is planned differently at every ISA level.
SMALL = [
    Brgemm(1, 1, 1, 1),
    Brgemm(5, 7, 3, 0),
    Brgemm(1, 16, 9, 3),
    Brgemm(3, 24, 4, 2),
    Brgemm(16, 16, 16, 2),
    Brgemm(17, 13, 19, 5),
    Brgemm(6, 100, 33, 3),
    Brgemm(33, 65, 17, 2),
    Brgemm(29, 31, 70, 2),
]

# Every pair of these properties occurs together somewhere. "memory" is addressing by stride where
# the operand is a plain vector and the strides are arguments.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "begin": {"edge": "begin"},
    "beta": {"beta": 1},
    "trans_a": {"trans_a": True},
    "bias": {"bias": True},
    "relu": {"activation": "relu"},
    "ld": {"slack": (1, 2, 3)},
    "memory": {"addressing": "memory", "bias": True, "activation": "relu"},
    "memory_ld": {"addressing": "memory", "slack": (16, 16, 16), "beta": 1, "trans_a": True},
    "offset": {"addressing": "offset", "bias": True, "edge": "begin"},
    "offset_ld": {"addressing": "offset", "slack": (3, 1, 2), "activation": "relu"},
    "offset_trans_a": {"addressing": "offset", "beta": 1, "trans_a": True},
    "address": {"addressing": "address", "activation": "relu", "edge": "begin"},
    "address_ld": {"addressing": "address", "slack": (2, 3, 1), "bias": True, "beta": 1},
    "address_trans_a": {"addressing": "address", "trans_a": True, "slack": (5, 5, 5)},
    "all": {
        "trans_a": True,
        "beta": 1,
        "bias": True,
        "activation": "relu",
        "slack": (7, 9, 11),
        "edge": "begin",
    },
}

LINEAR = [
    # Nothing at all, in every position.
    Linear(0, 0, 0),
    Linear(0, 3, 5),
    Linear(3, 0, 5),
    Linear(3, 5, 0),
    Linear(0, 0, 5),
    # A single element, and one below, at and above a vector.
    Linear(1, 1, 1),
    Linear(1, 17, 1),
    Linear(1, 1, 16),
    Linear(15, 16, 17),
    Linear(17, 15, 16),
    Linear(16, 17, 15),
    # One below, at and above the blocks of 64 rows and 64 columns.
    Linear(63, 65, 64),
    Linear(64, 64, 65),
    Linear(65, 63, 63),
    Linear(2, 3, 130),
    Linear(130, 3, 2),
    Linear(67, 71, 139),
    # Below, at and above the depth of 1024 that one kernel call sums up, in each of the passes.
    Linear(3, 1023, 5),
    Linear(3, 1024, 5),
    Linear(3, 1025, 70),
    Linear(2, 2600, 3),
    Linear(3, 5, 1030),
    Linear(1030, 3, 5),
    # The layers of python -m dlprim.train.
    Linear(32, 64, 128),
    Linear(32, 128, 10),
]
