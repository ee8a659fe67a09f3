"""The clauses of a filter, which return the matching documents of an index with their scores.

Words are scored by BM25 with the parameters of Tantivy: k1 is 1.2, b is 0.75, the weight of a term
is ``ln(1 + (N - n + 0.5) / (n + 0.5))``, and lengths are rounded down to one of 256 steps.

Terms within an edit distance of a word are found with an automaton over the tree of terms. A state
is the part of an edit-distance row that can still matter, relative to the number of characters
read. States do not depend on the word, so there are few of them (Schulz and Mihov, "Fast string
correction with Levenshtein automata"). The input for a character is a bit set of the character's
positions in the nearby part of the word. A transition is computed when it first occurs, and is
cached for all words.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import merge
from typing import Any, TypeAlias

from ...core.budget import spend
from ...core.errors import counted
from ..algorithms.linear_regex import LinearRegex
from .index import Node, SearchIndex, TextPostings, below
from .schema import FieldSpec

Matches: TypeAlias = dict[int, float]
"""Maps the numbers of matching documents to their scores."""

_STEPS_PER_CLAUSE, _STEPS_PER_MATCH = 20, 3
"""Budget steps of every clause, and for each document that it matches."""
_STEPS_PER_WORD, _STEPS_PER_POSITION = 2, 1
"""Budget steps for a word of a phrase in a document, and for each of its positions there."""
_STEPS_PER_MOVE, _STEPS_PER_MOVED_POSITION = 60, 20
"""The same for each word but the first of a phrase whose words may be moved."""
_STEPS_PER_NODE, _STEPS_PER_CHILD = 10, 5
"""Budget steps for a node of the tree of terms, and for each of its children."""

_K1, _B = 1.2, 0.75


def _idf(documents: int, having: int) -> float:
    """Return the weight of a term that occurs in ``having`` of ``documents`` documents."""
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))


def _length(code: int) -> int:
    """Return the length of a text for the byte that Lucene's indexes and Tantivy's store."""
    if code < 24:
        return code
    bits, shift = (code - 24) & 7, (code - 24 >> 3) - 1
    return 24 + (bits if shift < 0 else (bits | 8) << shift)


_LENGTHS = [_length(code) for code in range(256)]


def _bm25(weight: float, often: int, length: int, average: float) -> float:
    """Return the score of a term that occurs ``often`` times in a text of ``length`` tokens."""
    # The index stores lengths exactly up to 40 tokens, then rounded down.
    stored = length if length <= 40 else _LENGTHS[bisect_right(_LENGTHS, length) - 1]
    norm = _K1 * (1 - _B + _B * stored / average)
    return weight * (1 + _K1) * often / (often + norm)


def best(matches: Matches, count: int | None) -> list[tuple[int, float]]:
    """Return the best matches, equal ones in indexing order; all of them if the count is None."""

    def rank(match: tuple[int, float]) -> tuple[float, int]:
        return -match[1], match[0]

    if count is None:
        return sorted(matches.items(), key=rank)
    return heapq.nsmallest(count, matches.items(), key=rank)


class Clause:
    """A part of a filter, or a retriever."""

    ranks = False
    """Whether it determines the order of the documents, so that no option may."""
    rounds_scores = True
    """Whether its scores are written as 32-bit floats."""

    def find(self, index: SearchIndex) -> Matches:
        """Return the matching documents with their scores. The caller may change the mapping."""
        spend(_STEPS_PER_CLAUSE)
        matches = self._matches(index)
        spend(_STEPS_PER_MATCH * len(matches))
        return matches

    def _matches(self, index: SearchIndex) -> Matches:
        """Return the result of `find()`; count only steps that do not depend on its size."""
        raise NotImplementedError

    def highlighted_terms(self) -> Iterator[tuple[str, str]]:
        return iter(())

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        """Return the reasons why a document does not match, or an empty list if it matches."""
        return []


class Everything(Clause):
    """Matches every document, with score 1."""

    def __str__(self) -> str:
        return "every document"

    def _matches(self, index: SearchIndex) -> Matches:
        return dict.fromkeys(index.documents, 1.0)


@dataclass(frozen=True)
class Nothing(Clause):
    """Matches no document."""

    why: str

    def _matches(self, index: SearchIndex) -> Matches:
        return {}

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        return [self.why]


@dataclass(frozen=True)
class _Leaf(Clause):
    """A condition on a single field."""

    spec: FieldSpec

    def sought(self) -> str:
        """Describe the terms after analysis; return ``""`` if analysis did not change them."""
        return ""

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        """If the document does not match, describe the sought terms and the document's value."""
        if number in self.find(index):
            return []
        return [f"{self.sought() or 'no match'}; {index.describe_values(number, self.spec.name)}"]


