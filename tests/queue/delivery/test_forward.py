"""Test ``destinations.forward()``, which sends deliveries to a server at another address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.model import SECOND, Delivery

from ..edge import Table


@pytest.fixture(scope="module")
def server() -> Iterator[HTTPServer]:
    # One server for all tests: stopping it takes up to half a second.
    with HTTPServer(host="127.0.0.1") as server:
        yield server


@pytest.fixture
def target(server: HTTPServer) -> HTTPServer:
    server.clear()
    server.expect_request("/broken").respond_with_data("broken", 500)
    server.expect_request("").respond_with_handler(
        lambda request: Response(f"{request.full_path} {request.host}", 201)
    )
    return server


def delivery(url: str) -> Delivery:
    headers = [("Content-Type", "text/plain"), ("X-Forwarded-Host", "forged")]
    return Delivery("msg_1", url, "POST", headers, b"hello", 0, 30 * SECOND)


@pytest.mark.parametrize(
    ("prefix", "base", "url", "path"),
    [
        ("https://app.example", "", "https://app.example", "/"),
        ("https://app.example", "", "https://app.example/a/b?c=d&e", "/a/b?c=d&e"),
        ("https://app.example/api", "", "https://app.example/api/x", "/x"),
        ("https://app.example/api/", "/v2/", "https://app.example/api/x?y", "/v2/x?y"),
        ("https://*.example/*", "", "https://b.example/z?q", "/z?q"),
        ("https://*.example/*", "/all", "https://b.example/z?q", "/all"),
        ("*", "", "https://c.example/z", "/z"),
    ],
)
def test_the_rest_of_the_url_stays(
    table: Table, target: HTTPServer, prefix: str, base: str, url: str, path: str
) -> None:
    route = table.forward(prefix, target.url_for("").rstrip("/") + base)
    sent = delivery(url)
    for outcome in (table.deliver(sent), asyncio.run(table.adeliver(sent))):
        assert outcome.status == 201
    request: Request = target.log[0][0]
    query = request.query_string.decode()
    assert request.path + (f"?{query}" if query else "") == path
    assert request.get_data() == b"hello"
    assert request.headers["X-Forwarded-Host"] == sent.url.split("/")[2]
    assert request.headers["X-Forwarded-Proto"] == "https"
    assert request.host == f"127.0.0.1:{target.port}"
    # The route records the published URL, not that of the target.
    assert [attempt.url for attempt in route.deliveries] == [url, url]


def test_the_response_of_the_target_is_returned(table: Table, target: HTTPServer) -> None:
    table.forward("https://app.example", target.url_for(""))
    outcome = table.deliver(delivery("https://app.example/broken"))
    assert (outcome.status, outcome.body, outcome.where) == (500, b"broken", "forward")


def test_a_target_where_nothing_listens(table: Table) -> None:
    table.forward("https://app.example", "http://127.0.0.1:1")
    outcome = table.deliver(delivery("https://app.example/x"))
    assert isinstance(outcome.exception, ConnectionRefusedError)


@pytest.mark.parametrize(
    "wrong", ["127.0.0.1:3000", "ftp://a", "http://a?b=c", "http://*.a", "", None, 5]
)
def test_invalid_targets(table: Table, wrong: str) -> None:
    with pytest.raises(ContractError, match="is not a target; pass an absolute URL"):
        table.forward("https://app.example", wrong)
    with pytest.raises(ContractError, match="is not a destination"):
        table.forward("app.example", "http://127.0.0.1:1")
