"""Commands whose work can exceed data times request: each stops at its budget and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_fakecloud.core import budget
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timers import TimeLimit
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.commands import transactions
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.search import index
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.values.containers import SetValue
from tests.kv.growth import work

DOCUMENTS = 50
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _searched(clause: object, times: int = 200) -> tuple[str, ...]:
    return ("SEARCH.COUNT", "i", json.dumps({"$or": [clause] * times}))


def _summed(aggregation: object, times: int = 200) -> tuple[str, ...]:
    return ("SEARCH.AGGREGATE", "i", "{}", json.dumps({f"a{n}": aggregation for n in range(times)}))


def _histogram(levels: int) -> dict[str, object]:
    """Return a histogram with 21 buckets, and a histogram in each bucket."""
    bounds = {"min": 0, "max": 20}
    histogram = {"field": "n", "interval": 1, "extendedBounds": bounds, "minDocCount": 0}
    below = {"$aggs": {"below": _histogram(levels - 1)}} if levels else {}
    return {"$histogram": histogram, **below}


SOURCES = [{"n": {"$histogram": {"field": "n", "interval": 1}}}]
LINES: dict[str, tuple[str, ...]] = {
    "$regex": _searched({"t": {"$regex": "(.*){8}x"}}, 1),
    "$regex with large classes": _searched({"t": {"$regex": r"[\w--\d]" * 99}}, 1),
    "$phrase": _searched({"t": {"$phrase": "common again " * 99}}, 1),
    "$phrase with slop": _searched({"t": {"$phrase": {"value": "common " * 99, "slop": 999}}}, 1),
    "$phrase with prefix": _searched({"t": {"$phrase": {"value": "common w", "prefix": True}}}),
    "$smart": _searched({"t": " ".join(f"w{n}" for n in range(999))}, 1),
    "$fuzzy": _searched({"t": {"$fuzzy": {"value": "wards " * 99, "distance": 2}}}, 1),
    "$fuzzy with prefix": _searched({"t": {"$fuzzy": {"value": "w", "prefix": True}}}),
    "$eq": _searched({"t": {"$eq": "common"}}),
    "$gte": _searched({"n": {"$gte": 0}}),
    "$must and $mustNot": _searched({"$must": {"n": 1}, "$mustNot": {"n": 1}}),
    "SCOREFUNC": ("SEARCH.QUERY", "i", "{}", "SCOREFUNC", *["FIELDVALUE", "n"] * 99),
    "$terms with a pattern": _summed({"$terms": {"field": "k", "include": "(.*){5}x"}}, 1),
    "$histogram": _summed(_histogram(4), 1),
    "$terms of many values": _summed({"$terms": {"field": "many"}}, 10),
    "$sum of many values": _summed({"$sum": {"field": "m"}}, 10),
    "$facet": _summed({"$facet": {"field": "f", "path": "/", "depth": 2}}, 9),
    "$composite": _summed({"$composite": {"sources": SOURCES}}, 30),
    "SELECT": ("SEARCH.QUERY", "i", "{}", "LIMIT", "50", "SELECT", "99", *["n"] * 99),
    "SORT BY": ("SORT", "set", "ALPHA", "BY", "long" * 9999 + "*"),
    "SORT GET": ("SORT", "set", "ALPHA", *["GET", "*"] * 9),
    "SORT GET of elements": ("SORT", "set", "ALPHA", *["GET", "#"] * 99),
    "LCS": ("LCS", "short", "short", "LEN"),
    "JSON.GET": ("JSON.GET", "json", "$..*..*..*"),
    "a pattern in a path": ("JSON.GET", "a text", "$[?(@ =~ '(.*){8}b')]"),
}
LATE = {"JSON.GET"}
"""Lines that 20,000 steps stop in another place of their code than 5,000 do, which stop the others
in the same place.
"""


class Asked:
    """An engine with some keys, used by a client whose commands may take 20,000 steps."""

    def __init__(self) -> None:
        self.engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
        self.session = self.engine.session(interface="rest")
        schema = ["t", "TEXT", "NOSTEM", "n", "F64", "FAST", "k", "KEYWORD", "f", "FACET"]
        schema += ["many", "KEYWORD", "m", "F64", "FAST"]
        self("SEARCH.CREATE", "i", "ON", "JSON", "PREFIX", "1", "p:", "SCHEMA", *schema)
        for n in range(DOCUMENTS):
            words = f"common word{LETTERS[n % 26]}{LETTERS[n // 26]} common again"
            document = {"t": words, "n": 1, "k": words, "f": f"/a/{n}"}
            document |= {"many": [*LETTERS], "m": [*range(50)]}
            self("JSON.SET", f"p:{n}", "$", json.dumps(document))
        self("SEARCH.WAITINDEXING", "i")
        members = [f"member {n}" for n in range(100)]
        self("SADD", "set", *members)
        self("SET", "short", "ab" * 2000)
        self("SET", "half", "ab" * 500)
        self("JSON.SET", "json", "$", "[" * 30 + "]" * 30)
        self("JSON.SET", "a text", "$", json.dumps(["a" * 500]))

    def __call__(self, *words: str) -> Any:
        return self.engine.execute(self.session, [word.encode() for word in words])


@pytest.fixture(scope="module")
def filled() -> Asked:
    return Asked()


@pytest.fixture
def ask(filled: Asked, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(budget, "STEPS", 20_000)
    return filled


@pytest.mark.parametrize("name", LINES)
def test_a_command_stops_at_its_budget(
    ask: Asked, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is little work: a whole budget, during which other clients wait, takes a second or two."""
    if name not in LATE:
        monkeypatch.setattr(budget, "STEPS", 5_000)

    def stop() -> None:
        with pytest.raises(CommandError, match="ERR the command was stopped: it takes more than"):
            ask(*LINES[name])

    before = ask("DBSIZE")
    stop()  # without being counted: a first command imports modules
    steps, whole = budget.STEPS, work(stop)
    monkeypatch.setattr(budget, "STEPS", 1)
    assert whole - work(stop) < 20 * steps
    monkeypatch.setattr(budget, "STEPS", steps)
    assert ask("DBSIZE") == before
    assert ask("SEARCH.COUNT", "i", '{"t":{"$eq":"worda"}}') == 0


