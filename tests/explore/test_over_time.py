"""Promises that are checked after every step, and failures that cannot be replayed."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from qstash import QStash
from upstash_redis import Redis
from upstash_redis.errors import UpstashError

from pytest_fakecloud import (
    BrokenPromiseError,
    Cloud,
    ContractError,
    DeliveredRequest,
    History,
    KVServer,
    always,
    at_most_one,
    eventually,
    follows,
    never,
    observed,
    once,
    sometimes,
)

from .conftest import failure

HOOK = "https://app.example.com/hook"


@pytest.fixture
def redis(kv: KVServer) -> Redis:
    return Redis(kv.url, kv.token, rest_retries=0)


def holds_a_lock(redis: Redis, name: str, *, atomic: bool) -> Callable[[], None]:
    def run() -> None:
        if atomic:
            taken = redis.set("lock", name, nx=True)
        else:
            taken = redis.get("lock") is None
            if taken:
                redis.set("lock", name)
        if taken:
            redis.sadd("inside", name)
            redis.srem("inside", name)
            redis.delete("lock")

    return run


def inside(kv: KVServer) -> Callable[[], object]:
    def holders() -> object:
        return kv.value("inside") or ()

    return holders


def test_at_most_one_is_checked_in_the_middle(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def clients(atomic: bool) -> dict[str, Callable[[], None]]:
        return {name: holds_a_lock(redis, name, atomic=atomic) for name in ("ann", "bob")}

    error = failure(
        cloud,
        clients(False),
        at_most_one(inside(kv)),
        kinds="switch",
        match="at most one: holders returned",
    )
    assert "the promise breaks here" in error.story, "the step at which it broke"
    held = cloud.explore(clients(True), at_most_one(inside(kv)), kinds="switch")
    assert held.is_exhaustive


def test_the_predicate_of_eventually_must_not_raise(cloud: Cloud) -> None:
    def fails() -> bool:
        raise LookupError

    with pytest.raises(LookupError) as raised:
        eventually(fails, within="1s")(History(cloud, ""))
    assert "raised by fails, the predicate of eventually()" in raised.value.__notes__[0]


def test_at_most_one_counts_items(cloud: Cloud) -> None:
    history = History(cloud, "")
    for few in (None, 0, 1, "1", [], ["ann"], {"ann"}):
        at_most_one(lambda few=few: few)(history)
    for several in (2, "2", ["ann", "bob"]):
        with pytest.raises(AssertionError, match="at most one"):
            at_most_one(lambda several=several: several)(history)
    for unknown in ("ann", object()):
        with pytest.raises(ContractError, match="which is not a count"):
            at_most_one(lambda unknown=unknown: unknown)(history)


def test_always_and_never(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def run() -> None:
        redis.set("n", "1")
        redis.set("n", "2")
        redis.set("n", "1")

    def is_small() -> bool:
        return int(kv.value("n") or 0) < 2

    def is_large(history: History) -> bool:
        assert isinstance(history, History)
        return int(kv.value("n") or 0) > 1

    for promise, said in (
        (always(is_small), "always: is_small returned False"),
        (never(is_large), "never: is_large returned True"),
    ):
        failure(cloud, run, promise, kinds="drop", match=said)
    cloud.explore(run, [always(lambda: int(kv.value("n") or 0) < 3), lambda: None], kinds="drop")


@pytest.mark.parametrize("is_chosen", [True, False])
def test_promises_are_checked_after_each_move_of_the_clock(
    cloud: Cloud, kv: KVServer, redis: Redis, is_chosen: bool
) -> None:
    """The next step repairs what the end of the TTL breaks."""
    cloud.kv_server(name="other")
    set_once: list[bool] = []

    def ann() -> None:
        redis.set("lease", "ann", ex=10)
        set_once.append(True)
        if not is_chosen:
            time.sleep(20)
        redis.set("lease", "ann")

    failure(
        cloud,
        ann,
        always(lambda: kv.value("lease") is not None or not set_once),
        schedule="ann.2 switch @clock" if is_chosen else "",
        services=None if is_chosen else "other",
        setup=set_once.clear,
    )


def test_a_predicate_that_raises_says_where(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    """The code under test cannot catch the exception of a predicate."""

    def count() -> bool:
        return int(kv.value("n") or 0) < 2

    def client() -> None:
        with contextlib.suppress(Exception):
            redis.set("n", "1")
            redis.get("n")
            redis.set("n", "one")

    with pytest.raises(ValueError, match="invalid literal for int") as caught:
        cloud.explore(client, always(count))
    predicate, schedule = caught.value.__notes__
    assert predicate.startswith("raised by count, the predicate of always(). ")
    assert "kv_server.value('key')" in predicate
    assert schedule == "raised by check=, in the undisturbed trial"

    def has_not_crashed(history: History) -> bool:
        return not history.crashed or {}["no lock"]

    story = failure(cloud, client, always(has_not_crashed), kinds="crash").story
    assert "the promise breaks here" in story
    assert "check: KeyError: 'no lock'" in story

    def fail() -> bool:
        return kv.value("n") is None or pytest.fail("set")

    with pytest.raises(pytest.fail.Exception) as ended:
        cloud.explore(client, always(fail), schedule="client.2 slow 4")
    assert ended.value.__notes__[-1] == "raised by check=, in the undisturbed trial"


async def holds_when_awaited() -> bool:
    raise AssertionError("never reached")


def holds_when_iterated() -> Iterator[bool]:
    yield False


@pytest.mark.parametrize(
    "promise", [always, never, at_most_one, sometimes, partial(eventually, within="1h")]
)
@pytest.mark.parametrize("predicate", [holds_when_awaited, holds_when_iterated])
def test_a_predicate_whose_code_does_not_run_is_rejected(
    cloud: Cloud, redis: Redis, promise: Callable[..., Any], predicate: Callable[..., object]
) -> None:
    with pytest.raises(ContractError, match=f"{predicate.__name__} returned <.*code has not run"):
        cloud.explore(redis.ping, promise(predicate), budget=1)


def test_eventually_lets_time_pass(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    queue = cloud.queue()
    publisher = QStash(queue.token, base_url=queue.url)

    def handle(request: DeliveredRequest) -> None:
        redis.set("done", "yes")

    queue.destinations.call(HOOK, handle)

    def run() -> None:
        redis.set("lock", "x", ex=600)
        publisher.message.publish(url=HOOK, body="x", retries=3)

    def is_free() -> bool:
        return kv.value("lock") is None

    cloud.explore(run, eventually(is_free, within="1h"), kinds="delay")
    failure(
        cloud,
        run,
        eventually(is_free, within="1m"),
        kinds="delay",
        match="eventually: is_free did not hold within 1m",
    )


def test_sometimes_must_be_reached(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def client() -> None:
        redis.incr("n")
        redis.decr("n")

    def two_at_once() -> bool:
        return kv.value("n") == "2"

    cloud.explore([client, client], sometimes(two_at_once), kinds="switch")
    with pytest.raises(AssertionError, match="no schedule reached two_at_once"):
        cloud.explore(client, sometimes(two_at_once), kinds="drop")


class Stack:
    """A model of a list."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def push(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    def pop(self) -> str | None:
        return self.items.pop() if self.items else None


