"""The grammar of hostile input: values, bodies, patterns, and damage to bytes.

Requests are generated for every service from the same values. The two wire protocols have a grammar of
frames each (``tests/http/fuzzing.py`` and ``tests/kv/fuzzing.py``), which ``Fuzzer`` plays.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

DEEP = 100_000
I64_MAX = 2**63 - 1
EXTREMES = [2**31, 2**62, I64_MAX, -I64_MAX - 1, -1, 2**63, 10**30]
NUMBERS: list[Any] = [
    0, 1, 2, 3, 10, -1, *EXTREMES, 2**64 - 1, -(2**64), 10**12, 10**400, 0.5, -0.0, 1.5, 1e38, -3e38,
    1e-40, 1e308, float("inf"), float("-inf"), float("nan"), 99, 503, 600,
]  # fmt: skip
STRINGS = [
    "", " ", "0", "a", "x", "a b", "n = 1", "\0", "\ud800", "é", "ü☃", "x" * 250, "9" * 400, "1h", "-1s",
    "../../etc/passwd", "<b>", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2026-01-01",
]  # fmt: skip
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], {"": ""}, {"$": "x"}]
numbers = st.sampled_from(NUMBERS)


def values(words: Sequence[str] = ()) -> st.SearchStrategy[Any]:
    """JSON values of any shape; ``words`` are strings with a meaning, also for names of fields."""
    common = st.sampled_from([*words, *STRINGS])
    return st.recursive(
        st.one_of(st.sampled_from(OTHERS), numbers, common),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(common, inner, max_size=5),
        max_leaves=8,
    )


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


MALFORMED = {
    "nothing": b"",
    "opened deep": b"[" * DEEP,
    "closed deep": b"[" * DEEP + b"]" * DEEP,
    "objects deep": b'{"a":' * DEEP,
    "mixed deep": b'[{"a":' * DEEP,
    "no UTF-8": b'["SET","k","\xff\xfe"]',
    "no UTF-8 at all": b"\xff" * 100,
    "UTF-16": '["PING"]'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf["PING"]',
    "byte order mark of an object": b"\xef\xbb\xbf{}",
    "cut off": b'["SET","k"',
    "opened": b"{",
    "not a number": b'["SET","k",NaN]',
    "only no number": b"NaN",
    "infinite": b'["SET","k",-Infinity]',
    "infinite field": b'{"seed":-Infinity}',
    "too large a float": b'["SET","k",1e999]',
    "half a surrogate": b'["ECHO","\\ud800"]',
    "half a surrogate in an object": b'{"id":"\\ud800"}',
    "many digits": b'["ECHO",' + b"9" * DEEP + b"]",
    "many digits in an object": b'{"seed":' + b"9" * 5000 + b"}",
    "only digits": b"9" * 6000,
}
"""Bodies that are not JSON, or JSON that no service expects."""
WRONG_SHAPES = {
    "null": b"null",
    "null argument": b'["GET",null]',
    "object argument": b'["GET",{}]',
    "array argument": b'["GET",[]]',
    "three arrays": b'[[["GET","a"]]]',
    "a string": b'"GET"',
    "a number": b"5",
    "a boolean": b"[true]",
    "empty name": b'[""]',
    "empty names": b'[[""],["PING"]]',
    "11 MB": b'["SET","k","' + b"x" * 11_000_000 + b'"]',
    "11 MB in an array": b'[["SET","k","' + b"x" * 11_000_000 + b'"]]',
    "11 MB of nothing": b"x" * 11_000_000,
    "many arguments": b'["DEL"' + b',"k"' * DEEP + b"]",
    "many commands": b"[" + b'["PING"],' * 5_000 + b'["PING"]]',
}
"""Bodies of the key-value store that are JSON but not commands, or very large."""


def bodies(*likely: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Bodies of requests: JSON that a service may expect, and bytes of any kind."""
    return st.one_of(
        st.binary(max_size=20),
        st.sampled_from(list(MALFORMED.values())),
        st.one_of(*likely).map(as_json),
    )


