"""Compiles metadata filters to predicates over a record's metadata.

A missing field never matches, not even ``!=`` or ``NOT IN``. ``HAS FIELD`` is true for a null, and
``HAS NOT FIELD`` is true if any parent is missing. ``<``, ``<=``, ``>`` and ``>=`` compare numbers
(``a < 'x'`` is valid and matches nothing), GLOB matches strings (case-sensitive, the whole value),
CONTAINS searches arrays; values of other types never match. Booleans equal 1 and 0. A path that the
grammar accepts but that cannot refer to anything (``industries#-1]``) matches nothing.

Decided here: ``!=`` and ``NOT IN`` are true for a string, number or boolean of another type than
the literal, and never for null, arrays and objects. A ``[`` without a closing bracket in a GLOB
pattern is an ordinary character.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from ...core.budget import spend
from .syntax import Expression, FieldTest, Joined, Literal, parse

Predicate = Callable[[Any], bool]
"""A function that takes a record's metadata, or None if the record has none."""
Getter = Callable[[Any], Any]

STEP = re.compile(r"\[(\d+)\]|\[#-(\d+)\]|(?:^|\.)([^.\[\]]+)")
NUMBERS: Final = (int, float)
SCALARS: Final = (str, int, float)
HUGE_INDEX: Final = 1 << 62
ORDERINGS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


MISSING: Final = object()
"""The value of a missing field."""
_STEPS_A_TEST, _STEPS_A_CHARACTER = 4, 0.02
"""Steps of the work budget for each test, and for each character matched with a pattern."""


@lru_cache(maxsize=256)
def compile_filter(text: str) -> Predicate:
    """Return the predicate for a non-empty filter; raise ``VectorError`` 400 if it is invalid."""
    return predicate(parse(text))


def predicate(expression: Expression) -> Predicate:
    if isinstance(expression, Joined):
        terms = tuple(map(predicate, expression.terms))
        join = all if expression.word == "AND" else any
        return lambda metadata: join(term(metadata) for term in terms)
    get = getter(expression.path)
    if get is None:
        return lambda metadata: False
    test = _test(expression)

    def holds(metadata: Any) -> bool:
        spend(_STEPS_A_TEST)
        return test(get(metadata))

    return holds


# -- paths ---------------------------------------------------------------------------------------


def getter(path: str) -> Getter | None:
    """Return a function that follows a path through metadata, or None if the path is invalid."""
    steps = _steps(path)
    if steps is None:
        return None
    if len(steps) == 1:
        name = steps[0]
        return lambda metadata: MISSING if metadata is None else metadata.get(name, MISSING)

    def get(metadata: Any) -> Any:
        value = metadata
        for step in steps:
            if isinstance(step, str):
                value = value.get(step, MISSING) if isinstance(value, Mapping) else MISSING
            elif isinstance(value, list) and -len(value) <= step < len(value):
                value = value[step]
            else:
                return MISSING
            if value is MISSING:
                return MISSING
        return value

    return get


def _steps(path: str) -> list[str | int] | None:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        match = STEP.match(path, at)
        if match is None:
            return None
        from_start, from_end, name = match.groups()
        if name is not None:
            steps.append(name)
        elif from_start is not None:
            steps.append(_index(from_start))
        else:
            # "#-0" refers to the position after the last element, which never exists.
            steps.append(-_index(from_end) or HUGE_INDEX)
        at = match.end()
    return steps


def _index(digits: str) -> int:
    return int(digits) if len(digits) < 18 else HUGE_INDEX


# -- tests of a value ----------------------------------------------------------------------------


def _test(test: FieldTest) -> Predicate:
    operand, negated = test.operand, test.negated
    match test.operator:
        case "HAS":
            return lambda value: (value is MISSING) is negated
        case "IN":
            # Sets compare by value (1 == 1.0 == True): as in the service, booleans equal 1 and 0.
            known = frozenset(operand)
            return lambda value: isinstance(value, SCALARS) and (value in known) is not negated
        case "GLOB":
            matches = glob_matcher(operand)
            return lambda value: isinstance(value, str) and matches(value) is not negated
        case "CONTAINS":
            return lambda value: (
                isinstance(value, list) and _contains(value, operand) is not negated
            )
        case "=":
            return partial(operator.eq, operand)
        case "!=":
            return lambda value: isinstance(value, SCALARS) and value != operand
        case sign:
            if isinstance(operand, str):
                return lambda value: False
            compare = ORDERINGS[sign]
            return lambda value: isinstance(value, NUMBERS) and compare(value, operand)


def _contains(values: list[Any], literal: Literal) -> bool:
    spend(len(values) * _STEPS_A_TEST)
    return any(isinstance(value, SCALARS) and value == literal for value in values)


# -- GLOB ----------------------------------------------------------------------------------------


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a string with ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[^abc]``.

    Each piece between two stars is searched once from the end of the previous one, so no pattern
    causes backtracking.
    """
    tokens: list[list[str]] = [[]]
    for token in _tokens(pattern):
        if token == "*":
            tokens.append([])
        else:
            tokens[-1].append(token)
    pieces = [re.compile("".join(piece), re.DOTALL) for piece in tokens]
    if len(pieces) == 1:
        whole = pieces[0]
        return lambda text: whole.fullmatch(text) is not None
    first, *middle, last = pieces
    longest, last_length = max(map(len, tokens)), len(tokens[-1])

    def matches(text: str) -> bool:
        spend((longest + len(middle)) * (1 + len(text)) * _STEPS_A_CHARACTER)
        head = first.match(text)
        if head is None:
            return False
        at = head.end()
        for piece in middle:
            found = piece.search(text, at)
            if found is None:
                return False
            at = found.end()
        start = len(text) - last_length
        return start >= at and last.fullmatch(text, start) is not None

    return matches


def _tokens(pattern: str) -> Iterator[str]:
    """Yield the pattern as regular expressions for single characters; ``*`` is kept."""
    at = 0
    while at < len(pattern):
        character = pattern[at]
        close = _closing_bracket(pattern, at) if character == "[" else -1
        if close > 0:
            yield _character_class(pattern[at + 1 : close])
            at = close
        elif character == "*":
            yield "*"
        else:
            yield "." if character == "?" else re.escape(character)
        at += 1


def _closing_bracket(pattern: str, opening: int) -> int:
    """Return the position of the closing bracket, or -1. A first ``]`` or ``^]`` does not close."""
    first = opening + 1
    if pattern[first : first + 1] == "^":
        first += 1
    return pattern.find("]", first + 1)


def _character_class(inside: str) -> str:
    negated = inside.startswith("^")
    body = inside[1:] if negated else inside
    parts = []
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            low, high = sorted((body[at], body[at + 2]))
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            parts.append(re.escape(body[at]))
            at += 1
    return f"[{'^' if negated else ''}{''.join(parts)}]"
