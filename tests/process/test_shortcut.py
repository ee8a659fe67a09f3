"""The in-process shortcut compared with the socket: result, exception and journal agree."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Literal

import httpx
import pytest
import requests
import trio
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import SKIP_HEADER, Retry

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.core.calls import Headers
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.process.inprocess import is_plain, sent_headers
from pytest_fakecloud.process.shortcut import Head, NoAnswer, Shortcut

Case = Callable[[KVServer], object]
Transport = Literal["socket", "inprocess"]
TRANSPORTS: list[Transport] = ["socket", "inprocess"]


def both(case: Case) -> list[tuple[object, object, bool]]:
    """Return a case's result both ways, with its journal and whether it used a socket."""
    results: list[tuple[object, object, bool]] = []
    for transport in TRANSPORTS:
        with Cloud(seed=1, now="2026-01-01T00:00:00Z", transport=transport) as cloud:
            kv = cloud.kv_server(token="the-token-of-the-test")
            try:
                outcome = case(kv)
            except Exception as error:
                outcome = type(error), str(error)
            port = kv.url.rpartition(":")[2]
            text = repr(outcome).replace(port, "PORT")
            text = re.sub(r"0x[0-9a-f]+|\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", "...", text)
            calls = kv.journal.calls()
            journal = [
                (
                    call.method, call.target, call.request_body, call.status, call.response_body,
                    call.route, call.facts, call.outcome, call.at_us,
                    sorted((n.lower(), v.replace(port, "PORT")) for n, v in call.request_headers.pairs),
                )
                for call in calls
            ]  # fmt: skip
            socket = any(call.client is not None and call.client[1] for call in calls)
            assert not [violation for violation in cloud.violations() if violation.kind == "bug"]
            results.append((text, journal, socket))
    return results


def agree(case: Case) -> bool | None:
    """Assert that both ways agree; return if the second skipped the socket, None if no call."""
    by_socket, in_process = both(case)
    assert in_process[:2] == by_socket[:2]
    return not in_process[2] if in_process[1] else None


def of_requests(answer: requests.Response) -> object:
    raw = answer.raw
    return (
        answer.status_code, answer.reason, list(answer.headers.items()), answer.content, answer.url,
        answer.encoding, answer.history, raw.version, raw.closed, raw.reason,
    )  # fmt: skip


def of_httpx(answer: httpx.Response) -> object:
    return (
        answer.status_code, answer.reason_phrase, answer.headers.raw, answer.content,
        str(answer.url), answer.http_version, answer.encoding, answer.num_bytes_downloaded,
        answer.is_closed, sorted(answer.extensions.keys() - {"network_stream"}),
    )  # fmt: skip


def of_urllib3(answer: urllib3.BaseHTTPResponse) -> object:
    return (
        answer.status, answer.reason, list(answer.headers.items()), answer.data, answer.version,
        answer.geturl(), answer.closed, answer.retries,
    )  # fmt: skip


def by_requests(method: str, url: str, headers: dict[str, Any], body: Any, **more: Any) -> object:
    return of_requests(
        requests.request(method, url, headers=headers, data=body, **{"timeout": 5, **more})
    )


def by_httpx(method: str, url: str, headers: dict[str, Any], body: Any, **more: Any) -> object:
    return of_httpx(httpx.request(method, url, headers=headers, content=body, **more))


def by_async(method: str, url: str, headers: dict[str, Any], body: Any, **more: Any) -> object:
    async def send() -> object:
        async with httpx.AsyncClient() as client:
            answer = await client.request(method, url, headers=headers, content=body, **more)
            return of_httpx(answer)

    return asyncio.run(send())


def by_urllib3(method: str, url: str, headers: dict[str, Any], body: Any, **more: Any) -> object:
    with urllib3.PoolManager(retries=False) as pool:
        options = {"timeout": 5, **more}
        return of_urllib3(pool.request(method, url, headers=headers, body=body, **options))


CLIENTS = [by_requests, by_httpx, by_async, by_urllib3]
Send = Callable[..., object]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.__name__.removeprefix("by_"))
def send(request: pytest.FixtureRequest) -> Send:
    client: Send = request.param
    return client


