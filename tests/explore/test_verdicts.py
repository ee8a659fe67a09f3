"""Verdicts that say no more than was tried: code that differs between trials is an error."""

from __future__ import annotations

import itertools
import queue
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from json import loads
from typing import Any

import httpx
import pytest
from upstash_redis import Redis
from upstash_redis.errors import UpstashError

from pytest_fakecloud import (
    Cloud,
    ContractError,
    History,
    KVServer,
    always,
    eventually,
    linearizable,
    never,
    nothing_lost,
    sometimes,
)

from .conftest import expects, holds


def error(cloud: Cloud, *args: Any, **options: Any) -> str:
    """Explore, and return the error without source lines."""
    with pytest.raises(ContractError) as caught:
        cloud.explore(*args, **options)
    return re.sub(r" \(\w+\.py:\d+\)", "", str(caught.value))


def _memo(redis: Redis) -> Callable[[], object]:
    values: dict[str, str | None] = {}

    def run() -> None:
        if "k" not in values:
            values["k"] = redis.get("k")

    return run


def _counter(redis: Redis) -> Callable[[], object]:
    numbers = itertools.count()
    return lambda: redis.set("k", next(numbers))


def _longer(redis: Redis) -> Callable[[], object]:
    done: list[int] = []

    def run() -> None:
        redis.incr("k")
        if done:
            redis.incr("other")
        done.append(1)

    return run


@pytest.mark.parametrize(
    ("made", "difference"),
    [
        (_memo, "call 1 was 'client: GET k → null', and there was none the second time"),
        (_counter, "call 1 was 'client: SET k 0 → OK', and 'client: SET k 1 → OK' the second time"),
        (_longer, "call 2 did not exist, and was 'client: INCR other → 1' the second time"),
    ],
)
def test_code_that_remembers_an_earlier_run_is_an_error(
    cloud: Cloud, redis: Redis, made: Callable[[Redis], Any], difference: str
) -> None:
    text = error(cloud, {"client": made(redis)}, holds)
    assert difference in text
    assert "reset it in setup=" in text


@pytest.mark.parametrize(
    ("calls", "difference"),
    [
        ([("get/k", ""), ("GET/k", "")], "target, which had '/get/k' and then '/GET/k'"),
        (
            [("", '["GET","k"]'), ("", '["GET", "k"]')],
            """request body, which had b'["GET","k"]' and then b'["GET", "k"]'""",
        ),
    ],
)
def test_an_error_about_calls_that_a_story_shows_alike_names_what_differs(
    cloud: Cloud, kv: KVServer, calls: list[tuple[str, str]], difference: str
) -> None:
    calls_in_turn = itertools.cycle(calls)

    def run() -> None:
        path, body = next(calls_in_turn)
        httpx.post(
            f"{kv.url}/{path}", content=body, headers={"Authorization": f"Bearer {kv.token}"}
        )

    text = error(cloud, {"client": run}, holds)
    assert f"'client: GET k → null', and the same except for its {difference}, the second" in text


def test_answers_from_outside_the_fakes_are_an_error(cloud: Cloud, kv: KVServer) -> None:
    """The calls are the same, but a stored value differs."""
    values = itertools.count()
    redis = Redis(kv.url, kv.token)
    text = error(
        cloud,
        {"client": lambda: redis.get("k")},
        holds,
        setup=lambda: kv.load({"k": str(next(values))}),
    )
    assert "call 1 was 'client: GET k → \"0\"', and 'client: GET k → \"1\"' the second time" in text


def test_code_that_remembers_a_failure_is_an_error(cloud: Cloud, redis: Redis) -> None:
    """A circuit breaker that one schedule opens makes all later trials hollow."""
    opened: list[int] = []

    def run() -> None:
        if opened:
            return
        try:
            redis.incr("n")
        except Exception:
            opened.append(1)

    text = error(cloud, run, holds, kinds="drop", budget=5)
    assert "call 1 was 'run: INCR n → 1', and there was none after the search" in text


def test_a_promise_that_breaks_only_in_the_second_run_is_an_error(
    cloud: Cloud, redis: Redis
) -> None:
    seen: list[int] = []

    def check() -> None:
        assert not seen, "seen before"
        seen.append(1)

    text = error(cloud, lambda: redis.incr("n"), check)
    assert "the promise held, and was broken the second time (seen before)" in text


