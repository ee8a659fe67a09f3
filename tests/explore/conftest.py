"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import BrokenPromiseError, Cloud, History, KVServer
from pytest_fakecloud.explore.result.cause import Cause
from pytest_fakecloud.explore.values.schedule import Schedule
from pytest_fakecloud.explore.values.trial import Outline, Verdict

from ..harness import explore_searches_fewer_modules as explore_searches_fewer_modules


def opened() -> Cloud:
    return Cloud(seed=1, delivery="driven", now="2026-11-20T12:00:00Z")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with opened() as cloud:
        yield cloud


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


@pytest.fixture
def redis(kv: KVServer) -> Redis:
    return Redis(kv.url, kv.token)


def failure(
    cloud: Cloud, *args: Any, match: str | None = None, **options: Any
) -> BrokenPromiseError:
    """Explore, and return the broken promise."""
    with pytest.raises(BrokenPromiseError, match=match) as caught:
        cloud.explore(*args, **options)
    return caught.value


def outline(schedule: Schedule, **fields: Any) -> Outline:
    """Return the outline of a trial that holds, and has these fields."""
    empty: dict[str, Any] = {"points": (), "strands": {}, "handlers": {}, "notes": ()}
    of_trial = {"verdict": Verdict(), "applied": schedule, "flags": frozenset(), "lesson": None}
    return Outline(**{**empty, **of_trial, **fields})


_BROKEN: list[str] = []


def holds() -> None:
    """A check that always passes. It reads data, because a check that reads nothing is an error."""
    assert not _BROKEN


def broken() -> None:
    """A check that always fails."""
    raise AssertionError("broken")


def found_cause(error: BrokenPromiseError) -> Cause:
    """Return the cause of a broken promise as a value."""
    assert error._cause is not None
    return error._cause


def broken_if_disturbed(history: History) -> None:
    """A check that fails in each trial but the undisturbed one."""
    assert not history.schedule, "broken"


def cause(
    cloud: Cloud, run: Any, schedule: str, check: Callable[..., None] = broken_if_disturbed
) -> str:
    """Return the cause of a promise that a schedule breaks."""
    return failure(cloud, run, check, schedule=schedule).cause


def expects(kv: KVServer, wanted: str, key: str = "n") -> Callable[[], None]:
    """Return a check of a key's value."""

    def check() -> None:
        assert kv.value(key) == wanted, f"{key} is {kv.value(key)}"

    return check


def asgi_app(handle: Callable[[], Any]) -> Any:
    """Return an ASGI application that awaits ``handle()``, and answers 200."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await handle()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


def publishes_to_asgi(cloud: Cloud, handle: Callable[[], Any]) -> Callable[[], None]:
    """Return a client that publishes to an ASGI application, which awaits ``handle()``."""
    queue = cloud.queue()
    queue.destinations.asgi("https://app.example.com", asgi_app(handle), lifespan=False)
    publisher = QStash(queue.token, base_url=queue.url)

    def publish() -> None:
        publisher.message.publish(url="https://app.example.com/hook", body="x")

    return publish
