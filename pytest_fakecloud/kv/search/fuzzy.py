"""Terms within a few edits of a word, found without looking at every term.

The terms are sorted, so that those that begin alike stand together: the rows of the edit distance
are shared along common beginnings, and where no continuation can come near, all terms with that
beginning are skipped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

__all__ = ["near"]

_LAST = "\U0010ffff"


def near(
    terms: list[str], word: str, distance: int, cheap_swap: bool = True, prefix: bool = False
) -> Iterator[str]:
    """The terms of a sorted list at most ``distance`` edits from a word.

    An edit inserts, removes or replaces a character; a swap of neighbours is one edit, or two
    unless ``cheap_swap``. With ``prefix`` some beginning of the term has to be that near, and no
    nearer to a beginning of the word than to the whole: Tantivy's automaton, found by comparing.
    """
    length = len(word)
    # One row for each character of the present term, from the empty beginning on.
    rows = [list(range(length + 1))]
    spelled = ""
    at, end = 0, len(terms)
    if prefix and length <= distance:
        yield from terms
        return
    while at < end:
        term = terms[at]
        shared = 0
        for one, other in zip(spelled, term, strict=False):
            if one != other:
                break
            shared += 1
        shared = min(shared, len(rows) - 1)
        del rows[shared + 1 :]
        skipped = False
        for depth in range(shared, len(term)):
            row = _next_row(rows, word, term, depth, cheap_swap)
            rows.append(row)
            beginning = term[: depth + 1]
            if prefix and row[length] <= distance and row[length] == min(row):
                stop = bisect_left(terms, beginning + _LAST, at)
                yield from terms[at : max(stop, at + 1)]
                at, skipped = max(stop, at + 1), True
                break
            if min(row) > distance and (not cheap_swap or min(rows[-2]) >= distance):
                at = max(bisect_left(terms, beginning + _LAST, at), at + 1)
                skipped = True
                break
        spelled = term[: len(rows) - 1]
        if not skipped:
            if rows[-1][length] <= distance:
                yield term
            at += 1


def _next_row(
    rows: list[list[int]], word: str, term: str, depth: int, cheap_swap: bool
) -> list[int]:
    above = rows[-1]
    character = term[depth]
    row = [depth + 1]
    for column, wanted in enumerate(word, 1):
        cost = min(
            row[-1] + 1, above[column] + 1, above[column - 1] + (0 if wanted == character else 1)
        )
        if (
            cheap_swap
            and depth
            and column > 1
            and word[column - 2] == character
            and term[depth - 1] == wanted
        ):
            cost = min(cost, rows[-2][column - 2] + 1)
        row.append(cost)
    return row
