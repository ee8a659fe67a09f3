"""How the work of commands grows with their data: in the same class as on a real server.

Each line (`lines.py`) runs first without being counted: what the first one builds for later ones (an
order, a sum) is paid once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from pytest_fakecloud.kv.errors import CommandError
from tests.kv.conftest import argv
from tests.kv.growth import Filled, work
from tests.kv.lines import DATA, DERIVED, GROWTH, LINES_FILE, WITHOUT_LINE, WRITTEN
from tests.notations import complete

SIZES = (600, 1800, 5400)
SMALL_SIZES = (150, 300, 600)
"""For work that is linear, which differs enough at sizes that are counted in less time. Values with
fewer than 128 elements have other encodings.
"""


def growth(filled: list[Filled], measured: Callable[[Filled], int]) -> list[float]:
    """Return by how much the work grows from each size to the next, per element that was added."""
    counts = [measured(engine) for engine in filled]
    return [
        (more - fewer) / (right.size - left.size)
        for (fewer, more), (left, right) in zip(pairwise(counts), pairwise(filled), strict=True)
    ]


def wrong_growth(
    is_expected: Callable[[list[float]], bool],
    filled: list[Filled],
    measured: Callable[[Filled], int],
) -> str:
    """Return an empty string if the work grows as expected, or else the steps per element. Measure again
    before that, because other threads, such as those of xdist, also allocate memory.
    """
    for _ in range(5):
        steps_per_element = growth(filled, measured)
        if is_expected(steps_per_element):
            return ""
    return ", ".join(f"{steps:.2f}" for steps in steps_per_element)


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
    if steps := wrong_growth(CLASSES[name], filled, of_line(line)):
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

    assert not wrong_growth(is_constant, evictable, evict)


def test_a_write_to_a_database_of_limited_size_looks_at_its_key_only(bounded: list[Filled]) -> None:
    def write(filled: Filled) -> int:
        client = filled.engine.session(interface="rest")
        lines = [argv((line,)) for line in ("SET new x", "HSET hash new x", "RPUSH list x")]

        def write_all() -> None:
            for words in lines:
                filled.engine.execute(client, words)

        write_all()
        return work(write_all)

    assert not wrong_growth(is_constant, bounded, write)


def test_what_has_not_expired_is_not_looked_at() -> None:
    """DBSIZE first removes expired keys and fields: here two keys, and two hashes with one field."""

    def expire_some(filled: Filled) -> int:
        filled.clock.advance("1000s")
        size = filled.run("DBSIZE")
        filled.clock.advance("2s")
        steps = work(lambda: filled.run("DBSIZE"))
        assert filled.run("DBSIZE") == size - 4
        return steps

    filled = [Filled(size, large=False, dialect="vendor") for size in SIZES]
    for engine in filled:
        engine.clock.freeze()
    assert not wrong_growth(is_logarithmic, filled, expire_some)
