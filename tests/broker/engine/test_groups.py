"""Play the scenarios of ``groups.txt``: consumer groups over REST, with a clock that only tests move.

The notation is that of `tests/notations.py`. A line is a method of ``GroupPlayer`` with its arguments,
and its result. A client gets an error with a status (``404 has <text>``), the test one without
(``raise has <text>``). An instance is in group ``g``, or written as ``GROUP/INSTANCE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.broker.views import GroupView
from pytest_fakecloud.core.errors import ContractError
from tests.harness import wait_until
from tests.notations import Player, scenarios

from ..conftest import MANUAL, Make, Parked, Rest, park_consume, until_parked

SCENARIOS = scenarios(Path(__file__).with_name("groups.txt"))


def who(text: str) -> tuple[str, str]:
    """Return the group and the name of an instance."""
    group, _, name = text.rpartition("/")
    return group or "g", name


def place(text: str) -> tuple[str, int | None]:
    """Return the topic and the partition, if any, of ``TOPIC/PARTITION``."""
    topic, _, partition = text.partition("/")
    return topic, int(partition) if partition else None


def offset_of(text: str) -> tuple[str, int, int]:
    """Return the topic, partition and offset of ``TOPIC/PARTITION=OFFSET``."""
    at, _, offset = text.partition("=")
    topic, _, partition = at.partition("/")
    return topic, int(partition), int(offset)


def shares(instances: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    """Return the partitions of instances as text."""
    return "; ".join(
        f"{name}: "
        + (", ".join(" ".join([t, *map(str, ps)]) for t, ps in topics.items()) or "nothing")
        for name, topics in instances.items()
    )


class GroupPlayer(Player):
    """Plays the actions of clients and of the test."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker
        self.rest = Rest(broker)
        self.polls: list[Parked] = []
        self.began = broker.clock.now_us()
        self.status = 200
        """The status that the next response must have."""

    @property
    def fake(self) -> Broker:
        return self.broker

    def step(self, line: str, reply: str) -> None:
        word, *words = line.split()
        error = re.fullmatch(r"(\d{3}|raise) has (.*)", reply)
        if error and error[1] == "raise":
            with pytest.raises(ContractError, match=re.escape(error[2])):
                getattr(self, word)(*words)
            return
        self.status = int(error[1]) if error else 200
        response = getattr(self, word)(*words)
        if error:
            assert (response["status"], error[2] in response["error"]) == (self.status, True), (
                response
            )
        elif reply:
            assert str(response) == reply

    # -- requests of clients ---------------------------------------------------------------------

    def produce(self, at: str, *values: str) -> Any:
        topic, partition = place(at)
        body = [{"value": value, "partition": partition} for value in values]
        return self.rest("POST", f"/produce/{topic}", body, status=self.status)

    def consume(self, instance: str, *words: str) -> Any:
        """Consume topics (``orders``), with a reset policy, ``manual`` commits, and headers."""
        topics, headers = [], {}
        for word in words:
            name, _, value = word.partition("=")
            if word in ("earliest", "latest", "none"):
                headers["Auto_Offset_Reset"] = word
            elif word == "manual":
                headers["Enable_Auto_Commit"] = "false"
            elif value:
                headers[name.replace("-", "_")] = value
            else:
                topics.append(word)
        group, name = who(instance)
        records = self.rest.consume(
            group, name, *(topics or ["orders"]), status=self.status, **headers
        )
        if self.status != 200:
            return records
        return " ".join(record["value"] for record in records) or "nothing"

    def poll(self, instance: str, *words: str) -> None:
        """Start a consume call that waits up to a minute, or for a number of milliseconds."""
        self.broker._timekeeper.wait_cap = 60
        timeout = next((int(word) for word in words if word.isdigit()), 60_000)
        headers = {"Auto_Offset_Reset": "earliest"} if "earliest" in words else {}
        topics = [word for word in words if not word.isdigit() and word != "earliest"] or ["orders"]
        call = lambda: self.rest.values(*who(instance), *topics, timeout=timeout, **headers)  # noqa: E731
        self.polls.append(Parked(call))
        until_parked(self.broker, sum(poll.waiting for poll in self.polls))

    def waiting(self, count: str) -> None:
        """Wait until this number of consume calls still wait."""
        wait_until(lambda: sum(poll.waiting for poll in self.polls) == int(count))

    def polled(self) -> str:
        """Return the values of all waiting consume calls, in alphabetical order."""
        results = [" ".join(poll.result()) or "nothing" for poll in self.polls]
        self.polls.clear()
        return "; ".join(sorted(results))

    def commit(self, instance: str, *offsets: str) -> Any:
        return self.rest.commit(*who(instance), *map(offset_of, offsets), status=self.status)

    def delete(self, instance: str) -> None:
        group, name = who(instance)
        self.rest("POST", f"/delete-consumer/{group}/{name}")

    def committed(self, *words: str) -> Any:
        *group, topic = (word for word in words if not word.isdigit())
        body = [{"topic": topic, "partition": int(word)} for word in words if word.isdigit()]
        path = f"/committed/{''.join(group) or 'g'}/any"
        reply = self.rest("POST", path, body, status=self.status)
        return reply if self.status != 200 else " ".join(str(record["offset"]) for record in reply)

    def owns(self, group: str = "g") -> str:
        return shares(self.rest.assignments(group))

    def listed(self) -> str:
        return " ".join(group["name"] for group in self.rest("GET", "/consumers")) or "nobody"

    # -- actions of the test ---------------------------------------------------------------------

    def crash(self, instance: str) -> None:
        self.broker.faults.crash(*who(instance))

    def expire(self, instance: str) -> None:
        group, name = who(instance)
        self.broker.group(group).expire(name)

    def join(self, instance: str) -> str:
        return self.assigned(self.broker.join(*who(instance), ["orders"]))

    def leave(self, instance: str) -> str:
        group, name = who(instance)
        self.broker.group(group).leave(name)
        return self.assigned()

    def rebalance(self, group: str = "g") -> None:
        self.broker.group(group).rebalance()

    def redeliver(self, last: str, at: str = "") -> str:
        topic, partition = place(at)
        records = self.broker.faults.redeliver(
            "g", int(last), topic=topic or None, partition=partition
        )
        return " ".join(record.value for record in records)

    def offset(self, at: str) -> None:
        self.broker.commit("g", *offset_of(at))

    def trim(self, at: str, before: str) -> None:
        topic, partition = place(at)
        self.broker.topic(topic).delete_records(before=int(before), partition=partition)

    def create(self, topic: str, partitions: str = "1", **options: str) -> None:
        self.broker.create_topic(topic, partitions=int(partitions), **options)  # type: ignore[arg-type]

    def retain(self, topic: str, duration: str) -> None:
        self.broker.topic(topic).set_retention(duration)

    def drop(self, topic: str) -> None:
        self.broker.topic(topic).delete()

    def load(self, topic: str, *values: str) -> None:
        self.broker.load({topic: list(values)})

    def known(self) -> str:
        """Return the topics of which the group knows offsets."""
        view = self.broker.group("g")
        return " ".join({tp.topic: "" for tp in (*view.committed, *view.position, *view.lag)})

    def topics(self) -> str:
        return " ".join(f"{topic.name}/{topic.partitions}" for topic in self.broker.topics())

    def add(self, topic: str, count: str = "1") -> None:
        self.broker.topic(topic).add_partitions(int(count))

    def reset(self) -> None:
        self.broker.reset()

    # -- views -----------------------------------------------------------------------------------

    def generation(self) -> int:
        return self.broker.group("g").generation

    def state(self) -> str:
        return self.broker.group("g").state

    def groups(self) -> str:
        return " ".join(group.name for group in self.broker.groups()) or "none"

    def lag(self) -> int:
        return self.broker.group("g").total_lag

    def members(self) -> str:
        members = self.broker.group("g").members
        return "; ".join(f"{member.name} {member.state}" for member in members) or "nobody"

    def assigned(self, view: GroupView | None = None) -> str:
        assignments: dict[str, dict[str, list[int]]] = {}
        for name, owned in (view or self.broker.group("g")).assignment.items():
            for topic, partition in owned:
                assignments.setdefault(name, {}).setdefault(topic, []).append(partition)
        return shares(assignments)

    def records(self, topic: str) -> str:
        return " ".join(record.value for record in self.broker.records(topic))

    def next_due(self) -> str:
        due = self.broker.clock.next_due()
        assert due is not None
        return f"{(due - self.broker.clock.now()).total_seconds():g}s"

    def events(self) -> str:
        return ", ".join(
            f"{event.kind} {(event.at_us - self.began) // 1_000_000}"
            for event in self.broker.journal.events(group="g")
        )


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(make_broker: Make, name: str) -> None:
    settings, lines = SCENARIOS[name]
    GroupPlayer(make_broker(**settings)).play(lines)


