"""The control API over HTTP."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_fakecloud import ContractError
from pytest_fakecloud.standalone.commands import ControlClient

from .conftest import Server, fetch, message

FAULTS = "/handles/kv_server/faults"
KV = {"fixture": "kv_server"}


def kv(server: Server, *command: str) -> Any:
    handle = server.handle("kv_server")
    answer = fetch("POST", handle["url"], json=list(command), headers=handle["headers"])
    return answer.status, json.loads(answer.data)


def test_ready_page_and_openapi_need_no_token(server: Server) -> None:
    assert server.ask("GET", "/ready", token="") == (200, {"ready": True})
    status, document = server.ask("GET", "/openapi.json", token="")
    assert status == 200
    assert document["openapi"] == "3.1.0"
    page = fetch("GET", server.url)
    assert page.status == 200
    assert b"<!doctype html>" in page.data
    assert page.headers["content-type"].startswith("text/html")


def test_everything_else_does(server: Server) -> None:
    _, document = server.ask("GET", "/openapi.json", token="")
    tried = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if "security" in operation:
                suffix = path.removeprefix("/__control__").replace("{name}", "x")
                status, body = server.ask(method.upper(), suffix.replace("{id}", "1"), {}, "wrong")
                assert status == 401, path
                assert "token" in body["error"]["message"]
                tried += 1
    assert tried > 20


def test_every_operation_says_what_it_does(server: Server) -> None:
    _, document = server.ask("GET", "/openapi.json")
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["summary"].endswith(".")
            assert operation["operationId"]
            said = set(re.findall(r"\?(\w+)=", operation["description"]))
            assert said <= {one["name"] for one in operation.get("parameters", ())}


def test_state_lists_the_handles(server: Server) -> None:
    status, state = server.ask("GET", "/state")
    assert status == 200
    assert [one["name"] for one in state["handles"]] == [
        "kv_server", "vector_index", "broker", "queue",
    ]  # fmt: skip
    assert state["clock"]["mode"] == "frozen"
    assert state["clock"]["now"] == "2026-01-01T00:00:00+00:00"


def test_the_clock_moves(server: Server) -> None:
    assert kv(server, "SET", "k", "v", "EX", "60")[0] == 200
    status, clock = server.ask("POST", "/clock", {"action": "advance", "by": "61s"})
    assert (status, clock["now"]) == (200, "2026-01-01T00:01:01+00:00")
    assert kv(server, "GET", "k") == (200, {"result": None})
    _, clock = server.ask("POST", "/clock", {"action": "move_to", "to": "2026-02-01T00:00:00Z"})
    assert clock["now"].startswith("2026-02-01")
    assert server.ask("POST", "/clock", {"action": "resume"})[1]["mode"] == "running"
    assert server.ask("POST", "/clock", {"action": "freeze"})[1]["mode"] == "frozen"
    assert server.ask("POST", "/clock", {"action": "advance_to_next"})[0] == 200


def test_the_seed_starts_over(server: Server) -> None:
    assert server.ask("PUT", "/seed", {"seed": 7}) == (200, {"seed": 7})
    assert server.ask("GET", "/seed") == (200, {"seed": 7})


def test_faults_are_armed_shown_and_taken_back(server: Server) -> None:
    status, fault = server.ask(
        "POST",
        FAULTS,
        {"kind": "respond", "args": [400, {"error": "ERR planned"}], "command": "GET"},
    )
    assert (status, fault["kind"], fault["hits"]) == (200, "respond", 0)
    assert fault["text"].endswith("0 hits, set over the control API>")
    assert kv(server, "SET", "a", "1")[0] == 200
    assert kv(server, "GET", "a") == (400, {"error": "ERR planned"})
    assert server.ask("GET", FAULTS)[1][0]["hits"] == 1
    last = server.ask("POST", FAULTS, {"kind": "drop", "command": "PING"})[1]
    assert server.ask("DELETE", f"{FAULTS}/{last['id']}")[1]["kind"] == "drop"
    assert [one["id"] for one in server.ask("GET", FAULTS)[1]] == [fault["id"]]
    assert server.ask("DELETE", f"{FAULTS}/{fault['id']}")[0] == 200
    assert kv(server, "GET", "a") == (200, {"result": "1"})
    server.ask("POST", FAULTS, {"kind": "drop"})
    assert server.ask("DELETE", FAULTS) == (200, [])
    assert server.ask("GET", FAULTS) == (200, [])


@pytest.mark.parametrize(
    "other", ["explode", "_add", "close", "clear", "pause", "claim", "up", "call", None, 5]
)
def test_what_is_no_fault_is_refused(server: Server, other: object) -> None:
    text = "Known faults: delay, down, drop" if isinstance(other, str) else "pass a string"
    assert text in message(server.ask("POST", FAULTS, {"kind": other, "args": [0]}))
    assert server.ask("GET", FAULTS) == (200, [])


def test_the_journal_is_told_and_masked(server: Server) -> None:
    kv(server, "SET", "a", "1")
    _, rows = server.ask("GET", "/journal")
    row = rows[-1]
    assert (row["handle"], row["actor"], row["ok"]) == ("kv_server", "client", True)
    assert row["text"]["answer"] == "OK"
    assert ["Authorization", "***"] in row["request"]["headers"]
    assert server.handle("kv_server")["headers"]["Authorization"].split()[1] not in json.dumps(rows)
    assert server.ask("GET", f"/journal?after={row['number']}") == (200, [])
    kv(server, "GET", "a")
    assert server.ask("GET", "/journal?limit=1") == (200, [row])


def test_a_code_is_exchanged_for_the_token_once(server: Server) -> None:
    code = server.ask("POST", "/codes", {})[1]["url"].partition("#code=")[2]
    assert server.ask("POST", "/session", {"code": code}, "") == (200, {"token": server.token})
    for wrong in (code, ""):
        assert "unknown or already used" in message(
            server.ask("POST", "/session", {"code": wrong}, ""), 403
        )
    for other in (None, ["x"]):
        assert "pass a string" in message(server.ask("POST", "/session", {"code": other}, ""))
    first = server.ask("POST", "/codes", {})[1]["url"].partition("#code=")[2]
    for _ in range(100):
        server.ask("POST", "/codes", {})
    assert server.ask("POST", "/session", {"code": first}, "")[0] == 403


def test_no_token_is_taken_from_a_url(server: Server) -> None:
    assert fetch("GET", f"{server.url}/__control__/state?token={server.token}").status == 401
    with pytest.raises(ContractError, match="must not contain the control token"):
        ControlClient(f"{server.url}/?token={server.token}")


def stream(server: Server, *headers: str) -> Iterator[bytes]:
    """Yield what the journal's stream has sent so far, after each read."""
    parts = urlsplit(server.url)
    secret = f"Authorization: Bearer {server.token}"
    lines = ["GET /__control__/journal/stream HTTP/1.1", "Host: 127.0.0.1", secret, *headers]
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as sock:
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        seen = b""
        while True:
            seen += sock.recv(65536)
            yield seen