def test_members_of_a_sorted_set_are_looked_up_in_a_large_set(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("ZADD", "few", "1", "member 1")
    monkeypatch.delattr(SetValue, "__iter__")
    assert ask("ZINTER", "3", "few", "set", "set") == [b"member 1"]
    assert ask("ZDIFF", "3", "few", "set", "set") == []


def test_a_transaction_and_a_script_have_one_budget(ask: Asked) -> None:
    ask("LCS", "half", "half", "LEN")
    ask("MULTI")
    for _ in range(5):
        ask("LCS", "half", "half", "LEN")
    ask("PING")
    replies = ask("EXEC")
    assert replies[0] == 1000
    assert isinstance(replies[-2], CommandError)
    assert b"stopped" in replies[-2].text
    assert not isinstance(replies[-1], CommandError)
    script = "for n = 1, 5 do redis.call('LCS', KEYS[1], KEYS[1]) end"
    with pytest.raises(CommandError, match="the command was stopped"):
        ask("EVAL", script, "1", "half")


def test_a_transaction_ends_when_its_time_is_up(
    filled: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[float] = []

    class FewChecks(TimeLimit):
        def is_over(self, now: float | None = None) -> bool:
            checks.append(0)
            return len(checks) > 3

    monkeypatch.setattr(transactions, "TimeLimit", FewChecks)
    filled("MULTI")
    for _ in range(5):
        filled("INCR", "runs")
    *replies, fourth, fifth = filled("EXEC")
    assert replies == [1, 2, 3]
    assert fourth.text == fifth.text == errors.RAN_TOO_LONG


@pytest.fixture
def pending(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Twenty documents that no search has indexed yet, of which a part of the work takes two."""
    monkeypatch.setattr(index, "PART_STEPS", 400)
    asked = Asked()
    for n in range(20):
        asked("JSON.SET", f"p:new{n}", "$", '{"t": "word of a new document"}')
    return asked


COUNT = ("SEARCH.COUNT", "i", '{"t": {"$eq": "new"}}')


def test_others_run_between_the_parts_of_indexing(
    pending: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pending.engine
    replies: list[Any] = []

    def others() -> None:
        assert engine.lock.acquire(blocking=False)
        engine.lock.release()
        replies.append(engine.execute(engine.session(), [b"DEL", b"p:new7", b"p:new19"]))

    monkeypatch.setattr(engine, "give_way", others)
    assert pending(*COUNT) == 18
    assert len(replies) > 5
    assert sum(replies) == 2


def test_indexing_in_a_transaction_goes_on_where_its_budget_ended(
    pending: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "STEPS", 2_000)
    replies = []
    for _ in range(4):
        pending("MULTI")
        pending(*COUNT)
        replies += pending("EXEC")
    assert isinstance(replies[0], CommandError)
    assert b"the command was stopped" in replies[0].text
    assert replies[-1] == 20


def test_a_client_that_has_left_is_not_indexed_for_in_steps(
    pending: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "STEPS", 2_000)
    pending.session.closing = True
    with pytest.raises(CommandError, match="the command was stopped"):
        pending(*COUNT)
    pending.session.closing = False
    assert pending(*COUNT) == 20


def test_more_ranges_than_buckets_are_refused(filled: Asked) -> None:
    ranges = [{"from": n, "to": n + 1} for n in range(65_000)]
    with pytest.raises(CommandError, match="makes more than 65000 buckets"):
        filled(*_summed({"$range": {"field": "n", "ranges": ranges}}, 1))
