"""Queries by their filter and count, records by their ids and metadata; never the vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bodies import compact, parsed, scalar, shortened
from .summary import Scene, Summary, envelope, listed, pairs, worked

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["summary"]

_QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
_UPSERTS = ("upsert", "upsert-data")


def summary(call: Call, scene: Scene) -> Summary | None:
    """A command of the index."""
    if not call.route:
        return None
    body = parsed(call.body) if call.body.strip() else {}
    if body is None:
        return None
    namespace = call.facts.get("namespace")
    where = f" in namespace {compact(namespace)}" if namespace else ""
    items = body if isinstance(body, list) else [body]
    if call.route in _QUERIES:
        what = "; ".join(map(_query, items))
    elif call.route in _UPSERTS and body:
        shown = [_record(item) for item in items]
        what = f"{len(items)}: {listed(shown)}" if len(items) > 1 else shown[0]
    elif isinstance(body, list):
        what = listed([shortened(str(each)) for each in body])
    else:
        what = _named(body)
    return Summary(f"{call.route} {what}".strip() + where, _answer(call))


def _query(item: dict[str, Any]) -> str:
    parts = [f"top {item.get('topK', 10)}"]
    if item.get("data") is not None:
        parts.append(f"for {compact(shortened(str(item['data'])))}")
    if item.get("filter"):
        parts.append(f"filter {compact(item['filter'])}")
    modes = {name: item[name] for name in ("queryMode", "fusionAlgorithm") if item.get(name)}
    return ", ".join([*parts, *([pairs(modes)] if modes else [])])


def _record(item: dict[str, Any]) -> str:
    parts = []
    if item.get("metadata"):
        parts.append(f"metadata {pairs(item['metadata'])}")
    if item.get("data") is not None:
        parts.append(f"data {compact(shortened(str(item['data'])))}")
    told = f" ({', '.join(parts)})" if parts else ""
    id = item.get("id")
    return scalar(shortened(id) if isinstance(id, str) else id) + told


def _named(body: dict[str, Any]) -> str:
    parts = []
    for name, value in body.items():
        if name in ("vector", "sparseVector") or value in (None, False):
            continue
        if name == "ids" and isinstance(value, list):
            parts.append(listed([shortened(str(each)) for each in value]))
        elif name == "metadata" and isinstance(value, dict):
            parts.append(f"metadata {pairs(value)}")
        else:
            parts.append(f"{name} {compact(value)}")
    return ", ".join(parts)


def _answer(call: Call) -> str:
    if not worked(call):
        return ""
    result = envelope(call)
    if call.route in _QUERIES:
        found = result.get("scores", []) if isinstance(result, dict) else result
        lists = found if found and isinstance(found[0], list) else [found]
        return "; ".join(map(_hits, lists))
    if call.route in ("fetch", "range"):
        records = result["vectors"] if isinstance(result, dict) else result
        shown = ["null" if one is None else _record(one) for one in records]
        return f"{len(records)} found: {listed(shown)}" if records else "none found"
    return scalar(result)


def _hits(hits: list[dict[str, Any]]) -> str:
    if not hits:
        return "no hits"
    shown = [
        f"{shortened(str(hit.get('id')))} {hit.get('score'):.3g}"
        + (f" ({pairs(hit['metadata'])})" if hit.get("metadata") else "")
        for hit in hits
    ]
    return f"{len(hits)} hit{'s' * (len(hits) > 1)}: {listed(shown)}"
