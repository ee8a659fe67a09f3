"""Answering requests to an origin that is hard-coded in the application under test.

``requests`` is reached through ``responses``, ``httpx`` and ``urllib3`` through the in-process
transport. What the service has no route for is reported like any unrouted request.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from ..kernel.app import App
from ..kernel.errors import ContractError
from .inprocess import Origin, Shortcut, origins

__all__ = ["Interception", "parse_origin"]

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_PORTS = {"http": 80, "https": 443}


def parse_origin(text: str) -> Origin:
    """Scheme, host and port of an origin; ``ContractError`` for anything with a path."""
    parts = urlsplit(text)
    if (
        parts.scheme not in _PORTS
        or not parts.hostname
        or parts.path not in ("", "/")
        or parts.query
    ):
        raise ContractError(
            f"{text!r} is no origin: give scheme and host, such as 'https://kv.example.com'"
        )
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]


class Interception(AbstractContextManager["Interception"]):
    """Requests to one origin, answered by a fake; active from construction to ``close()``."""

    def __init__(self, app: App, origin: str) -> None:
        self.origin = origin.rstrip("/")
        self._key = parse_origin(origin)
        self._shortcut = Shortcut(app)
        self._open = True
        origins.add(self._key, app, forced=True)
        self._mock = self._start_responses()

    def _start_responses(self) -> Any:
        import responses

        mock = responses.RequestsMock(assert_all_requests_are_fired=False)
        mock.add_passthru(re.compile(".*"))
        pattern = re.compile(re.escape(self.origin) + r"(/.*|\?.*)?$")
        self._registered = []
        # Also in the module's own mock: a test that activates it covers ours up.
        for registry in (mock, responses.mock):
            for method in _METHODS:
                answer = responses.CallbackResponse(method, pattern, callback=self._answer)
                registry.add(answer)
                if registry is not mock:
                    self._registered.append(answer)
        mock.start()
        return mock

    def _answer(self, request: Any) -> tuple[int, list[tuple[str, str]], bytes]:
        parts = urlsplit(request.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = [(str(name), str(value)) for name, value in request.headers.items()]
        headers.insert(0, ("Host", parts.netloc))
        body = request.body or b""
        if isinstance(body, str):
            body = body.encode()
        elif not isinstance(body, bytes):
            body = b"".join(body) if not hasattr(body, "read") else body.read()
        status, out, payload = self._shortcut.send(request.method, target, headers, body)
        return status, [(n, v) for n, v in out if n.lower() != "content-length"], payload

    def close(self) -> None:
        """Let requests to the origin go where they went before; any number of calls."""
        if not self._open:
            return
        self._open = False
        import responses

        self._mock.stop(allow_assert=False)
        for answer in self._registered:
            if answer in responses.mock.registered():
                responses.mock.remove(answer)
        origins.remove(self._key)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
