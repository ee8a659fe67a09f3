"""`/call` calls the methods of a fixture with plain JSON, and nothing that is not on its list."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fakecloud import Cloud
from pytest_fakecloud.services import SERVICES
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.control.handles import _IN_PROCESS, plain

from ..budget import cases
from .conftest import ask, message


@pytest.fixture(scope="module")
def app() -> Iterator[ControlApp]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        for fixture in SERVICES:
            cloud._start(fixture, {"dimension": 2} if fixture == "vector_index" else {})
        yield ControlApp(cloud, "token")


def call(app: ControlApp, fake: str | None, name: str, *args: Any, **kwargs: Any) -> Any:
    status, found = ask(
        app, "POST", "/call", {"object": fake, "name": name, "args": args, "kwargs": kwargs}
    )
    assert status == 200, found
    return found


def test_methods_properties_and_views_are_plain_json(app: ControlApp) -> None:
    message = call(app, "queue", "publish", "https://a.test/x", json={"n": 1}, delay="1h")["value"]
    assert message["state"] == "pending"
    assert message["due"] == "2026-01-01T01:00:00+00:00"
    assert json.loads(message["body"]) == {"n": 1}
    assert [one["id"] for one in call(app, "queue", "messages")["value"]] == [message["id"]]
    assert call(app, "kv_server", "execute", "SET", "k", "v")["value"] == "OK"
    assert call(app, "kv_server", "value", "k")["value"] == "v"
    assert call(app, "broker", "create_topic", "orders")["value"]["name"] == "orders"
    assert call(app, "broker", "produce", "orders", {"a": 1})["value"]["offset"] == 0
    assert call(app, "broker", "records", "orders")["value"][0]["value"] == '{"a": 1}'
    assert call(app, "kv_server", "url")["value"].startswith("http://127.0.0.1:")
    assert call(app, "queue", "clock.now")["value"] == "2026-01-01T00:00:00+00:00"
    assert call(app, None, "clock.now")["value"] == "2026-01-01T00:00:00+00:00"


def test_an_error_of_the_method_is_returned_with_its_class(app: ControlApp) -> None:
    found = call(app, None, "journal.assert_called", "SET", times=3)["raise"]
    assert found["type"] == "AssertionError"
    assert found["text"].startswith("expected a call SET 3 times, found 0"), found
    assert call(app, "kv_server", "execute", "NO")["raise"]["type"] == "CommandError"
    assert call(app, "kv_server", "execute")["raise"]["type"] == "ContractError"
    assert call(app, "kv_server", "value", "k", key="k")["raise"]["type"] == "TypeError"


def test_parts_are_reached_by_a_dot(app: ControlApp) -> None:
    call(app, "queue", "destinations.respond", "https://b.test", 503)
    assert call(app, "kv_server", "faults.drop", times=1)["value"]["kind"] == "drop"
    assert call(app, "kv_server", "faults.clear") == {"value": None}
    assert call(app, None, "journal.calls") == {"value": []}


def test_things_are_looked_up_by_the_first_argument(app: ControlApp) -> None:
    call(app, "broker", "create_topic", "temporary")
    assert call(app, "broker", "topic.add_partitions", "temporary", 2) == {"value": 3}
    assert call(app, "broker", "topic.partitions", "temporary") == {"value": 3}
    call(app, "broker", "join", "g", "one", ["temporary"])
    assert call(app, "broker", "group.expire", "g", instance="one") == {"value": None}
    assert call(app, "broker", "faults.redeliver", "g") == {"value": []}
    assert call(app, "broker", "topic.delete", "temporary") == {"value": None}
    gone = call(app, "broker", "topic.delete", "temporary")["raise"]
    assert (gone["type"], "is not a topic" in gone["text"]) == ("ContractError", True)
    for name, args, reason in (
        ("topic.delete", [], "delete needs the name of the topic in args"),
        ("group.crash", ["g"], "'crash' is not a name of GroupView"),
        ("message.state", ["m"], "'message' is not a part of Broker"),
        ("group._broker", ["g"], "'_broker' is not a name of GroupView"),
    ):
        body = {"object": "broker", "name": name, "args": args}
        assert reason in message(ask(app, "POST", "/call", body)), name


@pytest.mark.parametrize("fixture", SERVICES)
def test_only_what_a_fixture_declares_is_offered(app: ControlApp, fixture: str) -> None:
    fake = next(one for one in app.cloud.fakes() if one.fixture == fixture)
    names = {
        "__class__", "_engine", "_app", "__init__", "nothing", "", "clock.timers", "_app.table",
        "journal._recorder", "faults._table", "clock.settle", "clock.__class__", "os.system",
        "clock.now.__self__", "journal.calls.__globals__", *_IN_PROCESS,
    }  # fmt: skip
    for name in names:
        answer = ask(app, "POST", "/call", {"object": fake.name, "name": name})
        assert "is not a " in message(answer), name
    inherited = {"thread_target", "expect_request", "create_matcher", "server_thread"}
    for name in inherited & {*dir(fake)}:
        assert "is not a name of" in message(
            ask(app, "POST", "/call", {"object": fake.name, "name": name})
        )


def test_the_cloud_starts_and_closes_nothing_by_a_call(app: ControlApp) -> None:
    for name in (
        "close",
        "snapshot",
        "restore",
        "explore",
        "every_failure",
        "_context",
        "__exit__",
    ):
        answer = ask(app, "POST", "/call", {"name": name})
        assert "is not a name of Cloud" in message(answer)


def test_what_cannot_be_represented_is_described() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "an odd thing"

    assert plain([Odd(), b"\xff", b"text", math.inf, {1: dt.timedelta(seconds=1.5)}]) == [
        "an odd thing", {"base64": "/w=="}, "text", "inf", {"1": 1.5},
    ]  # fmt: skip
    assert plain(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) == "2026-01-01T00:00:00+00:00"


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    LEAVES, lambda each: st.lists(each) | st.dictionaries(st.text() | st.integers(), each)
)


@given(VALUES)
@settings(max_examples=cases(60), deadline=None)
def test_every_value_is_strict_json(value: Any) -> None:
    json.dumps(plain(value), allow_nan=False)


# -- loading and replaying -------------------------------------------------------------------------

KEPT = {"kv": {"values": {"kept": "1"}}}
BROKEN = [
    {"kv": {"commands": [["SET", "a", "1"], ["SET", "b"]]}},
    {"kv": {"values": {"a": "1"}}, "broker": {"t": [{"value": "x", "partition": -1}]}},
    {"kv": {"values": {"a": "1"}}, "queue": {"schedules": [{"url": "u", "cron": "x"}]}},
    {
        "queue": {"schedules": [{"url": "https://a.test", "cron": "* * * * *"}]},
        "vector": {"": [{"id": "1", "vector": [1, 2, 3]}]},
    },
    {"kv": {"values": {"a": "1"}}, "faults": {"kv": [{"kind": "drop"}, {"kind": "respond"}]}},
    {"kv": {"values": {"a": "1"}}, "destinations": {"https://a.test": [200, 9999]}},
]


@pytest.mark.parametrize("state", BROKEN, ids=lambda state: "+".join(state))
def test_a_state_is_loaded_whole_or_not_at_all(app: ControlApp, state: dict[str, Any]) -> None:
    app.cloud.reset()
    assert ask(app, "POST", "/load", {"state": KEPT}) == (200, {"loaded": {"kv": 1}})

    def everything() -> list[Any]:
        fakes = [one["name"] for one in ask(app, "GET", "/state")[1]["handles"]]
        views = [ask(app, "GET", f"/handles/{name}/view")[1] for name in fakes]
        return [*views, call(app, "queue", "destinations.routes"), call(app, "queue", "schedules")]

    before = everything()
    for _ in range(2):
        assert ask(app, "POST", "/load", {"state": state})[0] == 422
        assert everything() == before


def test_a_recording_is_replayed(app: ControlApp) -> None:
    app.cloud.reset()
    entry = {
        "startedDateTime": "2026-01-01T00:00:00Z",
        "request": {"method": "GET", "url": "http://a.test/get/k", "headers": []},
        "response": {"status": 200, "content": {"text": '{"result":"v"}'}},
    }
    body = {"archive": {"log": {"entries": [entry]}}, "into": "kv_server"}
    status, found = ask(app, "POST", "/replay", body)
    assert status == 200
    assert found["differences"] == ["request 1 (GET /get/k): body.result was 'v', is None"]
    for wrong, text in (
        ({"archive": []}, "archive is []; pass an object"),
        ({"archive": {}}, "the archive is not an HTTP archive"),
        ({**body, "into": 5}, "into is 5; pass a string or null"),
        ({**body, "move_clock": "yes"}, "move_clock is 'yes'; pass a boolean"),
    ):
        assert text in message(ask(app, "POST", "/replay", wrong))
    assert message(ask(app, "POST", "/replay", {**body, "into": "nobody"}), 404)
