"""Test ``Destination``, whose pytest-httpserver gets its requests from the cloud's server."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.capture.fake import Destination


@pytest.fixture
def destination() -> Iterator[Destination]:
    with Destination(Context.alone(now="2026-01-01T00:00:00Z")) as destination:
        yield destination


def test_expectations_in_the_language_of_pytest_httpserver(destination: Destination) -> None:
    destination.server.expect_request("/json", method="POST", json={"a": 1}).respond_with_json(
        {"b": 2}
    )
    answer = requests.post(destination.server.url_for("/json"), json={"a": 1})
    assert (answer.status_code, answer.json()) == (200, {"b": 2})
    assert destination.server.url_for("x") == f"{destination.url}/x"
    destination.server.assert_request_made(destination.server.create_matcher("/json"))
    assert destination.server.log[0][0].get_json() == {"a": 1}
    destination.server.check()
    assert destination._unmet() == []


def test_the_request_is_whole(destination: Destination) -> None:
    seen: list[Request] = []

    def handler(request: Request) -> Response:
        seen.append(request)
        return Response(b"\x00", 201, {"X-A": "1"}, content_type="application/x-raw")

    destination.server.expect_request("/a b/c").respond_with_handler(handler)
    answer = requests.put(
        destination.url + "/a%20b%2Fc?x=%201&x=2", data=b"\xff", headers={"X-B": "2"}
    )
    assert (answer.status_code, answer.content, answer.headers["X-A"]) == (201, b"\x00", "1")
    assert answer.headers["Content-Type"] == "application/x-raw"
    (request,) = seen
    assert request.url == destination.url + "/a%20b/c?x=%201&x=2"
    assert request.args.getlist("x") == [" 1", "2"]
    assert (request.method, request.get_data(), request.headers["x-b"]) == ("PUT", b"\xff", "2")
    assert request.remote_addr == "127.0.0.1"


def test_unmet_expectations(destination: Destination) -> None:
    def broken(request: Request) -> Response:
        raise ZeroDivisionError

    destination.server.expect_oneshot_request("/once").respond_with_data("ok")
    destination.server.expect_request("/broken").respond_with_handler(broken)
    assert requests.get(destination.url + "/nowhere").status_code == 500
    assert requests.get(destination.url + "/broken").status_code == 500
    unmet = destination._unmet()
    assert "No handler found for request" in unmet[0]
    assert "a handler raised ZeroDivisionError" in unmet[1]
    assert "the oneshot request was never received" in unmet[2]
    assert len(unmet) == 3


def test_an_ordered_request_that_never_came(destination: Destination) -> None:
    destination.server.expect_ordered_request("/first").respond_with_data("1")
    destination.server.expect_ordered_request("/second").respond_with_data("2")
    requests.get(destination.url + "/first")
    (reason,) = destination._unmet()
    assert "the ordered request was never received" in reason
    assert "/second" in reason


def test_an_expectation_without_an_answer(destination: Destination) -> None:
    destination.server.expect_request("/forgot")
    assert requests.get(destination.url + "/forgot").status_code == 500
    (reason,) = destination._unmet()
    assert "Matching request handler found but no response defined" in reason


def test_a_failing_assertion_in_a_handler(destination: Destination) -> None:
    def handler(request: Request) -> Response:
        raise AssertionError("wrong order")

    destination.server.expect_request("/").respond_with_handler(handler)
    assert requests.get(destination.url + "/").status_code == 500
    (violation,) = destination._left_behind()
    assert violation.kind == "assertion"
    assert (
        "destination: a callback of the test raised AssertionError: wrong order" in violation.text
    )
    assert destination._context.violations == []
    with pytest.raises(AssertionError, match="wrong order"):
        destination.server.check()
    assert destination._left_behind() == []


def test_each_oneshot_serves_one_of_many_at_once(destination: Destination) -> None:
    for number in range(20):
        destination.server.expect_oneshot_request("/x").respond_with_data(str(number))
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: requests.get(destination.url + "/x").text, range(20)))
    assert sorted(map(int, texts)) == list(range(20))
    assert destination._unmet() == []


def test_handlers_run_at_the_same_time(destination: Destination) -> None:
    both = threading.Barrier(2, timeout=5)

    def handler(request: Request) -> Response:
        both.wait()
        return Response("met")

    destination.server.expect_request("/x").respond_with_handler(handler)
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda _: requests.get(destination.url + "/x").text, range(2)))
    assert texts == ["met", "met"]


def test_the_wait_of_pytest_httpserver_works(destination: Destination) -> None:
    destination.server.expect_oneshot_request("/x").respond_with_data("ok")
    with destination.server.wait(timeout=5) as waiting:
        requests.get(destination.url + "/x")
    assert waiting.result


def test_start_and_stop_are_those_of_a_fake(destination: Destination) -> None:
    destination.server.start()
    assert destination.server.is_running()
    destination.server.stop()
    assert not destination.server.is_running()
    assert destination.closed
    with pytest.raises(ContractError, match="is closed"):
        destination.server.start()
    with pytest.raises(requests.ConnectionError):
        requests.get(destination.url)


def test_reset_returns_to_the_baseline(destination: Destination) -> None:
    destination.server.expect_request("/always").respond_with_data("ok")
    destination.set_baseline()
    destination.server.expect_oneshot_request("/once").respond_with_data("ok")
    requests.get(destination.url + "/nowhere")
    destination.reset()
    assert destination._unmet() == []
    assert destination.server.log == []
    assert requests.get(destination.url + "/always").text == "ok"
    assert requests.get(destination.url + "/once").status_code == 500


def test_a_call_by_absolute_form_and_without_host(destination: Destination) -> None:
    import socket

    destination.server.expect_request("/x").respond_with_data("ok")
    port = destination.server.port
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET http://127.0.0.1:%d/x HTTP/1.1\r\nHost: a.b\r\n\r\n" % port)
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET /x HTTP/1.0\r\n\r\n")
        assert b" 200 " in sock.recv(65536).split(b"\r\n")[0]


def test_a_destination_shows_only_what_a_test_can_use(destination: Destination) -> None:
    names = {name for name in dir(destination) if not name.startswith("_")}
    assert names == {
        "assert_called", "assert_not_called", "clock", "close", "closed",
        "faults", "fixture", "intercept", "journal", "name", "on_close", "reset", "restore",
        "server", "service", "set_baseline", "snapshot", "url",
    }  # fmt: skip
    assert isinstance(destination.server, HTTPServer)
    assert not isinstance(destination, HTTPServer)
    with pytest.raises(AttributeError):
        destination.server = None  # type: ignore[misc, assignment]


def test_a_snapshot_of_another_kind(destination: Destination) -> None:
    with Destination(destination._context, name="other") as other:
        destination.restore(other.snapshot())
    with pytest.raises(ContractError, match="is not a snapshot of"):
        destination.restore("x")  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="expect_request"):
        destination.load({})


def post_with_host(receiver: Any, host: str) -> tuple[int, str]:
    """Send a callback with a ``Host`` header to a receiver; return its status and body."""
    address = receiver.url.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(address, timeout=10)) as connection:
        connection.putrequest("POST", "/callback", skip_host=True)
        connection.putheader("Host", host)
        connection.putheader("Content-Length", "2")
        connection.endheaders(b"{}")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize("fixture", ["destination", "callback_capture"])
@pytest.mark.parametrize("host", [
    "[", "[::1", "a:b:c", "a:99999", "127.0.0.1:%zz", "x@[", "x@y", "a/b", "a?b", "a#b", "a b", ":",
])  # fmt: skip
def test_a_host_that_is_none_is_a_bad_request(fixture: str, host: str) -> None:
    with Cloud() as cloud:
        receiver: Any = getattr(cloud, fixture)()
        status, text = post_with_host(receiver, host)
        assert status == 400
        assert f"the Host header {host!r} names no host" in text
        assert receiver.server.log == []
        assert cloud.violations() == []


@pytest.mark.parametrize(
    "host", ["", "127.0.0.1", "[::1]:80", "my_host.", "a.b:1", "\xe4.localhost"]
)
def test_a_host_of_any_name_is_taken(host: str) -> None:
    with Cloud() as cloud:
        receiver = cloud.callback_capture()
        assert post_with_host(receiver, host)[0] == 200
        assert len(receiver.callbacks()) == 1
        assert cloud.violations() == []
