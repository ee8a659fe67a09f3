"""Run the scenarios and the tests of the REST routes on librdkafka's mock cluster.

A test that moves the clock is replaced here by a test of the same name in wall-clock time. Tests
with settings that are rejected for a real cluster are skipped, and those for which ``SKIPPED`` has
another reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar

import httpx
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, KafkaException

from pytest_fakecloud.broker.errors import BrokerError
from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.broker.real_kafka import engine as kafka_engine
from pytest_fakecloud.broker.real_kafka.cluster import Cluster, KafkaAddress, Names, Unavailable
from pytest_fakecloud.broker.real_kafka.groups import KafkaInstance, RecordBuffer
from pytest_fakecloud.broker.real_kafka.topics import KafkaTopics
from pytest_fakecloud.broker.settings import BrokerConfig
from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.settings import read
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.process import surroundings

from ...harness import check_each, wait_until
from ...notations import Fetched, cases
from .. import test_routes
from ..conftest import MANUAL, START_MS, Make, Parked, Rest, closing_brokers, until_parked
from ..scenarios import FOLDER, BrokerPlayer, settings_of
from .mock_cluster import SETTINGS, MockCluster, library

pytestmark = pytest.mark.slow

LIBRARY = library()
if LIBRARY is None:
    pytest.skip("this librdkafka shows no mock cluster", allow_module_level=True)

NO_TIMES = (
    "the mock cluster has no offsets by time (librdkafka issue 4755); how they "
    "are asked for is in TestAdmin"
)
SKIPPED = {
    "test_a_produce_wakes_only_the_fetches_of_its_partition": "looks into the in-memory engine; "
    "what a client sees of it is the test before, which runs here",
    "test_offsets_at_a_time": NO_TIMES,
    "rest-a timestamp in seconds is never scaled": NO_TIMES,
}
DELETING = {"test_offsets_of_the_ends"}
"""Tests that need a cluster that can delete."""
SESSION = {"session_timeout": "1300ms"}


def partitions(broker: Broker) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    return {topic.name: topic.partitions for topic in broker.topics()}


class Present(int):
    """A time in milliseconds that equals every time of the last minute."""

    def __eq__(self, other: object) -> bool:
        now = time.time() * 1000
        return isinstance(other, int) and now - 60_000 < other <= now

    __hash__ = int.__hash__


class PatientRest(Rest):
    """A client that repeats a request while an instance has no partitions yet."""

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        reply = super().__call__(method, path, body, **options)
        parts = path.split("?")[0].strip("/").split("/")
        if parts[0] != "consume" or reply or options.get("status", 200) != 200:
            return reply
        until, ready_at = monotonic() + PATIENCE, float("inf")
        while not reply and monotonic() < min(until, ready_at + ENOUGH):
            if any(self.assignments(parts[1]).get(parts[2], {}).values()):
                ready_at = min(ready_at, monotonic())
            pause.wait(0.02)
            reply = super().__call__(method, path, body, **options)
        return reply

    def values(
        self, group: str, instance: str, *topics: str, count: int = 1, **options: Any
    ) -> list[str]:
        """Return the values; repeat the request until there are ``count``, because a client may
        receive the records of one request in several parts.
        """
        values: list[str] = []
        until = monotonic() + PATIENCE
        while len(values) < count and monotonic() < until:
            values += super().values(group, instance, *topics, **options)
        return values


pause = threading.Event()
PATIENCE = 20.0
"""Seconds to wait for an expected event."""
eventually = partial(wait_until, seconds=PATIENCE)
ENOUGH = 0.25
"""Seconds after which an instance with partitions is assumed to have no records."""


def again(function: types.FunctionType) -> types.FunctionType:
    """Return a copy of a test that uses this module's fixtures and a patient client."""
    module = {**function.__globals__, "Rest": PatientRest, "START_MS": Present()}
    copy = types.FunctionType(function.__code__, module, function.__name__)
    copy.__kwdefaults__, copy.__defaults__ = function.__kwdefaults__, function.__defaults__
    copy.__annotations__, copy.__doc__ = function.__annotations__, function.__doc__
    marks = list(getattr(function, "pytestmark", []))
    reason = SKIPPED.get(function.__name__)
    if reason is not None:
        marks.append(pytest.mark.skip(reason=reason).mark)
    if function.__name__ in DELETING:
        marks.append(pytest.mark.usefixtures("deleting").mark)
    copy.pytestmark = marks  # type: ignore[attr-defined]
    return copy


for _name, _test in vars(test_routes).items():
    if _name.startswith("test_"):
        globals()[_name] = again(_test)
SCENARIOS = cases(FOLDER)


