"""Search commands, which manage indexes and aliases and search the indexes."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any

from ..algorithms.glob import matcher
from ..engine.sessions import Session
from ..errors import WRONGTYPE, CommandError
from ..reply import Map, Reply
from ..search.aggregations import parse_aggregations
from ..search.filters import parse_object
from ..search.index import Indexes, Search, SearchIndex
from ..search.metrics import format_number
from ..search.queries import MODIFIERS, FieldValue, Hit, ScoreFunction, SearchQuery, run_query
from ..search.retrievers import parse_query
from ..search.schema import FIELD_TYPES, KEY_TYPES, Definition, FieldSpec, SearchError
from ..syntax import decoded, encoded, parse_float, try_int
from ..table.registry import Args, command


@command("SEARCH.CREATE")
def search_create(session: Session, args: Args) -> Reply:
    """Create an index of the keys with the given prefixes, or of the entries of a stream.

    Existing keys and entries are indexed unless SKIPINITIALSCAN is given.

    Returns 1 or, with EXISTSOK, 0 if an index with the same definition exists.
    """
    definition, clauses = _read_definition(Words(args[1:]))
    keyspace, indexes = session.db, indexes_of(session)
    name = args[0]
    present = keyspace.find(name)
    if present is not None:
        if not isinstance(present, SearchIndex):
            raise CommandError(WRONGTYPE)
        if "EXISTSOK" not in clauses:
            raise SearchError(f"Index {decoded(name)} already exists")
        if present.definition != definition:
            raise SearchError(f"Index {decoded(name)} already exists with another definition")
        return 0
    most = session.engine.settings.max_search_indexes
    if most is not None and len(indexes.named) >= most:
        raise SearchError(f"Exceeded max index count of {most}")
    if definition.stream is not None and indexes.has_stream(definition.stream):
        raise SearchError(f"Stream {definition.prefixes[0]} already has an index: drop it first")
    index = SearchIndex(definition)
    keyspace.set(name, index, event="", is_change=False)
    if "SKIPINITIALSCAN" in clauses:
        index.follow(keyspace)
    else:
        index.scan(keyspace, *indexes.delay_from(keyspace.now_ms))
    return 1


def _read_definition(words: Words) -> tuple[Definition, set[str]]:
    kind, stream, language = "", "", "english"
    prefixes: list[str] = []
    clauses: set[str] = set()
    while (word := words.take("SCHEMA").upper()) != "SCHEMA":
        if word in clauses:
            raise SearchError(f"syntax error: {word} is given twice")
        clauses.add(word)
        if word == "ON":
            kind = words.one_of("index type", tuple(KEY_TYPES))
            if kind == "STREAM":
                stream = words.take("the key of the stream")
        elif word == "PREFIX":
            prefixes = words.counted("prefixes")
        elif word == "LANGUAGE":
            language = words.take("the language").lower()
        elif word not in ("SKIPINITIALSCAN", "EXISTSOK"):
            raise SearchError(f"syntax error: unexpected '{word}'")
    if not kind:
        raise SearchError("syntax error: ON is missing")
    if kind == "STREAM":
        if "PREFIX" in clauses:
            raise SearchError("syntax error: ON STREAM takes the key of a stream instead of PREFIX")
        prefixes = [stream]
    elif not prefixes:
        raise SearchError("syntax error: PREFIX is missing or has no prefixes")
    fields = []
    while words:
        fields.append(_read_field(words))
    if not fields:
        raise SearchError("syntax error: SCHEMA has no fields")
    return Definition(kind, tuple(sorted(prefixes)), tuple(fields), language), clauses


def _read_field(words: Words) -> FieldSpec:
    name = words.take("a field")
    kind = words.one_of(f"type of field '{name}'", FIELD_TYPES)
    options: set[str] = set()
    source: str | None = None
    while words.peek() in ("FAST", "NOSTEM", "NOTOKENIZE", "FROM", "AS"):
        word = words.take("an option").upper()
        if word in ("FROM", "AS"):
            # upstash-redis 1.8.0 sends AS instead of FROM.
            source = words.take(f"the source of field '{name}'")
        else:
            options.add(word)
    return FieldSpec(name, kind, frozenset(options), source)


@command("SEARCH.DROP")
def search_drop(session: Session, args: Args) -> Reply:
    """Remove an index; its keys and aliases remain."""
    indexes = indexes_of(session)
    return int(args[0] in indexes.named and session.db.delete(args[0], ""))


@command("SEARCH.REINDEX")
def search_reindex(session: Session, args: Args) -> Reply:
    """Rebuild an index from its keys."""
    index = indexes_of(session).find(args[0])
    if index is None:
        return 0
    index.clear()
    index.scan(session.db, *indexes_of(session).delay_from(session.db.now_ms))
    return 1


@command("SEARCH.DESCRIBE")
def search_describe(session: Session, args: Args) -> Reply:
    """Return the name, type, prefixes and schema of an index.

    The name in the reply is that of the index, even if the command names an alias.
    """
    indexes = indexes_of(session)
    index = indexes.find(args[0])
    if index is None:
        return None
    index.refresh(session.db, is_read=False)
    definition = index.definition
    fields = [list(map(encoded, spec.words())) for spec in definition.fields]
    return Map([
        b"name", indexes.name_of(args[0]), b"type", definition.kind.encode(),
        b"prefixes", list(map(encoded, definition.prefixes)),
        b"language", definition.language.encode(),
        b"indexSize", index.size, b"pendingUpdates", len(index.waiting),
        b"schema", fields,
    ])  # fmt: skip


@command("SEARCH.WAITINDEXING")
def search_waitindexing(session: Session, args: Args) -> Reply:
    """Make all pending changes searchable."""
    index = indexes_of(session).find(args[0])
    if index is None:
        return 0
    index.release_all()
    index.refresh(session.db, is_read=False)
    return 1


@command("SEARCH.LISTINDEXES")
def search_listindexes(session: Session, args: Args) -> Reply:
    """Return the names and types of the indexes, sorted by name."""
    pattern, numbers = b"*", {"LIMIT": 0, "OFFSET": 0}
    words = Words(args)
    while words:
        word = words.one_of("option", ("MATCH", *numbers))
        if word == "MATCH":
            pattern = encoded(words.take("the pattern"))
        else:
            numbers[word] = words.number(word)
    matches = matcher(pattern)
    named = indexes_of(session).named
    names = [name for name in sorted(named) if matches(name)][numbers["OFFSET"] :]
    return [
        Map([b"name", name, b"type", named[name].definition.kind.encode()])
        for name in names[: numbers["LIMIT"] or None]
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


# -- searches ------------------------------------------------------------------------------------

_MOST_HITS, _FARTHEST = 1000, 10_000


@command("SEARCH.QUERY")
def search_query(session: Session, args: Args) -> Reply:
    """Return the key, score and content of each document that matches a filter."""
    index = _find(session, args[0])
    options = _read_query(Words(args[2:]))
    if (session.in_exec or session.in_script) and not options.no_content:
        raise SearchError("SEARCH.QUERY needs NOCONTENT in a transaction or a script")
    if index is None:
        return None
    clause = parse_query(index.definition, args[1], options.limit, options.offset)
    hits, total = run_query(session.db, index, clause, options)
    _remember(session, "query", args, index, [decoded(hit.key) for hit in hits], total)
    return [_shown(hit) for hit in hits]


@command("SEARCH.COUNT")
def search_count(session: Session, args: Args) -> Reply:
    """Return the number of documents that match a filter, or -1 if the index does not exist."""
    index = _find(session, args[0])
    if index is None:
        return -1
    total = len(parse_query(index.definition, args[1], allows_ann=False).find(index))
    _remember(session, "count", args, index, [], total)
    return total


@command("SEARCH.AGGREGATE")
def search_aggregate(session: Session, args: Args) -> Reply:
    """Return aggregations of the matching documents by alias, or nil if the index does not exist."""
    index = _find(session, args[0])
    if index is None:
        return None
    clause = parse_query(index.definition, args[1], allows_ann=False)
    aggregations = parse_aggregations(index, parse_object(args[2], "aggregations"))
    numbers = sorted(clause.find(index))
    reply = Map()
    for alias, compute in aggregations.items():
        reply += [alias.encode(), Map(compute(numbers))]
    _remember(session, "aggregate", args, index, [], len(numbers))
    return reply


def _find(session: Session, name: bytes) -> SearchIndex | None:
    index = indexes_of(session).find(name)
    if index is not None:
        index.refresh(session.db)
    return index


def _remember(
    session: Session, command: str, args: Args, index: SearchIndex, keys: list[str], total: int
) -> None:
    """Record a search of the code under test for reports; searches by the test do not count."""
    if session.interface != "local":
        filter = parse_object(args[1], "filter")
        pending = len(index.waiting)
        search = Search(command, decoded(args[0]), filter, keys, total, pending)
        session.engine.searches.append(search)


def _shown(hit: Hit) -> Reply:
    score = shortest_float32(hit.score) if hit.rounds_score else format_number(hit.score)
    if hit.content is None:
        return [hit.key, score]
    return [hit.key, score, [[path, value] for path, value in hit.content]]


def shortest_float32(score: float) -> bytes | None:
    """Format a relevance, like the vendor, as the shortest string for the same 32-bit float."""
    try:
        packed = struct.pack("<f", score)
    except OverflowError:
        return format_number(score)
    rounded = struct.unpack("<f", packed)[0]
    # Nine digits are enough for every 32-bit float.
    candidates = (float(f"{rounded:.{digits}g}") for digits in range(1, 10))
    return format_number(
        next(number for number in candidates if struct.pack("<f", number) == packed)
    )


def _read_query(words: Words) -> SearchQuery:
    options: dict[str, Any] = {}
    while words:
        word = words.take("an option").upper()
        if word == "LIMIT":
            limit = try_int(encoded(words.take("LIMIT"))) if words else None
            if limit is None or not 1 <= limit <= _MOST_HITS:
                # The vendor's message says "less than", although 1000 is accepted.
                raise SearchError(f"limit should be a positive number less than {_MOST_HITS}")
            options["limit"] = limit
        elif word == "OFFSET":
            options["offset"] = words.number("OFFSET")
            if options["offset"] > _FARTHEST:
                raise SearchError(f"offset should be a number of at most {_FARTHEST}")
        elif word == "ORDERBY":
            field, direction = words.take("the field of ORDERBY"), words.peek()
            if direction in ("ASC", "DESC"):
                words.take("the direction")
            options["order"] = (field, direction == "ASC")
        elif word == "SELECT":
            options["select"] = tuple(words.counted("fields of SELECT"))
        elif word == "NOCONTENT":
            options["no_content"] = True
        elif word == "HIGHLIGHT":
            words.one_of("word after HIGHLIGHT", ("FIELDS",))
            options["highlight"] = tuple(words.counted("fields of HIGHLIGHT"))
            if words.peek() == "TAGS":
                words.take("TAGS")
                options["tags"] = words.text("the opening tag"), words.text("the closing tag")
        elif word == "SCOREFUNC":
            options["function"] = _score_function(words)
        else:
            raise SearchError(f"syntax error: unexpected '{word}'")
    if "no_content" in options and options.keys() & {"select", "highlight"}:
        other = "SELECT" if "select" in options else "HIGHLIGHT"
        raise SearchError(f"syntax error: NOCONTENT and {other} cannot be combined")
    if options.keys() >= {"order", "function"}:
        raise SearchError("syntax error: ORDERBY and SCOREFUNC cannot be combined")
    return SearchQuery(**options)


def _score_function(words: Words) -> ScoreFunction:
    modes = {"SCOREMODE": "SUM", "COMBINEMODE": "SUM"}
    values = []
    while words.peek() in ("FIELDVALUE", *modes):
        word = words.take("FIELDVALUE").upper()
        if word == "SCOREMODE":
            modes[word] = words.one_of(word, ("SUM", "MULTIPLY", "REPLACE"))
        elif word == "COMBINEMODE":
            modes[word] = words.one_of(word, ("SUM", "MULTIPLY"))
        else:
            values.append(_field_value(words))
    if not values:
        raise SearchError("syntax error: SCOREFUNC requires FIELDVALUE")
    return ScoreFunction(tuple(values), modes["SCOREMODE"], modes["COMBINEMODE"])


def _field_value(words: Words) -> FieldValue:
    field = words.take("the field of FIELDVALUE")
    modifier, numbers = "NONE", {"FACTOR": 1.0, "MISSING": 0.0}
    while words.peek() in ("MODIFIER", *numbers):
        word = words.take("an option").upper()
        if word == "MODIFIER":
            modifier = words.one_of(word, tuple(MODIFIERS))
        else:
            numbers[word] = parse_float(encoded(words.take(word)))
    return FieldValue(field, modifier, numbers["FACTOR"], numbers["MISSING"])


# -- shared by the commands ----------------------------------------------------------------------


def indexes_of(session: Session) -> Indexes:
    """Return the search indexes of the database; from the first call on, they follow all changes."""
    keyspace, settings = session.db, session.engine.settings
    if isinstance(keyspace.indexes, Indexes):
        return keyspace.indexes
    keyspace.indexes = indexes = Indexes(
        settings.search_ready_after_ms, settings.search_ready_after_reads
    )
    # The database may already contain indexes that were moved here from another database.
    indexes.adopt(keyspace.values)
    session.engine.record_changes()
    return indexes


class Words(deque[bytes]):
    """Reads a command's arguments from left to right.

    The methods other than `peek()` consume what they return. ``what`` names it in error messages.
    """

    def peek(self) -> str:
        """Return the next argument in upper case without consuming it; an empty string at the end."""
        return decoded(self[0]).upper() if self else ""

    def take(self, what: str) -> str:
        if not self:
            raise SearchError(f"syntax error: {what} is missing")
        return decoded(self.popleft())

    def text(self, what: str) -> str:
        """Return the next argument, which becomes part of a JSON document, so it must be UTF-8."""
        word = self.take(what)
        try:
            word.encode()
        except UnicodeEncodeError:
            raise SearchError(f"{what} is not valid UTF-8") from None
        return word

    def one_of(self, what: str, choices: tuple[str, ...]) -> str:
        """Return the next argument in upper case; raise an error unless it is in ``known``."""
        word = self.take(what).upper()
        if word not in choices:
            raise SearchError(
                f"syntax error: unknown {what} '{word}', expected one of {', '.join(choices)}"
            )
        return word

    def number(self, what: str) -> int:
        """Return the next argument, which must be a non-negative integer."""
        word = self.take(what)
        value = try_int(encoded(word))
        if value is None or value < 0:
            raise SearchError(f"syntax error: {what} takes a non-negative integer; got '{word}'")
        return value

    def counted(self, what: str) -> list[str]:
        """Read a count, and return that many further arguments."""
        count = self.number(f"the count of {what}")
        if count > len(self):
            raise SearchError(f"syntax error: expected {count} {what}, but fewer words follow")
        return [self.take(what) for _ in range(count)]
