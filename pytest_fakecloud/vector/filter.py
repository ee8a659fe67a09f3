"""Metadata filters: their grammar, predicates over a record's metadata, and why one does not match.

    filter  = or ;
    or      = and , { "OR" , and } ;
    and     = term , { "AND" , term } ;
    term    = "(" , or , ")" | "HAS" , [ "NOT" ] , "FIELD" , path | test ;
    test    = path , ( ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) , literal
                     | [ "NOT" ] , "IN" , "(" , literal , { "," , literal } , ")"
                     | [ "NOT" ] , "GLOB" , string
                     | [ "NOT" ] , "CONTAINS" , literal ) ;
    literal = string | number | "true" | "false" ;

Keywords are case-insensitive; AND binds tighter than OR; there is no general NOT and no null. No
name is reserved: a keyword in the position of a field is a field name (``in IN (1)``, ``HAS FIELD
not``). Strings have single or double quotes; the other kind of quote needs no escape. Error
messages start like the service's (``Invalid filter. At line 1:24 token recognition error at: '['``,
columns from 0).

A missing field never matches, not even ``!=`` or ``NOT IN``. ``HAS FIELD`` is true for a null, and
``HAS NOT FIELD`` is true if any parent is missing. ``<``, ``<=``, ``>`` and ``>=`` compare numbers
(``a < 'x'`` is valid and matches nothing), GLOB matches strings (case-sensitive, the whole value),
CONTAINS searches arrays; values of other types never match. Booleans equal 1 and 0. A path that the
grammar accepts but that cannot refer to anything (``industries#-1]``) matches nothing.

Decided here: a backslash escapes the next character of a string; numbers may have an exponent;
operators such as ``==`` and ``<>`` are errors; parentheses nest at most 100 deep. ``!=`` and ``NOT
IN`` are true for a string, number or boolean of another type than the literal, and never for null,
arrays and objects. A ``[`` without a closing bracket in a GLOB pattern is an ordinary character.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NoReturn
from unicodedata import normalize

from .errors import invalid_filter
from .model import Predicate

Getter = Callable[[Any], Any]

STEP = re.compile(r"\[(\d+)\]|\[#-(\d+)\]|(?:^|\.)([^.\[\]]+)")
NUMBERS: Final = (int, float)
SCALARS: Final = (str, int, float)
HUGE_INDEX: Final = 1 << 62
ORDERINGS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


MISSING: Final = object()
"""The value of a missing field."""


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
    return lambda metadata: test(get(metadata))


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
        if from_start is not None:
            steps.append(_index(from_start))
        else:
            # "#-0" refers to the position after the last element, which never exists.
            steps.append(name or -_index(from_end) or HUGE_INDEX)
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
            accepted = frozenset(operand)
            return lambda value: isinstance(value, SCALARS) and (value in accepted) is not negated
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
    return any(isinstance(value, SCALARS) and value == literal for value in values)


# -- GLOB ----------------------------------------------------------------------------------------


GLOB_TOKEN = re.compile(r"\[(\^?+)(.[^\]]*)\]|.", re.DOTALL)
"""A character class or another character. A first ``]`` or ``^]`` does not close a class."""
CLASS_MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a string with ``*``, ``?``, ``[abc]``, ``[a-z]``, ``[^abc]``.

    Each piece between two stars is searched once from the end of the previous one, so no pattern
    causes backtracking.
    """
    pieces: list[list[str]] = [[]]
    for token in GLOB_TOKEN.finditer(pattern):
        if token[0] == "*":
            pieces.append([])
        else:
            pieces[-1].append(_single(token))
    head, *others = map("".join, pieces)
    middle = "".join(f"(?>.*?{piece})" for piece in others[:-1])
    tail = "".join(f".*{piece}" for piece in others[-1:])
    fullmatch = re.compile(head + middle + tail, re.DOTALL).fullmatch
    return lambda text: fullmatch(text) is not None


def _single(token: re.Match[str]) -> str:
    """Return the regular expression for a token, which matches a single character."""
    negation, members = token.groups()
    if members is None:
        return "." if token[0] == "?" else re.escape(token[0])
    ends = (sorted(filter(None, member.groups())) for member in CLASS_MEMBER.finditer(members))
    ranges = "".join("-".join(map(re.escape, pair)) for pair in ends)
    return f"[{negation}{ranges}]"


