"""The vectors that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...core.bodies import parsed
from ...core.calls import Arguments
from ...reporting.accesses import DELETED, DataAccess, ReportSubject, Sought, SubjectKind
from ...reporting.calls import changed_items, has_full_answer, success_of
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedAction, MaskedCall, MaskedEvent
from .. import QUERIES, UPSERTS
from ..fake import VectorIndex
from ..inspect.data import namespace_in
from .lookups import REMOVALS, VectorLookups, ids_of, namespace_of

NAMESPACE = SubjectKind(
    "namespace", has_value=True, parts_have_ids=True, unnamed="the default namespace"
)

_NOTHING = ({"deleted": 0}, {"updated": 0})
"""Answers to writes that changed no record."""


def of_action(action: MaskedAction, lookups: Lookups) -> Iterator[DataAccess]:
    if action.kind == "load":
        _, by_name = action.call or ((), {})
        name = str(by_name.get("namespace") or "")
        yield DataAccess(ReportSubject(NAMESPACE, name, action.fake), True)


def of_call(call: MaskedCall, lookups: Lookups) -> Iterator[DataAccess]:
    subject = ReportSubject(NAMESPACE, namespace_of(call), call.fake)
    yield DataAccess.named(NAMESPACE, subject.name, call.fake)
    body = parsed(call.request_body) if call.request_body.strip() else None
    answer = parsed(call.response_body)["result"] if has_full_answer(call) else None
    succeeded = success_of(call, answer not in _NOTHING)
    if call.route in UPSERTS or call.route == "update":
        for item in body if isinstance(body, list) else [body]:
            part = str(item.get("id", "")) if isinstance(item, dict) else ""
            changed = DataAccess(subject, True, part, succeeded, adds=call.route == "update")
            yield replace(changed, value=_metadata(call.route, item))
    elif call.route in REMOVALS:
        removed, record_ids = lookups.of(VectorLookups).removed.get(call.number), ids_of(body)
        for record_id in removed or record_ids or [""]:
            value = DELETED if call.route == "delete" and succeeded else None
            yield DataAccess(subject, True, record_id, succeeded, value=value)
        for record_id in record_ids if removed else ():
            yield replace(DataAccess.named(NAMESPACE, subject.name, call.fake), part=record_id)
    else:
        hits = list(_hits(call.route, answer))
        for hit in hits:
            yield DataAccess(subject, False, str(hit.get("id", "")))
        # What a query did not find is also a part of its answer.
        if call.route in (*QUERIES, "fetch", "range"):
            yield DataAccess(subject, False, "", bool(hits) if succeeded else succeeded)


def _metadata(route: str, item: Any) -> dict[str, Any] | None:
    """Return the whole metadata of a record after a write of it; None if the request lacks a part."""
    if not isinstance(item, dict) or (route == "update" and not item.get("metadata")):
        return None
    return None if item.get("metadataUpdateMode") == "PATCH" else item.get("metadata") or {}


def _hits(route: str, answer: Any) -> Iterator[dict[str, Any]]:
    """Yield the records in the answer to a read."""
    records = answer
    if isinstance(answer, dict):
        records = answer.get("scores" if route in QUERIES else "vectors", [])
    for record in records if isinstance(records, list) else ():
        for hit in record if isinstance(record, list) else [record]:
            if isinstance(hit, dict):
                yield hit


def of_event(event: MaskedEvent, lookups: Lookups) -> Iterator[DataAccess]:
    """Yield the namespaces in which an event without a call changed vectors."""
    for section, _ in changed_items(event):
        if (name := namespace_in(section)) is not None:
            yield DataAccess.named(NAMESPACE, name, event.fake)


def sought(fake: VectorIndex, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at."""
    positional, by_name = arguments
    if method in ("namespaces", "pending"):
        return [Sought(ReportSubject.all_of(NAMESPACE, fake.name))]
    name = by_name.get("namespace", positional[0] if method == "vectors" and positional else "")
    return [Sought(ReportSubject(NAMESPACE, str(name), fake.name))]
