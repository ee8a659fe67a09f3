"""Sends requests to mounted fakes without their sockets (``transport="inprocess"``).

The sending functions of ``httpx``, ``requests`` and ``urllib3`` are wrapped while a cloud uses this
transport. A request for the origin of a mounted fake goes directly into the fake's pipeline, with
the same journal entries and responses. Everything that needs a socket still uses it: endpoints that
wait or stream, injected faults, unusual bodies, a client's own proxy, and invalid requests.

The same wrappers redirect origins that are hard-coded in an application (``intercept``) to a fake's
socket, where all features of the fake work. This also works while ``responses`` is active.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from ..core.errors import ContractError
from .hooks import Hook, Hooks
from .httpx_hook import wrap_handle_async_request, wrap_handle_request
from .shortcut import Detour, Origin, Shortcut, parse_origin
from .urllib3_hook import wrap_make_request, wrap_on_request, wrap_send

_IF_UNPATCHED = "its requests to fakes are slower, and intercept() does not redirect its requests"


class Origins(Hooks):
    """The origins that are reached without a socket or redirected, while clients are patched."""

    def __init__(self) -> None:
        super().__init__(
            Hook(module, path, partial(wrap, self), without=_IF_UNPATCHED)
            for module, path, wrap in (
                ("httpx", "HTTPTransport.handle_request", wrap_handle_request),
                ("httpx", "AsyncHTTPTransport.handle_async_request", wrap_handle_async_request),
                ("requests.adapters", "HTTPAdapter.send", wrap_send),
                ("urllib3.connectionpool", "HTTPConnectionPool._make_request", wrap_make_request),
            )
        )
        self._mocks = Hook(
            "responses",
            "RequestsMock._on_request",
            partial(wrap_on_request, self),
            without="intercept() redirects nothing while responses is active",
        )
        self._lock = threading.Lock()
        self._added: dict[Origin, list[Shortcut]] = {}
        self.shortcuts: dict[Origin, Shortcut] = {}
        self.detours: dict[Origin, Detour] = {}

    def add(self, origin: Origin, shortcut: Shortcut) -> Callable[[], None]:
        """Use a shortcut for an origin until the returned function is called."""
        with self._lock:
            self._added.setdefault(origin, []).append(shortcut)
            self.shortcuts[origin] = shortcut

        def remove() -> None:
            with self._lock:
                remaining = self._added[origin]
                remaining.remove(shortcut)
                if remaining:
                    self.shortcuts[origin] = remaining[-1]
                else:
                    del self._added[origin], self.shortcuts[origin]

        return remove

    def redirect(self, origin: Origin, detour: Detour) -> bool:
        """Redirect an origin to a fake; return False if it is already redirected."""
        with self._lock:
            if self.detours.setdefault(origin, detour) is not detour:
                return False
        self.enter()
        self._mocks.enter()
        return True

    def restore(self, origin: Origin) -> None:
        """Stop redirecting an origin."""
        with self._lock:
            del self.detours[origin]
        self.leave()
        self._mocks.leave()

    def refresh(self) -> None:
        """Wrap libraries imported after ``enter()``, or whose functions another tool restored."""
        super().refresh()
        self._mocks.refresh()


origins = Origins()
"""The origins of this process. Client libraries are patched for the whole process."""


class Interception(AbstractContextManager["Interception"]):
    """Redirects one origin to a fake, from construction until ``close()``.

    Raises ``ContractError`` if the origin is already intercepted. A request that the service has no
    route for is reported like any unrouted request.
    """

    def __init__(self, url: str, origin: str, ca_file: str | None = None) -> None:
        self._key = parse_origin(origin)
        self.origin = origin.rstrip("/")
        self._open = origins.redirect(self._key, Detour(url, ca_file))
        if not self._open:
            raise ContractError(
                f"{self.origin} is already intercepted: end that interception first"
            )

    def close(self) -> None:
        """Stop intercepting. Can be called repeatedly."""
        if self._open:
            self._open = False
            origins.restore(self._key)

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Interception of {self.origin}{'' if self._open else ' closed'}>"