def rows_of(seen: bytes) -> list[dict[str, Any]]:
    lines = seen.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def streamed(stream: Iterator[bytes], rows: int) -> bytes:
    """Return what a stream has sent when it has sent a number of rows."""
    return next(seen for seen in stream if seen.count(b"data: ") >= rows)


def test_the_journal_streams(server: Server) -> None:
    kv(server, "SET", "a", "1")
    with closing(stream(server)) as sent:
        assert b"text/event-stream" in streamed(sent, 1)
        kv(server, "SET", "b", "2")
        assert rows_of(streamed(sent, 2))[0]["handle"] == "kv_server"


def test_a_call_under_way_is_streamed_again_with_its_answer(server: Server) -> None:
    kv(server, "SET", "a", "1")
    server.ask("POST", "/handles/kv_server/faults", {"kind": "delay", "args": [0.5], "times": 1})
    slow = threading.Thread(target=kv, args=(server, "GET", "a"))
    slow.start()
    rows: list[dict[str, Any]] = []
    with closing(stream(server)) as sent:
        # On a busy machine, rows in between may be sent twice as well.
        while not any(row["operation"] == "GET" and row["done"] for row in rows):
            seen = next(sent)
            rows = rows_of(seen)
            if len(rows) == 2 and not seen.count(b"PING"):
                kv(server, "PING")
    slow.join()
    told = [(row["operation"], row["text"]["answer"].split()[0], row["done"]) for row in rows]
    assert told[:2] == [("SET", "OK", True), ("GET", "open", False)]
    assert ("GET", '"1"', True) in told[2:]
    number = rows[0]["number"]
    with closing(stream(server, f"Last-Event-ID: {number}")) as sent:
        assert f"id: {number}\n".encode() not in streamed(sent, 2)