# -- rules that text does not state -------------------------------------------------------------


def test_rule_01_the_first_consume_creates_the_instance(rest: Rest) -> None:
    """The instance is listed from its first consume on, and has partitions once they are assigned."""
    assert rest("GET", "/consumers") == []
    assert rest.consume("g", "i", "orders") == []
    assert rest("GET", "/consumers") == [
        {
            "name": "g",
            "instances": [{"name": "i", "topics": [{"topic": "orders", "partitions": [0, 1, 2]}]}],
        }
    ]


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_rule_04_delete_consumer_leaves_at_once(rest: Rest, method: str) -> None:
    rest.consume("g", "one", "orders")
    rest.consume("g", "two", "orders")
    assert rest(method, "/delete-consumer/g/one") == {"result": "Success", "status": 200}
    assert rest.assignments("g") == {"two": {"orders": [0, 1, 2]}}
    rest(method, "/delete-consumer/g/one", status=404)


@pytest.mark.parametrize("body", [None, [], b"", b"[]", b"null"])
def test_rule_05_an_empty_commit_stores_what_was_last_delivered(rest: Rest, body: Any) -> None:
    """For each partition with deliveries, the committed offset is the last delivered one plus one."""
    rest.produce("orders", "a", "b", partition=0)
    rest.produce("orders", "c", partition=2)
    rest.consume("g", "i", "orders", **MANUAL)
    rest.produce("orders", "not yet delivered", partition=0)
    assert rest("POST", "/commit/g/i", body) == {"result": "Success", "status": 200}
    assert rest.committed("g", "orders", 0, 1, 2) == [2, -1, 1]


