"""Keys and search indexes of a key-value server. Reading them does not count as access to a key."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from operator import itemgetter
from typing import Any, NamedTuple, cast
from urllib.parse import quote_from_bytes

from ...cloud.fake import core_of
from ...core.calls import Call
from ...core.errors import ContractError, counted
from ...core.timers import to_datetime
from ...inspect.data import (
    MOST_IN_VIEW,
    Item,
    Listing,
    NotFound,
    PageQuery,
    PlannedEvent,
    State,
    View,
    contains,
    cut,
    excerpt,
    natural,
    page_of,
    page_of_names,
    plain,
    shown_time,
)
from ..acl import AclUser, describe_user, first_user, read_only_user
from ..algorithms.glob import matcher
from ..engine.cluster import Cluster
from ..engine.engine import KVEngine
from ..engine.keyspace import Keyspace
from ..engine.replication import Replication
from ..fake import KVServer
from ..reply import Converted, double_text, encode, python_value, word, word_pairs
from ..resp.records import words_of
from ..search.index import SearchIndex
from ..values.array import ArrayValue
from ..values.containers import HashValue
from ..values.measures import usage
from ..values.stream import StreamValue, format_id, make_id
from ..values.types import type_name
from .commands import commands

PREVIEW = 200
"""Maximum number of characters of a value in a row of keys."""
MOST_FOLDERS = 500
LONGEST_TEXT = 200_000
"""Maximum number of characters of a string or document in the view of one key."""
_GLOB = frozenset("*?[")
"""Characters that make a search a glob pattern."""


class _Key(NamedTuple):
    """A key with its stored value, and the time in milliseconds at which it expires."""

    name: bytes
    value: Any
    deadline_ms: int | None

    @property
    def type(self) -> str:
        return type_name(self.value)


class _Consumer(NamedTuple):
    """A consumer of a group. ``inactive_ms`` is None until it receives its first entry."""

    name: bytes
    idle_ms: int
    inactive_ms: int | None


class _Pending(NamedTuple):
    """An entry that a consumer has received and not acknowledged."""

    entry_id: int
    consumer: bytes
    idle_ms: int
    deliveries: int


class _Group(NamedTuple):
    """A consumer group of a stream, with its pending entries in the order of their IDs."""

    name: bytes
    last_id: int
    consumers: list[_Consumer]
    pending: list[_Pending]


class _InMemory:
    """The keys of the in-memory engine."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.names: Iterable[bytes] = keyspace
        self.now_ms = keyspace.now_ms
        self._keyspace = keyspace

    def value(self, key: bytes) -> Any:
        # Use `find`, because `peek` counts hits and misses.
        return self._keyspace.find(key)

    def deadline_ms(self, key: bytes) -> int | None:
        return self._keyspace.expires.get(key)

    def deadlines(self) -> list[tuple[bytes, int]]:
        """Return the keys with a TTL that have not expired, and when they do."""
        return [
            (name, at_ms) for name, at_ms in self._keyspace.expires.items() if at_ms > self.now_ms
        ]

    def size(self, key: bytes, value: Any) -> int:
        return usage(key, value)

    def groups(self, entry: _Key) -> list[_Group]:
        return [
            _Group(
                name,
                group.last_id,
                [
                    _Consumer(
                        consumer.name,
                        self.now_ms - consumer.seen_ms,
                        None if consumer.active_ms < 0 else self.now_ms - consumer.active_ms,
                    )
                    for consumer in group.sorted_consumers()
                ],
                [
                    _Pending(
                        entry_id,
                        pending.consumer.name,
                        group.idle_ms(pending, self.now_ms),
                        pending.deliveries,
                    )
                    for entry_id, pending in group.pending.between()
                ],
            )
            for name, group in sorted(
                entry.value.groups.items(), key=lambda named: natural(_text(named[0]))
            )
        ]

    def stream_entry(self, entry: _Key, entry_id: int) -> Any:
        fields = entry.value.get(entry_id)
        return None if fields is None else dict(word_pairs(fields))

    def waiting(self, entry: _Key, last_id: int) -> int:
        return len(entry.value) - cast("int", entry.value.surplus(min_id=last_id + 1))


