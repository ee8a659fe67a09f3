r"""Regular expressions for the filters of JSON paths and searches, matched in linear time.

A match takes time proportional to pattern length times string length. The syntax is the part of the
vendor's engine that filters use: literals, ``.``, classes, ``\d \w \s`` and their opposites,
anchors, groups, alternatives, ``* + ? {m,n}`` (lazy or not, which makes no difference to whether a
string matches), and the flag ``(?i)``. Back references and look-around cannot be matched in linear
time and are rejected.

A parser turns an expression into the states of an automaton. A match follows all states that a
string can reach at the same time, so it never backtracks.

RE2 would be several times as fast, but has no wheels for musl, so installing pytest-fakecloud on
Alpine would require a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

from ...core.budget import spend

_MAX_NESTING = 50
_FOLDING = "(?i)"
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTS = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_GROUP_START = re.compile(r"\((?:\?:|\?P<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")
_STEPS_PER_STATE = 3
_MAX_STATES = 4096

Test = Callable[[str], bool]
"""A condition on a character."""
Condition = Callable[[str, int], bool]
"""A condition on an index of a string."""


class RegexError(ValueError):
    """Raised for an invalid expression. The message continues a sentence about the expression."""


@dataclass(eq=False, slots=True)
class _RegexState:
    """A state of an automaton.

    A state with a ``test`` consumes a character that passes it; other states consume nothing. A
    state with an ``assertion`` can only be entered where the assertion is true.
    """

    next: list[_RegexState] = field(default_factory=list)
    test: Test | None = None
    assertion: Condition | None = None


_Part = Callable[[_RegexState], _RegexState]
"""Makes the states of a part of an expression; returns the first, given the one after the part."""


class LinearRegex:
    """A compiled regular expression. The constructor raises `RegexError` if it is invalid."""

    def __init__(self, pattern: str) -> None:
        self._ignores_case = pattern.startswith(_FOLDING)
        self._end = _RegexState()
        self._start = _Parser(pattern, self._ignores_case).parse()(self._end)

    def fullmatch(self, text: str) -> bool:
        return self._run(text, anywhere=False)

    def search(self, text: str) -> bool:
        return self._run(text, anywhere=True)

    def _run(self, text: str, *, anywhere: bool) -> bool:
        """Return whether a string matches, as a whole or, with ``anywhere``, in any part."""
        if self._ignores_case:
            text = text.lower()
        current: dict[_RegexState, None] = {}
        _enter(self._start, current, text, 0)
        for at, character in enumerate(text):
            if anywhere and self._end in current:
                return True
            spend(_STEPS_PER_STATE * (1 + len(current)))
            following: dict[_RegexState, None] = {}
            for state in current:
                if state.test is not None and state.test(character):
                    for target in state.next:
                        _enter(target, following, text, at + 1)
            if anywhere:
                _enter(self._start, following, text, at + 1)
            elif not following:
                return False
            current = following
        return self._end in current


def _enter(state: _RegexState, entered: dict[_RegexState, None], text: str, at: int) -> None:
    """Add a state, and all states that can be reached from it without consuming a character."""
    waiting = [state]
    while waiting:
        state = waiting.pop()
        if state in entered:
            continue
        if state.assertion is not None and not state.assertion(text, at):
            continue
        entered[state] = None
        if state.test is None:
            waiting.extend(state.next)


class _Parser:
    """Parses an expression by recursive descent, for strings in lower case if ``ignore_case``."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._pattern = pattern
        self._ignore_case = ignore_case
        self._at = len(_FOLDING) if ignore_case else 0
        self._level = 0
        self._states = 0

    def _new(
        self, after: list[_RegexState], test: Test | None = None, assertion: Condition | None = None
    ) -> _RegexState:
        self._states += 1
        if self._states > _MAX_STATES:
            raise RegexError(f"is too large (more than {_MAX_STATES} states)")
        return _RegexState(after, test, assertion)

    def parse(self) -> _Part:
        expression = self._alternatives()
        if self._at < len(self._pattern):
            raise RegexError("has an unmatched closing parenthesis")
        return expression

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1 : self._at]

    def _take_match(self, syntax: re.Pattern[str]) -> re.Match[str] | None:
        match = syntax.match(self._pattern, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _alternatives(self) -> _Part:
        self._level += 1
        if self._level > _MAX_NESTING:
            raise RegexError(f"is nested more than {_MAX_NESTING} levels deep")
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        self._level -= 1
        return lambda after: self._new([option(after) for option in options])

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated())
        return lambda after: reduce(lambda following, part: part(following), parts[::-1], after)

    def _repeated(self) -> _Part:
        atom = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return atom
        if self._peek() == "?":
            self._at += 1  # lazy
        end = self._at
        if self._bounds() is not None:
            raise RegexError(f"repeats a repetition at character {end + 1}")
        minimum, maximum = bounds

        def repeated(after: _RegexState) -> _RegexState:
            first, required = after, minimum
            if maximum is None:
                # Loop over the last required copy, so that nested repetitions stay small.
                loop = self._new([after])
                first = atom(loop)
                loop.next.append(first)
                first, required = (first, minimum - 1) if minimum else (loop, 0)
            else:
                for _ in range(maximum - minimum):
                    first = self._new([atom(first), after])
            for _ in range(required):
                first = atom(first)
            return first

        return repeated

    def _bounds(self) -> tuple[int, int | None] | None:
        """Return the minimum and maximum of a quantifier, or None if no quantifier follows."""
        if self._peek() in _QUANTIFIERS:
            return _QUANTIFIERS[self._take()]
        start = self._at
        counts = self._take_match(_COUNTS)
        if counts is None:
            return None
        least, comma, most = counts.groups()
        minimum = int(least[:5])
        maximum = int(most[:5]) if most else None if comma else minimum
        if len(least) > 4 or len(most) > 4 or (maximum is not None and maximum < minimum):
            raise RegexError(f"has an invalid repetition at character {start + 1}")
        return minimum, maximum

    def _atom(self) -> _Part:
        sign = self._peek()
        if sign == "(":
            return self._group()
        if sign in _QUANTIFIERS or _COUNTS.match(self._pattern, self._at):
            raise RegexError(f"has nothing to repeat at character {self._at + 1}")
        for length in (1, 2):
            anchor = _ANCHORS.get(self._pattern[self._at : self._at + length])
            if anchor is not None:
                self._at += length
                return lambda after: self._new([after], assertion=anchor)
        self._take()
        if sign == ".":
            test: Test = "\n".__ne__
        elif sign == "[":
            test = self._class()
        else:
            test = self._single(self._escape() if sign == "\\" else sign)
        return lambda after: self._new([after], test)

    def _group(self) -> _Part:
        if self._take_match(_GROUP_START) is None:
            raise RegexError(f"has an unsupported or invalid group at character {self._at + 1}")
        content = self._alternatives()
        if self._take() != ")":
            raise RegexError("has an unclosed parenthesis")
        return content

    def _single(self, literal: str | Test) -> Test:
        if not isinstance(literal, str):
            return literal
        wanted = literal.lower() if self._ignore_case else literal
        return lambda character: character == wanted

    def _escape(self) -> str | Test:
        """Return the character that an escape stands for, or the test of a category like ``\\d``."""
        sign = self._take()
        if not sign:
            raise RegexError("ends with a backslash")
        if sign.lower() in _CATEGORIES:
            test = _CATEGORIES[sign.lower()]
            return test if sign.islower() else lambda character: not test(character)
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign.isalnum():
            raise RegexError(f"uses the unsupported escape \\{sign}")
        return sign

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self._at += negated
        tests = [self._class_member()]
        while self._peek() != "]":
            tests.append(self._class_member())
        self._at += 1
        return lambda character: any(test(character) for test in tests) != negated

    def _class_member(self) -> Test:
        low = self._class_character()
        following = self._pattern[self._at : self._at + 2]
        if following[:1] != "-" or following[1:] in ("", "]"):
            return self._single(low)
        self._at += 1
        high = self._class_character()
        if not isinstance(low, str) or not isinstance(high, str):
            raise RegexError(f"has a range without two characters before character {self._at + 1}")
        if low > high:
            raise RegexError(f"has the range {low}-{high}, which is in reverse order")
        if self._ignore_case:
            return lambda character: low <= character <= high or low <= character.upper() <= high
        return lambda character: low <= character <= high

    def _class_character(self) -> str | Test:
        sign = self._take()
        if not sign:
            raise RegexError("has an unclosed character class")
        return self._escape() if sign == "\\" else sign


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_CATEGORIES = {"d": str.isdecimal, "w": _is_word, "s": str.isspace}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


def _is_boundary(text: str, at: int) -> bool:
    before = at > 0 and _is_word(text[at - 1])
    after = at < len(text) and _is_word(text[at])
    return before != after


_ANCHORS: dict[str, Condition] = {
    "^": lambda text, at: at == 0,
    "$": lambda text, at: at == len(text),
    r"\b": _is_boundary,
    r"\B": lambda text, at: not _is_boundary(text, at),
}
