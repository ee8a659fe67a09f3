"""HyperLogLogs: command lines, and the replies of Redis 7.0 or Valkey 9.1."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import OK

from . import WRONG_TYPE, Scenario, error, status

INVALID_HYPERLOGLOG = error("WRONGTYPE Key is not a valid HyperLogLog string value.")

SCENARIOS: dict[str, Scenario] = {
    "counting": [
        ("PFADD h a b c d e f g", 1),
        ("PFADD h a b", 0),
        ("PFADD h", 0),
        ("PFADD empty", 1),
        ("PFADD empty", 0),
        ("PFCOUNT h", 7),
        ("PFCOUNT none", 0),
        ("PFCOUNT h none", 7),
        (
            "GET h",
            (
                b"HYLL\x01\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00"
                b"Fm\x80V\x0c\x80D<\x848\x80P\xb1\x84I\x8c"
                b"\x80Bm\x80BZ"
            ),
        ),
        ("OBJECT ENCODING h", b"raw"),
        ("PFCOUNT h", 7),
        (
            "GET h",
            (
                b"HYLL\x01\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00"
                b"Fm\x80V\x0c\x80D<\x848\x80P\xb1\x84I\x8c"
                b"\x80Bm\x80BZ"
            ),
        ),
        ("PFDEBUG ENCODING h", status("sparse")),
        (
            "PFDEBUG DECODE h",
            (
                b"Z:1646 v:1,1 Z:5"
                b"645 v:1,1 Z:1085"
                b" v:2,1 z:57 v:1,"
                b"1 Z:4274 v:2,1 Z"
                b":2445 v:1,1 Z:62"
                b"2 v:1,1 Z:603"
            ),
        ),
        ("PFDEBUG GETREG none", error("ERR The specified key does not exist")),
    ],
    "merging": [
        ("PFADD a 1 2 3", 1),
        ("PFADD b 3 4 5", 1),
        ("PFMERGE c a b", OK),
        ("PFCOUNT c", 5),
        ("PFCOUNT a b", 5),
        (
            "GET c",
            (
                b"HYLL\x01\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00"
                b"A\xee\x84H#\x80SQ\x80Mt\x80Q,\x8cC"
                b"\xf3"
            ),
        ),
        ("PFMERGE d", OK),
        ("PFMERGE a none", OK),
        ("PFDEBUG TODENSE a", 1),
        ("PFDEBUG TODENSE a", 0),
        ("PFDEBUG ENCODING a", status("dense")),
        ("PFDEBUG DECODE a", error("ERR HLL encoding is not sparse")),
        ("PFMERGE b a", OK),
        ("PFDEBUG ENCODING b", status("dense")),
        ("PFCOUNT b", 5),
        ("STRLEN b", 12304),
        ("PFSELFTEST", OK),
    ],
    "not a HyperLogLog": [
        ("SET s hello", OK),
        ("PFADD s a", INVALID_HYPERLOGLOG),
        ("PFCOUNT s", INVALID_HYPERLOGLOG),
        ("PFCOUNT s none", INVALID_HYPERLOGLOG),
        ("PFMERGE s", INVALID_HYPERLOGLOG),
        ("PFMERGE h s", INVALID_HYPERLOGLOG),
        ("PFDEBUG ENCODING s", INVALID_HYPERLOGLOG),
        ("PFDEBUG ENCODING none", error("ERR The specified key does not exist")),
        ("PFADD h a", 1),
        ("PFDEBUG FOO h", error("ERR Unknown PFDEBUG subcommand 'FOO'")),
        ("RPUSH l a", 1),
        ("PFADD l a", WRONG_TYPE),
        ("PFCOUNT l", WRONG_TYPE),
        ("PFMERGE l", WRONG_TYPE),
        ("PFMERGE h l", WRONG_TYPE),
        ("PFDEBUG GETREG l", WRONG_TYPE),
        ("PFADD", error("ERR wrong number of arguments for 'pfadd' command")),
        ("PFDEBUG GETREG", error("ERR wrong number of arguments for 'pfdebug' command")),
    ],
}
