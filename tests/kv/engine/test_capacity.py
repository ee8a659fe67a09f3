"""Limits on data, to the byte: what just fits is accepted, and rejected with one byte less."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.engine import limits
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import OOM, CommandError
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.values.measures import content_size, usage
from tests.harness import check_each
from tests.kv.conftest import NOW, argv
from tests.kv.table import TABLE_FILE
from tests.notations import complete, rows


def cases(heading: str) -> list[tuple[list[str], str, int]]:
    """Return the commands before, the command, and the size that just fits, of each row."""
    split = [
        (commands.split(" ; "), int(size))
        for commands, size in rows(Path(__file__).with_name("capacity.txt"), heading, raw=True)
    ]
    return [(before, line, size) for (*before, line), size in split]


class Bounded:
    """An engine with these limits only; the test stores its data, which no limit applies to."""

    def __init__(self, *before: str, **limits: int) -> None:
        self.clock = Timekeeper(NOW)
        self.engine = KVEngine(self.clock, Ids(7), KVConfig(**{"max_key_size": None, **limits}))
        self._client = self.engine.session(interface="rest")
        tester = self.engine.session()
        for line in before:
            self.engine.execute(tester, argv((line,)))

    def __call__(self, *words: str | bytes) -> object:
        return self.engine.execute(self._client, argv(words))

    def error(self, *words: str | bytes) -> bytes | None:
        try:
            self(*words)
        except CommandError as error:
            return error.text
        return None

    def used(self) -> int:
        values = self.engine.databases[0].values
        return sum(usage(key, value) for key, value in values.items())

    def refusal(self, *words: str | bytes) -> str:
        """Return the error of a command, which must not have changed anything."""
        self("PING")  # expired keys are removed before the next command
        before = self._sizes()
        with pytest.raises(CommandError) as caught:
            self(*words)
        assert self._sizes() == before
        return str(caught.value)

    def _sizes(self) -> dict[bytes, int]:
        self.engine.databases[0].purge()
        return {key: content_size(value) for key, value in self.engine.databases[0].values.items()}


def test_a_record_may_be_as_large_as_the_bound() -> None:
    def check(before: list[str], line: str, size: int) -> None:
        bounded = Bounded(*before, max_record_size=size)
        bounded.clock.advance(1)  # expired keys take no room
        bounded(line)
        bounded = Bounded(*before, max_record_size=size - 1)
        bounded.clock.advance(1)
        assert bounded.refusal(line) == errors.max_record_size(size - 1, size).decode()

    check_each(check, cases("records"))


@pytest.mark.parametrize(("before", "line", "size"), cases("databases"))
def test_a_database_may_hold_as_much_as_the_bound(before: list[str], line: str, size: int) -> None:
    for bound in (size, size - 1):
        bounded = Bounded(*before, max_data_size=bound)
        bounded.clock.advance(1)  # expired keys take no room
        if bound == size:
            bounded(line)
        else:
            assert bounded.refusal(line) == errors.max_data_size(bound, size).decode()


@pytest.mark.parametrize("more", [{}, {"max_data_size": 1000}])
def test_a_key_may_be_as_long_as_the_bound(more: dict[str, int]) -> None:
    bounded = Bounded("SET abcdef 1", max_key_size=5, **more)
    bounded("SET abcde 1")
    bounded("SET a 'a value is no key'")
    assert bounded("GET abcdef") == b"1"
    for line in ("SET abcdef 2", "MSET a 1 abcdef 2", "DEL abcdef"):
        text = errors.max_key_size(5, 6).decode()
        assert bounded.refusal(line) == text


def test_commands_that_free_memory_are_never_rejected() -> None:
    bounded = Bounded("SET k abcdefghi", max_data_size=4, max_record_size=4)
    bounded.refusal("SET l abc")
    assert bounded("DEL k") == 1
    bounded("SET l abc")


@pytest.mark.completeness
def test_only_the_value_counts_of_a_command_that_replaces_one() -> None:
    replacing = {
        spec.name
        for spec in COMMANDS.values()
        if "denyoom" in spec.flags and spec.only_key and "OW" in spec.keys[0].flags
    }
    undeclared = {name for name in replacing if not COMMANDS[name].value_at}
    complete(
        TABLE_FILE,
        (
            f"value or serialized-value as the name of the argument of {name} with the new value"
            for name in sorted(
                undeclared - {"SEARCH.CREATE", "VECTOR.CREATE"}
            )  # no single argument
        ),
    )


def test_a_restored_value_counts_with_its_serialized_bytes() -> None:
    payload = Bounded("SET k abcde")("DUMP k")
    assert isinstance(payload, bytes)
    for name in ("RESTORE", "RESTORE-ASKING"):
        line = (name, "k", "0", payload)
        Bounded(max_record_size=len(payload))(*line)
        Bounded(max_record_size=len(payload) - 1).refusal(*line)


@pytest.mark.parametrize("other", ["max_record_size", "max_data_size"])
def test_bounds_of_keys_and_of_data_hold_together(other: str) -> None:
    bounded = Bounded(**{"max_key_size": 100, other: 8})
    assert bounded("SET k 1234567") is not None
    assert "size" in bounded.refusal("APPEND k 89") or "quota" in bounded.refusal("APPEND k 89")
    assert "key" in bounded.refusal(f"SET {'k' * 101} 1")


# -- the limit of every fake -----------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Bounded:
    monkeypatch.setattr(limits, "MOST_MEMORY", 400_000)
    text = "x" * 30_000
    return Bounded(
        f"SET long {text}", f"SET long1 {text}", "SADD many " + " ".join(map(str, range(1000)))
    )


def _script(command: str) -> str:
    return f"local s = ('x'):rep(5e4) for n = 1, 20 do redis.call({command}) end"


@pytest.mark.parametrize(
    "line",
    [
        "SETBIT new{n} 240000 1",
        "SETRANGE new{n} 30000 x",
        "BITFIELD new{n} SET u8 240000 1",
        "BITOP NOT new{n} long",
        "COPY long new{n}",
        "SUNIONSTORE new{n} many",
        "ZUNIONSTORE new{n} 1 many",
        "SORT many BY nosort GET long* STORE new{n}",
        "SET new{n} " + "x" * 30_000,
        "HSET hash f{n} " + "x" * 30_000,
    ],
)
def test_no_command_fills_the_memory(small: Bounded, line: str) -> None:
    errors = {small.error(*line.format(n=n).split()) for n in range(20)}
    assert errors == {None, OOM}
    assert small.used() <= limits.MOST_MEMORY + len(line)  # that is, plus the last request
    assert small("DEL", *(f"new{n}" for n in range(20)), "hash")
    small("SET", "after", "x" * 10_000)


@pytest.mark.parametrize(
    "line",
    [
        'JSON.STRAPPEND doc $[*].text "{long}"',
        'JSON.SET doc $[*].text "{long}"',
        'JSON.SET doc $[*].new{n} "{long}"',
        'JSON.MSET doc $[*].new{n} "{long}" other $ 1',
        'JSON.MERGE doc $[*] {{"new{n}":"{long}"}}',
        'JSON.ARRAPPEND doc $[*].list "{long}"',
        'JSON.ARRINSERT doc $[*].list 0 "{long}"',
    ],
)
def test_no_path_with_many_matches_fills_the_memory(small: Bounded, line: str) -> None:
    items = ",".join(['{"text":"x","list":[]}'] * 100)
    small("JSON.SET", "doc", "$", f"[{items}]")
    errors = {small.error(*line.format(n=n, long="x" * 2000).split()) for n in range(20)}
    assert errors == {None, OOM}
    assert small.used() <= limits.MOST_MEMORY


@pytest.mark.parametrize("call", ["'SET', 'k' .. n, s", "'APPEND', 'k', s", "'RPUSH', 'k', s"])
def test_no_script_fills_the_memory(small: Bounded, call: str) -> None:
    with pytest.raises(
        CommandError, match="OOM command not allowed when used memory > 'maxmemory'"
    ):
        small("EVAL", _script(call), "0")
    assert small.used() <= limits.MOST_MEMORY


def test_no_group_fills_the_memory(small: Bounded) -> None:
    for n in range(50):
        small("XADD", "stream", f"1-{n + 1}", "f", "v")
    errors = set()
    for n in range(30):
        small("XGROUP", "CREATE", "stream", f"g{n}", "0")
        read = f"XREADGROUP GROUP g{n} c COUNT 100 STREAMS stream >"
        errors.add(small.error(*read.split()))
    assert errors == {None, OOM}
    assert small.used() <= limits.MOST_MEMORY
    before = small("MEMORY", "USAGE", "stream")
    small("XGROUP", "DESTROY", "stream", "g0")
    assert small("MEMORY", "USAGE", "stream") < before - 50 * 500


def test_no_dump_fills_the_memory(small: Bounded) -> None:
    payload = small("DUMP", "long")
    assert isinstance(payload, bytes)
    assert {small.error("RESTORE", f"new{n}", "0", payload) for n in range(20)} == {None, OOM}
    assert small.used() <= limits.MOST_MEMORY


def test_a_transaction_is_limited_like_its_commands(small: Bounded) -> None:
    small("MULTI")
    for n in range(20):
        small("SETRANGE", f"new{n}", "30000", "x")
    replies = small("EXEC")
    assert isinstance(replies, list)
    assert replies[0] == 30_001
    assert replies[-1].text == OOM


def test_the_test_may_store_more(small: Bounded) -> None:
    tester = small.engine.session()
    for n in range(20):
        small.engine.execute(tester, argv((f"SETRANGE new{n} 30000 x",)))
