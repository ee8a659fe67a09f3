"""Test the limits of a comparison: time, memory, and data that remains after an interruption."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fakecloud import Cloud
from pytest_fakecloud.cli import main
from pytest_fakecloud.core.secrets import HIDDEN
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.verify import command, run, sides
from pytest_fakecloud.verify.catalogue.scenarios import ScenarioStep, read_scenarios
from pytest_fakecloud.verify.run import difference, verify
from pytest_fakecloud.verify.sides import Bounds, Interrupted, Reply, ServiceUnreachable, Target

from ..budget import cases

TOKEN = "the-token-of-a-real-service"
Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that handle every connection with a given function."""
    ends: list[Callable[[], None]] = []

    def start(answer: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        connections: list[tuple[socket.socket, threading.Thread]] = []

        def handle(sock: socket.socket) -> None:
            with closing(sock), suppress(OSError):
                sock.recv(65536)
                answer(sock)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    handler = threading.Thread(target=handle, args=(sock,), daemon=True)
                    connections.append((sock, handler))
                    handler.start()

        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()

        def end() -> None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            acceptor.join(10)
            # A thread that goes on would be part of the explorations of later tests.
            for sock, handler in connections:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                handler.join(10)

        ends.append(end)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for end in ends:
        end()


def plan_only(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let comparisons run the scenarios of a text instead of the catalogue."""
    stories = read_scenarios("kv", text)
    monkeypatch.setattr(run, "plan", lambda target, dimension=2: stories)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits that a test reaches quickly, and a catalogue of few commands."""
    monkeypatch.setattr(sides, "SECONDS", 0.3)
    monkeypatch.setattr(sides, "CLEAN_SECONDS", 0.3)
    monkeypatch.setattr(sides, "ANSWER_BYTES", 100_000)
    plan_only(monkeypatch, "## one\nSET @a 1\nGET @a\nECHO x")
    monkeypatch.setattr(command, "_announce", lambda targets, mask: None)


def answered(body: bytes, kind: str = "application/json") -> Callable[[socket.socket], None]:
    """Return a handler that answers every request with these bytes."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
    return sending(head.encode() + body)


def sending(content: bytes) -> Callable[[socket.socket], None]:
    def answer(sock: socket.socket) -> None:
        sock.sendall(content)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):  # Closing with unread data would reset the connection.
            pass

    return answer


def dripping(start: bytes, drop: bytes) -> Callable[[socket.socket], None]:
    """Return a handler whose answer never ends and arrives in small pieces."""

    def answer(sock: socket.socket) -> None:
        sock.sendall(start)
        pause = threading.Event()
        while not pause.wait(0.01):
            sock.sendall(drop)

    return answer


def hang(sock: socket.socket) -> None:
    """Never answer, until the client disconnects."""
    while sock.recv(65_536):  # The body of the request may arrive separately.
        pass


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def compared(url: str, *options: str) -> int:
    """Run ``verify`` with the key-value service at a URL, and return its exit code."""
    return main(["verify", "--kv", url, "--token", TOKEN, "--yes", *options])


UNBOUNDED = {
    "a body without an end": (
        dripping(HEAD + b"Content-Length: 9999999\r\n\r\n", b" "),
        "no complete response",
    ),
    "chunks without an end": (dripping(CHUNKED, b"1\r\n \r\n"), "no complete response within"),
    "headers without an end": (dripping(HEAD, b"X"), "no complete response within"),
    "no answer": (hang, "no complete response within"),
    "much": (answered(b" " * 200_000), "a response is larger than"),
    "much in chunks": (dripping(CHUNKED, b"4000\r\n" + b" " * 0x4000 + b"\r\n"), "is larger than"),
}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("how", UNBOUNDED)
def test_an_answer_is_bounded(serve: Serve, capsys: pytest.CaptureFixture[str], how: str) -> None:
    answer, words = UNBOUNDED[how]
    assert compared(serve(answer), "--quiet") == command.EXIT_UNREACHABLE
    err = capsys.readouterr().err
    assert words in err
    assert "names that begin with verify_" in err
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("short")
def test_the_answers_of_a_run_are_bounded_together(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "RUN_BYTES", 150_000)
    assert compared(serve(answered(b" " * 60_000))) == command.EXIT_UNREACHABLE
    assert "in total" in capsys.readouterr().err


@pytest.mark.usefixtures("short")
def test_a_run_is_bounded(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    url = serve(hang)
    assert compared(url, "--timeout", "0.1") == command.EXIT_UNREACHABLE
    err = capsys.readouterr().err
    assert "the run did not end within 0.1 s: pass a longer --timeout SECONDS" in err
    for wrong in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(SystemExit):
            compared(url, "--timeout", wrong)


HOSTILE = [
    b"[" * 900 + b"]" * 900, b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'{"result": ' + b"9" * 400 + b"}", b'{"result": ' + b"9" * 5000 + b"}", b'{"result": NaN}',
    b'{"result": "\\ud800"}', b'{"\\ud800": 1}', b"\xff\xfe", b"\x1b[2Jplain", b"null", b"[]",
    b'"text"', b'{"result": {"indexType": 5, "dimension": "x", "similarityFunction": []}}',
    b'{"result": {"indexType": "DENSE"}}', b'{"result": []}', b'{"orders": null}',
    b'{"orders": "many"}',
]  # fmt: skip


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("service", ["kv", "vector", "queue", "broker"])
def test_whatever_a_service_answers_is_compared_or_refused(
    serve: Serve, capsys: pytest.CaptureFixture[str], tmp_path: Path, service: str
) -> None:
    record, page = tmp_path / "found.json", tmp_path / "found.html"
    files = ["--json", str(record), "--html", str(page)]
    for body in HOSTILE:
        line = ["verify", f"--{service}", serve(answered(body)), "--token", f"u:{TOKEN}", "--yes"]
        code = main([*line, "--broker-topic", "orders", *files])
        assert code in (command.EXIT_DIFFERS, command.EXIT_UNREACHABLE), body
        out, _ = capsys.readouterr()
        assert "\x1b" not in out
        if code == command.EXIT_DIFFERS:
            json.loads(record.read_text(encoding="utf-8"))


@settings(suppress_health_check=list(HealthCheck), max_examples=cases(10))
@given(
    *[
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda of: st.lists(of) | st.dictionaries(st.text(), of),
        )
    ]
    * 2
)
def test_any_two_answers_can_be_compared(real: Any, fake: Any) -> None:
    for how in ("exact", "near", "shape", "sorted", "idle", "scan-pairs"):
        step = ScenarioStep("POST", "/", json=["GET"], compare=how)
        for left, right in ((real, fake), ({"result": real}, {"result": fake})):
            difference(
                step, Reply(200, "application/json", left), Reply(200, "application/json", right)
            )


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "reply",
    [
        b"$3000000000\r\n" + b"x" * 1000, b"$x\r\n", b":" + b"9" * 5000 + b"\r\n",
        b"*1\r\n" * 5000, b"*3000000000\r\n", b"?\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
        b"-ERR no\r\n", b"+OK\r\n" * 100, b"",
    ],
)  # fmt: skip
def test_whatever_a_redis_answers_is_refused(
    serve: Serve, capsys: pytest.CaptureFixture[str], reply: bytes
) -> None:
    url = serve(sending(reply)).replace("http", "redis")
    assert compared(url, "--quiet") == command.EXIT_UNREACHABLE
    assert "cannot be used" in capsys.readouterr().err


@pytest.mark.usefixtures("short")
def test_nothing_that_is_written_holds_a_credential(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The service returns the credentials in its answers and errors."""
    with Cloud() as cloud:
        kv = cloud.kv_server(token=TOKEN)
        body = {"result": f"Bearer {TOKEN}", TOKEN: f"https://ada:{TOKEN}@x.test?access_token=abc"}
        kv.faults.respond(200, body, command="GET")
        kv.faults.respond(200, {"result": [TOKEN]}, command="ECHO", content_type=TOKEN)
        record, page = tmp_path / "found.json", tmp_path / "found.html"
        files = ["--html", str(page), "--json", str(record)]
        assert compared(kv.url, *files) == command.EXIT_DIFFERS
        kv.faults.respond(429, {"error": TOKEN})
        compared(kv.url)
        index = cloud.vector_index()
        index.faults.respond(401, {"error": f"no such token: {TOKEN}"})
        url = index.url.replace("://", f"://ada:{TOKEN}@")
        assert main(["verify", "--vector", url, "--token", TOKEN, "--yes"]) == 3
        out, err = capsys.readouterr()
    for text in (out, err, record.read_text(), page.read_text()):
        assert HIDDEN in text
        for secret in (TOKEN, "access_token=abc", "ada:"):
            assert secret not in text


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("redis://127.0.0.1:1", 3),
        ("redis://ada:a-password-of-it@127.0.0.1:1", 3),
        ("unix:///none/such", 3),
        ("http://127.0.0.1:1", 3),
        ("http://", 3),
        ("redis://127.0.0.1:99999", 2),
        ("redis://ada:a-password-of-it@127.0.0.1:port", 2),
        ("http://[::1", 2),
        ("a-password-of-it", 2),
    ],
)
def test_an_address_where_nobody_answers(
    capsys: pytest.CaptureFixture[str], url: str, code: int
) -> None:
    assert compared(url, "--quiet") == code
    err = capsys.readouterr().err
    assert "a-password" not in err
    assert err.splitlines()[-1].startswith("pytest-fakecloud: ")


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_sent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for option in ("--json", "--html"):
        assert compared("http://127.0.0.1:1", option, str(tmp_path)) == command.EXIT_USAGE
        assert "cannot write" in capsys.readouterr().err