@dataclass(frozen=True)
class Equal(_Leaf):
    """Matches a value in a field other than TEXT. The rarer the value, the higher the score."""

    value: Any

    def _matches(self, index: SearchIndex) -> Matches:
        documents = index.values(self.spec.name).numbers.get(self.value, ())
        return dict.fromkeys(documents, _idf(len(index.documents), len(documents)))


@dataclass(frozen=True)
class InRange(_Leaf):
    """Matches values within the bounds of operators such as ``$gt``, with score 1."""

    bounds: dict[str, Any]

    def _matches(self, index: SearchIndex) -> Matches:
        return dict.fromkeys(index.values(self.spec.name).between(self.bounds), 1.0)


@dataclass(frozen=True)
class Phrase(_Leaf):
    """Matches consecutive tokens, or a single token.

    ``slop`` is the maximum number of positions by which the words may be moved in total, each
    relative to the previous word (decided here: Tantivy proceeds from the rarest word to the next
    rarest, which gives other results for three or more words). With ``prefix=True``, the last token
    also matches longer tokens that start with it, and the score is 1 if at most one token precedes
    it. A token of None matches any word.
    """

    tokens: Sequence[str | None]
    slop: int = 0
    prefix: bool = False

    def sought(self) -> str:
        return f"looked for [{', '.join(self._words)}]"

    @property
    def _words(self) -> list[str]:
        return [token for token in self.tokens if token is not None]

    def highlighted_terms(self) -> Iterator[tuple[str, str]]:
        for token in self._words:
            yield self.spec.name, token

    def _matches(self, index: SearchIndex) -> Matches:
        words = self._words
        if not words:
            return {}
        text = index.text(self.spec.name)
        positions = [text.terms.get(word, {}) for word in words]
        if self.prefix:
            positions[-1] = _merged_positions(text, text.beginning(words[-1]))
        if not all(positions):
            return {}
        if self.prefix and len(positions) == 1:
            return dict.fromkeys(positions[0], 1.0)
        exact = positions[:-1] if self.prefix else positions
        frequencies = self._frequencies(positions)
        if self.prefix and len(exact) == 1:
            return dict.fromkeys(frequencies, 1.0)
        if self.prefix:
            # The score depends only on the words before the last one.
            frequencies = {
                number: self._frequency([places[number] for places in exact])
                for number in frequencies
            }
        weight = sum(_idf(len(index.documents), len(places)) for places in exact)
        average = (text.total / len(index.documents)) if text.total else 1.0
        return {
            number: _bm25(weight, often, text.lengths[number], average)
            for number, often in frequencies.items()
        }

    def _frequencies(self, positions: list[dict[int, list[int]]]) -> dict[int, int]:
        """Return the number of occurrences of the phrase in each document that contains it."""
        rarest = min(positions, key=len)
        spend(_STEPS_PER_WORD * len(positions) * len(rarest))
        if len(positions) == 1:
            return {number: len(where) for number, where in rarest.items()}
        return {
            number: frequency
            for number in rarest
            if all(number in places for places in positions)
            and (frequency := self._frequency([places[number] for places in positions]))
        }

    def _frequency(self, positions: list[list[int]]) -> int:
        """Return how often the phrase occurs in a document with these positions of its tokens."""
        spend(_STEPS_PER_POSITION * (len(self.tokens) + sum(map(len, positions))))
        offsets = [offset for offset, token in enumerate(self.tokens) if token is not None]
        # The position of a word minus its offset is the start of the phrase.
        placed = zip(offsets, positions, strict=False)
        starts = [[at - offset for at in where] for offset, where in placed]
        if not self.slop:
            return len(set(starts[0]).intersection(*starts[1:]))
        costs = [(start, 0) for start in starts[0]]
        for targets in starts[1:]:
            costs = [pair for pair in _moving_costs(costs, targets) if pair[1] <= self.slop]
            if not costs:
                return 0
        return len(costs)


def _moving_costs(costs: list[tuple[int, int]], targets: list[int]) -> list[tuple[int, int]]:
    """Return the lowest cost of moving a word from a position in ``costs`` to each target."""
    spend(_STEPS_PER_MOVE + _STEPS_PER_MOVED_POSITION * (len(costs) + len(targets)))
    best: dict[int, int] = {}
    for sign in (1, -1):
        cost: int | None = None
        last = 0
        sources = sorted((sign * at, False, paid) for at, paid in costs)
        for at, is_target, paid in merge(sources, sorted((sign * at, True, 0) for at in targets)):
            if cost is not None:
                cost += at - last
            last = at
            if not is_target:
                cost = paid if cost is None else min(cost, paid)
            elif cost is not None:
                best[sign * at] = min(best.get(sign * at, cost), cost)
    return sorted(best.items())


