"""Commands that create, describe, remove and list search indexes and their aliases."""

from __future__ import annotations

from ...algorithms.glob import matcher
from ...engine.session import Session
from ...errors import WRONGTYPE, CommandError
from ...reply import Map, Reply
from ...search.index import SearchIndex
from ...search.schema import FIELD_TYPES, KEY_TYPES, Definition, FieldSpec, SearchError
from ...table.registry import Args, command
from ...table.syntax import decoded, encoded
from .reading import Words, as_command_errors, find_index, indexes_of


@command("SEARCH.CREATE")
def search_create(session: Session, args: Args) -> Reply:
    """Create an index of the keys with the given prefixes, including existing keys.

    Returns 1 or, with EXISTSOK, 0 if an index with the same definition exists.
    """
    with as_command_errors():
        definition, flags = _read_definition(Words(args, 1))
        keyspace, indexes = session.db, indexes_of(session)
        name = args[0]
        present = keyspace.find(name)
        if present is not None:
            if not isinstance(present, SearchIndex):
                raise CommandError(WRONGTYPE)
            if "EXISTSOK" not in flags:
                raise SearchError(f"Index {decoded(name)} already exists")
            if present.definition != definition:
                raise SearchError(f"Index {decoded(name)} already exists with another definition")
            return 0
        most = session.engine.settings.max_search_indexes
        if most is not None and len(indexes.named) >= most:
            raise SearchError(f"Exceeded max index count of {most}")
        index = SearchIndex(definition)
        keyspace.set(name, index, event="")
        if "SKIPINITIALSCAN" not in flags:
            index.scan(keyspace, *indexes.delay_from(keyspace.now_ms))
        return 1


def _read_definition(words: Words) -> tuple[Definition, set[str]]:
    kind, language = "", "english"
    prefixes: list[str] = []
    flags: set[str] = set()
    while True:
        word = words.take_upper("SCHEMA")
        if word == "SCHEMA":
            break
        if word == "ON":
            kind = words.one_of("index type", tuple(KEY_TYPES))
        elif word == "PREFIX":
            prefixes = words.counted("prefixes")
        elif word == "LANGUAGE":
            language = words.take("the language").lower()
        elif word in ("SKIPINITIALSCAN", "EXISTSOK"):
            flags.add(word)
        else:
            raise SearchError(f"syntax error: unexpected '{word}'")
    if not kind:
        raise SearchError("syntax error: ON is missing")
    if not prefixes:
        raise SearchError("syntax error: PREFIX is missing or has no prefixes")
    fields = []
    while words:
        fields.append(_read_field(words))
    if not fields:
        raise SearchError("syntax error: SCHEMA has no fields")
    return Definition(kind, tuple(sorted(prefixes)), tuple(fields), language), flags


def _read_field(words: Words) -> FieldSpec:
    name = words.take("a field")
    kind = words.one_of(f"type of field '{name}'", FIELD_TYPES)
    options: set[str] = set()
    source: str | None = None
    while words.peek() in ("FAST", "NOSTEM", "NOTOKENIZE", "FROM", "AS"):
        word = words.take_upper("an option")
        if word in ("FROM", "AS"):
            # upstash-redis 1.8.0 sends AS instead of FROM.
            source = words.take(f"the source of field '{name}'")
        else:
            options.add(word)
    flags = ("FAST" in options, "NOSTEM" in options, "NOTOKENIZE" in options)
    return FieldSpec(name, kind, *flags, source)


@command("SEARCH.DROP")
def search_drop(session: Session, args: Args) -> Reply:
    """Remove an index; its keys and aliases remain.

    The name must not be an alias. Returns 0 if the index does not exist.
    """
    indexes = indexes_of(session)
    return int(args[0] in indexes.named and session.db.delete(args[0], ""))


@command("SEARCH.REINDEX")
def search_reindex(session: Session, args: Args) -> Reply:
    """Rebuild an index from its keys.

    Returns 0 if the index does not exist.
    """
    index = find_index(session, args[0])
    if index is None:
        return 0
    index.clear()
    index.scan(session.db, *indexes_of(session).delay_from(session.db.now_ms))
    return 1


@command("SEARCH.DESCRIBE")
def search_describe(session: Session, args: Args) -> Reply:
    """Return the name, type, prefixes and schema of an index.

    Returns nil if the index does not exist. The name in the reply is that of the index, even if the
    command names an alias.
    """
    found = indexes_of(session).find(args[0])
    if found is None:
        return None
    name, index = found
    index.refresh(session.db, is_read=False)
    definition = index.definition
    fields = [[encoded(word) for word in each.words()] for each in definition.fields]
    return Map([
        b"name", name, b"type", definition.kind.encode(),
        b"prefixes", [encoded(prefix) for prefix in definition.prefixes],
        b"language", definition.language.encode(),
        b"indexSize", index.size, b"pendingUpdates", len(index.waiting),
        b"schema", fields,
    ])  # fmt: skip


@command("SEARCH.WAITINDEXING")
def search_waitindexing(session: Session, args: Args) -> Reply:
    """Make all pending changes searchable.

    Returns 0 if the index does not exist.
    """
    index = find_index(session, args[0])
    if index is None:
        return 0
    index.release_all()
    index.refresh(session.db, is_read=False)
    return 1


@command("SEARCH.LISTINDEXES")
def search_listindexes(session: Session, args: Args) -> Reply:
    """Return the names and types of the indexes, sorted by name.

    LIMIT 0 returns all indexes.
    """
    with as_command_errors():
        pattern, limit, offset = b"*", 0, 0
        words = Words(args, 0)
        while words:
            word = words.one_of("option", ("MATCH", "LIMIT", "OFFSET"))
            if word == "MATCH":
                pattern = encoded(words.take("the pattern"))
            elif word == "LIMIT":
                limit = words.number("LIMIT")
            else:
                offset = words.number("OFFSET")
    matches = matcher(pattern)
    named = indexes_of(session).named
    names = [name for name in sorted(named) if matches(name)][offset:]
    return [
        Map([b"name", name, b"type", named[name].definition.kind.encode()])
        for name in (names[:limit] if limit else names)
    ]


@command("SEARCH.ALIASADD")
def search_aliasadd(session: Session, args: Args) -> Reply:
    """Create an alias for an index, or make an existing alias refer to another index.

    The index need not exist. Returns 1 for a new alias and 2 for an existing one.
    """
    aliases = indexes_of(session).aliases
    is_new = args[0] not in aliases
    aliases[args[0]] = args[1]
    return 1 if is_new else 2


@command("SEARCH.ALIASDEL")
def search_aliasdel(session: Session, args: Args) -> Reply:
    """Remove an alias and return whether it existed."""
    return int(indexes_of(session).aliases.pop(args[0], None) is not None)


@command("SEARCH.LISTALIASES")
def search_listaliases(session: Session, args: Args) -> Reply:
    """Return all aliases with the names of the indexes to which they refer."""
    return [[alias, name] for alias, name in indexes_of(session).aliases.items()]
