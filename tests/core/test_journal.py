"""The journal: order, filters, and failures that explain themselves."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from pytest_fakecloud.core.arguments import arguments_shown
from pytest_fakecloud.core.calls import KEEP_BYTES, NO_HEADERS, Call, Event, Headers, weight_of
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.field_types import TEXT, URL
from pytest_fakecloud.core.frames import code_place, place_at
from pytest_fakecloud.core.journal import Journal
from pytest_fakecloud.core.matching import Field
from pytest_fakecloud.core.recorder import CallSite, Recorder, SharedRecords

from ..harness import error_of, in_threads


class Both(Recorder):
    """A recorder with its journal, which a fake has as two attributes."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Journal(self), name)

    def __len__(self) -> int:
        return len(Journal(self))

    def open_call(
        self,
        method: str,
        target: str,
        headers: Headers = NO_HEADERS,
        body: bytes = b"",
        *,
        at_us: int,
        **fields: Any,
    ) -> Call:
        """Record a received request."""
        call = Call(
            0, at_us, self.service, self.fake, method, target,
            request_headers=headers, request_body=body, **fields,
        )  # fmt: skip
        self.begin_call(call, weight_of(call))
        return call


class Reader:
    """Reads the given facts from any call, and notes the calls' numbers."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self.numbers: list[int] = []

    def facts_of(self, call: Call) -> dict[str, Any]:
        self.numbers.append(call.number)
        return self._facts


def call_on(
    journal: Both, method: str = "GET", target: str = "/x", body: bytes = b"", **fields: Any
) -> Call:
    reader = Reader(fields.pop("facts", {}))
    headers = Headers([("X-One", "1"), ("x-one", "2")])
    at_us = journal.now_us()
    call = journal.open_call(method, target, headers, body, at_us=at_us, reader=reader)
    for name, value in fields.items():
        setattr(call, name, value)
    return call


@pytest.fixture
def now() -> Any:
    return itertools.count(1_767_225_600_000_000, 1_000_000)


@pytest.fixture
def journal(now: Any) -> Both:
    return Both(now.__next__, service="demo", fake="demo_2")


# -- recording -----------------------------------------------------------------------------------


def test_a_call_has_what_came(journal: Both) -> None:
    call = call_on(journal, "POST", "/a%2Fb?c=d", b'{"e": 1}')
    assert (call.number, call.service, call.fake) == (1, "demo", "demo_2")
    assert call.at.isoformat() == "2026-01-01T00:00:00+00:00"
    assert (call.path, call.target) == ("/a%2Fb", "/a%2Fb?c=d")
    assert call.request_headers.get("X-ONE") == "1"
    assert call.request_headers.get("x-two") is None
    assert call.request_json() == {"e": 1}
    assert call.outcome == "open"
    assert repr(call) == "<Call 1 demo_2 POST /a%2Fb?c=d -> open>"
    call.status, call.response_body = 200, b"[2]"
    call.faults = ({"kind": "respond", "description": "respond 200"},)
    assert call.response_json() == [2]
    assert repr(call) == "<Call 1 demo_2 POST /a%2Fb?c=d -> 200 fault=respond 200>"


def test_facts_are_read_once_and_late(journal: Both) -> None:
    assert journal.open_call("GET", "/", at_us=0).facts == {}
    reader = Reader({"n": 1})
    call = journal.open_call("GET", "/", at_us=0, reader=reader)
    assert reader.numbers == []
    assert call.facts is call.facts
    assert reader.numbers == [2]


def test_calls_do_not_share_what_one_of_them_is_given(journal: Both) -> None:
    first, second = call_on(journal), call_on(journal)
    first.faults = ({"kind": "drop", "description": "drop"},)
    first.status, first.note = 500, "why"
    assert (second.fault, second.status, second.note) == (None, None, "")


def test_calls_and_events_are_in_one_order(now: Any) -> None:
    cloud = Both(now.__next__)
    first = Both(now.__next__, fake="one", parent=cloud)
    second = Both(now.__next__, fake="two", parent=cloud)
    call_on(first)
    event = second.add_event("rebalance", "two members now", group="g")
    call_on(second)
    call_on(first)
    assert [entry.number for entry in cloud.entries] == [1, 2, 3, 4]
    assert [entry.fake for entry in cloud.entries] == ["one", "two", "two", "one"]
    assert len(first) == len(second) == 2
    assert cloud.calls() == [*first.calls()[:1], *second.calls(), *first.calls()[1:]]
    assert cloud.events() == [event]
    assert event.at < cloud.calls().last.at


def test_a_call_that_waited_becomes_the_newest_entry(now: Any) -> None:
    cloud = Both(now.__next__)
    first = Both(now.__next__, fake="one", parent=cloud)
    waited, earlier, second = call_on(first), call_on(first), call_on(Both(lambda: 0, parent=cloud))
    first.renumber(waited, 7)
    assert first.entries == [earlier, waited]
    assert cloud.entries == [earlier, second, waited]
    assert (waited.number, waited.at_us) == (4, 7)
    first.renumber(waited, 7)  # already the newest
    cloud.renumber(second, 7)
    assert (waited.number, second.number) == (4, 5)
    assert cloud.entries == [earlier, waited, second]


def test_events(journal: Both) -> None:
    first = journal.add_event("attempt", "first", group="a", number=1)
    second = journal.add_event("attempt", "second", at_us=5, group="b", number=2)
    third = journal.add_event("rebalance", "third")
    assert isinstance(first, Event)
    assert journal.events() == [first, second, third]
    assert journal.events("attempt") == [first, second]
    assert journal.events("attempt", group="b").only() is second
    assert journal.events(number=lambda n: n == 1).only() is first
    assert journal.events("nothing") == []
    assert second.at_us == 5


def test_an_action_is_kept_beside_the_entries_until_its_journal_is_cleared(now: Any) -> None:
    cloud = Both(now.__next__)
    first, second = (Both(now.__next__, fake=name, parent=cloud) for name in ("one", "two"))
    frame = sys._getframe(1)
    for recorder in (first, second):
        number = recorder.reserve()
        recorder.record_action("load", code_place(frame), number, None, {"keys": 2})
    assert [(action.number, action.fake, action.kind) for action in cloud.shared.actions] == [
        (1, "one", "load"),
        (2, "two", "load"),
    ]
    assert cloud.shared.actions[0].data == {"keys": 2, "where": place_at(code_place(frame))}
    assert cloud.entries == []
    first.clear()
    assert [action.fake for action in cloud.shared.actions] == ["two"]


def test_clearing_a_handles_journal_leaves_the_others_alone(now: Any) -> None:
    cloud = Both(now.__next__)
    first = Both(now.__next__, fake="one", parent=cloud)
    second = Both(now.__next__, fake="two", parent=cloud)
    call_on(first)
    remaining = call_on(second)
    held = first.entries
    first.clear()
    assert first.entries == []
    assert cloud.entries == [remaining]
    assert len(held) == 1
    assert call_on(first).number == 3


def test_clearing_the_clouds_journal_clears_those_of_its_fakes() -> None:
    cloud = Both(lambda: 0)
    recorder = Both(lambda: 0, fake="one", parent=cloud)
    call_on(recorder)
    cloud.clear()
    assert recorder.entries == []


def test_listeners_get_each_entry_and_each_answer(now: Any) -> None:
    cloud = Both(now.__next__)
    recorder = Both(now.__next__, parent=cloud)
    seen: list[tuple[str, int]] = []

    def once(entry: Any) -> None:
        seen.append(("once", entry.number))
        stop_once()

    listeners = cloud.shared.listeners
    stop_once = listeners.add(once)
    stop = listeners.add(lambda entry: seen.append(("first", entry.number)))
    listeners.add(lambda entry: seen.append(("second", entry.number)))
    recorder.close_call(call_on(recorder))
    recorder.add_event("x", "y")
    stop()
    stop()
    call_on(recorder)
    assert seen == [
        ("once", 1), *[("first", 1), ("second", 1)] * 2, ("first", 2), ("second", 2),
        ("second", 3),
    ]  # fmt: skip


def test_many_threads_keep_the_order(now: Any) -> None:
    cloud = Both(lambda: 0)
    journals = [Both(lambda: 0, parent=cloud) for _ in range(3)]

    def record(journal: Both) -> None:
        for number in range(300):
            call_on(journal)
            if number % 100 == 99:
                journal.clear()

    in_threads(*(partial(record, journal) for journal in journals))
    assert cloud.entries == []
    for journal in journals:
        for _ in range(100):
            call_on(journal)
    numbers = [entry.number for entry in cloud.entries]
    assert numbers == sorted(numbers) == list(range(901, 1201))


# -- asserting -----------------------------------------------------------------------------------


class Teaching:
    event_kinds = frozenset(("attempt",))
    event_fields = {"url": Field(URL), "group": Field(), "sent_type": Field()}  # noqa: RUF012
    fact_fields = {"command": Field(TEXT, several=True), "topic": Field(TEXT)}  # noqa: RUF012

    def words(self) -> tuple[str, ...]:
        return ("command", "pipeline", "produce", "SET", "GET")

    def catch_up(self) -> None:
        pass

    def is_handshake(self, call: Call) -> bool:
        return False

    def names_handshake(self, conditions: Mapping[str, object]) -> bool:
        return False


TEACHER = Teaching()


@pytest.fixture
def used(journal: Both) -> Both:
    journal.register_app("demo", TEACHER)
    call_on(journal, "POST", "/", route="command", status=200, facts={"command": ["SET"]})
    call_on(
        journal, "POST", "/pipeline", route="pipeline", status=200,
        facts={"command": ["GET", "SET"]},
    )  # fmt: skip
    call_on(
        journal, "POST", "/produce/orders?x", route="produce", status=404, facts={"topic": "orders"}
    )
    return journal


@pytest.mark.parametrize(
    ("what", "where", "numbers"),
    [
        ("produce", {}, [3]), ("/pipeline", {}, [2]), ("POST /pipeline", {}, [2]),
        ("/produce/orders", {}, [3]), ("/produce/orders?x", {}, [3]),
        ("POST /produce/orders?x", {}, [3]), ("SET", {}, [1, 2]), ("set", {}, [1, 2]),
        (None, {"status": 200}, [1, 2]), (None, {"topic": "orders"}, [3]),
        (None, {"command": "GET"}, [2]), (None, {"command": ["SET"]}, [1]),
        (None, {"status": lambda status: status >= 400}, [3]), ("SET", {"route": "pipeline"}, [2]),
        (None, {}, [1, 2, 3]),
    ],
)  # fmt: skip
def test_what_is_asserted(
    used: Both, what: str | None, where: dict[str, Any], numbers: list[int]
) -> None:
    calls = used.assert_called(what, **where)
    assert [call.number for call in calls] == numbers
    assert used.assert_called(what, times=len(numbers), **where) == calls
    if what is None:
        assert used.calls(**where) == calls
    with pytest.raises(AssertionError):
        used.assert_not_called(what, **where)
    with pytest.raises(AssertionError):
        used.assert_called(what, times=len(numbers) + 1, **where)


def test_a_failure_names_the_nearest_and_what_differs(used: Both) -> None:
    assert error_of(
        lambda: used.assert_called("produce", topic="payments"), kind=AssertionError
    ).splitlines() == [
        "expected a call produce topic='payments' at least once, found 0",
        "  not <Call 3 demo_2 POST /produce/orders?x -> 404>: topic is 'orders', not 'payments'",
        "  not <Call 2 demo_2 POST /pipeline -> 200>: is GET, SET, not produce; "
        "topic is absent, not 'payments'",
        "  not <Call 1 demo_2 POST / -> 200>: is SET, not produce; topic is absent, not 'payments'",
    ]


def test_a_failure_without_any_call_says_so(journal: Both) -> None:
    assert error_of(lambda: journal.assert_called(status=200), kind=AssertionError) == (
        "expected a call status=200 at least once, found 0\n  no client has made a call"
    )
    assert journal.assert_called("SET", times=0) == []
    journal.assert_not_called()


def test_a_dropped_call_takes_its_source_line_along() -> None:
    def note_here(records: SharedRecords, call: Call) -> None:
        records.sites[call.number] = CallSite((code_place(sys._getframe()),))

    cloud = Both(lambda: 0)
    cloud.shared.note_caller = note_here
    first, second = Both(lambda: 0, fake="one", parent=cloud), Both(lambda: 0, parent=cloud)
    cloud.keep = 4
    for _ in range(9):
        call_on(first)
    assert [*cloud.shared.sites] == [entry.number for entry in cloud.entries]
    mark = cloud.reserve()
    call_on(second)
    cloud.forget_since(mark)
    assert [*cloud.shared.sites] == [entry.number for entry in cloud.entries]
    call_on(second)
    first.clear()
    assert [*cloud.shared.sites] == [entry.number for entry in second.entries]
    cloud.keep = 0
    call_on(second)
    call_on(second)
    assert len(cloud.shared.sites) == 1


def test_a_bounded_journal_forgets_the_oldest() -> None:
    parent = Both(lambda: 0)
    parent.keep = 8
    journal = Both(lambda: 0, parent=parent)
    for number in range(100):
        journal.add_event("tick", str(number))
        for view in (journal, parent):
            assert len(view) <= 10
            assert view.events().last.text == str(number)
    assert [event.number for event in parent.events()] == list(range(101 - len(parent), 101))
    assert parent.entries == journal.entries


# -- bounds in bytes -----------------------------------------------------------------------------


def finished(journal: Both, body: bytes, answer: bytes = b"", **fields: Any) -> Call:
    call = call_on(journal, "POST", "/put", body, facts={"command": ["PUT"], "word": body.decode()})
    for name, value in {
        "status": 200,
        "outcome": "answered",
        "response_body": answer,
        **fields,
    }.items():
        setattr(call, name, value)
    journal.close_call(call)
    return call


@pytest.fixture
def cloud() -> Both:
    """A cloud's journal that keeps at most 100 kB in full."""
    journal = Both(lambda: 0)
    journal.shared.keep_bytes = 100_000
    return journal


