"""What reports look up in the calls to vector indexes: which records a deletion removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...cloud.base import BaseCloud
from ...core.calls import Call, Entry
from ...reporting.contract import ServiceLookups
from ...reporting.lookups import records_of
from ...reporting.mask import Mask
from .. import QUERIES

READS = (*QUERIES, "fetch", "range", "info", "list-namespaces")
REMOVALS = ("delete", "reset", "delete-namespace", "rename-namespace")
"""Routes after which records are no longer in their namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLookups(ServiceLookups):
    removed: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The ids of the records that a deletion removed, by its number; missing if not recorded."""


def make(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> VectorLookups:
    removed = records_of(cloud).removed.items()
    return VectorLookups(removed={number: mask.value(ids) for number, ids in removed})


def namespace_of(call: Call) -> str:
    """Return the name of a request's namespace; empty for the default one."""
    return str(call.facts.get("namespace") or "")


def ids_of(body: Any) -> list[str]:
    """Return the IDs in the body of a request."""
    value = body.get("ids", body.get("id", [])) if isinstance(body, dict) else body
    values = value if isinstance(value, list) else [value] if value is not None else []
    return [str(item) for item in values if not isinstance(item, dict | list)]
