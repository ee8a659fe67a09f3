"""Findings about queries: records that a filter rejected, and records that were not indexed yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...core.calls import Call
from ...core.errors import ServiceError
from ...reporting.calls import Lookups, executed
from ...reporting.model import Finding, ReportSubject
from ...reporting.report import ObservedTest, about_namespace
from ...reporting.values import items_of, parsed
from .. import QUERIES, UPSERTS
from ..filter import why_not

_READS = (*QUERIES, "fetch", "range", "info", "list-namespaces")
_WRITES = (*UPSERTS, "update")
_REMOVALS = ("delete", "reset", "delete-namespace", "rename-namespace")
"""Routes after which records are no longer in their namespace."""


@dataclass(frozen=True, slots=True)
class _ExecutedQuery:
    """An executed query; one of several if its call is a batch."""

    call: Call
    namespace: str
    options: dict[str, Any]
    hits: list[Any]

    @property
    def ids(self) -> list[str]:
        return [str(hit["id"]) for hit in self.hits]

    def finding(self, kind: str, evidence: Iterable[int] = (), /, **values: Any) -> Finding:
        """Return a finding about the query; ``evidence`` are the numbers of other entries."""
        return about_namespace(kind, self.call, self.namespace, evidence, **values)


def _queries(test: ObservedTest, fake: Any) -> Iterator[_ExecutedQuery]:
    for call in _calls(test, fake):
        if call.route not in QUERIES or not executed(call):
            continue
        items, answer = items_of(call.request_body), parsed(call.response_body)
        if not items or not isinstance(answer, dict):
            continue
        result = answer.get("result")
        scores = result.get("scores", []) if isinstance(result, dict) else result
        lists = scores if len(items) > 1 else [scores]
        for options, hits in zip(items, lists or (), strict=False):
            if isinstance(hits, list):
                yield _ExecutedQuery(call, _namespace(call), options, hits)


def _calls(test: ObservedTest, fake: Any) -> list[Call]:
    """Return the calls of an index; none if a write, and thus its records, is not known in full."""
    calls = test.calls_of(fake)
    unknown = any(call.cut and call.reached and call.route not in _READS for call in calls)
    return [] if unknown else calls


def _namespace(call: Call) -> str:
    return str(call.facts.get("namespace") or "")


def _written_after(
    test: ObservedTest, fake: Any, query: _ExecutedQuery, namespace: str
) -> set[str] | None:
    """Return the IDs written to a namespace after a query; None if records were removed since."""
    written: set[str] = set()
    for call in _calls(test, fake):
        if call.number <= query.call.number:
            continue
        if call.route in _REMOVALS:
            return None
        if call.route in _WRITES and _namespace(call) == namespace:
            written.update(str(item.get("id")) for item in items_of(call.request_body))
    return written


def _unchanged_metadata(test: ObservedTest, fake: Any, query: _ExecutedQuery) -> dict[str, Any]:
    """Return the metadata of records not written after a query, by ID; empty if it is unknown."""
    if query.namespace not in fake.namespaces():
        return {}
    written = _written_after(test, fake, query, query.namespace)
    if written is None:
        return {}
    return {
        record_id: record.get("metadata")
        for record in fake.vectors(namespace=query.namespace)
        if (record_id := str(record["id"])) not in written
    }


def filter_rejected(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find records that a filter rejected for the same reason, in a query without hits."""
    for query in _queries(test, fake):
        condition = query.options.get("filter")
        if not condition or query.hits:
            continue
        with suppress(ServiceError):
            unchanged = _unchanged_metadata(test, fake, query)
            reasons = {
                record_id: why_not(condition, metadata) for record_id, metadata in unchanged.items()
            }
            first = next(iter(reasons.values()), None)
            if first is not None:
                ids = [record_id for record_id, reason in reasons.items() if reason == first]
                yield query.finding("filter_rejected", ids=ids, why=first)


def lacks_records(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find queries with fewer hits than requested that lack records which were still pending."""
    if fake._engine.identity.kind.has_sparse:
        return  # a query returns only records that have a dimension in common with it
    for query in _queries(test, fake):
        most = query.options.get("topK") or query.options.get("k") or 10
        if query.call.route == "resumable-query" or len(query.hits) >= most:
            continue
        condition = query.options.get("filter") or ""
        with suppress(ServiceError):
            missing = {
                record_id
                for record_id, metadata in _unchanged_metadata(test, fake, query).items()
                if record_id not in query.ids and not (condition and why_not(condition, metadata))
            }
            upserts = [
                call.number
                for call in _calls(test, fake)
                # An upsert whose answer was lost was executed, too.
                if call.route in UPSERTS
                and executed(call)
                and _namespace(call) == query.namespace
                and any(str(item.get("id")) in missing for item in items_of(call.request_body))
            ]
            if missing and upserts:
                yield query.finding("queried_before_ready", upserts[-1:], ids=sorted(missing))


FINDINGS = (filter_rejected, lacks_records)


def unfinished(index: Any, lookups: Lookups) -> Iterator[Finding]:
    """Yield findings about vectors that queries do not see yet."""
    for name, space in index._engine.info()[1].items():
        if count := space.pending_vector_count:
            subject = ReportSubject("namespace", name, index.name)
            values = {"namespace": name, "count": count}
            yield Finding("vectors_pending", index.name, (), (subject,), values)


def subjects(call: Call) -> Iterator[ReportSubject]:
    """Yield the namespace of a request."""
    yield ReportSubject("namespace", str(call.facts.get("namespace") or ""), call.fake)