class _OnServer:
    """The keys of a real server, which does not report the memory that a key uses."""

    def __init__(self, keyspace: Any, fake: KVServer) -> None:
        self.names: Iterable[bytes] = keyspace
        self.now_ms = core_of(fake).timekeeper.now_us() // 1000
        self._keyspace, self._execute = keyspace, fake.execute

    def value(self, key: bytes) -> Any:
        """Return a value in its Python form, but a string as the bytes that the server stores."""
        value = self._keyspace.peek(key)
        is_string = isinstance(value, Converted) and value.type_name == "string"
        return encode(value.python) if is_string else value

    def deadline_ms(self, key: bytes) -> int | None:
        left_ms = cast("int", self._execute("PTTL", key))
        return None if left_ms < 0 else self.now_ms + left_ms

    def size(self, key: bytes, value: Any) -> None:
        return None

    def groups(self, entry: _Key) -> list[_Group]:
        return [
            _Group(
                _bytes(group["name"]),
                _entry_id(group["last-delivered-id"]),
                [
                    _Consumer(_bytes(consumer["name"]), consumer["idle"], consumer.get("inactive"))
                    for consumer in self._info("CONSUMERS", entry.name, group["name"])
                ],
                [
                    _Pending(_entry_id(entry_id), _bytes(consumer), idle_ms, deliveries)
                    for entry_id, consumer, idle_ms, deliveries in cast(
                        "Any",
                        self._execute(
                            "XPENDING", entry.name, group["name"], "-", "+", group["pending"] or 1
                        ),
                    )
                ],
            )
            for group in self._info("GROUPS", entry.name)
        ]

    def _info(self, *words: Any) -> list[dict[str, Any]]:
        replies = cast("list[Any]", self._execute("XINFO", *words))
        return [
            dict(reply if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True))
            for reply in replies
        ]

    def stream_entry(self, entry: _Key, entry_id: int) -> Any:
        return dict(entry.value.python).get(_text(format_id(entry_id)))

    def waiting(self, entry: _Key, last_id: int) -> int:
        return sum(_entry_id(entry_id) > last_id for entry_id, _ in entry.value.python)


def _keys(fake: KVServer) -> _InMemory | _OnServer:
    """Return the keys of a fake. The caller holds the lock of its engine."""
    keyspace = core_of(fake).engine.current()
    return _InMemory(keyspace) if isinstance(keyspace, Keyspace) else _OnServer(keyspace, fake)


def _existing(keys: _InMemory | _OnServer, names: Iterable[bytes]) -> list[_Key]:
    values = ((name, keys.value(name)) for name in names)
    return [
        _Key(name, value, keys.deadline_ms(name)) for name, value in values if value is not None
    ]


def state(fake: KVServer) -> State:
    """Return the keys of each database and the other data that commands change, by name."""
    engine = core_of(fake).engine
    with engine.lock:
        keys = _keys(fake)
        sections: State = {"keys": _items(keys, keys.names)}
        if isinstance(engine, KVEngine):
            for number, keyspace in enumerate(engine.databases[1:], 1):
                sections[f"keys of database {number}"] = _items(_InMemory(keyspace), keyspace)
            sections |= _beside_keys(engine)
    return {section: items for section, items in sections.items() if items or section == "keys"}


def words_as_sent(call: Call) -> list[str]:
    """Return the words of a command over the Redis protocol; a byte that is not UTF-8 is a surrogate."""
    return [sent.decode("utf-8", "surrogateescape") for sent in words_of(call)]


def without_expired(fake: KVServer, state: State) -> State:
    """Return a state without the keys whose TTL has ended: a restore lets them expire at once."""
    now = shown_time(core_of(fake).timekeeper.now_us())
    return {
        section: {
            name: fields
            for name, fields in items.items()
            if not "" < (fields.get("expires") or "") <= now
        }
        for section, items in state.items()
    }


