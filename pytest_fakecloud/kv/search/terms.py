"""The distinct terms of a text field, as a tree of their beginnings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Node: TypeAlias = "dict[str, Node | list[str]]"
"""From the next character to what follows: a node, or a list of the terms that begin so.

Under the empty string stands the term that ends here.
"""
_DEEPEST = 40
"""Characters a tree is made of: a longer common beginning costs memory and saves nothing."""


class Terms:
    """Distinct terms, arranged when they are first looked at.

    Terms that no document has any more stay, so a reader checks whether there are documents.
    """

    __slots__ = ("_new", "_root")

    def __init__(self) -> None:
        self._root: Node = {}
        self._new: list[str] = []

    def add(self, term: str) -> None:
        """Add a term that is not there yet."""
        self._new.append(term)

    @property
    def root(self) -> Node:
        """The node of the empty beginning; not to be changed."""
        if self._new:
            for term in self._new:
                _insert(self._root, term)
            self._new = []
        return self._root

    def beginning(self, prefix: str) -> Iterator[str]:
        """The terms that begin so, in no order."""
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
            other = found[0]
            found = node[character] = {other[depth : depth + 1]: found}
        node = found
    node[""] = [term]


def below(node: Node | list[str]) -> Iterator[str]:
    """The terms of a node and of all that follow it."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            yield from node
        else:
            waiting.extend(node.values())
