"""Sends requests within the limits of a run: its duration, the size of responses, a signal."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests

SECONDS = 30.0
"""Time limit in seconds of a request, and of waiting until an index has processed a write."""
RUN_SECONDS = 900.0
"""Default time limit of a run in seconds."""
ANSWER_BYTES = 4 << 20
"""Maximum size of a response in bytes."""
RUN_BYTES = 64 << 20
"""Maximum total size of a run's responses in bytes. A report keeps all of them in memory."""
GRACE_SECONDS = 0.4
"""Seconds that the current request may still take after an interruption."""
CLEAN_SECONDS = 10.0
"""Time limit in seconds of a scenario's clean-up."""
INTERRUPTED_CLEAN_SECONDS = 1.1
"""Time limit in seconds of the clean-up after an interruption."""
DEEPEST = 100
"""Maximum nesting depth of a response; a deeper one is compared as a string."""
_CHUNK = 1 << 16
_POLL = 0.05
"""Seconds between two checks whether the run has to end during a request."""


class Unreachable(Exception):
    """Raised if a service returns no usable response. The message says what to do."""


class Interrupted(Exception):
    """Raised in a run that was interrupted by a signal."""


class Bounds:
    """The limits of a run, which all of its requests share."""

    def __init__(self, seconds: float = RUN_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._bytes = RUN_BYTES
        self._interrupted_at: float | None = None
        self._clean_until: float | None = None

    def interrupt(self) -> None:
        """End the run soon. Can be called from a signal handler."""
        self._interrupted_at = time.monotonic()

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """Apply the time limit of a clean-up, because the limit of the run may have passed."""
        self._clean_until = time.monotonic() + CLEAN_SECONDS
        try:
            yield
        finally:
            self._clean_until = None

    def check(self, when: str = "") -> None:
        """Raise ``Interrupted`` or ``Unreachable`` if no more requests may be sent."""
        if self._interrupted_at is not None and self._clean_until is None:
            raise Interrupted(f"interrupted{when}")
        if self.until() <= time.monotonic():
            if self._clean_until is None:
                raise Unreachable(
                    f"the run did not end within {self._seconds:g} s: pass a longer --timeout SECONDS"
                )
            raise Unreachable("the clean-up did not end in time")

    def until(self) -> float:
        """Return the time, on the monotonic clock, by which the current request must end."""
        ends = [self._until if self._clean_until is None else self._clean_until]
        if self._interrupted_at is not None:
            cleaning = self._clean_until is not None
            after = INTERRUPTED_CLEAN_SECONDS if cleaning else GRACE_SECONDS
            ends.append(self._interrupted_at + after)
        return min(ends)

    def count(self, size: int) -> None:
        """Count the bytes of a response; raise ``Unreachable`` if the total is too large."""
        self._bytes -= size
        if self._bytes < 0:
            raise Unreachable(f"its responses are larger than {RUN_BYTES >> 20} MiB in total")


@dataclass(frozen=True)
class Reply:
    """A response: status, content type and body (parsed if it is JSON)."""

    status: int
    kind: str
    body: Any

    def __str__(self) -> str:
        body = self.body
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        return f"{self.status} {text}"


def exchange(
    http: requests.Session,
    bounds: Bounds,
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> Reply:
    """Send a request and read its response within the limits of the run.

    Raises ``Unreachable`` if no response arrives in time or the response is too long, and
    ``Interrupted`` if a signal interrupted the run.
    """
    bounds.check()
    began = time.monotonic()
    request = partial(
        http.request,
        method,
        url,
        data=body,
        headers=headers,
        timeout=2 * SECONDS,  # only to end this thread; the run stops waiting for it earlier
        allow_redirects=False,
        stream=True,
    )
    reply: Future[Reply] = Future()

    def ask() -> None:
        try:
            reply.set_result(_reply(request, began, bounds))
        except BaseException as error:
            reply.set_exception(error)

    # Send the request in another thread and wait for that thread with a time limit. A socket
    # timeout limits each read, but not name resolution, nor the total time of a response that
    # arrives byte by byte.
    threading.Thread(target=ask, name="fakecloud verify", daemon=True).start()
    while not wait([reply], _POLL).done:
        if time.monotonic() > min(began + SECONDS, bounds.until()):
            bounds.check(" while a request was under way, which may still have an effect")
            raise _late()
    try:
        return reply.result()
    except (OSError, ValueError) as error:  # All errors of requests are OSErrors.
        raise Unreachable(str(error)) from None


def _reply(request: Callable[[], requests.Response], began: float, bounds: Bounds) -> Reply:
    with request() as answer:
        content = bytearray()
        for piece in answer.iter_content(_CHUNK):
            content += piece
            if len(content) > ANSWER_BYTES:
                raise Unreachable(f"a response is larger than {ANSWER_BYTES >> 20} MiB")
            if time.monotonic() > began + SECONDS:
                raise _late()
        bounds.count(len(content))
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return Reply(answer.status_code, kind, _parsed(content.decode("utf-8", "replace")))


def _parsed(text: str) -> Any:
    """Return the JSON value of a response, or the text if it is no JSON or nested too deeply."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if _is_deep(value) else value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            below
            for value in level
            if isinstance(value, list | dict)
            for below in (value.values() if isinstance(value, dict) else value)
        ]
    return bool(level)


def _late() -> Unreachable:
    return Unreachable(f"no complete response within {SECONDS:g} s")