def item_reader(fake: KVServer, section: str, item: str) -> Callable[[], Item | None] | None:
    """Return a function that reads one key; None for other items, and for a name that is not UTF-8."""
    if section != "keys" or item.startswith(("b'", 'b"')):
        return None
    names = [item.encode("utf-8", "surrogatepass")]

    def read() -> Item | None:
        with core_of(fake).engine.lock:
            return _items(_keys(fake), names).get(item)

    return read


def _items(keys: _InMemory | _OnServer, names: Iterable[bytes]) -> dict[str, Item]:
    return {
        str(word(entry.name)): {
            "type": entry.type,
            "value": plain(_by_name(entry), "backslashreplace"),
            "expires": entry.deadline_ms and shown_time(entry.deadline_ms * 1000),
            **_beside_value(entry.value),
        }
        for entry in _existing(keys, names)
    }


def _by_name(entry: _Key) -> Any:
    """Return a key's value as plain Python, with scores by member and stream entries by ID, so that two
    versions are compared by these.
    """
    value: Any = python_value(entry.value)
    return dict(value) if entry.type in ("zset", "stream") else value


def _beside_value(value: Any) -> Item:
    if isinstance(value, HashValue) and value.expires:
        return {
            "fields expire": {
                _text(name): shown_time(at_ms * 1000) for name, at_ms in value.expires.items()
            }
        }
    if isinstance(value, ArrayValue) and value.cursor is not None:
        return {"last append": str(value.cursor)}
    if not isinstance(value, StreamValue):
        return {}
    groups = {
        _text(name): {
            "last ID": _text(format_id(group.last_id)),
            "pending": {
                _text(consumer.name): [
                    _text(format_id(entry_id)) for entry_id, _ in consumer.pending.between()
                ]
                for consumer in group.sorted_consumers()
            },
        }
        for name, group in value.groups.items()
    }
    return {"last ID": _text(format_id(value.last_id)), **({"groups": groups} if groups else {})}


def _beside_keys(engine: KVEngine) -> State:
    """Return scripts, libraries, aliases, changed users and parameters, without secrets, and nodes."""
    users, rest_tokens = engine.users.snapshot()
    tokens = Counter(token.user for token in rest_tokens.values())
    first = [make_user(engine.dialect, engine.table) for make_user in (first_user, read_only_user)]
    return {
        "nodes": {} if engine.topology is None else _nodes(engine.topology),
        "scripts": {
            _text(name): {"source": _text(script.source)}
            for name, script in engine.scripting.scripts.items()
        },
        "function libraries": {
            _text(library.name): {"source": _text(library.source)}
            for library in engine.scripting.libraries.values()
        },
        "aliases of search indexes": {
            _text(alias): {"index": _text(name)}
            for keyspace in engine.databases
            if keyspace.indexes is not None
            for alias, name in keyspace.indexes.aliases.items()
        },
        "users": {
            name: {
                "rules": _rules(user),
                "passwords": len(user.hashes),
                "REST tokens": tokens[name],
            }
            for name, user in users.items()
            if tokens[name]
            or len(user.hashes) > 1
            or not any(_has_rules_of(user, user_at_start) for user_at_start in first)
        },
        "parameters": {name: {"value": value} for name, value in engine.config.changed().items()},
    }


def _has_rules_of(user: AclUser, first: AclUser) -> bool:
    """Return whether a user has the name and the rules of an initial one."""
    if user.name != first.name:
        return False
    # Describing the rules takes long, and a state is read for each row of a report.
    same = (user.on, user.sanitizes, user.selectors) == (first.on, first.sanitizes, first.selectors)
    return same or _rules(user) == _rules(first)


def _nodes(topology: Replication) -> dict[str, Item]:
    """Return the role of each node and, of a cluster, its slots."""
    nodes: dict[str, Item] = {}
    for node in topology.nodes:
        primary = node.primary
        item: Item = {"role": "primary" if primary is None else f"replica of node {primary.number}"}
        if isinstance(topology, Cluster):
            item["slots"] = [
                f"{first}-{last}" for first, last, owner in topology.ranges(node) if owner is node
            ]
        nodes[f"node {node.number}"] = item
    return nodes


