"""WSGI applications behind a mount: valid and invalid uses of the response."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud.http.hub import Hub

from ..demo import Raw, Response

App = Callable[[dict[str, Any], Any], Any]
Ask = Callable[..., tuple[Response, list[BaseException], bool]]
PLAIN = [("Content-Type", "text/plain")]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Mount an application for one request; return the answer, the error, and if it ended."""
    hub = Hub()

    def ask(app: App, method: str = "GET", version: str = "1.1") -> Any:
        mount = hub.mount(app)
        failed: list[BaseException] = []
        mount.on_error.append(failed.append)
        with Raw(mount.address) as raw:
            raw.send(f"{method} / HTTP/{version}\r\nHost: h\r\n\r\n")
            reply = raw.reply(head_only=method == "HEAD")
            errors = list(failed)
            try:  # a second request shows whether the connection is still open
                ended = not raw.get("/", method=method).status
            except (EOFError, ConnectionError):
                ended = True
        mount.close()
        return reply, errors, ended

    yield ask
    hub.stop()


def test_a_body_that_arrives_after_its_head() -> None:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", PLAIN)
        return [environ["wsgi.input"].read()]

    hub = Hub()
    mount = hub.mount(app)
    with Raw(mount.address) as raw:
        raw.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert raw.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.send("body")
        assert raw.reply().body == b"body"
    hub.stop()


def test_what_is_written_comes_first(ask: Ask) -> None:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        write = start("200 OK", PLAIN)
        write(b"one, ")
        write(b"")
        return [b"two"]

    reply, failed, ended = ask(app)
    assert (reply.status, reply.body, failed, ended) == (200, b"one, two", [], False)
    assert reply.header("Transfer-Encoding") == "chunked"


def test_a_generator_of_nothing_has_a_length(ask: Ask) -> None:
    def app(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        start("200 OK", PLAIN)
        yield from ()

    reply, _, ended = ask(app)
    assert (reply.body, reply.header("Content-Length"), ended) == (b"", "0", False)


@pytest.mark.parametrize(("length", "ended"), [("3", False), ("4", True)])
def test_a_length_that_is_wrong_ends_the_connection(ask: Ask, length: str, ended: bool) -> None:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", [*PLAIN, ("Content-Length", length)])
        return [b"one"]

    reply, failed, closed = ask(app)
    assert (reply.body, reply.complete, failed, closed) == (b"one", not ended, [], ended)


@pytest.mark.parametrize(("length", "ended"), [("3", False), ("4", True), ("2", True)])
def test_a_wrong_length_of_a_generator_ends_the_connection(
    ask: Ask, length: str, ended: bool
) -> None:
    def app(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        start("200 OK", [*PLAIN, ("Content-Length", length)])
        yield b"o"
        yield b"ne"

    reply, failed, closed = ask(app)
    assert (reply.body, failed, closed) == (b"one"[: int(length)], [], ended)


def test_headers_of_the_application_stay_its_own(ask: Ask) -> None:
    date = "Thu, 01 Jan 2026 00:00:00 GMT"

    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", [("Date", date), ("Connection", "keep-alive"), ("X-A", "1")])
        return [b"x"]

    reply, _, ended = ask(app)
    assert [value for name, value in reply.headers if name == "Date"] == [date]
    assert (reply.header("X-A"), ended) == ("1", False)


def test_an_application_may_end_the_connection(ask: Ask) -> None:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", [("Connection", "close")])
        return [b"x"]

    reply, _, ended = ask(app)
    assert (reply.header("Connection"), ended) == ("close", True)


def test_what_has_failed_before_the_head_may_be_said_otherwise(ask: Ask) -> None:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", PLAIN)
        try:
            raise ValueError("too late")
        except ValueError:
            start("418 Teapot", [("X-Why", "value")], sys.exc_info())
        return [b"x"]

    reply, failed, _ = ask(app)
    assert (reply.status, reply.header("X-Why"), reply.body) == (418, "value", b"x")
    assert (reply.header("Content-Type"), failed) == (None, [])


def test_what_has_failed_after_the_head_ends_the_answer(ask: Ask) -> None:
    def app(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        start("200 OK", PLAIN)
        yield b"half"
        try:
            raise ValueError("too late")
        except ValueError:
            start("500 Oh", PLAIN, sys.exc_info())
        yield b"never"

    reply, failed, ended = ask(app)
    assert (reply.body, reply.complete, ended) == (b"half", False, True)
    assert [str(error) for error in failed] == ["too late"]


def test_an_application_that_forgets_to_start(ask: Ask) -> None:
    for forgetful in (lambda environ, start: [b"x"], lambda environ, start: iter([b"x"])):
        reply, failed, ended = ask(forgetful)
        assert (reply.status, reply.body, ended) == (500, b"the application failed\n", False)
        assert [str(error) for error in failed] == ["the application did not call start_response"]


@pytest.mark.parametrize("error", [ConnectionRefusedError("a database"), ssl.SSLError("a peer")])
def test_an_application_whose_own_connection_fails(ask: Ask, error: Exception) -> None:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        raise error

    reply, failed, ended = ask(app)
    assert (reply.status, failed, ended) == (500, [error], False)


def test_an_application_with_a_header_that_is_not_a_string(ask: Ask) -> None:
    def app(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        start("200 OK", [("X-Count", 5)])
        yield b"x"

    reply, failed, ended = ask(app)
    assert (reply.status, reply.body, ended) == (500, b"the application failed\n", False)
    assert [type(error) for error in failed] == [AttributeError]


def test_an_application_that_starts_twice(ask: Ask) -> None:
    def app(environ: dict[str, Any], start: Any) -> list[bytes]:
        start("200 OK", PLAIN)
        start("200 OK", PLAIN)
        return []

    reply, failed, _ = ask(app)
    assert reply.status == 500
    assert [str(error) for error in failed] == ["start_response was called twice"]