class PatientPlayer(BrokerPlayer):
    """Repeats a request while an instance has no partitions yet, or not the expected records, and
    reads the real clock.
    """

    expects_records = False

    def requests(self, line: str, reply: str) -> None:
        self.expects_records = '"value"' in reply
        super().requests(line, reply)

    def compare(self, value: Any, expected: Any, *, part: bool) -> None:
        if expected == START_MS:
            assert value == Present(), value
        else:
            super().compare(value, expected, part=part)

    def send(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Fetched:
        answer = super().send(method, path, headers, body)
        parts = path.split("?")[0].strip("/").split("/")
        if parts[0] != "consume" or answer.status != 200:
            return answer
        until, ready_at = monotonic() + PATIENCE, float("inf")
        while not answer.json() and monotonic() < min(until, ready_at + ENOUGH):
            has_partitions = any(member.name == parts[2] for member in self.assigned(parts[1]))
            if has_partitions and not self.expects_records:
                ready_at = min(ready_at, monotonic())
            pause.wait(0.02)
            answer = super().send(method, path, headers, body)
        return answer

    def assigned(self, group: str) -> list[Any]:
        groups = [
            consumer_group for consumer_group in self.fake.groups() if consumer_group.name == group
        ]
        return [
            member
            for consumer_group in groups
            for member in consumer_group.members
            if member.assignment
        ]


@pytest.fixture(scope="module", autouse=True)
def shared_tls_context() -> Iterator[None]:
    surroundings.shared_tls_contexts[0].enter(surroundings)
    surroundings.shared_tls_contexts[0].refresh()
    yield
    surroundings.shared_tls_contexts[0].leave(surroundings)


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    assert LIBRARY is not None
    mock = MockCluster(LIBRARY)
    yield mock
    mock.close()


@pytest.fixture
def deleting(mock: MockCluster) -> None:
    if not mock.deletes:
        pytest.skip("the mock cluster of this librdkafka deletes neither topics nor records")


@pytest.fixture
def engine(mock: MockCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of the mock cluster."""
    monkeypatch.setattr(kafka_engine, "Cluster", mock.administered())
    return f"kafka://{mock.bootstrap}?{SETTINGS}"


def skip_if_rejected(settings: dict[str, Any]) -> None:
    """Skip the test if its settings are valid in memory but rejected for a real cluster."""
    try:
        read(BrokerConfig, settings, "broker")
    except ContractError as error:
        in_memory = {name: value for name, value in settings.items() if name != "engine"}
        read(BrokerConfig, in_memory, "broker")
        pytest.skip(str(error))


@pytest.fixture
def make_broker(engine: str) -> Iterator[Make]:
    with closing_brokers() as made:

        def make(clock: str = "running", seed: int = 7, **settings: Any) -> Broker:
            settings = {"topics": {"orders": 3}, **SESSION, "engine": engine, **settings}
            skip_if_rejected(settings)
            made.append(Broker(Context.alone(seed=seed), **settings))
            return made[-1]

        yield make


@pytest.fixture
def rest(broker: Broker) -> Rest:
    return PatientRest(broker)


def test_what_is_skipped_exists() -> None:
    names = set(vars(test_routes)) | {str(case.id) for case in SCENARIOS}
    assert set(SKIPPED) | DELETING <= names


@pytest.mark.parametrize(("settings", "lines"), SCENARIOS)
def test_a_scenario(
    request: pytest.FixtureRequest, make_broker: Make, settings: dict[str, Any], lines: list[str]
) -> None:
    if reason := SKIPPED.get(request.node.callspec.id):
        pytest.skip(reason)
    if any(line[0] == "@" for line in lines):
        pytest.skip("it moves the clock")
    PatientPlayer(make_broker(**settings_of(settings))).play(lines)


# -- the tests of the routes that move time, in real time ------------------------------------------


def test_fetch_waits_a_second_unless_told(rest: Rest) -> None:
    started = monotonic()
    assert rest("POST", "/fetch", {"topic": "orders", "partition": 1, "offset": 0}) == []
    assert monotonic() - started > 0.9


def test_commit_during_a_rebalance_is_refused(make_broker: Make) -> None:
    # A rebalance of the mock cluster takes one second less than the session timeout.
    rest = PatientRest(make_broker(session_timeout="2s"))
    rest.consume("g", "a", "orders")
    rest.http.post("/consume/g/b", json={"topic": "orders", "timeout": 0})
    refused = []

    def formed() -> bool:
        answer = rest.http.post("/commit/g/a", json=[{**test_routes.POSITION, "offset": 1}])
        if answer.status_code == 409:
            refused.append(answer.json()["error"])
        return all(rest.assignments("g").values())

    eventually(formed)
    assert any("rebalanc" in error for error in refused), refused
    for name, has in rest.assignments("g").items():
        rest.commit("g", name, *(("orders", number, 2) for number in has["orders"]))
    assert rest.committed("g", "orders", 0, 1, 2) == [2, 2, 2]


def test_a_late_commit_after_the_session_expired_is_refused(
    broker: Broker, rest: Rest, mock: MockCluster
) -> None:
    heartbeat, unknown_member = 12, 25
    rest.produce("orders", "slow", partition=0)
    assert rest.values("g", "a", "orders", **MANUAL) == ["slow"]
    mock.fail_next(heartbeat, unknown_member)
    eventually(lambda: broker.journal.events("expire"))
    assert broker.group("g").members.only().state == "expired"
    assert "session" in rest.commit("g", "a", ("orders", 0, 1), status=409)["error"]
    assert rest.committed("g", "orders", 0) == [-1]
    assert rest.values("g", "a", "orders") == ["slow"]
    rest.commit("g", "a", ("orders", 0, 1))
    assert rest.committed("g", "orders", 0) == [1]


class Message:
    """A record as librdkafka returns it."""

    def __init__(self, offset: int, size: int) -> None:
        self._offset, self._size = offset, size

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def __len__(self) -> int:
        return self._size


class TestGroups:
    EARLIEST: ClassVar[dict[str, str]] = {"Auto_Offset_Reset": "earliest"}

    def test_two_instances_share_and_one_inherits(self, broker: Broker, rest: Rest) -> None:
        rest.consume("g", "a", "orders", **self.EARLIEST)
        rest.consume("g", "b", "orders", **self.EARLIEST)
        eventually(lambda: all(rest.assignments("g").values()))
        shares = sorted(rest.assignments("g").values(), key=lambda share: len(share["orders"]))
        assert [len(share["orders"]) for share in shares] == [1, 2]
        rest("DELETE", "/delete-consumer/g/b")
        eventually(lambda: rest.assignments("g") == {"a": {"orders": [0, 1, 2]}})
        rest("DELETE", "/delete-consumer/g/b", status=404)

    def test_what_was_not_committed_comes_again(self, broker: Broker, rest: Rest) -> None:
        rest.produce("orders", "x", "y", partition=0)
        assert rest.values("g", "a", "orders", count=2, **MANUAL) == ["x", "y"]
        rest.commit("g", "a", ("orders", 0, 1))
        assert broker.group("g").committed == {("orders", 0): 1}
        rest("DELETE", "/delete-consumer/g/a")
        assert rest.values("g", "b", "orders", **MANUAL) == ["y"]
        assert rest("POST", "/commit/g/b")["status"] == 200
        assert rest.committed("g", "orders", 0) == [2]
        assert broker.assert_caught_up("g").total_lag == 0

    def test_only_what_was_delivered_is_committed_automatically(
        self, broker: Broker, rest: Rest
    ) -> None:
        rest.produce("orders", *"abc", partition=0)
        options = {**self.EARLIEST, "Auto_Commit_Interval": "100"}
        assert rest.values("g", "a", "orders", count=3, **options) == ["a", "b", "c"]
        rest.produce("orders", "d", partition=0)
        eventually(lambda: rest.committed("g", "orders", 0) == [3])
        pause.wait(0.3)
        assert rest.committed("g", "orders", 0) == [3]
        # The client also commits between two parts of the records, and repeats a commit that was
        # not confirmed within the interval.
        assert broker.assert_committed("g", "orders", 0).only().offset == 3
        assert {event.data["instance"] for event in broker.journal.events("auto commit")} == {"a"}
        assert rest.values("g", "a", "orders") == ["d"]
        rest("DELETE", "/delete-consumer/g/a")
        broker.assert_committed("g", "orders", 0, 4)

    def test_records_are_given_even_where_that_cannot_be_noted(
        self, broker: Broker, rest: Rest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rest.consume("g", "a", "orders", **self.EARLIEST)
        member = broker._engine.groups.members("g")["a"]  # type: ignore[attr-defined]

        def refuse(what: object) -> None:
            raise Unavailable("it is busy")

        monkeypatch.setattr(member, "ask", refuse)
        rest.produce("orders", "x", partition=0)
        assert rest.values("g", "a", "orders") == ["x"]

    def test_a_subscription_that_failed_is_made_again(
        self, rest: Rest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*args: object) -> None:
            raise Unavailable("it did not respond")

        rest.produce("orders", "x", partition=0)
        with monkeypatch.context() as patched:
            patched.setattr(KafkaInstance, "ask", fail)
            rest.consume("g", "a", "orders", status=503, **self.EARLIEST)
        assert rest.values("g", "a", "orders") == ["x"]

    def test_a_record_of_no_bytes_overtakes_none(self) -> None:
        buffer = RecordBuffer()
        buffer.assign([("orders", 0)])
        for offset, size in enumerate((5, 5, 0)):
            buffer.add(Message(offset, size))
        assert [message.offset() for message in buffer.take(9, 6)[0]] == [0]
        assert [message.offset() for message in buffer.take(9, 6)[0]] == [1, 2]

    def test_joining_again_delivers_nothing(self, broker: Broker, rest: Rest) -> None:
        rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
        rest.produce("orders", "a")
        [member] = broker._engine.groups.members("g").values()  # type: ignore[union-attr]
        eventually(lambda: bool(member.buffer))
        broker.join("g", "i", ["orders"])
        assert rest.values("g", "i", "orders") == ["a"]

    def test_a_member_without_partitions_is_a_member(self, make_broker: Make) -> None:
        broker = make_broker(topics={"orders": 1}, instance_limit=None)
        rest = PatientRest(broker)
        for name in ("a", "b"):
            broker.join("g", name, ["orders"])
        eventually(lambda: broker.group("g").state == "Stable")
        assert sorted(map(len, rest.assignments("g").values())) == [0, 1]

    def test_commits_without_an_instance_are_events(self, make_broker: Make) -> None:
        broker = make_broker()
        broker.commit("g", "orders", 0, 0)
        events = [
            (event.kind, event.data["instance"]) for event in broker.journal.events(group="g")
        ]
        assert events == [("offsets set", "the test")]

    def test_reset_none(self, broker: Broker, rest: Rest) -> None:
        rest.produce("orders", "x", partition=0)
        body = {"topic": "orders", "timeout": 3000}
        headers = {"Kafka-Auto-Offset-Reset": "none"}
        error = rest("POST", "/consume/g/a", body, headers=headers, status=400)["error"]
        assert "no reset policy" in error
        assert broker._engine._names.prefix not in error  # type: ignore[attr-defined]
        rest.commit("g", "a", ("orders", 0, 0), ("orders", 1, 0), ("orders", 2, 0))
        assert rest.values("g", "a", "orders") == ["x"]

    def test_the_journal_has_calls_and_events(self, broker: Broker, rest: Rest) -> None:
        rest.consume("g", "a", "orders")
        rest.commit("g", "a", ("orders", 1, 5))
        assert broker.journal.events("assigned").last.data["partitions"] == 3
        assert broker.assert_committed("g", "orders", 1, 5, times=1).only().offset == 5
        assert broker.assert_committed("g", "orders").only().offset == 5
        call = broker.journal.calls(route="consume").last
        assert call.facts["topic"] == ["orders"]

    def test_waiting_calls_end_with_the_server(self, make_broker: Make) -> None:
        broker = make_broker()
        rest = PatientRest(broker)
        rest.consume("g", "a", "orders")
        body = {"topic": "orders", "timeout": 60_000}
        parked = Parked(lambda: rest.http.post("/consume/g/a", json=body))
        eventually(lambda: broker._engine._waits.waiting)
        started = monotonic()
        broker.close()
        with contextlib.suppress(Exception):
            parked.result()
        assert monotonic() - started < 20


class TestFake:
    def test_looking(self, broker: Broker, rest: Rest) -> None:
        rest.produce("orders", "x", key="city", partition=1, headers=[{"key": "h", "value": "1"}])
        broker.produce("orders", {"n": 1}, partition=0)
        topic = broker.topic("orders")
        assert (topic.partitions, topic.start_offsets, topic.end_offsets) == (
            3, [0, 0, 0], [1, 1, 0],
        )  # fmt: skip
        assert broker.records("orders", partition=0).only().json() == {"n": 1}
        assert broker.assert_produced("orders", "x", key="city", headers={"h": "1"}).only()
        assert broker.assert_produced("orders", times=1)
        with pytest.raises(AssertionError, match="the test itself produced it"):
            broker.assert_produced("orders", "y")
        assert broker.wait_for_record("orders", lambda record: record.key == "city").value == "x"
        with pytest.raises(AssertionError, match="<lambda> at least once, found 0"):
            broker.wait_for_record("orders", lambda record: False, timeout=0.1)

    def test_what_cannot_be_set_up_leaves_the_clock_alone(self, engine: str) -> None:
        context = Context.alone()
        with pytest.raises(ContractError, match="bad name"):
            Broker(context, engine=engine, topics={"bad name": 1})
        context.timekeeper.advance(1)

    def test_a_prefix_contradicts_no_isolation(self, engine: str) -> None:
        with pytest.raises(ContractError, match="prefix=x: pass only one of them"):
            Broker(Context.alone(), engine=f"{engine}&prefix=x", isolation="none")

    def test_a_header_that_is_no_text_is_replaced(self, broker: Broker) -> None:
        broker.produce("orders", "a", headers={"\ud800": "\ud800"})
        assert broker.records("orders").only().headers == (("?", "?"),)

    def test_nothing_to_fetch_needs_no_time(self, broker: Broker) -> None:
        assert broker._engine.records.fetch([], 3_600_000) == []

    def test_loading_creates_topics(self, broker: Broker) -> None:
        broker.load({"new": ["a", {"value": "b", "partition": 1, "timestamp": 5}]})
        assert partitions(broker) == {"orders": 3, "new": 2}
        assert broker.records("new", partition=1).last.timestamp == 5

    @pytest.mark.usefixtures("deleting")
    def test_what_cannot_be_loaded_leaves_no_topics(self, broker: Broker) -> None:
        with pytest.raises(ContractError, match="Invalid partition 9"):
            broker.load({"new": ["a"], "orders": [{"value": "b", "partition": 9}]})
        assert partitions(broker) == {"orders": 3}

    def test_reset_and_snapshots(self, broker: Broker, rest: Rest) -> None:
        broker.load({"orders": [{"value": "x", "partition": 0, "key": "k"}]})
        broker.commit("g", "orders", 0, 1)
        saved = broker.snapshot()
        rest.produce("orders", "y", partition=0)
        rest.consume("g2", "a", "orders")
        broker.restore(saved)
        assert [(r.value, r.key, r.offset) for r in broker.records("orders")] == [("x", "k", 0)]
        assert rest.committed("g", "orders", 0) == [1]
        assert rest("GET", "/consumers") == []
        rest.produce("orders", "z", partition=0)
        assert broker.topic("orders").end_offsets == [2, 0, 0]
        broker.reset()
        assert partitions(broker) == {"orders": 3}
        assert broker.records("orders") == []
        assert broker.groups() == []

    def test_what_only_the_in_memory_engine_can_do(self, broker: Broker) -> None:
        def is_refused(act: Callable[[Broker], object]) -> None:
            with pytest.raises(ContractError, match="in-memory engine"):
                act(broker)

        broker.commit("g", "orders", 0, 0)
        acts: list[Callable[[Broker], object]] = [
            lambda b: b.faults.crash("g", "i"),
            lambda b: b.group("g").expire("i"),
            lambda b: b.group("g").rebalance(),
            lambda b: b.faults.redeliver("g"),
            lambda b: b.topic("orders").set_retention("1d"),
            lambda b: b.create_topic("t", first_offset=5),
            lambda b: b.clock.advance("1s"),
            lambda b: b.clock.move_to("2100-01-01T00:00:00Z"),
            lambda b: b.clock.advance_to_next(),
            lambda b: b.clock.freeze(),
            lambda b: asyncio.run(b.clock.aio.advance("1s")),
            lambda b: asyncio.run(b.clock.aio.move_to("2100-01-01T00:00:00Z")),
            lambda b: asyncio.run(b.clock.aio.advance_to_next()),
        ]
        check_each(is_refused, [(act,) for act in acts])

    def test_faults_of_requests_work_with_a_cluster(self, broker: Broker) -> None:
        rest = PatientRest(broker)
        broker.faults.partial_produce(keep=2, topic="orders")
        rest("POST", "/produce/orders", [{"value": "a", "partition": 9}] * 3, status=400)
        batch = [{"value": value, "partition": 0} for value in "abc"]
        assert "2 messages" in rest("POST", "/produce/orders", batch, status=503)["error"]
        assert [record.value for record in broker.records("orders")] == ["a", "b"]

        def consume_two_partitions() -> int:
            for partition in (1, 2):
                rest.produce("orders", "d", "e", partition=partition)
            rest.consume("g", "i", "orders")
            return fault.hits

        with broker.faults.reorder() as fault:
            eventually(consume_two_partitions)
        assert not broker.faults.unused()

    def test_other_fakes_of_the_cloud_cannot_move_time_either(self, engine: str) -> None:
        with Cloud(delivery="driven") as cloud:
            queue = cloud.queue()
            cloud._timekeeper.call_at(cloud.clock.now_us() + 60_000_000, lambda at: None)
            queue.publish("http://127.0.0.1:9/", delay="1h")
            broker = cloud.broker(engine=engine)
            for move in (
                lambda: queue.run_until_idle(within="2h"),
                lambda: asyncio.run(queue.aio.run_until_idle(within="2h")),
                cloud.clock.advance_to_next,
                lambda: asyncio.run(cloud.clock.aio.advance_to_next()),
            ):
                with pytest.raises(ContractError, match="cannot be stopped or moved"):
                    move()
            assert queue.deliver_due() == []
            broker.close()
            assert len(cloud.clock.advance_to_next()) == 1


class TestTopics:
    def test_a_late_list_of_topics_replaces_no_newer_one(self) -> None:
        lists = iter([{"a": 1}, {"a": 1, "b": 1}])

        class Slow:
            names = Names("none")

            def topics(self) -> dict[str, int]:
                names = next(lists)
                if "b" not in names:
                    # A second request is sent and answered before the first one is answered.
                    assert topics.look(fresh=True).keys() == {"a", "b"}
                return names

        settings = BrokerConfig(engine="kafka://127.0.0.1:1", isolation="none")
        topics = KafkaTopics(Slow(), settings)  # type: ignore[arg-type]
        assert topics.look(fresh=True).keys() == {"a", "b"}

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a b", "Topic name 'a b' is illegal"),
            ("x" * 248, "the maximum is 249"),  # with the prefix of the fake
            ("orders", "'orders' already exists; add_partitions()"),
        ],
    )
    def test_what_cannot_be_created(self, broker: Broker, name: str, text: str) -> None:
        with pytest.raises(ContractError, match=re.escape(text)):
            broker.create_topic(name, partitions=1)
        assert partitions(broker) == {"orders": 3}

    @pytest.mark.usefixtures("deleting")
    def test_records_of_one_partition_or_of_all_are_forgotten(self, broker: Broker) -> None:
        values = [{"value": str(n), "partition": n % 2} for n in range(6)]
        broker.load({"orders": values})
        with pytest.raises(ContractError, match="partition"):
            broker.topic("orders").delete_records(before=1, partition=7)
        broker.topic("orders").delete_records(before=1, partition=1)
        assert broker.topic("orders").start_offsets == [0, 1, 0]
        broker.topic("orders").delete_records(before=2)
        assert broker.topic("orders").start_offsets == [2, 2, 0]
        with pytest.raises(ContractError, match="'orders', whose first records were deleted"):
            broker.snapshot()

    @pytest.mark.usefixtures("deleting")
    def test_a_topic_is_deleted(self, broker: Broker) -> None:
        broker.create_topic("other")
        broker.topic("other").delete()
        assert partitions(broker) == {"orders": 3}
        with pytest.raises(ContractError, match="'other'"):
            broker.topic("other").delete()


class TestCopies:
    def test_copies_are_put_back_where_they_were_taken(self, broker: Broker) -> None:
        with Cloud() as cloud:
            memory = cloud.broker(topics={"orders": 1})
            with pytest.raises(ContractError, match="this snapshot is of the in-memory broker"):
                broker.restore(memory.snapshot())
            with pytest.raises(ContractError, match="the snapshot is from a real cluster"):
                memory.restore(broker.snapshot())

    def test_no_copy_is_taken_of_what_others_share(self, make_broker: Make, engine: str) -> None:
        broker = make_broker(engine=f"{engine}&prefix=shared-copies.", topics={})
        with pytest.raises(ContractError, match="shares with others cannot be copied"):
            broker.snapshot()
        with pytest.raises(ContractError, match="shares with others cannot be restored"):
            broker.reset()

    def test_a_group_without_commits_is_there_again_without(
        self, broker: Broker, rest: Rest
    ) -> None:
        broker.load({"orders": [{"value": "x", "partition": 0}]})
        rest.consume("g", "a", "orders", Enable_Auto_Commit="false")
        broker.restore(broker.snapshot())
        assert rest("GET", "/consumers") == []
        assert [record.value for record in broker.records("orders")] == ["x"]


class TestSharing:
    def test_fakes_see_only_their_own(self, make_broker: Make) -> None:
        first, second = PatientRest(make_broker()), PatientRest(make_broker())
        first.produce("orders", "first", partition=0)
        second.produce("orders", "second", partition=0)
        for rest, value in ((first, "first"), (second, "second")):
            assert rest("GET", "/topics") == {"orders": 3}
            values = rest.values("g", "a", "orders", Auto_Offset_Reset="earliest")
            assert values == [value]

    def test_a_prefix_that_processes_share(self, make_broker: Make, engine: str) -> None:
        first = make_broker(engine=f"{engine}&prefix=team.")
        second = make_broker(engine=f"{engine}&prefix=team.", topics={})
        PatientRest(first).produce("orders", "x")
        assert [record.value for record in second.records("orders")] == ["x"]

    def test_internal_topics_are_not_shown(self, make_broker: Make, mock: MockCluster) -> None:
        mock.create_topic("__consumer_offsets", 3)
        mock.create_topic("visible", 1)
        topics = make_broker(isolation="none", topics={}).topics()
        assert topics.where(name="visible").only().partitions == 1
        assert not topics.where(name="__consumer_offsets")


POSITION = {"topic": "orders", "partition": 0, "offset": 0}
PARTITION = [{"topic": "orders", "partition": 0}]
OPERATIONS: dict[str, tuple[str, str, Any]] = {
    "produce": ("POST", "/produce/orders", {"value": "x", "partition": 0}),
    "webhook": ("POST", "/webhook?topic=orders", "x"),
    "fetch": ("POST", "/fetch", {**POSITION, "partition": 1, "timeout": 60_000}),
    "consume": ("POST", "/consume/g/b", {"topic": "orders", "timeout": 60_000}),
    "join": ("POST", "/consume/g2/a", {"topic": "orders", "timeout": 60_000}),
    "commit": ("POST", "/commit/g/b", [{**POSITION, "offset": 1}]),
    "commit what was delivered": ("POST", "/commit/g/b", None),
    "committed": ("POST", "/committed/g/a", PARTITION),
    "offsets": ("POST", "/offsets/latest", PARTITION),
    "topics": ("GET", "/topics", None),
}
"""Methods that need the cluster; those that wait have a timeout longer than the slowest of them."""


class TestAClusterThatGoesAway:
    @pytest.fixture(autouse=True)
    def comes_back(self, mock: MockCluster) -> Iterator[None]:
        yield
        mock.up()

    @staticmethod
    def patience(engine: str, seconds: float) -> str:
        return engine.replace("request.timeout=5", f"request.timeout={seconds}")

    def test_everything_says_so_and_works_again(
        self, make_broker: Make, engine: str, mock: MockCluster
    ) -> None:
        # The session timeout is longer than the outage, so that the session is not what ends the
        # requests.
        broker = make_broker(
            engine=self.patience(engine, 1), session_timeout="30s", instance_limit=None
        )
        rest = PatientRest(broker)
        rest.produce("orders", "before", partition=0)
        assert rest.values("g", "b", "orders", **MANUAL) == ["before"]

        def ask(name: str, timeout: int = 60_000) -> httpx.Response:
            method, path, body = OPERATIONS[name]
            if isinstance(body, dict) and "timeout" in body:
                body = {**body, "timeout": timeout}
            return rest.http.request(method, path, json=body)

        calls = {"early consume": Parked(lambda: ask("consume"))}
        calls["early fetch"] = Parked(lambda: ask("fetch"))
        until_parked(broker, 2)
        mock.down()
        calls |= {name: Parked(lambda name=name: ask(name)) for name in OPERATIONS}  # type: ignore[misc]
        looks = Parked(lambda: broker.topic("orders").records)
        for name, call in calls.items():
            answer = call.result()
            assert answer.status_code == 503, (name, answer.text)
            assert set(answer.json()) == {"error", "status"}
            assert "not available" in answer.json()["error"]
            assert broker._engine._names.prefix not in answer.text  # type: ignore[attr-defined]
        with pytest.raises(ContractError, match="not available"):
            looks.result()
        with pytest.raises(ContractError, match="not available"):
            broker.reset()
        mock.up()
        for name in OPERATIONS:
            eventually(lambda name=name: ask(name, 0).status_code == 200)  # type: ignore[misc]
        values = [record.value for record in broker.records("orders", partition=0)]
        assert values[0] == "before"
        assert "x" in values
        assert broker.group("g").committed["orders", 0] >= 1

    def test_an_instance_whose_session_ends_meanwhile_joins_again(
        self, make_broker: Make, engine: str, mock: MockCluster
    ) -> None:
        broker = make_broker(engine=self.patience(engine, 1))
        rest = PatientRest(broker)
        rest.produce("orders", "before", partition=0)
        assert rest.values("g", "a", "orders", **MANUAL) == ["before"]
        mock.down()
        eventually(lambda: broker.journal.events("expire"))
        mock.up()
        eventually(lambda: rest.http.get("/produce/orders/after").status_code == 200)
        values: list[str] = []
        eventually(lambda: (values.extend(rest.values("g", "a", "orders")), "after" in values)[1])
        assert values[0] == "before"

    def test_closing_does_not_wait_for_it(
        self, make_broker: Make, engine: str, mock: MockCluster
    ) -> None:
        broker = make_broker(engine=self.patience(engine, 30), session_timeout="30s")
        rest = PatientRest(broker)
        rest.produce("orders", "x", partition=0)
        assert rest.values("g", "a", "orders", Auto_Offset_Reset="earliest") == ["x"]
        waits = Parked(lambda: rest.http.post("/consume/g/a", json=OPERATIONS["consume"][2]))
        until_parked(broker)
        mock.down()
        asks = [
            Parked(lambda method=method, path=path: rest.http.request(method, path))  # type: ignore[misc]
            for method, path in (
                ("GET", "/topics"),
                ("GET", "/produce/orders/y"),
                ("POST", "/commit/g/a"),
            )
        ]
        pause.wait(0.2)
        assert all(call.waiting for call in (waits, *asks))
        started = monotonic()
        broker.close()
        assert monotonic() - started < 20
        for call in (waits, *asks):
            with contextlib.suppress(Exception):
                call.result()

    @pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
    def test_the_stand_alone_server_ends_without_it(self, mock: MockCluster) -> None:
        url = f"kafka://{mock.bootstrap}?{SETTINGS}".replace("timeout=2", "timeout=30")
        command = [
            sys.executable, "-m", "pytest_fakecloud", "serve", "broker", "--random", "--json",
        ]  # fmt: skip
        with subprocess.Popen(
            [*command, "--broker", f"engine={url}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())
                mock.down()
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=10)
                assert process.returncode == 0, errors
            finally:
                process.kill()


class TestFaults:
    def test_errors_of_the_cluster_are_retried_or_told(
        self, broker: Broker, rest: Rest, mock: MockCluster
    ) -> None:
        produce, not_enough_replicas, record_list_too_large = 0, 19, 18
        mock.fail_next(produce, not_enough_replicas)
        rest.produce("orders", "a", partition=0)
        mock.fail_next(produce, record_list_too_large)
        rest("POST", "/produce/orders", {"value": "b"}, status=413)
        assert [record.value for record in broker.records("orders")] == ["a"]

    def test_an_unknown_topic_is_not_created_by_asking(self, broker: Broker, rest: Rest) -> None:
        rest("GET", "/produce/nope/x", status=404)
        rest("POST", "/consume/g/a", {"topic": "nope"}, status=404)
        assert partitions(broker) == {"orders": 3}


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"engine": "amqp://x"}, "'kafka://127.0.0.1:9092'"),
            ({"engine": "kafka://u:secret@[::1"}, "engine= is not an address: Invalid IPv6 URL"),
            ({"engine": "kafka://127.0.0.1:1?request.timeout=0.2"}, "cannot use the cluster"),
            ({"engine": "kafka://h?request.timeout=x"}, "number of seconds"),
            ({"engine": "kafka://h?request.timeout=-1"}, "a positive number of seconds"),
            ({"engine": "kafka://h?request.timeout=nan"}, "a positive number of seconds"),
            ({"engine": "kafka://h?static=maybe"}, "static='maybe' is invalid: pass true"),
            ({"engine": "kafka://h:1?colour=red"}, 'No such configuration property: "colour"'),
            ({"engine": "kafka://h:1?session.timeout.ms=x"}, "Invalid value for"),
        ],
    )
    def test_mistakes_are_named(
        self, engine: str, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], text: str
    ) -> None:
        with Cloud() as cloud, pytest.raises(ContractError) as caught:
            cloud.broker(**{"engine": engine, **settings})
        assert text in str(caught.value)

    def test_a_frozen_clock(self, engine: str) -> None:
        with Cloud(clock="frozen") as cloud, pytest.raises(ContractError, match="in-memory"):
            cloud.broker(engine=engine)

    def test_the_address_is_read(self) -> None:
        address = KafkaAddress("kafkas://u%40x:p%2Fw@a:1,b:2?prefix=t.&static=no&client.id=me")
        settings = address.settings({"group.id": "g", "client.id": "other"})
        del settings["logger"]
        assert settings == {
            "bootstrap.servers": "a:1,b:2", "log_level": 0, "sasl.mechanism": "PLAIN",
            "sasl.username": "u@x", "sasl.password": "p/w", "security.protocol": "SASL_SSL",
            "group.id": "g", "client.id": "me", "reconnect.backoff.max.ms": 1000,
            "reconnect.backoff.ms": 10,
        }  # fmt: skip
        assert (address.prefix, address.static, address.where) == ("t.", False, "a:1,b:2")

    def test_a_secured_address_needs_no_user(self) -> None:
        settings = KafkaAddress("kafkas://a:1").settings({})
        assert settings["security.protocol"] == "SSL"
        assert "sasl.username" not in settings
        assert "security.protocol" not in KafkaAddress("kafka://a:1").settings({})


class TestAdmin:
    """Test requests that the mock cluster does not support, with an admin that answers immediately."""

    class Admin:
        def __init__(self) -> None:
            self.asked: list[tuple[Any, ...]] = []

        def __getattr__(self, name: str) -> Callable[..., Any]:
            def call(things: Any, **options: Any) -> dict[Any, Any]:
                self.asked.append((name, things))
                done: Future[Any] = Future()
                done.set_result(None)
                names = [getattr(t, "topic", t) for t in things]
                return dict.fromkeys(names, done)

            return call

    @pytest.fixture
    def cluster(self, mock: MockCluster) -> Cluster:
        cluster = Cluster(KafkaAddress(f"kafka://{mock.bootstrap}"), Names("none"))
        cluster._admin = self.Admin()
        return cluster

    def test_topics_are_made_with_their_settings(self, cluster: Cluster) -> None:
        cluster.create_topic("p.t", 3, {"retention.ms": "1000"})
        ((name, (topic,)),) = cluster._admin.asked
        assert (name, topic.topic, topic.num_partitions) == ("create_topics", "p.t", 3)
        assert topic.config == {"retention.ms": "1000"}

    def test_offsets_at_a_time_are_asked_for_in_milliseconds(self, cluster: Cluster) -> None:
        asked: dict[Any, Any] = {}

        def list_offsets(specs: Any, **options: Any) -> dict[Any, Any]:
            asked.update({(tp.topic, tp.partition): spec for tp, spec in specs.items()})
            futures: dict[Any, Any] = {}
            for number, tp in enumerate(specs):
                futures[tp] = Future()
                futures[tp].set_result(types.SimpleNamespace(offset=7 if number == 0 else -1))
            return futures

        cluster._admin.list_offsets = list_offsets
        offsets = cluster.offsets({("t", 0): 1234, ("t", 1): 99})
        assert offsets == {("t", 0): 7, ("t", 1): -1}
        assert [spec.timestamp for spec in asked.values()] == [1234, 99]

    def test_where_no_record_is_that_young(
        self, make_broker: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = make_broker()
        engine: Any = broker._engine
        asked = []

        def offsets(wanted: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
            asked.append(wanted)
            return {place: -1 if place[1] else 7 for place in wanted}

        monkeypatch.setattr(engine._cluster, "offsets", offsets)
        body = [{"topic": "orders", "partition": number} for number in (1, 0)]
        committed = PatientRest(broker)("POST", "/offsets/1234567890", body)
        assert [tp["offset"] for tp in committed] == [-1, 7]
        name = engine._names.prefix + "orders"
        assert asked == [{(name, 1): 1234567890, (name, 0): 1234567890}]

    def test_the_rest(self, cluster: Cluster) -> None:
        cluster.add_partitions("p.t", 5)
        cluster.delete_records({("p.t", 0): 7})
        cluster.delete(["p.t"], ["p.g"])
        names = [name for name, _ in cluster._admin.asked]
        assert names == [
            "create_partitions", "delete_records", "delete_topics", "delete_consumer_groups",
        ]  # fmt: skip
        assert cluster._admin.asked[0][1][0].new_total_count == 5
        assert cluster._admin.asked[1][1][0].offset == 7

    def test_nothing_is_asked_for_nothing(self, cluster: Cluster) -> None:
        for topics, groups, asked in [
            ([], [], []),
            (["p.t"], [], ["delete_topics"]),
            ([], ["p.g"], ["delete_consumer_groups"]),
        ]:
            cluster._admin.asked.clear()
            cluster.delete(topics, groups)
            assert [name for name, _ in cluster._admin.asked] == asked

    def test_a_partition_that_takes_no_commit_refuses_it(self, cluster: Cluster) -> None:
        place = types.SimpleNamespace(error=KafkaError(KafkaError.NOT_COORDINATOR))
        done: Future[Any] = Future()
        done.set_result(types.SimpleNamespace(topic_partitions=[place]))
        cluster._admin.alter_consumer_group_offsets = lambda *_, **__: {"g": done}
        with pytest.raises(BrokerError):
            cluster.commit("g", {("t", 0): 1})
        place.error = None
        cluster.commit("g", {("t", 0): 1})

    def test_any_other_error_is_an_unavailable_cluster(self, cluster: Cluster) -> None:
        refusal = cluster.translated(KafkaException(ValueError("odd")))
        assert isinstance(refusal, Unavailable)
        assert "odd" in str(refusal)

    def test_what_is_not_confirmed_in_time_is_told(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        records: Any = broker._engine.records
        monkeypatch.setattr(records, "_confirmation_seconds", 0)
        monkeypatch.setattr(records, "_send", lambda message, place: Future())
        with pytest.raises(ContractError, match="1 message not confirmed"):
            broker.produce("orders", "a")
