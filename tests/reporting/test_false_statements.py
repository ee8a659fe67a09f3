"""Statements that a report makes only if they are true of the test."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import did_you_mean
from pytest_fakecloud.core.threads import place_of
from pytest_fakecloud.explore.simulation import stacks
from pytest_fakecloud.explore.simulation.stacks import describe_places, describe_stuck
from pytest_fakecloud.hints.missing_requests import hints_about_error
from pytest_fakecloud.hints.mistakes import mistakes
from pytest_fakecloud.process import call_sites
from pytest_fakecloud.process.call_sites import note_site
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.reporting.readable import readable
from pytest_fakecloud.reporting.render.text import section

from .test_bodies import b64


@pytest.mark.parametrize(
    ("first", "second", "is_folded"),
    [
        (["SET", "a", "1"], ["SET", "a", "1"], True),
        (["SET", "a", "1"], ["SET", "a", "2"], False),
        (["HSET", "h", "f", "1"], ["HDEL", "h", "f"], False),
        (["ZADD", "z", "1", "m"], ["ZREM", "z", "m"], False),
    ],
)
def test_transactions_are_folded_only_if_their_commands_are_equal(
    cloud: Cloud, first: list[str], second: list[str], is_folded: bool
) -> None:
    url = cloud.kv_server().database_url
    with redis.Redis.from_url(url, single_connection_client=True) as client:
        for command in (first, first, second):
            with client.pipeline() as pipe:
                pipe.execute_command(*command)
                pipe.execute()
    assert section(cloud).count("EXEC of 1") == (1 if is_folded else 3)


@pytest.mark.parametrize("body", ["text", '{"a": 1}', "[1]", ""])
def test_fields_that_were_sent_in_base64_are_marked(body: str) -> None:
    sent = json.dumps({"sourceMessageId": "m", "sourceBody": b64(body)})
    assert '"sourceBody":{"Base64":' in readable(sent)


def test_the_process_time_of_a_cloud_is_no_other_clock() -> None:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z", process_time=True) as cloud:
        cloud.kv_server()
        assert mistakes(cloud, AssertionError()) == []


@pytest.mark.parametrize("scheme", ["http", "https", "redis"])
def test_the_url_of_the_redis_protocol_is_not_of_a_closed_fake(cloud: Cloud, scheme: str) -> None:
    server = cloud.kv_server()
    port = server.database_url.rpartition(":")[2].partition("/")[0]
    (hint,) = hints_about_error(cloud, OSError(f"{scheme}://127.0.0.1:{port}"))
    assert hint.endswith("speaks the Redis protocol: give the client kv_server.url")


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("STE", ["SET", "SETEX", "SETNX"], "SET"),
        ("GTE", ["GET", "GETEX"], "GET"),
        ("HGTE", ["HGET", "HGETALL"], "HGET"),
        ("SETE", ["SET", "SETEX"], "SETEX"),
    ],
)
def test_exchanged_letters_are_the_likely_mistake(name: str, names: list[str], meant: str) -> None:
    assert did_you_mean(name, names) == f"; did you mean {meant!r}?"


def test_a_missing_name_of_the_queue_has_its_replacement(cloud: Cloud) -> None:
    with pytest.raises(AttributeError) as caught:
        cloud.queue().deliveries()  # type: ignore[attr-defined]
    (hint,) = mistakes(cloud, caught.value)
    assert "attempts()" in hint


def raises(*args: object) -> None:
    raise AttributeError("'function' object has no attribute 'f_code'")


def test_a_search_for_the_line_of_a_call_never_fails_the_call(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cloud.kv_server()
    cloud.journal._recorder.shared.note_caller = partial(note_site, stacks=Stacks())
    monkeypatch.setattr(call_sites, "_call_site", raises)
    for _ in range(2):
        answer = httpx.post(server.url, json=["PING"], headers=server.headers)
        assert answer.json() == {"result": "PONG"}
    assert cloud.violations() == []
    assert section(cloud).count("the line of a call could not be found") == 1


class Proxy:
    """An awaitable that has every attribute, as mocks and proxies do."""

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return None

    def __getattr__(self, name: str) -> Any:
        if name in ("cr_frame", "ag_frame"):
            return raises
        if name in ("cr_await", "ag_await"):
            return None
        raise AttributeError(name)


def test_a_task_that_awaits_a_proxy_has_no_line_of_the_proxy(cloud: Cloud) -> None:
    server = cloud.kv_server()
    shared = cloud.journal._recorder.shared
    shared.note_caller = partial(note_site, stacks=Stacks())

    async def waits() -> None:
        await Proxy()

    async def application() -> None:
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        async with httpx.AsyncClient(headers=server.headers) as client:
            await client.post(server.url, json=["PING"])
        task.cancel()

    asyncio.run(application())
    assert shared.failures == []


@pytest.mark.parametrize("newest_is_meant", [True, False])
def test_what_is_meant_is_listed_before_others_in_the_right_state(
    cloud: Cloud, newest_is_meant: bool
) -> None:
    queue, wanted = cloud.queue(), "https://app.test/wanted"
    queue.destinations.respond("https://app.test/other", 200)
    queue.destinations.respond(wanted, 500)
    urls = [wanted, *["https://app.test/other"] * 13]
    for url in reversed(urls) if newest_is_meant else urls:
        queue.publish(url, retries=1)
        queue.deliver_due()
    with pytest.raises(AssertionError) as caught:
        queue.assert_delivered(wanted, method="POST")
    first = str(caught.value).splitlines()[1]
    assert first.startswith("  not ")
    assert wanted in first
    assert first.endswith("state is 'pending', not 'delivered'")


def test_what_a_call_is_about_is_listed_before_others_with_the_right_status(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv.faults.respond(503, key="order:7")
    client = kv.client()
    for n in range(13):
        client.get(f"user:{n}")
    with pytest.raises(Exception, match="Service Unavailable"):
        client.get("order:7")
    with pytest.raises(AssertionError) as caught:
        kv.assert_called("GET", key="order:7", status=200)
    assert str(caught.value).splitlines()[1].endswith("status is 503, not 200")


@pytest.mark.parametrize("field", ["url", "source_message_id"])
def test_the_messages_of_a_missing_callback_include_the_wanted_one(
    cloud: Cloud, field: str
) -> None:
    queue, capture = cloud.queue(), cloud.callback_capture()
    wanted = queue.publish("https://a.test/paid")
    for number in range(13):
        queue.destinations.respond(f"https://a.test/{number}", 200)
        queue.publish(f"https://a.test/{number}", callback=capture.callback_url)
    asked: Any = {field: wanted.url if field == "url" else wanted.id}
    with pytest.raises(AssertionError) as caught:
        capture.assert_callback(**asked)
    assert f"{wanted.id} POST https://a.test/paid" in str(caught.value)


def test_a_walk_over_a_stack_that_raises_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = SimpleNamespace(ident=threading.get_ident())
    strands: Any = [SimpleNamespace(name="worker", state="waiting", thread=thread)]
    with monkeypatch.context() as patch:
        patch.setattr(stacks, "_describe_wait", raises)
        said = describe_stuck(strands)
    assert said.startswith("stuck: the places of worker (test_false_statements.py:")
    assert "are unknown: " in said
    monkeypatch.setattr("sys._current_frames", raises)
    assert describe_places(strands).startswith("worker (its line could not be found: Attribute")
    assert place_of(thread).startswith("the place of a thread could not be found: Attribute")