def test_views_show_what_the_fakes_hold(server: Server) -> None:
    kv(server, "SET", "a", "1", "EX", "60")
    _, view = server.ask("GET", "/handles/kv_server/view")
    assert view["keys"] == [{"key": "a", "type": "string", "ttl": 60, "value": "1"}]
    _, view = server.ask("GET", "/handles/broker/view")
    assert [topic["name"] for topic in view["topics"]] == ["orders"]
    assert len(view["topics"][0]["partitions"]) == 2
    _, view = server.ask("GET", "/handles/vector_index/view")
    assert view["namespaces"] == [{"name": "", "count": 0, "vectors": [], "query": None}]
    _, view = server.ask("GET", "/handles/queue/view")
    assert (view["messages"], view["dead_letters"], view["schedules"]) == ([], [], [])


def test_the_journal_has_the_bodies_of_deliveries_that_succeeded(server: Server) -> None:
    state = {"destinations": {"https://shop.example/hook": {"status": 200, "body": {"ok": 1}}}}
    assert server.ask("POST", "/load", {"state": state})[0] == 200
    server.call("queue", "publish", "https://shop.example/hook", json={"order": 7})
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    (row,) = [one for one in server.ask("GET", "/journal")[1] if one["kind"] == "attempt"]
    assert (row["request"]["decoded"], row["response"]["decoded"]) == ({"order": 7}, {"ok": 1})


def test_a_dead_letter_gets_another_life(server: Server) -> None:
    queue = server.handle("queue")
    fetch(
        "POST",
        f"{queue['url']}/v2/publish/http://127.0.0.1:9/gone",
        headers={**queue["headers"], "Upstash-Retries": "0"},
        body=b"x",
    )
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    _, attempts = server.ask("GET", "/handles/queue/attempts")
    assert attempts[0]["url"] == "http://127.0.0.1:9/gone"
    _, letters = server.ask("GET", "/handles/queue/dead-letters")
    assert len(letters) == 1
    status, message = server.ask("POST", f"/handles/queue/dead-letters/{letters[0]['id']}", {})
    assert status == 200
    assert message["id"].startswith("msg_")
    assert server.ask("POST", "/handles/queue/dead-letters/none", {})[0] in (404, 422)


def test_snapshots_are_kept_on_the_server(server: Server) -> None:
    kv(server, "SET", "a", "1")
    at = server.ask("GET", "/clock")[1]["now"]
    assert server.ask("POST", "/snapshots", {"id": "one"}) == (200, {"id": "one", "at": at})
    kv(server, "SET", "a", "2")
    assert server.ask("POST", "/snapshots/one", {})[0] == 200
    assert kv(server, "GET", "a")[1] == {"result": "1"}
    assert {"id": "one", "at": at} in server.ask("GET", "/snapshots")[1]
    before = server.ask("GET", "/state")[1]["latest"]
    assert server.ask("GET", "/snapshots/one/changes") == (
        200, {"count": 0, "sums": {}, "changes": [], "not_compared": []}
    )  # fmt: skip
    assert server.ask("GET", "/state")[1]["latest"] == before
    assert server.ask("GET", "/snapshots/one/changes?until=none")[0] == 404
    assert server.ask("DELETE", "/snapshots/one")[0] == 200
    assert server.ask("POST", "/snapshots/one", {})[0] == 404
    names = [server.ask("POST", "/snapshots", {})[1]["id"]]
    assert server.ask("POST", "/snapshots", {"id": str(int(names[0]) + 1)})[0] == 200
    names += [server.ask("POST", "/snapshots", {})[1]["id"]]
    assert int(names[1]) == int(names[0]) + 2