def _merged_positions(text: TextPostings, terms: Iterable[str]) -> dict[int, list[int]]:
    merged: dict[int, list[int]] = {}
    for term in terms:
        postings = text.terms[term]
        spend(_STEPS_PER_CLAUSE + _STEPS_PER_MATCH * len(postings))
        for number, where in postings.items():
            merged.setdefault(number, []).extend(where)
    for where in merged.values():
        where.sort()
    return merged


@dataclass(frozen=True)
class Fuzzy(_Leaf):
    """Matches tokens within an edit distance of a word, with score 1."""

    token: str
    distance: int = 1
    cheap_swap: bool = True
    prefix: bool = False

    def sought(self) -> str:
        swap = "" if self.cheap_swap else ", where a swap counts as two"
        begin = "a prefix " if self.prefix else ""
        return f"looked for {begin}within {counted(self.distance, 'edit')}{swap} of '{self.token}'"

    def _matches(self, index: SearchIndex) -> Matches:
        text = index.text(self.spec.name)
        close = near(text.root, self.token, self.distance, self.cheap_swap, self.prefix)
        return dict.fromkeys(_with_any(text, close), 1.0)


def _with_any(text: TextPostings, terms: Iterable[str]) -> set[int]:
    documents: set[int] = set()
    for having in filter(None, map(text.terms.get, terms)):
        spend(_STEPS_PER_WORD + len(having))
        documents.update(having)
    return documents


@dataclass(frozen=True)
class Regex(_Leaf):
    """Matches tokens that fully match a regular expression, ignoring case, with score 1."""

    pattern: str
    expression: LinearRegex

    def _matches(self, index: SearchIndex) -> Matches:
        text = index.text(self.spec.name)
        return dict.fromkeys(_with_any(text, filter(self.expression.fullmatch, text.terms)), 1.0)

    def sought(self) -> str:
        return f"looked for a whole token that matches /{self.pattern}/"


@dataclass(frozen=True)
class Operator(Clause):
    """Another clause with its text in the filter, for explanations, and a factor for its scores."""

    inner: Clause
    words: str = ""
    boost: float | None = None

    def _matches(self, index: SearchIndex) -> Matches:
        matches = self.inner.find(index)
        if self.boost is None:
            return matches
        return {number: score * self.boost for number, score in matches.items()}

    def highlighted_terms(self) -> Iterator[tuple[str, str]]:
        return self.inner.highlighted_terms()

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        """Return the reasons of the inner clause, only the first after the clause's text."""
        why = self.inner.mismatches(index, number)
        return [f"{self.words}: {why[0]}"] if self.words and why else why

    def __str__(self) -> str:
        return self.words or str(self.inner)


@dataclass(frozen=True)
class AnyOf(Clause):
    """Matches documents that match any of several clauses, and adds up the scores."""

    clauses: tuple[Clause, ...]

    def _matches(self, index: SearchIndex) -> Matches:
        matches: Matches = {}
        for clause in self.clauses:
            more = clause.find(index)
            for number, score in more.items():
                matches[number] = matches.get(number, 0.0) + score
        return matches

    def highlighted_terms(self) -> Iterator[tuple[str, str]]:
        for clause in self.clauses:
            yield from clause.highlighted_terms()

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        """Return the reasons of all clauses, or an empty list if any clause matches."""
        reasons: list[str] = []
        for clause in self.clauses:
            why = clause.mismatches(index, number)
            if not why:
                return []
            reasons += why
        return reasons or ["an empty $should matches nothing"]

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.clauses))})"


@dataclass(frozen=True)
class AllOf(Clause):
    """Matches all of ``must`` and none of ``must_not``; ``should`` only adds to scores."""

    must: tuple[Clause, ...]
    should: tuple[Clause, ...] = ()
    must_not: tuple[Clause, ...] = ()

    def _matches(self, index: SearchIndex) -> Matches:
        parts = sorted((clause.find(index) for clause in self.must), key=len)
        matches = parts[0]
        for part in parts[1:]:
            matches = {number: score + part[number] for number, score in matches.items()
                     if number in part}  # fmt: skip
        for clause in self.should:
            for number, score in clause.find(index).items():
                if number in matches:
                    matches[number] += score
        for clause in self.must_not:
            for number in clause.find(index):
                matches.pop(number, None)
        return matches

    def highlighted_terms(self) -> Iterator[tuple[str, str]]:
        for clause in (*self.must, *self.should):
            yield from clause.highlighted_terms()

    def mismatches(self, index: SearchIndex, number: int) -> list[str]:
        reasons = [why for clause in self.must for why in clause.mismatches(index, number)]
        return reasons + [
            f"$mustNot excludes it: {clause}"
            for clause in self.must_not
            if not clause.mismatches(index, number)
        ]

    def __str__(self) -> str:
        exceptions = "".join(f" but not {clause}" for clause in self.must_not)
        return " and ".join(map(str, self.must)) + exceptions


