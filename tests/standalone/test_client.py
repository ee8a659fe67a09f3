"""The client of the control API says what is wrong with an address, a token or a server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pytest_fakecloud import ContractError
from pytest_fakecloud.standalone.commands import ControlClient

from .conftest import Server


@contextmanager
def other_server(answers: Callable[[str], bytes | None]) -> Iterator[str]:
    """Start a server of another kind, whose answer depends on the path; None means no answer."""
    stop = threading.Event()

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = answers(self.path)
            if answer is None:
                stop.wait(20)
                return
            self.send_response(404 if b"not found" in answer else 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        stop.set()
        server.shutdown()


@pytest.mark.slow
def test_a_token_is_needed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_FAKECLOUD_TOKEN", raising=False)
    with pytest.raises(ContractError, match="needs its control token"):
        ControlClient(server.url)
    with pytest.raises(ContractError, match="rejected GET /state"):
        ControlClient(server.url, "wrong").fakes()
    monkeypatch.setenv("PYTEST_FAKECLOUD_TOKEN", server.token)
    with ControlClient(server.url) as client:
        assert len(client.fakes()) == 4


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://127.0.0.1:99999", "", "127.0.0.1:9"])
def test_an_address_without_a_server(url: str) -> None:
    with pytest.raises(ContractError, match="no stand-alone server responds") as error:
        ControlClient(url, "x").fakes()
    assert "HTTPConnection" not in str(error.value)


def test_a_server_that_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Thread(target=lambda: server.accept()[0].close())
        closing.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ContractError, match=r"responds at .* \(.*onnection"):
            ControlClient(url, "x").fakes()
        closing.join()


def test_values_that_are_not_an_address() -> None:
    with pytest.raises(ContractError, match="is not a URL"):
        ControlClient("http://[::1", "x")


@pytest.mark.parametrize("token", ["a\nb", "☃", "ü"])
def test_values_that_are_not_a_token(token: str) -> None:
    with pytest.raises(ContractError, match="is not a control token"):
        ControlClient("http://127.0.0.1:9", token)


@pytest.mark.parametrize(
    "answer",
    [
        b"[]", b"5", b"null", b'"x"', b"{}", b'["not found"]', b'"not found"', b'{"fakes":5}',
        b'{"fakes":[{}]}', b"<html>",
    ],
)  # fmt: skip
def test_another_kind_of_server(answer: bytes) -> None:
    with other_server(lambda _: answer) as url, ControlClient(url, "x") as client:
        with pytest.raises(ContractError, match=r"not a control API|rejected GET /state: "):
            client.fakes()
        with pytest.raises(ContractError, match=r"not a control API|rejected POST /call: "):
            client.call("kv_server", "value", "k")


def test_a_server_that_hangs() -> None:
    with (
        other_server(lambda _: None) as url,
        ControlClient(url, "x") as client,
        pytest.raises(ContractError, match=r"did not answer GET /state within 0\.05 s"),
    ):
        client.ask("GET", "/state", within=0.05)


@pytest.mark.slow
def test_an_exception_of_a_method_is_raised(server: Server) -> None:
    with ControlClient(server.url, server.token) as client:
        assert client.fake("kv") == client.fake("kv_server") == "kv_server"
        assert client.call("kv_server", "execute", "SET", "k", "v") == "OK"
        with pytest.raises(ContractError, match="ERR Command is not available"):
            client.call("kv_server", "execute", "NO")
        with pytest.raises(ContractError, match="'brokr' is not a fake; did you mean 'broker'"):
            client.fake("brokr")
