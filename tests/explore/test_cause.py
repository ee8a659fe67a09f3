"""The report of a broken promise: its cause, the lines of the application, and its page."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import httpx
import pytest
import redis as redis_py
import redis.asyncio as redis_asyncio
from upstash_redis import Redis

from pytest_fakecloud import BrokenPromiseError, Cloud, History, KVServer, always
from pytest_fakecloud.explore.result.cause import LastDisturbance
from pytest_fakecloud.explore.simulation.stacks import distinct_places
from pytest_fakecloud.explore.values.disturbances import Kind
from pytest_fakecloud.reporting.render.page import page
from pytest_fakecloud.reporting.report import report_of

from ..harness import QUIET
from .conftest import broken, cause, expects, failure, found_cause, publishes_to_asgi


@pytest.fixture
def redis(kv: KVServer) -> Redis:
    return Redis(kv.url, kv.token, rest_retries=0)


def _is_disturbance_without_call(error: BrokenPromiseError) -> bool:
    cause = found_cause(error)
    line = cause.decisive
    return isinstance(cause, LastDisturbance) and (line is None or line.call is None)


def test_time_is_the_cause_if_the_order_alone_breaks_nothing(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    cloud.clock.advance("0.5s")

    def client(name: str) -> Callable[[], None]:
        def run() -> None:
            redis.hset("seen", name, "yes")
            redis.set(f"second:{name}", int(time.time()))

        return run

    def check() -> None:
        assert kv.value("second:ann") == kv.value("second:bob")

    clients = {"ann": client("ann"), "bob": client("bob")}
    assert cause(cloud, clients, "ann.0 jump edge", check) == "ann starts 0.5 s later"
    cloud.explore(clients, check, schedule="ann.1 switch bob")


def test_a_move_of_the_clock_is_the_cause_if_the_order_alone_breaks_nothing(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def client(name: str) -> Callable[[], None]:
        def run() -> None:
            redis.set("lease", name, ex=10)
            redis.hset("seen", name, "yes")
            redis.set(f"second:{name}", int(time.time()))

        return run

    def check() -> None:
        assert kv.value("second:ann") == kv.value("second:bob")

    clients = {"ann": client("ann"), "bob": client("bob")}
    order, move = "ann.2 switch bob", "ann.2 switch @clock"
    assert cause(cloud, clients, f"{order}, {move}", check).startswith(
        "after 1 other disturbance, clock moves by 10 s"
    )
    for schedule in (order, move):
        cloud.explore(clients, check, schedule=schedule)


def test_of_several_conflicts_the_decisive_one_is_named(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    sent: list[str] = []

    def secretary() -> None:
        for start in (0, 2):
            sent.extend(redis.zrange("members", start, start + 1))

    def check() -> None:
        stayed = {"ada", "cleo", "dan"}
        assert stayed <= set(sent)

    def setup() -> None:
        sent.clear()
        for name in ("ada", "bo", "cleo", "dan"):
            kv.execute("ZADD", "members", "0", name)

    clients = {
        "secretary": secretary,
        "bo": lambda: redis.zrem("members", "bo"),
        "finn": lambda: redis.zadd("members", {"finn": 0}),
    }
    error = failure(cloud, clients, check, setup=setup, schedule="secretary.2 delay 30")
    assert "bo's ZREM members bo" in error.cause
    assert "came between secretary's ZRANGE members 0 1" in error.cause


@pytest.mark.parametrize("wait", [0, 86_400])
def test_a_call_that_is_harmless_first_or_last_came_between_two_others(
    cloud: Cloud, kv: KVServer, redis: Redis, wait: int
) -> None:
    told: list[str] = []

    def relay() -> None:
        told.extend(redis.lrange("outbox", 0, -1))
        time.sleep(wait)
        redis.delete("outbox")

    def check() -> None:
        assert kv.value("outbox") or told == ["news"]

    clients = {"shop": lambda: redis.rpush("outbox", "news"), "relay": relay}
    schedule = "shop.1 switch relay" if wait else "shop.1 switch relay, relay.2 switch shop"
    found = failure(cloud, clients, check, setup=told.clear, schedule=schedule)
    assert found.cause.startswith("shop's RPUSH outbox news (")
    assert "came between relay's LRANGE outbox 0 -1 (" in found.cause
    assert "and relay's DEL outbox (" in found.cause


@pytest.mark.parametrize("harmless", ["before", "after", "around"])
def test_a_harmless_write_of_the_same_key_is_not_blamed(
    harmless: str, cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    kv.execute("HSET", "item", "stock", "5")

    def buy(name: str) -> bool:
        stock = int(redis.hget("item", "stock") or 0)
        if harmless in ("before", "around"):
            redis.hset("item", f"seen by {name}", "yes")
        redis.hset("item", "stock", stock - 1)
        if harmless in ("after", "around"):
            redis.hset("item", "last_buyer", name)
        return True

    def check(history: History) -> None:
        assert 5 - int(kv.execute("HGET", "item", "stock")) >= len(history.results)

    clients = {name: partial(buy, name) for name in ("ann", "bob")}
    with pytest.raises(BrokenPromiseError) as raised:
        cloud.explore(clients, check, kinds="switch")
    assert "cause: bob's HSET item stock 4 " in str(raised.value)


def test_an_order_that_decides_nothing_is_no_cause(cloud: Cloud, redis: Redis) -> None:
    def reads() -> None:
        redis.get("other")
        redis.get("n")

    def writes() -> None:
        redis.set("n", 1)
        redis.set("other", 1)

    def check(history: History) -> None:
        assert "reads.2" not in history.schedule

    error = failure(
        cloud, {"reads": reads, "writes": writes}, check, schedule="reads.2 switch writes"
    )
    assert _is_disturbance_without_call(error)


def test_one_switch_replaces_several_disturbances(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def client(amount: int) -> Callable[[], None]:
        def run() -> None:
            redis.set("total", int(redis.get("total") or 0) + amount)

        return run

    clients = {name: client(1) for name in ("ann", "bob", "cid")}
    error = failure(cloud, clients, expects(kv, "3", "total"), kinds="switch")
    assert len(error.disturbances) == 1


def test_a_stuck_trial_has_its_disturbance_as_the_cause(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        try:
            redis.get("a")
        except httpx.HTTPError:
            threading.Event().wait()

    sentence = cause(cloud, run, "run.1 drop", lambda: None)
    assert sentence.startswith("run's GET a (test_cause.py:")
    assert sentence.endswith(") is lost before it arrives")


@pytest.mark.parametrize("applied", ["", "run.1 lose_response"])
def test_disturbances_that_were_not_applied_broke_nothing(
    cloud: Cloud, kv: KVServer, redis: Redis, applied: str
) -> None:
    schedule = f"{applied}, run.9 drop"
    error = failure(cloud, {"run": lambda: redis.incr("n")}, expects(kv, "2"), schedule=schedule)
    assert str(error).startswith(
        "the promise was broken by the given schedule, of which these disturbances were not applied: "
        "run.9 drop:\n"
    )
    assert (error.schedule, len(error.disturbances)) == (applied, bool(applied))


def test_calls_over_an_asynchronous_socket_have_their_line(cloud: Cloud, kv: KVServer) -> None:
    async def run() -> None:
        async with redis_asyncio.Redis.from_url(kv.database_url) as client:
            await client.set("a", "1")
            await client.get("a")

    error = failure(cloud, run, broken)
    first, second = re.findall(r"\(test_cause.py:(\d+)\)", error.story)
    assert int(second) == int(first) + 1


def test_calls_of_a_helper_have_the_lines_of_its_callers(cloud: Cloud, kv: KVServer) -> None:
    def command(*words: str) -> Any:
        headers = {"Authorization": f"Bearer {kv.token}"}
        return httpx.post(kv.url, json=words, headers=headers).json()

    def run() -> None:
        command("SET", "a", "1")
        command("GET", "a")

    error = failure(cloud, run, broken)
    first, second = re.findall(r"\(test_cause.py:(\d+)\)", error.story)
    assert int(second) == int(first) + 1


def test_a_line_with_one_caller_is_the_innermost() -> None:
    sources = [("a.py:1", "a.py:9"), ("a.py:1", "a.py:9"), ("a.py:2",), ()]
    assert distinct_places(sources) == ["a.py:1", "a.py:1", "a.py:2", ""]
    assert distinct_places([("a.py:1", "a.py:8"), ("a.py:1", "a.py:9")]) == ["a.py:8", "a.py:9"]


@pytest.mark.parametrize("in_loop_of", ["client", "queue"])
@pytest.mark.parametrize("over_redis", [True, False])
def test_calls_of_concurrent_tasks_have_lines_of_their_own(
    cloud: Cloud, kv: KVServer, over_redis: bool, in_loop_of: str
) -> None:
    async def concurrent(call: Callable[..., Coroutine[Any, Any, object]]) -> None:
        async def own() -> None:
            await call("DBSIZE")

        await call("PING")
        # The other task runs only code of a library.
        await asyncio.gather(call("GET", "a"), own())

    async def run() -> None:
        if over_redis:
            async with redis_asyncio.Redis.from_url(kv.database_url) as client:
                await concurrent(client.execute_command)
        else:
            async with httpx.AsyncClient(headers=kv.headers) as web:
                await concurrent(lambda *words: web.post(kv.url, json=words))

    client: Callable[[], object] = run
    if in_loop_of == "queue":
        client = publishes_to_asgi(cloud, run)
    error = failure(cloud, client, broken)
    lines = re.findall(r"(PING|GET a|DBSIZE) → \S+ \(test_cause.py:(\d+)\)", error.story)
    named = {call: int(line) for call, line in lines}
    ping = named["PING"]
    assert named == {"DBSIZE": ping - 2, "PING": ping, "GET a": ping + 2}


def shown(cloud: Cloud, error: BrokenPromiseError) -> Any:
    html = page(cloud, report_of(cloud), error._fakecloud_picture)
    data = re.search(r'id="report">(.*?)</script>', html, re.S)
    assert data is not None
    return json.loads(data[1])


def test_clients_are_actors_and_disturbances_are_rows(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def adds() -> None:
        redis.set("n", int(redis.get("n") or 0) + 1)

    error = failure(cloud, {"ann": adds, "bob": adds}, expects(kv, "2"))
    data = shown(cloud, error)
    assert [(row["actor"], row["text"]["what"]) for row in data["rows"]] == [
        ("ann", "GET n"),
        ("bob", "runs before ann continues"),
        ("bob", "GET n"),
        ("bob", "SET n 1"),
        ("ann", "SET n 1"),
    ]
    broke = data["findings"][0]
    assert broke["rows"] == [data["rows"][3]["number"]]
    assert data["rows"][3]["findings"] == [0]
    assert broke["text"].startswith("n is 1: bob's SET n 1 (test_cause.py:")
    assert data["rows"][1]["faults"]
    beside = data["beside"]["report"]["rows"]
    assert [row["actor"] for row in beside] == ["ann", "ann", "bob", "bob"]
    numbers = [row["number"] for row in data["rows"] + beside]
    assert len(set(numbers)) == len(numbers)


def test_the_first_step_at_which_a_promise_broke_is_marked(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def pays() -> None:
        redis.incr("paid")
        redis.incr("orders")

    def counted(key: str) -> int:
        return int(str(kv.value(key) or 0))

    def is_balanced() -> bool:
        return counted("paid") <= counted("orders") + 1

    error = failure(cloud, {"ann": pays, "bob": pays}, always(is_balanced))
    data = shown(cloud, error)
    broke = next(row for row in data["rows"] if row["findings"])
    assert broke["text"]["what"] == "breaks here"
    at = data["rows"].index(broke)
    assert [row["text"]["what"] for row in data["rows"][:at] if row["kind"] == "call"] == [
        "INCR paid",
        "INCR paid",
    ]


def test_rows_have_numbers_of_their_own_however_many_disturbances_are_between_two_calls(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    names = [f"client{number}" for number in range(12)]

    error = failure(
        cloud,
        {name: partial(redis.incr, "n") for name in names},
        expects(kv, "0"),
        schedule=", ".join(f"{name}.0 delay 30" for name in names),
    )
    data = shown(cloud, error)
    numbers = [row["number"] for row in data["rows"] + data["beside"]["report"]["rows"]]
    assert len(set(numbers)) == len(numbers)
    assert [row["kind"] for row in data["rows"]] == ["event"] * 12 + ["call"] * 12


@pytest.mark.slow
def test_the_report_of_a_failing_test_is_that_page(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from upstash_redis import Redis

        def test_adds(fakecloud, kv_server):
            redis = Redis(kv_server.url, kv_server.token)

            def adds():
                redis.set("n", int(redis.get("n") or 0) + 1)

            def check():
                assert kv_server.value("n") == "2"

            fakecloud.explore({"ann": adds, "bob": adds}, check)
        """
    )
    result = pytester.runpytest_inprocess(*QUIET, "--fakecloud-report=pages")
    result.assert_outcomes(failed=1)
    (written,) = (pytester.path / "pages").glob("test_*.html")
    assert "The undisturbed trial" in written.read_text("utf-8")


