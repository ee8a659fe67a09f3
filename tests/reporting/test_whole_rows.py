"""Each kind of row as a whole: its words, its remarks, its place, and the texts of both ways.

The text beside ``whole_rows/`` has every field that says something. ``FAKECLOUD_WRITE_REPORTS=1``
writes the texts anew, to be read before they are committed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.journal import recorder_of
from pytest_fakecloud.reporting.applications import Served
from pytest_fakecloud.reporting.page import page
from pytest_fakecloud.reporting.rows import Row, rows
from pytest_fakecloud.reporting.section import section

_OF_A_CLIENT = re.compile("(?i)(host|accept|accept-encoding|connection|user-agent|content-length):")
"""Headers that the version of a client decides on."""
TEXTS = Path(__file__).parent / "whole_rows"
HOOK = "https://app.example.com/hook?from=shop"
BACK = "https://app.example.com/back"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened


def told(row: Row) -> str:
    """A row as text: each field that says something on a line of its own."""
    lines = []
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name in ("number", "at_us") or value in ("", 0, (), None, ("", "")):
            continue
        if field.name in ("sent", "got"):
            kept = [line for line in value.splitlines() if not _OF_A_CLIENT.match(line)]
            value = "".join(f"\n  | {line}".rstrip() for line in kept)
        lines.append(f"{field.name}: {value}")
    return "\n".join(lines) + "\n"


def same(text: str) -> str:
    """The ports made the same, which differ from run to run."""
    return re.sub(r"(127\.0\.0\.1| ):\d{4,5}\b", r"\1:10000", text)


def publishes(cloud: Cloud) -> None:
    """Attempts that fail in several ways, with their bodies, headers, callbacks and what was logged."""
    queue, capture = cloud.queue(), cloud.callback_capture()
    answers = iter([500, (422, {"error": "no customer"}), (302, ""), 200])

    def take(request: Any) -> Any:
        logging.getLogger("shop").error("no order", exc_info=KeyError("customer"))
        return next(answers)

    queue.destinations.call("https://app.example.com/hook", take)
    queue.destinations.answers(BACK, 500, 200)
    for body, headers in (
        (b'{"customer": {}}', {"X-Tenant": "acme", "X-Other": "1"}),
        (b"", {"X-Tenant": "acme"}),
        (b"text", {}),
        (b"text", {}),
    ):
        sent = {f"Upstash-Forward-{name}": value for name, value in headers.items()}
        wants = {
            "Upstash-Retries": "0",
            "Upstash-Callback": BACK,
            "Content-Type": "application/json",
        }
        wants["Upstash-Failure-Callback"] = capture.callback_url
        url = f"{queue.url}/v2/publish/{HOOK}"
        httpx.post(url, content=body, headers={**queue.headers, **sent, **wants})
        queue.run_until_idle()


def delivers_to_fakes(cloud: Cloud) -> None:
    """Deliveries that the cloud's own fakes take, refuse, and take twice; what they cause is below."""
    queue, kv = cloud.queue(), cloud.kv_server()
    server = cloud.destination()
    answers = iter([(200, "fine"), (503, "closed"), (200, "")])

    def take(request: Any) -> Any:
        from werkzeug import Response

        httpx.post(kv.url, json=["INCR", "n"], headers=kv.headers)
        status, text = next(answers)
        return Response(text, status)

    server.expect_request("/orders").respond_with_handler(take)
    for headers in ({}, {"X-Tenant": "acme"}, {}):
        queue.publish(f"{server.url}/orders?n=1", json={"n": 1}, retries=0, headers=headers)
        queue.run_until_idle()
    queue.publish("https://nobody.example.com", retries=0)
    queue.run_until_idle()


def groups(cloud: Cloud) -> None:
    """What a group does because of a call stands below that call; what it does by itself does not."""
    broker = cloud.broker(topics={"t": 2})
    auth = (broker.username, broker.password)

    def ask(path: str, body: Any = None, method: str = "POST") -> None:
        requests.request(method, f"{broker.url}/{path}", json=body, auth=auth, timeout=5)

    broker.produce("t", "one", key="k")
    ask("consume/g/a", {"topic": "t"})
    ask("produce", {"topic": "t", "value": "v"})
    ask("consume/g/b", {"topic": "t"})
    ask("commit/g/a", {"topic": "t", "partition": 0, "offset": 0})
    ask("produce/nowhere")
    ask("delete-consumer/g/a")
    cloud.clock.advance("5m")
    broker.rebalance("g")


