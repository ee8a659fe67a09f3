"""The data of a key-value server as plain JSON, for files that keep the state of a server.

Keys and function libraries are an ``.rdb`` file. What it cannot contain are commands that create it:
indexes, scripts, ACL users and changed parameters. A search index is built anew from the keys that
it covers. Of streams, the commands create the entries that consumers have released, and those that
producers have added idempotently, if the stream still has them. REST tokens are kept with the
hashes of the passwords for which they were made. Counters
and logs are not kept. Decided here.
"""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..cloud.fake import core_of
from ..core.errors import ContractError
from ..core.plain_data import from_plain, to_plain
from .acl import RestToken, describe_user
from .dump_files import load_rdb, rdb_of, records_of
from .engine.engine import KVEngine
from .errors import CommandError
from .fake import KVServer
from .rdb.payloads import KeyRecord
from .search.schema import Definition
from .syntax import encoded
from .values.stream import StreamValue, format_id
from .values.types import type_name


class SavedKeys(NamedTuple):
    """The content of a file: the ``.rdb`` file, the commands to run after it, and REST tokens."""

    rdb: bytes
    commands: Sequence[list[bytes]]
    tokens: dict[str, RestToken]


def saved(fake: KVServer) -> Any:
    """Return the data of a server as JSON, or None if a real server has it."""
    engine = core_of(fake).engine
    if not isinstance(engine, KVEngine):
        return None
    with engine.lock:
        rdb, indexes = rdb_of(engine)
        lines = [*_settings(engine), *(line for index in indexes for line in _index(index))]
        lines += _aliases(engine)
        lines += [line for record in records_of(engine) for line in _stream_parts(record)]
        tokens = engine.users.tokens()
    return to_plain(SavedKeys(rdb, lines, tokens))


def load_saved(fake: KVServer, content: Any, where: str) -> None:
    """Replace the data of a server by JSON that ``saved()`` returned. As with ``restore()``, its own
    token and password stay.

    Raises ``ContractError``, which begins with the place.
    """
    data = from_plain(SavedKeys, content, where)
    engine = fake._memory("the saved data", "keep that server's own file")
    engine.restore(fake._first_snapshot()().data)
    execute = partial(engine.execute, fake._new_session())
    for text in load_rdb(engine, data.rdb, f"{where}.rdb", execute):
        warnings.warn(text, stacklevel=2)
    for number, line in enumerate(data.commands):
        try:
            execute(list(line))
        except CommandError as error:
            raise ContractError(f"{where}.commands[{number}]: {error}") from None
    engine.users.add_tokens(data.tokens)
    core_of(fake).app.set_password(fake._password)


_WITHOUT_RULES = (b"resetpass", b"resetkeys", b"resetchannels", b"-@all", b"clearselectors")
"""The rules with which a user begins. Unlike them, ``reset`` sets a flag that the default user lacks."""


def _settings(engine: KVEngine) -> Iterator[list[bytes]]:
    changed = engine.config.changed()
    if changed:
        yield [
            b"CONFIG",
            b"SET",
            *map(encoded, (word for pair in changed.items() for word in pair)),
        ]
    for script in engine.scripting.scripts.values():
        yield [b"SCRIPT", b"LOAD", script.source]
    for name, user in engine.users.items():
        if engine.dialect == "vendor" and user in (engine.users.default, engine.users.read_only):
            continue  # Nobody can change these.
        rules = describe_user(user).removeprefix(b"user " + encoded(name))
        yield [b"ACL", b"SETUSER", encoded(name), *_WITHOUT_RULES, *rules.split()]


def _index(record: KeyRecord) -> Iterator[list[bytes]]:
    """Yield the commands that create a search or vector index."""
    key, value = record.key, record.value
    select = [[b"SELECT", b"%d" % record.database]] if record.database else []
    yield from select
    if type_name(value) == "search":
        yield [b"SEARCH.CREATE", key, *map(encoded, _definition(value.definition))]
    else:
        yield [
            b"VECTOR.CREATE",
            key,
            b"DIM",
            b"%d" % value.dimension,
            b"METRIC",
            encoded(value.metric),
        ]
        for id in value:
            yield from select
            yield [b"VECTOR.ADD", key, id, b"BASE64-FP32", b64encode(value.get(id).tobytes())]
    if record.expires_ms is not None:
        yield from select
        yield [b"PEXPIREAT", key, b"%d" % record.expires_ms]


def _stream_parts(record: KeyRecord) -> Iterator[list[bytes]]:
    """Yield the commands that add to a stream what the ``.rdb`` file lacks: entries that consumers have
    released, and those that producers have added idempotently.
    """
    key, stream = record.key, record.value
    if not isinstance(stream, StreamValue):
        return
    if record.database:
        yield [b"SELECT", b"%d" % record.database]
    for name, group in stream.groups.items():
        for entry_id, pending in group.released.pending.items():
            if stream.get(entry_id) is not None:
                ids = [b"IDS", b"1", format_id(entry_id)]
                count = [b"RETRYCOUNT", b"%d" % pending.deliveries]
                yield [b"XNACK", key, name, b"FAIL", *ids, *count, b"FORCE"]
    producers = stream.producers
    if producers is None:
        return
    duration = [b"IDMP-DURATION", b"%d" % producers.duration_s]
    yield [b"XCFGSET", key, *duration, b"IDMP-MAXSIZE", b"%d" % producers.most]
    for producer, names in producers.ids.items():
        for iid, entry_id in names.items():
            if stream.get(entry_id) is not None:
                yield [b"XIDMPRECORD", key, producer, iid, format_id(entry_id)]


def _definition(definition: Definition) -> Iterator[str]:
    yield from ("ON", definition.kind)
    if definition.stream is not None:
        yield definition.prefixes[0]
    else:
        yield from ("PREFIX", str(len(definition.prefixes)), *definition.prefixes)
    yield from ("LANGUAGE", definition.language, "SCHEMA")
    for spec in definition.fields:
        yield from spec.words()


def _aliases(engine: KVEngine) -> Iterator[list[bytes]]:
    for keyspace in engine.databases:
        if keyspace.indexes is not None:
            for alias, name in keyspace.indexes.aliases.items():
                yield [b"SEARCH.ALIASADD", alias, name]
