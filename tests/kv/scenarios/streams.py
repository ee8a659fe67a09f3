"""Streams: command lines, and the replies of Redis 7.0 or Valkey 9.1."""

from __future__ import annotations

from typing import Any

from pytest_fakecloud.kv.reply import NIL_ARRAY, OK

from . import (
    NEGATIVE_TIMEOUT,
    NO_SUCH_KEY,
    NOT_AN_INTEGER,
    SYNTAX_ERROR,
    WRONG_TYPE,
    Scenario,
    error,
    fields,
    status,
)

NOW_MS = 1767225600000
"""The time of the fake clock."""
INVALID_ID = error("ERR Invalid stream ID specified as stream command argument")
XGROUP_NEEDS_KEY = error(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may "
    "want to use the MKSTREAM option to create an empty stream automatically."
)
UNBALANCED_STREAMS = error(
    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
)
ID_TOO_SMALL = error(
    "ERR The ID specified in XADD is equal or smaller than the target stream top item"
)
UNKNOWN_XINFO_STREAM = error(
    "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP."
)
NO_SUCH_GROUP = error("NOGROUP No such consumer group 'none' for key name 's'")
STREAM_EXHAUSTED = error(
    "ERR The stream has exhausted the last possible ID, unable to add more items"
)
MAXLEN_AND_MINID = error(
    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
)
LIMIT_WITHOUT_TILDE = error("ERR syntax error, LIMIT cannot be used without the special ~ option")
LIMIT_WITHOUT_STRATEGY = error(
    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
)
INVALID_START = error("ERR invalid start ID for the interval")


def entry(text: str) -> list[Any]:
    """Return an entry of a stream, from its ID, fields and values separated by spaces."""
    entry_id, *items = text.encode().split()
    return [entry_id, items]


def entries(*texts: str) -> list[Any]:
    """Return entries of a stream, each as `entry()` reads it."""
    return [entry(text) for text in texts]


def group(
    name: bytes, consumers: int, pending: int, last: bytes, read: int | None, lag: int | None
) -> list[Any]:
    """Return a consumer group as XINFO GROUPS reports it, with its last delivered ID."""
    return fields(
        name=name,
        consumers=consumers,
        pending=pending,
        last_delivered_id=last,
        entries_read=read,
        lag=lag,
    )


def full_group(
    name: bytes, last: bytes, read: int | None, lag: int, count: int = 0, *pending: bytes
) -> list[Any]:
    """Return a consumer group as XINFO STREAM FULL reports it.

    Its `count` pending entries were delivered once, to the consumer `a`; `pending` are the reported
    IDs.
    """
    consumer = fields(
        name=b"a",
        seen_time=NOW_MS,
        pel_count=count,
        pending=[[entry_id, NOW_MS, 1] for entry_id in pending],
    )
    return fields(
        name=name,
        last_delivered_id=last,
        entries_read=read,
        lag=lag,
        pel_count=count,
        pending=[[entry_id, b"a", NOW_MS, 1] for entry_id in pending],
        consumers=[consumer] if count else [],
    )


def full_stream(
    length: int, added: int, last: bytes, first: bytes, found: list[Any], groups: list[Any]
) -> list[Any]:
    """Return a stream as XINFO STREAM FULL reports it, with 2-1 as the highest deleted ID."""
    return fields(
        length=length,
        radix_tree_keys=1 if length else 0,
        radix_tree_nodes=2 if length else 1,
        last_generated_id=last,
        max_deleted_entry_id=b"2-1",
        entries_added=added,
        recorded_first_entry_id=first,
        entries=found,
        groups=groups,
    )


