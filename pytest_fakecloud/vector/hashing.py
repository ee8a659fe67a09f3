"""Deterministic vectors of a text, computed from hashes of its words instead of by a model.

A dense vector contains words and their character trigrams, so texts that share words or parts of
words are close. A sparse vector contains stemmed words with BM25 weights; the parameters are those
of the vendor's BM25 model. Texts with the same meaning but different words are not close.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import Any

import numpy as np

from .model import Floats, SparseVector

TRIGRAM_WEIGHT = 0.5
# The parameters of BM25: the saturation of repeated words, the influence of a text's length, and
# the average number of words in a text.
K1 = 1.2
B = 0.75
AVERAGE_LENGTH = 32

_STOP_WORDS = """
a about above after again all also am an and any are as at be because been before being
below between both but by can did do does doing down during each few for from further had
has have having he her here hers him his how i if in into is it its itself just me more
most my no nor not now of off on once only or other our ours out over own same she so some
such than that the their theirs them then there these they this those through to too under
until up very was we were what when where which while who whom why will with you your
yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def words(text: str) -> list[str]:
    """Return the lower-cased words of a text, or its punctuation characters if it has no words."""
    lower = text.lower()
    return re.findall(r"\w+", lower) or lower.split() or [lower]


def hash_dense(text: str, dimension: int) -> Floats:
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


def stem(word: str) -> str:
    """Return a word without the most common English endings, so that related forms share a stem."""
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
    """Return hashes of the stemmed words with their BM25 weights, or the weight 1 in a query.

    If a text contains only stop words, they are kept, because a sparse vector cannot be empty.
    """
    found = words(text)
    terms = [stem(word) for word in found if word not in STOP_WORDS] or found
    saturation = K1 * (1 - B + B * len(terms) / AVERAGE_LENGTH)
    weights: dict[int, float] = {}
    for term, count in Counter(terms).items():
        dimension = zlib.crc32(term.encode()) >> 1
        weight = 1.0 if query else count * (K1 + 1) / (count + saturation)
        weights[dimension] = weights.get(dimension, 0.0) + weight
    count = len(weights)
    return SparseVector(
        np.fromiter(weights, np.int32, count), np.fromiter(weights.values(), np.float32, count)
    )
