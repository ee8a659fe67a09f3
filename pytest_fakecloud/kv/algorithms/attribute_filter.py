"""The filter expressions of VSIM: conditions on the attributes of elements, which are JSON objects.

The syntax is that of the documentation of Redis 8: ``.name`` is an attribute, and there are numbers,
strings in quotes, lists in brackets, arithmetic, comparisons, ``in``, ``and``, ``or`` and
``not`` (also ``&&``, ``||`` and ``!``). Booleans are 1 and 0. An element does not match if an attribute
is missing or has a type that an operator cannot use.

Decided here, because the documentation does not say it: operators bind as in Python, so ``not`` binds
less than a comparison, and ``**`` more than a sign. Strings can be compared with strings, and only by
``==`` and ``!=``. An operand of ``and`` and ``or`` that does not decide is not looked at. An infinite or
undefined number matches nothing.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...core.budget import spend

Value: TypeAlias = "float | str | list[float | str]"
Attributes: TypeAlias = Mapping[str, Any]
_Node: TypeAlias = Callable[[Attributes], Value]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
        |(?P<field>\.[A-Za-z_]\w*)
        |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
        |(?P<word>[A-Za-z]+)
        |(?P<sign>\*\*|==|!=|>=|<=|&&|\|\||[-+*/%<>!()\[\],])
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_SYNONYMS = {"&&": "and", "||": "or", "!": "not"}
_WORDS = ("and", "or", "not", "in")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge,
    "<=": operator.le,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[float, float], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": math.fmod,
    "**": operator.pow,
}  # fmt: skip
_DEEPEST = 100


class FilterError(Exception):
    """Raised for an expression that does not follow the syntax."""


class _Unusable(Exception):
    """Raised if an element does not match, because an operator cannot use a value."""


class AttributeFilter:
    """A parsed expression. Without ``has_in``, it is that of a server without the operator ``in``."""

    def __init__(self, text: str, *, has_in: bool = True) -> None:
        parser = _Parser(text, has_in)
        self._node = parser.alternatives()
        self._steps = len(parser.tokens)
        if parser.next:
            raise FilterError(f"unexpected {parser.next}")

    def matches(self, attributes: bytes | None) -> bool:
        """Return whether an element with these attributes, which are JSON, or without any matches."""
        if attributes is None:
            return False
        spend(2 * self._steps + len(attributes) // 10)
        fields = json.loads(attributes)
        if not isinstance(fields, dict):
            return False
        try:
            return _is_true(self._node(fields))
        except _Unusable:
            return False


class _Parser:
    """Reads the tokens of an expression, the weakest operators first."""

    def __init__(self, text: str, has_in: bool) -> None:
        self.tokens: list[str] = []
        self._at = 0
        self._depth = 0
        self._has_in = has_in
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise FilterError(f"unexpected {text[at:].strip()[:20]}")
            if match["word"] and match["word"] not in _WORDS:
                raise FilterError(f"unexpected {match['word']}")
            token = match[0].strip()
            self.tokens.append(_SYNONYMS.get(token, token))
            at = match.end()

    @property
    def next(self) -> str:
        """The next token, or an empty string at the end."""
        return self.tokens[self._at] if self._at < len(self.tokens) else ""

    def _take(self, *tokens: str) -> str:
        """Skip the next token if it is one of some, and return it; else return an empty string."""
        token = self.next
        if token not in tokens:
            return ""
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise FilterError(f"unexpected {self.next or 'end'}, expected {token}")

    def alternatives(self) -> _Node:
        node = self._conditions()
        while self._take("or"):
            node = _either(node, self._conditions())
        return node

    def _conditions(self) -> _Node:
        node = self._negation()
        while self._take("and"):
            node = _both(node, self._negation())
        return node

    def _negation(self) -> _Node:
        negations = 0
        while self._take("not"):
            negations += 1
        node = self._comparison()
        return node if not negations else _negated(node, even=negations % 2 == 0)

    def _comparison(self) -> _Node:
        node = self._sum()
        while sign := self._take(*_COMPARISONS, *(["in"] if self._has_in else [])):
            other = self._sum()
            node = _member(node, other) if sign == "in" else _compared(sign, node, other)
        return node

    def _sum(self) -> _Node:
        node = self._product()
        while sign := self._take("+", "-"):
            node = _calculated(sign, node, self._product())
        return node

    def _product(self) -> _Node:
        node = self._signed()
        while sign := self._take("*", "/", "%"):
            node = _calculated(sign, node, self._signed())
        return node

    def _signed(self) -> _Node:
        is_negative = False
        while sign := self._take("-", "+"):
            is_negative ^= sign == "-"
        node = self._power()
        return _calculated("-", lambda fields: 0.0, node) if is_negative else node

    def _power(self) -> _Node:
        node = self._operand()
        if not self._take("**"):
            return node
        self._go_deeper()
        node = _calculated("**", node, self._signed())
        self._depth -= 1
        return node

    def _go_deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise FilterError("too many parts inside each other")

    def _operand(self) -> _Node:
        if self._take("("):
            self._go_deeper()
            node = self.alternatives()
            self._expect(")")
            self._depth -= 1
            return node
        if self._take("["):
            return self._list()
        token = self.next
        if token[:1] == "." and not token[1:2].isdigit():
            self._at += 1
            return lambda fields: _value_of(fields.get(token[1:]))
        value = self._literal()
        return lambda fields: value

    def _list(self) -> _Node:
        values: list[float | str] = []
        while not self._take("]"):
            if values:
                self._expect(",")
            values.append(self._literal())
        return lambda fields: values

    def _literal(self) -> float | str:
        sign = -1 if self._take("-") else 1
        token = self.next
        self._at += 1
        if token[:1] in ("'", '"') and sign == 1:
            return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)
        if token[:1].isdigit() or token[1:2].isdigit():
            return sign * float(token)
        raise FilterError(f"unexpected {token or 'end'}")


def _value_of(value: Any) -> Value:
    """Return an attribute; raise ``_Unusable`` for one that is missing, null or an object."""
    if isinstance(value, int | float):
        return _finite(value)
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_finite(item) if isinstance(item, int | float) else item for item in value]
    raise _Unusable


def _finite(number: Any) -> float:
    """Return a number as a float; raise ``_Unusable`` for one that is infinite, complex or undefined."""
    try:
        value = float(number)
    except (OverflowError, TypeError):
        raise _Unusable from None
    if not math.isfinite(value):
        raise _Unusable
    return value


def _is_true(value: Value) -> bool:
    return value != 0 if isinstance(value, float) else bool(value)


def _either(left: _Node, right: _Node) -> _Node:
    return lambda fields: float(_is_true(left(fields)) or _is_true(right(fields)))


def _both(left: _Node, right: _Node) -> _Node:
    return lambda fields: float(_is_true(left(fields)) and _is_true(right(fields)))


def _negated(node: _Node, *, even: bool) -> _Node:
    return lambda fields: float(_is_true(node(fields)) is even)


def _compared(sign: str, left: _Node, right: _Node) -> _Node:
    def compare(fields: Attributes) -> Value:
        first, second = left(fields), right(fields)
        if isinstance(first, float) and isinstance(second, float):
            return float(_COMPARISONS[sign](first, second))
        if isinstance(first, str) and isinstance(second, str) and sign in ("==", "!="):
            return float(_COMPARISONS[sign](first, second))
        raise _Unusable

    return compare


def _member(node: _Node, container: _Node) -> _Node:
    def contains(fields: Attributes) -> Value:
        value, values = node(fields), container(fields)
        if isinstance(value, list) or not isinstance(values, list):
            raise _Unusable
        spend(len(values))
        return float(any(type(item) is type(value) and item == value for item in values))

    return contains


def _calculated(sign: str, left: _Node, right: _Node) -> _Node:
    def calculate(fields: Attributes) -> Value:
        first, second = left(fields), right(fields)
        if not (isinstance(first, float) and isinstance(second, float)):
            raise _Unusable
        try:
            return _finite(_ARITHMETIC[sign](first, second))
        except (ArithmeticError, ValueError):
            raise _Unusable from None

    return calculate
