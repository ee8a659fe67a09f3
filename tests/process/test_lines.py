"""The lines that each call keeps for the history of a failing test."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.process import lines
from pytest_fakecloud.process.lines import Lines


@pytest.fixture(autouse=True)
def without_threads_of_earlier_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that an earlier test left waiting could also have made a call."""
    earlier = sys._current_frames().keys() - {threading.get_ident()}

    def frames() -> dict[int, Any]:
        return {key: top for key, top in sys._current_frames().items() if key not in earlier}

    seen = SimpleNamespace(_getframe=sys._getframe, _current_frames=frames)
    monkeypatch.setattr(lines, "sys", seen)


@pytest.fixture
def kv() -> Iterator[KVServer]:
    with Cloud() as cloud:
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
    httpx.post(kv.url, json=["GET", "article"], headers=kv.headers)


def test_a_call_has_the_lines_of_its_caller_and_of_the_test(kv: KVServer) -> None:
    get_article(kv)
    [names] = functions(kv)
    assert names == ["get_article", "test_a_call_has_the_lines_of_its_caller_and_of_the_test"]
    [call] = kv.journal._recorder.shared.lines.values()
    assert "httpx" in call.library


def test_a_command_on_a_connection_has_lines(kv: KVServer) -> None:
    with redis.Redis.from_url(kv.database_url) as client:
        client.get("article")
    assert functions(kv) == [["test_a_command_on_a_connection_has_lines"]]


def test_a_call_has_no_lines_if_two_threads_run_the_application(kv: KVServer) -> None:
    has_called = threading.Event()
    waiter = threading.Thread(target=lambda: has_called.wait(30))
    waiter.start()
    try:
        get_article(kv)
    finally:
        has_called.set()
        waiter.join()
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