@dataclass(eq=False, slots=True)
class _State:
    """The distances around the current column, now and if the next character completes a swap.

    ``steps`` has the states after a character, None if no term within the distance can follow.
    """

    row: tuple[int, ...]
    swaps: tuple[int, ...]
    cheap_swap: bool
    steps: dict[int, _State | None] = field(default_factory=dict)

    def after(self, bits: int) -> _State | None:
        """Return the state after a character.

        After n characters, bit b of ``bits`` is set if the word has the character at ``n - far +
        b``. Position p of a row is column ``n + 1 - far + p``.
        """
        far = len(self.row) // 2 + 1
        above = (*self.row, far)
        row: list[int] = []
        begun_swaps: list[int] = []
        cost = far
        for place, swap in enumerate(self.swaps):
            replaced = above[place] + (not bits >> (place + 1) & 1)
            cost = min(cost + 1, above[place + 1] + 1, replaced, far)
            if bits >> place & 1:
                # If the previous character began a swap, this character completes it.
                cost = min(cost, swap)
            row.append(cost)
            begins = self.cheap_swap and bits >> (place + 2) & 1
            begun_swaps.append(min(above[place] + 1, far) if begins else far)
        if min(*row, *begun_swaps) == far:
            return None
        return _state(tuple(row), tuple(begun_swaps), self.cheap_swap)


_state = cache(_State)


class _Sought:
    """The word to search for, with the automaton that compares terms with it."""

    def __init__(self, word: str, distance: int, cheap_swap: bool, prefix: bool) -> None:
        far = distance + 1
        row = (*(far,) * distance, *range(far))
        self.start = _state(row, (far,) * len(row), cheap_swap)
        self._length = len(word)
        self._distance = distance
        self._prefix = prefix
        self._window = (1 << 2 * distance + 3) - 1
        self.bit_sets: dict[str, int] = {}
        for at, character in enumerate(word):
            self.bit_sets[character] = self.bit_sets.get(character, 0) | 1 << (at + 1 + distance)

    def step(self, state: _State, character: str, depth: int) -> _State | None:
        """Return the state after a character that has ``depth`` characters before it."""
        bits = self.bit_sets.get(character, 0) >> depth & self._window
        if bits not in state.steps:
            state.steps[bits] = state.after(bits)
        return state.steps[bits]

    def is_near(self, state: _State, depth: int) -> bool:
        place = self._length - depth + self._distance
        return 0 <= place <= 2 * self._distance and state.row[place] <= self._distance

    def begins_near(self, state: _State, depth: int) -> bool:
        """Return whether, in a search by prefix, every term that continues after this state matches."""
        place = self._length - depth + self._distance
        return self.is_near(state, depth) and state.row[place] == min(state.row)

    def rest_is_near(self, term: str, state: _State, depth: int) -> bool:
        """Return whether a term matches whose first ``depth`` characters lead to this state."""
        for at in range(depth, len(term)):
            following = self.step(state, term[at], at)
            if following is None:
                return False
            state = following
            if self._prefix and self.begins_near(state, at + 1):
                return True
        return self.is_near(state, len(term))


def near(root: Node, word: str, distance: int, cheap_swap: bool, prefix: bool) -> Iterator[str]:
    """Yield the terms in a prefix tree that are within ``distance`` edits of a word.

    An edit inserts, removes or replaces a character. Swapping two adjacent characters counts as one
    edit, or as two if ``cheap_swap`` is false. With ``prefix=True``, a term matches if one of its
    prefixes is within the distance, and is not nearer to a prefix of the word than to the whole
    word, as in Tantivy's automaton (found by comparison).
    """
    if prefix and len(word) <= distance:
        yield from below(root)
        return
    sought = _Sought(word, distance, cheap_swap, prefix)
    pending: list[tuple[Node, _State, int]] = [(root, sought.start, 0)]
    while pending:
        node, state, depth = pending.pop()
        children: Collection[tuple[str, Node | list[str]]] = node.items()
        if sought.step(state, "", depth) is None:
            # From this state, only characters of the word lead to another state.
            children = [
                (character, node[character])
                for character in ("", *sought.bit_sets)
                if character in node
            ]
        spend(_STEPS_PER_NODE + _STEPS_PER_CHILD * len(children))
        for character, child in children:
            next_state = sought.step(state, character, depth) if character else state
            if next_state is None:
                continue
            if prefix and character and sought.begins_near(next_state, depth + 1):
                yield from below(child)
            elif isinstance(child, dict):
                pending.append((child, next_state, depth + 1))
            else:
                spend(_STEPS_PER_NODE * len(child))
                for term in child:
                    if sought.rest_is_near(term, next_state, depth + len(character)):
                        yield term
