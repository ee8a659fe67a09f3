"""Texts of reports about the vector index: its queries, its records, and its findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.bodies import compact, parsed, scalar
from ...core.characters import shortened
from ...core.errors import counted, listed
from ...reporting.calls import has_full_answer
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedAction, MaskedCall, Repeated, Sentences, Summary, Values
from .. import QUERIES, UPSERTS
from ..model import VectorHit
from .background import VectorBackground, length_of
from .lookups import namespace_of

_EQUAL = 1e-3
"""Difference of lengths below which vectors count as normalised alike."""
_SCORES = {
    "COSINE": ", score (1 + cosine) / 2",
    "DOT_PRODUCT": ", score (1 + dot product) / 2",
    "EUCLIDEAN": ", score 1 / (1 + squared distance)",
}


def summary_of_action(action: MaskedAction, lookups: Lookups) -> Summary | None:
    """Describe the beginning and the end of a block of ``holding()``; return None for another action."""
    end = {"hold": "began", "release": "ended"}.get(action.kind)
    return Summary(f"{action.fake}.holding() {end}") if end else None


def summary(call: MaskedCall, lookups: Lookups) -> Summary | None:
    """Describe a request; return None if its route is unknown or its body is not JSON."""
    body = parsed(call.request_body) if call.request_body.strip() else {}
    if not call.route or not isinstance(body, dict | list):
        return None
    background: VectorBackground = lookups.background.get(call.number, VectorBackground())
    space = namespace_of(call)
    # The default one is named if there are others, of which one may be meant.
    is_named = space or (background.has_namespaces and "namespace" not in call.route)
    where = f" in {_space(space)}" if is_named else ""
    what = f"{call.route} {_content(call.route, body)}".strip() + where
    score = _SCORES.get(background.similarity, "")
    repeated = [Repeated(score, "", (score,))] if score else []
    return Summary(what, _answer(call, body, background, score), repeated=repeated)


def _content(route: str, body: Any) -> str:
    items = body if isinstance(body, list) else [body]
    if route in QUERIES:
        return "; ".join(map(_query, items))
    if route in UPSERTS and body:
        texts = [_record(item) for item in items]
        return f"of {len(items)}: {listed(texts)}" if len(items) > 1 else texts[0]
    if route == "update" and isinstance(body, dict):
        mode = f" ({body.get('metadataUpdateMode') or 'OVERWRITE'})" if body.get("metadata") else ""
        return _record(body) + mode
    if isinstance(body, list):
        return listed([shortened(str(item)) for item in body])
    return _named(body)


def _query(item: dict[str, Any]) -> str:
    parts = [f"top {item.get('topK', 10)}"]
    if item.get("data") is not None:
        parts.append(f"for {compact(shortened(str(item['data'])))}")
    if item.get("filter"):
        parts.append(f"filter {compact(shortened(str(item['filter']), 160))}")
    modes = {name: item[name] for name in ("queryMode", "fusionAlgorithm") if item.get(name)}
    return ", ".join([*parts, *([_pairs(modes)] if modes else [])])


def _record(item: dict[str, Any]) -> str:
    parts = []
    if item.get("metadata"):
        parts.append(f"metadata {_pairs(item['metadata'])}")
    if item.get("data") is not None:
        parts.append(f"data {compact(shortened(str(item['data'])))}")
    record_id = item.get("id")
    name = scalar(shortened(record_id) if isinstance(record_id, str) else record_id)
    return f"{name} ({', '.join(parts)})" if parts else name


def _named(body: dict[str, Any]) -> str:
    # Put the IDs first, because they identify the records.
    parts = []
    for name, value in sorted(body.items(), key=lambda member: member[0] != "ids"):
        if name in ("vector", "sparseVector") or value in (None, False):
            continue
        if name == "ids" and isinstance(value, list):
            parts.append(listed([shortened(str(item)) for item in value]))
        elif name == "metadata" and isinstance(value, dict):
            parts.append(f"metadata {_pairs(value)}")
        else:
            parts.append(f"{name} {compact(value)}")
    return ", ".join(parts)


def _answer(call: MaskedCall, body: Any, background: VectorBackground, score: str) -> str:
    if not has_full_answer(call):
        return ""
    result = parsed(call.response_body)["result"]
    if call.route in QUERIES:
        hits = result.get("scores", []) if isinstance(result, dict) else result
        lists = hits if hits and isinstance(hits[0], list) else [hits]
        items = [*(body if isinstance(body, list) else [body]), *[{} for _ in lists]]
        return "; ".join(
            _hits(own_hits, item, background, score)
            + _cut_off(background.cut_off.get(at, ()), item)
            for at, (own_hits, item) in enumerate(zip(lists, items, strict=False))
        )
    if call.route == "info" and isinstance(result, dict):
        return _info(result)
    if call.route in ("fetch", "range"):
        records = result["vectors"] if isinstance(result, dict) else result
        texts = ["null" if record is None else _record(record) for record in records]
        cursor = result.get("nextCursor") if isinstance(result, dict) else ""
        more = f", more after cursor {cursor}" if cursor else ""
        return f"{len(records)} found{more}: {listed(texts)}" if records else "none found"
    return scalar(result)


def _info(result: dict[str, Any]) -> str:
    """Describe the counts first, by namespace, because most tests check only these."""
    spaces = result.get("namespaces") or {}
    counts = [
        f"{name or 'default'} {info['vectorCount']}+{info['pendingVectorCount']}"
        for name, info in spaces.items()
        if info["vectorCount"] or info["pendingVectorCount"] or name
    ]
    text = f"{counted(result['vectorCount'], 'vector')}, {result['pendingVectorCount']} pending"
    text += f" ({listed(counts)})" if counts else ""
    settings = {
        name: result[name] for name in ("dimension", "similarityFunction") if result.get(name)
    }
    return f"{text}, {_pairs(settings)}" if settings else text


def _hits(
    hits: list[dict[str, Any]], query: dict[str, Any], background: VectorBackground, score: str
) -> str:
    """Describe the hits of a query and their ``score``, with the lengths of the vectors if these differ,
    and how many vectors there are if the query returns not all of them.
    """
    if not hits:
        return "no hits"
    lengths = _lengths(hits, query, background)
    texts = [
        f"{shortened(str(hit.get('id')))} {_score(hit['score'])}"
        + (f" (length {lengths[hit['id']]:.3g})" if hit.get("id") in lengths else "")
        + (f" ({_pairs(hit['metadata'])})" if hit.get("metadata") else "")
        for hit in hits
    ]
    text = counted(len(hits), "hit")
    if background.count > len(hits) and not query.get("filter"):
        text = f"{len(hits)} of {counted(background.count, 'vector')}"
        text += "" if "topK" in query else ", no topK: default 10"
    text += score + (f", query of length {lengths['']:.3g}" if "" in lengths else "")
    return f"{text}: {listed(texts)}"


def _cut_off(hits: Sequence[VectorHit], query: dict[str, Any]) -> str:
    """Name the first hits that the query found, but did not return because of its ``topK``."""
    texts = [f"{shortened(hit.record.id)} {_score(float(hit.score))}" for hit in hits]
    return f"; cut off by top {query['topK']}: {listed(texts, 2)}" if hits else ""


def _lengths(
    hits: Iterable[dict[str, Any]], query: dict[str, Any], background: VectorBackground
) -> dict[str, float]:
    """Return the lengths of the vectors of hits by their ids, and that of the query by an empty string;
    nothing if all are equal.
    """
    lengths = {hit["id"]: background.lengths[hit["id"]] for hit in hits
               if hit.get("id") in background.lengths}  # fmt: skip
    vector = query.get("vector")
    if isinstance(vector, list):
        lengths[""] = length_of(vector)
    spread = max(lengths.values(), default=0) - min(lengths.values(), default=0)
    return lengths if spread > _EQUAL else {}


def _score(score: float) -> str:
    """Format a score with enough digits that a score close to 1 is not shown as 1."""
    texts = (f"{score:.{digits}g}" for digits in range(3, 12))
    return next((text for text in texts if text != "1" or score == 1), "1")


def _space(name: str) -> str:
    return f"namespace {compact(name)}" if name else "the default namespace"


def _pairs(values: Mapping[str, Any]) -> str:
    """Format names with values in JSON, which distinguishes strings from numbers."""
    return listed([f"{name}={shortened(compact(value))}" for name, value in values.items()])


def _filter_rejected(values: Values) -> str:
    groups = [f"{_ids(group)}: {group['why']}" for group in (values, *values.get("others", ()))]
    if more := values.get("more"):
        groups.append(f"{counted(more, 'further record')} for other reasons")
    return f"the filter rejected {'; '.join(groups)}"


def _ids(values: Values) -> str:
    return listed(list(map(shortened, values["ids"])))


def _queried_before_ready(values: Values) -> str:
    return (
        f"the query ran before {_ids(values)} could be found: an upsert or update is "
        "answered before its records are indexed; wait until the index has no pending vectors"
    )


def _vectors_pending(values: Values) -> str:
    count, where = counted(values["count"], "vector"), _space(values["namespace"])
    return f"{count} of {where} pending: queries return vectors only when they are indexed"


SENTENCES: Sentences = {
    "filter_rejected": _filter_rejected,
    "queried_before_ready": _queried_before_ready,
    "vectors_pending": _vectors_pending,
}