@pytest.mark.parametrize(
    ("method", "path", "body", "skips"),
    [
        ("GET", "/get/k", None, True), ("POST", "/", b'["SET","k","v"]', True),
        ("POST", "/", '["SET","k","é"]', True),
        ("POST", "/pipeline", b'[["INCR","n"],["NOSUCH"]]', True), ("POST", "/", b"no json", True),
        ("PUT", "/set/k", b"body \xff bytes", True), ("HEAD", "/get/k", None, True),
        ("OPTIONS", "/", None, True), ("PATCH", "/", b"x", True), ("DELETE", "/nosuch", None, True),
        ("GET", "//get//k", None, True), ("GET", "/get/é%2F?x=1&x=2", None, True),
        ("GET", "/get/k?", None, True), ("FOO", "/get/k", None, False), ("TRACE", "/", None, False),
        ("CONNECT", "/", None, False), ("POST", "/", b"x" * (5 << 20), False),
        ("GET", "/get/" + "k" * 9000, None, False),
    ],
)  # fmt: skip
def test_requests(send: Send, method: str, path: str, body: Any, skips: bool | None) -> None:
    assert agree(lambda kv: send(method, kv.url + path, kv.headers, body)) is skips


def test_the_same_headers_take_the_same_way_each_time(send: Send) -> None:
    headers = {f"X-{n}": "v" * 400 for n in range(60)}

    def twice(kv: KVServer) -> list[object]:
        return [send("GET", f"{kv.url}/get/k", {**kv.headers, **headers}, None) for _ in range(2)]

    assert agree(twice) is False


def test_a_sync_token_changes_with_each_request(send: Send) -> None:
    def with_tokens(kv: KVServer) -> list[object]:
        names = "Upstash-Sync-Token", "Service-Sync-Token"
        sent = [{name: str(token)} for name in names for token in (1, 2, 9)]
        return [send("GET", f"{kv.url}/get/k", {**kv.headers, **headers}, None) for headers in sent]

    assert agree(with_tokens) is True


@pytest.mark.parametrize(("port", "host"), [(80, "h"), (8080, "h:8080")])
def test_the_usual_port_is_not_part_of_the_host_header(port: int, host: str) -> None:
    pool = SimpleNamespace(scheme="http", host="h", port=port)
    assert ("Host", host) in (sent_headers(pool, "GET", {}, None) or [])


