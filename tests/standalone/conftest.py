"""Stand-alone servers in their own processes, which always end with the module."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import urllib3

from pytest_fakecloud import cli
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.standalone.api import ControlApp

from .nursery import AVAILABLE, Born, Nursery

STARTS_WITHIN = 30.0
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


def fetch(method: str, url: str, **options: Any) -> urllib3.BaseHTTPResponse:
    """Send one request on its own connection."""
    with urllib3.PoolManager(retries=False, timeout=20) as pool:
        return pool.request(method, url, **options)


def message(answer: tuple[int, Any], status: int = 422) -> str:
    """Return the message of an answer that rejects a request with this status."""
    assert answer[0] == status, answer
    return str(answer[1]["error"]["message"])


def ask(app: ControlApp, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send one request through the pipeline, without a socket."""
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    headers = [("Host", "127.0.0.1"), ("Authorization", "Bearer token")]
    answer = app.respond(Request(method, f"/__control__{path}", headers, sent))
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, bytes)
    return answer.status, json.loads(answer.body)


@dataclass
class Server:
    """A running ``pytest-fakecloud serve --json``."""

    process: subprocess.Popen[str] | Born
    summary: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.summary["control"]["url"])

    @property
    def token(self) -> str:
        return str(self.summary["control"]["token"])

    @property
    def console(self) -> str:
        """An address that signs one browser in."""
        return str(self.ask("POST", "/codes", {})[1]["url"])

    def fake(self, name: str) -> dict[str, Any]:
        """Return the address and the credentials of a fake."""
        return next(fake for fake in self.summary["fakes"] if fake["name"] == name)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """Status and JSON of one request to the control API."""
        answer = fetch(
            method,
            f"{self.url}/__control__{path}",
            body=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token if token is None else token}"},
        )
        return answer.status, json.loads(answer.data)

    def call(self, fake: str | None, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of a fake or of the cloud returns; an error it raises fails."""
        body = {"object": fake, "name": name, "args": args, "kwargs": kwargs}
        status, reply = self.ask("POST", "/call", body)
        assert (status, reply.keys()) == (200, {"value"}), reply
        return reply["value"]


Serve = Callable[..., Server]


@dataclass
class Done:
    """The result of a command."""

    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run ``pytest-fakecloud`` in this process, to its end; keywords are variables."""

    def run(*arguments: str, **environment: str) -> Done:
        numbers = [signal.SIGINT, signal.SIGTERM]
        handlers = [signal.getsignal(number) for number in numbers]
        # A server that starts after all must fail the test, not hang it: SIGTERM ends it.
        timer = threading.Timer(STARTS_WITHIN, os.kill, (os.getpid(), signal.SIGTERM))
        capfd.readouterr()
        timer.start()
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                code: Any = cli.main(arguments)
            except SystemExit as error:
                code = error.code
            finally:
                timer.cancel()
                for number, handler in zip(numbers, handlers, strict=True):
                    signal.signal(number, handler)
        return Done(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery | None]:
    """The process that servers are forked from, on systems that can fork."""
    nursery = Nursery() if AVAILABLE else None
    yield nursery
    if nursery is not None:
        nursery.close()


@pytest.fixture(scope="module")
def serve(nursery: Nursery | None) -> Iterator[Serve]:
    """Start servers with any options; all are stopped at the end of the module."""
    servers: list[Server] = []

    def start(*options: str, **environment: str) -> Server:
        arguments = ["serve", "--json", *options]
        whole = {**os.environ, "PYTEST_FAKECLOUD_RANDOM": "yes", **environment}
        if nursery is not None:
            process: subprocess.Popen[str] | Born = nursery.begin(arguments, whole)
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest_fakecloud", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=whole,
            )
        assert process.stdout is not None
        # A server that never gets ready must end the test, not hang it.
        timer = threading.Timer(STARTS_WITHIN, os.kill, (process.pid, KILL))
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        assert line, "the server did not start"
        server = Server(process, json.loads(line))
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.process.terminate()
    for server in servers:
        # Wait for a regular end: coverage data is written only then.
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(10)
        server.process.kill()
        server.process.wait(10)
        if server.process.stdout is not None:
            server.process.stdout.close()


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    """One server with all services, its clock frozen."""
    return serve("--now", "2026-01-01T00:00:00Z", "--broker", 'topics={"orders": 2}')


@pytest.fixture(autouse=True)
def _fresh(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("server").ask("POST", "/begin", {})