def test_the_oldest_large_calls_are_cut_first_and_say_so(cloud: Both) -> None:
    recorder, other = Both(lambda: 0, parent=cloud), Both(lambda: 0, parent=cloud)
    small = finished(recorder, b"small")
    first = finished(recorder, b"a" * 60_000)
    second = finished(other, b"b", answer=b"c" * 60_000)
    assert (small.request_body, small.cut, second.cut) == (b"small", {}, {})
    assert len(cloud) == 3
    assert first.cut == {"request_body": 60_000, "word": 60_000}
    assert first.request_body.startswith(
        b"a" * 1024 + b"... (cut by the journal: 60000 bytes in all)"
    )
    assert first.note == "cut by the journal: word (60,000 bytes), request_body (60,000 bytes)"
    assert first.facts["command"] == ["PUT"]
    third = finished(recorder, b"d" * 50_000)
    assert second.cut == {"response_body": 60_000}
    assert third.cut == {}


def test_a_call_larger_than_all_that_may_be_kept_is_cut_at_once(cloud: Both) -> None:
    call = finished(cloud, b"a" * 200_000, note="why it went wrong")
    assert call.cut["request_body"] == 200_000
    assert call.note.splitlines()[0] == "why it went wrong"


def test_a_call_under_way_is_not_cut_before_it_is_answered(cloud: Both) -> None:
    slow = call_on(cloud, "POST", "/slow", b"a" * 90_000)
    finished(cloud, b"b" * 90_000)
    assert slow.cut == {}
    slow.outcome, slow.status = "answered", 200
    cloud.close_call(slow)
    finished(cloud, b"c" * 90_000)
    assert slow.cut["request_body"] == 90_000


