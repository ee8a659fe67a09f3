"""The grammar of metadata filters, and their parser, whose errors have a line and a column.

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

Decided here: a backslash escapes the next character of a string; numbers may have an exponent;
operators such as ``==`` and ``<>`` are errors; parentheses nest at most 100 deep.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import invalid_filter

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
    return _Parser(text).parse()


class _Parser:
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
        return self._joined("OR", self._and)

    def _and(self) -> Expression:
        return self._joined("AND", self._term)

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
