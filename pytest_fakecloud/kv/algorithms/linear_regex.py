r"""Regular expressions for the filters of JSON paths and searches, matched in linear time.

A match takes time proportional to pattern length times string length. The syntax is the part of the
vendor's engine that filters use: literals, ``.``, classes, ``\d \w \s`` and their opposites,
anchors, groups, alternatives, ``* + ? {m,n}`` (lazy or not, which makes no difference to whether a
string matches), and the flag ``(?i)``. Back references and look-around cannot be matched in linear
time and are rejected.

RE2 would be several times as fast, but has no wheels for musl, so installing pytest-fakecloud on
Alpine would require a compiler. It does not parse Python's syntax either, which
`standalone/patterns.py` needs.
"""

from __future__ import annotations

import re

from .automaton import (
    Alternatives,
    Assertion,
    Automaton,
    Character,
    Condition,
    Node,
    RegexError,
    Repeat,
    Sequence,
    Test,
)

__all__ = ["LinearRegex", "RegexError"]

_MAX_NESTING = 50
_FOLDING = "(?i)"
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTS = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_GROUP_START = re.compile(r"\((?:\?:|\?P<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")


class LinearRegex:
    """A compiled regular expression. The constructor raises `RegexError` if it is invalid."""

    def __init__(self, pattern: str) -> None:
        self._ignores_case = pattern.startswith(_FOLDING)
        expression = _Parser(pattern, self._ignores_case).parse()
        self._automaton = Automaton(expression)

    def fullmatch(self, text: str) -> bool:
        return self._run(text, anywhere=False)

    def search(self, text: str) -> bool:
        return self._run(text, anywhere=True)

    def _run(self, text: str, *, anywhere: bool) -> bool:
        return self._automaton.run(text.lower() if self._ignores_case else text, anywhere=anywhere)


class _Parser:
    """Parses an expression by recursive descent, for strings in lower case if ``ignore_case``."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self._pattern = pattern
        self._ignore_case = ignore_case
        self._at = len(_FOLDING) if ignore_case else 0
        self._level = 0

    def parse(self) -> Node:
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
        found = syntax.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _alternatives(self) -> Node:
        self._level += 1
        if self._level > _MAX_NESTING:
            raise RegexError(f"is nested more than {_MAX_NESTING} levels deep")
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        self._level -= 1
        return Alternatives(tuple(options))

    def _sequence(self) -> Node:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated())
        return Sequence(tuple(parts))

    def _repeated(self) -> Node:
        atom = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return atom
        if self._peek() == "?":
            self._at += 1  # lazy
        end = self._at
        if self._bounds() is not None:
            raise RegexError(f"repeats a repetition at character {end + 1}")
        return Repeat(atom, *bounds)

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

    def _atom(self) -> Node:
        sign = self._peek()
        if sign == "(":
            return self._group()
        if sign in _QUANTIFIERS or _COUNTS.match(self._pattern, self._at):
            raise RegexError(f"has nothing to repeat at character {self._at + 1}")
        for length in (1, 2):
            anchor = _ANCHORS.get(self._pattern[self._at : self._at + length])
            if anchor is not None:
                self._at += length
                return Assertion(anchor)
        return Character(self._character_test())

    def _group(self) -> Node:
        if self._take_match(_GROUP_START) is None:
            raise RegexError(f"has an unsupported or invalid group at character {self._at + 1}")
        content = self._alternatives()
        if self._take() != ")":
            raise RegexError("has an unclosed parenthesis")
        return content

    def _character_test(self) -> Test:
        sign = self._take()
        if sign == ".":
            return lambda character: character != "\n"
        if sign == "[":
            return self._class()
        return self._single(self._escape() if sign == "\\" else sign)

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
        if negated:
            self._at += 1
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
        return self._range(low, high)

    def _class_character(self) -> str | Test:
        sign = self._take()
        if not sign:
            raise RegexError("has an unclosed character class")
        return self._escape() if sign == "\\" else sign

    def _range(self, low: str, high: str) -> Test:
        if low > high:
            raise RegexError(f"has the range {low}-{high}, which is in reverse order")
        if self._ignore_case:
            return lambda character: low <= character <= high or low <= character.upper() <= high
        return lambda character: low <= character <= high


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