@pytest.mark.parametrize(
    ("headers", "skips"),
    [
        ({}, True),
        ({"X-ODD-case": "1", "x-other": "a\tb"}, True),
        ({"X": ""}, True),
        ({"X": "b" * 600}, True),
        ({"Host": "example.com"}, True),
        ({"Authorization": "Bearer wrong"}, True),
        ({"X": "c" * 20_000}, False),
        ({f"X-{n}": "1" for n in range(70)}, False),
        ({"Connection": "close"}, False),
        ({"Connection": "Upgrade", "Upgrade": "h2c"}, False),
        ({"Upstash-Sync-Token": "17"}, True),
        ({"UPSTASH-SYNC-TOKEN": "017"}, True),
        ({"service-sync-token": "17", "Upstash-Sync-Token": "18"}, True),
        ({"X": "é"}, None),  # libraries treat it differently
        ({"X": "中"}, None),
        ({"X": "a\r\nY: b"}, None),
        ({"X": "a\0"}, None),
        ({"X": " a "}, None),
        ({"X Y": "1"}, None),
        ({"": "1"}, None),
        ({"Content-Length": "3"}, None),
        ({"Content-Length": "x"}, None),
        ({"Transfer-Encoding": "gzip"}, None),
        ({"Expect": "something"}, None),
        ({"X": 5}, None),
        ({"X": b"bytes"}, None),
        ({"X": None}, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_headers(send: Send, headers: dict[str, Any], skips: bool | None) -> None:
    skipped = agree(
        lambda kv: send("POST", kv.url, {**kv.headers, **headers}, b'["PING"]', timeout=1)
    )
    if skips is not None:
        assert skipped is skips


def pieces() -> Iterator[bytes]:
    yield b'["PI'
    yield b'NG"]'


def halfway() -> Iterator[bytes]:
    yield b'["PI'
    raise ZeroDivisionError("halfway")


@pytest.mark.parametrize(
    "make",
    [
        pieces, halfway, lambda: io.BytesIO(b'["PING"]'), lambda: bytearray(b'["PING"]'),
        lambda: "\ud800", lambda: 5,
    ],
    ids=["generator", "broken off", "file", "bytearray", "surrogate", "number"],
)  # fmt: skip
def test_bodies(send: Send, make: Callable[[], Any]) -> None:
    agree(lambda kv: send("POST", kv.url, kv.headers, make()))


@pytest.mark.parametrize("timeout", [0, -1, 3, None, (2, 3), (1, 2, 3), (1, 0), "soon", True])
def test_timeouts(timeout: Any) -> None:
    for send in (by_requests, by_urllib3):
        agree(lambda kv, send=send: send("GET", kv.url, kv.headers, None, timeout=timeout))  # type: ignore[misc]


@pytest.mark.parametrize("send", [by_httpx, by_async])
def test_timeouts_without_time(send: Send) -> None:
    for case in both(lambda kv: send("GET", kv.url, kv.headers, None, timeout=0)):
        assert "Error" in str(case[0]) or "Timeout" in str(case[0])
        assert case[1] == []


NOBODY = "http://127.0.0.1:9"


def test_a_proxy_of_the_clients_own_is_asked() -> None:
    def by_proxied_async(kv: KVServer) -> object:
        async def get() -> object:
            async with httpx.AsyncClient(proxy=NOBODY) as client:
                return of_httpx(await client.get(f"{kv.url}/ping", headers=kv.headers))

        return asyncio.run(get())

    cases: list[Case] = [
        lambda kv: by_requests("GET", kv.url, kv.headers, None, proxies={"http": NOBODY}),
        lambda kv: by_httpx("GET", kv.url, kv.headers, None, proxy=NOBODY),
        by_proxied_async,
        lambda kv: urllib3.ProxyManager(NOBODY).request("GET", kv.url, retries=False),
    ]
    for case in cases:
        assert agree(case) is None


def test_a_socket_of_the_clients_own_is_taken() -> None:
    request = httpx.Request("GET", "http://127.0.0.1/")
    with httpx.HTTPTransport() as usual, httpx.HTTPTransport(uds="/run/own.sock") as own:
        assert is_plain(usual, request)
        assert not is_plain(own, request)


def test_a_client_that_wants_to_be_told_of_its_connection_gets_one() -> None:
    def case(kv: KVServer) -> object:
        messages: list[str] = []
        with httpx.Client() as client:
            extensions = {"trace": lambda name, info: messages.append(name)}
            client.get(f"{kv.url}/ping", headers=kv.headers, extensions=extensions)
        return messages

    assert agree(case) is False


@pytest.mark.parametrize("raises", [True, False])
def test_requests_tries_again_as_it_is_told(raises: bool) -> None:
    def case(kv: KVServer) -> object:
        retries = Retry(2, status_forcelist=[400], raise_on_status=raises)
        with requests.Session() as session:
            session.mount("http://", HTTPAdapter(max_retries=retries))
            return session.get(f"{kv.url}/nosuch", headers=kv.headers).status_code

    assert agree(case) is True
    assert len(both(case)[0][1]) == 3  # type: ignore[arg-type]


def test_urllib3_tries_again_as_it_is_told() -> None:
    def case(kv: KVServer) -> object:
        with urllib3.PoolManager(retries=Retry(2, status_forcelist=[400])) as pool:
            return pool.request("GET", f"{kv.url}/nosuch", headers=kv.headers)

    assert agree(case) is True


def test_headers_that_urllib3_adds_are_added_in_process() -> None:
    def bare(kv: KVServer) -> object:
        with requests.Session() as session:
            session.headers.clear()
            return of_requests(session.get(f"{kv.url}/ping", headers=kv.headers))

    def skipping(name: str) -> Case:
        return lambda kv: by_urllib3(
            "GET", f"{kv.url}/ping", {**kv.headers, name: SKIP_HEADER}, None
        )

    assert agree(bare) is True
    assert agree(skipping("User-Agent")) is True
    assert agree(skipping("X")) is None


class Named(HTTPAdapter):
    def add_headers(self, request: Any, **options: Any) -> None:
        request.headers["X-Added"] = "by the adapter"


def test_what_an_adapter_of_the_applications_own_does_is_done() -> None:
    def case(kv: KVServer) -> object:
        with requests.Session() as session:
            session.mount("http://", Named())
            return of_requests(session.get(f"{kv.url}/ping", headers=kv.headers))

    assert agree(case) is True


def test_a_connection_goes_back_to_its_pool_when_the_answer_is_read() -> None:
    def case(kv: KVServer) -> object:
        _, host, port = kv._mount.origin
        seen = []
        with urllib3.HTTPConnectionPool(host, port, maxsize=1, block=True, timeout=5) as pool:
            for _ in range(3):
                answer = pool.urlopen(
                    "GET", "/ping", headers=kv.headers, preload_content=False, pool_timeout=1
                )
                seen.append((answer.read(3), answer.closed, answer.read(), answer.closed))
            return seen, pool.num_requests

    assert agree(case) is True

    def session(kv: KVServer) -> object:
        adapter = HTTPAdapter(pool_maxsize=1, pool_block=True, max_retries=1)
        with requests.Session() as session:
            session.mount("http://", adapter)
            return [
                session.get(f"{kv.url}/ping", headers=kv.headers, timeout=5).status_code
                for _ in range(3)
            ]

    assert agree(session) is True


def test_other_tasks_have_their_turn_while_one_polls() -> None:
    with Cloud(seed=1, transport="inprocess") as cloud:
        kv = cloud.kv_server()

        async def main() -> int:
            async def set_later() -> None:
                await asyncio.sleep(0)
                kv.execute("SET", "done", "1")

            async with httpx.AsyncClient(headers=kv.headers) as client:
                other = asyncio.create_task(set_later())
                for turn in range(100):
                    answer = await client.get(f"{kv.url}/get/done")
                    if answer.json()["result"]:
                        await other
                        return turn
            raise AssertionError("the other task never had its turn")

        assert asyncio.run(main()) > 0


def test_a_cancelled_task_sends_nothing() -> None:
    with Cloud(seed=1, transport="inprocess") as cloud:
        kv = cloud.kv_server()

        async def by_trio() -> bool:
            async with httpx.AsyncClient(headers=kv.headers) as client:
                with trio.move_on_after(0) as scope:
                    await client.get(f"{kv.url}/set/k/v")
                assert (await client.get(f"{kv.url}/get/other")).is_success
            return scope.cancelled_caught

        async def by_asyncio() -> None:
            async with httpx.AsyncClient(headers=kv.headers) as client:
                async with asyncio.timeout(0):
                    await client.get(f"{kv.url}/set/k/v")

        assert trio.run(by_trio)
        with pytest.raises(TimeoutError):
            asyncio.run(by_asyncio())
        assert kv.value("k") is None


class _App:
    """An application that answers every request with the same response."""

    faults = ()

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def respond(self, request: Request, *, in_client: bool) -> Any:
        return self._answer


class _Mount:
    def __init__(self, answer: Any) -> None:
        self.app = _App(answer)


@pytest.mark.parametrize(
    ("answer", "body", "names"),
    [
        (Answer(b"", 204, (), None), b"", ["Date"]),
        (Answer(b"x", 200, (), None), b"x", ["Date", "Content-Length"]),
    ],
)
def test_an_answer_has_only_the_headers_that_its_body_needs(
    answer: Answer, body: bytes, names: list[str]
) -> None:
    mount: Any = _Mount(answer)
    status, headers, content = Shortcut(mount).send(Request("GET", "/"), b"")
    assert (status, content, [name for name, _ in headers]) == (answer.status, body, names)


def test_a_shortcut_does_not_keep_its_fake_alive() -> None:
    mount: Any = _Mount(None)
    shortcut = Shortcut(mount)
    del mount
    assert shortcut.plan("GET", "/", Head(Headers(), {}, 0)) is None
    with pytest.raises(NoAnswer, match="the fake is gone"):
        shortcut.send(Request("GET", "/"), b"")