# -- interruptions ---------------------------------------------------------------------------------


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(delivery="driven") as opened:
        yield opened


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_an_interrupted_run_leaves_nothing_behind(cloud: Cloud, steps: int) -> None:
    kv, bounds = cloud.kv_server(), Bounds()
    kv.faults.call(lambda _: bounds.interrupt(), command="SET", skip=steps)
    with pytest.raises(Interrupted):
        verify(Target("kv", kv.url, kv.token), bounds=bounds)
    assert len(kv.journal.calls().where(command="SET")) == steps + 1
    assert kv.keys() == []


def test_what_cannot_be_taken_away_is_named(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "CLEAN_SECONDS", 0.3)
    kv = cloud.kv_server()
    kv.faults.hang(command="DEL")
    plan_only(monkeypatch, "## one\nSET @a 1")
    with pytest.raises(
        ServiceUnreachable, match=r"names that begin with verify_.* may be left.* end in time"
    ):
        verify(Target("kv", kv.url, kv.token))
    (key,) = kv.keys()
    assert key.startswith("verify_")


posix = pytest.mark.skipif(os.name == "nt", reason="signals are different there")


@posix
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("hangs", [False, True], ids=["it answers", "it hangs"])
def test_a_signal_cleans_up_and_ends_it(cloud: Cloud, number: int, hangs: bool) -> None:
    kv = cloud.kv_server()
    reached = threading.Event()
    kv.faults.call(lambda _: reached.set(), command="SET", skip=3)
    if hangs:
        kv.faults.hang(command="SET", skip=4)
    else:
        kv.faults.delay(0.05)
    with started(kv) as process:
        assert reached.wait(30)
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "interrupted" in err
    assert "Traceback" not in err
    assert kv.keys() == []


@posix
@pytest.mark.slow
def test_a_server_that_hangs_for_good_holds_nobody(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    reached = threading.Event()
    kv.faults.call(lambda _: reached.set(), command="SET", skip=3)
    kv.faults.hang(skip=12)
    with started(kv) as process:
        assert reached.wait(30)
        began = monotonic()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert monotonic() - began < 10
    assert "Data with names that begin with verify_" in err or kv.keys() == []


def started(kv: Any) -> subprocess.Popen[str]:
    """Start ``verify`` in its own process."""
    line = ["verify", "--kv", kv.url, "--token", kv.token, "--yes", "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest_fakecloud", *line],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
