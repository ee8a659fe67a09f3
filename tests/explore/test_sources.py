"""The lines of the application that a story shows for each call."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
import redis.asyncio

from pytest_fakecloud import BrokenSchedule, Cloud, KVServer
from pytest_fakecloud.explore.runtime.frames import told_apart


def broken() -> None:
    raise AssertionError("broken")


def test_calls_over_an_asynchronous_socket_have_their_line(cloud: Cloud, kv: KVServer) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis.from_url(kv.database_url) as client:
            await client.set("a", "1")
            await client.get("a")

    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(run, broken)
    first, second = re.findall(r"\(test_sources.py:(\d+)\)", found.value.story)
    assert int(second) == int(first) + 1


def test_calls_of_a_helper_have_the_lines_of_its_callers(cloud: Cloud, kv: KVServer) -> None:
    def command(*words: str) -> Any:
        headers = {"Authorization": f"Bearer {kv.token}"}
        return httpx.post(kv.url, json=words, headers=headers).json()

    def run() -> None:
        command("SET", "a", "1")
        command("GET", "a")

    with pytest.raises(BrokenSchedule) as found:
        cloud.explore(run, broken)
    first, second = re.findall(r"\(test_sources.py:(\d+)\)", found.value.story)
    assert int(second) == int(first) + 1


def test_a_line_with_one_caller_is_the_innermost() -> None:
    sources = [("a.py:1", "a.py:9"), ("a.py:1", "a.py:9"), ("a.py:2",), ()]
    assert told_apart(sources) == ["a.py:1", "a.py:1", "a.py:2", ""]
    assert told_apart([("a.py:1", "a.py:8"), ("a.py:1", "a.py:9")]) == ["a.py:8", "a.py:9"]