SCENARIOS: dict[str, Scenario] = {
    "adding": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 1-1 a 1", ID_TOO_SMALL),
        ("XADD s 1-* a 2", b"1-2"),
        ("XADD s 2 a 3 b 4", b"2-0"),
        ("XADD s 2-* a 5", b"2-1"),
        ("XADD s 0-0 a 1", error("ERR The ID specified in XADD must be greater than 0-0")),
        ("XADD s abc a 1", INVALID_ID),
        ("XADD s 1-1-1 a 1", INVALID_ID),
        ("XADD s - a 1", INVALID_ID),
        ("XADD s 5-5 a", error("ERR wrong number of arguments for 'xadd' command")),
        ("XADD s 5-5", error("ERR wrong number of arguments for 'xadd' command")),
        ("XADD s *", error("ERR wrong number of arguments for 'xadd' command")),
        ("XADD none NOMKSTREAM 1-1 a 1", None),
        ("EXISTS none", 0),
        ("XLEN s", 4),
        ("XLEN none", 0),
        (
            "XADD s 18446744073709551615-18446744073709551615 a 1",
            b"18446744073709551615-18446744073709551615",
        ),
        ("XADD s * a 1", STREAM_EXHAUSTED),
        ("XADD s 18446744073709551615-* a 1", STREAM_EXHAUSTED),
        ("XADD s 18446744073709551616-1 a 1", INVALID_ID),
        (
            "XRANGE s - +",
            entries(
                "1-1 a 1",
                "1-2 a 2",
                "2-0 a 3 b 4",
                "2-1 a 5",
                "18446744073709551615-18446744073709551615 a 1",
            ),
        ),
    ],
    "trimming as it is added": [
        ("XADD s MAXLEN 2 1-1 a 1", b"1-1"),
        ("XADD s MAXLEN = 2 2-1 a 1", b"2-1"),
        ("XADD s MAXLEN 2 3-1 a 1", b"3-1"),
        ("XADD s MINID 3 4-1 a 1", b"4-1"),
        ("XADD s MINID = 4-1 5-1 a 1", b"5-1"),
        ("XADD s MINID ~ 4-1 6-1 a 1", b"6-1"),
        ("XADD s MAXLEN ~ 100 LIMIT 10 7-1 a 1", b"7-1"),
        ("XRANGE s - +", entries("4-1 a 1", "5-1 a 1", "6-1 a 1", "7-1 a 1")),
        ("XADD s MAXLEN -1 8-1 a 1", error("ERR The MAXLEN argument must be >= 0.")),
        ("XADD s MAXLEN abc 8-1 a 1", NOT_AN_INTEGER),
        ("XADD s MINID abc 8-1 a 1", INVALID_ID),
        ("XADD s MAXLEN 1 MINID 1 8-1 a 1", MAXLEN_AND_MINID),
        ("XADD s MAXLEN 1 LIMIT 1 8-1 a 1", LIMIT_WITHOUT_TILDE),
        ("XADD s MAXLEN ~ 1 LIMIT -1 8-1 a 1", error("ERR The LIMIT argument must be >= 0.")),
        ("XADD s LIMIT 1 8-1 a 1", LIMIT_WITHOUT_STRATEGY),
    ],
    "trimming": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 1", b"2-1"),
        ("XADD s 3-1 a 1", b"3-1"),
        ("XADD s 4-1 a 1", b"4-1"),
        ("XTRIM s MAXLEN 3", 1),
        ("XTRIM s MAXLEN = 2", 1),
        ("XTRIM s MAXLEN ~ 2", 0),
        ("XTRIM s MAXLEN ~ 2 LIMIT 5", 0),
        ("XTRIM s MINID 4", 1),
        ("XTRIM s MINID = 4-1", 0),
        ("XTRIM s MINID ~ 4-1 LIMIT 0", 0),
        ("XRANGE s - +", entries("4-1 a 1")),
        ("XTRIM s MAXLEN 0", 1),
        ("XLEN s", 0),
        ("EXISTS s", 1),
        ("XTRIM none MAXLEN 1", 0),
        ("XTRIM s LIMIT 5", LIMIT_WITHOUT_STRATEGY),
        ("XTRIM s FOO 1", SYNTAX_ERROR),
        ("XTRIM s MAXLEN 1 LIMIT 5", LIMIT_WITHOUT_TILDE),
        ("XTRIM s MAXLEN -5", error("ERR The MAXLEN argument must be >= 0.")),
        ("XTRIM s MAXLEN ~ 1 LIMIT -5", error("ERR The LIMIT argument must be >= 0.")),
        ("XTRIM s MINID abc", INVALID_ID),
        ("XTRIM s MINID -", INVALID_ID),
        ("XTRIM s MAXLEN 1 MINID 2", MAXLEN_AND_MINID),
    ],
    "reading ranges": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 1-2 a 2", b"1-2"),
        ("XADD s 2-1 a 3", b"2-1"),
        ("XADD s 3-0 a 4", b"3-0"),
        ("XRANGE s - +", entries("1-1 a 1", "1-2 a 2", "2-1 a 3", "3-0 a 4")),
        ("XRANGE s 1 1", entries("1-1 a 1", "1-2 a 2")),
        ("XRANGE s 2 3", entries("2-1 a 3", "3-0 a 4")),
        ("XRANGE s (1-1 (3-0", entries("1-2 a 2", "2-1 a 3")),
        ("XRANGE s - + COUNT 2", entries("1-1 a 1", "1-2 a 2")),
        ("XRANGE s - + COUNT 0", NIL_ARRAY),
        ("XRANGE s - + COUNT -5", NIL_ARRAY),
        ("XRANGE s + -", []),
        ("XREVRANGE s + -", entries("3-0 a 4", "2-1 a 3", "1-2 a 2", "1-1 a 1")),
        ("XREVRANGE s 2 1 COUNT 1", entries("2-1 a 3")),
        ("XREVRANGE s (3-0 (1-1", entries("2-1 a 3", "1-2 a 2")),
        ("XRANGE none - +", []),
        ("XRANGE none - + COUNT 0", []),
        ("XRANGE s abc +", INVALID_ID),
        ("XRANGE s - abc", INVALID_ID),
        ("XRANGE s (18446744073709551615-18446744073709551615 +", INVALID_START),
        ("XRANGE s - (0-0", error("ERR invalid end ID for the interval")),
        ("XRANGE s - + FOO 1", SYNTAX_ERROR),
        ("XRANGE s - + COUNT", SYNTAX_ERROR),
        ("XRANGE s - + COUNT abc", NOT_AN_INTEGER),
        ("XDEL s 1-2 9-9", 1),
        ("XDEL none 1-1", 0),
        ("XDEL none abc", 0),
        ("XDEL s abc", INVALID_ID),
        ("XDEL s 1-1 abc", INVALID_ID),
        ("XLEN s", 3),
    ],
    "reading behind ids": [
        ("XADD a 1-1 x 1", b"1-1"),
        ("XADD a 2-1 x 2", b"2-1"),
        ("XADD b 1-5 y 1", b"1-5"),
        ("XREAD STREAMS a 0", [[b"a", entries("1-1 x 1", "2-1 x 2")]]),
        ("XREAD COUNT 1 STREAMS a b 0 0", [[b"a", entries("1-1 x 1")], [b"b", entries("1-5 y 1")]]),
        ("XREAD COUNT 0 STREAMS a 1-1", [[b"a", entries("2-1 x 2")]]),
        ("XREAD STREAMS a 2-1", NIL_ARRAY),
        ("XREAD STREAMS a $", NIL_ARRAY),
        ("XREAD BLOCK 1 STREAMS a $", NIL_ARRAY),
        ("XREAD BLOCK 1 COUNT 5 STREAMS b 0", [[b"b", entries("1-5 y 1")]]),
        ("XREAD STREAMS none 0", NIL_ARRAY),
        ("XREAD STREAMS a b 0", UNBALANCED_STREAMS),
        ("XREAD STREAMS a", error("ERR wrong number of arguments for 'xread' command")),
        ("XREAD COUNT 1 FOO a", SYNTAX_ERROR),
        ("XREAD STREAMS a abc", INVALID_ID),
        (
            "XREAD STREAMS a >",
            error(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP "
                "<group> <consumer> option."
            ),
        ),
        (
            "XREAD GROUP g c STREAMS a 0",
            error(
                "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead."
            ),
        ),
        (
            "XREAD NOACK STREAMS a 0",
            error(
                "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead."
            ),
        ),
        ("XREAD BLOCK abc STREAMS a 0", error("ERR timeout is not an integer or out of range")),
        ("XREAD BLOCK -1 STREAMS a 0", NEGATIVE_TIMEOUT),
        ("XREAD COUNT abc STREAMS a 0", NOT_AN_INTEGER),
        ("XREAD COUNT 1 BLOCK 1", SYNTAX_ERROR),
    ],
    "ids set by hand": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 1", b"2-1"),
        ("XSETID s 5-5", OK),
        ("XADD s 3-1 a 1", ID_TOO_SMALL),
        (
            "XSETID s 1-1",
            error("ERR The ID specified in XSETID is smaller than the target stream top item"),
        ),
        ("XSETID s abc", INVALID_ID),
        ("XSETID none 1-1", NO_SUCH_KEY),
        ("XSETID s 6-6 ENTRIESADDED 100 MAXDELETEDID 4-4", OK),
        (
            "XINFO STREAM s",
            fields(
                length=2,
                radix_tree_keys=1,
                radix_tree_nodes=2,
                last_generated_id=b"6-6",
                max_deleted_entry_id=b"4-4",
                entries_added=100,
                recorded_first_entry_id=b"1-1",
                groups=0,
                first_entry=entry("1-1 a 1"),
                last_entry=entry("2-1 a 1"),
            ),
        ),
        ("XSETID s 7-7 ENTRIESADDED -1", error("ERR entries_added must be positive")),
        (
            "XSETID s 7-7 ENTRIESADDED 1",
            error(
                "ERR The entries_added specified in XSETID is smaller than the target stream length"
            ),
        ),
        ("XSETID s 7-7 ENTRIESADDED abc", NOT_AN_INTEGER),
        (
            "XSETID s 7-7 MAXDELETEDID 8-8",
            error(
                "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
            ),
        ),
        ("XSETID s 3-3", OK),
        ("XSETID s 7-7 FOO 1", SYNTAX_ERROR),
        ("XSETID s 7-7 MAXDELETEDID abc", INVALID_ID),
    ],
    "groups": [
        ("XGROUP CREATE s g 0", XGROUP_NEEDS_KEY),
        ("XGROUP CREATE s g 0 MKSTREAM", OK),
        ("XGROUP CREATE s g 0", error("BUSYGROUP Consumer Group name already exists")),
        ("XGROUP CREATE s g2 $ ENTRIESREAD 3", OK),
        ("XGROUP CREATE s g3 $ MKSTREAM ENTRIESREAD -1", OK),
        ("XGROUP CREATE s g4 abc", INVALID_ID),
        (
            "XGROUP CREATE s g4 0 ENTRIESREAD -2",
            error("ERR value for ENTRIESREAD must be positive or -1"),
        ),
        ("XGROUP CREATE s g4 0 ENTRIESREAD abc", NOT_AN_INTEGER),
        (
            "XGROUP CREATE s g4 0 FOO",
            error(
                "ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP."
            ),
        ),
        ("XGROUP CREATECONSUMER s g alice", 1),
        ("XGROUP CREATECONSUMER s g alice", 0),
        ("XGROUP CREATECONSUMER s none alice", NO_SUCH_GROUP),
        ("XGROUP CREATECONSUMER none g alice", XGROUP_NEEDS_KEY),
        ("XGROUP SETID s g 5-5", OK),
        ("XGROUP SETID s g $ ENTRIESREAD 4", OK),
        ("XGROUP SETID s g abc", INVALID_ID),
        ("XGROUP SETID s g -", OK),
        ("XGROUP SETID s g +", OK),
        ("XGROUP CREATE s g9 -", INVALID_ID),
        ("XGROUP SETID s none 5", NO_SUCH_GROUP),
        ("XGROUP SETID none g 5", XGROUP_NEEDS_KEY),
        (
            "XGROUP SETID s g 5 FOO",
            error(
                "ERR unknown subcommand or wrong number of arguments for 'SETID'. Try XGROUP HELP."
            ),
        ),
        (
            "XINFO GROUPS s",
            [
                group(b"g", 1, 0, b"18446744073709551615-18446744073709551615", None, 0),
                group(b"g2", 0, 0, b"0-0", 3, 0),
                group(b"g3", 0, 0, b"0-0", None, 0),
            ],
        ),
        ("XINFO CONSUMERS s none", NO_SUCH_GROUP),
        ("XINFO CONSUMERS none g", NO_SUCH_KEY),
        ("XGROUP DELCONSUMER s g alice", 0),
        ("XGROUP DELCONSUMER s g alice", 0),
        ("XGROUP DELCONSUMER s none alice", NO_SUCH_GROUP),
        ("XGROUP DELCONSUMER none g alice", XGROUP_NEEDS_KEY),
        ("XGROUP DESTROY s g", 1),
        ("XGROUP DESTROY s g", 0),
        ("XGROUP DESTROY none g", XGROUP_NEEDS_KEY),
        ("XGROUP FOO s g", error("ERR unknown subcommand 'FOO'. Try XGROUP HELP.")),
        ("XGROUP", error("ERR wrong number of arguments for 'xgroup' command")),
        ("XGROUP CREATE s", error("ERR wrong number of arguments for 'xgroup|create' command")),
        ("XINFO FOO s", error("ERR unknown subcommand 'FOO'. Try XINFO HELP.")),
        ("XINFO STREAM none", NO_SUCH_KEY),
        ("XINFO STREAM s FOO", UNKNOWN_XINFO_STREAM),
        ("XINFO STREAM s FULL COUNT", UNKNOWN_XINFO_STREAM),
        ("XINFO STREAM s FULL COUNT abc", NOT_AN_INTEGER),
    ],
    "reading as consumers": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 2", b"2-1"),
        ("XADD s 3-1 a 3", b"3-1"),
        ("XADD s 4-1 a 4", b"4-1"),
        ("XGROUP CREATE s g 0", OK),
        ("XREADGROUP GROUP g alice COUNT 1 STREAMS s >", [[b"s", entries("1-1 a 1")]]),
        ("XREADGROUP GROUP g bob COUNT 2 STREAMS s >", [[b"s", entries("2-1 a 2", "3-1 a 3")]]),
        ("XREADGROUP GROUP g bob STREAMS s 0", [[b"s", entries("2-1 a 2", "3-1 a 3")]]),
        ("XREADGROUP GROUP g bob COUNT 1 STREAMS s 2-1", [[b"s", entries("3-1 a 3")]]),
        ("XREADGROUP GROUP g carol NOACK BLOCK 1 STREAMS s >", [[b"s", entries("4-1 a 4")]]),
        ("XREADGROUP GROUP g carol STREAMS s >", NIL_ARRAY),
        ("XREADGROUP GROUP g carol STREAMS s 0", [[b"s", []]]),
        ("XPENDING s g", [3, b"1-1", b"3-1", [[b"alice", b"1"], [b"bob", b"2"]]]),
        ("XPENDING s g - + 10 alice", [[b"1-1", b"alice", 0, 1]]),
        ("XPENDING s g - + 10 none", []),
        ("XPENDING s g - + 0", []),
        ("XPENDING s g - + -1", []),
        ("XPENDING s g IDLE 100000000 - + 10", []),
        ("XPENDING s g IDLE abc - + 10", NOT_AN_INTEGER),
        ("XPENDING s g IDLE 1 - +", SYNTAX_ERROR),
        ("XPENDING s g - + abc", NOT_AN_INTEGER),
        ("XPENDING s g abc + 10", INVALID_ID),
        ("XPENDING s g - abc 10", INVALID_ID),
        ("XPENDING s g (18446744073709551615-18446744073709551615 + 10", INVALID_START),
        ("XPENDING s g - (0-0 10", error("ERR invalid end ID for the interval")),
        ("XPENDING s g -", SYNTAX_ERROR),
        ("XPENDING s none", error("NOGROUP No such key 's' or consumer group 'none'")),
        ("XPENDING none g", error("NOGROUP No such key 'none' or consumer group 'g'")),
        ("XACK s g 1-1 9-9", 1),
        ("XACK s none 1-1", 0),
        ("XACK none g 1-1", 0),
        ("XACK s g abc", INVALID_ID),
        ("XDEL s 2-1", 1),
        ("XREADGROUP GROUP g bob STREAMS s 0", [[b"s", [[b"2-1", NIL_ARRAY], entry("3-1 a 3")]]]),
        ("XINFO GROUPS s", [group(b"g", 3, 2, b"4-1", 4, 0)]),
        (
            "XREADGROUP GROUP none bob STREAMS s >",
            error(
                "NOGROUP No such key 's' or consumer group 'none' in XREADGROUP with GROUP option"
            ),
        ),
        (
            "XREADGROUP GROUP g bob STREAMS none >",
            error(
                "NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP option"
            ),
        ),
        (
            "XREADGROUP GROUP g bob STREAMS s $",
            error(
                "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read "
                "the history of this consumer by specifying a proper ID, or use the > ID to "
                "get new messages. The $ ID would just return an empty result set."
            ),
        ),
        ("XREADGROUP GROUP g bob STREAMS s abc", INVALID_ID),
        ("XREADGROUP GROUP g bob STREAMS s s >", UNBALANCED_STREAMS),
        (
            "XREADGROUP COUNT 1 NOACK STREAMS s s s s",
            error("ERR Missing GROUP option for XREADGROUP"),
        ),
        ("XREADGROUP GROUP g bob COUNT 1 BLOCK 5", SYNTAX_ERROR),
    ],
    "claiming": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 2", b"2-1"),
        ("XADD s 3-1 a 3", b"3-1"),
        ("XGROUP CREATE s g 0", OK),
        (
            "XREADGROUP GROUP g alice STREAMS s >",
            [[b"s", entries("1-1 a 1", "2-1 a 2", "3-1 a 3")]],
        ),
        ("XCLAIM s g bob 0 1-1", entries("1-1 a 1")),
        ("XCLAIM s g bob 0 2-1 JUSTID", [b"2-1"]),
        ("XCLAIM s g bob 100000000 3-1", []),
        ("XCLAIM s g bob 0 3-1 IDLE 5 RETRYCOUNT 7 LASTID 9-9 FORCE JUSTID", [b"3-1"]),
        ("XCLAIM s g bob 0 3-1 TIME 1 RETRYCOUNT 7", entries("3-1 a 3")),
        ("XCLAIM s g bob 0 9-9 FORCE", []),
        ("XCLAIM s g bob abc 1-1", error("ERR Invalid min-idle-time argument for XCLAIM")),
        ("XCLAIM s g bob 0 1-1 IDLE abc", error("ERR Invalid IDLE option argument for XCLAIM")),
        ("XCLAIM s g bob 0 1-1 TIME abc", error("ERR Invalid TIME option argument for XCLAIM")),
        (
            "XCLAIM s g bob 0 1-1 RETRYCOUNT abc",
            error("ERR Invalid RETRYCOUNT option argument for XCLAIM"),
        ),
        ("XCLAIM s g bob 0 1-1 LASTID abc", INVALID_ID),
        ("XCLAIM s g bob 0 1-1 FOO", error("ERR Unrecognized XCLAIM option 'FOO'")),
        ("XCLAIM s none bob 0 1-1", error("NOGROUP No such key 's' or consumer group 'none'")),
        ("XCLAIM none g bob 0 1-1", error("NOGROUP No such key 'none' or consumer group 'g'")),
        ("XDEL s 1-1", 1),
        ("XAUTOCLAIM s g carol 0 0 COUNT 1", [b"2-1", [], [b"1-1"]]),
        ("XAUTOCLAIM s g carol 0 - COUNT 10 JUSTID", [b"0-0", [b"2-1", b"3-1"], []]),
        ("XAUTOCLAIM s g carol 0 (2-1", [b"0-0", entries("3-1 a 3"), []]),
        ("XAUTOCLAIM s g carol 100000000 0", [b"0-0", [], []]),
        ("XAUTOCLAIM s g carol abc 0", error("ERR Invalid min-idle-time argument for XAUTOCLAIM")),
        ("XAUTOCLAIM s g carol 0 abc", INVALID_ID),
        ("XAUTOCLAIM s g carol 0 (18446744073709551615-18446744073709551615", INVALID_START),
        ("XAUTOCLAIM s g carol 0 0 COUNT 0", error("ERR COUNT must be > 0")),
        ("XAUTOCLAIM s g carol 0 0 COUNT abc", error("ERR COUNT must be > 0")),
        ("XAUTOCLAIM s g carol 0 0 FOO", SYNTAX_ERROR),
        ("XAUTOCLAIM s none carol 0 0", error("NOGROUP No such key 's' or consumer group 'none'")),
        ("XAUTOCLAIM none g carol 0 0", error("NOGROUP No such key 'none' or consumer group 'g'")),
        ("XGROUP DELCONSUMER s g carol", 2),
        ("XPENDING s g", [0, None, None, NIL_ARRAY]),
    ],
    "counting what is left to read": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 2", b"2-1"),
        ("XADD s 3-1 a 3", b"3-1"),
        ("XGROUP CREATE s g 0", OK),
        ("XGROUP CREATE s end $", OK),
        ("XGROUP CREATE s middle 2-1", OK),
        (
            "XINFO GROUPS s",
            [
                group(b"end", 0, 0, b"3-1", None, 0),
                group(b"g", 0, 0, b"0-0", None, 3),
                group(b"middle", 0, 0, b"2-1", None, None),
            ],
        ),
        ("XREADGROUP GROUP g a COUNT 2 STREAMS s >", [[b"s", entries("1-1 a 1", "2-1 a 2")]]),
        (
            "XINFO GROUPS s",
            [
                group(b"end", 0, 0, b"3-1", None, 0),
                group(b"g", 1, 2, b"2-1", 2, 1),
                group(b"middle", 0, 0, b"2-1", None, None),
            ],
        ),
        ("XDEL s 2-1", 1),
        (
            "XINFO GROUPS s",
            [
                group(b"end", 0, 0, b"3-1", None, 0),
                group(b"g", 1, 2, b"2-1", 2, None),
                group(b"middle", 0, 0, b"2-1", None, None),
            ],
        ),
        ("XREADGROUP GROUP g a STREAMS s >", [[b"s", entries("3-1 a 3")]]),
        (
            "XINFO GROUPS s",
            [
                group(b"end", 0, 0, b"3-1", None, 0),
                group(b"g", 1, 3, b"3-1", 3, 0),
                group(b"middle", 0, 0, b"2-1", None, None),
            ],
        ),
        ("XTRIM s MAXLEN 0", 2),
        (
            "XINFO GROUPS s",
            [
                group(b"end", 0, 0, b"3-1", None, 0),
                group(b"g", 1, 3, b"3-1", 3, 0),
                group(b"middle", 0, 0, b"2-1", None, 0),
            ],
        ),
        (
            "XINFO STREAM s",
            fields(
                length=0,
                radix_tree_keys=0,
                radix_tree_nodes=1,
                last_generated_id=b"3-1",
                max_deleted_entry_id=b"2-1",
                entries_added=3,
                recorded_first_entry_id=b"0-0",
                groups=3,
                first_entry=None,
                last_entry=None,
            ),
        ),
        (
            "XINFO STREAM s FULL",
            full_stream(
                0,
                3,
                b"3-1",
                b"0-0",
                [],
                groups=[
                    full_group(b"end", b"3-1", None, 0),
                    full_group(b"g", b"3-1", 3, 0, 3, b"1-1", b"2-1", b"3-1"),
                    full_group(b"middle", b"2-1", None, 0),
                ],
            ),
        ),
        ("XADD s 9-1 a 1", b"9-1"),
        ("XADD s 9-2 a 1", b"9-2"),
        (
            "XINFO STREAM s FULL COUNT 1",
            full_stream(
                2,
                5,
                b"9-2",
                b"9-1",
                entries("9-1 a 1"),
                groups=[
                    full_group(b"end", b"3-1", None, 2),
                    full_group(b"g", b"3-1", 3, 2, 3, b"1-1"),
                    full_group(b"middle", b"2-1", None, 2),
                ],
            ),
        ),
        (
            "XINFO STREAM s FULL COUNT 0",
            full_stream(
                2,
                5,
                b"9-2",
                b"9-1",
                entries("9-1 a 1", "9-2 a 1"),
                groups=[
                    full_group(b"end", b"3-1", None, 2),
                    full_group(b"g", b"3-1", 3, 2, 3, b"1-1", b"2-1", b"3-1"),
                    full_group(b"middle", b"2-1", None, 2),
                ],
            ),
        ),
        (
            "XINFO STREAM s FULL COUNT -1",
            full_stream(
                2,
                5,
                b"9-2",
                b"9-1",
                entries("9-1 a 1", "9-2 a 1"),
                groups=[
                    full_group(b"end", b"3-1", None, 2),
                    full_group(b"g", b"3-1", 3, 2, 3, b"1-1", b"2-1", b"3-1"),
                    full_group(b"middle", b"2-1", None, 2),
                ],
            ),
        ),
    ],
    "keys of other types": [
        ("SET str v", OK),
        ("XADD str 1-1 a 1", WRONG_TYPE),
        ("XLEN str", WRONG_TYPE),
        ("XRANGE str - +", WRONG_TYPE),
        ("XREVRANGE str + -", WRONG_TYPE),
        ("XDEL str 1-1", WRONG_TYPE),
        ("XTRIM str MAXLEN 1", WRONG_TYPE),
        ("XREAD STREAMS str 0", WRONG_TYPE),
        ("XSETID str 1-1", WRONG_TYPE),
        ("XGROUP CREATE str g 0", WRONG_TYPE),
        ("XGROUP CREATE str g 0 MKSTREAM", WRONG_TYPE),
        ("XGROUP DESTROY str g", WRONG_TYPE),
        ("XREADGROUP GROUP g c STREAMS str >", WRONG_TYPE),
        ("XACK str g 1-1", WRONG_TYPE),
        ("XPENDING str g", WRONG_TYPE),
        ("XCLAIM str g c 0 1-1", WRONG_TYPE),
        ("XAUTOCLAIM str g c 0 0", WRONG_TYPE),
        ("XINFO STREAM str", WRONG_TYPE),
        ("XINFO GROUPS str", WRONG_TYPE),
        ("XADD s 1-1", error("ERR wrong number of arguments for 'xadd' command")),
        ("XREAD", error("ERR wrong number of arguments for 'xread' command")),
        ("XLEN", error("ERR wrong number of arguments for 'xlen' command")),
        (
            "XGROUP HELP",
            [
                status("XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
                status("CREATE <key> <groupname> <id|$> [option]"),
                status("    Create a new consumer group. Options are:"),
                status("    * MKSTREAM"),
                status("      Create the empty stream if it does not exist."),
                status("    * ENTRIESREAD entries_read"),
                status("      Set the group's entries_read counter (internal use)."),
                status("CREATECONSUMER <key> <groupname> <consumer>"),
                status("    Create a new consumer in the specified group."),
                status("DELCONSUMER <key> <groupname> <consumer>"),
                status("    Remove the specified consumer."),
                status("DESTROY <key> <groupname>"),
                status("    Remove the specified group."),
                status("SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]"),
                status("    Set the current group ID and entries_read counter."),
                status("HELP"),
                status("    Prints this help."),
            ],
        ),
        (
            "XINFO HELP",
            [
                status("XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
                status("CONSUMERS <key> <groupname>"),
                status("    Show consumers of <groupname>."),
                status("GROUPS <key>"),
                status("    Show the stream consumer groups."),
                status("STREAM <key> [FULL [COUNT <count>]"),
                status("    Show information about the stream."),
                status("HELP"),
                status("    Prints this help."),
            ],
        ),
    ],
}

GROUPS = ("groups", "reading as consumers")
PENDING = ("claiming",)
INFO = ("counting what is left to read",)
ENTRIES = tuple(name for name in SCENARIOS if name not in {*GROUPS, *PENDING, *INFO})