def test_reset_returns_to_the_baseline(server: Server) -> None:
    kv(server, "SET", "a", "1")
    assert server.ask("POST", "/reset", {"handle": "broker"})[0] == 200
    assert kv(server, "GET", "a")[1] == {"result": "1"}
    assert server.ask("POST", "/reset", {})[0] == 200
    assert kv(server, "GET", "a")[1] == {"result": None}


def test_more_fakes_start_and_close(server: Server) -> None:
    status, handle = server.ask("POST", "/handles", KV | {"settings": {"name": "second"}})
    assert (status, handle["name"]) == (200, "second")
    assert server.ask("GET", "/handles/second")[1]["url"] == handle["url"]
    assert server.ask("DELETE", "/handles/second") == (200, {"closed": True})
    assert server.ask("GET", "/handles/second")[0] == 404


@pytest.mark.parametrize(
    "settings",
    [{"name": 5}, {"name": ""}, {"token": 5}, {"host": 5}, {"port": 99999}, {"port": -1},
     {"port": "80"}, {"port": True}],
)  # fmt: skip
def test_a_place_that_is_none_is_refused(server: Server, settings: dict[str, object]) -> None:
    status, answer = server.ask("POST", "/handles", KV | {"settings": settings})
    (key,) = settings
    assert status == 422
    assert f"{key}={settings[key]!r} of kv_server must be" in answer["error"]["message"]


def test_the_openapi_file_is_current(server: Server) -> None:
    file = Path(__file__).parents[2] / "docs" / "control-api.json"
    _, document = server.ask("GET", "/openapi.json")
    assert json.loads(file.read_text(encoding="utf-8")) == document, (
        "run: python -m pytest_fakecloud.standalone > docs/control-api.json"
    )


