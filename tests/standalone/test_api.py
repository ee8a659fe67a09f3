"""The control API over HTTP."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.commands import ControlClient
from pytest_fakecloud.standalone.saving import StateKeeper
from pytest_fakecloud.standalone.serving import Log

from .conftest import Server, ask, fetch, message


def kv(server: Server, *command: str) -> Any:
    fake = server.fake("kv_server")
    answer = fetch("POST", fake["url"], json=list(command), headers=fake["headers"])
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
            assert said <= {parameter["name"] for parameter in operation.get("parameters", ())}


def test_the_journal_is_told_and_masked(server: Server) -> None:
    kv(server, "SET", "a", "1")
    _, rows = server.ask("GET", "/journal")
    row = rows[-1]
    assert (row["fake"], row["actor"], row["ok"]) == ("kv_server", "client", True)
    assert row["text"]["answer"] == "OK"
    assert ["Authorization", "***"] in row["request"]["headers"]
    assert server.fake("kv_server")["headers"]["Authorization"].split()[1] not in json.dumps(rows)
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
        assert rows_of(streamed(sent, 2))[0]["fake"] == "kv_server"


def test_a_call_under_way_is_streamed_again_with_its_answer(server: Server) -> None:
    kv(server, "SET", "a", "1")
    server.ask("POST", "/fakes/kv_server/faults", {"kind": "delay", "args": [0.5], "times": 1})
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
    states = [(row["operation"], row["text"]["answer"].split()[0], row["done"]) for row in rows]
    assert states[:2] == [("SET", "OK", True), ("GET", "open", False)]
    assert ("GET", '"1"', True) in states[2:]
    number = rows[0]["number"]
    with closing(stream(server, f"Last-Event-ID: {number}")) as sent:
        assert f"id: {number}\n".encode() not in streamed(sent, 2)


def test_the_journal_has_the_bodies_of_deliveries_that_succeeded(server: Server) -> None:
    state = {"destinations": {"https://shop.example/hook": {"status": 200, "body": {"ok": 1}}}}
    assert server.ask("POST", "/load", {"state": state})[0] == 200
    server.call("queue", "publish", "https://shop.example/hook", json={"order": 7})
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    (row,) = [entry for entry in server.ask("GET", "/journal")[1] if entry["kind"] == "delivery"]
    assert (row["request"]["decoded"], row["response"]["decoded"]) == ({"order": 7}, {"ok": 1})


def test_the_openapi_file_is_current(server: Server) -> None:
    file = Path(__file__).parents[2] / "docs" / "control-api.json"
    _, document = server.ask("GET", "/openapi.json")
    assert json.loads(file.read_text(encoding="utf-8")) == document, "run: python -m docs.generate"


def test_a_refusal_does_not_repeat_all_it_was_sent(server: Server) -> None:
    _, answer = server.ask("POST", "/reset", {"fake": "x" * 1_000_000})
    assert answer["error"]["message"].startswith("'xxx")
    assert len(answer["error"]["message"]) < 3000


def test_the_journal_is_unicode_whatever_was_sent(server: Server) -> None:
    kv(server, "SET", "a", "1")
    fake = server.fake("kv_server")
    body = rb'["SET","a","\ud800"]'
    assert fetch("POST", fake["url"], body=body, headers=fake["headers"]).status == 200
    headers = {"Authorization": f"Bearer {server.token}"}
    answer = fetch("GET", f"{server.url}/__control__/journal", headers=headers)
    assert "\\ud800" in json.loads(answer.data.decode("utf-8"))[-1]["request"]["body"]
    with closing(stream(server)) as sent:
        streamed(sent, 2)


def test_the_journal_is_compressed_if_the_client_accepts_it(server: Server) -> None:
    kv(server, "SET", "a", "1")
    answers = {
        encoding: fetch(
            "GET",
            f"{server.url}/__control__/journal",
            headers={"Authorization": f"Bearer {server.token}", "Accept-Encoding": encoding},
        )
        for encoding in ("gzip", "identity")
    }
    assert answers["gzip"].headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in answers["identity"].headers
    assert answers["gzip"].data == answers["identity"].data  # urllib3 decompresses it.
    assert json.loads(answers["identity"].data)


def test_a_move_of_the_clock_shows_its_progress_and_is_stopped() -> None:
    moves: list[Any] = []
    with Cloud(now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        app, queue = ControlApp(cloud, "token"), cloud.queue()

        def handle(request: Any) -> int:
            moves.append(ask(app, "GET", "/clock")[1]["move"])
            if len(moves) == 2:
                assert ask(app, "POST", "/clock", {"action": "stop"})[1]["fired"] == []
            return 200

        queue.destinations.call("https://app.example", handle)
        for minute in (1, 2, 3):
            queue.publish("https://app.example", delay=f"{minute}m")
        status, clock = ask(app, "POST", "/clock", {"action": "advance", "by": "1h"})
        assert (status, clock["now"], clock["move"]) == (200, "2026-01-01T00:02:00+00:00", None)
        assert len(clock["fired"]) == 2
        since, until = "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"
        assert moves == [{"since": since, "until": until, "events": events} for events in (0, 1)]
        # The next move continues with the events that are left.
        assert len(ask(app, "POST", "/clock", {"action": "advance", "by": "1h"})[1]["fired"]) == 1


def test_violations_are_dismissed_until_they_occur_again() -> None:
    with Cloud(now="2026-01-01T00:00:00Z") as cloud:
        queue = cloud.queue()
        app = ControlApp(cloud, "token")
        queue.publish("https://app.example/hook", retries=1)
        queue.publish("https://other.example/", retries=0)
        cloud.clock.advance("1s")
        first, second = sorted(violation.text for violation in cloud.violations())
        status, others = ask(app, "POST", "/violations/dismiss", {"texts": [first, "unknown"]})
        assert (status, [violation["text"] for violation in others]) == (200, [second])
        assert ask(app, "GET", "/state")[1]["violations"] == 1
        cloud.clock.advance("1h")
        assert sorted(violation.text for violation in cloud.violations()) == [first, second]


def test_a_server_says_which_file_keeps_its_state_and_that_a_save_failed(tmp_path: Path) -> None:
    with Cloud(now="2026-01-01T00:00:00Z") as cloud:
        cloud.kv_server()
        app = ControlApp(cloud, "token")
        assert ask(app, "GET", "/state")[1]["kept"] is None
        file = tmp_path / "folder" / "state.json"
        keeper = app.keeper = StateKeeper(cloud, file, 3600, Log())
        assert ask(app, "GET", "/state")[1]["kept"] == {
            "file": str(file), "saved_at": None, "failure": "",
        }  # fmt: skip
        # The folder is created again if it is gone.
        keeper.start()
        keeper.close()
        saved_at = ask(app, "GET", "/state")[1]["kept"]["saved_at"]
        assert saved_at is not None
        file.unlink()
        file.parent.rmdir()
        file.parent.touch()
        cloud.fakes()[0].execute("SET", "k", "v")
        keeper.close()
        kept = ask(app, "GET", "/state")[1]["kept"]
        assert (kept["saved_at"], "folder" in kept["failure"]) == (saved_at, True)
        file.parent.unlink()
        keeper.close()
        assert ask(app, "GET", "/state")[1]["kept"]["failure"] == ""
        assert json.loads(file.read_bytes()) == ask(app, "GET", "/saved")[1] | {
            "clock": json.loads(file.read_bytes())["clock"]
        }
