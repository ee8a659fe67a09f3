"""How the work of commands grows with their data: in the same class as on a real server.

Work is counted, not timed: the bytecode instructions that run, and the memory that is allocated in
the meantime. Elements are strings whose methods are written in Python, so a loop in C that uses the
elements counts as well, and so does one that copies them. Each line (`lines.py`) runs first without
being counted: what the first one builds for later ones (an order, a sum) is paid once.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.settings import KVConfig
from tests.kv.conftest import NOW, argv
from tests.kv.lines import DATA, DERIVED, GROWTH, LINES_FILE, WITHOUT_LINE, WRITTEN
from tests.notations import complete

SIZES = (600, 1800, 5400)
SMALL_SIZES = (150, 450, 1350)
"""For work that is linear, which differs enough at sizes that are counted in less time. Values with
fewer than 128 elements have other encodings.
"""
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


def growth(filled: list[Filled], measured: Callable[[Filled], int]) -> list[float]:
    """Return by how much the work grows from each size to the next, per element that was added."""
    counts = [measured(engine) for engine in filled]
    return [
        (more - fewer) / (right.size - left.size)
        for (fewer, more), (left, right) in zip(pairwise(counts), pairwise(filled), strict=True)
    ]


def is_constant(steps_per_element: list[float]) -> bool:
    # Even one step for twenty elements would be 180 steps more for the largest size.
    return all(steps < 0.05 for steps in steps_per_element)


def is_logarithmic(steps_per_element: list[float]) -> bool:
    # A loop takes at least one step for each element.
    return all(steps < 0.2 for steps in steps_per_element)


def is_linear(steps_per_element: list[float]) -> bool:
    return all(steps >= 0.5 for steps in steps_per_element) and is_at_most_linear(steps_per_element)


def is_at_most_linear(steps_per_element: list[float]) -> bool:
    # A square would triple from one size to the next. Sorting grows a little faster than its data.
    first, second = steps_per_element
    return second < 1.5 * first + 2


@pytest.fixture(scope="module")
def filled() -> list[Filled]:
    return [Filled(size, dialect="vendor") for size in SIZES]


def of_line(line: str) -> Callable[[Filled], int]:
    *before, measured = line.split(" ; ")

    def run(filled: Filled) -> int:
        for command in (*before, measured, *before):
            filled.run(command)
        return work(lambda: filled.run(measured))

    return run


CLASSES = {
    "constant": is_constant,
    "constant, with maxmemory": is_constant,
    "logarithmic": is_logarithmic,
    "linear": is_linear,
    "at most linear": is_at_most_linear,
}


@pytest.fixture(scope="module")
def small() -> list[Filled]:
    return [Filled(size, dialect="vendor") for size in SMALL_SIZES]


@pytest.fixture(scope="module")
def bounded() -> list[Filled]:
    """Engines that measure each key that changes, because the size of their data is limited, and in
    lines that say so their memory.
    """
    return [Filled(size, dialect="vendor", max_data_size=10**9) for size in SIZES]


@pytest.mark.slow
@pytest.mark.completeness
@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in GROWTH.items() for line in lines]
)
def test_work_grows_as_on_a_server(request: pytest.FixtureRequest, name: str, line: str) -> None:
    """Lines that read everything show that loops are counted, also those in C."""
    engines = "bounded" if "maxmemory" in name else "small" if "linear" in name else "filled"
    filled = request.getfixturevalue(engines)
    for _ in range(5):
        steps_per_element = growth(filled, of_line(line))
        if CLASSES[name](steps_per_element):
            break
        # Other threads, such as those of xdist, also allocate memory.
    else:
        steps = ", ".join(f"{steps:.2f}" for steps in steps_per_element)
        missing = f"below another heading than `== {name}`: {line}\n({steps} steps per element)"
        complete(LINES_FILE, [missing])


@pytest.mark.completeness
def test_every_command_with_data_has_a_line() -> None:
    filled = Filled(30, dialect="vendor")
    derived = {name for name, line in DERIVED.items() if succeeds(filled, line)}
    complete(
        LINES_FILE,
        (
            f"below {' or '.join(f'`== {growth}`' for growth in CLASSES)}: {name} <arguments>"
            for name in sorted(DATA.keys() - WRITTEN - derived - WITHOUT_LINE)
        ),
        "WITHOUT_LINE of tests/kv/lines.py",
    )
    assert not WRITTEN & WITHOUT_LINE


def succeeds(filled: Filled, line: str) -> bool:
    try:
        for command in line.split(" ; "):
            filled.run(command)
    except CommandError:
        return False
    return True


@pytest.fixture(scope="module")
def evictable() -> list[Filled]:
    # Evicting a large key would leave no need to evict another one.
    return [Filled(size, large=False, dialect="vendor") for size in SIZES]


@pytest.mark.parametrize(
    "policy", ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"]
)
def test_an_eviction_compares_a_bounded_number_of_keys(
    evictable: list[Filled], policy: str
) -> None:
    def evict(filled: Filled) -> int:
        used = filled.engine.sizes.used_memory()
        filled.run(f"CONFIG SET maxmemory {used} maxmemory-policy {policy}")

        def exceed(member: bytes) -> None:
            while filled.engine.sizes.used_memory() <= used:  # A random policy may evict this key.
                filled.fill(b"SADD", b"few", member * 50)
                member += b"-"

        exceed(b"a")
        filled.run("SADD few a")
        exceed(b"b")
        before = filled.engine.memory.evicted
        steps = work(lambda: filled.run("SADD few a"))
        assert filled.engine.memory.evicted > before
        return steps

    assert is_constant(growth(evictable, evict))


def test_a_write_to_a_database_of_limited_size_looks_at_its_key_only(bounded: list[Filled]) -> None:
    def write(filled: Filled) -> int:
        client = filled.engine.session(interface="rest")
        lines = [argv((line,)) for line in ("SET new x", "HSET hash new x", "RPUSH list x")]

        def write_all() -> None:
            for words in lines:
                filled.engine.execute(client, words)

        write_all()
        return work(write_all)

    assert is_constant(growth(bounded, write))


def test_what_has_not_expired_is_not_looked_at() -> None:
    """DBSIZE first removes expired keys and fields: here two keys, and two hashes with one field."""

    def expire_some(filled: Filled) -> int:
        filled.clock.advance("1000s")
        size = filled.run("DBSIZE")
        filled.clock.advance("2s")
        steps = work(lambda: filled.run("DBSIZE"))
        assert filled.run("DBSIZE") == size - 4
        return steps

    filled = [Filled(size, dialect="vendor") for size in SIZES]
    for engine in filled:
        engine.clock.freeze()
    assert is_logarithmic(growth(filled, expire_some))