def test_long_heads_count_and_are_cut(cloud: Both) -> None:
    calls = []
    for _ in range(10):
        pairs = [("X-Long", "v" * 20_000), *((f"X-{n}", "v") for n in range(200))]
        call = cloud.open_call("GET", "/" + "t" * 10_000, Headers(pairs), at_us=0)
        call.outcome = "answered"
        cloud.close_call(call)
        calls.append(call)
    assert sum(weight_of(call) for call in calls if not call.cut) <= 100_000
    assert all(weight_of(call) < 20_000 for call in calls if call.cut)
    cut = calls[0]
    assert cut.cut == {"request_headers": 21_096, "target": 10_001}
    assert cut.target == "/" + "t" * 1023 + "…"
    assert cut.request_headers.get("x-long") == "v" * 256 + "…"
    with pytest.raises(ContractError, match=r"cannot tell the path \(10,001 bytes\) of <Call 1"):
        cloud.calls(path="/" + "t" * 10_000)


def test_memory_stays_within_the_bound(cloud: Both) -> None:
    cloud.keep = 50
    parts = [Both(lambda: 0, parent=cloud) for _ in range(3)]
    for number in range(600):
        # A fake with few calls keeps entries that the cloud has forgotten.
        journal = parts[0] if number < 50 else parts[1 + number % 2]
        finished(journal, b"a" * 20_000, answer=b"b" * 5_000)
        held = {id(call): call for part in (cloud, *parts) for call in part.calls()}
        whole = [call for call in held.values() if not call.cut]
        assert sum(weight_of(call) for call in whole) <= 100_000
    assert cloud.shared.large_bytes == sum(cloud.shared.large.values())