def _rules(user: AclUser) -> str:
    words = _text(describe_user(user)).split()
    return " ".join(rule for rule in words if rule[0] != "#" and rule != "nopass")


def expiries(fake: KVServer) -> list[tuple[int, PlannedEvent]]:
    """Return when keys with a TTL expire, in microseconds; nothing of a real server."""
    engine = core_of(fake).engine
    with engine.lock:
        keys = _keys(fake)
        if isinstance(keys, _OnServer):
            return []
        return [_expiry(name, at_ms) for name, at_ms in keys.deadlines()]


def next_expiry(fake: KVServer) -> tuple[int, PlannedEvent] | None:
    """Return the first of ``expiries()``, or None without one."""
    engine = core_of(fake).engine
    with engine.lock:
        keys = _keys(fake)
        deadlines = [] if isinstance(keys, _OnServer) else keys.deadlines()
        first = min(deadlines, key=itemgetter(1), default=None)
    return None if first is None else _expiry(*first)


def _expiry(name: bytes, at_ms: int) -> tuple[int, PlannedEvent]:
    key = _text(name)
    return at_ms * 1000, PlannedEvent("expiry", "keys", key, f"expires: {key}")


def can_put_back(section: str) -> bool:
    """Return whether ``put_back()`` takes items of a section of the state."""
    return section == "keys"


def put_back(
    fake: KVServer,
    other: KVServer,
    section: str,
    items: Iterable[str],
    record: Callable[[], object],
) -> None:
    """Give keys the values and the TTLs that they have in another server; delete those it lacks.

    A key whose TTL has ended since gets none, because it would expire at once. ``record`` is called just
    before the change, when nothing can fail and no other command can run.
    """
    if not can_put_back(section):
        raise ContractError(f"only keys can be put back alone, not {section}")
    source = cast("KVEngine", core_of(other).engine)
    with source.lock:
        source.update_time()
        saved_keyspace = source.current()
        saved, saved_ms = saved_keyspace.snapshot(), saved_keyspace.execution.now_ms
    engine = cast("KVEngine", core_of(fake).engine)
    with engine.lock:
        engine.update_time()
        keyspace = engine.current()
        names = {str(word(name)): name for name in (*keyspace.values, *saved.values)}
        chosen = [names[item] for item in items if item in names]
        both = (keyspace.values, saved.values)
        if any(isinstance(values.get(name), SearchIndex) for name in chosen for values in both):
            raise ContractError("a search index cannot be put back alone")
        record()
        for name in chosen:
            value, at_ms = saved.values.get(name), saved.expires.get(name)
            # An expired key stays in memory until it is purged.
            if value is None or (at_ms is not None and at_ms <= saved_ms):
                keyspace.delete(name)
            else:
                has_ended = at_ms is not None and at_ms <= keyspace.execution.now_ms
                keyspace.put_back(name, value, None if has_ended else at_ms)


def content(fake: KVServer) -> View:
    """Return the keys with their values, and the memory they use unless a real server has them."""
    engine = core_of(fake).engine
    with engine.lock:
        every = _keys(fake)
        names = list(every.names)
        rows = [
            {
                "key": _text(entry.name),
                "type": entry.type,
                "ttl": None if (left_ms := _ttl_ms(every, entry)) is None else left_ms / 1000,
                "value": plain(python_value(entry.value)),
            }
            for entry in _existing(every, names[:MOST_IN_VIEW])
        ]
    memory = engine.sizes.used_memory() if isinstance(engine, KVEngine) else None
    return {"count": len(names), "memory": memory, "keys": rows}


def _ttl_ms(keys: _InMemory | _OnServer, entry: _Key) -> int | None:
    return None if entry.deadline_ms is None else entry.deadline_ms - keys.now_ms


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else str(data).encode()


