"""A replayed journal produces the data that the fakes hold, for every service."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.base import record_times
from pytest_fakecloud.cloud.services import data_module
from pytest_fakecloud.replay import journal
from pytest_fakecloud.reporting.render.replayed import states
from pytest_fakecloud.reporting.report import report_of

from ..harness import in_threads, wait_until
from ..reporting.shown import deliver

NOON = "2026-03-01T12:00:00Z"


def found(cloud: Cloud) -> dict[str, Any]:
    return states(cloud, report_of(cloud, test="t"))


def after(states: dict[str, Any], number: float = float("inf")) -> dict[str, Any]:
    """Return the data after a row, computed as on the page."""
    data = {
        fake: {section: dict(items) for section, items in sections.items()}
        for fake, sections in states.get("initial", {}).items()
    }
    for step in states["steps"]:
        for fake, section, item, fields in step["changes"]:
            items = data[fake].setdefault(section, {})
            if fields is None:
                del items[item]
            else:
                items[item] = fields
        if step["number"] == number:
            break
    return without_empty(data)


def without_empty(data: dict[str, Any]) -> dict[str, Any]:
    return {
        fake: {section: items for section, items in sections.items() if items}
        for fake, sections in data.items()
    }


def real(cloud: Cloud) -> dict[str, Any]:
    modules = [(fake, data_module(fake.fixture)) for fake in cloud.fakes()]
    return without_empty(
        {fake.name: data.state(fake) for fake, data in modules if data is not None}
    )


def replayed(cloud: Cloud) -> dict[str, Any]:
    """Return the states of a cloud, after checking that they end with its data."""
    result = found(cloud)
    assert result["note"] == ""
    assert after(result) == real(cloud)
    return result


def changes(states: dict[str, Any]) -> list[tuple[float, list[str]]]:
    return [(step["number"], [change[2] for change in step["changes"]]) for step in states["steps"]]


def _kv(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    client = kv.client()
    client.set("a", "1", ex=60)
    client.lpush("list", "x", "y")
    client.hset("hash", "f", "v")
    client.set("b", "2", px=1500)
    client.delete("list")
    cloud.clock.advance("2s")
    client.incr("counter")
    client.get("a")


def _kv_faults(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    client = kv.client()
    kv.faults.call(lambda *_: client.set("wallet", "7"), command="SET", times=1)
    client.set("wallet", "6")
    kv.faults.lose_response(command="INCR", times=1)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{kv.url}/incr/n", headers=kv.headers)
    kv.faults.respond(503, command="INCR", times=1)
    httpx.get(f"{kv.url}/incr/n", headers=kv.headers)
    httpx.post(kv.url, json=["SET", "x", "1"], headers={"Authorization": "Bearer wrong"})
    httpx.post(f"{kv.url}/multi-exec", json=[["INCR", "n"], ["EXPIRE", "n", 5]], headers=kv.headers)


def _kv_port(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    with redis.Redis.from_url(kv.database_url) as client:
        client.set("a", "1")
        pipe = client.pipeline()
        pipe.incr("a")
        pipe.expire("a", 30)
        pipe.execute()


def _kv_times(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    client = kv.client()
    kv.load({"loaded": "1"})
    for number in range(40):
        kv.execute("SET", f"executed:{number}", "1", "EX", 60)
        client.set(f"key:{number}", "1", px=60_000 + number)
        client.pttl(f"key:{number}")
        client.execute(["XADD", "stream", "*", "n", str(number)])
    client.eval("return redis.call('SET', KEYS[1], redis.call('TIME')[2])", keys=["at"])
    pipe = client.pipeline()
    for number in range(40):
        pipe.set(f"piped:{number}", "1", ex=60)
    pipe.exec()


def _kv_connections(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    with (
        redis.Redis.from_url(kv.database_url, protocol=3) as client,
        redis.Redis.from_url(kv.database_url, protocol=2) as other,
        client.pubsub() as listener,
    ):
        client.hset("hash", mapping={"a": "1", "b": "2"})
        client.hgetall("hash")
        other.hgetall("hash")
        listener.subscribe("news")
        listener.get_message(timeout=5)
        other.publish("news", "x")
        client.rpush("list", "x")
        client.blpop("list", timeout=1)
        client.blpop("list", timeout=0.01)


def _kv_blocked(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    with (
        redis.Redis.from_url(kv.database_url) as taker,
        redis.Redis.from_url(kv.database_url) as giver,
    ):

        def give() -> None:
            wait_until(lambda: "blocked_clients:1" in kv.execute("INFO", "clients"))
            giver.rpush("jobs", "a", "b")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                cloud._timekeeper, "wait_cap", 30
            )  # for the other thread on a busy machine
            in_threads(lambda: taker.blmove("jobs", "taken", timeout=60), give)
        taker.blpop("nothing", timeout=0.01)
        taker.set("done", "1")


def _vector(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2, ready_after="1s")
    index.client().upsert([("a", [0.1, 0.2], {"n": 1}), ("b", [0.3, 0.4])])
    cloud.clock.advance("2s")
    index.client().upsert([("c", [0.1, 0.9])], namespace="other")
    index.client().delete(["b"])


def _broker(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 2})
    with broker.client() as client:
        client.post(
            "/produce/orders", json=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
        )
        consume = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": "false"}
        client.get("/consume/shop/w1/orders", headers=consume)
        client.get("/consume/shop/w2/orders?timeout=1", headers=consume)
        client.post("/commit/shop/w1", json={"topic": "orders", "partition": 0, "offset": 1})
        cloud.clock.advance("3m")
        client.get("/consume/shop/w1/orders", headers=consume)


def _queue(cloud: Cloud) -> None:
    kv, queue, capture = cloud.kv_server(), cloud.queue(), cloud.callback_capture()
    client = kv.client()
    queue.destinations.respond("https://shop.example.com/remind", 500, 200)
    queue.destinations.call("https://app.example.com/h", lambda _: 200 + 0 * client.incr("runs"))
    publish = f"{queue.url}/v2/publish/https://"
    headers = {**queue.headers, "Upstash-Callback": capture.callback_url, "Upstash-Retries": "2"}
    httpx.post(f"{publish}shop.example.com/remind", json={"order": 1}, headers=headers)
    httpx.post(f"{publish}app.example.com/h", headers={**queue.headers, "Upstash-Delay": "1m"})
    httpx.post(f"{publish}gone.example.com/", headers={**queue.headers, "Upstash-Retries": "0"})
    cron = {**queue.headers, "Upstash-Cron": "*/5 * * * *"}
    httpx.post(f"{queue.url}/v2/schedules/https://app.example.com/h", headers=cron)
    queue.destinations.respond("https://gone.example.com/", 500)
    # If a function raises an exception, the answer is a 500 with headers of its own.
    queue.destinations.call("https://app.example.com/broken", lambda request: {}["id"])
    httpx.post(
        f"{publish}app.example.com/broken", headers={**queue.headers, "Upstash-Retries": "1"}
    )
    queue.clock.advance("11m")


SETTINGS = [
    ("POST", "/v2/queues", {"queueName": "orders", "parallelism": 2}),
    ("POST", "/v2/queues/orders/pause", None),
    ("POST", "/v2/queues/orders/resume", None),
    ("DELETE", "/v2/queues/orders", None),
    ("POST", "/v2/topics/all/endpoints", {"endpoints": [{"url": "https://a.example.com/"}]}),
    ("DELETE", "/v2/topics/all/endpoints", {"endpoints": [{"url": "https://a.example.com/"}]}),
    ("POST", "/v2/flowControl/orders/pause", None),
    ("POST", "/v2/flowControl/orders/pin?parallelism=3", None),
    ("POST", "/v2/flowControl/orders/unpin?parallelism=true", None),
    ("POST", "/v2/flowControl/orders/resume", None),
]


def _settings(cloud: Cloud) -> None:
    queue = cloud.queue()
    for method, path, body in SETTINGS:
        answer = httpx.request(method, f"{queue.url}{path}", headers=queue.headers, json=body)
        assert answer.is_success, answer.text


def _actions(cloud: Cloud) -> None:
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    broker, queue = cloud.broker(), cloud.queue()
    kv.load({"wallet": "10", "cart": {"tea": "1"}})
    kv.client().get("wallet")
    kv.execute("EXPIRE", "wallet", "60")
    saved = kv.snapshot()
    kv.client().incr("wallet")
    kv.restore(saved)
    kv.rotate_token()
    index.load([{"id": "a", "vector": [1.0, 2.0]}])
    with index.holding():
        index.client().upsert([("b", [0.5, 0.5])])
    broker.create_topic("mails", partitions=2)
    broker.produce("mails", ["x", "y"])
    broker.join("g", "w", ["mails"])
    broker.commit("g", "mails", 0, 0)
    queue.destinations.respond("https://a.example.com/", 500, 200)
    deliver(queue, "https://a.example.com/", json={"n": 1})
    broker.topic("mails").add_partitions(2)
    broker.topic("mails").delete_records(before=1, partition=0)
    broker.create_topic("gone")
    broker.topic("gone").delete()
    broker.join("g", "v", ["mails"])
    broker.group("g").leave("v")
    broker.faults.crash("g", "w")
    broker.faults.redeliver("g", last=1)
    broker.group("g").expire("w")
    broker.faults.partial_produce(keep=1)
    httpx.post(f"{broker.url}/produce/mails", json=[{"value": "a"}] * 2, headers=broker.headers)


def _actions_on_messages(cloud: Cloud) -> None:
    queue = cloud.queue()
    message = queue.publish("https://a.example.com/", delay="5m")
    message.cancel()
    queue.destinations.respond("https://b.example.com/", 500)
    queue.publish("https://b.example.com/", retries=0)
    queue.publish("https://b.example.com/", retries=0)
    queue.deliver_due()
    queue.dead_letters().last.retry()
    queue.dead_letters().only().delete()
    nightly = queue.schedule("https://b.example.com/", "0 3 * * *", id="nightly")
    nightly.fire()
    nightly.delete()


def _port_faults(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    never = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    kv.faults.drop(command="INCRBY", times=1)
    with redis.Redis.from_url(kv.database_url, retry=never) as client:
        client.set("a", "1")
        with pytest.raises(redis.RedisError):
            client.incr("a")
        kv.faults.lose_response(command="INCRBY", times=1)
        with pytest.raises(redis.RedisError):
            client.incr("a")
        client.set("b", "1")


def _streams(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv.client().set("a", "1")
    with httpx.stream("GET", f"{kv.url}/subscribe/news", headers=kv.headers) as stream:
        next(stream.iter_lines())
        kv.client().publish("news", "x")
    kv.client().set("b", "1")


def _cluster(cloud: Cloud) -> None:
    """Each answer of a node is compared, so the replay has the same nodes at the same time."""
    kv = cloud.kv_server(dialect="redis", cluster=3)
    with redis.RedisCluster.from_url(kv.database_url) as client:
        client.set("b", "1")
        client.keys(target_nodes="primaries")
        kv.faults.moved("b")
        kv.faults.ask("c", times=2)
        kv.faults.failover(key="a")
        with kv.faults.cluster_down(key="f", times=1):
            client.set("f", "1")
        for key in ("a", "b", "c"):
            client.incr(key)
            client.incr(key)
        with kv.faults.ask("foo"):
            client.set("foo", "1")
        client.set("foo", "2")
        client.keys(target_nodes="primaries")


SCENES: dict[str, Callable[[Cloud], None]] = {
    "kv": _kv, "kv_faults": _kv_faults, "kv_port": _kv_port, "kv_times": _kv_times,
    "kv_connections": _kv_connections, "kv_blocked": _kv_blocked, "vector": _vector,
    "broker": _broker, "queue": _queue, "actions": _actions, "port_faults": _port_faults,
    "streams": _streams, "settings": _settings, "cluster": _cluster,
}  # fmt: skip


@pytest.mark.parametrize("clock", ["frozen", "running"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_a_replay_ends_with_the_data_of_the_fakes(
    cloud: Cloud, scene: Callable[[Cloud], None], clock: str
) -> None:
    if clock == "running":
        cloud.clock.resume()
        record_times(cloud)
    scene(cloud)
    assert len(replayed(cloud)["steps"]) >= 2


def test_actions_on_messages_dead_letters_and_schedules_are_replayed(cloud: Cloud) -> None:
    # With a frozen clock: the order of dead letters of one moment decides which of them is retried.
    _actions_on_messages(cloud)
    assert len(replayed(cloud)["steps"]) >= 2


@pytest.mark.parametrize("scene", [_kv, _kv_port], ids=["rest", "port"])
def test_each_reading_of_a_running_clock_is_replayed(
    cloud: Cloud, scene: Callable[[Cloud], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, ticks = time.time(), count()
    monkeypatch.setattr(time, "time", lambda: now + next(ticks) / 1000)
    cloud.clock.resume()
    record_times(cloud)
    scene(cloud)
    replayed(cloud)


def test_each_row_has_its_own_changes(cloud: Cloud) -> None:
    _kv(cloud)
    result = found(cloud)
    assert changes(result) == [
        (1, ["a"]), (2, ["list"]), (3, ["hash"]), (4, ["b"]), (5, ["list"]), (5.5, ["b"]),
        (6, ["counter"]),
    ]  # fmt: skip
    assert after(result, 1)["kv_server"]["keys"]["a"] == {
        "type": "string", "value": "1", "expires": "2026-03-01 12:01:00.000 UTC",
    }  # fmt: skip


def test_each_request_that_changes_a_setting_has_a_change(cloud: Cloud) -> None:
    _settings(cloud)
    changed = [step["number"] for step in replayed(cloud)["steps"]]
    calls = [call.number for call in cloud.journal.calls()]
    assert [number for number in calls if number not in changed] == []


def test_a_call_of_a_fault_before_a_command_comes_before_it(cloud: Cloud) -> None:
    _kv_faults(cloud)
    steps = found(cloud)["steps"]
    assert [step["changes"][0][3]["value"] for step in steps][:2] == ["7", "6"]


def test_what_cannot_be_repeated_is_not_shown(cloud: Cloud) -> None:
    kv, other = cloud.kv_server(), cloud.kv_server(name="other")
    other.client().set("a", "1")
    kv.client().set("a", "1")
    # Make a change that is not in the journal.
    kv._engine.execute(kv._new_session(), [b"SET", b"b", b"2"])
    result = found(cloud)
    assert result["note"] == (
        "The data of kv_server is not shown: replaying the journal did not reproduce its data."
    )
    assert list(result["initial"]) == ["other"]


def test_an_answer_that_differs_ends_the_replay(cloud: Cloud) -> None:
    client = cloud.kv_server().client()
    client.set("a", "1")
    call = cloud.journal.calls()[0]
    call.status = 400
    result = found(cloud)
    assert result["note"].endswith("call 1 received a different answer in the replay.")
    assert "initial" not in result


def test_a_reply_of_the_port_that_differs_ends_the_replay(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    with redis.Redis.from_url(kv.database_url) as client:
        client.set("a", "1")
    call = cloud.journal.calls()[-1]
    call.response_body = b"$1\r\n2\r\n"
    assert found(cloud)["note"].endswith(
        f"command {call.number} received a different answer in the replay."
    )


def test_a_random_reply_of_the_port_does_not_end_the_replay(cloud: Cloud) -> None:
    with redis.Redis.from_url(cloud.kv_server().database_url) as client:
        client.set("a", "1")
        client.acl_genpass()
    replayed(cloud)


PUBLISHES = {
    "a request": lambda rest, port: rest.publish("news", "tea"),
    "a pipeline": lambda rest, port: rest.pipeline().publish("news", "tea").set("b", "1").exec(),
    "a script over REST": lambda rest, port: rest.eval(
        "return redis.call('publish', 'news', 'tea')"
    ),
    "a command": lambda rest, port: port.publish("news", "tea"),
    "a transaction": lambda rest, port: (
        port.pipeline().set("b", 1).publish("news", "tea").execute()
    ),
    "a script": lambda rest, port: port.eval("return redis.call('publish', 'news', 'tea')", 0),
    "a count": lambda rest, port: port.pubsub_numsub("news"),
}


@pytest.mark.parametrize("publish", PUBLISHES.values(), ids=PUBLISHES)
def test_an_answer_about_subscribers_does_not_end_the_replay(
    cloud: Cloud, publish: Callable[[Any, Any], object]
) -> None:
    kv = cloud.kv_server()
    with redis.Redis.from_url(kv.database_url) as port:
        subscriber = port.pubsub()
        subscriber.subscribe("news")
        assert subscriber.get_message(timeout=9)
        cloud.journal.clear()  # The replay begins with the data, and without the subscriber.
        with kv.client() as rest:
            publish(rest, port)
            rest.set("a", "1")
        subscriber.close()
    replayed(cloud)


def test_a_wait_that_ends_differently_ends_only_the_replay_of_its_fake(cloud: Cloud) -> None:
    first, second = cloud.kv_server(), cloud.kv_server(name="second")
    with redis.Redis.from_url(first.database_url) as client:
        client.blpop("nothing", timeout=0.01)
    call = cloud.journal.calls()[-1]
    call.response_body = b"$1\r\n2\r\n"
    cloud.clock.advance("1s")
    second.client().set("a", "1")
    result = found(cloud)
    assert result["note"] == (
        f"The data of {first.name} is not shown: command {call.number} received a different answer "
        "in the replay."
    )
    assert list(result["initial"]) == ["second"]


def test_attempts_that_the_replay_does_not_know_end_it(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.respond("https://a.example.com/", 200)
    deliver(queue, "https://a.example.com/")
    [attempt] = cloud.journal.events("attempt")
    attempt.data = {**attempt.data, "message_id": "msg_unknown"}
    text = f"the delivery of row {attempt.number} cannot be repeated as it happened"
    assert text in found(cloud)["note"]


@pytest.mark.parametrize("limit", ["MOST_ITEMS", "MOST_LOOKS"])
def test_a_fake_with_too_many_items_is_not_replayed(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(journal, limit, 3)
    cloud.kv_server().client().mset({f"key:{number}": "1" for number in range(4)})
    assert found(cloud)["note"] == ("The data of kv_server is not shown: it has too many items.")


def test_a_cut_journal_is_not_replayed(cloud: Cloud) -> None:
    cloud.journal.keep_bytes = 10_000
    client = cloud.kv_server().client()
    for name in "abcd":
        client.set(name, "x" * 8000)
    result = found(cloud)
    assert "the journal has cut its requests" in result["note"]


def test_a_fake_with_a_real_server_is_not_replayed(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv._given_settings = {"engine": "redis://127.0.0.1:1"}
    assert "it uses a real server" in found(cloud)["note"]


def test_long_values_are_cut_with_their_length(cloud: Cloud) -> None:
    redis = cloud.kv_server().client()
    redis.set("a", "x" * 3000)
    redis.setrange("a", 2500, "y")
    values = [step["changes"][0][3]["value"] for step in found(cloud)["steps"]]
    assert [value.partition(", checksum")[0][-20:] for value in values] == [
        "x… (3,000 characters"
    ] * 2
    # A change of what is cut is a change of the shortened value as well.
    assert values[0] != values[1]


def test_data_that_was_there_before_the_test_is_the_start(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv.client().set("kept", "1")
    kv.set_baseline()
    kv.reset()
    kv.client().incr("kept")
    assert replayed(cloud)["initial"]["kv_server"]["keys"]["kept"]["value"] == "1"


def test_a_delivery_is_one_change_of_its_message(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.respond("https://a.example.com/", 500)
    deliver(queue, "https://a.example.com/", retries=0)
    report = report_of(cloud, test="t")
    attempt = next(row.number for row in report.rows if row.kind == "delivery")
    steps = [step for step in states(cloud, report)["steps"] if step["number"] == attempt]
    shown = [change[3].get("state") for step in steps for change in step["changes"]]
    assert shown == ["in_flight", "dead_lettered", None]
    # The delivery starts before the number of its row, which is the number of its end.
    assert steps[0]["order"] < attempt
    assert "order" not in steps[1]


def test_a_replay_leaves_the_fakes_as_they_are(cloud: Cloud) -> None:
    _queue(cloud)
    before, entries, fakes = real(cloud), len(cloud.journal.entries), list(cloud.fakes())
    found(cloud)
    assert (real(cloud), len(cloud.journal.entries), list(cloud.fakes())) == (
        before, entries, fakes,
    )  # fmt: skip
    assert not cloud.violations().where(kind="bug")


def test_a_replay_that_raises_becomes_a_note(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("it broke")

    cloud.kv_server().client().set("a", "1")
    monkeypatch.setattr(journal, "_replayed", broken)
    note = found(cloud)["note"]
    assert note.startswith("the states could not be replayed: RuntimeError: it broke")


def test_changes_of_a_group_belong_to_the_rows_of_its_events(cloud: Cloud) -> None:
    broker = cloud.broker()
    broker.create_topic("images", partitions=1)
    broker.produce("images", "cat")
    with broker.client() as client:
        headers = {"Kafka-Auto-Offset-Reset": "earliest"}
        client.get("/consume/g/one/images", headers=headers).raise_for_status()
        cloud.clock.advance("10s")
        broker.faults.crash("g", "one")
        cloud.clock.advance("5m")
    report = report_of(cloud)
    kinds = {row.number: row.operation for row in report.rows}
    steps = [
        (kinds[step["number"]], fields["owner"], fields["committed"], fields["position"])
        for step in states(cloud, report)["steps"]
        for _, section, _, fields in step["changes"]
        if section == "group g"
    ]
    assert steps == [
        ("consume", None, None, 1), ("rebalance", "one", None, 1), ("auto commit", "one", 1, 1),
        ("faults.crash", "one", 1, None), ("rebalance", None, 1, None),
    ]  # fmt: skip
