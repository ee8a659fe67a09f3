"""Commands that no real server reports, and error texts that the service must produce.

The commands are a second source that checks `kv/table/rows.py`: copy them from the vendor's
documentation, not from there. `test_self_description.py` compares the other commands with real
servers. A command is ``(name, arity, option words, "r", "w" or "")``; an arity of None means that
the row only adds words. The error texts in `errors.txt` were observed on Redis 7.0.15 and Valkey
9.1; ``<x>`` matches anything.
"""

from __future__ import annotations

from pathlib import Path

COMMANDS: dict[str, list[tuple[str, int | None, str, str]]] = {
    "json": [
        ("JSON.SET", -4, "NX XX", ""), ("JSON.GET", -2, "INDENT NEWLINE SPACE", ""),
        ("JSON.MGET", -3, "", ""), ("JSON.MSET", -4, "", ""), ("JSON.MERGE", 4, "", ""),
        ("JSON.DEL", -2, "", ""), ("JSON.FORGET", -2, "", ""), ("JSON.TYPE", -2, "", ""),
        ("JSON.NUMINCRBY", 4, "", ""), ("JSON.NUMMULTBY", 4, "", ""), ("JSON.STRLEN", -2, "", ""),
        ("JSON.ARRAPPEND", -4, "", ""), ("JSON.ARRINDEX", -4, "", ""),
        ("JSON.ARRINSERT", -5, "", ""), ("JSON.ARRLEN", -2, "", ""), ("JSON.ARRPOP", -2, "", ""),
        ("JSON.ARRTRIM", 5, "", ""), ("JSON.OBJKEYS", -2, "", ""), ("JSON.OBJLEN", -2, "", ""),
        ("JSON.TOGGLE", 3, "", ""), ("JSON.CLEAR", -2, "", ""), ("JSON.RESP", -2, "", ""),
        ("JSON.STRAPPEND", -3, "", ""), ("JSON.DEBUG MEMORY", None, "", ""),
        ("JSON.DEBUG HELP", None, "", ""),
    ],
    "search": [
        ("SEARCH.AGGREGATE", 4, "", "r"),
        ("SEARCH.ALIASADD", 3, "", "w"),
        ("SEARCH.ALIASDEL", 2, "", "w"),
        ("SEARCH.COUNT", 3, "", "r"),
        ("SEARCH.CREATE", -10,
         "ON JSON HASH STRING PREFIX LANGUAGE SKIPINITIALSCAN EXISTSOK SCHEMA TEXT U64 I64 F64 BOOL "
         "DATE KEYWORD FACET FAST NOSTEM NOTOKENIZE FROM", "w"),
        ("SEARCH.DESCRIBE", 2, "", "r"),
        ("SEARCH.DROP", 2, "", "w"),
        ("SEARCH.LISTALIASES", 1, "", "r"),
        ("SEARCH.LISTINDEXES", -1, "MATCH LIMIT OFFSET", "r"),
        ("SEARCH.QUERY", -3,
         "LIMIT OFFSET ORDERBY ASC DESC SELECT NOCONTENT HIGHLIGHT FIELDS TAGS SCOREFUNC FIELDVALUE "
         "MODIFIER FACTOR MISSING SCOREMODE COMBINEMODE", "r"),
        ("SEARCH.REINDEX", 2, "", "w"),
        ("SEARCH.WAITINDEXING", 2, "", "r"),
    ],
    "vendor or 8.x": [
        ("ACL RESTTOKEN", 4, "", ""),
        ("ACL GENTOKEN", -3, "", ""),
        ("XACKDEL", -6, "KEEPREF DELREF ACKED IDS", ""),
        ("XDELEX", -5, "KEEPREF DELREF ACKED IDS", ""),
        ("XADD", None, "KEEPREF DELREF ACKED", "w"),
        ("XTRIM", None, "KEEPREF DELREF ACKED", "w"),
        ("DELEX", -2, "IFEQ IFNE IFDEQ IFDNE", ""),
        ("DIGEST", 2, "", ""),
        ("SET", None, "IFEQ IFNE IFDEQ IFDNE", "w"),
        ("BITOP", None, "DIFF DIFF1 ANDOR ONE", "w"),
        ("SCAN", None, "WITHTYPE", "r"),
    ],
}  # fmt: skip

ERRORS = Path(__file__).with_name("errors.txt").read_text("utf-8").splitlines()
