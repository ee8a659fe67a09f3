"""The vectors that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.calls import Action, Arguments, Call
from ...inspect.data import State
from ...reporting.calls import Lookups, envelope, error_of, has_full_answer
from ...reporting.model import DataAccess, ReportRow, ReportSubject, Sought
from ...reporting.values import pairs, parsed, scalar, shortened
from .. import QUERIES, UPSERTS
from ..inspect.data import section_of


def accesses(row: ReportRow, lookups: Lookups) -> Iterator[DataAccess]:
    entry = row.entry
    if isinstance(entry, Action):
        if entry.kind == "load":
            positional, named = entry.call or ((), {})
            name = str(named.get("namespace") or "")
            subject = ReportSubject("namespace", name, entry.fake)
            yield DataAccess(subject, True, f"load{_in(name)}", value=positional[:1])
    elif isinstance(entry, Call):
        yield from _of_call(entry)


def _of_call(call: Call) -> Iterator[DataAccess]:
    name = str(call.facts.get("namespace") or "")
    subject = ReportSubject("namespace", name, call.fake)
    body = parsed(call.request_body) if call.request_body.strip() else None
    answer = envelope(call) if has_full_answer(call) else None
    result, succeeded = _outcome(call, answer)
    if call.route in UPSERTS or call.route == "update":
        for item in body if isinstance(body, list) else [body]:
            item = item if isinstance(item, dict) else {}
            mode = f" ({item.get('metadataUpdateMode') or 'OVERWRITE'})"
            has_mode = call.route == "update" and item.get("metadata")
            what = f"{call.route}{_in(name)} {_shown(item)}{mode if has_mode else ''}"
            value = {key: item.get(key) for key in ("id", "metadata", "data") if item.get(key)}
            yield DataAccess(subject, True, what, result, str(item.get("id", "")), value, succeeded)
    elif call.route in ("delete", "reset", "delete-namespace", "rename-namespace"):
        record_ids = _ids(body)
        deleted = answer.get("deleted") if isinstance(answer, dict) else None
        if succeeded and isinstance(deleted, int) and 0 < deleted < len(set(record_ids)):
            succeeded = None  # The answer does not say which records existed.
        for record_id in record_ids or [""]:
            what = f"{call.route}{_in(name)} {record_id}".strip()
            yield DataAccess(subject, True, what, result, record_id, None, succeeded)
    else:
        what = f"{call.route}{_in(name)}{_filter(body)}"
        hits = list(_hits(call.route, answer))
        for hit in hits:
            value = {key: hit[key] for key in hit if key != "vector"}
            yield DataAccess(subject, False, what, _shown(hit), str(hit.get("id", "")), value)
        if call.route in QUERIES and not hits and succeeded:
            yield DataAccess(subject, False, what, "no hits")


def _filter(body: Any) -> str:
    filters = [item.get("filter") for item in (body if isinstance(body, list) else [body])
               if isinstance(item, dict)]  # fmt: skip
    return "".join(f" ({shortened(str(text), 80)})" for text in filters if text)


def _in(namespace: str) -> str:
    return f" in {namespace}" if namespace else ""


def _ids(body: Any) -> list[str]:
    value = body.get("ids", body.get("id", [])) if isinstance(body, dict) else body
    values = value if isinstance(value, list) else [value] if value is not None else []
    return [str(item) for item in values if not isinstance(item, dict | list)]


def _hits(route: str, answer: Any) -> Iterator[dict[str, Any]]:
    """Yield the records in the answer to a read."""
    records = answer
    if isinstance(answer, dict):
        records = answer.get("scores" if route in QUERIES else "vectors", [])
    for record in records if isinstance(records, list) else ():
        for hit in record if isinstance(record, list) else [record]:
            if isinstance(hit, dict):
                yield hit


def _shown(item: dict[str, Any]) -> str:
    parts = [scalar(item.get("id"))]
    if item.get("metadata"):
        parts.append(f"({shortened(pairs(item['metadata']), 100)})")
    if item.get("data") is not None:
        parts.append(shortened(str(item["data"]), 60))
    return " ".join(parts)


_NOTHING = ({"deleted": 0}, {"updated": 0})
"""Answers to writes that changed no record."""


def _outcome(call: Call, answer: Any) -> tuple[str, bool | None]:
    if has_full_answer(call):
        result = shortened(scalar(answer), 60)
        return (f"{result} (wrote nothing)", False) if answer in _NOTHING else (result, True)
    status, text = error_of(call)
    if status and call.fault is None:
        return shortened(f"{status} {text}", 120), False
    return f"{status} {call.outcome}".strip(), None


def sought(fake: Any, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at."""
    positional, named = arguments
    name = named.get("namespace", positional[0] if method == "vectors" and positional else "")
    name = "*" if method in ("namespaces", "pending") else str(name)
    return [Sought(ReportSubject("namespace", name, fake.name))]


def stored(state: State, fake: str) -> Iterator[Sought]:
    """Yield the vectors of a state."""
    for section, items in state.items():
        name = section.removeprefix("namespace ") if section != section_of("") else ""
        for vector_id in items if section == section_of(name) else ():
            yield Sought(ReportSubject("namespace", name, fake), vector_id)
