"""The generator that tests draw numbers from: seeded anew for every case, from its name.

What a case draws therefore does not depend on which cases ran before it, in which order, or where.
A fixture of a module that drew would get the numbers of the case that asks for it first.
"""

from __future__ import annotations

import zlib

import numpy as np

RNG = np.random.default_rng()


def seed_by(name: str) -> None:
    RNG.bit_generator.state = np.random.default_rng(zlib.crc32(name.encode())).bit_generator.state
