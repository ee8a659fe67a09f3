"""The data of a vector index as plain JSON, for files that keep the state of a server.

Records are as in an upsert, by namespace. Changes that queries do not see yet are ready when the
file is loaded, and cursors are not kept. Decided here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..cloud.fake import core_of
from ..core.plain_data import from_plain, to_plain
from .engine.engine import VectorSnapshot
from .fake import VectorIndex
from .model import DEFAULT_NAMESPACE


class SavedIndex(NamedTuple):
    """The records of an index by namespace."""

    namespaces: dict[str, list[Any]]


def saved(fake: VectorIndex) -> Any:
    """Return the data of an index as JSON."""
    # A client may delete a namespace meanwhile, which has no records then.
    names = core_of(fake).engine.namespaces()
    return to_plain(SavedIndex({name: fake._records(name, None) for name in names}))


def load_saved(fake: VectorIndex, content: Any, where: str) -> None:
    """Replace the data of an index by JSON that ``saved()`` returned.

    Raises ``ContractError`` for records that do not fit the index.
    """
    data = from_plain(SavedIndex, content, where)
    engine = core_of(fake).engine
    dimension = engine.identity.dimension
    engine.restore(VectorSnapshot(engine.identity, dimension, {}, [], [], {}))
    for namespace, records in data.namespaces.items():
        engine.open_namespace(namespace)
        fake.load(records, namespace=namespace)
    engine.open_namespace(DEFAULT_NAMESPACE)
