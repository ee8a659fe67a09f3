"""Keys and search indexes of a key-value server. Reading them does not count as access to a key."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple, cast
from urllib.parse import quote_from_bytes

from ...core.errors import counted
from ...core.timers import to_datetime
from ...reporting.data import (
    MOST_IN_VIEW,
    Item,
    Listing,
    NotFound,
    PageQuery,
    State,
    View,
    cut,
    page_of,
    page_of_names,
    plain,
    shown_time,
)
from ..acl import AclUser, describe_user, first_user, read_only_user
from ..algorithms.glob import matcher
from ..engine.engine import KVEngine
from ..engine.keyspace import Keyspace
from ..fake import KVServer
from ..reply import Converted, encode, python_value, word
from ..search.index import SearchIndex
from ..values.array import ArrayValue
from ..values.containers import HashValue
from ..values.measures import usage
from ..values.stream import StreamValue, format_id
from ..values.types import type_name

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

    def size(self, key: bytes, value: Any) -> int:
        return usage(key, value)


class _OnServer:
    """The keys of a real server, which does not report the memory that a key uses."""

    def __init__(self, keyspace: Any, fake: KVServer) -> None:
        self.names: Iterable[bytes] = keyspace
        self.now_ms = fake._time.now_us() // 1000
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


def _keys(fake: KVServer) -> _InMemory | _OnServer:
    """Return the keys of a fake. The caller holds the lock of its engine."""
    keyspace = fake._engine.current()
    return _InMemory(keyspace) if isinstance(keyspace, Keyspace) else _OnServer(keyspace, fake)


def _existing(keys: _InMemory | _OnServer, names: Iterable[bytes]) -> list[_Key]:
    values = ((name, keys.value(name)) for name in names)
    return [
        _Key(name, value, keys.deadline_ms(name)) for name, value in values if value is not None
    ]


def state(fake: KVServer) -> State:
    """Return the keys of each database and the other data that commands change, by name."""
    engine = fake._engine
    with fake._engine.lock:
        every = _keys(fake)
        sections: State = {"keys": _stored(every)}
        if isinstance(engine, KVEngine):
            for number, keyspace in enumerate(engine.databases[1:], 1):
                sections[f"keys of database {number}"] = _stored(_InMemory(keyspace))
            sections |= _beside_keys(engine)
    return {section: items for section, items in sections.items() if items or section == "keys"}


def _stored(keys: _InMemory | _OnServer) -> dict[str, Item]:
    return {
        str(word(entry.name)): {
            "type": entry.type,
            "value": plain(python_value(entry.value), "backslashreplace"),
            "expires": entry.deadline_ms and shown_time(entry.deadline_ms * 1000),
            **_beside_value(entry.value),
        }
        for entry in _existing(keys, keys.names)
    }


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
    """Return scripts, libraries, aliases, and changed users and parameters, without secrets."""
    users, rest_tokens = engine.users.snapshot()
    tokens = Counter(token.user for token in rest_tokens.values())
    first = [make_user(engine.dialect, engine.table) for make_user in (first_user, read_only_user)]
    return {
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


def _rules(user: AclUser) -> str:
    words = _text(describe_user(user)).split()
    return " ".join(rule for rule in words if rule[0] != "#" and rule != "nopass")


def content(fake: KVServer) -> View:
    """Return the keys with their values, and the memory they use unless a real server has them."""
    engine = fake._engine
    with fake._engine.lock:
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


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def keys(fake: KVServer, page_query: PageQuery) -> View:
    """Return a page of keys in alphabetical order, with type, TTL, size and the start of the value.

    A search looks through the keys and their values. A search that contains ``*``, ``?`` or ``[`` is
    a glob pattern for the keys, as in SCAN. With ``view=tree``,
    the page lists only the keys directly in the namespace ``under`` (default: the root), and
    ``folders`` lists the namespaces one level below it (separated by ``:``) with their keys and memory.
    """
    with fake._engine.lock:
        every = _keys(fake)
        matching = _existing(every, every.names)
        total, search = len(matching), page_query.search
        if _GLOB & set(search):
            matches = matcher(search.encode("utf-8", "surrogatepass"))
            matching = [entry for entry in matching if matches(entry.name)]
            page_query = page_query._replace(search="")
        folders: list[View] | None = None
        if page_query.filters.get("view") == "tree":
            matching, folders = _in_namespace(every, matching, page_query.filters.get("under", ""))
        page = page_of(
            matching,
            page_query,
            sort_key=lambda entry: (entry.name.decode("latin-1"),),
            show=lambda entry: _row(every, entry),
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
        for name, inside in sorted(folders.items())[:MOST_FOLDERS]
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


def _length(value: Any) -> int:
    """Return the number of bytes, elements or indexed documents of a value, 1 for a document."""
    if isinstance(value, SearchIndex):
        return len(value.documents)
    if not isinstance(value, Converted):
        return len(value)
    return len(cast("Sized", value.python)) if value.type_name in _ELEMENTS else 1


def _preview(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        shown = _text(bytes(value[: 4 * PREVIEW]))
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
    with fake._engine.lock:
        every = _keys(fake)
        existing = _existing(every, [name])
        if not existing:
            raise NotFound(f"there is no key {_text(name)!r:.200}: it was deleted, or it expired")
        return _row(every, existing[0]) | _content(existing[0].value, page_query)


def _content(value: Any, page_query: PageQuery) -> View:
    if isinstance(value, bytes | bytearray):
        shown = cut("value", _text(bytes(value)), LONGEST_TEXT)
        return shown | {"is_editable": isinstance(word(value), str)}
    content: Any = python_value(value)
    if value.type_name not in _ELEMENTS:
        text = json.dumps(plain(content), indent=2, ensure_ascii=False)
        return cut("value", text, LONGEST_TEXT)
    columns, rows = _ELEMENTS[value.type_name]
    page = page_of(
        enumerate(rows(content)),
        page_query,
        sort_key=lambda numbered_row: (numbered_row[0],),
        show=lambda numbered_row: dict(zip(columns, numbered_row[1], strict=True)),
        text=lambda numbered_row: " ".join(map(str, numbered_row[1])),
    )
    return {"columns": list(columns), "elements": page}


_ELEMENTS: dict[str, tuple[tuple[str, ...], Callable[[Any], Sequence[Sequence[Any]]]]] = {
    # Indexes are strings, because JavaScript has no integers of more than 53 bits.
    "array": (
        ("index", "value"),
        lambda value: [(str(at), plain(item)) for at, item in value.items()],
    ),
    "hash": (("field", "value"), lambda value: [plain(pair) for pair in value.items()]),
    "list": (("index", "value"), lambda value: list(enumerate(map(plain, value)))),
    "set": (("member",), lambda value: sorted((plain(member),) for member in value)),
    "zset": (
        ("member", "score"),
        lambda value: [(plain(member), str(score)) for member, score in value],
    ),
    "stream": (
        ("id", "fields"),
        lambda value: [(plain(entry_id), _json(row)) for entry_id, row in value],
    ),
    "vector": (
        ("id", "vector"),
        lambda value: [(id, _json(vector)) for id, vector in value["vectors"].items()],
    ),
}
"""Each type's columns, and a function that returns the rows of a value in its Python form."""


def indexes(fake: KVServer, page_query: PageQuery) -> View:
    """Return the search indexes with schema, number of documents and number of unindexed changes."""
    with fake._engine.lock:
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


def counts(fake: KVServer) -> dict[str, int]:
    with fake._engine.lock:
        every = _keys(fake)
        names = list(every.names)
        indexes = sum(isinstance(every.value(name), SearchIndex) for name in names)
    return {"keys": len(names), "indexes": indexes}


LISTS = {"keys": Listing(keys, key, ("type", "view", "under")), "indexes": Listing(indexes)}