def test_clearing_takes_the_weight_along(cloud: Both) -> None:
    first, second = Both(lambda: 0, parent=cloud), Both(lambda: 0, parent=cloud)
    finished(first, b"a" * 40_000)
    finished(second, b"b" * 40_000)
    first.clear()
    assert cloud.shared.large_bytes == cloud.shared.large[cloud.calls().only()]
    finished(first, b"c" * 40_000)
    assert not any(call.cut for call in cloud.calls())
    cloud.clear()
    assert (cloud.shared.large_bytes, len(cloud.shared.large)) == (0, 0)


def test_a_call_of_a_stranger_keeps_a_beginning(cloud: Both) -> None:
    call = finished(cloud, b"a" * 50_000, status=401)
    cloud.shorten(call)
    assert call.cut == {"facts": 50_000, "request_body": 50_000}
    assert call.facts == {}
    small = finished(cloud, b"small", status=401)
    cloud.shorten(small)
    assert small.facts["command"] == ["PUT"]
    many = Headers([(f"X-{number}", "v" * 20) for number in range(30)])
    reader = Reader({"command": ["PUT"]})
    with_headers = cloud.open_call("POST", "/put", many, b"small", at_us=0, reader=reader)
    cloud.shorten(with_headers)
    assert (with_headers.facts, dict(with_headers.cut)) == ({"command": ["PUT"]}, {})


