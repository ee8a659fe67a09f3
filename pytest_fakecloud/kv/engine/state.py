"""Copies of an in-memory engine's state, and the keys that dump files contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...core.errors import ContractError
from ..scripting.scripts import ScriptingCopy
from .keyspace import KeyspaceCopy
from .users import UsersCopy

if TYPE_CHECKING:
    from ..rdb.file import Record
    from .engine import Engine


class EngineCopy(NamedTuple):
    """A copy of everything that commands can change."""

    databases: list[KeyspaceCopy]
    scripting: ScriptingCopy
    users: UsersCopy
    config: Mapping[str, str]


def copy_of(engine: Engine) -> EngineCopy:
    with engine.lock:
        engine.update_time()
        return EngineCopy(
            [keyspace.snapshot() for keyspace in engine.databases],
            engine.scripting.snapshot(),
            engine.users.snapshot(),
            engine.config.snapshot(),
        )


def restore(engine: Engine, saved: EngineCopy) -> None:
    """Restore a copy; raise ``ContractError`` if it is of another kind of engine."""
    if not isinstance(saved, EngineCopy) or len(saved.databases) != len(engine.databases):
        raise ContractError(
            "this snapshot is of another kind of kv_server: restore it on a server with the same "
            "dialect= and engine= as the original"
        )
    with engine.lock:
        engine.update_time()
        engine.config.restore(saved.config)
        # The policy decides whether keys have access counters, so apply it before restoring them.
        engine.follow_policy()
        for keyspace, content in zip(engine.databases, saved.databases, strict=True):
            keyspace.restore(content)
        engine.scripting.restore(saved.scripting)
        engine.users.restore(saved.users)
        engine.follow_config()
        if engine.tracking:
            engine.tracking.invalidate_all()
        if engine.waiters:
            engine.changes.serve_waiters(engine.now_ms)


def records(engine: Engine) -> Iterator[Record]:
    """Yield every key, database by database. The caller must hold the engine's lock."""
    from ..rdb.file import Record

    engine.update_time()
    for keyspace in engine.databases:
        keyspace.purge()
        for key, value in keyspace.values.items():
            yield Record(keyspace.index, key, value, keyspace.expires.get(key))


def adopt(engine: Engine, found: Iterable[Record], libraries: list[bytes]) -> None:
    """Add keys and function libraries, replacing those with the same names.

    An expired key is not added, but removes an existing key of the same name. Raises
    ``CommandError``, before anything is added, for a library that cannot be loaded.
    """
    with engine.lock:
        engine.update_time()
        engine.scripting.libraries.add_all(libraries, b"REPLACE")
        for index, key, value, expires_ms, idle_s, frequency in found:
            keyspace = engine.databases[index]
            keyspace.put_back(key, value, expires_ms)
            if key in keyspace.values:
                if idle_s:
                    keyspace.accessed[key] = engine.now_ms - idle_s * 1000
                if frequency is not None and keyspace.frequencies is not None:
                    keyspace.frequencies.put(key, frequency, engine.now_ms)
        if engine.changes.followed:
            engine.changes.hand_on(None, engine.now_ms)
