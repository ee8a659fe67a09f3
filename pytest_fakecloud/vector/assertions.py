"""What clients upserted and queried, read from the journal, and failures that name the nearest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import orjson

from pytest_fakecloud.kernel.journal import Call, Found, Journal

__all__ = ["expect", "queries", "upserts"]

UPSERTS = ("upsert", "upsert-data")
QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
DEFAULTS = {"topK": 10, "filter": ""}
NEAREST = 5


def upserts(journal: Journal) -> Iterator[dict[str, Any]]:
    """Every record clients upserted, as sent, with its ``namespace``; ids are text."""
    for call, item in _items(journal, UPSERTS):
        yield {**_given(item), "id": str(item.get("id")), "namespace": namespace_of(call)}


def queries(journal: Journal) -> Iterator[dict[str, Any]]:
    """Every query the index carried out, as sent, with its defaults and ``namespace``."""
    for call, item in _items(journal, QUERIES):
        yield {**DEFAULTS, **_given(item), "namespace": namespace_of(call)}


def _given(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if value is not None}


def _items(journal: Journal, routes: Iterable[str]) -> Iterator[tuple[Call, dict[str, Any]]]:
    for call in journal.calls():
        # Not by status: a fault may lose the answer of a call that was carried out, and may answer
        # 200 to one that was not.
        if call.route in routes and call.reached:
            body = orjson.loads(call.body)
            for item in body if isinstance(body, list) else [body]:
                yield call, item


def namespace_of(call: Call) -> str:
    """The namespace in a call's path."""
    return unquote(call.path.removeprefix("/").partition("/")[2])


def expect(
    what: str,
    seen: Iterable[dict[str, Any]],
    wanted: Mapping[str, Any],
    times: int | None,
) -> Found[dict[str, Any]]:
    """The seen items that agree with ``wanted``; fails unless one does, or exactly ``times``.

    A callable is a predicate on the field; None is not compared.
    """
    __tracebackhide__ = True
    wanted = {name: value for name, value in wanted.items() if value is not None}
    reasons = [(item, _differences(item, wanted)) for item in seen]
    found = Found(item for item, why in reasons if not why)
    if (times is None and found) or (times is not None and len(found) == times):
        return found
    asked = " ".join(f"{name}={value!r}" for name, value in wanted.items()) or "(any)"
    often = "at least once" if times is None else f"{times} time(s)"
    lines = [f"expected {what} {asked} {often}, found {len(found)}"]
    lines += [f"  matched: {_short(item)}" for item in found[:NEAREST]]
    misses = sorted(((item, why) for item, why in reasons if why), key=lambda pair: len(pair[1]))
    lines += [f"  not {_short(item)}: {'; '.join(why)}" for item, why in misses[:NEAREST]]
    if not reasons:
        lines.append(f"  no client has made {what.rpartition(' ')[0]} at all")
    raise AssertionError("\n".join(lines))


_MISSING = object()


def _differences(item: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    reasons = []
    for name, expected in wanted.items():
        value = item.get(name, _MISSING)
        if callable(expected):
            agrees = value is not _MISSING and bool(expected(value))
        else:
            agrees = bool(value == expected)
        if not agrees:
            shown = "absent" if value is _MISSING else f"{value!r:.200}"
            reasons.append(f"{name} is {shown}, not {expected!r:.200}")
    return reasons


def _short(item: Mapping[str, Any]) -> str:
    parts = []
    for name, value in item.items():
        if name in ("vector", "sparseVector"):
            size = len(value) if isinstance(value, list) else len(value.get("indices", ()))
            parts.append(f"{name}=<{size} numbers>")
        else:
            parts.append(f"{name}={value!r:.80}")
    return " ".join(parts)
