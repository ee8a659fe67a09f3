"""Record the calls of many parallel clients, and check that some order of the calls explains all
answers.

Each kind of history has a checker and a planted fault that the checker must find, because a checker
that never fails proves nothing.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.fake import KVServer
from tests.budget import cases
from tests.harness import in_threads
from tests.kv.comparison.faces import Port, Rest
from tests.kv.comparison.wire import Status

from .linear import Call, is_linearizable

CLIENTS = 4
CALLS = 7
ROUNDS = cases(10)
LONG_ROUNDS = 4000

Line = tuple[str, ...]


@pytest.fixture
def kv() -> Iterator[KVServer]:
    with Cloud(seed=1) as cloud:
        yield cloud.kv_server(dialect="redis")


# -- single commands ------------------------------------------------------------------------------


def register(state: Any, line: Line) -> tuple[Any, Any]:
    command, *words = line
    if command == "GET":
        return state, state
    if command == "SET":
        return words[1], "OK"
    if command == "GETSET":
        return words[1], state
    if command == "SETNX":
        return (words[1], 1) if state is None else (state, 0)
    return None, state  # GETDEL


def counter(state: int, line: Line) -> tuple[int, Any]:
    command = line[0]
    after = state + {"INCR": 1, "DECR": -1, "INCRBY": 5}.get(command, 0)
    return after, str(after) if command == "GET" else after


def lists(state: tuple[tuple[str, ...], tuple[str, ...]], line: Line) -> tuple[Any, Any]:
    first, second = state
    command, *words = line
    if command == "RPUSH":
        return ((*first, words[1]), second), len(first) + 1
    if command == "LMOVE":
        return ((first[1:], (*second, first[0])), first[0]) if first else (state, None)
    if command == "RPOP":
        return ((first, second[:-1]), second[-1]) if second else (state, None)
    return state, len(first if words[0] == "a" else second)  # LLEN


def members(state: frozenset[str], line: Line) -> tuple[Any, Any]:
    command, *words = line
    if command == "SADD":
        return state | {words[1]}, int(words[1] not in state)
    if command == "SREM":
        return state - {words[1]}, int(words[1] in state)
    if command == "SCARD":
        return state, len(state)
    return state, int(words[1] in state)  # SISMEMBER


KINDS: dict[str, tuple[Any, Any, Callable[[random.Random, int], Line]]] = {
    "register": (
        register,
        None,
        lambda luck, number: luck.choice(
            [("GET", "a"), ("SET", "a", str(number)), ("GETSET", "a", str(number)),
             ("SETNX", "a", str(number)), ("GETDEL", "a")]
        ),
    ),
    "counter": (
        counter,
        0,
        lambda luck, number: luck.choice(
            [("INCR", "a"), ("DECR", "a"), ("INCRBY", "a", "5"), ("INCR", "a")]
        ),
    ),
    "lists": (
        lists,
        ((), ()),
        lambda luck, number: luck.choice(
            [("RPUSH", "a", str(number)), ("LMOVE", "a", "b", "LEFT", "RIGHT"), ("RPOP", "b"),
             ("LLEN", "a"), ("LLEN", "b")]
        ),
    ),
    "members": (
        members,
        frozenset(),
        lambda luck, number: luck.choice(
            [(command, "a", str(number % 3)) for command in ("SADD", "SREM", "SISMEMBER")]
            + [("SCARD", "a")]
        ),
    ),
}  # fmt: skip


def plainly(reply: Any) -> Any:
    if isinstance(reply, Status):
        return reply.text.decode()
    return reply.decode() if isinstance(reply, bytes) else reply


def history(kv: KVServer, kind: str, seed: int, spoil: Callable[[Line, Any], Any]) -> list[Call]:
    """Return the history of clients that use the same keys in parallel, over REST and over the
    Redis protocol.
    """
    _, _, make = KINDS[kind]
    calls: list[Call] = []

    def client(number: int) -> None:
        luck = random.Random(f"{seed} {number}")
        opened: Any = Port(kv.database_url) if number % 2 else Rest(kv.url, kv.token)
        with closing(opened) as face:
            begin.wait(10)
            for at in range(CALLS):
                line = make(luck, number * 100 + at)
                start = time.perf_counter_ns()
                answer = plainly(face.call([word.encode() for word in line]))
                calls.append(Call(line, spoil(line, answer), start, time.perf_counter_ns()))

    begin = threading.Barrier(CLIENTS)
    in_threads(*(partial(client, number) for number in range(CLIENTS)))
    return calls


def holds(kv: KVServer, kind: str, seed: int, spoil: Any = lambda line, answer: answer) -> bool:
    kv.execute("FLUSHALL")
    model, start, _ = KINDS[kind]
    return is_linearizable(history(kv, kind, seed, spoil), model, start)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_single_commands(kv: KVServer, kind: str) -> None:
    for seed in range(ROUNDS):
        assert holds(kv, kind, seed), seed
    calls = history(kv, kind, 1, lambda line, answer: answer)
    ordered = sorted(calls, key=lambda call: call.start)
    met = [
        operation for operation, after in itertools.pairwise(ordered) if after.start < operation.end
    ]
    assert met, "no two calls overlapped: the test tries nothing"


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_single_commands_for_long(kv: KVServer, kind: str) -> None:
    for seed in range(LONG_ROUNDS):
        assert holds(kv, kind, seed), seed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "command", "wrong"),
    [
        ("register", "GETSET", lambda answer: None),
        ("counter", "INCR", lambda answer: answer - 1),
        ("lists", "LMOVE", lambda answer: "999"),
        ("members", "SCARD", lambda answer: answer + 1),
    ],
)
def test_a_wrong_answer_is_found(kv: KVServer, kind: str, command: str, wrong: Any) -> None:
    """Check that no order explains a history with a stale, lost or doubled effect."""

    def spoil(line: Line, answer: Any) -> Any:
        return wrong(answer) if line[0] == command and answer is not None else answer

    assert not all(holds(kv, kind, seed, spoil) for seed in range(5))


# -- transactions ---------------------------------------------------------------------------------


def add_watched(kv: KVServer, watch: bool) -> tuple[int, int]:
    """Return how many transactions of several clients succeeded, and the resulting sum."""
    done: list[int] = []

    def client() -> None:
        with closing(Port(kv.database_url)) as port:
            for _ in range(CALLS):
                if watch:
                    port.call([b"WATCH", b"sum"])
                before = port.call([b"GET", b"sum"]) or b"0"
                port.call([b"MULTI"])
                port.call([b"SET", b"sum", str(int(before) + 1).encode()])
                if isinstance(port.call([b"EXEC"]), list):
                    done.append(1)

    kv.execute("FLUSHALL")
    in_threads(*[client] * CLIENTS)
    return len(done), int(kv.value("sum") or 0)


@pytest.mark.slow
def test_watched_transactions_lose_nothing(kv: KVServer) -> None:
    for _ in range(ROUNDS):
        done, total = add_watched(kv, watch=True)
        assert done == total > 0


@pytest.mark.slow
def test_transactions_that_do_not_watch_are_found(kv: KVServer) -> None:
    results = (add_watched(kv, watch=False) for _ in range(ROUNDS))
    assert any(done != total for done, total in results), (
        "clients never met: the test tries nothing"
    )


# -- work handed out ------------------------------------------------------------------------------

ITEMS = 40


def blocking_pops(kv: KVServer, forget: bool = False) -> tuple[list[int], dict[int, list[int]]]:
    """Return what was pushed, and what each waiting client received."""
    taken: dict[int, list[int]] = defaultdict(list)
    pushed = list(range(ITEMS))
    left = threading.Semaphore(0)
    stop = threading.Event()

    def consumer(number: int) -> None:
        with closing(Port(kv.database_url)) as port:
            while not stop.is_set():
                reply = port.call([b"BLPOP", b"work", b"0.2"])
                if isinstance(reply, list):
                    item = int(reply[1])
                    taken[number].append(item)
                    if forget and item % 7 == 0:
                        kv.execute("RPUSH", "work", str(item))
                    left.release()

    def producer() -> None:
        with closing(Rest(kv.url, kv.token)) as rest:
            for item in pushed:
                rest.call([b"RPUSH", b"work", str(item).encode()])
        for _ in pushed:
            assert left.acquire(timeout=20)
        stop.set()

    kv.execute("FLUSHALL")
    in_threads(producer, *(partial(consumer, number) for number in range(3)))
    return pushed, taken


def each_once_and_in_order(pushed: list[int], taken: dict[int, list[int]]) -> bool:
    everything = sorted(item for items in taken.values() for item in items)
    return everything == pushed and all(items == sorted(items) for items in taken.values())


@pytest.mark.slow
def test_blocking_pops_hand_out_each_item_once(kv: KVServer) -> None:
    for _ in range(5):
        assert each_once_and_in_order(*blocking_pops(kv))


@pytest.mark.slow
def test_an_item_handed_out_twice_is_found(kv: KVServer) -> None:
    assert not each_once_and_in_order(*blocking_pops(kv, forget=True))


def stream_group(kv: KVServer, seed: int, *, claim: bool = True) -> tuple[Counter[str], int, int]:
    """Return how often each entry was acknowledged, how many were lost in crashes, and the pending
    entries.
    """
    acknowledged: Counter[str] = Counter()
    deliveries: list[tuple[str, int]] = []
    crashes: list[int] = []
    lock = threading.Lock()

    def consumer(number: int) -> None:
        luck = random.Random(f"{seed} {number}")
        read = f"XREADGROUP GROUP g c{number} COUNT 3 STREAMS s >".encode().split()
        with closing(Port(kv.database_url)) as port:
            empty = 0
            while empty < 3:
                reply = port.call(read)
                entries = reply[0][1] if isinstance(reply, list) else []
                empty = 0 if entries else empty + 1
                for entry, _ in entries:
                    with lock:
                        deliveries.append((entry.decode(), number))
                    if luck.random() < 0.3:
                        # The consumer has the entry and never acknowledges it.
                        crashes.append(number)
                    elif port.call([b"XACK", b"s", b"g", entry]) == 1:
                        acknowledged[entry.decode()] += 1

    kv.execute("FLUSHALL")
    kv.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    with closing(Rest(kv.url, kv.token)) as rest:
        for item in range(ITEMS):
            rest.call([b"XADD", b"s", b"*", b"item", str(item).encode()])
    in_threads(*(partial(consumer, number) for number in range(3)))
    twice = [
        entry for entry, count in Counter(entry for entry, _ in deliveries).items() if count > 1
    ]
    assert twice == [], "an entry was delivered as new to two consumers"
    if claim:
        _claim_everything(kv, acknowledged)
    pending: Any = kv.execute("XPENDING", "s", "g")
    return acknowledged, len(crashes), pending[0]


def _claim_everything(kv: KVServer, acknowledged: Counter[str]) -> None:
    cursor = "0-0"
    while True:
        reply: Any = kv.execute("XAUTOCLAIM", "s", "g", "rescuer", "0", cursor, "COUNT", "5")
        cursor, entries = reply[0], reply[1]
        for entry, _ in entries:
            if kv.execute("XACK", "s", "g", entry) == 1:
                acknowledged[entry] += 1
        if cursor == "0-0":
            return


@pytest.mark.slow
def test_stream_groups_lose_nothing_to_crashes(kv: KVServer) -> None:
    crashed = 0
    for seed in range(5):
        acknowledged, crashes, pending = stream_group(kv, seed)
        assert (len(acknowledged), set(acknowledged.values()), pending) == (ITEMS, {1}, 0)
        crashed += crashes
    assert crashed > 10


@pytest.mark.slow
def test_entries_that_nobody_claims_are_found(kv: KVServer) -> None:
    acknowledged, crashes, pending = stream_group(kv, 1, claim=False)
    assert crashes == pending == ITEMS - len(acknowledged) > 0


# -- the broker -----------------------------------------------------------------------------------


def broker_group(
    seed: int, *, skip: bool = False
) -> tuple[set[tuple[int, int]], list[list[tuple[int, int]]]]:
    """Return the records of a topic, and those that each instance saw; instances die and restart.

    ``skip`` commits records that were not processed, the fault that the checker must find.
    """
    with Cloud(seed=seed) as cloud:
        broker = cloud.broker(topics={"t": 4})
        records = [broker.produce("t", str(item)) for item in range(ITEMS)]
        there = {(record.partition, record.offset) for record in records}
        seen: list[list[tuple[int, int]]] = []
        lock = threading.Lock()

        def instance(number: int) -> None:
            lives = random.Random(f"{seed} {number}")
            http = _Consumer(broker, f"i{number}")
            idle, died = 0, False
            while idle < 4:
                batch = http.consume()
                idle = 0 if batch else idle + 1
                keep = batch[::2] if skip else batch
                with lock:
                    seen.append([(record["partition"], record["offset"]) for record in keep])
                if batch and (not died or lives.random() < 0.3):
                    # The consumer dies before it commits, so another one receives the records again.
                    # Each dies with its first records: by chance alone, sometimes none died.
                    http.die()
                    died = True
                else:
                    http.commit()

        in_threads(*(partial(instance, number) for number in range(3)))
        last = _Consumer(broker, "last")
        for _ in range(8):
            last_records = last.consume()
            seen.append([(record["partition"], record["offset"]) for record in last_records])
            last.commit()
        return there, seen


class _Consumer:
    """An instance of a consumer group, over HTTP."""

    def __init__(self, broker: Any, name: str) -> None:
        import requests

        self._http = requests.Session()
        self._http.trust_env = False
        self._broker, self._name, self._life = broker, name, 0

    def _ask(self, what: str, rest: str = "", **options: Any) -> Any:
        url = f"{self._broker.url}/{what}/g/{self._name}-{self._life}{rest}"
        headers = {**self._broker.headers, "Kafka-Enable-Auto-Commit": "false"}
        headers["Kafka-Auto-Offset-Reset"] = "earliest"
        answer = self._http.request("GET", url, headers=headers, timeout=20, **options)
        assert answer.status_code in (200, 404), answer.text
        return answer.json() if answer.status_code == 200 else []

    def consume(self) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = self._ask("consume", "/t?timeout=50")
        return records

    def commit(self) -> None:
        self._ask("commit")

    def die(self) -> None:
        url = f"{self._broker.url}/delete-consumer/g/{self._name}-{self._life}"
        self._http.post(url, headers=self._broker.headers, timeout=20)
        self._life += 1


def nothing_lost(there: set[tuple[int, int]], seen: list[list[tuple[int, int]]]) -> bool:
    """Check that every record was seen, and that each answer has the records of a partition in
    order.
    """
    for page in seen:
        for partition in range(4):
            offsets = [offset for at, offset in page if at == partition]
            if offsets != sorted(offsets):
                return False
    return {record for page in seen for record in page} == there


@pytest.mark.slow
def test_broker_groups_lose_nothing_to_crashes_and_rebalances() -> None:
    again = 0
    for seed in range(4):
        there, seen = broker_group(seed)
        assert nothing_lost(there, seen), seed
        again += sum(map(len, seen)) - len(there)
    assert again > 0, "no instance died with records: the test tries nothing"


@pytest.mark.slow
def test_records_committed_unseen_are_found() -> None:
    assert not all(nothing_lost(*broker_group(seed, skip=True)) for seed in range(3))
