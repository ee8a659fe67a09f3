"""Promises of SECURITY.md whose tests have no other place."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import urlsplit

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.http.messages import Answer, Request, same
from pytest_fakecloud.standalone.api import PREFIX, ControlApp
from pytest_fakecloud.standalone.control.shapes import WITHOUT_TOKEN

from .harness import PACKAGE, apart, syntax

ROOT = Path(__file__).resolve().parents[1]
SERVICES = ("kv_server", "vector_index", "broker", "queue")
READS = {
    "kv_server": "/get/key",
    "vector_index": "/info",
    "broker": "/topics",
    "queue": "/v2/queues",
}
"""A request of each service that changes nothing and needs its token."""
BAD_BODIES = {
    "kv_server": "/pipeline",
    "vector_index": "/upsert",
    "broker": "/produce/topic",
    "queue": "/v2/batch",
}
"""A path of each service that parses a JSON body."""


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        for name in SERVICES:
            getattr(cloud, name)()
        yield cloud


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False) as client:
        yield client


def fake(cloud: Cloud, name: str) -> Fake:
    (match,) = (fake for fake in cloud.fakes() if fake.name == name)
    return match


# -- who may reach what ----------------------------------------------------------------------------


def test_a_fake_listens_on_one_loopback_address(cloud: Cloud) -> None:
    for fake in cloud.fakes():
        place = httpx.URL(fake.url)
        assert place.host == "127.0.0.1"
        socket.create_connection((place.host, place.port)).close()
        if sys.platform == "linux":  # elsewhere nothing listens on the other loopback addresses
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", place.port))


def test_no_answer_may_be_read_by_a_page_of_another_origin(
    cloud: Cloud, client: httpx.Client
) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for fake in cloud.fakes():
        for method in ("GET", "OPTIONS"):
            for headers in (asked, {**asked, **fake.headers}):
                answer = client.request(method, fake.url + READS[fake.name], headers=headers)
                assert not [name for name in answer.headers if name.startswith("access-control-")]


# -- tokens ----------------------------------------------------------------------------------------


def test_a_wrong_token_is_a_401_before_the_request_is_read(
    cloud: Cloud, client: httpx.Client
) -> None:
    for fake in cloud.fakes():
        body = b"{no json"
        url = fake.url + BAD_BODIES[fake.name]
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic d3Jvbmc6eA=="},
        ):
            assert client.post(url, content=body, headers=headers).status_code == 401, fake.name
        assert client.post(url, content=body, headers=fake.headers).status_code == 400


HEADS = {
    "length": "Content-Length: 50000000\r\n\r\n[",
    "chunked": "Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n",
    "100-continue": "Content-Length: 50\r\nExpect: 100-continue\r\n\r\n",
}
"""The end of a head, and the beginning of its body, of which the rest is not sent."""


@pytest.mark.parametrize("name", HEADS)
def test_no_large_body_is_read_without_a_token(cloud: Cloud, name: str) -> None:
    control = ControlApp(cloud, "the-control-token")
    mount = cloud._context.hub.mount(control)
    doors = {urlsplit(fake.url): BAD_BODIES[fake.name] for fake in cloud.fakes()}
    doors[urlsplit(mount.url)] = f"{PREFIX}/call"
    for address, path in doors.items():
        for credentials in ("", "Authorization: Bearer wrong\r\n"):
            with socket.create_connection((address.hostname, address.port), timeout=30) as client:
                head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{credentials}{HEADS[name]}"
                client.sendall(head.encode())
                assert client.recv(100).startswith(b"HTTP/1.1 401 "), path


def test_no_large_body_is_read_where_no_token_is_needed(cloud: Cloud) -> None:
    mount = cloud._context.hub.mount(ControlApp(cloud, "the-control-token"))
    with socket.create_connection(mount.address, timeout=30) as client:
        head = f"POST {PREFIX}/session HTTP/1.1\r\nHost: 127.0.0.1\r\n{HEADS['length']}"
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_token_reaches_its_own_fake_alone(cloud: Cloud, client: httpx.Client) -> None:
    for mine in cloud.fakes():
        for other in cloud.fakes():
            answer = client.get(other.url + READS[other.name], headers=mine.headers)
            assert answer.status_code == (200 if mine is other else 401), (mine.name, other.name)


def test_no_token_of_a_fake_reaches_the_control_api(cloud: Cloud) -> None:
    app = ControlApp(cloud, "the-control-token")
    for fake in cloud.fakes():
        for value in (fake.headers["Authorization"], f"Bearer {fake.token}"):
            for path in ("/state", "/clock", "/journal", "/call", "/fakes"):
                assert control(app, "POST", path, value).status == 401
    assert control(app, "GET", "/state", "Bearer the-control-token").status == 200


def control(app: ControlApp, method: str, path: str, authorization: str) -> Answer:
    headers = [("Host", "127.0.0.1"), ("Authorization", authorization)]
    answer = app.respond(Request(method, f"{PREFIX}{path}", headers, b"{no json"))
    assert isinstance(answer, Answer)
    return answer


def test_little_is_told_without_the_control_token() -> None:
    assert set(WITHOUT_TOKEN) == {
        "console", "console_file", "icon", "live", "openapi", "ready", "session",
    }  # fmt: skip


class Watched(bytes):
    """A credential that may only be compared with an equal one."""

    def __new__(cls, value: str | bytes) -> Watched:
        return super().__new__(cls, value.encode() if isinstance(value, str) else value)

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        assert bytes(self) == other, "the time of this comparison depends on the bytes that agree"
        return True


def test_tokens_are_compared_in_constant_time(
    cloud: Cloud, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[Any, Any]] = []

    def compare(credential: Any, expected: str) -> bool:
        compared.append((credential, expected))
        return same(Watched(credential), expected)

    for fake in cloud.fakes():
        client.get(fake.url)  # imports its routes
    for module in [*sys.modules.values()]:
        if module.__name__ != __name__ and getattr(module, "same", None) is same:
            monkeypatch.setattr(module, "same", compare)
    for fake in cloud.fakes():
        compared.clear()
        value = fake.headers["Authorization"].replace(fake.token, "wrong")
        client.get(fake.url + READS[fake.name], headers={"Authorization": value})
        secret = getattr(fake, "password", fake.token)
        assert secret in [expected for _, expected in compared], fake.name
    compared.clear()
    control(ControlApp(cloud, "the-control-token"), "GET", "/state", "Bearer wrong")
    assert ("wrong", "the-control-token") in compared
    assert same(Watched("the-control-tokem"), "the-control-token") is False
    assert same("the-control-token", "the-control-token")


def test_tokens_are_random_whatever_the_seed(cloud: Cloud) -> None:
    secrets = [fake.token for fake in cloud.fakes()]
    with Cloud(seed=1) as again:  # the same seed
        secrets += [getattr(again, name)().token for name in SERVICES]
    assert len(set(secrets)) == 2 * len(SERVICES)
    assert all(len(secret) >= 32 for secret in secrets)


# -- nothing runs by its name ----------------------------------------------------------------------


WORDS = re.compile(
    r"\b(eval|exec|__import__|pickle|marshal|shelve|yaml|os|subprocess|import_module|importlib"
    r"|compare_digest)\b"
)
"""Every searched call or import contains one of them."""


def calls() -> Iterator[tuple[str, str]]:
    """Yield each module of the package with each dotted name containing these words that it uses."""
    for path in sorted(PACKAGE.rglob("*.py")):
        # Python normalizes identifiers to this form. Parsing all modules would take seconds.
        if not WORDS.search(normalize("NFKC", path.read_text("utf-8"))):
            continue
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.Call):
                yield module, dotted(node.func)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield module, alias.name
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    yield module, f"{node.module}.{alias.name}"


def dotted(called: ast.expr) -> str:
    """Return a dotted name as written; an empty string for other calls."""
    if isinstance(called, ast.Attribute):
        return f"{dotted(called.value)}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else ""


@pytest.mark.slow
def test_nothing_is_evaluated_unpickled_or_started() -> None:
    users: dict[str, set[str]] = {}
    for module, name in calls():
        users.setdefault(name, set()).add(module)
    # The scan finds calls and imports.
    assert "core/output_files.py" in users["os.open"]
    assert "pytest_run/faked_files.py" in users["import_module"]
    # The processes that explore() forks unpickle what its own process puts into their pipe.
    assert users.pop("pickle.loads") == {"explore/guests/ahead.py"}
    for name in ("eval", "exec", "__import__", "pickle.load", "pickle.loads", "marshal.loads",
                 "marshal.load", "shelve.open", "yaml.load", "os.system", "os.popen"):  # fmt: skip
        assert name not in users, users.get(name)
    # `run` starts the user's command; explore() detects processes started by others.
    starts = re.compile(r"subprocess\b|os\.(exec|spawn|posix_spawn)")
    started = {
        module for name, modules in users.items() if starts.match(name) for module in modules
    }
    assert started <= {"standalone/serving.py", "explore/world/processes.py"}
    # Imports by name, each from a fixed list of the package.
    assert users["importlib.import_module"] | users.get("import_module", set()) == {
        "__init__.py", "kv/table/registry.py", "cloud/services.py",
        "pytest_run/faked_files.py",
    }  # fmt: skip


def test_a_service_that_no_list_names_is_not_imported(cloud: Cloud) -> None:
    app = ControlApp(cloud, "t")
    for name in ("os", "pytest_fakecloud.cli", "services", "__main__", "../x", "antigravity"):
        body = json.dumps({"fixture": name}).encode()
        headers = [("Host", "127.0.0.1"), ("Authorization", "Bearer t")]
        before = set(sys.modules)
        answer = app.respond(Request("POST", f"{PREFIX}/fakes", headers, body))
        assert isinstance(answer, Answer)
        assert answer.status in (400, 404, 422)
        assert set(sys.modules) == before


# -- what deliveries may reach ---------------------------------------------------------------------


def test_a_refused_delivery_looks_no_name_up_and_sends_nothing(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = cloud.queue()
    opened: list[object] = []

    def refuse(*args: object, **_: object) -> None:
        opened.append(args)
        raise AssertionError(args)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    urls = ("https://app.example.com/x", "http://192.0.2.7/", "http://169.254.169.254/latest",
            "http://[2001:db8::1]/", "http://127.0.0.1.example.com/")  # fmt: skip
    for url in urls:
        queue.publish(url, retries=0)
    cloud.allow("unstubbed")
    attempts = queue.run_until_idle()
    assert opened == []
    assert [attempt.status for attempt in attempts] == [None] * len(urls)


# -- files -----------------------------------------------------------------------------------------

WATCH = """
import os, sys
def watch(event, args):
    if event == "open" and isinstance(args[0], str) and isinstance(args[2], int):
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not args[0].startswith("/dev/"):
            print("WROTE", args[0], file=sys.__stderr__)
    elif event in ("os.mkdir", "os.rename", "os.link", "os.symlink"):
        print("WROTE", args[0], file=sys.__stderr__)
sys.addaudithook(watch)
"""
USE = """
from pathlib import Path

def test_it(kv_server, vector_index, broker, queue, callback_capture):
    assert kv_server.client().set("a", "1")
    queue.destinations.respond("https://a.example/", 200)
    queue.publish("https://a.example/")
    queue.run_until_idle()
    broker.create_topic("t")
    broker.produce("t", "x")

def test_of_the_watch(tmp_path):
    (tmp_path / "mark").write_text("x")
"""


@pytest.mark.slow
def test_no_file_is_written_without_being_asked_for(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # coverage.py writes its measurements into a file.
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)
    pytester.makeconftest(WATCH)
    pytester.makepyfile(USE)
    result = apart(pytester, "-s")
    result.assert_outcomes(passed=2)
    wrote = [line for line in result.errlines if line.startswith("WROTE ")]
    assert any(line.endswith("mark") for line in wrote)
    # The parent of the tests' temporary folders belongs to pytest.
    assert [line for line in wrote if "/runpytest-0" not in line] == []
