"""The records that deletions removed, from the journal of vector indexes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ...cloud.base import BaseCloud
from ...core.bodies import items_of, parsed
from ...core.calls import Call, Entry
from ...reporting.calls import calls_in, executed
from ...reporting.lookups import ServiceLookups, records_of
from ...reporting.mask import Mask
from .. import QUERIES
from ..engine.engine import merge_patch
from ..filter import why_not

READS = (*QUERIES, "fetch", "range", "info", "list-namespaces")
REMOVALS = ("delete", "reset", "delete-namespace", "rename-namespace")
"""Routes after which records are no longer in their namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLookups(ServiceLookups):
    """Lookups in the calls to vector indexes."""

    removed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The records that a deletion removed, by its number; missing if that is unknown, as that of records
    which the test has loaded.
    """


def lookups(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> VectorLookups:
    """Return the records that each deletion removed."""
    history: list[Entry] = [*calls_in(entries, "vector")]
    history += [own for own in records_of(cloud).actions if own.kind in ("reset", "restore")]
    removed = _removed(sorted(history, key=attrgetter("number")))
    return VectorLookups(removed={number: mask.value(ids) for number, ids in removed})


def _removed(history: Iterable[Entry]) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbers of deletions with the records that they removed, if the requests before tell of
    as many as the answer counts. Others may have been loaded by the test.
    """
    spaces: defaultdict[tuple[str, object], dict[str, Any]] = defaultdict(dict)
    for entry in history:
        if not isinstance(entry, Call):
            spaces.clear()
        elif executed(entry) and entry.route not in READS:
            records = spaces[entry.fake, namespace_of(entry)]
            result = parsed(entry.response_body) or {}
            if entry.route == "delete":
                body = parsed(entry.request_body)
                removed = [record_id for record_id, metadata in records.items()
                           if _selects(body, record_id, metadata)]  # fmt: skip
                for record_id in removed:
                    del records[record_id]
                if result.get("result") == {"deleted": len(removed)}:
                    yield entry.number, removed
            elif entry.route in REMOVALS:
                spaces.clear()
            elif result.get("result") != {"updated": 0}:
                for item in items_of(entry.request_body):
                    record_id, metadata = str(item.get("id")), item.get("metadata")
                    if entry.route == "update":
                        metadata = _updated(records.get(record_id), metadata, item)
                    records[record_id] = metadata


def _updated(old: Any, metadata: Any, update: Mapping[str, Any]) -> Any:
    if metadata is None or update.get("metadataUpdateMode") != "PATCH":
        return old if metadata is None else metadata
    return merge_patch(old, metadata)


def _selects(body: Any, record_id: str, metadata: Any) -> bool:
    """Return whether the request of a deletion selects a record."""
    if isinstance(body, dict) and body.get("prefix") is not None:
        return record_id.startswith(str(body["prefix"]))
    if isinstance(body, dict) and body.get("filter") is not None:
        return why_not(str(body["filter"]), metadata) is None
    return record_id in ids_of(body)


# -- requests --------------------------------------------------------------------------------------


def namespace_of(call: Call) -> str:
    """Return the name of a request's namespace; empty for the default one."""
    return str(call.facts.get("namespace") or "")


def ids_of(body: Any) -> list[str]:
    """Return the IDs in the body of a request."""
    value = body.get("ids", body.get("id", [])) if isinstance(body, dict) else body
    values = value if isinstance(value, list) else [value] if value is not None else []
    return [str(item) for item in values if not isinstance(item, dict | list)]
