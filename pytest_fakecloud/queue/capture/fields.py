"""The fields of received callbacks: which there are, and in what one differs from what is asked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError
from ..asking import (
    Sort,
    agrees_as,
    check,
    differing,
    header_differences,
)

if TYPE_CHECKING:
    from .callbacks import Callback

_FIELDS: dict[str, Sort] = {
    "status": "number",
    "body": "bytes",
    "json": "json",
    "source_body": "bytes",
    "source_json": "json",
    "source_message_id": "text",
    "retried": "number",
    "max_retries": "number",
    "dlq_id": "text",
    "url": "text",
    "is_final": "flag",
    "verified": "flag",
    "problem": "text",
    "failure": "flag",
    "headers": "headers",
    "raw": "dict",
    "at": "instant",
}


def check_fields(fields: Mapping[str, object]) -> None:
    """Refuse fields that callbacks lack, and values that could never agree: they prove nothing."""
    for name, wanted in fields.items():
        if name not in _FIELDS:
            raise ContractError(f"a callback has no {name!r}; it has: {', '.join(_FIELDS)}")
        check(name, _FIELDS[name], wanted)


def differences(item: Callback, fields: Mapping[str, object]) -> list[str]:
    """Return, in words, in what an item is not the one asked for; [] when it is."""
    return [
        difference
        for name, value in fields.items()
        for difference in _difference(item, name, value)
    ]


def _difference(item: Callback, name: str, wanted: Any) -> Iterator[str]:
    if name == "headers" and isinstance(wanted, Mapping):
        yield from header_differences(item.headers, wanted)
        return
    value = getattr(item, name)
    if name in ("json", "source_json"):
        try:
            value = value()
        except ValueError:
            yield f"{name} is no JSON: {item.body if name == 'json' else item.source_body!r}"
            return
    if name == "source_message_id":
        # The message itself stands for its id.
        wanted = getattr(wanted, "id", wanted)
    if agrees_as(_FIELDS[name], value, wanted):
        return
    if isinstance(value, dict | list) and isinstance(wanted, dict | list):
        lines = difflib.ndiff(_listed(wanted), _listed(value))
        yield "\n    ".join([f"{name} differs (- expected, + received):", *lines])
        return
    yield differing(name, value, wanted)


def _listed(value: object) -> list[str]:
    return json.dumps(value, indent=2, sort_keys=True, default=repr).splitlines()
