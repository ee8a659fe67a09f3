"""The stand-alone server delivers in parallel and in real time, within its limits."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.queue.engine.histories import AT_ONCE, Tried, World, check, loopback, wishes

from .conftest import Serve


@pytest.mark.slow
def test_histories_of_the_server_keep_what_was_asked_for(serve: Serve) -> None:
    server = serve("queue", "--queue", f'limits={{"parallelism": {AT_ONCE}}}')
    queue = server.fake("queue")
    world = World(queue["url"], queue["env"]["QSTASH_TOKEN"], "", wishes(5, 60, rated=5), 5)
    with loopback(world.receive) as base:
        world.base = base
        world.run(lambda: len(server.call("queue", "pending")))
    _, attempts = server.ask("GET", "/fakes/queue/attempts")
    world.history.tried = [
        Tried(attempt["message"], attempt["url"], _us(attempt["at"]), attempt["status"])
        for attempt in attempts
    ]
    assert check(world.history) == []


def _us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return int(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond
