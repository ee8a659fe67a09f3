r"""Regular expressions for the filters of JSON paths and searches, matched in linear time.

A match takes time proportional to pattern length times string length. The syntax is that of Rust's
crate ``regex``, which the vendor's engines use: literals and their escapes, ``.``, classes with
nested classes and operations (``[a-z&&[^b]]``), ``[[:alpha:]]``, ``\d \w \s``, ``\p{L}``, groups,
alternatives, repetitions, assertions and flags (``(?i)``, ``(?s-i:…)``). Back references and
look-around cannot be matched in linear time and are rejected.

A parser turns an expression into the states of an automaton. A match follows all states that a
string can reach at the same time, so it never backtracks.

RE2 would be several times as fast, but has no wheels for musl, so installing pytest-fakecloud on
Alpine would require a compiler.
"""

from __future__ import annotations

import re
import string
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, gt, xor
from typing import NamedTuple, NoReturn

from ...core.budget import spend
from .character_sets import (
    ASCII_CLASSES,
    EVERYTHING,
    SPACES,
    CharacterSet,
    combined,
    complement,
    digits,
    ignoring_case,
    property_of,
    span,
    union,
    word_characters,
)

_MAX_NESTING = 50
_MAX_HEIGHT = 100
_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTS = re.compile(r"\{\s*([0-9]+)\s*(?:(,)\s*(?:([0-9]+)\s*)?)?\}")
_GROUP_NAME = re.compile(r"\?P?<([^\W\d][\w.\[\]]*)>")
_FLAGS = re.compile(r"\?([a-zA-Z]*)(-?)([a-zA-Z]*)([:)])")
_KNOWN_FLAGS = "imsxUuR"
_STEPS_PER_STATE = 3
_STEPS_PER_NEW_STATE = 40
_STEPS_PER_CHANGE = 20
"""Budget steps for each place at which membership in a set of characters changes."""
_STEPS_PER_FOLDING = 5000
"""Budget steps for adding the variants in case to a set, which walks over all that there are."""
_MAX_STATES = 4096

Condition = Callable[[str, int], bool]
"""A condition on an index of a string."""


class RegexError(ValueError):
    """Raised for an invalid expression. The message continues a sentence about the expression."""


@dataclass(eq=False, slots=True)
class _RegexState:
    """A state of an automaton.

    A state with ``characters`` consumes one of them; other states consume nothing. A state with an
    ``assertion`` can only be entered where the assertion is true.
    """

    next: list[_RegexState] = field(default_factory=list)
    characters: CharacterSet | None = None
    assertion: Condition | None = None


class _Part(NamedTuple):
    """A part of an expression.

    ``build`` makes its states and returns the first, given the state after the part. ``height`` is
    the number of levels of groups and repetitions.
    """

    build: Callable[[_RegexState], _RegexState]
    height: int = 0


class LinearRegex:
    """A compiled regular expression. The constructor raises `RegexError` if it is invalid.

    With ``tantivy=True``, it is rejected if Tantivy, which matches whole terms, would reject it: for
    assertions, lazy repetitions and classes without characters (found by comparison). Decided here:
    Tantivy's limit of 1,000 states, of which three ``\\w`` need more, is not imitated. An expression
    may have 4,096 states, one for each character or class.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False, tantivy: bool = False) -> None:
        self._end = _RegexState()
        self._start = _Parser(pattern, ignore_case, tantivy).parse().build(self._end)

    def fullmatch(self, text: str) -> bool:
        return self._run(text, anywhere=False)

    def search(self, text: str) -> bool:
        return self._run(text, anywhere=True)

    def _run(self, text: str, *, anywhere: bool) -> bool:
        """Return whether a string matches, as a whole or, with ``anywhere``, in any part."""
        current: dict[_RegexState, None] = {}
        _enter(self._start, current, text, 0)
        spend(_STEPS_PER_STATE * len(current))
        for at, character in enumerate(text):
            if anywhere and self._end in current:
                return True
            code = ord(character)
            following: dict[_RegexState, None] = {}
            for state in current:
                if state.characters is not None and bisect(state.characters, code) & 1:
                    for target in state.next:
                        _enter(target, following, text, at + 1)
            if anywhere:
                _enter(self._start, following, text, at + 1)
            elif not following:
                return False
            current = following
            spend(_STEPS_PER_STATE * (1 + len(current)))
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
        if state.characters is None:
            waiting.extend(state.next)


class _Parser:
    """Parses an expression by recursive descent.

    ``_flags`` are the active flags at the current position.
    """

    def __init__(self, pattern: str, ignore_case: bool, tantivy: bool) -> None:
        self._pattern = pattern
        self._tantivy = tantivy
        self._flags = frozenset("iu" if ignore_case else "u")
        self._at = 0
        self._level = 0
        self._states = 0
        self._names: set[str] = set()

    def parse(self) -> _Part:
        expression = self._alternatives()
        if self._at < len(self._pattern):
            raise RegexError("has an unmatched closing parenthesis")
        return expression

    def _new(
        self,
        after: list[_RegexState],
        characters: CharacterSet | None = None,
        assertion: Condition | None = None,
    ) -> _RegexState:
        self._states += 1
        if self._states > _MAX_STATES:
            raise RegexError(f"is too large (more than {_MAX_STATES} states)")
        spend(_STEPS_PER_NEW_STATE)
        return _RegexState(after, characters, assertion)

    def _refuse(self, what: str, at: int) -> NoReturn:
        raise RegexError(f"has {what} at character {at + 1}")

    def _peek(self, length: int = 1) -> str:
        return self._pattern[self._at : self._at + length]

    def _take(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1 : self._at]

    def _take_match(self, syntax: re.Pattern[str]) -> re.Match[str] | None:
        match = syntax.match(self._pattern, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _skip_blanks(self) -> None:
        """Skip white space and comments, if flag x is active."""
        if "x" in self._flags:
            self._take_match(_BLANKS)

    def _enter_level(self) -> None:
        self._level += 1
        if self._level > _MAX_NESTING:
            raise RegexError(f"is nested more than {_MAX_NESTING} levels deep")

    # -- sequences ---------------------------------------------------------------------------------

    def _alternatives(self) -> _Part:
        self._enter_level()
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        self._level -= 1
        return _Part(
            lambda after: self._new([option.build(after) for option in options]),
            1 + max(option.height for option in options),
        )

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        is_repeatable = False
        while True:
            self._skip_blanks()
            start = self._at
            if self._peek() in ("", "|", ")"):
                break
            bounds = self._bounds()
            if bounds is not None:
                if not is_repeatable:
                    self._refuse("nothing to repeat", start)
                parts.append(self._repeated(parts.pop(), *bounds, start))
                continue
            part = self._group() if self._peek() == "(" else self._atom()
            is_repeatable = part is not None
            if part is not None:
                parts.append(part)
        reversed_parts = parts[::-1]
        return _Part(
            lambda after: reduce(
                lambda following, part: part.build(following), reversed_parts, after
            ),
            max((part.height for part in parts), default=0),
        )

    def _bounds(self) -> tuple[int, int | None] | None:
        """Return the minimum and maximum of a quantifier, or None if no quantifier follows."""
        if self._peek() in _QUANTIFIERS:
            return _QUANTIFIERS[self._take()]
        if self._peek() != "{":
            return None
        start = self._at
        counts = self._take_match(_COUNTS)
        if counts is None:
            self._refuse("an invalid repetition (write \\{ for a brace)", start)
        least, comma, most = counts.groups()
        minimum = int(least[:6])
        maximum = int(most[:6]) if most else None if comma else minimum
        if maximum is not None and maximum < minimum:
            self._refuse("an invalid repetition", start)
        return minimum, maximum

    def _repeated(self, part: _Part, minimum: int, maximum: int | None, start: int) -> _Part:
        is_lazy = self._peek() == "?"
        self._at += is_lazy
        is_lazy = is_lazy != ("U" in self._flags) and (minimum, maximum) not in ((0, 0), (1, 1))
        if part.height >= _MAX_HEIGHT:
            raise RegexError("has too many repetitions of repetitions")

        def build(after: _RegexState) -> _RegexState:
            if is_lazy and self._tantivy:
                self._refuse(
                    "a lazy repetition, which matches the same strings as a greedy one,", start
                )
            first, required = after, minimum
            if maximum is None:
                # Loop over the last required copy, so that nested repetitions stay small.
                loop = self._new([after])
                first = part.build(loop)
                loop.next.append(first)
                first, required = (first, minimum - 1) if minimum else (loop, 0)
            else:
                for _ in range(maximum - minimum):
                    first = self._new([part.build(first), after])
            for _ in range(required):
                copy = part.build(first)
                if copy is first:
                    break  # A part that is repeated zero times has no states.
                first = copy
            return first

        return _Part(build, part.height + 1)

    def _group(self) -> _Part | None:
        """Return the content of a group, or None for flags."""
        start = self._at
        self._at += 1
        self._skip_blanks()
        flags = self._flags
        name = self._take_match(_GROUP_NAME)
        if name is not None:
            if name[1] in self._names:
                self._refuse(f"a second group named {name[1]}", start)
            self._names.add(name[1])
        elif self._peek() == "?":
            ends = self._take_flags(start)
            if ends:
                return None
        content = self._alternatives()
        if self._take() != ")":
            raise RegexError("has an unclosed parenthesis")
        self._flags = flags
        return content

    def _take_flags(self, start: int) -> bool:
        """Change the flags and return whether they are for the rest of the group around them."""
        match = self._take_match(_FLAGS)
        if match is None:
            self._refuse("an unsupported or invalid group", start)
        on, minus, off, end = match.groups()
        is_valid = (
            set(on + off) <= set(_KNOWN_FLAGS)
            and len(set(on + off)) == len(on + off)
            and (off if minus else on or end == ":")
        )
        if not is_valid:
            self._refuse("invalid flags", start)
        self._flags = (self._flags | set(on)) - set(off)
        return end == ")"

    # -- characters --------------------------------------------------------------------------------

    def _atom(self) -> _Part:
        start = self._at
        sign = self._peek()
        assertion = self._assertion()
        if assertion is not None:
            return self._asserting(assertion, start)
        self._take()
        if sign == ".":
            excluded = [] if "s" in self._flags else ["\n", "\r"] if "R" in self._flags else ["\n"]
            characters = _complement(union(span(character, character) for character in excluded))
        elif sign == "[":
            characters = self._class()
        elif sign == "\\":
            escaped = self._escape()
            characters = self._literal(escaped) if isinstance(escaped, str) else escaped
        else:
            characters = self._literal(sign)
        self._check_unicode(characters, start)

        def build(after: _RegexState) -> _RegexState:
            if self._tantivy and not characters:
                self._refuse("a class without characters", start)
            return self._new([after], characters)

        return _Part(build)

    def _check_unicode(self, characters: CharacterSet, start: int) -> None:
        is_single = len(characters) == 2 and characters[1] == characters[0] + 1
        if "u" not in self._flags and not is_single:
            self._refuse("a class of bytes (flag u is off)", start)

    def _asserting(self, assertion: Condition, start: int) -> _Part:
        def build(after: _RegexState) -> _RegexState:
            if self._tantivy:
                self._refuse(
                    "an anchor or a boundary, though an expression always matches a whole term,",
                    start,
                )
            return self._new([after], assertion=assertion)

        return _Part(build)

    def _assertion(self) -> Condition | None:
        braces = self._take_match(_NAMED_BOUNDARY)
        if braces is not None:
            if braces[1] not in _BOUNDARIES:
                self._refuse("an unknown kind of boundary", self._at - len(braces[0]))
            return _BOUNDARIES[braces[1]]
        for length in (1, 2):
            sign = self._peek(length)
            assertion = _ANCHORS.get(f"(?m){sign}" if "m" in self._flags else sign)
            assertion = assertion or _ANCHORS.get(sign)
            if assertion is not None:
                self._at += length
                return assertion
        return None

    def _literal(self, character: str) -> CharacterSet:
        characters = span(character, character)
        return ignoring_case(characters) if "i" in self._flags else characters

    def _escape(self) -> str | CharacterSet:
        """Return the character that an escape stands for, or the set of a category like ``\\d``."""
        start = self._at - 1
        sign = self._take()
        if not sign:
            raise RegexError("ends with a backslash")
        if sign.lower() in _CATEGORIES:
            members = _CATEGORIES[sign.lower()]()
            return members if sign.islower() else _complement(members)
        if sign in "pP":
            return self._property(start, negated=sign == "P")
        if sign in _CODE_LENGTHS:
            return self._code_point(start, _CODE_LENGTHS[sign])
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if not sign.isascii() or sign.isalnum() or sign in "<>":
            self._refuse(f"the unsupported escape \\{sign}", start)
        return sign

    def _property(self, start: int, *, negated: bool) -> CharacterSet:
        if self._peek() == "{":
            end = self._pattern.find("}", self._at)
            if end < 0:
                self._refuse("an unclosed property", start)
            name = self._pattern[self._at + 1 : end]
            self._at = end + 1
        else:
            name = self._take()
        members = property_of(name)
        if members is None:
            self._refuse("an unknown property of characters", start)
        members = self._folded(members)
        return _complement(members) if negated else members

    def _code_point(self, start: int, length: int) -> str:
        match = self._take_match(_BRACED_CODE)
        digits = match[1] if match is not None else self._peek(length)
        if match is None:
            self._at += length
            if len(digits) < length:
                digits = ""
        code = int(digits, 16) if digits and set(digits) <= set(string.hexdigits) else -1
        if not 0 <= code < EVERYTHING[1] or 0xD800 <= code < 0xE000:
            self._refuse("an invalid code point", start)
        return chr(code)

    # -- classes -----------------------------------------------------------------------------------

    def _class(self) -> CharacterSet:
        """Return the set of a class, whose opening bracket has been read."""
        self._enter_level()
        self._skip_blanks()
        negated = self._peek() == "^"
        self._at += negated
        members: list[CharacterSet] = []
        self._skip_blanks()
        while self._peek() == "-":
            members.append(span("-", "-"))
            self._at += 1
            self._skip_blanks()
        if not members and self._peek() == "]":
            members.append(span("]", "]"))
            self._at += 1
        left: CharacterSet | None = None
        operation = xor
        while True:
            self._skip_blanks()
            sign = self._peek(2)
            if sign[:1] != "]" and sign not in _OPERATIONS:
                members.append(self._class_member())
                continue
            spend(_STEPS_PER_CHANGE * sum(map(len, (*members, left or ()))))
            right = self._folded(union(members))
            left = right if left is None else combined(left, right, operation)
            if sign not in _OPERATIONS:
                break
            members, operation = [], _OPERATIONS[sign]
            self._at += 2
        self._at += 1
        self._level -= 1
        return _complement(left) if negated else left

    def _folded(self, members: CharacterSet) -> CharacterSet:
        if "i" not in self._flags:
            return members
        spend(_STEPS_PER_FOLDING)
        return ignoring_case(members)

    def _class_member(self) -> CharacterSet:
        start = self._at
        if self._peek() == "[":
            named = self._take_match(_ASCII_CLASS)
            if named is not None and named[2] in ASCII_CLASSES:
                members = self._folded(ASCII_CLASSES[named[2]])
                return _complement(members) if named[1] else members
            self._at = start + 1
            return self._class()
        low = self._class_character()
        self._skip_blanks()
        after = self._after_dash()
        if after in ("", "]", "-"):
            return span(low, low) if isinstance(low, str) else low
        self._at += 1
        self._skip_blanks()
        high = self._class_character()
        if not isinstance(low, str) or not isinstance(high, str):
            self._refuse("a range without two characters", start)
        if low > high:
            self._refuse("a range in reverse order", start)
        return span(low, high)

    def _after_dash(self) -> str:
        """Return the character after a dash that follows, or an empty string."""
        if self._peek() != "-":
            return ""
        at = self._at
        self._at += 1
        self._skip_blanks()
        after = self._peek()
        self._at = at
        if not after:
            raise RegexError("has an unclosed character class")
        return after

    def _class_character(self) -> str | CharacterSet:
        sign = self._take()
        if not sign:
            raise RegexError("has an unclosed character class")
        return self._escape() if sign == "\\" else sign


def _complement(members: CharacterSet) -> CharacterSet:
    spend(_STEPS_PER_CHANGE * len(members))
    return complement(members)


_BLANKS = re.compile(r"(?:\s|#[^\n]*)+")
_BRACED_CODE = re.compile(r"\{([0-9A-Fa-f]+)\}")
_ASCII_CLASS = re.compile(r"\[:(\^?)([a-z]+):\]")
_NAMED_BOUNDARY = re.compile(r"\\b\{([A-Za-z-]+)\}")
_CODE_LENGTHS = {"x": 2, "u": 4, "U": 8}
_CATEGORIES: dict[str, Callable[[], CharacterSet]] = {
    "d": digits,
    "w": word_characters,
    "s": lambda: SPACES,
}
_CONTROLS = {"a": "\a", "n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"&&": and_, "--": gt, "~~": xor}


def _is_word_at(text: str, at: int) -> bool:
    return 0 <= at < len(text) and bool(bisect(word_characters(), ord(text[at])) & 1)


def _is_boundary(text: str, at: int) -> bool:
    return _is_word_at(text, at - 1) != _is_word_at(text, at)


def _starts_word(text: str, at: int) -> bool:
    return not _is_word_at(text, at - 1) and _is_word_at(text, at)


def _ends_word(text: str, at: int) -> bool:
    return _is_word_at(text, at - 1) and not _is_word_at(text, at)


_BOUNDARIES: dict[str, Condition] = {
    "start": _starts_word,
    "end": _ends_word,
    "start-half": lambda text, at: not _is_word_at(text, at - 1),
    "end-half": lambda text, at: not _is_word_at(text, at),
}
_ANCHORS: dict[str, Condition] = {
    "^": lambda text, at: at == 0,
    "$": lambda text, at: at == len(text),
    "(?m)^": lambda text, at: at == 0 or text[at - 1] == "\n",
    "(?m)$": lambda text, at: at == len(text) or text[at] == "\n",
    r"\A": lambda text, at: at == 0,
    r"\z": lambda text, at: at == len(text),
    r"\b": _is_boundary,
    r"\B": lambda text, at: not _is_boundary(text, at),
    r"\<": _starts_word,
    r"\>": _ends_word,
}
