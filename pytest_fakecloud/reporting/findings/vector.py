"""Findings about queries, such as records that a filter rejected and namespaces that are empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...core.errors import ServiceError
from ...vector.filter.explain import why_not
from ..bodies import parsed
from ..model import Finding
from ..scene import taken
from .kv.commands import WRITES, commands
from .look import NONE, Look, about_namespace, executed, items_of

if TYPE_CHECKING:
    from ...core.calls import Call

_QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
_READS = (*_QUERIES, "fetch", "range", "info", "list-namespaces")


def _namespace(call: Call) -> str:
    return str(call.facts.get("namespace") or "")


def _calls(look: Look, handle: Any) -> list[Call]:
    """Return the calls of an index; none if a write is not known in full, because the records that
    it wrote are then unknown.
    """
    calls = look.calls_of(handle)
    unknown = any(one.cut and one.reached and one.route not in _READS for one in calls)
    return [] if unknown else calls


def _queries(look: Look, handle: Any) -> Iterator[tuple[Call, dict[str, Any], list[Any], str]]:
    """Yield each executed query with its call, its hits and its namespace."""
    for call in _calls(look, handle):
        if call.route not in _QUERIES or not executed(call):
            continue
        items, answer = items_of(call.body), parsed(call.answer)
        if not items or not isinstance(answer, dict):
            continue
        found = answer.get("result")
        found = found.get("scores", []) if isinstance(found, dict) else found
        lists = found if len(items) > 1 else [found]
        for item, hits in zip(items, lists or (), strict=False):
            if isinstance(hits, list):
                yield call, item, hits, _namespace(call)


_FORGETS = ("delete", "reset", "delete-namespace", "rename-namespace")
_UPSERTS = ("upsert", "upsert-data")
_WRITES = ("upsert", "upsert-data", "update")


def _touched_after(look: Look, handle: Any, query: Call, namespace: str) -> set[str] | None:
    """Return the IDs that were written to a namespace after a query.

    The result is None if data was deleted or renamed after the query, because the data at its time
    is then unknown.
    """
    touched: set[str] = set()
    for call in _calls(look, handle):
        if call.number > query.number and call.route in _FORGETS:
            return None
        written = call.route in _WRITES and _namespace(call) == namespace
        if call.number > query.number and written:
            touched.update(str(item.get("id")) for item in items_of(call.body))
    return touched


def refused_candidates(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records that a filter rejected for the same reason, in a query without hits."""
    for call, item, hits, namespace in _queries(look, handle):
        text = item.get("filter")
        if not text or hits or namespace not in handle.namespaces():
            continue
        touched = _touched_after(look, handle, call, namespace)
        records = handle.vectors(namespace=namespace) if touched is not None else []
        with suppress(ServiceError):
            whys = {id: why_not(text, record.get("metadata")) for record in records
                    if (id := str(record["id"])) not in (touched or ())}  # fmt: skip
            why = next(iter(whys.values()), None)
            if why is not None:
                ids = [id for id, own in whys.items() if own == why]
                yield about_namespace("filter_rejected", call, namespace, ids=ids, why=why)


def no_longer_matches(look: Look, handle: Any) -> Iterator[Finding]:
    """Find records that a filter rejects but would have accepted before an update."""
    written: dict[tuple[str, str], list[tuple[Call, Any]]] = {}
    for call in _calls(look, handle):
        if call.route in _WRITES and call.status == 200:
            for item in items_of(call.body):
                about = _namespace(call), str(item.get("id"))
                written.setdefault(about, []).append((call, item.get("metadata")))
    for call, item, hits, namespace in _queries(look, handle):
        ids = {str(hit["id"]) for hit in hits}
        if not item.get("filter") or namespace not in handle.namespaces():
            continue
        if _touched_after(look, handle, call, namespace) != set():
            continue
        for record in handle.vectors(namespace=namespace):
            id = str(record["id"])
            steps = [one for one in written.get((namespace, id), ()) if one[1] is not None]
            if id in ids or len(steps) < 2:
                continue
            with suppress(ServiceError):
                why = why_not(item["filter"], record.get("metadata"))
                if why is not None and why_not(item["filter"], steps[0][1]) is None:
                    last = steps[-1][0]
                    values = {"id": id, "why": why, "route": last.route,
                              "mode": _mode(last, id), "writes": len(steps) - 1}  # fmt: skip
                    evidence = [call.number]
                    yield about_namespace("no_longer_matches", last, namespace, evidence, **values)


