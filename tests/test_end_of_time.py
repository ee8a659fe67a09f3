"""At both ends of time, services answer, reports are made, and the clock moves no further."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import urllib3

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.recordings.archives import write as record
from pytest_fakecloud.reporting.render.page import page
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.standalone.api import PREFIX, ControlApp

LAST = "9999-12-31T23:59:59.999999Z"
ENDS = [
    pytest.param((LAST, "frozen"), id="last"),
    pytest.param((LAST, "running"), id="last-running"),
    pytest.param(("9999-12-31T23:00:00Z", "frozen"), id="last-hour"),
    pytest.param(("0001-01-01T00:00:00Z", "frozen"), id="first"),
]
APPLICATION = "https://app.test/hook"


@pytest.fixture(params=ENDS)
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    now, mode = request.param
    with Cloud(seed=1, now=now, clock=mode, delivery="driven") as opened:
        opened._timekeeper.wait_cap = 0.02
        yield opened


def ask(
    fake: Any, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib3.PoolManager(retries=False, timeout=10) as pool:
        answer = pool.request(
            method, fake.url + path, body=data, headers={**fake.headers, **(headers or {})}
        )
    assert answer.status < 500, (method, path, answer.data)
    return json.loads(answer.data) if answer.data else None


def command(kv: Any, *words: str) -> Any:
    answer = ask(kv, "POST", "", list(words))
    return answer.get("result", answer.get("error"))


def test_key_value_expiry_beyond_any_date(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    assert command(kv, "SET", "soon", "1", "EX", "10") == "OK"
    assert command(kv, "SET", "far", "1") == "OK"
    assert command(kv, "EXPIREAT", "far", "99999999999999") == 1
    assert command(kv, "EXPIRETIME", "far") == 99_999_999_999_999
    assert command(kv, "PEXPIRETIME", "far") == 99_999_999_999_999_000
    assert command(kv, "TTL", "far") > 10**13
    assert command(kv, "PEXPIREAT", "far", "9223372036854775000") == 1
    assert command(kv, "PEXPIRETIME", "far") == 9_223_372_036_854_775_000
    assert "invalid expire time" in command(kv, "EXPIRE", "far", "9223372036854775807")
    assert command(kv, "TTL", "soon") == 10
    first, second = (command(kv, "XADD", "s", "*", "f", "v") for _ in range(2))
    assert tuple(map(int, first.split("-"))) < tuple(map(int, second.split("-")))
    for words in (["TIME"], ["INFO"], ["LASTSAVE"], ["OBJECT", "IDLETIME", "far"], ["ACL", "LOG"]):
        command(kv, *words)
    assert kv.ttl("far") > 10**13


def test_vectors_and_records(cloud: Cloud) -> None:
    index, log = cloud.vector_index(), cloud.broker()
    ask(index, "POST", "/upsert", {"id": "1", "vector": [1, 2]})
    query = {"vector": [1, 2], "topK": 1}
    assert ask(index, "POST", "/query", query)["result"][0]["id"] == "1"
    ask(index, "POST", "/resumable-query", {**query, "maxIdle": 3600})
    log.create_topic("t", partitions=1)
    ask(log, "GET", "/produce/t/hello")
    ask(log, "GET", "/consume/g/i/t")
    ask(log, "POST", "/fetch", {"topic": "t", "partition": 0, "offset": 1, "timeout": 1000})
    assert [produced.value for produced in log.records("t")] == ["hello"]


def test_the_queue_and_every_report_of_it(cloud: Cloud, tmp_path: Path) -> None:
    queue = cloud.queue()
    queue.destinations.call(APPLICATION, lambda request: 500)
    publish = partial(ask, queue, "POST", f"/v2/publish/{APPLICATION}", "x")
    for headers in (
        {"Upstash-Delay": "10s"},
        {"Upstash-Delay": "90d"},
        {"Upstash-Not-Before": "99999999999"},
        {"Upstash-Deduplication-Id": "d"},
        {"Upstash-Flow-Control-Key": "k", "Upstash-Flow-Control-Value": "rate=1,period=7d"},
    ):
        publish(headers=headers)
    ask(queue, "POST", f"/v2/schedules/{APPLICATION}", headers={"Upstash-Cron": "0 0 * * *"})
    ask(queue, "POST", f"/v2/enqueue/line/{APPLICATION}", "x")
    assert len(queue.deliver_due()) >= 3
    for path in ("schedules", "events", "logs", "dlq", "queues"):
        ask(queue, "GET", f"/v2/{path}")
    assert all(message.timeline for message in queue.pending())
    # Retries would be after the end: delivering raises an error instead of looping forever.
    if cloud.clock.now().year == 9999:
        with pytest.raises(ContractError, match="which ends with the year 9999"):
            queue.run_until_idle(within="365d")
    for text in (
        section(cloud),
        page(cloud, report_of(cloud, test="t")),
        repr(cloud),
        *map(repr, cloud.journal.entries),
    ):
        assert text
    record(cloud, tmp_path / "calls.har")
    cloud.restore(cloud.snapshot())
    cloud.reset()


def test_the_control_api(cloud: Cloud) -> None:
    cloud.kv_server()
    cloud.queue().publish(APPLICATION, delay="90d")
    app = ControlApp(cloud, "control-token")
    mount = cloud._context.mount(app)

    class Api:
        url = mount.url + PREFIX
        headers: ClassVar = {"Authorization": "Bearer control-token"}

    for path in ("/state", "/clock", "/journal", "/fakes/queue/messages", "/fakes/kv_server"):
        ask(Api, "GET", path)
    now = ask(Api, "GET", "/clock")
    if now["now"].startswith("9999"):
        refused = ask(Api, "POST", "/clock", {"action": "advance", "by": "90d"})
        assert "which ends with the year 9999" in refused["error"]["message"]
    for action in ("advance_to_next", "resume", "freeze"):
        ask(Api, "POST", "/clock", {"action": action})
    mount.close()
