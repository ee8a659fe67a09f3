"""Regular expressions from another process: patterns in Python's syntax, matched in linear time.

``re`` backtracks: ``(a+)+$`` on thirty letters blocks all threads of a process for minutes. So a
pattern is parsed with Python's own parser, but matched by an ``Automaton``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ..core.errors import ContractError
from ..core.wording import brief
from ..kv.algorithms import automaton
from ..kv.algorithms.automaton import Automaton, Node, RegexError

MOST_STEPS = 10_000_000
"""Maximum product of a pattern's states and a string's length: a few seconds at most."""
# The parser of ``re``, which has no public name. A pattern with nodes of an unknown kind is rejected.
_parser: Any = re._parser  # type: ignore[attr-defined]
_LOOK = "has a look-around assertion"
_ANCHORS = {
    "AT_BEGINNING": "^",
    "AT_BEGINNING_STRING": r"\A",
    "AT_END": "$",
    "AT_END_STRING": r"\Z",
    "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B",
}
_CATEGORIES = {
    f"CATEGORY_{no}{word}": f"\\{letter.upper() if no else letter}"
    for word, letter in (("DIGIT", "d"), ("SPACE", "s"), ("WORD", "w"))
    for no in ("", "NOT_")
}


class LinearPattern:
    """A compiled pattern with ``pattern``, ``flags`` and ``search()``, as matchers use it.

    Raises ``re.error`` for an invalid pattern, and ``ContractError`` for a pattern with
    look-around, a back reference, an atomic group, a possessive repetition or too many states.
    """

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self.flags = int(re.compile(pattern, flags).flags)
        try:
            self._automaton = Automaton(_sequence(_parser.parse(pattern, flags), self.flags))
        except RegexError as error:
            raise ContractError(
                f"the pattern {brief(pattern)} {error}: patterns of another process must be matched "
                "in linear time. Send a simpler pattern, or fetch the list and search it locally"
            ) from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinearPattern | re.Pattern):
            return NotImplemented
        return (self.pattern, self.flags) == (other.pattern, other.flags)

    def __hash__(self) -> int:
        return hash((self.pattern, self.flags))

    def __repr__(self) -> str:
        return repr(re.compile(self.pattern, self.flags))

    def search(self, text: str) -> bool:
        """Return whether the pattern matches somewhere in a string."""
        states = self._automaton.size
        if len(text) * states > MOST_STEPS:
            raise ContractError(
                f"the pattern {brief(self.pattern)} with {states} states is too costly for a "
                f"string of {len(text)} characters: send a simpler pattern, or fetch the list and "
                "search it locally"
            )
        return self._automaton.run(text, anywhere=True)


# -- the tree of an expression, from the nodes of Python's parser --------------------------------


def _sequence(nodes: Iterable[tuple[Any, Any]], flags: int) -> Node:
    return automaton.Sequence(tuple(_node(str(kind), value, flags) for kind, value in nodes))


def _node(kind: str, value: Any, flags: int) -> Node:
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, nodes = value
        unlimited = most is _parser.MAXREPEAT
        return automaton.Repeat(_sequence(nodes, flags), least, None if unlimited else int(most))
    if kind == "SUBPATTERN":
        _, added, removed, nodes = value
        return _sequence(nodes, (flags | added) & ~removed)
    if kind == "BRANCH":
        return automaton.Alternatives(tuple(_sequence(nodes, flags) for nodes in value[1]))
    if kind == "AT":
        return automaton.Assertion(_anchor(str(value), flags))
    return automaton.Character(_character(kind, value, flags))


def _anchor(name: str, flags: int) -> Callable[[str, int], bool]:
    """Return a function that tests an index of a string with ``re``."""
    fits = re.compile(_ANCHORS[name], flags & ~re.VERBOSE).match
    return lambda text, at: fits(text, at) is not None


def _character(kind: str, value: Any, flags: int) -> Callable[[str], bool]:
    """Return a function that tests a single character with ``re``."""
    if kind == "ANY":
        source = "."
    elif kind == "IN":
        source = f"[{''.join(_member(str(each), content) for each, content in value)}]"
    elif kind in ("LITERAL", "NOT_LITERAL"):
        source = f"[{'^' if kind == 'NOT_LITERAL' else ''}{_written(value)}]"
    else:
        words = {"ASSERT": _LOOK, "ASSERT_NOT": _LOOK, "GROUPREF": "has a back reference"}
        raise RegexError(words.get(kind, f"has the unsupported element {kind}"))
    fits = re.compile(source, flags & ~re.VERBOSE).match
    return lambda character: fits(character) is not None


def _member(kind: str, content: Any) -> str:
    if kind == "NEGATE":
        return "^"
    if kind == "RANGE":
        return "-".join(map(_written, content))
    return _written(content) if kind == "LITERAL" else _CATEGORIES[str(content)]


def _written(code: int) -> str:
    return f"\\U{code:08x}"
