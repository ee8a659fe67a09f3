"""Turning text into vectors, the same text always into the same ones.

The built-in embedder hashes words and their character trigrams into a dense vector, so texts that
share words or parts of words are near, and gives stemmed words BM25 weights for a sparse one (k1
1.2, b 0.75, average length 32, stop words left out: the parameters of the vendor's BM25 model). It
knows nothing of meaning; a callable or a mapping from text to vector takes its place where a test
needs that.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .model import Floats, SparseVector

__all__ = ["MODELS", "Embedder", "Embedding", "hash_dense", "hash_sparse"]

WORD = re.compile(r"\w+")
TRIGRAM_WEIGHT = 0.5
K1 = 1.2
B = 0.75
AVERAGE_LENGTH = 32
DEFAULT_DIMENSION = 384

MODELS: Mapping[str, int] = {
    "bge-small-en": 384,
    "bge-base-en": 768,
    "bge-large-en": 1024,
    "bge-m3": 1024,
    "bm25": 0,
}
"""The vendor's models and their dense dimensions; their names may be given as ``embedding``."""

STOP_WORDS = frozenset(
    WORD.findall(
        """
        a about above after again all also am an and any are as at be because been before being
        below between both but by can did do does doing down during each few for from further had
        has have having he her here hers him his how i if in into is it its itself just me more
        most my no nor not now of off on once only or other our ours out over own same she so some
        such than that the their theirs them then there these they this those through to too under
        until up very was we were what when where which while who whom why will with you your
        yours
        """
    )
)


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vectors of one text; the index takes the ones its kind needs."""

    dense: Any = None
    sparse: Any = None


Embedder = Callable[[str], Embedding]


def words(text: str) -> list[str]:
    """The lower-cased words of a text."""
    return WORD.findall(text.lower())


def hash_dense(text: str, dimension: int) -> Floats:
    """A unit vector of signed hashes of words and trigrams;

    the zero vector where there is no word.
    """
    total = np.zeros(dimension, np.float64)
    for word, count in Counter(words(text)).items():
        _add(total, f"w:{word}", count)
        framed = f"<{word}>"
        for start in range(len(framed) - 2):
            _add(total, f"t:{framed[start : start + 3]}", TRIGRAM_WEIGHT * count)
    norm = float(np.linalg.norm(total))
    return (total / norm if norm else total).astype(np.float32)


def _add(total: np.ndarray[Any, np.dtype[np.float64]], token: str, weight: float) -> None:
    hashed = zlib.crc32(token.encode())
    total[(hashed >> 1) % len(total)] += weight if hashed & 1 else -weight


def stem(word: str) -> str:
    """The word without the commonest English endings: related forms meet at one stem."""
    for ending, replacement in (("ies", "y"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + replacement
            break
    else:
        if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
            word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def hash_sparse(text: str, *, query: bool = False) -> SparseVector:
    """BM25 weights of the stemmed words; every word of a query weighs 1."""
    terms = [stem(word) for word in words(text) if word not in STOP_WORDS]
    length = K1 * (1 - B + B * len(terms) / AVERAGE_LENGTH)
    weights: dict[int, float] = {}
    for term, count in Counter(terms).items():
        dimension = zlib.crc32(term.encode()) >> 1
        weight = 1.0 if query else count * (K1 + 1) / (count + length)
        weights[dimension] = weights.get(dimension, 0.0) + weight
    count = len(weights)
    return SparseVector(
        np.fromiter(weights, np.int32, count), np.fromiter(weights.values(), np.float32, count)
    )
