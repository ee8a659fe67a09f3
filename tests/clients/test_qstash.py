# mypy: disable-error-code="import-untyped"
"""Test the complete official Python client of the queue, sync and async.

Every scenario runs with both clients. A last test fails for each method and parameter that no
scenario uses and that is not excused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import flask
import pytest
from qstash import AsyncQStash, QStash, Receiver
from qstash.chat import openai
from qstash.errors import (
    DailyMessageLimitExceededError,
    QStashError,
    RateLimitExceededError,
    SignatureError,
)

from pytest_fakecloud import Cloud
from tests.clients.surface import Api, Kept, Used, check_complete, surface

APP = "https://app.example.com"
NOW = "2026-03-02T10:00:00Z"

EXCUSED = {
    "http.request": "the transport under every other method",
    "http.stream": "only chat streams, and chat is a language model, not the queue",
    "chat.create": "a language model behind the queue's address, not the queue",
    "chat.prompt": "a language model behind the queue's address, not the queue",
}


def groups_of(client: Any) -> dict[type, str]:
    """Return the classes of the client's parts with their names."""
    return {
        type(part): name
        for name, part in vars(client).items()
        if type(part).__module__.startswith("qstash")
    }


@dataclass
class Handler:
    """A webhook application that verifies and stores each delivery."""

    receiver: Receiver
    seen: list[flask.Request] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def app(self) -> flask.Flask:
        app = flask.Flask("handler")
        app.testing = True

        @app.route("/<path:path>", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
        def handle(path: str) -> Any:
            request = flask.request
            self.receiver.verify(
                signature=request.headers["Upstash-Signature"],
                body=request.get_data(as_text=True),
                url=request.url,
            )
            request.get_data()
            self.seen.append(flask.request._get_current_object())  # type: ignore[attr-defined]
            status = self.statuses.pop(0) if self.statuses else 200
            return {"answered": status}, status

        return app

    def on(self, path: str) -> list[flask.Request]:
        return [request for request in self.seen if request.path == path]


@dataclass
class World:
    """A queue, a handler and a client."""

    cloud: Cloud
    queue: Any
    handler: Handler
    api: Api


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with make_world(request.param, Used()) as made:
        yield made


@contextmanager
def make_world(kind: str, used: Used, **settings: Any) -> Iterator[World]:
    loop = asyncio.new_event_loop()
    with Cloud(now=NOW, seed=1, delivery="driven") as cloud, closing(loop):
        queue: Any = cloud.queue(**settings)
        handler = Handler(Receiver(queue.current_signing_key, queue.next_signing_key))
        queue.destinations.wsgi(APP, handler.app(), raise_exceptions=True)
        flavour: Any = QStash if kind == "sync" else AsyncQStash
        client = flavour(queue.token, base_url=queue.url, retry=False)
        try:
            api = Api(client, {flavour: "client", **groups_of(client)}, used, loop)
            yield World(cloud, queue, handler, api)
        finally:
            if kind == "async":
                loop.run_until_complete(client.http._client.aclose())
            else:
                client.http._client.close()


# -- scenarios -------------------------------------------------------------------------------------

EVERY_SETTING: dict[str, Any] = {
    "method": "PUT",
    "headers": {"X-Own": "1"},
    "callback": APP + "/callback",
    "callback_headers": {"Forward-X-Cb": "2", "Method": "PATCH"},
    "failure_callback": APP + "/failure",
    "failure_callback_headers": {"Forward-X-Fail": "3"},
    "retries": 1,
    "retry_delay": "1000 * (1 + retried)",
    "timeout": "30s",
    "label": "lab",
    "redact": {"body": True, "header": ["X-Own"]},
}


def check_every_setting(world: World, path: str, body: bytes, content_type: str) -> None:
    """Check that each setting of a message has its effect; the message fails twice and becomes a
    dead letter.
    """
    world.handler.statuses += [500, 200, 500, 200, 200]
    attempts = world.queue.run_until_idle()
    tries = world.handler.on(path)
    assert [request.method for request in tries] == ["PUT", "PUT"]
    assert {request.headers["X-Own"] for request in tries} == {"1"}
    assert {request.get_data() for request in tries} == {body}
    assert {request.headers["Content-Type"] for request in tries} == {content_type}
    assert [request.headers["Upstash-Retried"] for request in tries] == ["0", "1"]
    own = [attempt for attempt in attempts if attempt.url.partition("?")[0] == APP + path]
    assert own[1].waited.total_seconds() == 1
    callbacks = world.handler.on("/callback")
    assert [request.headers["X-Cb"] for request in callbacks] == ["2", "2"]
    assert {request.method for request in callbacks} == {"PATCH"}
    (failure,) = world.handler.on("/failure")
    assert failure.headers["X-Fail"] == "3"
    assert failure.get_json()["maxRetries"] == 1
    (letter,) = world.queue.dead_letters()
    assert world.api.dlq.get(letter.id).label == "lab"


def publish(world: World) -> None:
    result = world.api.message.publish(
        url=APP + "/job?x=1",
        body=b"\x00raw",
        content_type="application/x-raw",
        delay="10s",
        flow_control={"key": "flow", "parallelism": 2, "rate": 10, "period": "1m"},
        **EVERY_SETTING,
    )
    message = world.api.message.get(result.message_id)
    assert (message.url, message.method, message.max_retries) == (APP + "/job?x=1", "PUT", 1)
    assert message.not_before - message.created_at == 10_000
    assert message.headers["X-Own"][0].startswith("REDACTED:")
    assert message.body.startswith("REDACTED:")
    assert (message.callback, message.failure_callback) == (APP + "/callback", APP + "/failure")
    assert message.retry_delay_expression == "1000 * (1 + retried)"
    assert (message.flow_control.key, message.flow_control.period) == ("flow", 60)
    check_every_setting(world, "/job", b"\x00raw", "application/x-raw")


def publish_json(world: World) -> None:
    result = world.api.message.publish_json(
        url=APP + "/job", body={"a": [1, "ä"]}, delay=5,
        flow_control={"key": "flow", "parallelism": 1}, **EVERY_SETTING,
    )  # fmt: skip
    assert not result.deduplicated
    check_every_setting(world, "/job", json.dumps({"a": [1, "ä"]}).encode(), "application/json")


def publish_not_before(world: World) -> None:
    at = world.cloud.clock.now_ms() // 1000 + 3600
    for name in ("publish", "publish_json"):
        result = getattr(world.api.message, name)(url=APP + f"/{name}", not_before=at, body="x")
        assert world.api.message.get(result.message_id).not_before == at * 1000
    world.queue.clock.advance("59m")
    assert world.queue.attempts() == []
    world.queue.clock.advance("1m")
    assert len(world.queue.attempts()) == 2


def deduplication(world: World) -> None:
    message = world.api.message
    for name in ("publish", "publish_json", "enqueue", "enqueue_json"):
        target = {"queue": "fifo"} if name.startswith("enqueue") else {}
        send = getattr(message, name)
        first = send(url=APP + "/one", body="a", deduplication_id=f"id-{name}", **target)
        again = send(url=APP + "/two", body="b", deduplication_id=f"id-{name}", **target)
        assert (again.message_id, again.deduplicated) == (first.message_id, True)
        content = {"body": f"c{name}", "content_based_deduplication": True, **target}
        first = send(url=APP + "/one", **content)
        assert send(url=APP + "/one", **content).deduplicated
        assert not send(url=APP + "/other", **content).deduplicated
    with pytest.raises(QStashError, match="DeduplicationId cannot contain ':'"):
        message.publish(url=APP + "/one", deduplication_id="a:b")


def url_groups(world: World) -> None:
    group = world.api.url_group
    group.delete("group")
    group.upsert_endpoints("group", [{"url": APP + "/a", "name": "first"}, {"url": APP + "/b"}])
    url_group = group.get("group")
    assert [(endpoint.url, endpoint.name) for endpoint in url_group.endpoints] == [
        (APP + "/a", "first"),
        (APP + "/b", None),
    ]
    assert [item.name for item in group.list()] == ["group"]
    for name in ("publish", "publish_json", "enqueue", "enqueue_json"):
        target = {"queue": "fifo"} if name.startswith("enqueue") else {}
        results = getattr(world.api.message, name)(url_group="group", body="x", **target)
        assert sorted(result.url for result in results) == [APP + "/a", APP + "/b"]
    world.queue.run_until_idle()
    assert len(world.handler.on("/a")) == len(world.handler.on("/b")) == 4
    assert {request.headers["Upstash-Topic-Name"] for request in world.handler.seen} == {"group"}
    group.remove_endpoints("group", [{"name": "first"}])
    assert [endpoint.url for endpoint in group.get("group").endpoints] == [APP + "/b"]
    group.delete("group")
    with pytest.raises(QStashError, match="404"):
        group.get("group")


def batches(world: World) -> None:
    results = world.api.message.batch(
        [
            {"url": APP + "/raw", "body": "x", "content_type": "text/x", "headers": {"X-A": "1"}},
            {"url": APP + "/fifo", "queue": "fifo", "method": "GET"},
        ]
    )
    assert len({result.message_id for result in results}) == 2
    json_results = world.api.message.batch_json([{"url": APP + "/json", "body": {"a": 1}}])
    assert len(json_results) == 1
    world.queue.run_until_idle()
    (raw,), (fifo,), (as_json,) = (world.handler.on(path) for path in ("/raw", "/fifo", "/json"))
    assert (raw.headers["X-A"], raw.headers["Content-Type"]) == ("1", "text/x")
    assert fifo.method == "GET"
    assert as_json.get_json() == {"a": 1}
    assert world.api.queue.get("fifo").lag == 0


def enqueue(world: World) -> None:
    for name, body, content_type in (
        ("enqueue", b"raw", "application/x-raw"),
        ("enqueue_json", {"a": 1}, "application/json"),
    ):
        kind = {"content_type": content_type} if name == "enqueue" else {}
        getattr(world.api.message, name)(
            queue="fifo", url=APP + f"/{name}", body=body, **kind, **EVERY_SETTING
        )
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        check_every_setting(world, f"/{name}", sent, content_type)
        world.handler.seen.clear()
        world.api.dlq.delete(world.queue.dead_letters().only().id)


def language_models(world: World) -> None:
    world.queue.destinations.respond("https://api.openai.com", (200, {"choices": []}))
    api = {"name": "llm", "provider": openai("key")}
    for name in ("publish", "publish_json", "enqueue", "enqueue_json"):
        target = {"queue": "fifo"} if name.startswith("enqueue") else {}
        getattr(world.api.message, name)(api=api, body="{}", callback=APP + "/callback", **target)
    world.queue.run_until_idle()
    (route,) = world.queue.destinations.routes().where(prefix="https://api.openai.com")
    assert {delivery.url for delivery in route.deliveries} == {
        "https://api.openai.com/v1/chat/completions"
    }
    assert {delivery.headers.get("Authorization") for delivery in route.deliveries} == {
        "Bearer key"
    }
    assert len(world.handler.on("/callback")) == 4


def cancelling(world: World) -> None:
    message = world.api.message
    ids = [message.publish(url=APP + "/never", delay="1h").message_id for _ in range(5)]
    message.cancel(ids[0])
    with pytest.raises(QStashError, match="404"):
        message.cancel(ids[0])
    assert message.cancel_many(ids[:3]) == 2
    assert message.cancel_all() == 2
    assert message.cancel_all() == 0
    world.queue.run_until_idle()
    assert world.handler.seen == []


def queues(world: World) -> None:
    api = world.api.queue
    api.upsert("fifo", parallelism=2, paused=True)
    fifo = api.get("fifo")
    assert (fifo.name, fifo.parallelism, fifo.paused, fifo.lag) == ("fifo", 2, True, 0)
    world.api.message.enqueue(queue="fifo", url=APP + "/x")
    assert api.get("fifo").lag == 1
    world.queue.run_until_idle()
    assert world.handler.seen == []
    api.resume("fifo")
    world.queue.run_until_idle()
    assert len(world.handler.seen) == 1
    api.pause("fifo")
    assert [item.paused for item in api.list()] == [True]
    api.delete("fifo")
    api.delete("fifo")
    assert api.list() == []


def schedules(world: World) -> None:
    api = world.api.schedule
    settings = {**EVERY_SETTING, "delay": "10s", "queue": "fifo"}
    flow = {"key": "flow", "rate": 3, "period": 60}
    schedule_id = api.create(
        destination=APP + "/job", cron="*/5 * * * *", body=b"tick", content_type="text/x",
        schedule_id="mine", flow_control=flow, **settings,
    )  # fmt: skip
    assert schedule_id == "mine"
    schedule = api.get("mine")
    assert (schedule.cron, schedule.destination, schedule.method) == (
        "*/5 * * * *",
        APP + "/job",
        "PUT",
    )
    assert (schedule.queue, schedule.delay, schedule.retries, schedule.label) == (
        "fifo",
        10,
        1,
        "lab",
    )
    assert schedule.next_schedule_time == world.cloud.clock.now_ms() + 300_000
    world.queue.clock.advance("5m10s")
    assert [request.get_data() for request in world.handler.on("/job")] == [b"tick"]
    assert {request.headers["Upstash-Schedule-Id"] for request in world.handler.on("/job")} == {
        "mine"
    }
    api.pause("mine")
    assert api.get("mine").paused
    world.queue.clock.advance("1h")
    assert len(world.handler.on("/job")) == 1
    api.resume("mine")
    other = api.create_json(
        destination=APP + "/json", cron="CRON_TZ=Europe/Berlin 0 12 * * *", body={"a": 1},
        schedule_id="other", flow_control=flow, **{**settings, "method": "POST"},
    )  # fmt: skip
    assert {item.schedule_id for item in api.list()} == {"mine", other}
    api.delete("mine")
    assert [item.schedule_id for item in api.list()] == ["other"]
    with pytest.raises(QStashError, match="404"):
        api.get("mine")


def signing_keys(world: World) -> None:
    keys = world.api.signing_key.get()
    assert (keys.current, keys.next) == (
        world.queue.current_signing_key,
        world.queue.next_signing_key,
    )
    rotated = world.api.signing_key.rotate()
    assert rotated.current == keys.next
    # The handler still has the old keys, of which the next one has become the current one.
    world.api.message.publish(url=APP + "/x")
    world.queue.run_until_idle()
    assert len(world.handler.seen) == 1


def logs(world: World) -> None:
    from qstash.log import LogState

    world.handler.statuses += [500]
    result = world.api.message.publish(url=APP + "/x", retries=1, retry_delay="0", label="lab")
    world.queue.run_until_idle()
    states = [row.state for row in world.api.log.list().logs]
    assert states[0] is LogState.DELIVERED
    assert states[-1] is LogState.CREATED
    assert {LogState.ERROR, LogState.RETRY, LogState.ACTIVE} <= set(states)
    page = world.api.log.list(count=2)
    assert len(page.logs) == 2
    rest = world.api.log.list(cursor=page.cursor)
    assert len(page.logs) + len(rest.logs) == len(states)
    delivered = world.api.log.list(
        filter={"message_id": result.message_id, "state": LogState.DELIVERED, "label": "lab"}
    )
    assert len(delivered.logs) == 1
    assert world.api.log.list(filter={"message_ids": ["msg_none"]}).logs == []


def dead_letters(world: World) -> None:
    world.handler.statuses += [500] * 3
    for number in range(3):
        world.api.message.publish(url=APP + f"/x{number}", retries=0, body="text", label="lab")
        world.queue.run_until_idle()
    page = world.api.dlq.list(count=2)
    assert len(page.messages) == 2
    rest = world.api.dlq.list(cursor=page.cursor)
    assert len(rest.messages) == 1
    assert rest.cursor is None
    letter = world.api.dlq.list(filter={"url": APP + "/x1", "response_status": 500}).messages[0]
    assert (letter.response_status, letter.body, letter.label) == (500, "text", "lab")
    assert json.loads(letter.response_body) == {"answered": 500}
    assert world.api.dlq.get(letter.dlq_id).message_id == letter.message_id
    world.api.dlq.delete(letter.dlq_id)
    with pytest.raises(QStashError, match="404"):
        world.api.dlq.delete(letter.dlq_id)
    left = [message.dlq_id for message in world.api.dlq.list().messages]
    assert world.api.dlq.delete_many(left) == 2


def flow_control(world: World) -> None:
    api = world.api.flow_control
    world.api.message.publish(
        url=APP + "/x", flow_control={"key": "key", "parallelism": 3, "rate": 2, "period": "10s"}
    )
    info = api.get("key")
    assert (info.key, info.parallelism_max, info.rate_max) == ("key", 3, 2)
    api.pause("key")
    assert api.get("key").is_paused
    world.queue.run_until_idle()
    assert world.handler.seen == []
    api.resume("key")
    world.queue.run_until_idle()
    assert len(world.handler.seen) == 1
    api.pin("key", {"parallelism": 7, "rate": 8, "period": 9})
    pinned = api.get("key")
    assert (pinned.parallelism_max, pinned.rate_max, pinned.rate_period) == (7, 8, 9)
    assert pinned.is_pinned_parallelism
    api.unpin("key", {"parallelism": True, "rate": True})
    assert not api.get("key").is_pinned_rate
    api.reset_rate("key")
    assert api.get("key").rate_count == 0
    assert api.get_global_parallelism().parallelism_count == 0


SCENARIOS = [
    publish, publish_json, publish_not_before, deduplication, url_groups, batches, enqueue,
    language_models, cancelling, queues, schedules, signing_keys, logs, dead_letters, flow_control,
]  # fmt: skip


def run(scenario: Callable[[World], None], kind: str, used: Used) -> None:
    with make_world(kind, used) as made:
        scenario(made)
        assert made.cloud.violations() == []


CALLED = Kept(run)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[World], None], kind: str) -> None:
    CALLED.run(scenario, kind)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_no_method_and_no_parameter_is_left_out(kind: str) -> None:
    used = CALLED.calls(SCENARIOS, kind)
    with make_world(kind, Used()) as unused:
        groups = groups_of(unused.api._target)
    wanted = set[str]().union(*(surface(cls, group) for cls, group in groups.items()))
    left = wanted - used
    check_complete(__file__, {name for name in left if name.partition("(")[0] not in EXCUSED})


