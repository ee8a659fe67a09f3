"""Run the tests that the console writes of recorded calls: each must pass on fakes that are empty."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from ..clients.node import need
from ..clients.test_other_languages import GO_SETTINGS, build_go, files, node_folder, run, written
from ..harness import wait_until
from .conftest import Server, fetch
from .test_console import CHROMIUM, at, browser, fake, page, sent, window
from .test_console_work import kv

__all__ = ["browser", "node_folder", "page", "window"]

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def copied(server: Server, row: Any) -> Any:
    """Return the tests of a row by language, and why there is none."""
    status, copies = server.ask("GET", f"/journal/{row['number']}/tests")
    assert status == 200, copies
    return copies


def texts(server: Server, language: str, rows: list[Any]) -> list[str]:
    copies = [copied(server, row) for row in rows]
    assert not any(found["why_not"] for found in copies), copies
    return [found["tests"][language] for found in copies if language in found["tests"]]


@pytest.fixture
def rows(server: Server) -> list[Any]:
    """Rows of calls of every service and protocol, answered and rejected, after other calls."""
    server.ask("POST", "/clock", {"action": "move_to", "to": "2026-01-01T09:30:00Z"})
    kv(server, "HSET", "user:1", "name", "Ada", "city", "Paris")
    kv(server, "SET", "session", 'it\'s "quoted" \n ä', "EX", "600")
    kv(server, "ZADD", "board", "10", "ada", "7", "bob")
    kv(server, "RPUSH", "jobs", "a", "b")
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    kv(server, "HGETALL", "user:1")
    kv(server, "TTL", "session")
    kv(server, "GET", "session")
    kv(server, "ZRANGE", "board", "0", "-1")
    kv(server, "LPOP", "jobs")
    kv(server, "GET", "nothing")
    kv(server, "MSET", "cart:1", '{"items": [1]}', "cart:2", "[]")
    kv(server, "GET", "cart:1")
    kv(server, "MGET", "cart:1", "cart:2")
    sent(server, "kv_server", "/pipeline", [["INCR", "n"], ["INCR", "n"]])
    with redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"]) as client:
        client.hgetall("user:1")
        client.mget("cart:1", "cart:2")
        client.incr("n")
        client.execute_command("HEXPIRE", "user:1", "600", "FIELDS", "1", "city")
        client.execute_command("HTTL", "user:1", "FIELDS", "1", "city")
        client.hget("user:1", "none")
        with pytest.raises(redis.ResponseError):
            client.incr("user:1")
    vectors = [{"id": "v1", "vector": [1, 0]}, {"id": "v2", "vector": [0, 1]}]
    sent(server, "vector_index", "/upsert", vectors)
    sent(server, "vector_index", "/query", {"vector": [1, 0.5], "topK": 1})
    sent(server, "vector_index", "/fetch", {"ids": ["v2", "none"]})
    for code in (200, 503):
        url = f"https://app.example/{code}"
        server.ask("POST", "/fakes/queue/destinations", {"url": url, "answer": code})
        sent(
            server,
            "queue",
            f"/v2/publish/{url}",
            "hello",
            Upstash_Retries="0",
            Upstash_Failure_Callback="https://app.example/200",
            X_Trace="7",
        )
    server.ask("POST", "/fakes/queue/requests", {"method": "GET", "target": "/v2/messages/none"})
    published = {"destination": "https://app.example/200", "body": "hello"}
    sent(server, "queue", "/v2/batch", [published])
    sent(server, "queue", "/v2/enqueue/ordered/https://app.example/200", "hello")
    answered_by_faults(server)
    without_credentials(server)
    with_subscribers(server)

    def attempts() -> list[Any]:
        return [row for row in server.ask("GET", "/journal")[1] if row["kind"] == "delivery"]

    wait_until(lambda: len(attempts()) == 5)
    return [row for row in server.ask("GET", "/journal")[1] if row["operation"] not in UNTESTABLE]


UNTESTABLE = ("HELLO", "CLIENT SETINFO", "CLIENT MAINT_NOTIFICATIONS", "SUBSCRIBE", "UNSUBSCRIBE")


def answered_by_faults(server: Server) -> None:
    """Make calls of every service that an injected fault answers, with its own body and another."""
    url = fake(server, "kv_server")["env"]["REDIS_URL"]
    for args in ([503], [429, "slow down"]):
        for name, target in (
            ("kv_server", "/get/session"),
            ("vector_index", "/info"),
            ("broker", "/topics"),
            ("queue", "/v2/schedules"),
        ):
            fault = {"kind": "respond", "args": args, "times": 1}
            server.ask("POST", f"/fakes/{name}/faults", fault)
            again = {"method": "GET", "target": target}
            server.ask("POST", f"/fakes/{name}/requests", again)
        fault = {"kind": "respond", "args": args, "times": 1, "command": "GET"}
        server.ask("POST", "/fakes/kv_server/faults", fault)
        with redis.Redis.from_url(url) as client, pytest.raises(redis.ResponseError):
            client.get("session")
    limit = {"kind": "rate_limit", "args": [0, "1s"], "times": 1, "command": "GET"}
    server.ask("POST", "/fakes/kv_server/faults", limit)
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["GET", "session"]})


def without_credentials(server: Server) -> None:
    """Make a call of every service with a wrong token, and one without a token."""
    for name, method, target in (
        ("kv_server", "GET", "/get/session"),
        ("vector_index", "GET", "/info"),
        ("broker", "GET", "/topics"),
        ("queue", "GET", "/v2/schedules"),
    ):
        for headers in ({"Authorization": "Bearer of-another"}, {}):
            answer = fetch(method, fake(server, name)["url"] + target, headers=headers)
            assert answer.status == 401


def with_subscribers(server: Server) -> None:
    """Publish to channels with one subscriber, two and none."""
    client = redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"])
    with client, client.pubsub() as one, client.pubsub() as other:
        for subscriber, channels in ((one, ("news", "mail")), (other, ("news",))):
            subscriber.subscribe(*channels)
            for _ in channels:
                assert subscriber.get_message(timeout=10)
        for channel, count in (("news", 2), ("mail", 1), ("empty", 0)):
            assert client.publish(channel, "kettles") == count
            assert kv(server, "PUBLISH", channel, "kettles") == count


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_calls_without_an_honest_test_have_the_reason_instead(page: Any, server: Server) -> None:
    kv(server, "SET", "session", "ada")
    kv(server, "DBSIZE")
    for kind in ("drop", "lose_response", "hang"):
        fault = {"kind": kind, "times": 1, "command": "GET"}
        server.ask("POST", "/fakes/kv_server/faults", fault)
        ended = server.ask("POST", "/fakes/kv_server/requests", {"body": ["GET", "session"]})
        assert ended[1]["broken"]
    delay = {"kind": "delay", "args": ["1ms"], "times": 1, "command": "GET"}
    server.ask("POST", "/fakes/kv_server/faults", delay)
    kv(server, "GET", "session")
    sent(server, "broker", "/produce", {"topic": "orders", "value": "one kettle"})
    kv(server, "SET", "long", "x" * 200_000)
    kv(server, "STRLEN", "long")
    with redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"]) as client:
        client.set("bytes", b"\xff")
        client.get("bytes")
        client.xadd("events", {"kind": "sale"})
        client.xlen("events")
        with client.pipeline() as pipeline:
            pipeline.set("session", "bob").get("session").execute()
    server.ask("POST", "/fakes/queue/destinations", {"url": "https://app.example", "answer": 200})
    run = {"Upstash-Workflow-Init": "true", "Upstash-Workflow-RunId": "wfr_1"}
    target = "/v2/publish/https://app.example/flow"
    sent(server, "queue", target, "{}", **{name.replace("-", "_"): run[name] for name in run})
    sent(server, "queue", "/v2/schedules/https://app.example", Upstash_Cron="0 9 * * *")
    server.ask("POST", "/fakes/queue/requests", {"method": "GET", "target": "/v2/schedules"})

    def deliveries() -> list[Any]:
        return [row for row in server.ask("GET", "/journal")[1] if row["kind"] == "delivery"]

    wait_until(deliveries)
    rows = server.ask("GET", "/journal")[1]
    calls = [row for row in rows if row["kind"] == "call"]
    assert "\ndef test_set_" in copied(server, calls[0])["tests"]["pytest"]
    reasons: dict[str, list[str]] = {}
    for call in calls:
        reasons.setdefault(call["operation"], []).append(copied(server, call)["why_not"])
    *ended, of_bytes, queued = reasons["GET"]
    assert len(ended) == 4
    assert all("does not show in an answer" in reason for reason in ended)
    assert "bytes that are not text" in of_bytes
    assert "queued in a transaction" in queued
    for operation, part in (
        ("DBSIZE", "depends on more than the data of keys"),
        ("XLEN", "a stream, which cannot be written in one command"),
        ("STRLEN", "the key long, which is too long"),
        ("produce", "records and offsets"),
        ("publish", "belongs to a workflow run"),
        ("list_schedules", "what the queue held"),
    ):
        (reason,) = reasons[operation]
        assert part in reason
    (delivery,) = deliveries()
    assert "workflow run" in copied(server, delivery)["why_not"]
    at(page, f"activity/{calls[1]['number']}", ".trace-pane h3")
    page.locator(".trace-pane p", has_text="the reply of DBSIZE").wait_for()
    assert "Copy as a test" not in page.inner_text(".trace-pane")


def test_an_error_is_asserted_to_contain_the_recorded_text(server: Server) -> None:
    kv(server, "SET", "session", "ada")
    url = fake(server, "kv_server")["env"]["REDIS_URL"]
    with redis.Redis.from_url(url) as client, pytest.raises(redis.ResponseError):
        client.incr("session")
    row = next(row for row in server.ask("GET", "/journal")[1] if row["operation"] == "INCRBY")
    (text,) = texts(server, "pytest", [row])
    assert 'assert "value is not an integer or out of range" in str(raised.value)' in text


def test_a_write_is_followed_by_a_comparison_of_its_data(server: Server) -> None:
    kv(server, "HSET", "cart", "tea", "1")
    url = fake(server, "kv_server")["env"]["REDIS_URL"]
    with redis.Redis.from_url(url) as client:
        client.hset("cart", "tea", "2")
        client.delete("cart")
    rows = [row for row in server.ask("GET", "/journal")[1] if row["operation"] in ("HSET", "DEL")]
    over_http, changed, deleted = texts(server, "pytest", rows)
    assert '.json() == {"result": ["tea", "1"]}' in over_http
    assert 'assert client.execute_command("HGETALL", "cart") == ["tea", "2"]' in changed
    assert 'assert client.execute_command("EXISTS", "cart") == 0' in deleted


def test_with_pytest(server: Server, rows: list[Any], tmp_path: Path) -> None:
    written_texts = texts(server, "pytest", rows)
    for number, text in enumerate(written_texts):
        (tmp_path / f"test_{number}.py").write_text(text, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture(scope='session')\ndef fakecloud_settings():\n"
        "    return {'vector': {'dimension': 2}}\n",
        encoding="utf-8",
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    output = run(
        sys.executable, "-m", "pytest", "-q",
        "-p", "no:cacheprovider", str(tmp_path),
        cwd=tmp_path, PYTHONPATH=path,
    )  # fmt: skip
    assert f"{len(rows)} passed" in output


def test_with_vitest(server: Server, rows: list[Any], node_folder: Path) -> None:
    need("vitest", "ioredis", "@upstash/vector", "@upstash/qstash")
    config = files("javascript.md")["vitest.config.js"].replace(
        "{ kv: {},", "{ kv: {}, broker: {}, vector: { dimension: 2 },"
    )
    (node_folder / "vitest.config.js").write_text(config, encoding="utf-8")
    written_texts = texts(server, "Vitest", rows)
    # In one file, because each starts a cloud.
    lines = [line for text in written_texts for line in text.splitlines()]
    imports = dict.fromkeys(line for line in lines if line.startswith("import "))
    whole = "\n".join([*imports, *(line for line in lines if line not in imports)])
    (node_folder / "copied.test.js").write_text(whole, encoding="utf-8")
    program = str(node_folder / "node_modules" / "vitest" / "vitest.mjs")
    output = with_all_fakes("node", program, "run", "--no-color", cwd=node_folder)
    assert f"{len(rows)} passed" in output


def with_all_fakes(*command: str, cwd: Path, **environment: str) -> str:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    fakes = (sys.executable, "-m", "pytest_fakecloud", "run", "--vector", "dimension=2", "--")
    return run(*fakes, *command, cwd=cwd, PYTHONPATH=path, **environment)


def test_with_go(server: Server, rows: list[Any], tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = written("go.md", tmp_path)
    for name in ("session.go", "session_test.go"):
        (folder / name).unlink()
    (folder / "go.mod").write_text("module shop\n\ngo 1.19\n", encoding="utf-8")
    written_texts = texts(server, "Go", rows)
    for number, text in enumerate(written_texts):
        (folder / f"copied{number}_test.go").write_text(text, encoding="utf-8")
    build_go(folder)
    output = with_all_fakes("go", "test", "-v", "./...", cwd=folder, **GO_SETTINGS)
    calls = [row for row in rows if row["kind"] == "call"]
    assert output.count("--- PASS") == len(written_texts) == len(calls)
