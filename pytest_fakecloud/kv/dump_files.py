"""Functions that load and write ``.rdb`` files."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cloud import files
from ..core.errors import ContractError
from .config import Config
from .engine.engine import KVEngine
from .errors import CommandError
from .rdb.payloads import Contents, KeyRecord, dump, read_file, write_file
from .rdb.source import RdbError
from .rdb.types import OLDEST
from .values.array import ArrayValue
from .values.json import JsonValue, write_json
from .values.types import type_name

if TYPE_CHECKING:
    from .model import AnyEngine

_INDEXES = ("search", "vector")
"""The types of values that ``.rdb`` files cannot contain."""
_OTHER_DATABASES = "of databases that this server does not have"


def load_from_file(
    engine: AnyEngine, path: str | PathLike[str], execute: Callable[[list[bytes]], object]
) -> None:
    """Load the keys and function libraries of an ``.rdb`` file.

    The in-memory engine loads all of them or, if a library is invalid, none. A real server receives
    them one by one, as commands sent through ``execute``. An expired key is not loaded, but an
    existing key of the same name is still removed. Warns about skipped keys. Raises
    ``ContractError`` if the file cannot be loaded.
    """
    file = Path(path)
    try:
        data = files.read_file(file, files.DATA_BYTES)
    except ContractError as error:
        raise ContractError(
            f"{error}; pass the path of an .rdb file, a mapping such as {{'k': 'v'}}, or commands "
            "such as [['SET', 'k', 'v']]"
        ) from None
    for problem in load_rdb(engine, data, file.name, execute):
        # Attribute the warning to the caller of load(), above the two functions that record the call.
        warnings.warn(problem, stacklevel=5)


def load_rdb(
    engine: AnyEngine, data: bytes, name: str, execute: Callable[[list[bytes]], object]
) -> list[str]:
    """Load the content of an ``.rdb`` file; return a description of the skipped keys, if any."""
    try:
        contents = read_file(data)
    except RdbError as error:
        raise ContractError(f"{name} cannot be loaded as an .rdb file: {error}") from None
    try:
        if isinstance(engine, KVEngine):
            problem = "its function libraries cannot be loaded"
            loaded = _adopt(engine, contents)
        else:
            problem = "the server rejected a key or a function library"
            loaded = _send(contents, execute)
    except CommandError as error:
        raise ContractError(f"{name}: {problem}: {error}") from None
    skipped = contents.skipped + loaded
    words = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
    return [f"{name}: skipped keys: {words}"] if skipped else []


def _send(contents: Contents, execute: Callable[[list[bytes]], object]) -> Counter[str]:
    """Send libraries and keys as commands; return the numbers of skipped keys by the reason."""
    config = Config("redis")
    for library in contents.libraries:
        execute([b"FUNCTION", b"LOAD", b"REPLACE", library])
    skipped = Counter[str]()
    for record in contents.records:
        key, expires_ms = record.key, record.expires_ms
        if record.database > 0:
            skipped[_OTHER_DATABASES] += 1
        elif type_name(record.value) in _OF_FEW_SERVERS:
            # Without DEL, a TTL would stay, and so would other elements of an array.
            execute([b"DEL", key])
            for line in _commands_for(key, record.value):
                execute(line)
            if expires_ms is not None:
                execute([b"PEXPIREAT", key, b"%d" % expires_ms])
        else:
            # RESTORE takes 0 for no expiry, and rejects negative times.
            until_ms = 0 if expires_ms is None else max(expires_ms, 1)
            data = dump(record.value, config, OLDEST)
            execute([b"RESTORE", key, b"%d" % until_ms, data, b"REPLACE", b"ABSTTL"])
    return skipped


_OF_FEW_SERVERS = frozenset({ArrayValue.type_name, JsonValue.type_name, "vectorset"})
"""Types whose payloads only some servers can read."""


def _commands_for(key: bytes, value: Any) -> Iterator[list[bytes]]:
    """Yield the commands that create a value of one of ``_OF_FEW_SERVERS``. The vectors of a set that
    reduces them are added as they are stored.
    """
    if isinstance(value, JsonValue):
        yield [b"JSON.SET", key, b"$", write_json(value.root)]
        return
    if type_name(value) == "vectorset":
        form = {"f32": b"NOQUANT", "int8": b"Q8", "bin": b"BIN"}[value.form]
        for name in value:
            numbers = [repr(number).encode() for number in value.numbers(name)]
            vector = [b"VALUES", b"%d" % len(numbers), *numbers]
            attributes = [b"SETATTR", value.attributes[name]] if name in value.attributes else []
            yield [b"VADD", key, *vector, name, form, *attributes, b"M", b"%d" % value.links]
        return
    yield [b"ARMSET", key, *(word for index, item in value for word in (b"%d" % index, item))]
    yield [b"ARSEEK", key, b"%d" % value.next_index]


def dump_to_file(engine: KVEngine, path: str | PathLike[str]) -> None:
    file = Path(path)
    data, indexes = rdb_of(engine)
    try:
        file.write_bytes(data)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        where = f"{str(file)!r:.200}{files.in_working_folder()}"
        raise ContractError(f"cannot write {where}: {reason}") from None
    if indexes:
        warnings.warn(
            f"{file.name}: skipped indexes: {len(indexes)}; .rdb files cannot contain them, so create "
            "them again after loading the file",
            stacklevel=3,
        )


def rdb_of(engine: KVEngine) -> tuple[bytes, list[KeyRecord]]:
    """Return an ``.rdb`` file with all keys and function libraries, and the indexes that it lacks."""
    with engine.lock:
        records = list(records_of(engine))
        indexes = [record for record in records if type_name(record.value) in _INDEXES]
        others = [record for record in records if type_name(record.value) not in _INDEXES]
        libraries = list(engine.scripting.libraries.sources())
        now_s = engine.execution.now_us // 1_000_000
        return write_file(others, libraries, engine.config, engine.version, now_s), indexes


def records_of(engine: KVEngine) -> Iterator[KeyRecord]:
    """Yield every key, database by database. The caller must hold the engine's lock."""
    engine.update_time()
    for keyspace in engine.databases:
        keyspace.purge()
        for key, value in keyspace.values.items():
            yield KeyRecord(keyspace.index, key, value, keyspace.expires.get(key))


def _adopt(engine: KVEngine, contents: Contents) -> Counter[str]:
    """Add keys and function libraries, replacing those with the same names.

    An expired key is not added, but removes an existing key of the same name. Returns the numbers
    of skipped keys by the reason. Raises ``CommandError``, before anything is added, for a library
    that cannot be loaded.
    """
    skipped = Counter[str]()
    with engine.lock:
        engine.update_time()
        scripting = engine.scripting
        read = map(scripting.read_library, contents.libraries)
        scripting.libraries.add_all(read, b"REPLACE")
        for index, key, value, expires_ms, idle_s, frequency in contents.records:
            if index >= len(engine.databases):
                skipped[_OTHER_DATABASES] += 1
                continue
            if not engine.can_hold(value):
                skipped[f"of type {type_name(value)}"] += 1
                continue
            if expires_ms is not None and expires_ms <= engine.execution.now_ms:
                skipped["that have expired by the clock of the fake"] += 1
            keyspace = engine.databases[index]
            keyspace.put_back(key, value, expires_ms, is_change=False)
            if key in keyspace.values:
                if idle_s:
                    keyspace.accessed[key] = engine.execution.now_ms - idle_s * 1000
                if frequency is not None and keyspace.frequencies is not None:
                    keyspace.frequencies.put(key, frequency, engine.execution.now_ms)
        engine.process_changes()
    return skipped