Literal = str | int | float | bool

MAX_DEPTH = 100
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
SEARCHES = ("IN", "GLOB", "CONTAINS")
KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "IN", "GLOB", "CONTAINS", "HAS", "FIELD", "TRUE", "FALSE"}
)
TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<string>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
  | (?P<path>[A-Za-z_](?:[A-Za-z0-9_.\#\-\]]|\[(?=[0-9\#]))*)
  | (?P<symbol>!=|<=|>=|[=<>(),])
    """,
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FieldTest:
    """A test of the value at a path.

    ``operator`` is one of ``COMPARISONS`` with a literal as its operand, ``GLOB`` with a pattern,
    ``CONTAINS`` with a literal, ``IN`` with a tuple of literals, or ``HAS`` without an operand.
    """

    path: str
    operator: str
    operand: Any = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions joined by the word ``AND`` or ``OR``."""

    word: str
    terms: tuple[Expression, ...]


Expression = FieldTest | Joined


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the filter: its kind, its text, and its offset in characters."""

    kind: str
    text: str
    at: int

    @property
    def keyword(self) -> str:
        """The keyword in upper case, or an empty string if the token is not a keyword."""
        word = self.text.upper()
        return word if self.kind == "path" and word in KEYWORDS else ""


def parse(text: str) -> Expression:
    """Return a filter's syntax tree; raise ``VectorError`` 400 with an error's line and column."""
    return _FilterParser(text).parse()


class _FilterParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.index = 0
        self.depth = 0

    def _tokens(self) -> list[Token]:
        tokens = []
        at = 0
        while at < len(self.text):
            match = TOKEN.match(self.text, at)
            if match is None:
                shown = self.text[at : at + 40] if self.text[at] in "'\"" else self.text[at]
                self._fail(at, f"token recognition error at: '{shown}'")
            if match.lastgroup != "space":
                tokens.append(Token(str(match.lastgroup), match.group(), at))
            at = match.end()
        tokens.append(Token("end", "<EOF>", len(self.text)))
        return tokens

    def _fail(self, at: int, what: str) -> NoReturn:
        line = self.text.count("\n", 0, at) + 1
        column = at - (self.text.rfind("\n", 0, at) + 1)
        raise invalid_filter(line, column, what)

    def _mismatch(self, expected: str) -> NoReturn:
        token = self.tokens[self.index]
        shown = token.text if token.kind == "end" else f"'{token.text[:40]}'"
        self._fail(token.at, f"mismatched input {shown} expecting {expected}")

    def _take(self, kind: str, expected: str) -> Token:
        token = self.tokens[self.index]
        if token.kind != kind:
            self._mismatch(expected)
        self.index += 1
        return token

    def _symbol(self, *texts: str) -> str | None:
        token = self.tokens[self.index]
        if token.kind == "symbol" and token.text in texts:
            self.index += 1
            return token.text
        return None

    def _word(self, *keywords: str) -> str | None:
        word = self.tokens[self.index].keyword
        if word in keywords:
            self.index += 1
            return word
        return None

    def parse(self) -> Expression:
        expression = self._or()
        if self.tokens[self.index].kind != "end":
            self._mismatch("AND, OR or the end of the filter")
        return expression

    def _or(self) -> Expression:
        return self._joined("OR", lambda: self._joined("AND", self._term))

    def _joined(self, word: str, rule: Callable[[], Expression]) -> Expression:
        terms = [rule()]
        while self._word(word):
            terms.append(rule())
        return terms[0] if len(terms) == 1 else Joined(word, tuple(terms))

    def _term(self) -> Expression:
        start = self.tokens[self.index].at
        if self._symbol("("):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self._fail(start, f"parentheses are nested more than {MAX_DEPTH} deep")
            inside = self._or()
            self.depth -= 1
            if not self._symbol(")"):
                self._mismatch("')', AND or OR")
            return inside
        if self.tokens[self.index].keyword == "HAS" and not self._tests_a_field():
            self.index += 1
            negated = self._word("NOT") is not None
            if not self._word("FIELD"):
                self._mismatch("FIELD" if negated else "FIELD or NOT FIELD")
            return FieldTest(self._take("path", "a field").text, "HAS", negated=negated)
        return self._test()

    def _tests_a_field(self) -> bool:
        """Return whether an operator follows, so that the current word is a field name."""
        operator = self._peek(1)
        if operator.keyword == "NOT":
            return self._peek(2).keyword in SEARCHES
        return operator.text in COMPARISONS or operator.keyword in SEARCHES

    def _peek(self, ahead: int) -> Token:
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def _test(self) -> Expression:
        expected = "a field, HAS or '('"
        if self.tokens[self.index].keyword and not self._tests_a_field():
            self._mismatch(expected)
        path = self._take("path", expected).text
        operator = self._symbol(*COMPARISONS)
        if operator:
            return FieldTest(path, operator, self._literal())
        negated = self._word("NOT") is not None
        search = self._word(*SEARCHES)
        if search is None:
            self._mismatch(
                "IN, GLOB or CONTAINS"
                if negated
                else "an operator (=, !=, <, <=, >, >=, IN, GLOB, …)"
            )
        operands = {"IN": self._list, "GLOB": self._pattern, "CONTAINS": self._literal}
        return FieldTest(path, search, operands[search](), negated)

    def _pattern(self) -> str:
        return _string(self._take("string", "a string").text)

    def _list(self) -> tuple[Literal, ...]:
        if not self._symbol("("):
            self._mismatch("'('")
        literals = [self._literal()]
        while self._symbol(","):
            literals.append(self._literal())
        if not self._symbol(")"):
            self._mismatch("',' or ')'")
        return tuple(literals)

    def _literal(self) -> Literal:
        token = self.tokens[self.index]
        word = self._word("TRUE", "FALSE")
        if word:
            return word == "TRUE"
        if token.kind == "string":
            self.index += 1
            return _string(token.text)
        if token.kind == "number":
            self.index += 1
            return _number(token.text)
        self._mismatch("a string, a number, true or false")


def _string(text: str) -> str:
    return ESCAPE.sub(r"\1", text[1:-1])


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def why_not(text: str, metadata: Mapping[str, Any] | None) -> str | None:
    """Return why a filter does not match this metadata, or None if it matches."""
    return _reason(parse(text), metadata)


def _reason(expression: Expression, metadata: Mapping[str, Any] | None) -> str | None:
    if predicate(expression)(metadata):
        return None
    if isinstance(expression, Joined):
        reasons = filter(None, (_reason(term, metadata) for term in expression.terms))
        return next(reasons, None) if expression.word == "AND" else ", and ".join(reasons)
    path = expression.path
    get = getter(path)
    value = MISSING if get is None else get(metadata)
    if expression.operator == "HAS":
        return f"{path} is {'present' if expression.negated else 'absent'}"
    if value is MISSING:
        names = ", ".join(sorted(metadata or ()))
        return f"{path} is absent ({f'its metadata has only {names}' if names else 'no metadata'})"
    return f"{path} is {_typed(value)}, {_asked(expression)}{_hint(expression, value)}"


def _hint(test: FieldTest, value: Any) -> str:
    if test.operator not in COMPARISONS:
        return ""
    if isinstance(value, list):
        return "; use CONTAINS for an array"
    operand = test.operand
    strings = isinstance(value, str) and isinstance(operand, str)
    if strings and value != operand and normalize("NFC", value) == normalize("NFC", operand):
        return "; both are the same text in different Unicode forms: normalize both (NFC)"
    return ""


def _asked(test: FieldTest) -> str:
    match test.operator:
        case "IN":
            within = ", ".join(map(_typed, test.operand))
            return f"{'excluded by' if test.negated else 'not one of'} {within}"
        case "GLOB":
            return f"compared with the pattern {json.dumps(test.operand)}"
        case "CONTAINS":
            return f"searched for {_typed(test.operand)}"
        case sign:
            return f"compared{'' if sign == '=' else f' by {sign}'} with {_typed(test.operand)}"


def _typed(value: Literal | Any) -> str:
    kinds = {bool: "the boolean", int: "the number", float: "the number", str: "the string"}
    kind = kinds.get(type(value), "the array" if isinstance(value, list) else "the object")
    return "null" if value is None else f"{kind} {json.dumps(value, ensure_ascii=False)}"