class Worded(Teaching):
    fact_fields = {**Teaching.fact_fields, "word": Field(TEXT)}  # noqa: RUF012

    def words(self) -> tuple[str, ...]:
        return ("PUT", "GET", "SET")


WORDED = Worded()


@pytest.fixture
def cut(cloud: Both) -> Both:
    """A journal with one complete call and two that were cut."""
    cloud.register_app("kv", WORDED)
    finished(cloud, b"a" * 60_000)
    finished(cloud, b"b" * 60_000)
    finished(cloud, b"c" * 60_000)
    return cloud


@pytest.mark.parametrize(
    "ask",
    [
        lambda journal: journal.assert_called(request_body=b"no such body"),
        lambda journal: journal.assert_called(request_body=b"a" * 60_000),
        lambda journal: journal.assert_called(request_body=b"c" * 60_000, times=1),
        lambda journal: journal.assert_not_called(word="no such word"),
        lambda journal: journal.assert_called(
            "PUT", request_body=lambda body: body.startswith(b"b")
        ),
        lambda journal: journal.calls(request_body=b"c" * 60_000),
        lambda journal: journal.calls().where(word="a"),
        lambda journal: journal.calls().where(lambda call: b"x" in call.request_body),
        lambda journal: journal.calls()[0].request_json(),
        lambda journal: journal.calls()[0].request_body == b"a" * 60_000,
        lambda journal: journal.calls()[0].request_body != b"a" * 60_000,
    ],
)
def test_what_only_the_whole_could_tell_is_neither_true_nor_false(cut: Both, ask: Any) -> None:
    with pytest.raises(ContractError, match=r"cannot tell .*keep_bytes"):
        ask(cut)


def test_what_the_rest_of_a_cut_call_decides_is_decided(cut: Both) -> None:
    assert len(cut.assert_called("PUT", times=3)) == 3
    assert len(cut.assert_called("/put", status=200)) == 3
    cut.assert_not_called("GET")
    cut.assert_not_called(status=500, request_body=b"a")
    assert cut.assert_called(request_body=b"c" * 60_000).only() is cut.calls().last
    assert cut.calls(request_body=b"a", status=500) == []
    first = cut.calls()[0]
    assert first.request_body != b"a"
    assert first.request_body != b"b" * 60_000
    assert b"aaa" in first.request_body
    assert first.request_body != "aaa"


def test_a_name_that_may_be_a_lost_command_is_not_denied(cloud: Both) -> None:
    cloud.shorten(finished(cloud, b"a" * 50_000, status=401))
    with pytest.raises(ContractError, match=r"cannot tell whether <Call 1 .* is 'SET'"):
        cloud.assert_not_called("SET")
    cloud.assert_not_called("/set")
    assert cloud.assert_called("POST /put", times=1)