def _mode(write: Call, id: str) -> str:
    of = [one for one in items_of(write.body) if str(one.get("id")) == id]
    return str(of[-1].get("metadataUpdateMode") or "OVERWRITE") if write.route == "update" else ""


def upserted_again(look: Look, handle: Any) -> Iterator[Finding]:
    """Find upserts that were repeated under other IDs because the answer to the first was lost."""
    lost: list[tuple[Any, list[str], int]] = []
    for call in _calls(look, handle):
        items = items_of(call.body) if call.route in _UPSERTS else []
        content = [{name: one[name] for name in one if name != "id"} for one in items]
        ids = [str(one.get("id")) for one in items]
        if not items:
            continue
        if taken(call):
            lost.append((content, ids, call.number))
            continue
        alike = [(old, number) for earlier, old, number in lost
                 if content == earlier and not {*ids} & {*old}]  # fmt: skip
        if alike:
            earlier, number = alike[0]
            values = {"count": len(items), "ids": ids, "earlier": earlier}
            yield about_namespace("upserted_again", call, _namespace(call), [number], **values)


def deleted_by_prefix(look: Look, handle: Any) -> Iterator[Finding]:
    """Find deletions by prefix that also removed IDs with a longer word, such as ``doc-12`` beside
    ``doc-1:a`` for the prefix ``doc-1``.
    """
    known: dict[str, set[str]] = {}
    for call in _calls(look, handle):
        body, namespace = parsed(call.body), _namespace(call)
        if call.status != 200:
            continue
        if call.route in _UPSERTS:
            ids = {str(one["id"]) for one in items_of(call.body) if "id" in one}
            known.setdefault(namespace, set()).update(ids)
        elif call.route in _FORGETS:
            present = known.pop(namespace, set())
            prefix = body.get("prefix") if isinstance(body, dict) else ""
            if not isinstance(prefix, str) or not prefix[-1:].isalnum():
                continue
            ids = {one for one in present if one.startswith(prefix)}
            known[namespace] = present - ids
            beyond = sorted(one for one in ids if one[len(prefix) :][:1].isalnum())
            meant = sorted(ids.difference(beyond))
            separators = {one[len(prefix) :][:1] for one in meant}
            if beyond and len(separators) == 1 and "" not in separators:
                narrower = prefix + separators.pop()
                yield about_namespace(
                    "deleted_by_prefix", call, namespace,
                    prefix=prefix, ids=beyond, narrower=narrower, others=meant,
                )  # fmt: skip


def hit_not_used(look: Look, handle: Any) -> Iterator[Finding]:
    """Find hits that were not used: the key with the hit's ID was not read, and a similar key was
    written.
    """
    for query, item, hits, namespace in _queries(look, handle):
        content = ("includeMetadata", "includeData", "includeVectors")
        later = [call for call in look.calls if call.number > query.number]
        ids = [str(hit["id"]) for hit in hits]
        if not ids or any(item.get(name) for name in content) or any(one.cut for one in later):
            continue
        if any(id in call.target or id.encode() in call.body for call in later for id in ids):
            continue
        for store in look.handles("kv"):
            writes = [(one.entry, one.key) for one in commands(look, store) if one.name in WRITES]
            of_hit = [key for call, key in writes if call.number < query.number and ids[0] in key]
            before, _, after = (of_hit or [""])[-1].partition(ids[0])
            alike = [(call, key) for call, key in writes if call.number > query.number
                     and of_hit and key.startswith(before) and key.endswith(after)]  # fmt: skip
            if (before or after) and alike:
                write, key = alike[0]
                values = {"id": ids[0], "score": hits[0]["score"], "unread": of_hit[-1],
                          "written": key}  # fmt: skip
                evidence = [write.number]
                yield about_namespace("hit_not_used", query, namespace, evidence, **values)