def _entry_id(text: str) -> int:
    milliseconds, _, sequence = text.partition("-")
    return make_id(int(milliseconds), int(sequence))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def keys(fake: KVServer, page_query: PageQuery) -> View:
    """Return a page of keys in alphabetical order, with type, TTL, size and the start of the value.

    A search looks through the keys and their values, of which ``preview`` shows the part found. A
    search that contains ``*``, ``?`` or ``[`` is
    a glob pattern for the keys, as in SCAN. With ``view=tree``,
    the page lists only the keys directly in the namespace ``under`` (default: the root), and
    ``folders`` lists the namespaces one level below it (separated by ``:``) with their keys and memory,
    of those that the search finds.
    """
    with core_of(fake).engine.lock:
        every = _keys(fake)
        matching = _existing(every, every.names)
        total, search = len(matching), page_query.search
        if _GLOB & set(search):
            matches = matcher(search.encode("utf-8", "surrogatepass"))
            matching = [entry for entry in matching if matches(entry.name)]
            page_query = page_query._replace(search="")
        folders: list[View] | None = None
        if page_query.filters.get("view") == "tree":
            if page_query.search:
                matching = [
                    entry for entry in matching if contains(_searchable(entry), page_query.search)
                ]
            matching, folders = _in_namespace(every, matching, page_query.filters.get("under", ""))
        page = page_of(
            matching,
            page_query,
            sort_key=lambda entry: (natural(entry.name.decode("latin-1")),),
            show=lambda entry: _row_found(every, entry, page_query.search),
            text=_searchable,
            facet=("type", lambda entry: entry.type),
            values=_fields(every),
        )
    return page | {"total": total} | ({} if folders is None else {"folders": folders})


def _in_namespace(
    keys: _InMemory | _OnServer, entries: Sequence[_Key], under: str
) -> tuple[list[_Key], list[View]]:
    """Return the keys directly in a namespace, and the namespaces one level below it."""
    prefix = under.encode("utf-8", "surrogatepass")
    direct: list[_Key] = []
    folders: dict[bytes, list[_Key]] = {}
    for entry in entries:
        if entry.name.startswith(prefix):
            first, colon, _ = entry.name[len(prefix) :].partition(b":")
            if colon:
                folders.setdefault(prefix + first + colon, []).append(entry)
            else:
                direct.append(entry)
    return direct, [
        {"name": _text(name), "keys": len(inside), "bytes": _memory(keys, inside)}
        for name, inside in sorted(
            folders.items(), key=lambda folder: natural(folder[0].decode("latin-1"))
        )[:MOST_FOLDERS]
    ]


def _memory(keys: _InMemory | _OnServer, entries: Iterable[_Key]) -> int | None:
    """Return the memory that keys use in bytes; None if a real server has them."""
    if isinstance(keys, _OnServer):
        return None
    return sum(keys.size(entry.name, entry.value) for entry in entries)


def _fields(keys: _InMemory | _OnServer) -> dict[str, Callable[[_Key], Any]]:
    """Return the fields of a row, each with the function that reads it from a key."""
    return {
        "id": lambda entry: quote_from_bytes(entry.name, safe=""),
        "key": lambda entry: _text(entry.name),
        "is_text": lambda entry: isinstance(word(entry.name), str),
        "type": lambda entry: entry.type,
        "ttl_ms": lambda entry: _ttl_ms(keys, entry),
        "expires": lambda entry: (
            None if entry.deadline_ms is None else to_datetime(entry.deadline_ms * 1000).isoformat()
        ),
        "bytes": lambda entry: keys.size(entry.name, entry.value),
        "length": lambda entry: _length(entry.value),
        "preview": lambda entry: _preview(entry.value),
    }


def _row(keys: _InMemory | _OnServer, entry: _Key) -> View:
    return {name: read(entry) for name, read in _fields(keys).items()}


def _row_found(keys: _InMemory | _OnServer, entry: _Key, search: str) -> View:
    """Return a row whose preview shows what a search found, if the beginning of the value does not."""
    row = _row(keys, entry)
    if not contains(f"{row['key']}\n{row['preview']}", search):
        row["preview"] = excerpt(_searchable(entry), search, PREVIEW)
    return row


