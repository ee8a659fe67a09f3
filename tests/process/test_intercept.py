"""A hard-coded origin: a fake answers it for every client, also with other mocking tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import responses
from upstash_redis import Redis

from pytest_fakecloud import Cloud, ContractError, KVServer
from pytest_fakecloud.process.inprocess import origins

from .conftest import GONE, Send, by_httpx, by_httpx2, by_requests, by_urllib3

ORIGIN = "https://example-kv.test"
Get = Callable[..., "tuple[int, bytes]"]


@pytest.fixture
def get(send: Send) -> Get:
    def get(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        status, _, body = send("GET", url, headers)
        return status, body

    return get


@pytest.fixture(params=["socket", "inprocess"])
def kv(request: pytest.FixtureRequest) -> Iterator[KVServer]:
    with Cloud(seed=1, transport=request.param) as cloud:
        server = cloud.kv_server()
        server.load({"k": "v"})
        yield server


def test_the_fake_answers_for_the_origin(get: Get, kv: KVServer) -> None:
    with kv.intercept(ORIGIN):
        assert get(f"{ORIGIN}/get/k", kv.headers) == (200, b'{"result":"v"}')
        assert get(f"{ORIGIN}/get/a%2Fb?x=1", kv.headers)[0] == 400
        assert get(f"{ORIGIN}/get/k", {})[0] == 401
    assert kv.journal.calls()[0].request_headers.get("Host") == "example-kv.test"
    assert kv.journal.calls()[1].target == "/get/a%2Fb?x=1"
    assert not origins.detours


def test_faults_happen_there_too(get: Get, kv: KVServer) -> None:
    with kv.intercept(ORIGIN):
        with kv.faults.respond(503):
            assert get(f"{ORIGIN}/get/k", kv.headers)[0] == 503
        with kv.faults.drop(), pytest.raises(GONE):
            get(f"{ORIGIN}/get/k", kv.headers)
        with kv.faults.truncate(), pytest.raises(GONE):
            get(f"{ORIGIN}/get/k", kv.headers)
        kv.faults.clear()
        assert get(f"{ORIGIN}/get/k", kv.headers)[0] == 200


def test_proxies_are_passed_by(get: Get, kv: KVServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with kv.intercept(ORIGIN):
        assert get(f"{ORIGIN}/get/k", kv.headers)[0] == 200


def test_other_origins_are_not_touched(get: Get, kv: KVServer) -> None:
    with kv.intercept("http://127.0.0.1:9"):
        assert get(f"{kv.url}/get/k", kv.headers)[0] == 200
        assert get("http://127.0.0.1:9/get/k", kv.headers)[0] == 200
    with pytest.raises(GONE):
        get("http://127.0.0.1:9/get/k", kv.headers)


@pytest.mark.parametrize("first", ["intercept", "responses"])
def test_active_responses_are_no_obstacle(get: Get, kv: KVServer, first: str) -> None:
    mock = responses.RequestsMock(assert_all_requests_are_fired=False)
    mock.get("https://elsewhere.test/", body="mocked")
    if first == "responses":
        mock.start()
    with kv.intercept(ORIGIN):
        if first == "intercept":
            mock.start()
        assert get(f"{ORIGIN}/get/k", kv.headers) == (200, b'{"result":"v"}')
        assert requests.get("https://elsewhere.test/", timeout=20).text == "mocked"
        if first == "intercept":
            mock.stop()
    if first == "responses":
        mock.stop()


def test_an_official_client_with_a_hard_coded_address(kv: KVServer) -> None:
    kv.intercept(ORIGIN)
    redis = Redis(ORIGIN, kv.token)
    assert redis.get("k") == "v"
    redis.set("n", 1)
    assert kv.value("n") == "1"


def test_it_ends_with_its_fake(kv: KVServer) -> None:
    interception = kv.intercept(ORIGIN)
    assert repr(interception) == f"<Interception of {ORIGIN}>"
    kv.close()
    assert not origins.detours
    interception.__exit__(None, None, None)


def test_one_origin_has_one_fake(kv: KVServer) -> None:
    with kv.intercept(ORIGIN):
        with pytest.raises(ContractError, match=r"example-kv\.test is already intercepted"):
            kv.intercept(ORIGIN + "/")
        assert by_requests("GET", f"{ORIGIN}/get/k", kv.headers)[0] == 200


@pytest.mark.parametrize(
    "text",
    [
        "example-kv.test", "https://", "ftp://example-kv.test", "https://example-kv.test/path",
        "https://example-kv.test#part", "https://example-kv.test:port", "https://[example-kv.test",
        b"https://example-kv.test", "https://.", None, 3,
    ],
)  # fmt: skip
def test_what_is_no_origin_is_refused(kv: KVServer, text: Any) -> None:
    with pytest.raises(ContractError, match="is not an origin: pass scheme and host"):
        kv.intercept(text)


def test_a_fake_with_tls_is_reached_as_well(get: Get) -> None:
    with Cloud(tls=True) as cloud:
        server = cloud.kv_server()
        with server.intercept(ORIGIN):
            assert get(f"{ORIGIN}/get/k", server.headers)[0] == 200


def test_a_closed_fake_answers_for_nobody(kv: KVServer) -> None:
    before = dict(origins.detours)
    kv.close()
    with pytest.raises(ContractError, match="kv_server is closed and cannot answer for"):
        kv.intercept("https://example-kv.test")
    assert origins.detours == before


@pytest.mark.parametrize("send", [by_requests, by_httpx, by_httpx2, by_urllib3], indirect=True)
@pytest.mark.parametrize(
    ("origin", "asked"),
    [
        ("https://dotted.test.", "https://dotted.test"),
        ("https://dotted.test", "https://dotted.test."),
        ("https://dotted.test.", "https://dotted.test."),
    ],
)
def test_a_complete_name_is_the_same_name(get: Get, origin: str, asked: str) -> None:
    with Cloud() as cloud:
        server = cloud.kv_server()
        with server.intercept(origin):
            assert get(f"{asked}/ping", server.headers) == (200, b'{"result":"PONG"}')
