"""Findings about messages, and similar cases without a finding."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx

from pytest_fakecloud import Cloud

from .cases import HOOK, Inject, Scene, check

Request = tuple[str, Any, dict[str, str]]


def publishes(*requests: Request, fault: Inject = lambda faults: None) -> Scene:
    """Send publish requests (path, body, headers) after injecting a fault."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        fault(queue.faults)
        send(queue, *requests)

    return run


def send(queue: Any, *requests: Request) -> None:
    for path, body, headers in requests:
        with suppress(httpx.TransportError):
            sent = {**queue.headers, **headers}
            httpx.post(f"{queue.url}/v2/{path}", json=body, headers=sent)


def to(path: str, body: Any = "x", **headers: str) -> Request:
    return (
        f"{path}/{HOOK}",
        body,
        {f"Upstash-{name.replace('_', '-')}": value for name, value in headers.items()},
    )


CASES: dict[str, Scene] = {
    "a retry delay of a schedule in seconds": publishes(
        (f"schedules/{HOOK}", "x", {"Upstash-Retry-Delay": "30", "Upstash-Cron": "0 0 1 1 *"})
    ),
    "a retry delay of milliseconds": publishes(to("publish", Retry_Delay="30")),
    "a retry delay of a minute": publishes(to("publish", Retry_Delay="60000")),
    "a retry delay that grows": publishes(to("publish", Retry_Delay="30 * 1000")),
    "a delay in milliseconds": publishes(to("publish", Delay="60000s")),
    "a delay of a minute": publishes(to("publish", Delay="60s")),
    "a delay of a day": publishes(to("publish", Delay="1d")),
    "a timeout in milliseconds": publishes(to("publish", Timeout="30000s")),
    "a timeout of half a minute": publishes(to("publish", Timeout="30s")),
}


test_findings = check("queue", CASES)
