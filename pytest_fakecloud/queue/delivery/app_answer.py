"""The response of an application called in process, and exceptions caught by its framework."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..model import HeaderList

CLIENT = ("127.0.0.1", 0)
"""The client address that an application sees."""


@dataclass
class AppAnswer:
    """An application's response, and the exception that it raised or that its framework caught."""

    status: int
    headers: HeaderList = field(default_factory=list)
    body: bytes = b""
    exception: BaseException | None = None


def failed(exception: BaseException) -> AppAnswer:
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    return AppAnswer(500, headers, b"Internal Server Error", exception)


@dataclass(frozen=True)
class Address:
    """The parts of a URL that a server passes to its application."""

    scheme: str
    host: str
    port: int
    netloc: str
    target: str
    raw_path: str
    query: str

    @classmethod
    def of(cls, url: str) -> Address:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        target = parts.path or "/"
        return cls(
            scheme,
            parts.hostname or "",
            parts.port or (443 if scheme == "https" else 80),
            parts.netloc.rpartition("@")[2],
            target + (f"?{parts.query}" if parts.query else ""),
            target,
            parts.query,
        )


def checked_status(code: int) -> int:
    """Return a valid HTTP status; raise ``AssertionError`` for any other number."""
    if not 100 <= code <= 999:
        raise AssertionError(f"the application answered {code}, which is not an HTTP status")
    return code


_caught: ContextVar[list[BaseException] | None] = ContextVar("caught", default=None)
_connected: dict[str, Any] = {}


@contextlib.contextmanager
def caught_by_framework() -> Iterator[list[BaseException]]:
    """Collect the exceptions that Flask and Django catch and convert to a 500."""
    seen: list[BaseException] = []
    for name, signal in _signals():
        # Never disconnect the receiver, because another delivery may be using it. If the module was
        # removed from ``sys.modules`` and imported again, connect it to the new signal.
        if _connected.get(name) is not signal:
            signal.connect(_keep_exception, weak=False)
            _connected[name] = signal
    token = _caught.set(seen)
    try:
        yield seen
    finally:
        _caught.reset(token)


def _signals() -> Iterator[tuple[str, Any]]:
    # Look among the loaded modules only, because a framework that is in use is already imported.
    for module in ("flask.signals", "django.core.signals"):
        loaded = sys.modules.get(module)
        signal = getattr(loaded, "got_request_exception", None)
        if signal is not None:
            yield module, signal


def _keep_exception(sender: object, **details: Any) -> None:
    seen = _caught.get()
    exception = details.get("exception") or sys.exc_info()[1]
    if seen is not None and isinstance(exception, BaseException):
        seen.append(exception)


def with_caught(handled: AppAnswer, seen: list[BaseException]) -> AppAnswer:
    """Add the exception that the framework caught to a 5xx response that has no exception."""
    if handled.exception is None and handled.status >= 500 and seen:
        handled.exception = seen[-1]
    return handled
