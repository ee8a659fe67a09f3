"""Commands that search an index: SEARCH.QUERY, SEARCH.COUNT and SEARCH.AGGREGATE."""

from __future__ import annotations

import struct
from typing import Any

from ...engine.session import Session
from ...reply import Map, Reply
from ...search.aggregation import parse_aggregations
from ...search.aggregation.request import format_number
from ...search.filters import parse_filter, parse_object
from ...search.index import Search, SearchIndex
from ...search.queries import MODIFIERS, FieldValue, Highlight, Hit, Query, ScoreFunction, run_query
from ...search.schema import SearchError
from ...table.registry import Args, command
from ...table.syntax import decoded, encoded, parse_float
from .reading import Words, as_command_errors, find_index

_MOST_HITS, _FARTHEST = 1000, 10_000
_LIMIT_ERROR = f"limit should be a positive number less than {_MOST_HITS}"
"""The vendor's error message, which says "less than" although 1000 is accepted."""


@command("SEARCH.QUERY")
def search_query(session: Session, args: Args) -> Reply:
    """Return the key, score and content of each document that matches a filter.

    Scores are returned as strings.
    """
    with as_command_errors():
        found = _find(session, args[0])
        options = _read_query(Words(args, 2))
        if (session.in_exec or session.in_script) and not options.no_content:
            raise SearchError("SEARCH.QUERY needs NOCONTENT in a transaction or a script")
        if found is None:
            return None
        clause = parse_filter(found.definition, args[1])
        hits, total = run_query(session.db, found, clause, options)
        _remember(session, "query", args, found, [decoded(hit.key) for hit in hits], total)
        return [_shown(hit) for hit in hits]


@command("SEARCH.COUNT")
def search_count(session: Session, args: Args) -> Reply:
    """Return the number of documents that match a filter, or -1 if the index does not exist."""
    with as_command_errors():
        found = _find(session, args[0])
        if found is None:
            return -1
        total = len(parse_filter(found.definition, args[1]).find(found))
        _remember(session, "count", args, found, [], total)
        return total


@command("SEARCH.AGGREGATE")
def search_aggregate(session: Session, args: Args) -> Reply:
    """Return aggregations of the matching documents by alias, or nil if the index does not exist."""
    with as_command_errors():
        found = _find(session, args[0])
        if found is None:
            return None
        clause = parse_filter(found.definition, args[1])
        wanted = parse_aggregations(found, parse_object(args[2], "aggregations"))
        numbers = sorted(clause.find(found))
        reply = Map()
        for each in wanted:
            reply += [each.alias.encode(), Map(each.compute(numbers))]
        _remember(session, "aggregate", args, found, [], len(numbers))
        return reply


def _find(session: Session, name: bytes) -> SearchIndex | None:
    index = find_index(session, name)
    if index is not None:
        index.refresh(session.db)
    return index


def _remember(
    session: Session, command: str, args: Args, index: SearchIndex, keys: list[str], total: int
) -> None:
    """Record a search of the code under test for reports; searches by the test do not count."""
    if session.transport != "local":
        asked = parse_object(args[1], "filter")
        pending = len(index.waiting)
        search = Search(command, decoded(args[0]), asked, keys, total, pending)
        session.engine.searches.append(search)


def _shown(hit: Hit) -> Reply:
    score = shortest_float32(hit.score) if hit.relevance else format_number(hit.score)
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
    return format_number(next(each for each in candidates if struct.pack("<f", each) == packed))


def _read_query(words: Words) -> Query:
    given: dict[str, Any] = {}
    while words:
        word = words.take_upper("an option")
        if word == "LIMIT":
            given["limit"] = _limit(words)
        elif word == "OFFSET":
            given["offset"] = words.number("OFFSET")
            if given["offset"] > _FARTHEST:
                raise SearchError(f"offset should be a number of at most {_FARTHEST}")
        elif word == "ORDERBY":
            given["order"] = _order(words)
        elif word == "SELECT":
            given["select"] = tuple(words.counted("fields of SELECT"))
        elif word == "NOCONTENT":
            given["no_content"] = True
        elif word == "HIGHLIGHT":
            given["highlight"] = _highlight(words)
        elif word == "SCOREFUNC":
            given["function"] = _score_function(words)
        else:
            raise SearchError(f"syntax error: unexpected '{word}'")
    if "no_content" in given and given.keys() & {"select", "highlight"}:
        other = "SELECT" if "select" in given else "HIGHLIGHT"
        raise SearchError(f"syntax error: NOCONTENT and {other} cannot be combined")
    if given.keys() >= {"order", "function"}:
        raise SearchError("syntax error: ORDERBY and SCOREFUNC cannot be combined")
    return Query(**given)


def _limit(words: Words) -> int:
    try:
        limit = words.number("LIMIT")
    except SearchError:
        raise SearchError(_LIMIT_ERROR) from None
    if not 1 <= limit <= _MOST_HITS:
        raise SearchError(_LIMIT_ERROR)
    return limit


def _order(words: Words) -> tuple[str, bool]:
    field = words.take("the field of ORDERBY")
    is_ascending = words.peek() == "ASC"
    if words.peek() in ("ASC", "DESC"):
        words.take("the direction")
    return field, is_ascending


def _highlight(words: Words) -> Highlight:
    words.one_of("word after HIGHLIGHT", ("FIELDS",))
    fields = tuple(words.counted("fields of HIGHLIGHT"))
    if words.peek() != "TAGS":
        return Highlight(fields)
    words.take("TAGS")
    return Highlight(fields, (words.take("the opening tag"), words.take("the closing tag")))


def _score_function(words: Words) -> ScoreFunction:
    modes = {"SCOREMODE": "SUM", "COMBINEMODE": "SUM"}
    values = []
    while words.peek() in ("FIELDVALUE", *modes):
        word = words.take_upper("FIELDVALUE")
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
    modifier, factor, missing = "NONE", 1.0, 0.0
    while words.peek() in ("MODIFIER", "FACTOR", "MISSING"):
        word = words.take_upper("an option")
        if word == "MODIFIER":
            modifier = words.one_of(word, tuple(MODIFIERS))
        elif word == "FACTOR":
            factor = _float(words, word)
        else:
            missing = _float(words, word)
    return FieldValue(field, modifier, factor, missing)


def _float(words: Words, what: str) -> float:
    return parse_float(encoded(words.take(what)))
