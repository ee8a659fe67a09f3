"""Requests that the console sends to fakes, and due times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.standalone.api import ControlApp

from .test_codec import ask


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z") as opened:
        yield opened


def post(cloud: Cloud, name: str, **body: Any) -> tuple[int, Any]:
    return ask(ControlApp(cloud, "token"), "POST", f"/handles/{name}/requests", body)


def test_a_command_runs_with_the_credentials_of_the_fake_and_is_in_the_journal(
    cloud: Cloud,
) -> None:
    kv = cloud.kv_server()
    status, answer = post(cloud, "kv_server", body=["SET", "a", "é"])
    assert (status, answer["status"]) == (200, 200)
    assert json.loads(answer["body"]) == {"result": "OK"}
    assert kv.value("a") == "é"
    assert [call.route for call in kv.journal.calls()] == ["command"]


def test_other_credentials_are_those_that_count(cloud: Cloud) -> None:
    cloud.kv_server()
    _, answer = post(cloud, "kv_server", body=["GET", "a"], headers={"authorization": "Bearer no"})
    assert answer["status"] == 401


def test_a_text_goes_as_it_is(cloud: Cloud) -> None:
    queue = cloud.queue()
    target = "/v2/publish/http://127.0.0.1:9/x"
    _, answer = post(cloud, "queue", target=target, body='{"n":  1}')
    assert answer["status"] == 201
    assert queue.messages()[0].body == b'{"n":  1}'


def test_a_request_meets_the_faults_of_the_fake(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv.faults.lose_answer(times=1)
    assert post(cloud, "kv_server", body=["SET", "a", "1"])[1] == {"broken": "lose"}
    assert kv.value("a") == "1"


def test_a_stream_without_end_is_left_to_a_client(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    for _ in range(2):
        accept = {"Accept": "text/event-stream"}
        status, answer = post(cloud, "kv_server", target="/monitor", headers=accept)
        assert status == 422
        assert "the response is an endless stream" in answer["error"]["message"]
    assert kv.execute("CLIENT", "LIST").count("cmd=monitor") == 0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"method": "A B"}, "method must be a word"),
        ({"method": 5}, "method must be a word"),
        ({"target": "http://other.example/"}, "target must be a path"),
        ({"target": "/a b"}, "target must be a path"),
        ({"target": "/a\r\nX: y"}, "target must be a path"),
        ({"headers": ["a"]}, "headers must be an object"),
        ({"headers": {"a": "b\r\nc: d"}}, "is not a header"),
        ({"headers": {"a b": "c"}}, "is not a header"),
        ({"headers": {"a": 5}}, "is not a header"),
        ({"path": "/"}, "'path' is not a field of "),
    ],
)
def test_what_no_client_could_send_is_refused(
    cloud: Cloud, body: dict[str, Any], text: str
) -> None:
    kv = cloud.kv_server()
    status, answer = post(cloud, "kv_server", **body)
    assert status == 422
    assert text in answer["error"]["message"]
    assert not kv.journal.calls()


def test_what_falls_due_is_told_in_its_order(cloud: Cloud) -> None:
    cloud.queue()
    for delay in ("2h", "5m", "1d"):
        post(
            cloud, "queue", target=f"/v2/publish/http://127.0.0.1:9/{delay}",
            headers={"Upstash-Delay": delay},
        )  # fmt: skip
    due = ask(ControlApp(cloud, "token"), "GET", "/due")[1]
    assert (due["now"], due["count"]) == ("2026-01-01T00:00:00+00:00", 3)
    assert [(one["at"], one["what"]) for one in due["due"]] == [
        ("2026-01-01T00:05:00+00:00", "http://127.0.0.1:9/5m"),
        ("2026-01-01T02:00:00+00:00", "http://127.0.0.1:9/2h"),
        ("2026-01-02T00:00:00+00:00", "http://127.0.0.1:9/1d"),
    ]
    cloud.reset()
    assert ask(ControlApp(cloud, "token"), "GET", "/due")[1]["due"] == []
