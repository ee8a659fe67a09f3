"""The lines that each call keeps for the history of a failing test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.process.lines import Lines


@pytest.fixture(params=["inprocess"])
def kv(request: pytest.FixtureRequest) -> Iterator[KVServer]:
    with Cloud(transport=request.param) as cloud:
        cloud.journal._recorder.shared.find_lines = Lines()
        yield cloud.kv_server()


def functions(kv: KVServer) -> list[list[str]]:
    recorded = kv.journal._recorder.shared.lines
    numbers = [call.number for call in kv.journal.calls(command="GET")]
    return [
        [code.co_name for code, _ in recorded[number].places] if number in recorded else []
        for number in numbers
    ]


def get_article(kv: KVServer) -> None:
    requests.post(kv.url, json=["GET", "article"], headers=kv.headers, timeout=10)


def test_a_call_has_the_lines_of_its_caller_and_of_the_test(kv: KVServer) -> None:
    get_article(kv)
    [names] = functions(kv)
    assert names == ["get_article", "test_a_call_has_the_lines_of_its_caller_and_of_the_test"]
    [call] = kv.journal._recorder.shared.lines.values()
    assert "requests" in call.library


@pytest.mark.parametrize("kv", ["socket"], indirect=True)
def test_a_call_over_a_socket_has_no_lines(kv: KVServer) -> None:
    get_article(kv)
    assert functions(kv) == [[]]


def test_a_call_from_an_event_loop_has_no_lines(kv: KVServer) -> None:
    async def get() -> None:
        async with httpx.AsyncClient() as client:
            await client.post(kv.url, json=["GET", "article"], headers=kv.headers)

    asyncio.run(get())
    assert functions(kv) == [[]]


def test_lines_are_forgotten_with_their_calls(kv: KVServer) -> None:
    get_article(kv)
    kv.journal.clear()
    assert not kv.journal._recorder.shared.lines