def test_the_numbers_of_calls_are_ranges_if_they_varied(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        if redis.set("lock", "x", nx=True):
            redis.incr("n")

    def ping() -> None:
        redis.ping()

    clients = {"ann": run, "bob": run, "eve": ping}
    result = cloud.explore(clients, holds, kinds=("switch", "tick"), budget=30)
    assert "\ncalls: ann 1 to 2 calls, bob 1 to 2 calls, eve 1 call\n" in str(result)
    assert result.calls == {"ann": 2, "bob": 2, "eve": 1}


def _never_true() -> bool:
    return False


@pytest.mark.parametrize(
    "returned",
    [(False, "stock is negative"), _never_true, Redis],
    ids=["tuple", "function", "class"],
)
@pytest.mark.parametrize(
    "promise",
    [always, never, sometimes, lambda promise: eventually(promise, within="1s")],
    ids=["always", "never", "sometimes", "eventually"],
)
def test_a_predicate_returns_a_verdict(
    cloud: Cloud, redis: Redis, promise: Callable[[Any], Any], returned: object
) -> None:
    """``always(lambda: (total == 2, "message"))`` would hold for any total."""
    text = error(cloud, lambda: redis.incr("n"), promise(lambda: returned), budget=2)
    assert "the predicate returned" in text
    assert "which always counts as true" in text


@pytest.mark.parametrize("returned", [(False, "text"), _never_true, (n for n in "")])
def test_the_final_state_of_a_model_is_compared_by_a_verdict(
    cloud: Cloud, redis: Redis, returned: object
) -> None:
    class Model:
        def run(self) -> None:
            """Take effect."""

    promise = linearizable(Model, final=lambda model: returned)

    def run() -> None:
        redis.incr("n")

    assert "final= returned" in error(cloud, run, promise, budget=2)


def test_code_that_has_not_run_is_an_error(cloud: Cloud, redis: Redis) -> None:
    def lazy() -> Iterator[None]:
        redis.incr("n")
        yield

    async def lazy_later() -> AsyncIterator[None]:
        redis.incr("n")
        yield

    clients = {"ann": lambda: redis.incr("n")}
    for function in (lazy, lazy_later, lambda: lazy()):
        assert "bob returned <" in error(cloud, {**clients, "bob": function}, holds)
        assert "setup= returned <" in error(cloud, clients, holds, setup=function)


def test_clients_that_race_over_memory_have_one_order_of_calls(cloud: Cloud, redis: Redis) -> None:
    seen: list[str] = []
    clients = {
        name: lambda name=name: seen.append(f"{name} {redis.get('k')}") for name in ("ann", "bob")
    }
    result = cloud.explore(clients, holds, kinds="switch")
    assert "the only possible interleaving of calls to the fakes (exhaustive)" in str(result)


def test_classes_of_queues_take_a_type(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        redis.ping()
        for kind in (queue.SimpleQueue[int], queue.Queue[int], queue.LifoQueue[int]):
            made = kind()
            made.put(1)
            assert made.get() == 1

    cloud.explore(run, holds, budget=2)


@pytest.fixture
def redis(kv: KVServer) -> Redis:
    return Redis(kv.url, kv.token, rest_retries=0)


def test_the_verdict_names_what_the_promise_read_and_notices(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    broker = cloud.broker(topics={"sales": 1})

    def run() -> None:
        redis.incr("n")
        redis.set("audit:1", "yes")
        redis.setnx("audit:1", "no")

    def check(history: History) -> None:
        assert kv.value("n") == "1" or history.errors
        assert not broker.records("sales")
        assert redis.get("typo") is None

    result = cloud.explore(run, check, kinds=("drop", "respond"), trust=True)
    reads = "key n, topics, key typo"
    assert result.reads == reads
    assert result.unwritten == ("typo",)
    assert result.writes == 2
    (unnoticed,) = result.unnoticed
    assert re.fullmatch(r"SET audit:1 yes \(test_verdicts\.py:\d+\)", unnoticed)
    lines = str(result).splitlines()
    assert [line.partition(":")[0] for line in lines[:7]] == [
        lines[0],
        "calls",
        "disturbances",
        "states of the fakes",
        "the promise read",
        "no trial wrote a key that the promise read",
        f"the promise notices 1 of 2 lost writes; not {unnoticed}".partition(":")[0],
    ]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("stokc", "stokc; did you mean 'stock'?"),
        ("refunds", "refunds (correct if it must not exist)"),
    ],
)
def test_a_key_that_no_run_wrote_is_explained(
    cloud: Cloud, kv: KVServer, redis: Redis, key: str, hint: str
) -> None:
    def check(history: History) -> None:
        assert kv.value(key) is None
        assert kv.value("stock") or history.errors

    result = cloud.explore(lambda: redis.set("stock", "1"), check, kinds="respond", trust=True)
    assert f"no trial wrote a key that the promise read: {hint}" in str(result).splitlines()


def test_the_write_that_is_left_out_is_the_one_that_is_named(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    stranger = Redis(kv.url, "no such token", rest_retries=0, allow_telemetry=False)

    def run() -> None:
        with suppress(UpstashError):
            stranger.get("a")
        redis.set("a", "1")
        redis.set("b", "1")

    def check(history: History) -> None:
        assert kv.value("a") == "1" or history.errors

    result = cloud.explore(run, check, kinds="respond", trust=True)
    (unnoticed,) = result.unnoticed
    assert unnoticed.startswith("SET b 1 ")


def test_a_key_that_the_check_empties_is_not_named(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def check() -> None:
        while redis.rpop("jobs"):
            assert kv.value("done") is None

    result = cloud.explore(lambda: redis.lpush("jobs", "a"), check, kinds="respond", trust=True)
    assert result.unwritten == ("done",)


def test_a_disturbance_of_a_worker_that_was_restarted_is_explained(
    cloud: Cloud, redis: Redis
) -> None:
    def sink() -> None:
        for number in range(3):
            redis.sadd("rows", number)

    text = error(
        cloud,
        lambda: redis.get("rows"),
        holds,
        workers={"sink": sink},
        schedule="sink.2 crash, sink.3 respond",
    )
    assert "not applied: sink.3 respond. sink/2 began after a failure, and counts its own" in text


def test_a_key_that_only_another_schedule_writes_is_not_named(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def run() -> None:
        try:
            redis.set("done", "yes")
        except Exception:
            kv.client().set("failed", "yes")

    def check(history: History) -> None:
        assert kv.value("done") or kv.value("failed") or history.errors

    assert cloud.explore(run, check, kinds="respond", trust=True).unwritten == ()


@pytest.mark.parametrize("key", [None, "typo", "limit"])
def test_a_promise_that_holds_whatever_the_code_does_is_an_error(
    cloud: Cloud, kv: KVServer, redis: Redis, key: str | None
) -> None:
    kv.load({"limit": "5"})

    def check() -> None:
        assert key is None or kv.value(key) in (None, "5")

    def run() -> None:
        redis.set("n", "1")

    text = error(cloud, run, check, kinds="respond", trust=True)
    assert "it does not notice if a write is lost, such as SET n 1" in text
    assert (f"it read key {key}, which no trial wrote" in text) == (key is not None)
    assert cloud.explore(run, check, kinds="respond").reads == ""
    result = cloud.explore(run, [check, expects(kv, "1")], kinds="tick", trust=True)
    assert result.unwritten == ((key,) if key else ())


def test_a_promise_that_reads_nothing_of_code_that_writes_nothing_is_an_error(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def run() -> object:
        return redis.get("n")

    def says_nothing() -> None:
        assert loads("1") == 1  # which names an object of its library

    for check in (says_nothing, always(lambda: True), [says_nothing, never(lambda: False)]):
        text = error(cloud, run, check, kinds="respond", trust=True)
        assert "the promise holds whatever the code does: it read nothing. Read what" in text

    def nobody_writes() -> None:
        assert kv.value("n") is None

    result = cloud.explore(run, nobody_writes, kinds="respond", trust=True)
    assert (result.reads, result.unwritten, result.writes) == ("key n", ("n",), 0)


def test_a_promise_about_data_of_the_test_says_something(cloud: Cloud) -> None:
    """It reads nothing of a fake: only what a destination of the queue has received."""
    queue = cloud.queue()
    received: list[str] = []

    class Shop:
        def __init__(self) -> None:
            self.received = received

        def __call__(self) -> None:
            assert len(self.received) < 2

        check = __call__

    def at_most(most: int, notes: list[str]) -> None:
        assert len(notes) <= most

    queue.destinations.call("https://app.example.com", lambda _: received.append("paid"))

    def run() -> None:
        httpx.post(f"{queue.url}/v2/publish/https://app.example.com", headers=queue.headers)

    for check in (
        Shop(),
        Shop().check,
        partial(at_most, 1, received),
        partial(at_most, 1, notes=received),
        always(lambda: len(received) < 2),
        nothing_lost(lambda: received, lambda: received),
    ):
        result = cloud.explore(run, check, setup=received.clear, kinds="drop", trust=True)
        assert (result.reads, result.writes, len(result.unnoticed)) == ("", 1, 1)


def test_a_promise_that_forbids_something_need_not_notice_a_lost_write(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    """It holds without the write, as each promise does that something happens at most once."""

    def run() -> None:
        redis.set("lock", "ann", nx=True, ex=60)

    def the_lock_is_free_again() -> None:
        cloud.clock.advance("1h")
        assert kv.value("lock") is None

    result = cloud.explore(run, the_lock_is_free_again, kinds="crash", trust=True)
    assert (result.reads, result.writes, len(result.unnoticed)) == ("key lock", 1, 1)


def test_a_command_for_all_keys_writes_each_of_them(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    kv.load({"n": "1"})

    def emptied() -> None:
        assert kv.value("n") in (None, "1")

    assert cloud.explore(lambda: redis.flushdb(), emptied, kinds="drop", trust=True).unwritten == ()


def test_the_loss_of_a_message_and_of_a_record_is_noticed(cloud: Cloud, redis: Redis) -> None:
    queue, broker = cloud.queue(), cloud.broker(topics={"sales": 1})
    queue.destinations.accept()

    def run() -> None:
        httpx.post(f"{queue.url}/v2/publish/https://app.example.com", headers=queue.headers)
        auth = (broker.username, broker.password)
        httpx.get(f"{broker.url}/produce/sales/yes", auth=auth)

    def check() -> None:
        assert len(queue.messages()) == len(broker.records("sales")) == 1

    result = cloud.explore(run, check, kinds="tick", budget=5, trust=True)
    assert (result.writes, result.unnoticed) == (2, ())
    assert result.reads == "messages, topics"


@pytest.mark.parametrize(
    ("start", "path", "reads"),
    [
        (Cloud.queue, "/v2/messages/msg_none", "messages"),
        (Cloud.broker, "/topics", "topics"),
        (Cloud.broker, "/committed/readers/main", "group readers"),
        (Cloud.vector_index, "/fetch/shops?ids=a", "namespace shops"),
    ],
)
def test_reads_of_the_promise_through_a_client_are_named(
    cloud: Cloud, redis: Redis, start: Callable[[Cloud], Any], path: str, reads: str
) -> None:
    fake = start(cloud)

    def check() -> None:
        httpx.get(f"{fake.url}{path}", headers=fake.headers)
        assert redis.get("n") == "1"

    result = cloud.explore(lambda: redis.set("n", "1"), check, kinds="tick", budget=5, trust=True)
    assert result.reads == f"{reads}, key n"


def test_no_hint_for_keys_that_only_the_check_writes(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    """A check may call the application at a later time, at which it has another key."""

    def ask() -> bool:
        return int(redis.incr(f"quota:{cloud.clock.now():%d}")) <= 3

    def check() -> None:
        cloud.clock.advance("49h")
        assert ask()
        assert kv.value("quota:19") is None

    result = cloud.explore(ask, check, budget=10, trust=True)
    assert result.unwritten == ("quota:19",)
    assert str(result).count("did you mean") == 1


def test_a_check_that_reads_only_memory_is_called_one_of_what_is_outside(
    cloud: Cloud, redis: Redis
) -> None:
    answers: list[int] = []

    def check() -> None:
        assert answers != [7]

    run = lambda: answers.append(redis.incr("n"))  # noqa: E731
    result = cloud.explore(run, check, setup=answers.clear, kinds="drop", budget=5, trust=True)
    assert "the promise read nothing of the fakes: what memory, files" in str(result)
