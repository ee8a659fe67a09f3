"""What a vector index knows about queries beside their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import hypot
from typing import Any

from ...cloud.fake import core_of
from ...core.calls import Entry
from ...reporting.calls import calls_in, executed
from ...reporting.lookups import Background, Lookups
from .. import QUERIES
from .accesses import READS, namespace_of

_MOST = 2_000
"""Maximum number of vectors of a namespace whose lengths are computed."""


@dataclass(frozen=True, slots=True)
class VectorBackground(Background):
    """What an index knows about a request. The fields about the namespace are only set for a query after
    which the namespace was not changed.
    """

    has_namespaces: bool = False
    """Whether requests used a namespace other than the default one."""
    similarity: str = ""
    """The similarity function."""
    count: int = 0
    """The number of vectors of the namespace."""
    lengths: Mapping[str, float] = field(default_factory=dict)
    """The lengths of these vectors, by their IDs."""


def background(
    fake: Any, entries: Iterable[Entry], lookups: Lookups
) -> dict[int, VectorBackground]:
    """Return what an index knows about requests, by the numbers of the calls."""
    calls = [call for call in calls_in(entries) if call.fake == fake.name]
    spaces = {namespace_of(call) for call in calls}
    has_named = any(spaces)
    changed: dict[str, int] = {}
    for call in calls:
        if call.route not in READS and executed(call):
            changed[namespace_of(call)] = call.number
    backgrounds: dict[int, VectorBackground] = {}
    current: dict[str, VectorBackground] = {}
    for call in calls:
        name = namespace_of(call)
        backgrounds[call.number] = VectorBackground(has_named)
        if call.route in QUERIES and executed(call) and changed.get(name, 0) < call.number:
            if name not in current:
                current[name] = _of_namespace(fake, name, has_named)
            backgrounds[call.number] = current[name]
    return backgrounds


def _of_namespace(fake: Any, name: str, has_namespaces: bool) -> VectorBackground:
    if name not in fake.namespaces():
        return VectorBackground(has_namespaces)
    engine = core_of(fake).engine
    count = engine.count(name)
    records = engine.range(name, 0, _MOST).records if count <= _MOST else ()
    lengths = {record.id: length_of(record.vector) for record in records
               if record.vector is not None}  # fmt: skip
    return VectorBackground(has_namespaces, str(engine.settings.similarity), count, lengths)


def length_of(vector: Iterable[float]) -> float:
    """Return the length of a vector, which is its norm and not the number of its components."""
    return hypot(*map(float, vector))
