"""A closed fake is in no circle of references, so it is freed without the garbage collector."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from weakref import ref

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud, CommandError, KVServer
from pytest_fakecloud.cloud.fake import core_of
from pytest_fakecloud.http.messages import Request
from tests.harness import Run, in_threads, wait_until


@pytest.fixture(autouse=True)
def _garbage() -> Iterator[None]:
    gc.collect()
    gc.disable()
    # What an earlier test left could lose its last reference during this one.
    objects = gc.get_objects()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    objects.clear()
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def left() -> Counter[str]:
    """Return the numbers of objects of this package that only the garbage collector can free."""
    gc.collect()
    names = (f"{type(garbage).__module__}.{type(garbage).__qualname__}" for garbage in gc.garbage)
    counts = Counter(name for name in names if name.startswith("pytest_fakecloud."))
    gc.garbage.clear()
    return counts


def left_after(use: Callable[[Cloud], None]) -> Counter[str]:
    """Return what the fakes of a cloud leave after their second use: the first of a library may leave
    something behind.
    """
    for _ in range(2):
        with Cloud() as cloud:
            use(cloud)
            apps = [ref(fake._app) for fake in cloud.fakes()]
        del cloud
        counts: Counter[str] = Counter()
        # The threads of connections end after the fake.
        wait_until(lambda: all(app() is None for app in apps) or counts.update(left()) or counts)  # noqa: B023
        counts.update(left())
    return counts


def kv(cloud: Cloud) -> None:
    assert cloud.kv_server().url


def vector(cloud: Cloud) -> None:
    assert cloud.vector_index(dimension=2).url


def broker(cloud: Cloud) -> None:
    assert cloud.broker(topics={"t": 1}).url


def queue(cloud: Cloud) -> None:
    assert cloud.queue().url


def capture(cloud: Cloud) -> None:
    assert cloud.callback_capture().url


@pytest.mark.parametrize("use", [kv, vector, broker, queue, capture])
def test_a_fake_that_was_not_used_leaves_nothing(use: Callable[[Cloud], None]) -> None:
    assert left_after(use) == Counter()


# -- kv_server -------------------------------------------------------------------------------------

LIBRARY = "#!lua name=l\nredis.register_function('f', function() return 1 end)"


def rest_calls(server: KVServer) -> None:
    client = server.client()
    client.set("k", "v")
    server.assert_called(command="SET")
    lines = [["GET", "k"], ["LPUSH", "k", "1"]]
    for path in ("pipeline", "multi-exec"):
        httpx.post(f"{server.url}/{path}", json=lines, headers=server.headers)
    httpx.post(f"{server.url}/lpush/k/1", headers=server.headers)
    httpx.post(f"{server.url}/get/k")
    with httpx.stream("POST", f"{server.url}/subscribe/c", headers=_for_events(server)) as events:
        assert next(events.iter_lines()) == "data: subscribe,c,1"


def _for_events(server: KVServer) -> dict[str, str]:
    return {**server.headers, "Accept": "text/event-stream"}


def commands_of_the_test(server: KVServer) -> None:
    server.load({"k": "v"})
    server.restore(server.snapshot())
    server.between(run=["GET", "k"]).remove()
    with suppress(CommandError):
        server.execute("LPUSH", "k", 1)


def commands_over_tcp(server: KVServer) -> None:
    client = redis.Redis.from_url(server.database_url)
    for line in ("SET k v", "LPUSH k 1", "NONE", "MULTI", "LPUSH k 1", "EXEC", "MONITOR"):
        with suppress(redis.ResponseError):
            client.execute_command(*line.split())
    client.close()


def blocking_pops(server: KVServer) -> None:
    client = redis.Redis.from_url(server.database_url)

    def push() -> None:
        wait_until(lambda: "cmd=blpop" in str(server.execute("CLIENT", "LIST")))
        client.rpush("list", "x")

    in_threads(push, lambda: client.blpop("list"))
    client.close()


def pushed_messages(server: KVServer) -> None:
    client = redis.Redis.from_url(server.database_url)
    listener = client.pubsub()
    listener.subscribe("c")
    # subscribe() does not wait for its answer: PUBLISH, on another connection, must.
    assert listener.get_message(timeout=30)["type"] == "subscribe"
    client.publish("c", "m")
    assert listener.get_message(timeout=30)["type"] == "message"
    listener.close()
    client.close()


def scripts(server: KVServer) -> None:
    client = server.client()
    client.eval("return redis.call('SET', KEYS[1], '1')", ["k"])
    client.execute(["FUNCTION", "LOAD", LIBRARY])
    client.execute(["FCALL", "f", "0"])
    for wrong in ("(", "error('x')", "return redis.call('LPUSH', 'k', '1')"):
        with suppress(Exception):
            client.eval(wrong)


@pytest.mark.parametrize(
    "use",
    [
        *(rest_calls, commands_of_the_test, commands_over_tcp),
        *(blocking_pops, pushed_messages, scripts),
    ],
)
def test_a_used_kv_server_leaves_nothing(use: Callable[[KVServer], None]) -> None:
    assert left_after(lambda cloud: use(cloud.kv_server())) == Counter()


def test_a_kept_traceback_of_an_earlier_fake_keeps_no_later_fake_alive() -> None:
    errors = []

    def fail(*command: object) -> None:
        errors.append(ValueError())
        raise errors[-1]

    with Cloud() as cloud:
        server = cloud.kv_server()
        core_of(server).engine.listeners.add(fail)
        with suppress(redis.ResponseError):
            redis.Redis.from_url(server.database_url).ping()
        del server
    assert errors[0].__traceback__ is not None
    # The thread that served PING serves this BLPOP, and goes on in another function afterwards.
    assert left_after(lambda cloud: blocking_pops(cloud.kv_server())) == Counter()


def test_a_circle_would_be_found() -> None:
    cloud = Cloud()
    server = cloud.kv_server()
    server.itself = server  # type: ignore[attr-defined]
    cloud.close()
    del cloud, server
    assert left()["pytest_fakecloud.kv.fake.KVServer"] == 1


# -- the other fakes -------------------------------------------------------------------------------


def records_of_the_test(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2, namespaces={"a": {"1": [1, 2]}})
    with index.holding():
        index.restore(index.snapshot())
        assert index.vectors("a")
    index.assert_not_queried()


def calls_of_clients(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2, ready_after="5s")
    client = index.client()
    client.upsert([("1", [1, 2], {"n": 1}), ("2", [2, 1])], namespace="a")
    with index.holding():
        client.upsert([("3", [1, 1])])
        assert len(index.pending()) == 3
    client.query([1, 2], namespace="a", top_k=2, filter="n = 1")
    client.resumable_query(vector=[1, 2], top_k=1)
    client.delete_namespace("a")
    client.upsert([("4", [1, 1])])
    index.assert_upserted("3")
    index.snapshot()


def consumed_records(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 1})
    broker.produce("t", "x")
    with httpx.Client(base_url=broker.url, auth=(broker.username, broker.password)) as http:
        for path in ("produce/t/x", "consume/g/i/t?timeout=1", "commit/g/i", "topics", "no-route"):
            http.get(f"/{path}")
    broker.faults.redeliver("g")
    assert broker.topics()


def delivered_messages(cloud: Cloud) -> None:
    queue, inbox = cloud.queue(delivery="driven"), cloud.callback_capture()
    queue.destinations.call("https://app.example.com", lambda request: None)
    target = cloud.destination()
    target.server.expect_request("/work").respond_with_data("done")
    urls = "https://app.example.com/work", f"{target.url.rstrip('/')}/work"
    for url in urls:
        queue.publish(url, json={"a": 1}, callback=inbox.callback_url)
    queue.schedule(urls[0], "* * * * *")
    queue.run_until_idle()
    queue.publish(urls[0], delay="1h")
    httpx.get(f"{queue.url}/no-route")
    inbox.wait_for_callback()


@pytest.mark.parametrize(
    "use", [records_of_the_test, calls_of_clients, consumed_records, delivered_messages]
)
def test_another_used_fake_leaves_nothing(use: Callable[[Cloud], None]) -> None:
    assert left_after(use) == Counter()


# -- fixtures --------------------------------------------------------------------------------------

FIXTURES = """
    import gc
    from weakref import ref

    import pytest

    gone = []

    @pytest.fixture(scope="module", autouse=True)
    def no_collector():
        gc.disable()
        yield
        gc.enable()

    class TestFirst:
        def test_it(
            self, fakecloud, kv_server, vector_index, broker, queue, callback_capture, fakecloud_kv
        ):
            fakes = kv_server, vector_index, broker, queue, callback_capture
            gone.extend(map(ref, (fakecloud, *fakes)))

    def test_the_next():
        assert [one() for one in gone] == [None] * 6
"""


@pytest.mark.parametrize("scope", ["function", "class"])
def test_fixtures_leave_nothing_to_the_collector(run: Run, scope: str) -> None:
    run(FIXTURES, "-o", f"fakecloud_scope={scope}").assert_outcomes(passed=2)


def test_a_late_call_of_a_closed_fake_is_not_recorded() -> None:
    with Cloud() as cloud:
        server = cloud.kv_server()
        app, before = server._app, server._app.recorder
    assert app.recorder is not before
    assert app.recorder is app.recorder
    app.respond(Request("GET", "/get/k"))
    assert app.recorder.entries == []
    assert (len(server.journal), len(cloud.journal)) == (0, 0)
