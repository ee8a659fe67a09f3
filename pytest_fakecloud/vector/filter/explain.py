"""Explains why a filter does not match a record, by describing the conditions that are false."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

from .predicate import MISSING, getter, predicate
from .syntax import And, Compare, Contains, Expression, Glob, HasField, In, Literal, Or, parse


def why_not(text: str, metadata: Mapping[str, Any] | None) -> str | None:
    """Return the reason why a filter does not match this metadata, or None if it matches.

    Raises ``VectorError`` 400 for a filter that cannot be parsed.
    """
    return _why_not(parse(text), metadata)


def _why_not(expression: Expression, metadata: Mapping[str, Any] | None) -> str | None:
    if predicate(expression)(metadata):
        return None
    if isinstance(expression, And):
        return next(filter(None, (_why_not(one, metadata) for one in expression.terms)), None)
    if isinstance(expression, Or):
        reasons = (_why_not(one, metadata) for one in expression.terms)
        return ", and ".join(filter(None, reasons))
    path = expression.path
    get = getter(path)
    value = MISSING if get is None else get(metadata)
    if isinstance(expression, HasField):
        return f"{path} is {'present' if expression.negated else 'absent'}"
    if value is MISSING:
        names = ", ".join(sorted(metadata or ()))
        return f"{path} is absent ({f'its metadata has only {names}' if names else 'no metadata'})"
    hint = ""
    if isinstance(value, list) and isinstance(expression, Compare):
        hint = "; use CONTAINS for an array"
    elif isinstance(value, str) and isinstance(expression, Compare):
        asked = expression.literal
        if (
            isinstance(asked, str)
            and value != asked
            and normalize("NFC", value) == normalize("NFC", asked)
        ):
            hint = "; both are the same text in different Unicode forms: normalize both (NFC)"
    return f"{path} is {_typed(value)}, {_asked(expression)}{hint}"


def _asked(expression: Compare | In | Glob | Contains) -> str:
    if isinstance(expression, In):
        within = ", ".join(map(_typed, expression.literals))
        return f"{'excluded by' if expression.negated else 'not one of'} {within}"
    if isinstance(expression, Glob):
        return f"compared with the pattern {json.dumps(expression.pattern)}"
    if isinstance(expression, Contains):
        return f"searched for {_typed(expression.literal)}"
    sign = "" if expression.operator == "=" else f" by {expression.operator}"
    return f"compared{sign} with {_typed(expression.literal)}"


def _typed(value: Literal | Any) -> str:
    kinds = {bool: "the boolean", int: "the number", float: "the number", str: "the string"}
    kind = kinds.get(type(value), "the array" if isinstance(value, list) else "the object")
    if value is None:
        return "null"
    return f"{kind} {json.dumps(value, ensure_ascii=False)}"
