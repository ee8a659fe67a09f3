"""Findings about queries: records that a filter rejected, and records that were not indexed yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...cloud.fake import core_of
from ...core.bodies import items_of, parsed
from ...core.calls import Call
from ...core.errors import ServiceError
from ...core.ids import Ids
from ...reporting.accesses import ReportSubject
from ...reporting.calls import executed
from ...reporting.findings import about
from ...reporting.lookups import Lookups
from ...reporting.model import Finding
from ...reporting.observed import ObservedTest
from .. import QUERIES, UPSERTS
from ..engine.namespace import VectorNamespace
from ..engine.ranking import HYBRID_DEPTH, PreparedQuery, Ranker
from ..fake import VectorIndex
from ..fields import VectorFields
from ..filter import why_not
from ..model import VectorHit, VectorQuery, VectorRecord
from ..settings import VectorConfig
from .accesses import NAMESPACE
from .lookups import READS, REMOVALS, namespace_of

_WRITES = (*UPSERTS, "update")
_MOST_REASONS = 3
"""Maximum number of reasons that a finding gives for rejected records."""
_MOST_REPEATED = 50
"""Maximum number of queries that are repeated for one report: the newest. Each can take 0.1 s."""
_LEVELS = 4
"""Maximum depth at which the names of records are looked up in compared values."""


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
        """Return a finding about the query; ``evidence`` are the numbers of other rows."""
        subject = ReportSubject(NAMESPACE, self.namespace, self.call.fake)
        return about(kind, self.call, subject, evidence, **values)


def _queries(test: ObservedTest, fake: VectorIndex) -> Iterator[_ExecutedQuery]:
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
                yield _ExecutedQuery(call, namespace_of(call), options, hits)


def _calls(test: ObservedTest, fake: VectorIndex) -> list[Call]:
    """Return the calls of an index; none if a write, and thus its records, is not known in full."""
    calls = test.calls_of(fake)
    unknown = any(call.cut and call.reached and call.route not in READS for call in calls)
    return [] if unknown else calls


def _written_after(
    test: ObservedTest, fake: VectorIndex, query: _ExecutedQuery, namespace: str
) -> set[str] | None:
    """Return the IDs written to a namespace after a query; None if records were removed since."""
    written: set[str] = set()
    for call in _calls(test, fake):
        if call.number <= query.call.number:
            continue
        if call.route in REMOVALS:
            return None
        if call.route in _WRITES and namespace_of(call) == namespace:
            written.update(str(item.get("id")) for item in items_of(call.request_body))
    return written


def _unchanged_records(
    test: ObservedTest, fake: VectorIndex, query: _ExecutedQuery
) -> dict[str, VectorRecord]:
    """Return the records not written after a query, by ID; none if records were removed since."""
    written = _written_after(test, fake, query, query.namespace)
    if written is None or query.namespace not in fake.namespaces():
        return {}
    records = core_of(fake).engine.range(query.namespace, 0, None).records
    return {record.id: record for record in records if record.id not in written}


def query_of(fake: VectorIndex, options: dict[str, Any]) -> VectorQuery:
    """Return the query that a client requested with these options, its text embedded."""
    core = core_of(fake)
    fields = VectorFields(options, core.engine.limits)
    return fields.query() if options.get("data") is None else core.app.text_query(fields)


def _ids_found(fake: VectorIndex, query: VectorQuery, records: Iterable[VectorRecord]) -> list[str]:
    return [hit.record.id for hit in hits_among(fake, query, records)]


def hits_among(
    fake: VectorIndex, query: VectorQuery, records: Iterable[VectorRecord]
) -> list[VectorHit]:
    """Return what an exact query finds among records that are all indexed, best first."""
    engine = core_of(fake).engine
    space = VectorNamespace(engine.dimension)
    for record in records:
        space.put(record)
    config = VectorConfig(similarity=engine.settings.similarity)
    ranker = Ranker(config, Ids(0).stream(fake.name, "report"))
    depth = max(query.top_k, HYBRID_DEPTH)
    [hits] = ranker.answer(space, [PreparedQuery(query, engine.filter(query.filter), depth)])
    return hits


def _strings_in(value: Any, levels: int = _LEVELS) -> Iterator[str]:
    """Yield the strings in a compared value, and the IDs of the hits in it."""
    if isinstance(value, str):
        yield value
    elif levels and isinstance(value, Mapping | list | tuple | Set):
        items = [*value, *value.values()] if isinstance(value, Mapping) else value
        for item in items:
            yield from _strings_in(item, levels - 1)
    elif isinstance(record_id := getattr(value, "id", None), str):
        yield record_id


def _names_of(record_id: object, data: object, metadata: object) -> set[str]:
    """Return the strings by which a test may name a record: its ID, its text, and its metadata."""
    values = metadata.values() if isinstance(metadata, Mapping) else ()
    return {value for value in (record_id, data, *values) if isinstance(value, str)}


def _expected_names(test: ObservedTest, query: _ExecutedQuery) -> set[str]:
    """Return the strings that one of two compared values lacks, if it has names of all hits of a query:
    IDs, texts or values of metadata.
    """
    if test.raised is None or test.unequal is None:
        return set()
    sides: list[set[str]] = []
    with suppress(Exception):  # of the values' own methods
        sides = [set(_strings_in(side)) for side in (test.unequal.left, test.unequal.right)]
    hits = [_names_of(hit["id"], hit.get("data"), hit.get("metadata")) for hit in query.hits]
    return {
        name for actual, other in zip(sides, sides[::-1], strict=True)
        if all(actual & names for names in hits) for name in other - actual
    }  # fmt: skip


def _rejected_ids(
    fake: VectorIndex,
    query: _ExecutedQuery,
    records: Mapping[str, VectorRecord],
    rejected: Set[str],
    expected_names: Set[str],
) -> list[str]:
    """Return the IDs of rejected records that a query would have found without its filter, the nearest
    first: those with expected names or, if the query has no hits, all of them.
    """
    expected = {id for id in rejected
                if _names_of(id, records[id].data, records[id].metadata) & expected_names}  # fmt: skip
    if query.hits and not expected:
        return []
    unfiltered = query_of(fake, query.options)._replace(filter="")
    if expected:
        candidates = [records[id] for id in records if id in expected or id not in rejected]
        return [id for id in _ids_found(fake, unfiltered, candidates) if id in expected]
    matching = [record for id, record in records.items() if id not in rejected]
    if _ids_found(fake, unfiltered, matching):
        return []  # it lacks them for another reason
    unlimited = unfiltered._replace(top_k=len(records))
    return _ids_found(fake, unlimited, [records[id] for id in records if id in rejected])


def filter_rejected(test: ObservedTest, fake: VectorIndex) -> Iterator[Finding]:
    """Find records that the filter of a query rejected, if the query has no hits or lacks records that
    the test expected. Those that were rejected for the same reason are one group.
    """
    for query in _queries(test, fake):
        condition = query.options.get("filter")
        expected_names = _expected_names(test, query) if condition else set()
        if not condition or (query.hits and not expected_names):
            continue
        with suppress(ServiceError):
            records = _unchanged_records(test, fake, query)
            reasons = {
                id: reason for id, record in records.items() if id not in query.ids
                and (reason := why_not(condition, record.metadata)) is not None
            }  # fmt: skip
            groups: dict[str, list[str]] = {}
            if reasons:
                for id in _rejected_ids(fake, query, records, reasons.keys(), expected_names):
                    groups.setdefault(reasons[id], []).append(id)
            if groups:
                yield query.finding("filter_rejected", **_shown_groups(groups))


def _shown_groups(groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the values of a finding about groups of records by the reason for their rejection."""
    (reason, ids), *others = groups.items()
    further = [{"ids": other_ids, "why": why} for why, other_ids in others[: _MOST_REASONS - 1]]
    more = sum(len(other_ids) for _, other_ids in others[len(further) :])
    values = {"ids": ids, "why": reason, "others": further, "more": more}
    return {name: value for name, value in values.items() if value}


