"""Test a server that other programs use: initial data, deliveries, health and logs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from werkzeug import Request, Response
from werkzeug.serving import make_server

from pytest_fakecloud import Cloud
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.serving import Log, _prepare
from pytest_fakecloud.standalone.state_file import read_state
from tests.kv.rdb.packing import file_of

from .conftest import STARTS_WITHIN, Command, Serve, fetch, message

pytestmark = pytest.mark.slow

MODULE = b"\x07\x01m\x81" + bytes(8) + b"\x00"
"""A key of a dump whose value has a type of a module."""


@pytest.fixture(autouse=True)
def free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of several workers start at the same time, and would compete for the default ports."""
    monkeypatch.setenv("PYTEST_FAKECLOUD_RANDOM", "yes")


@contextmanager
def receiver() -> Iterator[tuple[str, list[Request], threading.Event]]:
    """Start a server of another program; yield its address and the requests that it receives."""
    came: list[Request] = []
    done = threading.Event()

    @Request.application
    def app(request: Request) -> Response:
        request.get_data()
        came.append(request)
        done.set()
        return Response("taken", 201)

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came, done
    finally:
        server.shutdown()
        thread.join()


def test_deliveries_are_forwarded_where_that_was_named(serve: Serve) -> None:
    with receiver() as (target, came, done):
        server = serve(
            "queue", "--forward", f"https://app.example={target}/base", "--clock", "frozen"
        )
        queue = server.summary["fakes"][0]
        for _ in range(2):
            answer = fetch(
                "POST",
                f"{queue['url']}/v2/publish/https://app.example/hook%20x?a=1",
                body=b"hello",
                headers=queue["headers"],
            )
            assert answer.status < 300, answer.data
            assert done.wait(20)
            done.clear()
            # A reset returns to what the server was started with, forwards included.
            server.ask("POST", "/reset", {})
        first = came[0]
        assert (first.full_path, first.data) == ("/base/hook x?a=1", b"hello")
        assert first.headers["X-Forwarded-Host"] == "app.example"
        assert first.headers["X-Forwarded-Proto"] == "https"
        assert first.headers["Host"] == target.partition("//")[2]
        assert first.headers["Upstash-Signature"]
        assert len(came) == 2


def test_a_state_file_that_a_fake_refuses_ends_the_start(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"kv": {"commands": [["SET", "k"]]}}', encoding="utf-8")
    done = command("serve", "kv", "--load", str(file))
    assert done.returncode == 2
    assert f"{file}: kv.commands: ERR wrong number of arguments" in done.stderr


def test_what_is_loaded_is_the_baseline(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"kv": {"values": {"k": "v"}}}', encoding="utf-8")
    server = serve("kv", "--load", str(file))
    assert server.ask("GET", "/journal") == (200, [])
    server.call("kv_server", "execute", "SET", "k", "other")
    server.ask("POST", "/reset", {})
    assert server.call("kv_server", "value", "k") == "v"


def test_a_dump_of_a_real_server_is_loaded(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "dump.rdb"
    file.write_bytes(file_of(b"\x00\x01k\x01v" + MODULE))
    server = serve("kv", "--load", str(file))
    server.call("kv_server", "execute", "SET", "k", "other")
    server.ask("POST", "/reset", {})
    assert server.call("kv_server", "contents") == {"k": "v"}
    # A client names a file on the server's machine, which the server may read but not write.
    server.call("kv_server", "execute", "FLUSHALL")
    server.call("kv_server", "load", str(file))
    assert server.call("kv_server", "contents") == {"k": "v"}
    out = {"object": "kv_server", "name": "dump_rdb", "args": [str(tmp_path / "out.rdb")]}
    assert "dump_rdb is not a name of KVServer that can be called" in message(
        server.ask("POST", "/call", out)
    )


def test_a_damaged_dump_is_one_line(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "dump.rdb"
    file.write_bytes(file_of(b"\x00\x01k\x01v")[:-1])
    done = command("serve", "kv", "--load", str(file))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"pytest-fakecloud: {file}: kv.rdb: dump.rdb cannot be loaded as an .rdb file: "
        "the data ends at byte 22, within a value"
    ]


def test_what_a_dump_has_beside_is_skipped_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump.rdb").write_bytes(file_of(MODULE))
    state = tmp_path / "state.json"
    state.write_text('{"kv": {"rdb": "dump.rdb", "values": {"k": "v"}}, "queue": {}}', "utf-8")
    with Cloud() as cloud:
        kv = cloud.kv_server()
        app: Any = SimpleNamespace(loading="")
        _prepare(cloud, app, [(state, read_state(state))], {}, Log())
        assert kv.contents() == {"k": "v"}
    said = capsys.readouterr().err
    assert "warning: dump.rdb: skipped keys: 1 of module type AAAAAAAAA\n" in said


def test_logs_are_objects_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"kv": {"values": {"k": "v"}}}', encoding="utf-8")
    process = subprocess.Popen(
        [
            sys.executable, "-m", "pytest_fakecloud", "serve", "kv", "queue", "--random",
            "--load", str(file), "--log-format", "json",
            "--control-token", "secret-1", "--kv-token", "secret-2",
            "--forward", "https://app.example=http://127.0.0.1:1",
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # A server that never gets ready, or never ends, must end the test, not hang it.
    timer = threading.Timer(STARTS_WITHIN, process.kill)
    timer.start()
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("pytest-fakecloud is ready")
        process.terminate()
        _, errors = process.communicate()
    timer.cancel()
    assert process.returncode == 0, "it was killed"
    events = [json.loads(line) for line in errors.splitlines()]
    assert [event["event"] for event in events] == ["forward", "loaded", "ready", "stopping"]
    assert all(event["at"] and event["level"] == "info" and event["text"] for event in events)
    assert set(events[2]["fakes"]) == {"kv_server", "queue"}
    assert "secret" not in errors


def test_text_says_only_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    for event in ("ready", "stopping"):
        log.say(event, event)
    log.say("address", "0.0.0.0 is reachable", level="warning", host="0.0.0.0")
    log.say("bug", "a bug", level="error")
    assert capsys.readouterr().err == (
        "pytest-fakecloud: warning: 0.0.0.0 is reachable\npytest-fakecloud: a bug\n"
    )


def test_a_server_that_loads_is_live_and_not_ready() -> None:
    with Cloud() as cloud:
        app = ControlApp(cloud)
        mount = cloud._context.mount(app, host="127.0.0.1", port=0)
        app.loading = "state.json: kv 2000 of 5000"
        place = f"{mount.url}/__control__"
        assert fetch("GET", f"{place}/live").status == 200
        answer = fetch("GET", f"{place}/ready")
        assert (answer.status, json.loads(answer.data)) == (
            503, {"ready": False, "loading": "state.json: kv 2000 of 5000"},
        )  # fmt: skip
        app.loading = ""
        assert fetch("GET", f"{place}/ready").status == 200
        mount.close()
