"""Scores of documents: BM25 for words, and functions of field values.

BM25 has the parameters of Tantivy: k1 is 1.2, b is 0.75, the weight of a term is ``ln(1 + (N - n +
0.5) / (n + 0.5))``, and lengths are rounded down to one of 256 steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_K1, _B = 1.2, 0.75


def idf(documents: int, having: int) -> float:
    """Return the weight of a term that occurs in ``having`` of ``documents`` documents."""
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))


def _step(code: int) -> int:
    if code < 24:
        return code
    bits, shift = (code - 24) & 7, (code - 24 >> 3) - 1
    return 24 + (bits if shift < 0 else (bits | 8) << shift)


_STEPS = [_step(code) for code in range(256)]


def rounded_length(length: int) -> int:
    """Return the length of a text as the index stores it: exact up to 40 tokens, then rounded down."""
    return length if length <= 40 else _STEPS[bisect_right(_STEPS, length) - 1]


def bm25(weight: float, often: int, length: int, average: float) -> float:
    """Return the score of a term that occurs ``often`` times in a text of ``length`` tokens."""
    norm = _K1 * (1 - _B + _B * rounded_length(length) / average)
    return weight * (1 + _K1) * often / (often + norm)


# -- score functions -------------------------------------------------------------------------------

MODIFIERS: Mapping[str, Callable[[float], float]] = {
    "NONE": lambda x: x,
    "LOG": math.log10,
    "LOG1P": lambda x: math.log10(1 + x),
    "LOG2P": lambda x: math.log10(2 + x),
    "LN": math.log,
    "LN1P": lambda x: math.log(1 + x),
    "LN2P": lambda x: math.log(2 + x),
    "SQUARE": lambda x: x * x,
    "SQRT": math.sqrt,
    "RECIPROCAL": lambda x: 1 / x,
}


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A ``FIELDVALUE`` of SCOREFUNC: a numeric field, and a modifier for its value."""

    field: str
    modifier: str = "NONE"
    factor: float = 1.0
    missing: float = 0.0

    def of(self, value: float | None) -> float:
        """Apply the modifier and the factor to a value or, if that fails, to ``missing``."""
        for one in (value, self.missing):
            modified = None if one is None else self._modified(one)
            if modified is not None:
                return modified * self.factor
        return self.missing * self.factor

    def _modified(self, value: float) -> float | None:
        try:
            found = MODIFIERS[self.modifier](float(value))
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        return found if math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class ScoreFunction:
    """A SCOREFUNC, which computes a score from field values.

    ``combine`` (SUM or MULTIPLY) combines several field values. ``mode`` (SUM, MULTIPLY or REPLACE)
    combines the result with the relevance score. Both default to SUM (decided here: the vendor's
    reference says SUM, the guide says MULTIPLY).
    """

    values: tuple[FieldValue, ...]
    mode: str = "SUM"
    combine: str = "SUM"

    def score(self, relevance: float, values: list[float | None]) -> float:
        """Return the score of a document, given one value for each of ``self.values``."""
        parts = [each.of(value) for each, value in zip(self.values, values, strict=True)]
        own = math.prod(parts) if self.combine == "MULTIPLY" else sum(parts)
        if self.mode == "REPLACE":
            return own
        return relevance * own if self.mode == "MULTIPLY" else relevance + own