def test_many_threads_keep_the_balance(cloud: Both) -> None:
    parts = [Both(lambda: 0, parent=cloud) for _ in range(4)]

    def work(journal: Both) -> None:
        for number in range(150):
            finished(journal, b"a" * 9_000)
            if number % 40 == 39:
                journal.clear()

    in_threads(*(partial(work, part) for part in parts))
    assert cloud.shared.large_bytes == sum(cloud.shared.large.values()) <= 100_000


def test_the_journals_of_many_fakes_share_the_limit_of_their_cloud() -> None:
    parent = Both(lambda: 0)
    parent.keep = 100
    children = [Both(lambda: 0, service="demo", fake=f"demo_{n}", parent=parent) for n in range(5)]
    children[0].add_event("first", "of one that is quiet from then on")
    for number in range(2_000):
        children[1 + number % 4].add_event("each", str(number))
    assert [event.kind for event in children[0].entries] == ["first"]
    assert sum(len(child) for child in children) == len(parent) <= 125
    busy = [len(child) for child in children[1:]]
    assert max(busy) - min(busy) <= 1
    assert parent.forgotten == {f"demo_{n}": 500 - len(children[n]) for n in range(1, 5)}


# -- one entry after the other -------------------------------------------------------------------


def test_an_entry_has_what_was_recorded_of_it(journal: Both) -> None:
    client = ("127.0.0.1", 5000)
    call = journal.open_call("GET", "/x", at_us=7, client=client, route="get")
    assert (call.at_us, call.client, call.route, call.facts) == (7, client, "get", {})
    assert (call.service, call.fake, call.number) == ("demo", "demo_2", 1)
    event = journal.add_event("attempt", "first", url="a")
    assert (event.service, event.fake, event.number) == ("demo", "demo_2", 2)
    assert (event.kind, event.text, event.data) == ("attempt", "first", {"url": "a"})
    alone = Both(lambda: 0)
    assert (call_on(alone).service, call_on(alone).fake) == ("", "")


def test_an_event_keeps_its_details_without_a_dictionary(journal: Both) -> None:
    details = {"status": None, "number": 1, "kind": "k", "error": None, "note": None}
    event, other = (journal.add_event("attempt", "first", **details) for _ in range(2))
    assert [*event.data.items()] == [*details.items()]
    assert (event._names is other._names, event._values) == (True, (None, 1, "k"))
    event.data = {"number": 2}
    assert (event.data, other.data) == ({"number": 2}, details)
    assert repr(event) == "<Event 1 demo_2 attempt: first {'number': 2}>"


def test_what_was_only_tried_out_is_forgotten_everywhere() -> None:
    cloud = Both(lambda: 0)
    first, second = Both(lambda: 0, parent=cloud), Both(lambda: 0, parent=cloud)
    calls = [call_on(first), call_on(second)]
    heavy = finished(first, b"a" * 5_000)
    mark = cloud.reserve()
    finished(first, b"b" * 5_000)
    finished(second, b"c" * 5_000)
    cloud.add_event("tick", "of the cloud's own")
    cloud.forget_since(mark)
    assert cloud.entries == [*calls, heavy]
    assert (first.entries, second.entries) == ([calls[0], heavy], [calls[1]])
    assert list(cloud.shared.large) == [heavy]
    assert cloud.shared.large_bytes == weight_of(heavy)
    assert call_on(second).number > mark


def test_what_a_service_teaches_a_fake_its_cloud_knows() -> None:
    cloud = Both(lambda: 0)
    recorder = Both(lambda: 0, parent=cloud)
    recorder.register_app("kv", WORDED)
    assert [*recorder.words()] == [*cloud.words()] == ["PUT", "GET", "SET"]
    call = finished(recorder, b"a")
    assert cloud.calls(word="a") == recorder.calls(word="a") == [call]
    with pytest.raises(ContractError, match="'nope' is not a field of a call"):
        cloud.calls(nope=1)


def test_a_teacher_that_is_gone_teaches_no_words() -> None:
    journal = Both(lambda: 0)
    journal.register_app("kv", Worded())
    gc.collect()
    assert [*journal.words()] == []