def _shared(make_broker: Make, auto_commit: bool) -> tuple[Broker, Rest]:
    """Return a broker whose two consumers each received a record and committed nothing."""
    broker = make_broker(topics={"orders": 2, "other": 2})
    rest = Rest(broker)
    options = {**MANUAL, "Enable_Auto_Commit": str(auto_commit).lower()}
    rest.consume("g", "a", "orders", **options)
    rest.consume("g", "b", "orders", **options)
    for partition, instance in enumerate("ab"):
        rest.produce("orders", f"of {instance}", partition=partition)
        assert rest.values("g", instance, "orders") == [f"of {instance}"]
    assert rest.committed("g", "orders", 0, 1) == [-1, -1]
    return broker, rest


REBALANCES: dict[str, tuple[Callable[[Broker, Rest], object], list[int]]] = {
    "join": (lambda _, rest: rest.consume("g", "c", "orders"), [1, 1]),
    "subscription": (lambda _, rest: rest.consume("g", "b", "orders", "other"), [1, 1]),
    "partitions": (lambda broker, _: broker.topic("orders").add_partitions(), [1, 1]),
    "command": (lambda broker, _: broker.group("g").rebalance(), [1, 1]),
    "delete": (lambda _, rest: rest("DELETE", "/delete-consumer/g/b"), [1, 1]),
    "leave": (lambda broker, _: broker.group("g").leave("b"), [1, 1]),
    "session lost": (lambda broker, _: broker.group("g").expire("b"), [1, -1]),
    "crash": (
        lambda broker, _: (broker.faults.crash("g", "b"), broker.group("g").expire("b")),
        [1, -1],
    ),
}


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("change", REBALANCES)
def test_rule_06_a_rebalance_commits_first_where_auto_commit_is_on(
    make_broker: Make, change: str, auto_commit: bool
) -> None:
    """Live members commit. The records of a crashed or expired member are delivered again."""
    broker, rest = _shared(make_broker, auto_commit)
    act, committed = REBALANCES[change]
    act(broker, rest)
    expected = committed if auto_commit else [-1, -1]
    assert rest.committed("g", "orders", 0, 1) == expected
    kinds = [event.kind for event in broker.journal.events(group="g")]
    assert kinds.count("auto commit") == sum(offset > 0 for offset in expected)
    again = {
        value
        for instance in ("a", "b", "c", "a", "b", "c")
        for value in rest.values("g", instance, "orders", Auto_Offset_Reset="earliest")
    }
    assert again == {f"of {name}" for name, at in zip("ab", expected, strict=True) if at < 0}