def test_every_answer_is_compared_with_a_model(cloud: Cloud, redis: Redis) -> None:
    @observed
    def push(item: str) -> int:
        return redis.rpush("stack", item)

    def clients(side: str) -> dict[str, Callable[[], object]]:
        @observed
        def pop() -> str | None:
            return redis.rpop("stack") if side == "right" else redis.lpop("stack")  # type: ignore[return-value]

        return {"ann": lambda: (push("a"), pop()), "bob": lambda: push("b")}

    held = cloud.explore(clients("right"), follows(Stack), kinds="switch")
    assert held.is_exhaustive
    error = failure(
        cloud,
        clients("left"),
        follows(Stack),
        kinds="switch",
        match=r"the result differs from the model's: ann: pop\(\)",
    )
    assert "the promise breaks here" in error.story
    with pytest.raises(ContractError, match="no method push"):
        cloud.explore(clients("left"), follows(int), kinds="switch")


def test_invalid_promises_are_rejected() -> None:
    for wrong in (
        lambda: always("n"),  # type: ignore[arg-type]
        lambda: sometimes(3),  # type: ignore[arg-type]
        lambda: eventually(None, within="1h"),  # type: ignore[arg-type]
        lambda: follows(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(ContractError, match=r"expects a (function|class)"):
            wrong()  # type: ignore[no-untyped-call]


def test_a_failure_that_does_not_always_repeat_says_so(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    runs: list[int] = []

    def check() -> None:
        runs.append(1)
        assert kv.value("n") != "2" or len(runs) % 3 == 1

    failure(
        cloud,
        lambda: redis.incr("n"),
        check,
        kinds="duplicate",
        match=r"it failed in [1-4] of 5 replays",
    )


def test_a_pool_thread_started_before_explore_makes_calls_for_the_code(
    cloud: Cloud, redis: Redis
) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()

        def run() -> None:
            pool.submit(redis.incr, "n").result()

        cloud.explore(run, once("n"), kinds=("drop", "respond"))


def test_a_partition_cuts_one_client_off(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def client(name: str) -> Callable[[], None]:
        def run() -> None:
            for _ in range(3):
                try:
                    redis.incr(name)
                except Exception:
                    time.sleep(40)

        return run

    clients = {"ann": client("ann"), "bob": client("bob")}
    seen: list[tuple[object, object]] = []
    cloud.explore(
        clients,
        lambda: seen.append((kv.value("ann"), kv.value("bob"))),
        schedule="ann.1 partition 60",
    )
    assert seen == [("1", "3")]


def test_a_promise_may_call_a_fake_whose_token_is_rotated(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        for number in range(2):
            try:
                redis.set("n", str(number))
            except UpstashError:
                time.sleep(20)

    result = cloud.explore(
        run, always(lambda: redis.get("n") in (None, "0", "1")), kinds="rotate_token"
    )
    assert result.kinds["rotate_token"] > 1


@pytest.mark.parametrize(
    "claim",
    ["XAUTOCLAIM s g two 30000 0", "XCLAIM s g two 30000 1-1", "XPENDING s g IDLE 30000 - + 9"],
)
def test_the_end_of_the_idle_time_of_a_pending_entry_is_a_known_time(
    cloud: Cloud, kv: KVServer, redis: Redis, claim: str
) -> None:
    kv.execute("XADD", "s", "1-1", "f", "v")
    kv.execute("XGROUP", "CREATE", "s", "g", "0")
    replies: list[object] = []

    def one() -> None:
        redis.execute(claim.split())
        redis.xreadgroup("g", "one", {"s": ">"})
        replies.append(redis.execute(claim.split()))

    def claimed(schedule: str) -> bool:
        cloud.explore(one, schedule=schedule, setup=replies.clear)
        return "1-1" in str(replies)

    assert not claimed("")
    assert not claimed("one.3 nearly")
    assert claimed("one.3 jump")


@pytest.mark.parametrize("is_one_step", [False, True])
def test_a_slow_consumer_that_another_one_replaced_applies_an_entry_twice(
    cloud: Cloud, kv: KVServer, redis: Redis, is_one_step: bool
) -> None:
    kv.execute("XADD", "s", "1-1", "qty", "5")
    kv.execute("XGROUP", "CREATE", "s", "g", "0")

    def apply(consumer: str, entry: str) -> None:
        if is_one_step:
            script = (
                "if redis.call('XACK', 's', 'g', ARGV[1]) == 1 then redis.call('INCR', 'n') end"
            )
            redis.eval(script, ["s", "n"], [entry])
        elif redis.xpending("s", "g", "-", "+", 1, consumer=consumer):
            transaction = redis.multi()
            transaction.incr("n")
            transaction.xack("s", "g", entry)
            transaction.exec()

    def work(consumer: str) -> None:
        for _ in range(2):
            _, claimed, _ = redis.xautoclaim("s", "g", consumer, 30_000, "0")
            for _, entries in redis.xreadgroup("g", consumer, {"s": ">"}) or ():
                claimed = [*claimed, *entries]
            for entry, _ in claimed:
                apply(consumer, entry)
            time.sleep(31)

    def at_most_one_time() -> None:
        assert kv.value("n") in (None, "1")

    def explored() -> None:
        cloud.explore(
            (),
            always(at_most_one_time),
            workers={"w1": lambda: work("w1"), "w2": lambda: work("w2")},
            kinds="past",
        )

    if is_one_step:
        explored()
        return
    with pytest.raises(BrokenPromiseError) as caught:
        explored()
    assert len(caught.value.disturbances) == 1
    assert "w2's multi-exec of 2" in caught.value.cause


class Delayed:
    """A job that a worker runs when it is due, unless the user has cancelled it before."""

    def __init__(
        self, kv: KVServer, *, unit: int, poll: int, sleeps: bool, corrected: bool
    ) -> None:
        self._kv = kv
        self._redis = Redis(kv.url, kv.token, rest_retries=0)
        self._unit, self._poll = unit, poll
        self._sleeps = sleeps
        self._corrected = corrected

    def user(self) -> None:
        self._redis.hset("jobs", "mail", json.dumps({"due": (time.time() + 60) * self._unit}))
        if self._sleeps:
            time.sleep(60)
        if self._redis.hdel("jobs", "mail"):
            self._redis.set("cancelled", "yes")

    def worker(self) -> None:
        for _ in range(150 // self._poll):
            job = json.loads(self._redis.hget("jobs", "mail") or "{}")
            is_due = bool(job) and job["due"] <= time.time() * self._unit
            if is_due and (not self._corrected or self._redis.hdel("jobs", "mail")):
                self._redis.incr("sent")
                self._redis.hdel("jobs", "mail")
            time.sleep(self._poll)

    def check(self) -> None:
        assert not (self._kv.value("cancelled") and self._kv.value("sent")), "sent"

    def search(self, cloud: Cloud, **options: Any) -> None:
        cloud.explore({"user": self.user, "worker": self.worker}, self.check, **options)


@pytest.mark.parametrize(("unit", "poll", "sleeps"), [(1, 30, True), (1000, 10, False)])
def test_the_clock_moves_to_due_times_that_the_code_stores(
    cloud: Cloud, kv: KVServer, unit: int, poll: int, sleeps: bool
) -> None:
    of = Delayed(kv, unit=unit, poll=poll, sleeps=sleeps, corrected=False)
    with pytest.raises(BrokenPromiseError, match="check: sent") as caught:
        of.search(cloud, budget=150)
    assert re.search(r"worker\.\d+ switch user", caught.value.schedule)
    Delayed(kv, unit=unit, poll=poll, sleeps=sleeps, corrected=True).search(cloud, budget=30)


def test_schedules_fire_three_times_and_are_delivered_within_the_patience(cloud: Cloud) -> None:
    queue, late, fired = cloud.queue(), set[timedelta](), set[int]()

    def check() -> None:
        fired.add(len(queue.messages()))
        late.update(attempt.waited for attempt in queue.attempts() if attempt.number == 1)

    queue.destinations.respond(HOOK, 200)
    create = partial(queue.client().schedule.create, cron="55 23 * * *", schedule_id="closing")
    deploy = {"deploy": lambda: create(destination=HOOK)}
    result = cloud.explore(deploy, check, budget=100, trust=False)
    assert 50 < result.tried <= 100
    assert fired == {0, 3}
    assert max(late) <= timedelta(hours=1)