def lacks_records(test: ObservedTest, fake: VectorIndex) -> Iterator[Finding]:
    """Find queries that lack records which were still pending, and would have been among their hits."""
    settings = core_of(fake).engine.settings
    if settings.recall < 1 or settings.filter_budget is not None or settings.shuffle_ties:
        return  # queries can lack other records, too
    delayed = [
        (query, writes)
        for query in _queries(test, fake)
        if not query.call.route.startswith("resumable-query")
        and (writes := _delayed_writes(test, fake, query)).keys() - set(query.ids)
    ]
    for query, writes in delayed[-_MOST_REPEATED:]:
        with suppress(ServiceError):
            if missing := _missing_ids(test, fake, query, writes):
                last = max(writes[record_id] for record_id in missing)
                yield query.finding("queried_before_ready", [last], ids=sorted(missing))


def _delayed_writes(test: ObservedTest, fake: VectorIndex, query: _ExecutedQuery) -> dict[str, int]:
    """Return the records of a query's namespace that may have been pending during it, with the numbers
    of the calls that wrote them last.
    """
    settings = core_of(fake).engine.settings
    delay_us, reads = settings.ready_after_us, settings.ready_after_reads
    is_held = any(action.kind == "hold" for action in test.actions_on(fake))
    if delay_us is None and reads is None and not is_held:
        return {}
    writes = {
        str(item.get("id")): call for call in _calls(test, fake)
        # A write whose answer was lost was executed, too.
        if call.number < query.call.number and call.route in _WRITES and executed(call)
        and namespace_of(call) == query.namespace for item in items_of(call.request_body)
    }  # fmt: skip
    only_time = delay_us is not None and not is_held
    since_us = query.call.at_us - (delay_us or 0) if only_time else -1
    return {item: call.number for item, call in writes.items() if call.at_us > since_us}


def _missing_ids(
    test: ObservedTest, fake: VectorIndex, query: _ExecutedQuery, writes: Mapping[str, int]
) -> list[str]:
    """Return the IDs of records that a query lacks because they were pending: it finds them if all
    ``writes`` are ready, and has its hits without them.
    """
    records = _unchanged_records(test, fake, query)
    prepared = query_of(fake, query.options)
    # The earlier version of a record that was written again is not known.
    changed = {*writes, *query.ids}.difference(records)
    is_fused = prepared.vector is not None and prepared.sparse is not None
    room = 0 if changed and is_fused else max(0, prepared.top_k - len(changed))
    pending = writes.keys() - set(query.ids)
    ready = [record for record in records.values() if record.id not in pending]
    known_hits = [record_id for record_id in query.ids if record_id in records]
    if _ids_found(fake, prepared, ready)[: len(known_hits)] != known_hits:
        return []
    ids = _ids_found(fake, prepared, records.values())[:room]
    return [record_id for record_id in ids if record_id in pending]


DETECTORS = (filter_rejected, lacks_records)


def unfinished(index: VectorIndex, lookups: Lookups) -> Iterator[Finding]:
    """Yield findings about vectors that queries do not see yet."""
    for name, space in core_of(index).engine.info()[1].items():
        if count := space.pending_vector_count:
            subject = ReportSubject(NAMESPACE, name, index.name)
            values = {"namespace": name, "count": count}
            yield Finding("vectors_pending", index.name, (), (subject,), values)
