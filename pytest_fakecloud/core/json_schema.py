"""Validate JSON from users: state files, HTTP archives, requests and responses.

The supported keywords of JSON Schema are ``type``, ``enum``, ``anyOf``, ``minimum``, ``maximum``,
``properties``, ``patternProperties`` (for names that ``properties`` lacks), ``required``,
``additionalProperties``, ``items`` and ``minItems``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .errors import brief, unknown_name

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def violations(value: Any, schema: Mapping[str, Any], whole: str, place: str = "") -> Iterator[str]:
    """Yield a sentence for each part of a value that a schema does not allow.

    ``place`` is the location of the value in the ``whole``; it is empty for the whole value.
    """
    here = place or whole
    if "anyOf" in schema:
        alternatives = list(_flat(schema["anyOf"]))
        violations_of_each = [
            list(violations(value, alternative, whole, place))
            for alternative in alternatives
            if _has_type(value, alternative)
        ]
        if not violations_of_each:
            words = " or ".join(dict.fromkeys(map(_wanted, alternatives)))
            yield f"{here} is {brief(value)}; pass {words}"
        elif all(violations_of_each):
            yield from violations_of_each[0]
        return
    wrong = "enum" in schema and value not in schema["enum"]
    if wrong or ("type" in schema and not _has_type(value, schema)):
        yield f"{here} is {brief(value)}; pass {_wanted(schema)}"
        return
    is_bounded = "minimum" in schema and isinstance(value, int | float)
    if is_bounded and not schema["minimum"] <= value <= schema["maximum"]:
        yield f"{here} is {value}; pass {schema['minimum']} to {schema['maximum']}"
    if isinstance(value, dict):
        yield from _members(value, schema, whole, place)
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{here} is empty; pass at least {schema['minItems']}"
        for number, item in enumerate(value):
            yield from violations(item, schema.get("items", {}), whole, f"{place}[{number}]")


def _flat(schemas: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for schema in schemas:
        yield from _flat(schema["anyOf"]) if "anyOf" in schema else [schema]


def _types_of(schema: Mapping[str, Any]) -> list[str]:
    names = schema.get("type", "string")  # A schema without a type lists strings in ``enum``.
    return names if isinstance(names, list) else [names]


def _has_type(value: object, schema: Mapping[str, Any]) -> bool:
    types = tuple(kind for name in _types_of(schema) for kind in _TYPES[name])
    # For Python, True is an integer.
    return isinstance(value, types) and (not isinstance(value, bool) or bool in types)


def _wanted(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    return " or ".join(
        "null" if name == "null" else f"{'an' if name[0] in 'aio' else 'a'} {name}"
        for name in _types_of(schema)
    )


def _members(
    value: dict[str, Any], schema: Mapping[str, Any], whole: str, place: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    additional = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place or whole} has no field {name!r}"
    for name, item in value.items():
        plain = re.fullmatch(r"[$\w-]{1,100}", name)
        below = f"{place}.{name if plain else brief(name)}".removeprefix(".")
        if name in properties:
            yield from violations(item, properties[name], whole, below)
        elif matching := [pattern for pattern in patterns if re.search(pattern, name)]:
            for pattern in matching:
                yield from violations(item, patterns[pattern], whole, below)
        elif additional is False:
            names = [property_name for property_name in properties if property_name != "$schema"]
            yield unknown_name(f"field of {place or whole}", name, names)
        elif isinstance(additional, dict):
            yield from violations(item, additional, whole, below)


def check_nesting(value: Any, most: int) -> Any:
    """Return a JSON value unchanged; raise ``ValueError`` if it is nested ``most`` levels deep."""
    level = [value]
    for _ in range(most):
        inner: list[Any] = []
        for member in level:
            if isinstance(member, dict | list):
                inner += member.values() if isinstance(member, dict) else member
        level = inner
        if not level:
            return value
    raise ValueError("the body is nested too deeply")