@pytest.mark.parametrize(
    ("words", "name"), [([], "control-api.json"), (["state"], "reference/state.schema.json")]
)
def test_the_module_writes_the_files_of_the_documentation(words: list[str], name: str) -> None:
    command = [sys.executable, "-m", "pytest_fakecloud.standalone", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    file = Path(__file__).parents[2] / "docs" / name
    assert done.stdout == file.read_text(encoding="utf-8")


REFUSED: dict[int, list[tuple[str, str, Any, str]]] = {
    422: [
        (
            "GET",
            "/journal?after=%C2%B2",
            None,
            "after must be a whole number of at most 18 digits, got '²'",
        ),
        ("GET", f"/journal?after={'9' * 5000}", None, "must be a whole number"),
        ("DELETE", f"{FAULTS}/{'9' * 5000}", None, "must be a whole number"),
        ("POST", "/clock", {"action": "advance"}, 'pass {"action": "advance", "by": "…"}'),
        ("POST", "/clock", {"action": "advance", "to": "1h"}, 'pass {"action": "advance", "by"'),
        ("POST", "/clock", {"action": "freeze", "by": "1h"}, 'pass {"action": "freeze"}'),
        ("POST", "/clock", {"action": ["freeze"]}, "is not an action"),
        ("POST", "/begin", {"now": "0001-01-01T00:00:00+14:00"}, "the years 1 to 9999"),
        ("POST", "/reset", {"handel": "kv_server"}, "'handel' is not a field of the body; did"),
        ("POST", "/begin", {"no": "x"}, "Known fields: now, clock"),
        ("PUT", "/seed", {"seed": "\ud800"}, "seed must be a string without lone surrogates"),
        ("PUT", "/seed", {"seed": 1.5}, "seed is 1.5; pass an integer or a string"),
        ("POST", "/handles", KV | {"settings": []}, "settings is []; pass an object"),
        ("POST", "/handles", KV | {"settings": ""}, "settings is ''; pass an object"),
        ("POST", "/handles", KV | {"settings": {"name": "queue"}}, "already"),
        ("POST", "/snapshots", {"id": [1]}, "id is [1]; pass a string or an integer"),
        ("POST", "/snapshots", {"id": ""}, "the id of a snapshot must not be empty"),
        ("POST", "/call", {"name": 5}, "name is 5; pass a string"),
        ("POST", "/call", {"name": "env", "args": "x"}, "args is 'x'; pass an array"),
        ("POST", "/call", {"name": "env", "args": [1]}, "env is a property: leave out args"),
        *(
            ("POST", "/call", {"object": wrong, "name": "env"}, "pass a string or null")
            for wrong in (True, 1.5, [1], {"a": "b"})
        ),
        ("POST", FAULTS, {"kind": "respond"}, "It takes args [status, body]"),
        ("POST", FAULTS, {"kind": "drop", "args": [1]}, "It takes no args"),
        ("POST", FAULTS, {"kind": ["drop"]}, "kind is ['drop']; pass a string"),
        ("POST", "/handles", {"fixture": 5}, "fixture is 5; pass a string"),
        ("POST", "/clock", {"action": "jump"}, "'jump' is not an action"),
        ("POST", "/clock", {"action": "move"}, "'move' is not an action; did you mean 'move_to'?"),
        ("POST", "/clock", [1], "the body is [1]; pass an object"),
        ("PUT", "/seed", {"seed": None}, "seed is None; pass an integer or a string"),
        ("PUT", "/seed", {"seed": True}, "seed is True; pass an integer or a string"),
        (
            "GET",
            "/journal?after=x",
            None,
            "after must be a whole number of at most 18 digits, got 'x'",
        ),
        ("POST", FAULTS, {"kind": "respond", "args": "503"}, "args is '503'; pass an array"),
        ("POST", FAULTS, {"kind": "respond", "args": [503], "color": "red"}, "'color' is not a"),
        ("POST", "/handles", {"fixture": "tape_robot"}, "'tape_robot' is not a service"),
        ("POST", "/handles", {"fixture": "queue", "settings": {"x": 1}}, "'x' is not a setting of"),
        ("GET", "/handles/kv_server/dead-letters", None, "kv_server is not a queue"),
    ],
    400: [
        ("POST", "/clock", {"action": "advance", "by": 1e308}, "exceed 100 years"),
        ("POST", "/clock", {"action": "advance", "by": "9" * 400 + "d"}, "exceed 100 years"),
        ("POST", "/clock", {"action": "advance", "by": -1e308}, "cannot be negative"),
        ("POST", "/clock", {"action": "advance", "by": float("inf")}, "inf is not a duration"),
        ("POST", "/clock", {"action": "advance", "by": "soon"}, "'soon' is not a duration"),
        ("POST", "/clock", {"action": "move_to", "to": "2020-01-01T00:00:00Z"}, "cannot go back"),
        ("POST", "/clock", {"action": "move_to", "to": "0001-01-01T00:00:00+14:00"}, "the years 1"),
    ],
    404: [
        ("DELETE", f"{FAULTS}/9999", None, "there is no fault 9999"),
        ("GET", "/handles/nobody/faults", None, "kv_server"),
        ("GET", "/handles/nobody", None, "'nobody' is not a fake"),
    ],
}


@pytest.mark.parametrize(
    ("status", "method", "path", "body", "text"),
    [(status, *row) for status, rows in REFUSED.items() for row in rows],
)
def test_a_mistake_is_refused_in_words(
    server: Server, status: int, method: str, path: str, body: Any, text: str
) -> None:
    assert text in message(server.ask(method, path, body), status)


def test_a_refusal_does_not_repeat_all_it_was_sent(server: Server) -> None:
    _, answer = server.ask("POST", "/reset", {"handle": "x" * 1_000_000})
    assert answer["error"]["message"].startswith("'xxx")
    assert len(answer["error"]["message"]) < 3000


def test_the_journal_is_unicode_whatever_was_sent(server: Server) -> None:
    kv(server, "SET", "a", "1")
    handle = server.handle("kv_server")
    body = rb'["SET","a","\ud800"]'
    assert fetch("POST", handle["url"], body=body, headers=handle["headers"]).status == 200
    headers = {"Authorization": f"Bearer {server.token}"}
    answer = fetch("GET", f"{server.url}/__control__/journal", headers=headers)
    assert "\\ud800" in json.loads(answer.data.decode("utf-8"))[-1]["request"]["body"]
    with closing(stream(server)) as sent:
        streamed(sent, 2)
