"""The deterministic embedding of text, in place of the service's models.

A vector contains hashes of words and of their character trigrams, so texts that share words or parts
of words are close. The hashes do not know the meaning of words.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import Any

import numpy as np

from .dense import Floats

DEFAULT_DIMENSION = 384
TRIGRAM_WEIGHT = 0.5


def words(text: str) -> list[str]:
    """Return the lower-cased words of a text, or its punctuation characters if it has no words."""
    lower = text.lower()
    return re.findall(r"\w+", lower) or lower.split() or [lower]


def hash_dense(text: str, dimension: int = DEFAULT_DIMENSION) -> Floats:
    """Return a unit vector of signed hashes of words and trigrams."""
    total = np.zeros(dimension, np.float64)
    for word, count in Counter(words(text)).items():
        _add(total, f"w:{word}", count)
        framed = f"<{word}>"
        for start in range(len(framed) - 2):
            _add(total, f"t:{framed[start : start + 3]}", TRIGRAM_WEIGHT * count)
    if not total.any():  # With few dimensions, the signed hashes can cancel each other out.
        total[zlib.crc32(text.encode()) % dimension] = 1
    return (total / np.linalg.norm(total)).astype(np.float32)


def _add(total: np.ndarray[Any, np.dtype[np.float64]], token: str, weight: float) -> None:
    hashed = zlib.crc32(token.encode())
    total[(hashed >> 1) % len(total)] += weight if hashed & 1 else -weight