def test_calls_are_filtered_by_predicate_and_by_fields(journal: Both) -> None:
    first, second, third = call_on(journal), call_on(journal, "POST"), call_on(journal, "POST")
    assert journal.calls(lambda call: call is not third) == [first, second]
    assert journal.calls(lambda call: call is not third, method="POST") == [second]
    with pytest.raises(AssertionError, match=r"^expected exactly one call, found 2"):
        journal.calls(method="POST").only()
    for nothing in ("", 0, False):
        with pytest.raises(ContractError, match=f"^{nothing!r} is not a function"):
            journal.calls(nothing)


def test_events_are_asked_for_by_what_they_have(journal: Both) -> None:
    journal.register_app("demo", TEACHER)
    assert journal.events(url="https://a.test") == []
    with pytest.raises(
        ContractError, match=r"^'ulr' is not a field of an event; did you mean 'url'"
    ):
        journal.events(ulr="https://a.test")  # type: ignore[call-arg]
    with pytest.raises(
        ContractError, match=r"^url='a.test' can never match: an absolute URL begins"
    ):
        journal.events(url="a.test")
    journal.add_event("attempt", "first", url="https://a.test")
    journal.add_event("rebalance", "second", group="g", other=5)
    assert [event.text for event in journal.events(group="g")] == ["second"]
    assert [event.text for event in journal.events(other=5)] == ["second"]
    assert journal.events(sent_type="text/plain") == []
    assert [event.text for event in journal.events().where(url="https://a.test")] == ["first"]
    assert [event.text for event in journal.events(url=lambda url: True)] == ["first"]
    for ask in (journal.events, journal.events().where):
        with pytest.raises(
            ContractError,
            match=r"^'nope' is not a field of an event\. Known fields: alone, began, changed, group, "
            r"kind, ",
        ):
            ask(nope=1)
    with pytest.raises(ContractError, match=r"^kind=5 can never match: pass a kind of event"):
        journal.events(5)
    with pytest.raises(AssertionError, match=r"^expected exactly one event, found 0$"):
        journal.events("refused").only()


# -- bounds, exactly -----------------------------------------------------------------------------


def test_a_fake_shows_the_bounds_of_its_cloud() -> None:
    cloud = Both(lambda: 0)
    assert (Journal(cloud).keep, Journal(cloud).keep_bytes) == (None, KEEP_BYTES)
    cloud.keep = 5
    recorder = Both(lambda: 0, parent=cloud)
    assert (Journal(recorder).keep, Journal(recorder).keep_bytes) == (5, KEEP_BYTES)
    Journal(cloud).keep, Journal(cloud).keep_bytes = 7, 8
    assert (cloud.keep, cloud.shared.keep_bytes) == (7, 8)


@pytest.mark.parametrize("name", ["keep", "keep_bytes"])
@pytest.mark.parametrize("value", [-1, "1", True])
def test_a_bound_that_is_no_count_is_an_error(name: str, value: object) -> None:
    with pytest.raises(ContractError, match=rf"{name}={value!r} must be a whole number of at"):
        setattr(Journal(Both(lambda: 0)), name, value)


def test_a_journal_that_keeps_nothing_is_empty() -> None:
    journal = Both(lambda: 0)
    journal.keep = 0
    for _ in range(3):
        call_on(journal)
        assert journal.entries == []


@pytest.mark.parametrize("size", [0, 1, 4_095, 4_096, 4_097])
def test_only_calls_beyond_four_kilobytes_are_ever_cut(size: int) -> None:
    journal = Both(lambda: 0)
    journal.shared.keep_bytes = 0
    is_cut = size > 4_096
    body = b"a" * (size - weight_of(call_on(journal, "POST", "/put")))
    cut_size = len(body) if is_cut else None
    assert finished(journal, body).cut.get("request_body") == cut_size
    assert finished(journal, b"", answer=b"a" * size).cut == (
        {"response_body": size} if is_cut else {}
    )


def test_what_may_just_be_kept_is_kept_whole() -> None:
    journal = Both(lambda: 0)
    first, second = finished(journal, b"a" * 6_000), finished(journal, b"b" * 5_000)
    journal.shared.keep_bytes = weight_of(second)
    journal.close_call(second)
    assert (bool(first.cut), bool(second.cut)) == (True, False)


def test_calls_that_were_under_way_are_cut_in_the_order_they_came(cloud: Both) -> None:
    first, second = (call_on(cloud, "POST", "/slow", body * 40_000) for body in (b"a", b"b"))
    third = finished(cloud, b"c" * 40_000)
    assert (first.cut, second.cut, bool(third.cut)) == ({}, {}, True)
    for call in (second, first):
        call.outcome = "answered"
        cloud.close_call(call)
    finished(cloud, b"d" * 40_000)
    assert (bool(first.cut), bool(second.cut)) == (True, False)


