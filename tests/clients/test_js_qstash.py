"""Run the official JavaScript clients of the queue in Node, with one queue.

Skipped if Node or the packages are missing: `npm ci` in `tests/clients/js` installs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud

from . import node

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(name: str) -> Iterator[dict[str, str]]:
    with Cloud(clock="frozen", seed=1, delivery="driven") as cloud:
        queue: Any = cloud.queue(dev_credentials=name == "qstash-dev")
        chat = {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}
        event = (
            "data: " + json.dumps({"choices": [{"delta": {"content": "hel"}}]}) + "\n\n"
        ).encode()
        queue.destinations.call(
            "api/llm",
            lambda request: (
                (200, event + b"data: [DONE]\n\n", {"Content-Type": "text/event-stream"})
                if request.json().get("stream")
                else (200, json.dumps(chat).encode(), {"Content-Type": "application/json"})
            ),
        )
        queue.set_baseline()
        words = {
            "idle": lambda: len(queue.run_until_idle()),
            "advance": lambda duration: len(queue.advance(duration)),
            "reset": queue.reset,
            "now": cloud.clock.now_ms,
        }
        with node.control(words) as control:
            yield {**queue.env, **control}


@pytest.mark.parametrize("name", ["qstash", "qstash-dev", "workflow"])
def test_the_javascript_client(name: str, environment: dict[str, str]) -> None:
    node.need(f"@upstash/{name.removesuffix('-dev')}")
    assert node.run(f"{name}.test.mjs", environment).passed > 0