# -- the receiver and the errors -------------------------------------------------------------------


@pytest.fixture
def delivered() -> Iterator[tuple[Any, flask.Request]]:
    with make_world("sync", Used()) as world:
        world.api.message.publish(url=APP + "/x?y=1", body="text")
        world.queue.run_until_idle()
        yield world.queue, world.handler.seen[0]


def test_the_receiver_accepts_what_the_queue_sends(delivered: tuple[Any, flask.Request]) -> None:
    queue, request = delivered
    signature = request.headers["Upstash-Signature"]
    receiver = Receiver(
        current_signing_key=queue.current_signing_key, next_signing_key=queue.next_signing_key
    )
    receiver.verify(signature=signature, body="text")
    receiver.verify(signature=signature, body="text", url=APP + "/x?y=1", clock_tolerance=5)
    wrong: list[dict[str, Any]] = [
        {"body": "other"},
        {"url": APP + "/other"},
        {"signature": "x.y.z"},
    ]
    for changes in wrong:
        with pytest.raises(SignatureError):
            receiver.verify(**{"signature": signature, "body": "text", **changes})
    queue.rotate_keys()
    rotated = Receiver(queue.current_signing_key, queue.next_signing_key)
    with pytest.raises(SignatureError):
        rotated.verify(signature=signature, body="text")


