"""Methods that have no awaitable version do not block an event loop, nor do the awaitable ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, KVServer, Queue
from pytest_fakecloud.cloud.base import context_of
from pytest_fakecloud.core.libraries import is_library
from pytest_fakecloud.process.applications import Listener

from .harness import explore_searches_fewer_modules as explore_searches_fewer_modules
from .interrupted_calls import CALLS, SHOP, World
from .test_interruptions import world as world

blockbuster = pytest.importorskip("blockbuster")
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
LATER: Mapping[str, str] = {
    "Cloud.autojump": "the call sleeps",
    "Cloud.autojump in an event loop": "the call runs an event loop",
    "Cloud.every_failure": "has an awaitable version",
    "Cloud.explore": "has an awaitable version",
    "Cloud.replay": "has an awaitable version",
    "KVServer.between": "the call sends requests",
    "KVServer.dump_rdb": "writes a file",
}
"""The calls that block, with the reason."""


def in_loop(call: Callable[[], object]) -> object:
    """Make a call in an event loop, in which blocking calls raise an error."""
    run = asyncio.run

    async def main() -> object:
        with pytest.MonkeyPatch.context() as patched:
            # Calls of awaitable methods run a loop of their own.
            patched.setattr(asyncio, "run", lambda coroutine: coroutine)
            result: Any = call()
            return await result if asyncio.iscoroutine(result) else result

    with blockbuster.blockbuster_ctx():
        return run(main())


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) for kind in CALLS])
def test_no_method_blocks_an_event_loop(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch, authority: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    for name, entry in CALLS[kind].items():
        if f"{kind}.{name}" not in LATER:
            world.reset()
            call = entry(world)
            try:
                in_loop(call)
            except blockbuster.BlockingError as error:
                raise AssertionError(f"{kind}.{name} blocks") from error


@pytest.fixture
def authority() -> Any:
    with Cloud(tls=True) as cloud:
        assert cloud.authority is not None
        yield cloud.authority.ca_file


async def fail(*event: object) -> None:
    raise KeyError("x")


DESCRIPTION = "the handler raised KeyError: 'x' (test_event_loops.py"


def test_the_exception_of_a_delivery_is_described_without_blocking(queue: Queue) -> None:
    queue.destinations.asgi(SHOP, fail, lifespan=False)
    queue.publish(SHOP, retries=0)
    is_library.cache_clear()
    in_loop(queue.aio.run_until_idle)
    assert DESCRIPTION in queue.messages().only().timeline


def test_the_exception_of_a_request_is_described_without_blocking(fakecloud: Cloud) -> None:
    async def send() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(fail)) as client:
            with pytest.raises(KeyError):
                await client.get(SHOP)

    listener = Listener()
    listener.listen(context_of(fakecloud).recorder)
    try:
        is_library.cache_clear()
        in_loop(send)
    finally:
        listener.close()
    assert DESCRIPTION in listener.served[-1].raised


def test_an_asynchronous_client_is_created_and_used(
    kv_server: KVServer, monkeypatch: pytest.MonkeyPatch, authority: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority)

    async def use() -> object:
        async with kv_server.aio.client() as client:
            return await client.set("k", "v")

    in_loop(use)
    assert kv_server.value("k") == "v"
