"""Facts about queries: what a filter refused and why, and namespaces that are empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import ServiceError
from ...vector.filter.explain import why_not
from ..bodies import compact, parsed, shortened
from ..summaries.summary import listed
from .look import NONE, Fact, Look

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["FACTS"]

_QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")


def _queries(look: Look, handle: Any) -> Iterator[tuple[Call, dict[str, Any], list[Any], str]]:
    """Each query that was carried out, with its hits and its namespace."""
    for call in look.calls_of(handle):
        if call.route not in _QUERIES or not call.reached or call.status != 200:
            continue
        body, answer = parsed(call.body), parsed(call.answer)
        items = body if isinstance(body, list) else [body]
        found = answer["result"]
        found = found.get("scores", []) if isinstance(found, dict) else found
        lists = found if len(items) > 1 else [found]
        for item, hits in zip(items, lists, strict=False):
            yield call, item, hits, str(call.facts.get("namespace") or "")


_FORGETS = ("delete", "reset", "delete-namespace", "rename-namespace")
_WRITES = ("upsert", "upsert-data", "update")


def _touched_after(look: Look, handle: Any, query: Call, namespace: str) -> set[str] | None:
    """The ids written into a namespace after a query; None where anything was deleted or renamed.

    Of these nobody knows any more what the query met.
    """
    touched: set[str] = set()
    for call in look.calls_of(handle):
        if call.number > query.number and call.route in _FORGETS:
            return None
        written = call.route in _WRITES and str(call.facts.get("namespace") or "") == namespace
        if call.number > query.number and written:
            body = parsed(call.body)
            items = body if isinstance(body, list) else [body]
            touched.update(str(item.get("id")) for item in items if isinstance(item, dict))
    return touched


def refused_candidates(look: Look) -> Iterator[Fact]:
    """A record that a filter refused, and why, where a query found fewer than it asked for."""
    for handle in look.handles("vector"):
        for call, item, hits, namespace in _queries(look, handle):
            text = item.get("filter")
            if not text or hits or namespace not in handle.namespaces():
                continue
            touched = _touched_after(look, handle, call, namespace)
            records = handle.vectors(namespace=namespace) if touched is not None else []
            for record in [one for one in records if str(one["id"]) not in (touched or ())][:1]:
                try:
                    why = why_not(text, record.get("metadata"))
                except ServiceError:
                    continue
                if why is not None:
                    if " is the array " in why and "compared with" in why:
                        why += "; CONTAINS looks into an array"
                    yield Fact(
                        f"{handle.name}: the filter refused {shortened(str(record['id']))}: {why}",
                        call.number,
                    )


def empty_namespace(look: Look) -> Iterator[Fact]:
    """A query in a namespace without vectors, while another one has some."""
    for handle in look.handles("vector"):
        spaces = handle._engine.info().namespaces
        full = {name: one.vector_count for name, one in spaces.items() if one.vector_count}
        for call, _, hits, namespace in _queries(look, handle):
            if hits or not full or namespace in full or _pending(spaces, namespace):
                continue
            others = []
            for name, count in full.items():
                touched = _touched_after(look, handle, call, name)
                # All that is there may have been written later.
                if touched is not None and count > len(touched):
                    others.append(f"{_name(name)} has {count}")
            if others:
                text = f"{handle.name}: {_name(namespace)} has no vectors; {', '.join(others)}"
                yield Fact(text, call.number)


def _pending(spaces: Any, namespace: str) -> bool:
    return namespace in spaces and bool(spaces[namespace].pending_vector_count)


def _name(namespace: str) -> str:
    return f"namespace {compact(namespace)}" if namespace else "the default namespace"


def without_metadata(look: Look) -> Iterator[Fact]:
    """A query that found records with metadata and did not ask for it."""
    for handle in look.handles("vector"):
        for call, item, hits, namespace in _queries(look, handle):
            if item.get("includeMetadata") or not hits or namespace not in handle.namespaces():
                continue
            ids = {str(hit["id"]) for hit in hits}
            ids -= _touched_after(look, handle, call, namespace) or set()
            known = handle.vectors(namespace=namespace)
            if any(str(one["id"]) in ids and one.get("metadata") for one in known):
                yield Fact(
                    f"{handle.name}: the query did not ask for metadata (includeMetadata), so its "
                    "hits have none",
                    call.number,
                )


def replaced(look: Look) -> Iterator[Fact]:
    """An upsert that replaced records of an earlier one that had other metadata."""
    for handle in look.handles("vector"):
        known: dict[tuple[str, str], Any] = {}
        for call in look.calls_of(handle):
            if call.route not in ("upsert", "upsert-data") or call.status != 200:
                if call.route in (*_FORGETS, "update"):
                    known.clear()
                continue
            body, namespace = parsed(call.body), str(call.facts.get("namespace") or "")
            found = []
            for item in body if isinstance(body, list) else [body]:
                id, metadata = str(item.get("id")), item.get("metadata")
                before = known.get((namespace, id))
                if metadata and before and before != metadata:
                    found.append(shortened(id))
                known[namespace, id] = metadata
            if found:
                yield Fact(
                    f"{handle.name}: this upsert replaced {len(found)} "
                    f"record{'s' * (len(found) > 1)} that had other metadata: {listed(found, 4)}",
                    call.number,
                )


def none_in_id(look: Look) -> Iterator[Fact]:
    """An upsert of a record whose id has the word ``None`` in it."""
    for handle in look.handles("vector"):
        for call in look.calls_of(handle):
            if call.route not in ("upsert", "upsert-data") or call.status != 200:
                continue
            body = parsed(call.body)
            for item in body if isinstance(body, list) else [body]:
                if isinstance(item, dict) and NONE.search(str(item.get("id") or "")):
                    yield Fact(
                        f"{handle.name}: the id {shortened(item['id'])} holds the text None, which "
                        "Python writes for no value",
                        call.number,
                    )


def deleted_elsewhere(look: Look) -> Iterator[Fact]:
    """A deletion that found none of its ids, while another namespace has them."""
    for handle in look.handles("vector"):
        for call in look.calls_of(handle):
            if call.route != "delete" or call.status != 200 or not call.reached:
                continue
            body, namespace = parsed(call.body), str(call.facts.get("namespace") or "")
            given = body if isinstance(body, list) else body.get("ids") or []
            ids = {str(one) for one in given}
            if not ids or parsed(call.answer)["result"]["deleted"]:
                continue
            for name in handle.namespaces():
                there = [str(one["id"]) for one in handle.vectors(namespace=name)]
                found = [one for one in there if one in ids]
                if found and name != namespace:
                    yield Fact(
                        f"{handle.name}: nothing was deleted from {_name(namespace)}; "
                        f"{_name(name)} has {listed([compact(shortened(one)) for one in found], 4)}",
                        call.number,
                    )


FACTS: tuple[Callable[[Look], Iterator[Fact]], ...] = (
    refused_candidates,
    empty_namespace,
    without_metadata,
    replaced,
    none_in_id,
    deleted_elsewhere,
)
