"""Streams: command lines and what Redis 7.0 or Valkey 9.1 answered to them."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import NIL_ARRAY, OK

from . import Scenario, error, fields, status

SCENARIOS: dict[str, Scenario] = {
    "adding": [
        ("XADD s 1-1 a 1", b"1-1"),
        (
            "XADD s 1-1 a 1",
            error(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item"
            ),
        ),
        ("XADD s 1-* a 2", b"1-2"),
        ("XADD s 2 a 3 b 4", b"2-0"),
        ("XADD s 2-* a 5", b"2-1"),
        ("XADD s 0-0 a 1", error("ERR The ID specified in XADD must be greater than 0-0")),
        ("XADD s abc a 1", error("ERR Invalid stream ID specified as stream command argument")),
        ("XADD s 1-1-1 a 1", error("ERR Invalid stream ID specified as stream command argument")),
        ("XADD s - a 1", error("ERR Invalid stream ID specified as stream command argument")),
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
        (
            "XADD s * a 1",
            error("ERR The stream has exhausted the last possible ID, unable to add more items"),
        ),
        (
            "XADD s 18446744073709551615-* a 1",
            error("ERR The stream has exhausted the last possible ID, unable to add more items"),
        ),
        (
            "XADD s 18446744073709551616-1 a 1",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        (
            "XRANGE s - +",
            [
                [b"1-1", [b"a", b"1"]],
                [b"1-2", [b"a", b"2"]],
                [b"2-0", [b"a", b"3", b"b", b"4"]],
                [b"2-1", [b"a", b"5"]],
                [b"18446744073709551615-18446744073709551615", [b"a", b"1"]],
            ],
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
        (
            "XRANGE s - +",
            [
                [b"4-1", [b"a", b"1"]],
                [b"5-1", [b"a", b"1"]],
                [b"6-1", [b"a", b"1"]],
                [b"7-1", [b"a", b"1"]],
            ],
        ),
        ("XADD s MAXLEN -1 8-1 a 1", error("ERR The MAXLEN argument must be >= 0.")),
        ("XADD s MAXLEN abc 8-1 a 1", error("ERR value is not an integer or out of range")),
        (
            "XADD s MINID abc 8-1 a 1",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        (
            "XADD s MAXLEN 1 MINID 1 8-1 a 1",
            error("ERR syntax error, MAXLEN and MINID options at the same time are not compatible"),
        ),
        (
            "XADD s MAXLEN 1 LIMIT 1 8-1 a 1",
            error("ERR syntax error, LIMIT cannot be used without the special ~ option"),
        ),
        ("XADD s MAXLEN ~ 1 LIMIT -1 8-1 a 1", error("ERR The LIMIT argument must be >= 0.")),
        (
            "XADD s LIMIT 1 8-1 a 1",
            error("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
        ),
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
        ("XRANGE s - +", [[b"4-1", [b"a", b"1"]]]),
        ("XTRIM s MAXLEN 0", 1),
        ("XLEN s", 0),
        ("EXISTS s", 1),
        ("XTRIM none MAXLEN 1", 0),
        (
            "XTRIM s LIMIT 5",
            error("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
        ),
        ("XTRIM s FOO 1", error("ERR syntax error")),
        (
            "XTRIM s MAXLEN 1 LIMIT 5",
            error("ERR syntax error, LIMIT cannot be used without the special ~ option"),
        ),
        ("XTRIM s MAXLEN -5", error("ERR The MAXLEN argument must be >= 0.")),
        ("XTRIM s MAXLEN ~ 1 LIMIT -5", error("ERR The LIMIT argument must be >= 0.")),
        ("XTRIM s MINID abc", error("ERR Invalid stream ID specified as stream command argument")),
        ("XTRIM s MINID -", error("ERR Invalid stream ID specified as stream command argument")),
        (
            "XTRIM s MAXLEN 1 MINID 2",
            error("ERR syntax error, MAXLEN and MINID options at the same time are not compatible"),
        ),
    ],
    "reading ranges": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 1-2 a 2", b"1-2"),
        ("XADD s 2-1 a 3", b"2-1"),
        ("XADD s 3-0 a 4", b"3-0"),
        (
            "XRANGE s - +",
            [
                [b"1-1", [b"a", b"1"]],
                [b"1-2", [b"a", b"2"]],
                [b"2-1", [b"a", b"3"]],
                [b"3-0", [b"a", b"4"]],
            ],
        ),
        ("XRANGE s 1 1", [[b"1-1", [b"a", b"1"]], [b"1-2", [b"a", b"2"]]]),
        ("XRANGE s 2 3", [[b"2-1", [b"a", b"3"]], [b"3-0", [b"a", b"4"]]]),
        ("XRANGE s (1-1 (3-0", [[b"1-2", [b"a", b"2"]], [b"2-1", [b"a", b"3"]]]),
        ("XRANGE s - + COUNT 2", [[b"1-1", [b"a", b"1"]], [b"1-2", [b"a", b"2"]]]),
        ("XRANGE s - + COUNT 0", NIL_ARRAY),
        ("XRANGE s - + COUNT -5", NIL_ARRAY),
        ("XRANGE s + -", []),
        (
            "XREVRANGE s + -",
            [
                [b"3-0", [b"a", b"4"]],
                [b"2-1", [b"a", b"3"]],
                [b"1-2", [b"a", b"2"]],
                [b"1-1", [b"a", b"1"]],
            ],
        ),
        ("XREVRANGE s 2 1 COUNT 1", [[b"2-1", [b"a", b"3"]]]),
        ("XREVRANGE s (3-0 (1-1", [[b"2-1", [b"a", b"3"]], [b"1-2", [b"a", b"2"]]]),
        ("XRANGE none - +", []),
        ("XRANGE none - + COUNT 0", []),
        ("XRANGE s abc +", error("ERR Invalid stream ID specified as stream command argument")),
        ("XRANGE s - abc", error("ERR Invalid stream ID specified as stream command argument")),
        (
            "XRANGE s (18446744073709551615-18446744073709551615 +",
            error("ERR invalid start ID for the interval"),
        ),
        ("XRANGE s - (0-0", error("ERR invalid end ID for the interval")),
        ("XRANGE s - + FOO 1", error("ERR syntax error")),
        ("XRANGE s - + COUNT", error("ERR syntax error")),
        ("XRANGE s - + COUNT abc", error("ERR value is not an integer or out of range")),
        ("XDEL s 1-2 9-9", 1),
        ("XDEL none 1-1", 0),
        ("XDEL none abc", 0),
        ("XDEL s abc", error("ERR Invalid stream ID specified as stream command argument")),
        ("XDEL s 1-1 abc", error("ERR Invalid stream ID specified as stream command argument")),
        ("XLEN s", 3),
    ],
    "reading behind ids": [
        ("XADD a 1-1 x 1", b"1-1"),
        ("XADD a 2-1 x 2", b"2-1"),
        ("XADD b 1-5 y 1", b"1-5"),
        ("XREAD STREAMS a 0", [[b"a", [[b"1-1", [b"x", b"1"]], [b"2-1", [b"x", b"2"]]]]]),
        (
            "XREAD COUNT 1 STREAMS a b 0 0",
            [[b"a", [[b"1-1", [b"x", b"1"]]]], [b"b", [[b"1-5", [b"y", b"1"]]]]],
        ),
        ("XREAD COUNT 0 STREAMS a 1-1", [[b"a", [[b"2-1", [b"x", b"2"]]]]]),
        ("XREAD STREAMS a 2-1", NIL_ARRAY),
        ("XREAD STREAMS a $", NIL_ARRAY),
        ("XREAD BLOCK 1 STREAMS a $", NIL_ARRAY),
        ("XREAD BLOCK 1 COUNT 5 STREAMS b 0", [[b"b", [[b"1-5", [b"y", b"1"]]]]]),
        ("XREAD STREAMS none 0", NIL_ARRAY),
        (
            "XREAD STREAMS a b 0",
            error(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must "
                "be specified."
            ),
        ),
        ("XREAD STREAMS a", error("ERR wrong number of arguments for 'xread' command")),
        ("XREAD COUNT 1 FOO a", error("ERR syntax error")),
        (
            "XREAD STREAMS a abc",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
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
        ("XREAD BLOCK -1 STREAMS a 0", error("ERR timeout is negative")),
        ("XREAD COUNT abc STREAMS a 0", error("ERR value is not an integer or out of range")),
        ("XREAD COUNT 1 BLOCK 1", error("ERR syntax error")),
    ],
    "ids set by hand": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 1", b"2-1"),
        ("XSETID s 5-5", OK),
        (
            "XADD s 3-1 a 1",
            error(
                "ERR The ID specified in XADD is equal or smaller than the target stream top item"
            ),
        ),
        (
            "XSETID s 1-1",
            error("ERR The ID specified in XSETID is smaller than the target stream top item"),
        ),
        ("XSETID s abc", error("ERR Invalid stream ID specified as stream command argument")),
        ("XSETID none 1-1", error("ERR no such key")),
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
                first_entry=[b"1-1", [b"a", b"1"]],
                last_entry=[b"2-1", [b"a", b"1"]],
            ),
        ),
        ("XSETID s 7-7 ENTRIESADDED -1", error("ERR entries_added must be positive")),
        (
            "XSETID s 7-7 ENTRIESADDED 1",
            error(
                "ERR The entries_added specified in XSETID is smaller than the target stream length"
            ),
        ),
        ("XSETID s 7-7 ENTRIESADDED abc", error("ERR value is not an integer or out of range")),
        (
            "XSETID s 7-7 MAXDELETEDID 8-8",
            error(
                "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
            ),
        ),
        ("XSETID s 3-3", OK),
        ("XSETID s 7-7 FOO 1", error("ERR syntax error")),
        (
            "XSETID s 7-7 MAXDELETEDID abc",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
    ],
    "groups": [
        (
            "XGROUP CREATE s g 0",
            error(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE "
                "you may want to use the MKSTREAM option to create an empty stream "
                "automatically."
            ),
        ),
        ("XGROUP CREATE s g 0 MKSTREAM", OK),
        ("XGROUP CREATE s g 0", error("BUSYGROUP Consumer Group name already exists")),
        ("XGROUP CREATE s g2 $ ENTRIESREAD 3", OK),
        ("XGROUP CREATE s g3 $ MKSTREAM ENTRIESREAD -1", OK),
        (
            "XGROUP CREATE s g4 abc",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        (
            "XGROUP CREATE s g4 0 ENTRIESREAD -2",
            error("ERR value for ENTRIESREAD must be positive or -1"),
        ),
        (
            "XGROUP CREATE s g4 0 ENTRIESREAD abc",
            error("ERR value is not an integer or out of range"),
        ),
        (
            "XGROUP CREATE s g4 0 FOO",
            error(
                "ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP."
            ),
        ),
        ("XGROUP CREATECONSUMER s g alice", 1),
        ("XGROUP CREATECONSUMER s g alice", 0),
        (
            "XGROUP CREATECONSUMER s none alice",
            error("NOGROUP No such consumer group 'none' for key name 's'"),
        ),
        (
            "XGROUP CREATECONSUMER none g alice",
            error(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE "
                "you may want to use the MKSTREAM option to create an empty stream "
                "automatically."
            ),
        ),
        ("XGROUP SETID s g 5-5", OK),
        ("XGROUP SETID s g $ ENTRIESREAD 4", OK),
        (
            "XGROUP SETID s g abc",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        ("XGROUP SETID s g -", OK),
        ("XGROUP SETID s g +", OK),
        (
            "XGROUP CREATE s g9 -",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        ("XGROUP SETID s none 5", error("NOGROUP No such consumer group 'none' for key name 's'")),
        (
            "XGROUP SETID none g 5",
            error(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE "
                "you may want to use the MKSTREAM option to create an empty stream "
                "automatically."
            ),
        ),
        (
            "XGROUP SETID s g 5 FOO",
            error(
                "ERR unknown subcommand or wrong number of arguments for 'SETID'. Try XGROUP HELP."
            ),
        ),
        (
            "XINFO GROUPS s",
            [
                fields(
                    name=b"g",
                    consumers=1,
                    pending=0,
                    last_delivered_id=b"18446744073709551615-18446744073709551615",
                    entries_read=None,
                    lag=0,
                ),
                fields(
                    name=b"g2",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"0-0",
                    entries_read=3,
                    lag=0,
                ),
                fields(
                    name=b"g3",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"0-0",
                    entries_read=None,
                    lag=0,
                ),
            ],
        ),
        ("XINFO CONSUMERS s none", error("NOGROUP No such consumer group 'none' for key name 's'")),
        ("XINFO CONSUMERS none g", error("ERR no such key")),
        ("XGROUP DELCONSUMER s g alice", 0),
        ("XGROUP DELCONSUMER s g alice", 0),
        (
            "XGROUP DELCONSUMER s none alice",
            error("NOGROUP No such consumer group 'none' for key name 's'"),
        ),
        (
            "XGROUP DELCONSUMER none g alice",
            error(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE "
                "you may want to use the MKSTREAM option to create an empty stream "
                "automatically."
            ),
        ),
        ("XGROUP DESTROY s g", 1),
        ("XGROUP DESTROY s g", 0),
        (
            "XGROUP DESTROY none g",
            error(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE "
                "you may want to use the MKSTREAM option to create an empty stream "
                "automatically."
            ),
        ),
        ("XGROUP FOO s g", error("ERR unknown subcommand 'FOO'. Try XGROUP HELP.")),
        ("XGROUP", error("ERR wrong number of arguments for 'xgroup' command")),
        ("XGROUP CREATE s", error("ERR wrong number of arguments for 'xgroup|create' command")),
        ("XINFO FOO s", error("ERR unknown subcommand 'FOO'. Try XINFO HELP.")),
        ("XINFO STREAM none", error("ERR no such key")),
        (
            "XINFO STREAM s FOO",
            error(
                "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP."
            ),
        ),
        (
            "XINFO STREAM s FULL COUNT",
            error(
                "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP."
            ),
        ),
        ("XINFO STREAM s FULL COUNT abc", error("ERR value is not an integer or out of range")),
    ],
    "reading as consumers": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 2", b"2-1"),
        ("XADD s 3-1 a 3", b"3-1"),
        ("XADD s 4-1 a 4", b"4-1"),
        ("XGROUP CREATE s g 0", OK),
        ("XREADGROUP GROUP g alice COUNT 1 STREAMS s >", [[b"s", [[b"1-1", [b"a", b"1"]]]]]),
        (
            "XREADGROUP GROUP g bob COUNT 2 STREAMS s >",
            [[b"s", [[b"2-1", [b"a", b"2"]], [b"3-1", [b"a", b"3"]]]]],
        ),
        (
            "XREADGROUP GROUP g bob STREAMS s 0",
            [[b"s", [[b"2-1", [b"a", b"2"]], [b"3-1", [b"a", b"3"]]]]],
        ),
        ("XREADGROUP GROUP g bob COUNT 1 STREAMS s 2-1", [[b"s", [[b"3-1", [b"a", b"3"]]]]]),
        ("XREADGROUP GROUP g carol NOACK BLOCK 1 STREAMS s >", [[b"s", [[b"4-1", [b"a", b"4"]]]]]),
        ("XREADGROUP GROUP g carol STREAMS s >", NIL_ARRAY),
        ("XREADGROUP GROUP g carol STREAMS s 0", [[b"s", []]]),
        ("XPENDING s g", [3, b"1-1", b"3-1", [[b"alice", b"1"], [b"bob", b"2"]]]),
        ("XPENDING s g - + 10 alice", [[b"1-1", b"alice", 0, 1]]),
        ("XPENDING s g - + 10 none", []),
        ("XPENDING s g - + 0", []),
        ("XPENDING s g - + -1", []),
        ("XPENDING s g IDLE 100000000 - + 10", []),
        ("XPENDING s g IDLE abc - + 10", error("ERR value is not an integer or out of range")),
        ("XPENDING s g IDLE 1 - +", error("ERR syntax error")),
        ("XPENDING s g - + abc", error("ERR value is not an integer or out of range")),
        (
            "XPENDING s g abc + 10",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        (
            "XPENDING s g - abc 10",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        (
            "XPENDING s g (18446744073709551615-18446744073709551615 + 10",
            error("ERR invalid start ID for the interval"),
        ),
        ("XPENDING s g - (0-0 10", error("ERR invalid end ID for the interval")),
        ("XPENDING s g -", error("ERR syntax error")),
        ("XPENDING s none", error("NOGROUP No such key 's' or consumer group 'none'")),
        ("XPENDING none g", error("NOGROUP No such key 'none' or consumer group 'g'")),
        ("XACK s g 1-1 9-9", 1),
        ("XACK s none 1-1", 0),
        ("XACK none g 1-1", 0),
        ("XACK s g abc", error("ERR Invalid stream ID specified as stream command argument")),
        ("XDEL s 2-1", 1),
        (
            "XREADGROUP GROUP g bob STREAMS s 0",
            [[b"s", [[b"2-1", NIL_ARRAY], [b"3-1", [b"a", b"3"]]]]],
        ),
        (
            "XINFO GROUPS s",
            [
                fields(
                    name=b"g",
                    consumers=3,
                    pending=2,
                    last_delivered_id=b"4-1",
                    entries_read=4,
                    lag=0,
                )
            ],
        ),
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
        (
            "XREADGROUP GROUP g bob STREAMS s abc",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        (
            "XREADGROUP GROUP g bob STREAMS s s >",
            error(
                "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must "
                "be specified."
            ),
        ),
        (
            "XREADGROUP COUNT 1 NOACK STREAMS s s s s",
            error("ERR Missing GROUP option for XREADGROUP"),
        ),
        ("XREADGROUP GROUP g bob COUNT 1 BLOCK 5", error("ERR syntax error")),
    ],
    "claiming": [
        ("XADD s 1-1 a 1", b"1-1"),
        ("XADD s 2-1 a 2", b"2-1"),
        ("XADD s 3-1 a 3", b"3-1"),
        ("XGROUP CREATE s g 0", OK),
        (
            "XREADGROUP GROUP g alice STREAMS s >",
            [[b"s", [[b"1-1", [b"a", b"1"]], [b"2-1", [b"a", b"2"]], [b"3-1", [b"a", b"3"]]]]],
        ),
        ("XCLAIM s g bob 0 1-1", [[b"1-1", [b"a", b"1"]]]),
        ("XCLAIM s g bob 0 2-1 JUSTID", [b"2-1"]),
        ("XCLAIM s g bob 100000000 3-1", []),
        ("XCLAIM s g bob 0 3-1 IDLE 5 RETRYCOUNT 7 LASTID 9-9 FORCE JUSTID", [b"3-1"]),
        ("XCLAIM s g bob 0 3-1 TIME 1 RETRYCOUNT 7", [[b"3-1", [b"a", b"3"]]]),
        ("XCLAIM s g bob 0 9-9 FORCE", []),
        ("XCLAIM s g bob abc 1-1", error("ERR Invalid min-idle-time argument for XCLAIM")),
        ("XCLAIM s g bob 0 1-1 IDLE abc", error("ERR Invalid IDLE option argument for XCLAIM")),
        ("XCLAIM s g bob 0 1-1 TIME abc", error("ERR Invalid TIME option argument for XCLAIM")),
        (
            "XCLAIM s g bob 0 1-1 RETRYCOUNT abc",
            error("ERR Invalid RETRYCOUNT option argument for XCLAIM"),
        ),
        (
            "XCLAIM s g bob 0 1-1 LASTID abc",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        ("XCLAIM s g bob 0 1-1 FOO", error("ERR Unrecognized XCLAIM option 'FOO'")),
        ("XCLAIM s none bob 0 1-1", error("NOGROUP No such key 's' or consumer group 'none'")),
        ("XCLAIM none g bob 0 1-1", error("NOGROUP No such key 'none' or consumer group 'g'")),
        ("XDEL s 1-1", 1),
        ("XAUTOCLAIM s g carol 0 0 COUNT 1", [b"2-1", [], [b"1-1"]]),
        ("XAUTOCLAIM s g carol 0 - COUNT 10 JUSTID", [b"0-0", [b"2-1", b"3-1"], []]),
        ("XAUTOCLAIM s g carol 0 (2-1", [b"0-0", [[b"3-1", [b"a", b"3"]]], []]),
        ("XAUTOCLAIM s g carol 100000000 0", [b"0-0", [], []]),
        ("XAUTOCLAIM s g carol abc 0", error("ERR Invalid min-idle-time argument for XAUTOCLAIM")),
        (
            "XAUTOCLAIM s g carol 0 abc",
            error("ERR Invalid stream ID specified as stream command argument"),
        ),
        (
            "XAUTOCLAIM s g carol 0 (18446744073709551615-18446744073709551615",
            error("ERR invalid start ID for the interval"),
        ),
        ("XAUTOCLAIM s g carol 0 0 COUNT 0", error("ERR COUNT must be > 0")),
        ("XAUTOCLAIM s g carol 0 0 COUNT abc", error("ERR COUNT must be > 0")),
        ("XAUTOCLAIM s g carol 0 0 FOO", error("ERR syntax error")),
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
                fields(
                    name=b"end",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"3-1",
                    entries_read=None,
                    lag=0,
                ),
                fields(
                    name=b"g",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"0-0",
                    entries_read=None,
                    lag=3,
                ),
                fields(
                    name=b"middle",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"2-1",
                    entries_read=None,
                    lag=None,
                ),
            ],
        ),
        (
            "XREADGROUP GROUP g a COUNT 2 STREAMS s >",
            [[b"s", [[b"1-1", [b"a", b"1"]], [b"2-1", [b"a", b"2"]]]]],
        ),
        (
            "XINFO GROUPS s",
            [
                fields(
                    name=b"end",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"3-1",
                    entries_read=None,
                    lag=0,
                ),
                fields(
                    name=b"g",
                    consumers=1,
                    pending=2,
                    last_delivered_id=b"2-1",
                    entries_read=2,
                    lag=1,
                ),
                fields(
                    name=b"middle",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"2-1",
                    entries_read=None,
                    lag=None,
                ),
            ],
        ),
        ("XDEL s 2-1", 1),
        (
            "XINFO GROUPS s",
            [
                fields(
                    name=b"end",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"3-1",
                    entries_read=None,
                    lag=0,
                ),
                fields(
                    name=b"g",
                    consumers=1,
                    pending=2,
                    last_delivered_id=b"2-1",
                    entries_read=2,
                    lag=None,
                ),
                fields(
                    name=b"middle",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"2-1",
                    entries_read=None,
                    lag=None,
                ),
            ],
        ),
        ("XREADGROUP GROUP g a STREAMS s >", [[b"s", [[b"3-1", [b"a", b"3"]]]]]),
        (
            "XINFO GROUPS s",
            [
                fields(
                    name=b"end",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"3-1",
                    entries_read=None,
                    lag=0,
                ),
                fields(
                    name=b"g",
                    consumers=1,
                    pending=3,
                    last_delivered_id=b"3-1",
                    entries_read=3,
                    lag=0,
                ),
                fields(
                    name=b"middle",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"2-1",
                    entries_read=None,
                    lag=None,
                ),
            ],
        ),
        ("XTRIM s MAXLEN 0", 2),
        (
            "XINFO GROUPS s",
            [
                fields(
                    name=b"end",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"3-1",
                    entries_read=None,
                    lag=0,
                ),
                fields(
                    name=b"g",
                    consumers=1,
                    pending=3,
                    last_delivered_id=b"3-1",
                    entries_read=3,
                    lag=0,
                ),
                fields(
                    name=b"middle",
                    consumers=0,
                    pending=0,
                    last_delivered_id=b"2-1",
                    entries_read=None,
                    lag=0,
                ),
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
            fields(
                length=0,
                radix_tree_keys=0,
                radix_tree_nodes=1,
                last_generated_id=b"3-1",
                max_deleted_entry_id=b"2-1",
                entries_added=3,
                recorded_first_entry_id=b"0-0",
                entries=[],
                groups=[
                    fields(
                        name=b"end",
                        last_delivered_id=b"3-1",
                        entries_read=None,
                        lag=0,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                    fields(
                        name=b"g",
                        last_delivered_id=b"3-1",
                        entries_read=3,
                        lag=0,
                        pel_count=3,
                        pending=[
                            [b"1-1", b"a", 1767225600000, 1],
                            [b"2-1", b"a", 1767225600000, 1],
                            [b"3-1", b"a", 1767225600000, 1],
                        ],
                        consumers=[
                            fields(
                                name=b"a",
                                seen_time=1767225600000,
                                pel_count=3,
                                pending=[
                                    [b"1-1", 1767225600000, 1],
                                    [b"2-1", 1767225600000, 1],
                                    [b"3-1", 1767225600000, 1],
                                ],
                            )
                        ],
                    ),
                    fields(
                        name=b"middle",
                        last_delivered_id=b"2-1",
                        entries_read=None,
                        lag=0,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                ],
            ),
        ),
        ("XADD s 9-1 a 1", b"9-1"),
        ("XADD s 9-2 a 1", b"9-2"),
        (
            "XINFO STREAM s FULL COUNT 1",
            fields(
                length=2,
                radix_tree_keys=1,
                radix_tree_nodes=2,
                last_generated_id=b"9-2",
                max_deleted_entry_id=b"2-1",
                entries_added=5,
                recorded_first_entry_id=b"9-1",
                entries=[[b"9-1", [b"a", b"1"]]],
                groups=[
                    fields(
                        name=b"end",
                        last_delivered_id=b"3-1",
                        entries_read=None,
                        lag=2,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                    fields(
                        name=b"g",
                        last_delivered_id=b"3-1",
                        entries_read=3,
                        lag=2,
                        pel_count=3,
                        pending=[[b"1-1", b"a", 1767225600000, 1]],
                        consumers=[
                            fields(
                                name=b"a",
                                seen_time=1767225600000,
                                pel_count=3,
                                pending=[[b"1-1", 1767225600000, 1]],
                            )
                        ],
                    ),
                    fields(
                        name=b"middle",
                        last_delivered_id=b"2-1",
                        entries_read=None,
                        lag=2,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                ],
            ),
        ),
        (
            "XINFO STREAM s FULL COUNT 0",
            fields(
                length=2,
                radix_tree_keys=1,
                radix_tree_nodes=2,
                last_generated_id=b"9-2",
                max_deleted_entry_id=b"2-1",
                entries_added=5,
                recorded_first_entry_id=b"9-1",
                entries=[[b"9-1", [b"a", b"1"]], [b"9-2", [b"a", b"1"]]],
                groups=[
                    fields(
                        name=b"end",
                        last_delivered_id=b"3-1",
                        entries_read=None,
                        lag=2,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                    fields(
                        name=b"g",
                        last_delivered_id=b"3-1",
                        entries_read=3,
                        lag=2,
                        pel_count=3,
                        pending=[
                            [b"1-1", b"a", 1767225600000, 1],
                            [b"2-1", b"a", 1767225600000, 1],
                            [b"3-1", b"a", 1767225600000, 1],
                        ],
                        consumers=[
                            fields(
                                name=b"a",
                                seen_time=1767225600000,
                                pel_count=3,
                                pending=[
                                    [b"1-1", 1767225600000, 1],
                                    [b"2-1", 1767225600000, 1],
                                    [b"3-1", 1767225600000, 1],
                                ],
                            )
                        ],
                    ),
                    fields(
                        name=b"middle",
                        last_delivered_id=b"2-1",
                        entries_read=None,
                        lag=2,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                ],
            ),
        ),
        (
            "XINFO STREAM s FULL COUNT -1",
            fields(
                length=2,
                radix_tree_keys=1,
                radix_tree_nodes=2,
                last_generated_id=b"9-2",
                max_deleted_entry_id=b"2-1",
                entries_added=5,
                recorded_first_entry_id=b"9-1",
                entries=[[b"9-1", [b"a", b"1"]], [b"9-2", [b"a", b"1"]]],
                groups=[
                    fields(
                        name=b"end",
                        last_delivered_id=b"3-1",
                        entries_read=None,
                        lag=2,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                    fields(
                        name=b"g",
                        last_delivered_id=b"3-1",
                        entries_read=3,
                        lag=2,
                        pel_count=3,
                        pending=[
                            [b"1-1", b"a", 1767225600000, 1],
                            [b"2-1", b"a", 1767225600000, 1],
                            [b"3-1", b"a", 1767225600000, 1],
                        ],
                        consumers=[
                            fields(
                                name=b"a",
                                seen_time=1767225600000,
                                pel_count=3,
                                pending=[
                                    [b"1-1", 1767225600000, 1],
                                    [b"2-1", 1767225600000, 1],
                                    [b"3-1", 1767225600000, 1],
                                ],
                            )
                        ],
                    ),
                    fields(
                        name=b"middle",
                        last_delivered_id=b"2-1",
                        entries_read=None,
                        lag=2,
                        pel_count=0,
                        pending=[],
                        consumers=[],
                    ),
                ],
            ),
        ),
    ],
    "keys of other types": [
        ("SET str v", OK),
        (
            "XADD str 1-1 a 1",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        ("XLEN str", error("WRONGTYPE Operation against a key holding the wrong kind of value")),
        (
            "XRANGE str - +",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XREVRANGE str + -",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XDEL str 1-1",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XTRIM str MAXLEN 1",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XREAD STREAMS str 0",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XSETID str 1-1",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XGROUP CREATE str g 0",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XGROUP CREATE str g 0 MKSTREAM",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XGROUP DESTROY str g",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XREADGROUP GROUP g c STREAMS str >",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XACK str g 1-1",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XPENDING str g",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XCLAIM str g c 0 1-1",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XAUTOCLAIM str g c 0 0",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XINFO STREAM str",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (
            "XINFO GROUPS str",
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
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