@pytest.mark.parametrize("through_a_fake", [False, True])
def test_large_calls_are_cut_when_they_are_forgotten(through_a_fake: bool) -> None:
    cloud = Both(lambda: 0)
    cloud.keep = 4
    journal = Both(lambda: 0, parent=cloud) if through_a_fake else cloud
    slow = call_on(journal, "POST", "/slow", b"s" * 5_000)
    forgotten, *others = (finished(journal, b"a" * 5_000) for _ in range(4))
    assert not forgotten.cut
    call_on(journal)
    assert cloud.entries[0] is others[0]
    assert forgotten.cut["request_body"] == 5_000
    # The server still needs the call in progress in full.
    assert slow.cut == {}
    assert [call.cut for call in others] == [{}] * 3
    assert set(cloud.shared.large) == {slow, *others}


class Seen(str):
    """A string that counts how often it is formatted."""

    count = 0

    def __repr__(self) -> str:
        Seen.count += 1
        return super().__repr__()


LARGE = [Seen("x")] * 1_000


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ({"b": None, "a": [1, 2.5, "x"]}, "{'b': None, 'a': [1, 2.5, 'x']}"),
        ((1,), "(1,)"),
        ({3}, "{3}"),
        ([], "[]"),
        (set(), "set()"),
        ("é" * 70, "'" + "é" * 59 + "…"),
        (LARGE, "list of 1000"),
        ({"rows": LARGE}, "{'rows': list of 1000}"),
        (CallSite(LARGE), "CallSite(list of 1000)"),  # type: ignore[arg-type]
        ([[[[LARGE]]]], "[[[list of 1]]]"),
        ([{"deep": {"er": [1]}}], "[{'deep': {'er': list of 1}}]"),
        (object(), "object"),
        ([object()], "[object]"),
    ],
)
def test_an_argument_of_an_action_is_formatted_in_a_time_that_does_not_depend_on_its_size(
    argument: object, text: str
) -> None:
    Seen.count = 0
    assert arguments_shown([argument], {}) == [text]
    assert Seen.count == 0


def test_a_long_text_in_an_argument_is_cut_before_it_is_formatted() -> None:
    class Whole(bytes):
        def __repr__(self) -> str:
            raise AssertionError("the whole value was formatted")

    assert arguments_shown([[Whole(b"x" * 1_000)]], {}) == ["[b'" + "x" * 58 + "…]"]


class Unequal(type):
    """A metaclass with ``__eq__`` and no ``__hash__``."""

    def __eq__(cls, other: object) -> bool:
        return False


def refuse(*args: object) -> Any:
    raise RuntimeError("it was called")


@pytest.mark.parametrize(
    ("value", "method"),
    [
        ({"a": 1}, "__len__"),
        ({"a": 1}, "items"),
        ([1], "__bool__"),
        ([1], "__iter__"),
        ({1}, "__len__"),
        ("x", "__getitem__"),
        (1, "__repr__"),
    ],
)
def test_an_action_succeeds_whatever_formatting_its_arguments_raises(
    value: Any, method: str
) -> None:
    argument = type("Own", (type(value),), {method: refuse})(value)
    text = "<Own, whose repr raises>"
    assert arguments_shown([argument], {"body": argument}) == [text, f"body={text}"]


def test_an_action_succeeds_whatever_formatting_its_headers_raises() -> None:
    headers = type("Own", (dict,), {"__iter__": refuse, "keys": refuse})(a="secret")
    assert arguments_shown([], {"headers": headers}) == ["headers=<Own, whose repr raises>"]


def test_an_argument_whose_type_has_no_hash_is_formatted() -> None:
    argument = Unequal("Own", (dict,), {})()
    assert arguments_shown([argument], {}) == ["<Own, whose repr raises>"]


def test_an_argument_that_changes_while_it_is_formatted_is_shown_as_it_was() -> None:
    table: dict[str, Any] = {}
    items: set[Any] = set()

    class Growing(int):
        def __repr__(self) -> str:
            table["new"] = 1
            items.add(2)
            return "1"

    table["a"] = Growing()
    items.add(Growing())
    assert arguments_shown([table, items], {}) == ["{'a': 1}", "{1, 2}"]
