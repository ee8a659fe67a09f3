"""The lines of the application that a story shows for each call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis.asyncio

import pytest_fakecloud
from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.explore.simulation.frames import distinct_places, is_library

from .conftest import failure


def broken() -> None:
    raise AssertionError("broken")


def test_calls_over_an_asynchronous_socket_have_their_line(cloud: Cloud, kv: KVServer) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis.from_url(kv.database_url) as client:
            await client.set("a", "1")
            await client.get("a")

    found = failure(cloud, run, broken)
    first, second = re.findall(r"\(test_sources.py:(\d+)\)", found.story)
    assert int(second) == int(first) + 1


def test_calls_of_a_helper_have_the_lines_of_its_callers(cloud: Cloud, kv: KVServer) -> None:
    def command(*words: str) -> Any:
        headers = {"Authorization": f"Bearer {kv.token}"}
        return httpx.post(kv.url, json=words, headers=headers).json()

    def run() -> None:
        command("SET", "a", "1")
        command("GET", "a")

    found = failure(cloud, run, broken)
    first, second = re.findall(r"\(test_sources.py:(\d+)\)", found.story)
    assert int(second) == int(first) + 1


def test_a_line_with_one_caller_is_the_innermost() -> None:
    sources = [("a.py:1", "a.py:9"), ("a.py:1", "a.py:9"), ("a.py:2",), ()]
    assert distinct_places(sources) == ["a.py:1", "a.py:1", "a.py:2", ""]
    assert distinct_places([("a.py:1", "a.py:8"), ("a.py:1", "a.py:9")]) == ["a.py:8", "a.py:9"]


@pytest.mark.parametrize("over_redis", [True, False])
def test_calls_of_concurrent_tasks_have_lines_of_their_own(
    cloud: Cloud, kv: KVServer, over_redis: bool
) -> None:
    async def concurrent(call: Callable[..., Coroutine[Any, Any, object]]) -> None:
        async def own() -> None:
            await call("DBSIZE")

        await call("PING")
        # The other task runs only code of a library.
        await asyncio.gather(call("GET", "a"), own())

    async def run() -> None:
        if over_redis:
            async with redis.asyncio.Redis.from_url(kv.database_url) as client:
                await concurrent(client.execute_command)
        else:
            async with httpx.AsyncClient(headers=kv.headers) as web:
                await concurrent(lambda *words: web.post(kv.url, json=words))

    found = failure(cloud, run, broken)
    lines = re.findall(r"(PING|GET a|DBSIZE) → \S+ \(test_sources.py:(\d+)\)", found.story)
    named = {call: int(line) for call, line in lines}
    ping = named["PING"]
    assert named == {"DBSIZE": ping - 2, "PING": ping, "GET a": ping + 2}


def test_a_folder_beside_the_package_belongs_to_the_application() -> None:
    package = Path(pytest_fakecloud.__file__).parent
    assert is_library(str(package / "cloud.py"))
    assert not is_library(str(package.with_name("pytest_fakecloud_example") / "app.py"))
