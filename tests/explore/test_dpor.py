"""Partial-order reduction: fewer trials than brute force, with the same outcomes."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from qstash import QStash
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis

from pytest_fakecloud import Cloud, DeliveredRequest, History, KVServer, always, observed
from pytest_fakecloud.explore.search.dpor import Branch, InterleavingTree
from pytest_fakecloud.explore.simulation.simulation import Simulation
from pytest_fakecloud.explore.subject.options import Options, Subject
from pytest_fakecloud.explore.subject.programs import Program
from pytest_fakecloud.explore.subject.promises import Promises
from pytest_fakecloud.explore.values.disturbances import SWITCHES
from pytest_fakecloud.explore.values.learned import Learned
from pytest_fakecloud.explore.values.plan import Plan, Strategy, SwitchKind
from pytest_fakecloud.explore.values.trial import Step, Trial
from pytest_fakecloud.explore.world.patches import explored

from ..budget import cases
from .conftest import expects

PATIENCE_US = 3_600_000_000

Clients = Mapping[str, Callable[[], object]]


class Everything(Strategy):
    """A strategy that runs every interleaving, for comparison with the reduction."""

    def __init__(self, *, late: bool, moves_clock: bool = False) -> None:
        self.moves_clock = moves_clock
        self.switch_kinds = frozenset({"switch", "wake", "late"} if late else {"switch", "wake"})
        self._trail: list[tuple[int, int]] = []
        self._depth = 0
        self._begun = False

    def strategy(self) -> Everything:
        return self

    def lesson(self, steps: Sequence[Step]) -> None:
        """Learn nothing from a trial."""

    def learn(self, trial: Trial) -> None:
        """Learn nothing from a trial."""

    def next(self) -> bool:
        """Prepare the next trial; return False when there is none."""
        self._depth = 0
        if not self._begun:
            self._begun = True
            return True
        while self._trail and self._trail[-1][0] + 1 >= self._trail[-1][1]:
            self._trail.pop()
        if not self._trail:
            return False
        at, of = self._trail[-1]
        self._trail[-1] = at + 1, of
        return True

    def pick(self, steps: Sequence[Step], options: Sequence[str], kind: SwitchKind) -> str:
        """Return the name of the strand to run next."""
        if self._depth == len(self._trail):
            self._trail.append((0, len(options)))
        at, _ = self._trail[self._depth]
        self._depth += 1
        return options[at]


class Reduced(Strategy):
    """A strategy that runs each distinct interleaving once."""

    def __init__(self, *, late: bool, moves_clock: bool = False) -> None:
        self.tree = InterleavingTree(Branch(late=late, moves_clock=moves_clock))
        self.moves_clock = moves_clock
        self._interleaving = self.tree.root.strategy()
        self.switch_kinds = self._interleaving.switch_kinds

    def strategy(self) -> Reduced:
        return self

    def next(self) -> bool:
        """Prepare the next trial; return False when there is none."""
        branch = self.tree.next()
        if branch is not None:
            self._interleaving = branch.strategy()
        return branch is not None

    def pick(self, steps: Sequence[Step], options: Sequence[str], kind: SwitchKind) -> str:
        """Return the name of the strand to run next."""
        return self._interleaving.pick(steps, options, kind)

    def lesson(self, steps: Sequence[Step]) -> Any:
        """Find the races of the trial."""
        return self._interleaving.lesson(steps)

    def learn(self, trial: Trial) -> None:
        """Learn the races of a trial."""
        self.tree.learn(trial)


def outcomes(
    cloud: Cloud, kv: KVServer, clients: Clients, strategy: Any, memory: list[Any]
) -> tuple[set[Any], int]:
    """Return all outcomes that a strategy reaches, and the number of its trials."""
    reached: set[Any] = set()
    trials = 0
    programs = [Program(name, function) for name, function in clients.items()]
    late = "late" in strategy.switch_kinds
    fakes = frozenset(h.name for h in cloud.fakes())
    kinds = SWITCHES if late else SWITCHES - {"late"}
    with explored(cloud, programs, Options()) as world:
        subject = Subject(programs, Promises(None), fakes, kinds, PATIENCE_US)
        while strategy.next():
            world.fakes.reset()
            memory.clear()
            simulation = Simulation(world, subject, Plan(strategy_factory=strategy), Learned())
            with world.simulating(simulation):
                simulation.run_strands()
            trial = simulation.make_trial()
            strategy.learn(trial)
            if "redundant" in trial.flags:
                continue
            trials += 1
            if strategy.moves_clock:
                simulation.clock.move_to(world.fakes.now_us() + PATIENCE_US)
            results = simulation.operations.history.results
            state = tuple(sorted((k, str(v)) for k, v in kv.contents().items()))
            end = tuple(memory) if late else ()
            reached.add((state, tuple(sorted((k, str(v)) for k, v in results.items())), end))
            assert trials < 20_000
    return reached, trials


def compared(
    cloud: Cloud,
    kv: KVServer,
    clients: Clients,
    *,
    late: bool = False,
    moves_clock: bool = False,
    memory: list[Any] | None = None,
) -> tuple[int, int]:
    """Return the trials of the reduction and of brute force; check that their outcomes agree."""
    memo: list[Any] = [] if memory is None else memory
    orders = Reduced(late=late, moves_clock=moves_clock)
    reduced, few = outcomes(cloud, kv, clients, orders, memo)
    all_orders = Everything(late=late, moves_clock=moves_clock)
    everything, many = outcomes(cloud, kv, clients, all_orders, memo)
    assert orders.tree.is_exact
    assert reduced == everything
    assert few == orders.tree.trials <= many
    return few, many


def test_clients_of_different_keys_have_one_order(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    clients = {name: lambda name=name: [redis.incr(name) for _ in range(2)] for name in "ab"}
    assert compared(cloud, kv, clients)[0] == 1


def test_each_order_of_conflicting_calls_is_run_once(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    clients = {name: lambda: [redis.incr("n") for _ in range(2)] for name in "ab"}
    assert compared(cloud, kv, clients)[0] == 6  # 4 choose 2
    three = {name: lambda: redis.incr("n") for name in "abc"}
    assert compared(cloud, kv, three)[0] == 6  # 3!


def test_reads_do_not_conflict(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    clients = {"a": lambda: redis.get("n"), "b": lambda: redis.get("n"), "c": redis.dbsize}
    assert compared(cloud, kv, clients)[0] == 1


def test_the_code_between_calls_shares_memory(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    memory: list[Any] = []

    def client(name: str) -> Callable[[], None]:
        def run() -> None:
            redis.get(name)
            memory.append(name)

        return run

    clients = {name: client(name) for name in "ab"}
    few, many = compared(cloud, kv, clients, late=True, memory=memory)
    assert few < many


def test_locks_of_the_process_are_orders_too(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    lock = threading.Lock()

    def client() -> object:
        with lock:
            redis.incr("n")
            return redis.incr("n")

    compared(cloud, kv, {"a": client, "b": client})


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False], ids=["one key", "two keys"])
def test_deliveries_are_orders_too(cloud: Cloud, kv: KVServer, redis: Redis, same: bool) -> None:
    queue = cloud.queue()
    publisher = QStash(queue.token, base_url=queue.url)

    def handle(request: DeliveredRequest) -> int:
        key = "n" if same else request.body.decode()
        redis.incrby(key, 2 * int(redis.get(key) or 0) + int(request.body))
        return 489

    queue.destinations.call("https://app.example.com/hook", handle)

    def client() -> None:
        for body in ("1", "2"):
            publisher.message.publish(url="https://app.example.com/hook", body=body, retries=0)

    few, many = compared(cloud, kv, {"client": client})
    assert few < many
    if not same:
        return  # Nothing else uses these keys.
    publisher.message.publish(url="https://app.example.com/hook", body="3", retries=0)
    clients: Clients = {
        "looks": lambda: len(publisher.dlq.list().messages),
        "reads": lambda: redis.get("n"),
    }
    few, many = compared(cloud, kv, clients)
    assert few < many


def test_tasks_and_sleeps_are_orders_too(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    async def add(client: AsyncRedis, key: str) -> None:
        value = int(await client.get(key) or 0)
        await client.set(key, str(value + 1))

    async def tasks() -> None:
        async with AsyncRedis(kv.url, kv.token) as client:
            await asyncio.gather(add(client, "n"), add(client, "n"))

    def sleeps() -> None:
        redis.incr("m")
        time.sleep(1)
        redis.incr("n")

    assert compared(cloud, kv, {"a": tasks})[0] > 1
    few, many = compared(cloud, kv, {"a": sleeps, "b": sleeps})
    assert few < many


def random_clients(
    chance: random.Random,
    calls: Callable[[str, str], list[Callable[[], object]]],
    keys: Sequence[str],
    count: int,
    most: int,
) -> Clients:
    """Return clients with at most the given number of calls on random keys."""

    def client() -> Callable[[], object]:
        made = [
            chance.choice(calls(chance.choice(keys), chance.choice(keys)))
            for _ in range(chance.randint(1, most))
        ]
        return lambda: [make() for make in made]

    return {name: client() for name in "abc"[:count]}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(cases(4)))
def test_random_clients_reach_what_brute_force_reaches(
    cloud: Cloud, kv: KVServer, redis: Redis, seed: int
) -> None:
    def calls(key: str, other: str) -> list[Callable[[], object]]:
        return [
            lambda: redis.get(key),
            lambda: redis.incr(key),
            lambda: redis.set(key, redis.get(other) or "0"),
            lambda: redis.delete(key),
            lambda: redis.mget(key, other),
            lambda: redis.dbsize(),
            lambda: redis.eval("return redis.call('INCRBY', KEYS[1], 5)", keys=[key]),
            lambda: redis.multi().incr(key).incr(other).exec(),
        ]

    chance = random.Random(seed)
    keys = ("x", "y", "z")[: chance.randint(1, 3)]
    count, most = chance.choice([(2, 3), (2, 2), (3, 1)])
    compared(cloud, kv, random_clients(chance, calls, keys, count, most))


def test_the_summary_of_an_exhaustive_search(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def client() -> None:
        redis.incr("n")
        redis.incr("n")

    check = expects(kv, "4")

    result = cloud.explore([client, client], check, kinds="switch")
    assert str(result).startswith(
        "the promise held in all 6 distinct interleavings of calls to the fakes (exhaustive) in "
    )
    assert (result.orders, result.is_exhaustive) == (6, True)
    few = cloud.explore([client, client], check, kinds="switch", budget=3)
    assert not few.is_exhaustive
    assert "exhaustive" not in str(few)


@pytest.mark.parametrize("field", ["results", "errors", "crashed", "schedule", "nothing"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_check_that_reads_outcomes_adds_no_interleavings(
    cloud: Cloud, redis: Redis, count: int, field: str
) -> None:
    """The first client has two calls, each other one has one call, and all calls conflict."""
    log: list[str] = []
    orders: set[tuple[str, ...]] = set()

    def increment(name: str, times: int) -> None:
        for _ in range(times):
            redis.incr("n")
            log.append(name)
        if name == "a" and field == "errors" and log[0] != "a":
            raise ValueError("another client was first")

    def check(history: History) -> None:
        getattr(history, field, None)
        orders.add(tuple(log))

    names = "abcd"[:count]
    clients = {name: partial(increment, name, 2 if name == "a" else 1) for name in names}
    result = cloud.explore(clients, check, setup=log.clear, kinds="switch", trust=False)
    expected = math.factorial(count + 1) // 2
    assert (len(orders), result.orders, result.is_exhaustive) == (expected, expected, True)


def test_outcomes_are_in_the_order_of_the_clients(cloud: Cloud, redis: Redis) -> None:
    """A check must not see which client ended first, because no call determines it."""
    seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()

    def fail_if_closed() -> None:
        is_closed = redis.get("closed")
        redis.incr("n")
        if is_closed:
            raise ValueError("closed")

    def check(history: History) -> None:
        seen.add((tuple(history.results), tuple(history.errors)))

    clients = {"b": fail_if_closed, "a": fail_if_closed, "c": lambda: redis.set("closed", "yes")}
    assert cloud.explore(clients, check, kinds="switch", trust=False).is_exhaustive
    assert seen == {
        (("b", "a", "c"), ()),
        (("b", "c"), ("a",)),
        (("a", "c"), ("b",)),
        (("c",), ("b", "a")),
    }


def test_a_check_after_each_step_that_reads_results_sees_each_order_of_ends(
    cloud: Cloud, redis: Redis
) -> None:
    seen: set[tuple[str, ...]] = set()

    def note(history: History) -> bool:
        seen.add(tuple(history.results))
        return True

    clients = {name: partial(redis.incr, name) for name in "ab"}
    assert cloud.explore(clients, always(note), kinds="switch", trust=False).is_exhaustive
    assert {("a",), ("b",)} <= seen


def test_a_check_that_reads_the_order_of_operations_late_makes_no_search_exhaustive(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    """The trials before did not order the ends of independent clients."""

    def check(history: History) -> None:
        if kv.value("n") == "a":
            assert history.operations == []

    clients = {name: partial(redis.set, "n", name) for name in "ab"}
    result = cloud.explore(clients, check, kinds="switch", trust=False)
    assert result.orders
    assert not result.is_exhaustive


def test_the_order_of_operations_counts_for_a_history(cloud: Cloud, redis: Redis) -> None:
    """The history shows the order of operations even if they use different keys."""
    seen: set[tuple[bool, bool]] = set()

    @observed
    def incr(key: str) -> None:
        redis.incr(key)

    def check(history: Any) -> None:
        first, second = sorted(history.operations, key=lambda operation: operation.args)
        assert first.ended is not None
        assert second.ended is not None
        seen.add((first.ended < second.began, second.ended < first.began))

    clients = {"a": lambda: incr("x"), "b": lambda: incr("y")}
    assert cloud.explore(clients, check, kinds="switch").is_exhaustive
    assert seen == {(True, False), (False, True), (False, False)}


# -- time ------------------------------------------------------------------------------------------


timed = partial(compared, moves_clock=True)
"""Like ``compared``, but with timers as steps."""


def test_the_end_of_a_key_comes_before_or_after_each_call(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def locks() -> tuple[object, ...]:
        return redis.set("lock", "x", nx=True, ex=10), redis.get("lock")

    few, many = timed(cloud, kv, {"a": locks})
    assert (few, many) == (2, 2), "the key ends before the read, or after it"
    few, many = timed(cloud, kv, {"a": locks, "b": lambda: redis.get("other")})
    assert few == 2 < many, "calls on other keys are not ordered against its end"
    few, many = timed(cloud, kv, {"a": locks, "b": lambda: redis.get("lock")})
    assert few < many


def test_calls_that_read_the_clock_are_ordered_against_timers(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    kv.load({"k": "v"})
    redis.expire("k", 60)
    start = time.time()
    assert timed(cloud, kv, {"a": lambda: redis.incr("n")})[0] == 1
    assert timed(cloud, kv, {"a": lambda: redis.ttl("k")})[0] == 2
    clients = {"a": lambda: (redis.incr("n"), round(time.time() - start))}
    assert timed(cloud, kv, clients)[0] == 2, "the code reads the time between calls"
    few, many = timed(cloud, kv, {"a": lambda: redis.incr("n"), "b": lambda: redis.ttl("k")})
    assert few == 2 < many


def test_sleeps_end_before_or_after_calls_of_others(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def sleeps() -> object:
        time.sleep(1)
        return redis.incr("n")

    few, many = timed(cloud, kv, {"a": sleeps, "b": lambda: redis.incr("n")})
    assert few == 2 <= many
    few, many = timed(cloud, kv, {"a": sleeps, "b": lambda: redis.get("m")})
    assert few == 1 < many


@pytest.mark.slow
def test_deliveries_fall_due_before_or_after_calls(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    queue = cloud.queue()
    publisher = QStash(queue.token, base_url=queue.url)
    url = "https://app.example.com/hook"
    queue.destinations.call(url, lambda request: redis.incr("n") and 200)

    def publishes() -> object:
        publisher.message.publish(url=url, body="x", delay="30s", retries=0)
        return redis.get("n")

    few, many = timed(cloud, kv, {"a": publishes, "b": lambda: redis.get("n")})
    assert few < many


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(cases(30) // 3))
def test_random_clients_with_timers_reach_what_brute_force_reaches(
    cloud: Cloud, kv: KVServer, redis: Redis, seed: int
) -> None:
    def calls(key: str, other: str) -> list[Callable[[], object]]:
        return [
            lambda: redis.get(key),
            lambda: redis.incr(key),
            lambda: redis.set(key, "5", ex=10, nx=True),
            lambda: redis.expire(key, 20),
            lambda: redis.ttl(key),
            lambda: redis.dbsize(),
            lambda: redis.copy(key, other),
            lambda: time.sleep(15),
        ]

    timed(cloud, kv, random_clients(random.Random(seed), calls, "xy", 2, 2))
