"""What a vector index knows about queries beside their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot

from ...cloud.fake import core_of
from ...core.bodies import items_of, parsed
from ...core.calls import Call, Entry
from ...reporting.calls import calls_in, executed
from ...reporting.lookups import Lookups
from .. import QUERIES
from ..fake import VectorIndex
from ..model import IndexKind, VectorHit
from .findings import hits_among, query_of
from .lookups import READS, namespace_of

_MOST = 2_000
"""Maximum number of vectors of a namespace whose lengths are computed, and that are ranked again."""
_MOST_REPEATED = 20
"""Maximum number of queries that are repeated for one report: the newest."""
_QUERIES = ("query", "query-data")
"""Routes of queries with all their hits in the answer."""


@dataclass(frozen=True, slots=True)
class VectorBackground:
    """What an index knows about a request; the last three fields if its namespace is still the same."""

    has_namespaces: bool = False
    """Whether requests used a namespace other than the default one."""
    similarity: str = ""
    """The similarity function whose score is that of a hit, and no part of it."""
    count: int = 0
    """The number of vectors of the namespace."""
    lengths: Mapping[str, float] = field(default_factory=dict)
    """The lengths of these vectors, by their IDs."""
    cut_off: Mapping[int, Sequence[VectorHit]] = field(default_factory=dict)
    """The hits behind the ``topK`` of a query, by the position of the query in the request."""


def background(
    fake: VectorIndex, entries: Iterable[Entry], lookups: Lookups
) -> dict[int, VectorBackground]:
    """Return what an index knows about requests, by the numbers of the calls."""
    calls = [call for call in calls_in(entries) if call.fake == fake.name]
    has_named = any(map(namespace_of, calls))
    changed: dict[str, int] = {}
    for call in calls:
        if call.route not in READS and executed(call):
            changed[namespace_of(call)] = call.number
    engine = core_of(fake).engine
    is_dense = engine.settings.kind is IndexKind.DENSE
    similarity = str(engine.settings.similarity) if is_dense else ""
    counts = {name: engine.count(name) for name in fake.namespaces()}
    queried = {namespace_of(call) for call in calls if call.route in QUERIES} & counts.keys()
    lengths = {
        name: {record.id: length_of(record.vector)
               for record in engine.range(name, 0, _MOST).records if record.vector is not None}
        for name in queried if counts[name] <= _MOST
    }  # fmt: skip
    backgrounds: dict[int, VectorBackground] = {}
    unchanged: list[Call] = []
    for call in calls:
        name = namespace_of(call)
        is_query = call.route in QUERIES and executed(call)
        own_background = VectorBackground(has_named, similarity if is_query else "")
        if is_query and changed.get(name, 0) < call.number and name in counts:
            count, own_lengths = counts[name], lengths.get(name, {})
            own_background = replace(own_background, count=count, lengths=own_lengths)
            unchanged += [call] if call.route in _QUERIES and counts[name] <= _MOST else []
        backgrounds[call.number] = own_background
    for call in unchanged[-_MOST_REPEATED:]:
        cut_off = dict(_cut_off(fake, call))
        backgrounds[call.number] = replace(backgrounds[call.number], cut_off=cut_off)
    return backgrounds


def _cut_off(fake: VectorIndex, call: Call) -> Iterator[tuple[int, list[VectorHit]]]:
    """Yield the hits that lay behind the ``topK`` of the queries of a call."""
    name, result = namespace_of(call), parsed(call.response_body)["result"]
    records = core_of(fake).engine.range(name, 0, None).records
    lists = result if result and isinstance(result[0], list) else [result]
    for at, (options, hits) in enumerate(zip(items_of(call.request_body), lists, strict=False)):
        ids = [hit["id"] for hit in hits]
        if len(ids) == options.get("topK"):
            query = query_of(fake, options)._replace(top_k=len(records))
            ranked = hits_among(fake, query, records)
            # An approximate query, for example, has other hits.
            if [hit.record.id for hit in ranked[: len(ids)]] == ids and ranked[len(ids) :]:
                yield at, ranked[len(ids) :]


def length_of(vector: Iterable[float]) -> float:
    """Return the length of a vector, which is its norm and not the number of its components."""
    return hypot(*map(float, vector))