def _length(value: Any) -> int:
    """Return the number of bytes, elements or indexed documents of a value, 1 for a document."""
    if isinstance(value, SearchIndex):
        return len(value.documents)
    if not isinstance(value, Converted):
        return len(value)
    return len(cast("Sized", value.python)) if value.type_name in _ELEMENTS else 1


def _preview(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        shown = bytes(value[: 4 * PREVIEW]).decode("utf-8", "backslashreplace")
    elif isinstance(value, HashValue):
        fields = itertools.islice(value.fields.items(), 3)
        shown = ", ".join(
            f"{_text(name)}: {_text(field_value[:PREVIEW])}" for name, field_value in fields
        )
    elif value.type_name == "vector":
        shown = f"{counted(value.dimension, 'dimension')}, {value.metric}"
    elif value.type_name in _ELEMENTS:
        return ""
    else:
        shown = _json(python_value(value))
    return shown if len(shown) <= PREVIEW else shown[:PREVIEW] + "…"


def _searchable(entry: _Key) -> str:
    """Return a key and the strings in its value, and a document also as JSON."""
    value = plain(python_value(entry.value))
    is_document = entry.type != "string" and entry.type not in _ELEMENTS
    return "\n".join(
        [_text(entry.name), *_strings(value), *([_json(value)] if is_document else [])]
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    else:
        yield value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def key(fake: KVServer, id: str, page_query: PageQuery) -> View:
    """Return a key with its value: the text of a string or document, or a page of the elements."""
    name = id.encode("utf-8", "surrogateescape")
    with core_of(fake).engine.lock:
        every = _keys(fake)
        existing = _existing(every, [name])
        if not existing:
            raise NotFound(f"there is no key {_text(name)!r:.200}: it was deleted, or it expired")
        entry = existing[0]
        view = _row(every, entry) | _content(entry.value, page_query)
        view["made_by"] = _command_of(view)
        return view | {"groups": _groups(every, entry)} if entry.type == "stream" else view


_WRITES: Mapping[str, tuple[str, ...]] = {
    "hash": ("HSET", "field", "value"),
    "list": ("RPUSH", "value"),
    "set": ("SADD", "member"),
    "zset": ("ZADD", "score", "member"),
    "array": ("ARMSET", "index", "value"),
}
"""The command that writes the elements of a key of a type, and the columns that are its arguments."""


def _command_of(view: View) -> list[str] | None:
    """Return the command that makes a key with its value and its TTL; None if the whole value is not in
    the view, or if it is not text.
    """
    name, type_name = view["key"], view["type"]
    if not view["is_text"] or "hex" in view:
        return None
    if elements := view.get("elements"):
        rows = elements["items"]
        if type_name not in _WRITES or len(rows) < elements["total"]:
            return None
        command, *columns = _WRITES[type_name]
        return [command, name, *(str(row[column]) for row in rows for column in columns)]
    if not view.get("is_whole", True):
        return None
    if type_name == "string":
        expires = [] if view["ttl_ms"] is None else ["PX", str(view["ttl_ms"])]
        return ["SET", name, view["value"], *expires]
    return ["JSON.SET", name, "$", view["value"]] if "json" in type_name.lower() else None


def _groups(keys: _InMemory | _OnServer, entry: _Key) -> list[View]:
    """Return the consumer groups of a stream, with the number of entries that wait for each."""
    views = []
    for group in keys.groups(entry):
        pending = Counter(record.consumer for record in group.pending)
        consumers = [
            {
                "name": _text(consumer.name),
                "pending": pending[consumer.name],
                "seen": _before(keys, consumer.idle_ms),
                "active": None
                if consumer.inactive_ms is None
                else _before(keys, consumer.inactive_ms),
            }
            for consumer in group.consumers
        ]
        views.append(
            {
                "name": _text(group.name),
                "last_id": _text(format_id(group.last_id)),
                "waiting": keys.waiting(entry, group.last_id),
                "pending": len(group.pending),
                "consumers": consumers,
            }
        )
    return views


def _before(keys: _InMemory | _OnServer, idle_ms: int) -> str:
    return to_datetime((keys.now_ms - idle_ms) * 1000).isoformat()


def _content(value: Any, page_query: PageQuery) -> View:
    if isinstance(value, bytes | bytearray):
        if isinstance(word(value), str):
            return cut("value", _text(bytes(value)), LONGEST_TEXT) | {"is_editable": True}
        # A value that is not UTF-8 is edited as hexadecimal digits, two for each byte.
        binary = bytes(value[: LONGEST_TEXT // 2])
        shown = cut("value", _text(binary), LONGEST_TEXT) | {"is_editable": False}
        return shown | {"hex": binary.hex(), "is_whole": len(binary) == len(value)}
    content: Any = python_value(value)
    if value.type_name not in _ELEMENTS:
        text = json.dumps(plain(content), indent=2, ensure_ascii=False)
        return cut("value", text, LONGEST_TEXT)
    columns, rows = _ELEMENTS[value.type_name]
    page = page_of(
        enumerate(rows(content)),
        page_query,
        sort_key=lambda numbered_row: (numbered_row[0],),
        show=lambda numbered_row: _element(dict(zip(columns, numbered_row[1], strict=True))),
        text=lambda numbered_row: "\n".join(str(plain(part)) for part in numbered_row[1]),
    )
    return {"columns": list(columns), "elements": page}


def _element(row: View) -> View:
    """Return a row of elements; of its parts that are not UTF-8, also their digits."""
    digits = {name: part.hex() for name, part in row.items() if isinstance(part, bytes)}
    shown: View = plain(row)
    return shown | ({"hex": digits} if digits else {})


_ELEMENTS: dict[str, tuple[tuple[str, ...], Callable[[Any], Sequence[Sequence[Any]]]]] = {
    # Indexes are strings, because JavaScript has no integers of more than 53 bits.
    "array": (("index", "value"), lambda value: [(str(at), item) for at, item in value.items()]),
    "hash": (("field", "value"), lambda value: list(value.items())),
    "list": (("index", "value"), lambda value: list(enumerate(value))),
    "set": (
        ("member",),
        lambda value: [
            (member,) for member in sorted(value, key=lambda member: natural(str(plain(member))))
        ],
    ),
    "zset": (
        ("member", "score"),
        lambda value: [(member, double_text(score).decode()) for member, score in value],
    ),
    "stream": (("id", "fields"), lambda value: [(entry_id, _json(row)) for entry_id, row in value]),
    "vectorset": (
        ("element", "vector", "attributes"),
        lambda value: [
            (name, _json(vector), value["attributes"].get(name, ""))
            for name, vector in value["vectors"].items()
        ],
    ),
    "vector": (
        ("id", "vector"),
        lambda value: [(id, _json(vector)) for id, vector in value["vectors"].items()],
    ),
}
"""Each type's columns, and a function that returns the rows of a value in its Python form."""


# -- pending entries of streams --------------------------------------------------------------------


class _Received(NamedTuple):
    """A pending entry of a group, with the key that has the stream."""

    key: _Key
    group: bytes
    pending: _Pending


def _received(keys: _InMemory | _OnServer) -> list[_Received]:
    streams = (entry for entry in _existing(keys, keys.names) if entry.type == "stream")
    return [
        _Received(entry, group.name, pending)
        for entry in streams
        for group in keys.groups(entry)
        for pending in group.pending
    ]


def pending_entries(fake: KVServer, page_query: PageQuery) -> View:
    """Return a page of the entries of streams that consumers have received and not acknowledged.

    Filters are ``key``, ``group`` and ``consumer``.
    """
    key, group = (page_query.filters.get(name) for name in ("key", "group"))
    with core_of(fake).engine.lock:
        every = _keys(fake)
        received = _received(every)
        page = page_of(
            (
                record
                for record in received
                if key in (None, "", _text(record.key.name))
                and group in (None, "", _text(record.group))
            ),
            page_query,
            sort_key=lambda record: (
                natural(record.key.name.decode("latin-1")),
                natural(record.group.decode("latin-1")),
                record.pending.entry_id,
            ),
            show=lambda record: _pending_row(every, record),
            text=lambda record: " ".join(map(str, _pending_row(every, record).values())),
            facet=("consumer", lambda record: _text(record.pending.consumer)),
        )
    return page | {"total": len(received)}


def _pending_row(keys: _InMemory | _OnServer, record: _Received) -> View:
    names = (record.key.name, record.group)
    entry_id = _text(format_id(record.pending.entry_id))
    fields = keys.stream_entry(record.key, record.pending.entry_id)
    return {
        "id": " ".join([*(quote_from_bytes(name, safe="") for name in names), entry_id]),
        "entry": entry_id,
        "key": _text(record.key.name),
        "group": _text(record.group),
        "is_text": all(isinstance(word(name), str) for name in names),
        "consumer": _text(record.pending.consumer),
        "idle_ms": record.pending.idle_ms,
        "delivered": None if record.pending.idle_ms < 0 else _before(keys, record.pending.idle_ms),
        "deliveries": record.pending.deliveries,
        "preview": "" if fields is None else _json(fields)[:PREVIEW],
    }


def pending_entry(fake: KVServer, id: str, page_query: PageQuery) -> View:
    """Return a pending entry with its fields, None if the stream no longer has the entry."""
    with core_of(fake).engine.lock:
        every = _keys(fake)
        for record in _received(every):
            row = _pending_row(every, record)
            if row["id"] == id:
                fields = every.stream_entry(record.key, record.pending.entry_id)
                return row | {"fields": None if fields is None else plain(fields)}
    raise NotFound(
        f"there is no pending entry {id!r:.200}: it was acknowledged, or never delivered"
    )


def indexes(fake: KVServer, page_query: PageQuery) -> View:
    """Return the search indexes with schema, number of documents and number of unindexed changes."""
    with core_of(fake).engine.lock:
        every = _keys(fake)
        names = [name for name in every.names if isinstance(every.value(name), SearchIndex)]
    return page_of_names(map(_text, names), page_query, lambda name: _index(fake, name))


def _index(fake: KVServer, name: str) -> View:
    search_index = fake.search_index(name)
    return {
        "id": quote_from_bytes(name.encode("utf-8", "surrogateescape"), safe=""),
        "name": name,
        "fields": [
            {"field": field, "type": words[0], "options": words[1:]}
            for field, words in search_index.schema.items()
        ],
        "documents": len(search_index.documents),
        "pending": len(search_index.pending),
    }


def channels(fake: KVServer, page_query: PageQuery) -> View:
    """Return a page of the channels, patterns and shard channels that clients subscribe to."""
    engine = core_of(fake).engine
    with engine.lock:
        subscriptions = engine.pubsub.subscriptions() if isinstance(engine, KVEngine) else []
    return page_of(
        subscriptions,
        page_query,
        sort_key=lambda subscription: (natural(_text(subscription[1])), subscription[0]),
        show=lambda subscription: {
            "id": f"{subscription[0]} {_text(subscription[1])}",
            "kind": subscription[0],
            "name": _text(subscription[1]),
            "subscribers": [
                {"id": session.id, "address": session.address, "name": _text(session.name)}
                for session in subscription[2]
            ],
        },
        text=lambda subscription: _text(subscription[1]),
        facet=("kind", lambda subscription: subscription[0]),
    )


def counts(fake: KVServer) -> dict[str, int]:
    engine = core_of(fake).engine
    with engine.lock:
        every = _keys(fake)
        names = list(every.names)
        indexes = sum(isinstance(every.value(name), SearchIndex) for name in names)
        pending = len(_received(every))
    channels = len(engine.pubsub.subscriptions()) if isinstance(engine, KVEngine) else 0
    return {"keys": len(names), "indexes": indexes, "pending": pending, "channels": channels}


LISTS = {
    "keys": Listing(keys, key, ("type", "view", "under")),
    "pending": Listing(pending_entries, pending_entry, ("key", "group", "consumer")),
    "indexes": Listing(indexes),
    "channels": Listing(channels, filters=("kind",)),
    "commands": Listing(commands),
}
