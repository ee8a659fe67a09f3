"""A queue on a frozen clock that records its deliveries, and a raw HTTP client for it."""

from __future__ import annotations

import base64
import http.client
import json as jsonlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.journal import Results
from pytest_fakecloud.core.timers import Fired
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.model import Attempt

from ..notations import Fetched as Fetched

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = 1_767_225_600_000
DEST = "https://app.example.com/hook"
CALLBACK = "https://app.example.com/callback"
FAILURE = "https://app.example.com/failure"


def attempts_among(fired: Iterable[Fired]) -> Results[Attempt]:
    """Return the attempts that a move of the clock made."""
    return Results(timer.result for timer in fired if isinstance(timer.result, Attempt))


class Scene:
    """One queue; ``came`` lists its deliveries, and ``answer`` responds to them."""

    def __init__(self, **settings: Any) -> None:
        context = Context.alone(now=NOW, seed=1)
        self.violations = context.violations
        self.queue = Queue(context, **settings)
        self.came: list[DeliveredRequest] = []
        self.times: list[float] = []
        self.answer: Callable[[DeliveredRequest], Any] = lambda request: 200
        self.queue.destinations.call("*", self._take)
        host, port = self.queue.url.removeprefix("http://").split(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=10)

    def _take(self, request: DeliveredRequest) -> Any:
        self.came.append(request)
        self.times.append((self.queue.clock.now() - NOW).total_seconds())
        return self.answer(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self.queue.close()

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        body: bytes = b"",
        *,
        json: Any = None,
        token: str | None = None,
    ) -> Fetched:
        """Send a request with exactly this target; the token is added."""
        pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers or [])
        pairs.append(("Authorization", f"Bearer {self.queue.token if token is None else token}"))
        if json is not None:
            body = jsonlib.dumps(json).encode()
        connection = self._connection
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in pairs:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return Fetched(answer.status, dict(answer.getheaders()), answer.read())

    def get(self, path: str) -> Any:
        response = self.request("GET", path)
        assert response.status == 200, response
        return response.json()

    def ok(self, method: str, path: str, **options: Any) -> Fetched:
        response = self.request(method, path, **options)
        assert 200 <= response.status <= 299, response
        return response

    def publish(
        self,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"hello",
        *,
        url: str = DEST,
        way: str = "/v2/publish/",
    ) -> str:
        """Publish and return the id of the message."""
        response = self.request("POST", way + url, headers, body)
        assert response.status in (200, 202), response
        return str(response.json()["messageId"])

    def to(self, url: str) -> list[DeliveredRequest]:
        """Return the deliveries to a URL."""
        return [request for request in self.came if request.url == url]

    def at(self, url: str) -> list[float]:
        """Return the times of deliveries to a URL, in seconds since the start."""
        return [
            when for request, when in zip(self.came, self.times, strict=True) if request.url == url
        ]

    def fail(self, *urls: str) -> None:
        """Answer 500 at these URLs, by default at ``DEST``."""
        failing = urls or (DEST,)
        self.answer = lambda request: 500 if request.url in failing else 200

    def states(self, message_id: str) -> list[str]:
        """Return the states in the log of a message, oldest first."""
        rows = self.get(f"/v2/events?messageId={message_id}&order=earliestFirst")["events"]
        return [row["state"] for row in rows]


def decoded(text: str) -> bytes:
    return base64.b64decode(text)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)
