"""The distinct terms of a text field, stored in a prefix tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Node: TypeAlias = "dict[str, Node | list[str]]"
"""A node of the prefix tree. It maps the next character to a child node, or to a list of terms.

The list contains all terms with this prefix. The empty string maps to the term that ends at the
node.
"""
_DEEPEST = 40
"""Maximum depth of the tree. Deeper levels would cost memory without making searches faster."""


class Terms:
    """Terms in a prefix tree, sorted in when they are read, and never removed."""

    __slots__ = ("_new", "_root")

    def __init__(self) -> None:
        self._root: Node = {}
        self._new: list[str] = []

    def add(self, term: str) -> None:
        """Add a term that is not present yet."""
        self._new.append(term)

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
            other = found[0]
            found = node[character] = {other[depth : depth + 1]: found}
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
