"""Array commands, compared with a plain dictionary."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core import budget
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import to_resp
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.values.array import MAX_INDEX
from tests.kv.conftest import Run
from tests.kv.scenarios import shown


class Model:
    """An array as a dictionary. Each command does the obvious, index by index."""

    def __init__(self) -> None:
        self.values: dict[int, str] = {}
        self.next = 0
        self.ring_size = 0

    def run(self, name: str, *arguments: Any) -> Any:
        existed = bool(self.values)
        reply = getattr(self, name.lower())(*arguments)
        if existed and not self.values:
            self.next = self.ring_size = 0  # The key is gone.
        return reply

    def _order(self) -> list[int]:
        """Return the indexes that ARLASTITEMS visits, newest first."""
        return [*range(self.next - 1, -1, -1), *range(self.arlen() - 1, self.next - 1, -1)]

    def arset(self, first: int, *values: str) -> int:
        return self.armset(*(word for pair in enumerate(values, first) for word in pair))

    def armset(self, *words: Any) -> int:
        before = len(self.values)
        self.values.update(zip(words[::2], words[1::2], strict=True))
        return len(self.values) - before

    def ardel(self, *indexes: int) -> int:
        return sum(self.values.pop(index, None) is not None for index in indexes)

    def ardelrange(self, *ends: int) -> int:
        pairs = zip(ends[::2], ends[1::2], strict=True)
        return sum(self.ardel(*range(min(pair), max(pair) + 1)) for pair in pairs)

    def arinsert(self, *values: str) -> int:
        for value in values:
            self.values[self.next] = value
            self.next += 1
        return self.next - 1

    def arring(self, size: int, *values: str) -> int:
        if size != self.ring_size:
            newest = [self.values[index] for index in self._order() if index in self.values][:size]
            self.values = dict(enumerate(reversed(newest)))
            self.next, self.ring_size = len(self.values), size
        for value in values:
            if self.next >= size:
                self.next = 0
            self.values[self.next] = value
            self.next += 1
        return self.next - 1

    def arseek(self, index: int) -> int:
        if self.values:
            self.next = index
        return int(bool(self.values))

    def arnext(self) -> int:
        return self.next

    def arcount(self) -> int:
        return len(self.values)

    def arlen(self) -> int:
        return max(self.values, default=-1) + 1

    def arget(self, index: int) -> str | None:
        return self.values.get(index)

    def armget(self, *indexes: int) -> list[str | None]:
        return [self.values.get(index) for index in indexes]

    def argetrange(self, start: int, end: int) -> list[str | None]:
        values = self.armget(*range(min(start, end), max(start, end) + 1))
        return values if start <= end else values[::-1]

    def arlastitems(self, count: int, *rev: str) -> list[str | None]:
        values = self.armget(*self._order()[: min(count, len(self.values))])
        return values if rev else values[::-1]

    def arscan(self, start: int, end: int, *limit: Any) -> list[list[Any]]:
        pairs = [[index, value] for index, value in sorted(self.values.items())]
        return [pair for pair in pairs if start <= pair[0] <= end][: limit[1] if limit else None]

    def argrep(self, start: int, end: int, *predicates: str) -> list[int]:
        wanted = dict(zip(predicates[::2], predicates[1::2], strict=True))
        indexes = [
            index for index, value in self.arscan(min(start, end), max(start, end))
            if wanted.get("EXACT") == value or wanted.get("MATCH", "?") in value
            or re.search(wanted.get("RE", "(?!)"), value)
        ]  # fmt: skip
        return indexes if start <= end else indexes[::-1]

    def arop(self, start: int, end: int, operation: str) -> Any:
        values = [value for _, value in self.arscan(min(start, end), max(start, end))]
        numbers = [int(value) for value in values if value.isdigit()]
        if operation == "USED":
            return len(values)
        if not numbers:
            return None
        match operation:
            case "SUM":
                return str(sum(numbers))
            case "MAX":
                return str(max(numbers))
        result = 0
        for number in numbers:
            result ^= number
        return result


INDEX = st.integers(0, 12)
VALUE = st.sampled_from(["a", "b", "ab", "1", "2", "30"])
COMMANDS: Any = st.one_of(
    st.tuples(st.just("ARSET"), INDEX, VALUE, VALUE),
    st.lists(st.tuples(INDEX, VALUE), min_size=1, max_size=4).map(
        lambda pairs: ("ARMSET", *(word for pair in pairs for word in pair))
    ),
    st.tuples(st.just("ARDEL"), INDEX, INDEX),
    st.tuples(st.just("ARDELRANGE"), INDEX, INDEX, INDEX, INDEX),
    st.tuples(st.just("ARINSERT"), VALUE),
    st.tuples(st.just("ARINSERT"), VALUE, VALUE, VALUE),
    st.tuples(st.just("ARRING"), st.integers(1, 5), VALUE),
    st.tuples(st.just("ARRING"), st.sampled_from([3, 4]), VALUE, VALUE, VALUE, VALUE, VALUE),
    st.tuples(st.just("ARSEEK"), INDEX),
)
QUESTIONS: Any = st.one_of(
    st.tuples(st.sampled_from(["ARNEXT", "ARCOUNT", "ARLEN"])),
    st.tuples(st.just("ARGET"), INDEX),
    st.tuples(st.just("ARMGET"), INDEX, INDEX, INDEX),
    st.tuples(st.just("ARGETRANGE"), INDEX, INDEX),
    st.tuples(st.just("ARLASTITEMS"), INDEX),
    st.tuples(st.just("ARLASTITEMS"), INDEX, st.just("REV")),
    st.tuples(st.just("ARSCAN"), st.integers(0, 5), st.integers(5, 20)),
    st.tuples(st.just("ARSCAN"), st.just(0), INDEX, st.just("LIMIT"), st.integers(1, 3)),
    st.tuples(st.just("ARGREP"), INDEX, INDEX, st.sampled_from(["EXACT", "MATCH", "RE"]), VALUE),
    st.tuples(st.just("ARGREP"), INDEX, INDEX, st.just("EXACT"), VALUE, st.just("RE"), VALUE),
    st.tuples(st.just("AROP"), INDEX, INDEX, st.sampled_from(["SUM", "MAX", "XOR", "USED"])),
)


@given(st.lists(st.tuples(COMMANDS, QUESTIONS, QUESTIONS), max_size=40))
def test_an_array_is_a_dictionary(steps: list[Any]) -> None:
    engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
    session, model = engine.session(), Model()
    for line in (line for step in steps for line in step):
        name, *arguments = line
        words = [name.encode(), b"k", *(str(word).encode() for word in arguments)]
        reply = _decoded(engine.execute(session, words))
        assert reply == model.run(name, *arguments), (line, model.values)
        assert (b"k" in engine.databases[0].values) == bool(model.values)


def _decoded(reply: Any) -> Any:
    if isinstance(reply, list):
        return list(map(_decoded, reply))
    return reply.decode() if isinstance(reply, bytes) else shown(reply)


def test_the_longest_range_has_a_million_items(run: Run) -> None:
    run("ARSET k 999999 x")
    assert run("ARGETRANGE k 0 999999") == [*[None] * 999_999, b"x"]
    assert run("ARGETRANGE nokey 999999 0") == [None] * 1_000_000


def test_the_work_of_a_search_is_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "STEPS", budget.STEPS // 10)
    rest = run.other(interface="rest")
    run("ARSET", "k", "0", *["x" * 100] * 3_000)
    predicates = ["MATCH", "y"] * 250
    assert rest.error("ARGREP", "k", "-", "+", *predicates).startswith("ERR the command was stop")
    assert rest("ARGREP", "k", "0", "99", *predicates) == []
    assert rest("ARGREP", "k", "-", "+", "MATCH", "y") == []


@pytest.mark.parametrize("resp", [2, 3])
def test_replies_of_both_protocols(run: Run, resp: int) -> None:
    run("ARSET k 18446744073709551613 x")
    pairs = to_resp(run("ARSCAN", "k", "0", str(MAX_INDEX)), resp)
    length = to_resp(run("ARLEN k"), resp)
    info = to_resp(run("ARINFO k FULL"), resp)
    if resp == 2:
        assert pairs == b"*1\r\n*2\r\n$20\r\n18446744073709551613\r\n$1\r\nx\r\n"
        assert length == b"$20\r\n18446744073709551614\r\n"
        assert info.startswith(b"*24\r\n$3\r\nlen\r\n$20\r\n18446744073709551614\r\n")
        assert info.endswith(b"$15\r\navg-sparse-size\r\n$1\r\n1\r\n")
    else:
        assert pairs == b"*1\r\n*2\r\n(18446744073709551613\r\n$1\r\nx\r\n"
        assert length == b"(18446744073709551614\r\n"
        assert info.startswith(b"%12\r\n$3\r\nlen\r\n(18446744073709551614\r\n")
        assert info.endswith(b"$15\r\navg-sparse-size\r\n,1\r\n")


def test_an_interrupted_change_is_mended(engine: KVEngine, run: Run) -> None:
    run("ARSET k 0 a b c")
    array = engine.databases[0].values[b"k"]
    del array.values[1]
    engine.databases[0].mend()
    assert run("ARSCAN k 0 9") == [[0, b"a"], [2, b"c"]]
    assert run("ARINFO k")[3] == 2
    array.values.clear()
    engine.databases[0].mend()
    with pytest.raises(CommandError, match="no such key"):
        run("ARINFO k")
