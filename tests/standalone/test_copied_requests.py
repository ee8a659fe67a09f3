"""Test the code that makes requests of the control API again, which were made by hand."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from pytest_fakecloud.standalone.copied_tests.by_hand import ControlRequest, copies

from ..clients.node import need
from .conftest import Server


def test_what_was_made_by_hand_is_copied_as_code_that_does_the_same(
    kv_server: Any, queue: Any, broker: Any, fakecloud: Any
) -> None:
    made = [
        ("/fakes/kv_server/requests", {"body": ["SET", "it's", 'a "quoted" \n line ä']}),
        ("/fakes/queue/requests", {"method": "POST", "target": "/v2/queues", "headers": {"X-A": "b"},
                                     "body": {"queueName": "ordered", "parallelism": 2}}),
        ("/call", {"object": "broker", "name": "create_topic", "args": ["mails", 2]}),
        ("/clock", {"action": "move_to", "to": "2030-01-01T00:00:00Z"}),
        ("/clock", {"action": "advance", "by": "90m"}),
        ("/fakes/kv_server/faults", {"kind": "respond", "args": [503], "command": "INCR"}),
        ("/fakes/queue/faults", {"kind": "sequence", "args": [[503, None, "drop"]]}),
        ("/snapshots", {}),
        ("/fakes/queue/destinations", {"url": "https://a.example", "answer": 503}),
        ("/fakes/queue/destinations", {"url": "https://b.example",
                                       "answer": {"status": 200, "body": {"ok": True}}}),
        ("/fakes/queue/destinations", {"url": "https://c.example",
                                       "answer": {"forward": "http://127.0.0.1:3000"}}),
        ("/fakes/queue/destinations", {"url": "https://d.example", "answer": "hang"}),
    ]  # fmt: skip
    fixtures = {
        "kv_server": kv_server, "queue": queue, "broker": broker, "fakecloud": fakecloud,
    }  # fmt: skip
    for path, body in made:
        exec(copies(ControlRequest("POST", path, body))["pytest"], fixtures)
    assert [fault.kind for fault in kv_server.faults] == ["respond"]
    assert [fault.kind for fault in queue.faults] == ["sequence"]
    assert kv_server.execute("GET", "it's") == 'a "quoted" \n line ä'
    assert fixtures["answer"].status_code == 200
    assert fixtures["answer"].request.headers["X-A"] == "b"
    assert "mails" in [topic.name for topic in broker.topics()]
    assert fakecloud.clock.now().isoformat().startswith("2030-01-01T01:30:0")
    answers = {route.prefix: route._written() for route in queue.destinations.routes()}
    assert answers == {
        "https://a.example": [{"status": 503}],
        "https://b.example": [{"status": 200, "body": {"ok": True}}],
        "https://c.example": {"forward": "http://127.0.0.1:3000"},
        "https://d.example": ["hang"],
    }
    kv_server.faults.clear()
    queue.faults.clear()


FAULT = {"kind": "respond", "args": [503, None, {"ok": True}], "command": 'a"b'}
MADE = ControlRequest("POST", "/fakes/kv_server/faults", FAULT)
SENT = """
let sent;
const fetch = async (...parts) => { sent = parts; return {ok: true}; };
"""


def test_javascript_sends_the_same_request(tmp_path: Path) -> None:
    need()
    script = tmp_path / "made.mjs"
    printed = "console.log(JSON.stringify(sent));"
    script.write_text(SENT + copies(MADE)["JavaScript"] + printed, encoding="utf-8")
    done = subprocess.run(
        ["node", str(script)], capture_output=True, text=True, encoding="utf-8", timeout=60, check=True,
        env={**os.environ, "PYTEST_FAKECLOUD_URL": "http://x", "PYTEST_FAKECLOUD_TOKEN": "t"},
    )  # fmt: skip
    url, options = json.loads(done.stdout)
    assert url == "http://x/__control__/fakes/kv_server/faults"
    assert (options["method"], options["headers"]) == ("POST", {"Authorization": "Bearer t"})
    assert json.loads(options["body"]) == FAULT


def test_go_sends_the_same_request() -> None:
    code = copies(MADE)["Go"]
    assert code.startswith("package copied\n")
    assert f"strings.NewReader({json.dumps(json.dumps(FAULT, separators=(',', ':')))})" in code
    assert 'os.Getenv("PYTEST_FAKECLOUD_URL")+"/__control__/fakes/kv_server/faults"' in code


def test_a_request_without_a_body_or_a_method_of_a_fixture() -> None:
    deleted = copies(ControlRequest("DELETE", "/clouds/1"))
    assert 'strings.NewReader("")' in deleted["Go"]
    assert "pytest" not in deleted


def test_the_control_api_returns_the_code_and_makes_nothing(server: Server) -> None:
    status, texts = server.ask("POST", "/copies", MADE._asdict())
    assert (status, texts) == (200, copies(MADE))
    assert server.ask("GET", "/fakes/kv_server/faults")[1] == []