def test_errors_have_the_types_the_client_knows() -> None:
    with make_world("sync", Used()) as world:
        with pytest.raises(QStashError, match="invalid scheme"):
            world.api.message.publish(url="ftp://x")
        world.queue.faults.rate_limit(0)
        with pytest.raises(DailyMessageLimitExceededError):
            world.api.message.publish(url=APP + "/x")
        world.queue.faults.clear()
        world.queue.faults.respond(429, {"error": "burst"})
        with pytest.raises(RateLimitExceededError):
            world.api.message.publish(url=APP + "/x")
        world.queue.rotate_token()
        world.queue.faults.clear()
        with pytest.raises(QStashError, match="unable to authenticate: invalid token"):
            world.api.message.publish(url=APP + "/x")


def test_the_ready_made_clients_work() -> None:
    with make_world("sync", Used()) as world:
        client = world.queue.client()
        assert client.queue.list() == []
        client.http._client.close()

        async def listed() -> Any:
            client = world.queue.aio.client()
            all_queues = await client.queue.list()
            await client.http._client.aclose()
            return all_queues

        assert asyncio.run(listed()) == []


def test_the_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_world("sync", Used()) as world:
        for name, value in world.queue.env.items():
            monkeypatch.setenv(name, value)
        client = QStash(world.queue.token)
        assert client.queue.list() == []
        client.http._client.close()
