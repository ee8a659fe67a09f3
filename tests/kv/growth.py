"""Engines with filled keys, and the work of a call on one.

Work is counted, not timed: the bytecode instructions that run, and the memory that is allocated in
the meantime. Elements are strings whose methods are written in Python, so a loop in C that uses the
elements counts as well, and so does one that copies them.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.table.registry import EVERYTHING
from tests.kv.conftest import NOW, argv

POINTER = 8
"""Bytes of a reference: a list of n elements takes at least n of them."""


class Element(bytes):
    def __hash__(self) -> int:
        return bytes.__hash__(self)

    def __eq__(self, other: object) -> bool:
        return bytes.__eq__(self, other)

    def __lt__(self, other: bytes) -> bool:
        return bytes.__lt__(self, other)

    def __len__(self) -> int:
        return bytes.__len__(self)


class Time(int):
    def __lt__(self, other: float) -> bool:
        return int(self) < other

    def __le__(self, other: float) -> bool:
        return int(self) <= other

    def __gt__(self, other: float) -> bool:
        return int(self) > other


class Filled:
    """An engine with ``size`` keys and, unless left out, keys with ``size`` elements of each type."""

    def __init__(self, size: int, *, large: bool = True, **settings: Any) -> None:
        self.clock = Timekeeper(NOW)
        settings = {"max_pending_entries": None, **settings}
        self.engine = KVEngine(self.clock, Ids(1), KVConfig(**settings))
        self.session = self.engine.session(interface="port")
        self.tester = self.engine.session()
        self.size = size
        if large:
            self._fill_large_keys()
        self.fill(b"RPUSH", b"short", b"1", b"2", b"3", b"4", b"5")
        self.fill(b"SADD", b"some", b"e1", b"e2", b"e3")
        self.fill(b"ZADD", b"zsome", b"1", b"e1", b"2", b"e2")
        index = b"SEARCH.CREATE index ON JSON PREFIX 1 doc: SCHEMA t TEXT n F64 FAST"
        self.fill(*index.split())
        for n in range(size):
            words = b"word%d of a vocabulary" % (n % 50)
            self.fill(b"JSON.SET", b"doc:%d" % n, b"$", b'{"t":"%b","n":%d}' % (words, n))
        self.fill(b"JSON.SET", b"doc:match", b"$", b'{"t":"running sneakers","n":-1}')
        self.fill(b"SEARCH.WAITINDEXING", b"index")
        for n in range(size):
            self.fill(b"SET", Element(b"k%d" % n), b"v", b"EX", b"%d" % (1000 + n))
        db = self.engine.databases[0]
        for n in range(size):
            # Hashes with a field that expires: the database knows when.
            self.fill(b"HSET", b"h%d" % n, b"f", b"v")
            db.values[b"h%d" % n].expire_at(b"f", self.engine.execution.now_ms + 1000 * (1000 + n))
            db.volatile.put(b"h%d" % n, Time(self.engine.execution.now_ms + 1000 * (1000 + n)))
        for key, at_ms in list(db.expires.items()):
            db.expires.put(key, Time(at_ms))

    def _fill_large_keys(self) -> None:
        elements = [Element(b"e%d" % n) for n in range(self.size)]
        numbers = [b"%d" % n for n in range(self.size)]
        pairs = [word for pair in zip(elements, numbers, strict=True) for word in pair]
        sparse = [
            word for n, member in enumerate(elements) for word in (b"%d" % (9999 * n), member)
        ]
        scores = [word for pair in zip(numbers, elements, strict=True) for word in pair]
        self.fill(b"RPUSH", b"list", *elements)
        self.fill(b"SADD", b"set", *elements)
        self.fill(b"ZADD", b"zset", *scores)
        self.fill(b"HSET", b"hash", *pairs)
        self.fill(b"ARSET", b"array", b"0", *elements)
        self.fill(b"ARMSET", b"sparse", *sparse)
        self.fill(b"ARRING", b"ring", b"%d" % self.size, *elements)
        self.fill(b"HSET", b"ttls", *pairs)
        self.fill(b"SET", b"string", b"x" * self.size)
        self.fill(b"ZADD", b"same", *(word for element in elements for word in (b"0", element)))
        self.fill(b"PFADD", b"hll", *(b"h%d" % n for n in range(3000 + self.size)))
        for n, element in enumerate(elements):
            self.fill(b"GEOADD", b"geo", b"%d" % (n % 180), b"%d" % (n % 80), element)
        items = b",".join(numbers)
        self.fill(*b"VECTOR.CREATE vectors DIM 2 METRIC EUCLIDEAN".split())
        for element, number in zip(elements, numbers, strict=True):
            self.fill(b"VECTOR.ADD", b"vectors", element, b"VALUES", b"2", b"1", number)
        names = b",".join(b'"%b":1' % element for element in elements)
        text = b'{"a":[%b],"o":{%b},"s":"x","n":1,"b":true,"few":[1,2]}' % (items, names)
        self.fill(b"JSON.SET", b"json", b"$", text)
        db = self.engine.databases[0]
        ttls = db.values[b"ttls"]
        for n, element in enumerate(elements):
            self.fill(b"XADD", b"stream", b"%d-1" % (n + 1), b"f", b"v")
            ttls.expire_at(element, Time(self.engine.execution.now_ms + 1000 * (1000 + n)))
        self.fill(b"XGROUP", b"CREATE", b"stream", b"group", b"0")
        self.fill(b"XGROUP", b"CREATE", b"stream", b"fresh", b"0")
        self.fill(*b"XREADGROUP GROUP group one STREAMS stream >".split())
        db.note_fields(b"ttls", ttls)

    def fill(self, *words: bytes) -> None:
        self.engine.execute(self.tester, list(words))

    def run(self, line: str) -> Any:
        # Clients of the vendor's service cannot set parameters of memory.
        session = self.tester if line.startswith("CONFIG ") else self.session
        return self.engine.execute(session, argv((line,)))

    def dumps(self, line: str) -> list[tuple[Any, Any]]:
        """Return the payload and the TTL of each key of a line. Indexes have no payload."""
        execute, words = self.engine.execute, argv((line,))
        return [
            (execute(self.tester, [b"DUMP", words[at]]), execute(self.tester, [b"PTTL", words[at]]))
            for at, _ in EVERYTHING.resolve(words).key_positions(words)
        ]


def work(run: Callable[[], object]) -> int:
    """Return the number of instructions of a call plus the number of references that it allocated."""
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        steps += event == "opcode"
        return count

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return count

    before = sys.gettrace()
    gc.disable()  # A collection would run finalizers, and free memory of others.
    tracemalloc.start()
    tracemalloc.reset_peak()
    at_start, _ = tracemalloc.get_traced_memory()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gc.enable()
    return steps + (peak - at_start) // POINTER