def test_rule_13_order_is_kept_in_each_partition_and_none_starves(make_broker: Make) -> None:
    """An answer has at most ``max_poll_records``, and each begins with the next partition."""
    broker = make_broker(max_poll_records=4)
    rest = Rest(broker)
    for partition in range(3):
        rest.produce("orders", *(f"{partition}:{n}" for n in range(8)), partition=partition)
    answers = [rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest") for _ in range(6)]
    assert [len(answer) for answer in answers] == [4] * 6
    assert {answer[0]["partition"] for answer in answers[:3]} == {0, 1, 2}
    for partition in range(3):
        offsets = [r["offset"] for a in answers for r in a if r["partition"] == partition]
        assert offsets == list(range(8))


def test_rule_13_one_record_is_given_even_above_the_bytes_of_an_answer(make_broker: Make) -> None:
    rest = Rest(make_broker(max_partition_bytes=10))
    rest.produce("orders", "x" * 30, "y" * 4, "z" * 4, "w" * 4, partition=0)
    sizes = []
    while values := rest.values("g", "i", "orders", Auto_Offset_Reset="earliest"):
        sizes.append([len(value) for value in values])
    assert sizes == [[30], [4, 4], [4]]


def test_rule_13_the_defaults_are_500_records_and_a_mebibyte_of_each_partition(rest: Rest) -> None:
    rest.produce("orders", *("x" for _ in range(501)), partition=0)
    assert len(rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")) == 500
    rest.produce("orders", *("y" * 400_000 for _ in range(4)), partition=1)
    assert len(rest.consume("h", "j", "orders", Auto_Offset_Reset="earliest")) == 500
    records = rest.consume("h", "j", "orders")
    assert [r["partition"] for r in records].count(1) == 2


@pytest.mark.parametrize(
    ("event", "values"),
    [
        pytest.param(lambda rest: rest.produce("orders", "a"), ["a"], id="data"),
        pytest.param(lambda rest: rest.broker.clock.advance("1s"), [], id="deadline"),
        pytest.param(lambda rest: rest.consume("g", "j", "orders"), [], id="rebalance"),
        pytest.param(lambda rest: rest("POST", "/delete-consumer/g/i"), [], id="delete"),
        pytest.param(lambda rest: rest.broker.faults.crash("g", "i"), [], id="crash"),
    ],
)
def test_rule_14_a_long_poll_ends(
    rest: Rest, event: Callable[[Rest], object], values: list[str]
) -> None:
    poll = park_consume(rest)
    rest.broker.clock.advance("59s")
    assert poll.waiting
    event(rest)
    assert poll.result() == values
