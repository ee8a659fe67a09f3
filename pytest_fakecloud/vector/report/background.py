"""What a vector index knows about queries beside their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import hypot
from typing import Any

from ...cloud.fake import core_of
from ...core.calls import Call, Entry
from ...reporting.calls import executed
from ...reporting.lookups import Lookups
from .. import QUERIES
from .accesses import READS, namespace_of

_MOST = 2_000
"""Maximum number of vectors of a namespace whose lengths are computed."""


def background(
    fake: Any, entries: Iterable[Entry], lookups: Lookups
) -> dict[int, Mapping[str, Any]]:
    """Return for each query, by the number of its call: the similarity function, the lengths of the
    vectors of its namespace, and how many it has, unless it was changed since.
    """
    calls = [call for call in entries if isinstance(call, Call) and call.fake == fake.name]
    spaces = {namespace_of(call) for call in calls}
    has_named = any(spaces)
    changed: dict[str, int] = {}
    for call in calls:
        if call.route not in READS and executed(call):
            changed[namespace_of(call)] = call.number
    known: dict[int, Mapping[str, Any]] = {}
    current: dict[str, dict[str, Any]] = {}
    for call in calls:
        name = namespace_of(call)
        fact: dict[str, Any] = {"has_namespaces": has_named}
        if call.route in QUERIES and executed(call) and changed.get(name, 0) < call.number:
            if name not in current:
                current[name] = _of_namespace(fake, name)
            fact |= current[name]
        known[call.number] = fact
    return known


def _of_namespace(fake: Any, name: str) -> dict[str, Any]:
    if name not in fake.namespaces():
        return {}
    engine = core_of(fake).engine
    count = engine.count(name)
    records = engine.range(name, 0, _MOST).records if count <= _MOST else ()
    lengths = {record.id: length_of(record.vector) for record in records
               if record.vector is not None}  # fmt: skip
    return {"similarity": str(engine.settings.similarity), "count": count, "lengths": lengths}


def length_of(vector: Iterable[float]) -> float:
    """Return the length of a vector, which is its norm and not the number of its components."""
    return hypot(*map(float, vector))
