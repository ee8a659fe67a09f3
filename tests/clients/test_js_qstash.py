"""Run the official JavaScript clients of the queue in Node, with one queue.

Skipped if Node or the packages are missing: `npm ci` in `tests/clients/js` installs them.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.http.hub import default_hub

from . import node

pytestmark = pytest.mark.slow


class Control:
    """HTTP commands through which the JavaScript tests control the queue."""

    def __init__(self, cloud: Cloud, queue: Any) -> None:
        self.cloud = cloud
        self.queue = queue
        # Only one thread may move the clock at a time.
        self._one = threading.Lock()
        self._words: dict[str, Callable[[str], Any]] = {
            "/idle": lambda body: len(queue.run_until_idle()),
            "/advance": lambda body: len(queue.advance(body)),
            "/reset": lambda body: queue.reset(),
            "/now": lambda body: cloud.clock.now_ms(),
        }

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length).decode()
        try:
            with self._one:
                answer = self._words[environ["PATH_INFO"]](body)
            status = "200 OK"
        except Exception as error:
            answer, status = repr(error), "500 Internal Server Error"
        data = json.dumps(answer).encode()
        start_response(status, [("Content-Length", str(len(data)))])
        return [data]


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
        with default_hub().mount(Control(cloud, queue)) as mount:
            kept = {k: v for k, v in os.environ.items() if not k.startswith("QSTASH_")}
            yield {**kept, **queue.env, "FAKE_CONTROL": mount.url}


@pytest.mark.parametrize("name", ["qstash", "qstash-dev", "workflow"])
def test_the_javascript_client(name: str, environment: dict[str, str]) -> None:
    node.need(f"@upstash/{name.removesuffix('-dev')}")
    output = node.run(f"{name}.test.mjs", environment)
    assert "pass 0" not in output