def empty_namespace(look: Look, handle: Any) -> Iterator[Finding]:
    """Find queries in a namespace without vectors, while another namespace has some."""
    spaces = handle._engine.info().namespaces
    full = {name: one.vector_count for name, one in spaces.items() if one.vector_count}
    for call, _, hits, namespace in _queries(look, handle):
        if hits or not full or namespace in full or _pending(spaces, namespace):
            continue
        others = {}
        for name, count in full.items():
            touched = _touched_after(look, handle, call, name)
            # All vectors may be newer than the query.
            if touched is not None and count > len(touched):
                others[name] = count
        if others:
            yield about_namespace("empty_namespace", call, namespace, others=others)


def _pending(spaces: Any, namespace: str) -> bool:
    return namespace in spaces and bool(spaces[namespace].pending_vector_count)


def without_metadata(look: Look, handle: Any) -> Iterator[Finding]:
    """Find queries that found records with metadata but did not request the metadata."""
    for call, item, hits, namespace in _queries(look, handle):
        if item.get("includeMetadata") or not hits or namespace not in handle.namespaces():
            continue
        ids = {str(hit["id"]) for hit in hits}
        ids -= _touched_after(look, handle, call, namespace) or set()
        known = handle.vectors(namespace=namespace)
        if any(str(one["id"]) in ids and one.get("metadata") for one in known):
            yield about_namespace("metadata_not_included", call, namespace)


def replaced(look: Look, handle: Any) -> Iterator[Finding]:
    """Find upserts that replaced records of an earlier upsert with other metadata."""
    known: dict[tuple[str, str], Any] = {}
    for call in _calls(look, handle):
        if call.route not in _UPSERTS or call.status != 200:
            if call.route in (*_FORGETS, "update"):
                known.clear()
            continue
        namespace, found = _namespace(call), []
        for item in items_of(call.body):
            id, metadata = str(item.get("id")), item.get("metadata")
            before = known.get((namespace, id))
            if metadata and before and before != metadata:
                found.append(id)
            known[namespace, id] = metadata
        if found:
            yield about_namespace("upsert_replaced", call, namespace, count=len(found), ids=found)


def none_in_id(look: Look, handle: Any) -> Iterator[Finding]:
    """Find upserts of records whose ID contains the word ``None``."""
    for call in _calls(look, handle):
        if call.route not in _UPSERTS or call.status != 200:
            continue
        for item in items_of(call.body):
            if NONE.search(str(item.get("id") or "")):
                yield about_namespace("none_in_id", call, _namespace(call), id=str(item["id"]))


def deleted_elsewhere(look: Look, handle: Any) -> Iterator[Finding]:
    """Find deletions without effect in one namespace, while another namespace contains the IDs."""
    for call in _calls(look, handle):
        if call.route != "delete" or not executed(call):
            continue
        body, namespace, answer = parsed(call.body), _namespace(call), parsed(call.answer)
        given = (body.get("ids") or []) if isinstance(body, dict) else body
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(given, list) or not isinstance(result, dict) or result.get("deleted"):
            continue
        ids = set(map(str, given))
        for name in handle.namespaces():
            there = [str(one["id"]) for one in handle.vectors(namespace=name)]
            found = [one for one in there if one in ids]
            if found and name != namespace:
                values = {"other": name, "ids": found}
                yield about_namespace("deleted_elsewhere", call, namespace, **values)


FINDINGS: tuple[Callable[[Look, Any], Iterator[Finding]], ...] = (
    refused_candidates,
    no_longer_matches,
    upserted_again,
    deleted_by_prefix,
    hit_not_used,
    empty_namespace,
    without_metadata,
    replaced,
    none_in_id,
    deleted_elsewhere,
)
