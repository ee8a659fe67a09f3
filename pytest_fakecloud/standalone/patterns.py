"""Regular expressions from another process: patterns in Python's syntax, matched in linear time.

``re`` backtracks: ``(a+)+$`` on thirty letters blocks all threads of a process for minutes. So a
pattern is parsed with Python's own parser, but matched by ``LinearRegex``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..core.errors import ContractError
from ..core.wording import brief
from ..kv.algorithms.linear_regex import Fragment, LinearRegex, RegexError, Test

MOST_STEPS = 10_000_000
"""Maximum product of a pattern's number of states and the length of a string. A match takes a few
seconds at most.
"""
# The parser of ``re``, which has no public name.
_parser: Any = re._parser  # type: ignore[attr-defined]
_LOOK = "has a look-around assertion"
_IN_LINES = {"^": "^ of a line", "$": "$ of a line"}
_ANCHORS = {
    "AT_BEGINNING": "^",
    "AT_BEGINNING_STRING": "^",
    "AT_END": "$ before a last line break",
    "AT_END_STRING": "$",
    "AT_BOUNDARY": "b",
    "AT_NON_BOUNDARY": "B",
}
_CATEGORIES = {
    f"CATEGORY_{no}{word}": f"\\{letter.upper() if no else letter}"
    for word, letter in (("DIGIT", "d"), ("SPACE", "s"), ("WORD", "w"))
    for no in ("", "NOT_")
}


class LinearPattern(LinearRegex):
    """A compiled pattern with the attributes that matchers use: ``pattern``, ``flags``,
    ``search()``.

    Raises ``re.error`` for an invalid pattern, and ``ContractError`` for a pattern with
    look-around, a back reference, an atomic group or a possessive repetition, or with more states
    than ``LinearRegex`` allows.
    """

    def __init__(self, pattern: str, flags: int) -> None:
        self._reset()
        self.pattern = pattern
        self.flags = int(re.compile(pattern, flags).flags)
        try:
            self._start, self._end = self._all(_parser.parse(pattern, flags), self.flags)
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

    def _run(self, text: str, anywhere: bool) -> bool:
        if len(text) * self.states > MOST_STEPS:
            raise ContractError(
                f"the pattern {brief(self.pattern)} with {self.states} states is too costly for a "
                f"string of {len(text)} characters: send a simpler pattern, or fetch the list and "
                "search it locally"
            )
        return super()._run(text, anywhere)

    # -- states from the nodes of Python's parser ------------------------------------------------

    def _all(self, nodes: Iterable[tuple[Any, Any]], flags: int) -> Fragment:
        start = end = self._state()
        for kind, value in nodes:
            first, last = self._one(str(kind), value, flags)
            end.next.append(first)
            end = last
        return start, end

    def _one(self, kind: str, value: Any, flags: int) -> Fragment:
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, nodes = value
            bound = None if most is _parser.MAXREPEAT else int(most)
            return self._times(lambda: self._all(nodes, flags), least, bound)
        if kind == "SUBPATTERN":
            _, added, removed, nodes = value
            return self._all(nodes, (flags | added) & ~removed)
        if kind == "BRANCH":
            start, end = self._state(), self._state()
            for nodes in value[1]:
                first, last = self._all(nodes, flags)
                start.next.append(first)
                last.next.append(end)
            return start, end
        if kind == "AT":
            state = self._state(assertion=_anchor(str(value), flags))
            return state, state
        return self._over(_character(kind, value, flags))


def _anchor(name: str, flags: int) -> str:
    word = _ANCHORS[name]
    if flags & re.MULTILINE and name in ("AT_BEGINNING", "AT_END"):
        return _IN_LINES[word[0]]
    return f"{word} of ASCII" if flags & re.ASCII and word in "bB" else word


def _character(kind: str, value: Any, flags: int) -> Test:
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