SEGMENTS = [
    "1",
    "0",
    "-1",
    "9" * 30,
    "ü",
    "%",
    "%00",
    "%ff",
    "%2F",
    "a%20b",
    "..",
    "x" * 250,
    "nobody",
]
"""Segments of paths."""
QUERIES = [
    "", "/", "?", "?after=1", "?after=-1", "?after=x", "?id=%ff&id", "?&&=", "?timeout=0", "?timeout=",
    "?timeout=1e9", "?timeout=999999999999", "?topic=orders", "?key=%ff", "?topic=%ff&user=&pass=",
]  # fmt: skip
GLOBS = [
    "a*a*a*a*a*b", "*a" * 40 + "b", "*a" * 500 + "b", "a*" * 200 + "b", "*" * 5000, "*" * 10_000 + "b",
    "[" * 3000, "[^" * 1000 + "]", "[^" * 100, "[a-" * 1000, "*" + "[ab]" * 2000 + "c*", "?" * 5000,
    "?*" * 300, "?*" * 20_000, "*?" * 200, "\\" * 5001, "a" * 1_000_000,
]  # fmt: skip
"""Globs that a matcher with backtracking would try for minutes."""
JSON_PATHS = [
    "$" + ".a" * 20_000, "$" + "..a" * 2000, "$" + "..*" * 12, "$" + "..*" * 30, "$.." * 1000,
    "$" + "[*]" * 1000, "$[" * 1000, "$[" + "0," * 20_000 + "0]", "$" + "[0,0]" * 60, "$[::0]",
    "$[0:9999999999:-1]", "$[?(" + "(" * 5000, "$[?(" + "(" * 1000 + "@.a" + ")" * 1000 + ")]",
    "$[?(@.a" + "==@.a" * 500 + ")]", "$[?(@.a=='x" * 500, "$[?@.a" + "&&@.a" * 1000 + "]",
    "$[?(@.a=~'(a+)+$')]", '$[?(@=~"(a+)+$")]', "$['" + "x" * DEEP + "']",
]  # fmt: skip
DOCUMENTS = [
    "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP, "9" * DEEP, "1" * DEEP, "1e400",
    "1e" + "9" * 999, "1" + "0" * 5000, "-", "nul", "[1,]", '"\\ud800"', '"' + "\\u0000" * 50_000 + '"',
    '"' + "x" * 1_000_000 + '"', "[" + "1," * DEEP + "1]",
]  # fmt: skip
FILTERS = [
    "(" * 5000 + "a = 1", "a = 1" + " AND a = 1" * 5000, "NOT " * 5000 + "a = 1",
    "a IN (" + "1," * 20_000 + "1)", "a GLOB '" + "*a" * 60 + "b'", "a" + ".b" * 5000 + " = 1",
    "a[" * 3000, "a = '" + "x" * 200_000 + "'",
]  # fmt: skip
"""Filters of the index."""


def damaged(
    data: bytes,
    luck: random.Random,
    marks: Sequence[bytes],
    times: Sequence[int] = (0, 0, 0, 0, 1, 3),
    below: int = 256,
) -> bytes:
    """Return the bytes with some of them replaced, removed or inserted, perhaps none."""
    changed = bytearray(data)
    for _ in range(luck.choice(times)):
        at = luck.randrange(len(changed) + 1)
        damage = luck.choice([b"", b"\0", *marks, bytes([luck.randrange(below)])])
        changed[at : at + luck.choice([0, 1, 1, 20])] = damage
    return bytes(changed)


def packets(data: bytes, luck: random.Random) -> list[bytes]:
    """Split the data into packets."""
    edges = sorted(luck.randrange(len(data) + 1) for _ in range(luck.randint(0, 8)))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True) if a < b]


def exchanged(address: tuple[str, int], data: bytes) -> bytes:
    """Send the data to a port, and return what comes back; the connection ends in ten seconds."""
    got = b""
    with socket.create_connection(address, 10) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65536):
                got += part
    return got


@dataclass
class Fuzzer:
    """A wire protocol: how one connection is tried on its parser, and how on an open port."""

    parse: Callable[[random.Random], str]
    port: Callable[[], AbstractContextManager[Callable[[random.Random], str]]]

    def run(self, rounds: int, on_port: int, seed: int = 0) -> tuple[Counter[str], Counter[str]]:
        """Run that many rounds on the parser and on a port; return how they ended."""
        luck = random.Random(seed)
        parsed = Counter(self.parse(luck) for _ in range(rounds))
        with self.port() as attempt:
            return parsed, Counter(attempt(luck) for _ in range(on_port))

    def main(self) -> None:
        """Run the rounds and the seed of the command line; a hundredth of the rounds on a port."""
        rounds, *seed = map(int, sys.argv[1:])
        print(*self.run(rounds, rounds // 100, *seed), sep="\n")
