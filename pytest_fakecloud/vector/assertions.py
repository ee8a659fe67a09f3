"""Upserts and queries that clients sent, read from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import orjson

from ..core.calls import Call, whole_body
from ..core.journal import Journal
from ..core.wording import brief

UPSERTS = ("upsert", "upsert-data")
QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
DEFAULTS = {"topK": 10, "filter": ""}

Item = dict[str, Any]


def upserts(journal: Journal) -> Iterator[Item]:
    """Yield every record that clients upserted, as they sent it, with its ``namespace`` and with
    its id converted to a string.
    """
    for call in _calls(journal, UPSERTS, reached=True):
        yield from _items(call)


def queries(journal: Journal) -> Iterator[Item]:
    """Yield every query that the index executed, with its ``namespace`` and default values."""
    for call in _calls(journal, QUERIES, reached=True):
        yield from _items(call)


def refused(journal: Journal, routes: Iterable[str]) -> Iterator[tuple[Item, str]]:
    """Yield the items that clients sent but the index did not store or execute, each with the
    reason.
    """
    for call in _calls(journal, routes, reached=False):
        why = f"not carried out: {_why_refused(call)}"
        try:
            items = list(_items(call))
        except (ValueError, AttributeError):
            # The body is not JSON or contains no objects, so only the namespace can be described.
            items = [{"namespace": namespace_of(call)}]
        for item in items:
            yield item, why


def _calls(journal: Journal, routes: Iterable[str], *, reached: bool) -> Iterator[Call]:
    # The HTTP status does not show whether a call was executed: a fault can drop the response of an
    # executed call, or return 200 for a call that was not executed.
    names = tuple(routes)
    return (call for call in journal.calls() if call.route in names and call.reached is reached)


def _items(call: Call) -> Iterator[Item]:
    body = orjson.loads(whole_body(call))
    for item in body if isinstance(body, list) else [body]:
        given = {name: value for name, value in item.items() if value is not None}
        if call.route in QUERIES:
            given = {**DEFAULTS, **given}
        else:
            given["id"] = str(item.get("id"))
        yield {**given, "namespace": namespace_of(call)}


def _why_refused(call: Call) -> str:
    if call.fault:
        return f"the fault {call.fault} kept it from the index"
    try:
        return f"{call.status} {call.answer_json()['error']}"
    except (ValueError, LookupError, TypeError):
        return f"{call.status or call.outcome}"


def namespace_of(call: Call) -> str:
    return unquote(call.path.removeprefix("/").partition("/")[2])


def shown(item: Item) -> str:
    """Describe an item in one line; a vector is shown as its length."""
    parts = []
    for name, value in item.items():
        if name == "vector" and isinstance(value, list):
            parts.append(f"{name}=<{len(value)} numbers>")
        elif name == "sparseVector" and isinstance(value, dict):
            indices = value.get("indices")
            count = len(indices) if isinstance(indices, list) else 0
            parts.append(f"{name}=<{count} numbers>")
        else:
            parts.append(f"{name}={brief(value, 80)}")
    return " ".join(parts)