def test_the_report_shows_the_data_of_the_failing_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def kept(broker):
            broker.create_topic("t", partitions=1)
            yield
            assert not broker.records("t"), "the data are restored"

        def test_consumes(fakecloud, broker, kept):
            client = broker.client()

            def run():
                client.get("/produce/t/x")
                client.post("/commit/g/i", json={"topic": "t", "partition": 0, "offset": 1})

            def check():
                assert not broker.records("t")

            fakecloud.explore(run, check)
        """
    )
    result = pytester.runpytest_inprocess(*QUIET)
    result.assert_outcomes(failed=1)
    assert "commit t-0=1" in result.stdout.str()
    assert "the log ends at" not in result.stdout.str()


def _produce(cloud: Cloud) -> Callable[[], object]:
    broker = cloud.broker(topics={"visits": 1})
    return lambda: httpx.get(
        f"{broker.url}/produce/visits/yes", auth=(broker.username, broker.password)
    )


def _protocol(cloud: Cloud) -> Callable[[], object]:
    url = cloud.kv_server(dialect="redis").database_url
    redis = redis_py.Redis.from_url(url, db=2)
    return lambda: redis.set("visits", "yes")


_VISITS: dict[str, Callable[[Cloud], Callable[[], object]]] = {
    "incr": lambda cloud: partial(_rest(cloud).incr, "visits"),
    "set": lambda cloud: partial(_rest(cloud).set, "visits", "yes"),
    "another database": _protocol,
    "a record": _produce,
}


def _rest(cloud: Cloud) -> Redis:
    kv = cloud.kv_server()
    return Redis(kv.url, kv.token, rest_retries=0)


@pytest.mark.parametrize("calls", _VISITS)
def test_calls_beside_a_race_over_memory_are_not_its_cause(cloud: Cloud, calls: str) -> None:
    """The fakes see the same requests and hold the same data in both orders."""
    visit = _VISITS[calls](cloud)
    total = [0]

    def run() -> None:
        visit()
        before = total[0]
        visit()
        total[0] = before + 1

    def check() -> None:
        assert total[0] == 2

    clients = {"ann": run, "bob": run}
    error = failure(cloud, clients, check, setup=lambda: total.__setitem__(0, 0))
    assert _is_disturbance_without_call(error)
    assert "switch" in error.schedule


def test_the_story_has_the_commands_that_run_between_others(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def run() -> None:
        with kv.between(("GET", "SET"), run=["SET", "n", "7"]):
            redis.set("n", int(redis.get("n") or 0) + 1)

    error = failure(cloud, run, expects(kv, "8"))
    assert re.search(r"run: GET n .*\n.* test: SET n 7\n.* run: SET n 1", error.story)


def test_the_order_of_equal_requests_is_a_cause_if_it_decides_a_result(
    cloud: Cloud, redis: Redis
) -> None:
    def check(history: History) -> None:
        assert history.results["ann"] == 1

    clients = {"ann": lambda: redis.incr("n"), "bob": lambda: redis.incr("n")}
    assert "bob's INCR n" in failure(cloud, clients, check).cause


@pytest.mark.parametrize(("plain", "words"), [("respond", "SET paid 1"), ("crash", "GET paid")])
@pytest.mark.parametrize("serve", ["function", "asgi", "worker"])
def test_a_plainer_disturbance_at_a_later_call_is_the_cause(
    cloud: Cloud, redis: Redis, serve: str, plain: Kind, words: str
) -> None:
    mails: list[str] = []

    def charge(_: object = None) -> int:
        if not redis.get("paid"):
            mails.append("receipt")
            redis.set("paid", "1")
        return 200

    async def charge_in_application() -> None:
        charge()

    run: Any = lambda: None  # noqa: E731
    if serve == "asgi":
        run = publishes_to_asgi(cloud, charge_in_application)
    elif serve == "function":
        queue = cloud.queue()
        queue.destinations.call("https://app.example.com/hook", charge)
        run = partial(queue.publish, "https://app.example.com/hook")

    def check() -> None:
        assert mails.count("receipt") <= 1

    # A rotated token takes effect at the next call, here also at that of another client.
    workers = {"visitor": lambda: redis.get("page"), "clerk": charge} if serve == "worker" else {}
    error = failure(
        cloud,
        run,
        check,
        workers=workers,
        setup=mails.clear,
        kinds=("rotate_token", plain),
        budget=300,
    )
    assert "rotate_token" not in error.schedule
    assert words in error.cause


def test_a_second_disturbance_of_a_delivery_is_named_as_in_the_schedule(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    """Both have one line of the story, which is about the first."""
    queue = cloud.queue()
    queue.destinations.call("https://shop.test", lambda _: 200 if redis.incr("n") else 500)
    publish = queue.client().message.publish

    def check() -> None:
        assert kv.value("n") in ("1", "2")

    schedule = "delivery1.0 duplicate, delivery1.0 crash_after_response"
    error = failure(cloud, lambda: publish(url="https://shop.test/paid"), check, schedule=schedule)
    assert error.cause == "after 1 other disturbance, delivery1.0 crash_after_response, on key n"