def commands(cloud: Cloud) -> None:
    """Commands: one by one, of a script, with a fault, refused, answered in Base64."""
    server = cloud.kv_server()

    def ask(body: Any, path: str = "", **headers: str) -> None:
        sent = {**server.headers, **{name.replace("_", "-"): it for name, it in headers.items()}}
        with suppress(httpx.TransportError):
            httpx.post(f"{server.url}/{path}", json=body, headers=sent)

    ask(["SET", "a", "x" * 500])
    ask(["GET", "a"], Upstash_Encoding="base64")
    ask(["EVAL", "return redis.call('GET', KEYS[1])", "1", "a"])
    ask(["INCR", "a"])
    ask([["SET", "b", "1"], ["INCR", "a"]], "pipeline")
    ask(["GET", "a"], Authorization="Bearer of-somebody-else")
    ask([{"no": "command"}])
    for fault in ("lose_answer", "drop", "truncate"):
        getattr(server.faults, fault)(times=1)
        ask(["SET", "c", "1"])
    server.faults.call(lambda: ask(["SET", "e", "other"]), command="GET", times=1)
    ask(["GET", "e"])


SCENES: list[Callable[[Cloud], None]] = [publishes, delivers_to_fakes, groups, commands]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_row_tells_what_came_and_what_became_of_it(
    cloud: Cloud, scene: Callable[[Cloud], None]
) -> None:
    scene(cloud)
    found = same("\n".join([*map(told, rows(cloud)), section(cloud), section(cloud, width=60)]))
    expected = TEXTS / f"{scene.__name__}.txt"
    if os.environ.get("FAKECLOUD_WRITE_REPORTS"):
        expected.write_text(found, encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8")


def several(cloud: Cloud) -> None:
    """Retries of a message, a group whose partitions move, a failure in between, a far destination."""
    queue, server = cloud.queue(), cloud.kv_server()
    queue.destinations.answers(HOOK, 500, ConnectionError("down"), 200)
    queue.publish(HOOK, json={"n": 1}, retries=3)
    queue.run_until_idle()
    groups(cloud)
    with server.faults.answer(503):
        httpx.post(server.url, json=["GET", "<a>"], headers=server.headers)
    httpx.post(f"{server.url}/no/such", headers=server.headers)


def test_a_page_has_all_of_it(cloud: Cloud) -> None:
    several(cloud)
    served = [request(began=1, ended=2, status=500, raised="KeyError: 'a'")]
    text = page(cloud, "test_a.py::test_<it>", "AssertionError: no\n  second <line>", served)
    style = re.compile(r"(?s)<style>.*?</style>")
    lines = same(style.sub("", text)).replace("><", ">\n<").splitlines()
    found = "\n".join(line for line in lines if not _OF_A_CLIENT.match(line)) + "\n"
    expected = TEXTS / "page.html"
    if os.environ.get("FAKECLOUD_WRITE_REPORTS"):
        expected.write_text(found, encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8")


def request(**more: Any) -> Served:
    return Served(**{"began": 0, "at_us": 0, "target": "GET /a", "framework": "Flask",
                     "environ": None, "thread": 0, "ended": 9, "status": 200, **more})  # fmt: skip


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ({}, ["True GET /a (Flask) 200", "  SET", "SET"]),
        ({"status": 399}, ["True GET /a (Flask) 399", "  SET", "SET"]),
        ({"status": 400}, ["False GET /a (Flask) 400", "  SET", "SET"]),
        ({"status": None, "raised": "oh"}, ["False GET /a (Flask) ", "  SET", "SET"]),
        ({"status": None}, ["True GET /a (Flask) ", "  SET", "SET"]),
        ({"alone": False}, ["True GET /a (Flask) 200", "SET", "SET"]),
        ({"idle": True}, ["SET", "SET"]),
        ({"idle": True, "status": 500}, ["SET", "SET", "False GET /a (Flask) 500"]),
    ],
    ids=["well", "399", "400", "raised", "unknown", "beside others", "no call", "no call, failed"],
)
def test_a_request_to_the_application_stands_above_its_calls(
    cloud: Cloud, served: dict[str, Any], expected: list[str]
) -> None:
    served, server = dict(served), cloud.kv_server()
    reserve = recorder_of(cloud.journal).reserve
    numbers = []
    for _ in range(2):
        numbers.append(reserve())
        httpx.post(server.url, json=["SET", "a", 1], headers=server.headers)
    numbers += [reserve(), reserve()]
    began, ended = numbers[2:] if served.pop("idle", False) else numbers[:2]
    found = rows(cloud, served=[request(began=began, ended=ended, **served)])
    assert [
        f"{row.ok} {row.what} {row.answer}" if row.target == "application"
        else "  " * row.depth + row.what.split()[0]
        for row in found
    ] == expected  # fmt: skip
