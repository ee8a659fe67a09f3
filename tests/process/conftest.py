"""Seven ways to send a request, and what they raise without a response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import httpx2
import pytest
import requests
import urllib3

Answered = tuple[int, dict[str, str], bytes]
Send = Callable[..., Answered]


def by_requests(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> Answered:
    answer = requests.request(method, url, headers=headers, data=body, timeout=20)
    assert answer.url == answer.request.url
    assert answer.url.rstrip("/") == url
    return answer.status_code, dict(answer.headers), answer.content


def by_session(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> Answered:
    options = {"headers": headers, "data": body, "timeout": 20, "stream": True}
    with requests.Session() as session, session.request(method, url, **options) as answer:  # type: ignore[arg-type]
        return answer.status_code, dict(answer.headers), b"".join(answer.iter_content(3))


def by_httpx(method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> Answered:
    answer = httpx.request(method, url, headers=headers, content=body)
    assert str(answer.request.url) == url
    return answer.status_code, dict(answer.headers), answer.content


def by_httpx_async(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> Answered:
    async def send() -> Answered:
        async with httpx.AsyncClient() as client:
            answer = await client.request(method, url, headers=headers, content=body)
            return answer.status_code, dict(answer.headers), answer.content

    return asyncio.run(send())


def by_httpx2(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> Answered:
    answer = httpx2.request(method, url, headers=headers, content=body)
    assert str(answer.request.url) == url
    assert isinstance(answer, httpx2.Response)
    return answer.status_code, dict(answer.headers), answer.content


def by_httpx2_async(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> Answered:
    async def send() -> Answered:
        async with httpx2.AsyncClient() as client:
            answer = await client.request(method, url, headers=headers, content=body)
            return answer.status_code, dict(answer.headers), answer.content

    return asyncio.run(send())


def by_urllib3(
    method: str, url: str, headers: dict[str, str], body: bytes | None = None
) -> Answered:
    with urllib3.PoolManager(retries=False) as pool:
        answer = pool.request(method, url, headers=headers, body=body)
        return answer.status, dict(answer.headers), answer.data


GONE = (
    requests.RequestException, httpx.TransportError, httpx2.TransportError,
    urllib3.exceptions.HTTPError,
)  # fmt: skip
CLIENTS: list[Send] = [
    by_requests, by_session, by_httpx, by_httpx_async, by_httpx2, by_httpx2_async, by_urllib3,
]  # fmt: skip


@pytest.fixture(params=CLIENTS, ids=lambda client: client.__name__.removeprefix("by_"))
def send(request: pytest.FixtureRequest) -> Send:
    client: Send = request.param
    return client
