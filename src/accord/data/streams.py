"""Random numbers by purpose, so that asking for one more thing leaves all others as they were."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from accord.data.federated import Index


def stream(seed: int, purpose: str, *whose: int) -> np.random.Generator:
    """Random numbers for one purpose, perhaps of one client; asking for another purpose does not move them."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *whose]))


def per_image(seed: int, purpose: str, client: int, index: Index) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each image of a client, fixed by its pool position.

    Positions are mixed by the SplitMix64 function: as good as random draws here, and in any order.
    """
    start = stream(seed, purpose, client).integers(0, 2**64, dtype=np.uint64)
    z = (np.asarray(index, dtype=np.uint64) + start) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
