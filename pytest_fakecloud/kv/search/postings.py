"""Postings: the documents, by increasing numbers, that contain each term or value of a field."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from ...core.budget import spend

Node: TypeAlias = "dict[str, Node | list[str]]"
"""A node of the prefix tree. It maps the next character to a child node, or to a list of terms.

The list contains all terms with this prefix. The empty string maps to the term ending at the node.
"""
_DEEPEST = 40
"""Maximum depth of the tree. Deeper levels would cost memory without making searches faster."""


class _Additions:
    """Distinct values that are sorted in when they are read.

    They are never removed, even if no document has them any more.
    """

    def __init__(self) -> None:
        self._known: set[Any] = set()
        self._new: list[Any] = []

    def add(self, value: Any) -> None:
        if value not in self._known:
            self._known.add(value)
            self._new.append(value)


class Terms(_Additions):
    """Terms in a prefix tree."""

    def __init__(self) -> None:
        super().__init__()
        self._root: Node = {}

    @property
    def root(self) -> Node:
        """The root of the prefix tree, which must not be changed."""
        if self._new:
            for term in self._new:
                _insert(self._root, term)
            self._new = []
        return self._root

    def beginning(self, prefix: str) -> Iterator[str]:
        """Yield the terms that start with ``prefix``, in any order."""
        node: Node | list[str] = self.root
        for character in prefix:
            if isinstance(node, list):
                break
            node = node.get(character, [])
        return (term for term in below(node) if term.startswith(prefix))


def _insert(root: Node, term: str) -> None:
    node = root
    for depth, character in enumerate(term, 1):
        found = node.get(character)
        if found is None:
            node[character] = [term]
            return
        if isinstance(found, list):
            if depth >= _DEEPEST:
                found.append(term)
                return
            # Above the deepest level, a list has one term. Move it down a level.
            found = node[character] = {found[0][depth : depth + 1]: found}
        node = found
    node[""] = [term]


def below(node: Node | list[str]) -> Iterator[str]:
    """Yield the terms in the subtree of a node, in any order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            yield from node
        else:
            waiting.extend(node.values())


_FEW = 64
"""Number of new values from which sorting all values is quicker than inserting each."""


class Ordered(_Additions):
    """Values in order."""

    def __init__(self) -> None:
        super().__init__()
        self._sorted: list[Any] = []

    def all(self) -> list[Any]:
        """Return all values in order. The list must not be changed."""
        if self._new:
            if len(self._new) < _FEW:
                for value in self._new:
                    insort(self._sorted, value)
            else:
                self._sorted += self._new
                self._sorted.sort()
            self._new = []
        return self._sorted


# -- postings --------------------------------------------------------------------------------------

GAP = 1 << 20
"""Number of positions between two texts in the same field, so that no phrase matches across texts."""


class TextPostings:
    """The tokens of a TEXT field. ``terms`` maps a token to its positions in each document."""

    def __init__(self) -> None:
        self.terms: dict[str, dict[int, list[int]]] = {}
        self.lengths: dict[int, int] = {}
        self.total = 0
        """Total number of tokens in all documents."""
        self.known = Terms()

    def add(self, number: int, texts: Iterable[tuple[str | None, ...]]) -> None:
        length = 0
        for nth, tokens in enumerate(texts):
            for at, token in enumerate(tokens, nth * GAP):
                if token is None:
                    continue
                length += 1
                places = self.terms.get(token)
                if places is None:
                    places = self.terms[token] = {}
                    self.known.add(token)
                if number in places:
                    places[number].append(at)
                else:
                    places[number] = [at]
        self.lengths[number] = length
        self.total += length

    def remove(self, number: int, texts: Iterable[tuple[str | None, ...]]) -> None:
        self.total -= self.lengths.pop(number)
        for token in {token for tokens in texts for token in tokens if token is not None}:
            places = self.terms[token]
            del places[number]
            if not places:
                del self.terms[token]

    def with_prefix(self, prefix: str) -> Iterator[str]:
        return (term for term in self.known.beginning(prefix) if term in self.terms)


class ValuePostings:
    """The values of other fields: documents by value, and values in order by document (``of``)."""

    def __init__(self) -> None:
        self.numbers: dict[Any, set[int]] = {}
        self.of: dict[int, tuple[Any, ...]] = {}
        self.order = Ordered()

    def add(self, number: int, values: tuple[Any, ...]) -> None:
        self.of[number] = values
        for value in values:
            found = self.numbers.get(value)
            if found is None:
                self.numbers[value] = {number}
                self.order.add(value)
            else:
                found.add(number)

    def remove(self, number: int, values: tuple[Any, ...]) -> None:
        del self.of[number]
        for value in set(values):
            found = self.numbers[value]
            found.discard(number)
            if not found:
                del self.numbers[value]

    def equal(self, value: Any) -> set[int]:
        """Return the documents that have a value. The set must not be changed."""
        return self.numbers.get(value) or set()

    def between(
        self, low: Any, high: Any, without_low: bool = False, without_high: bool = False
    ) -> set[int]:
        """Return the documents that have a value between two bounds. None means unbounded."""
        values = self.order.all()
        first = 0
        if low is not None:
            first = bisect_right(values, low) if without_low else bisect_left(values, low)
        end = len(values)
        if high is not None:
            end = bisect_left(values, high) if without_high else bisect_right(values, high)
        known = self.numbers
        having = [known[value] for value in values[first:end] if value in known]
        spend(end - first + sum(map(len, having)))
        return set().union(*having)


class FacetPostings(ValuePostings):
    """The paths of a FACET field. A document is also found by the ancestors of its paths."""

    def add(self, number: int, values: tuple[Any, ...]) -> None:
        super().add(number, _with_ancestors(values))
        self.of[number] = values

    def remove(self, number: int, values: tuple[Any, ...]) -> None:
        super().remove(number, _with_ancestors(values))


def _with_ancestors(paths: tuple[str, ...]) -> tuple[str, ...]:
    found = {"/"}
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return tuple(found)
