"""Explains why a metadata filter does not match a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

from .predicate import MISSING, getter, predicate
from .syntax import COMPARISONS, Expression, FieldTest, Joined, Literal, parse


def why_not(text: str, metadata: Mapping[str, Any] | None) -> str | None:
    """Return why a filter does not match this metadata, or None if it matches."""
    return _reason(parse(text), metadata)


def _reason(expression: Expression, metadata: Mapping[str, Any] | None) -> str | None:
    if predicate(expression)(metadata):
        return None
    if isinstance(expression, Joined):
        reasons = filter(None, (_reason(one, metadata) for one in expression.terms))
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
    asked = test.operand
    if not isinstance(value, str) or not isinstance(asked, str) or value == asked:
        return ""
    same = normalize("NFC", value) == normalize("NFC", asked)
    hint = "; both are the same text in different Unicode forms: normalize both (NFC)"
    return hint if same else ""


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
    if value is None:
        return "null"
    return f"{kind} {json.dumps(value, ensure_ascii=False)}"
