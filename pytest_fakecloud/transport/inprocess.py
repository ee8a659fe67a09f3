"""Sends requests to mounted fakes without their sockets (``transport="inprocess"``).

The sending functions of ``httpx``, ``requests`` and ``urllib3`` are wrapped while a cloud uses this
transport. A request for the origin of a mounted fake goes directly into the fake's pipeline, with
the same journal entries and the same responses. Everything that needs a socket still uses it:
endpoints that wait or stream, injected faults, bodies other than plain bytes, a client's own proxy,
and requests that the server would reject.

The same wrappers redirect origins that are hard-coded in an application (``intercept``) to a fake's
socket.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from .detour import Detour
from .hooks import Hook
from .httpx_hook import wrap_handle_async_request, wrap_handle_request
from .origin import Origin, origin_of
from .requests_hook import wrap_on_request, wrap_send
from .shortcut import Shortcut
from .urllib3_hook import wrap_make_request

if TYPE_CHECKING:
    from ..http.mount import Mount

_IF_UNPATCHED = "its requests to fakes are slower, and intercept() does not redirect its requests"


class Origins:
    """The origins of this process that are reached without a socket or redirected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shortcuts: dict[Origin, Shortcut] = {}
        self._detours: dict[Origin, Detour] = {}
        self.hooks = [
            Hook(module, path, partial(wrap, self), without=_IF_UNPATCHED)
            for module, path, wrap in (
                ("httpx", "HTTPTransport.handle_request", wrap_handle_request),
                ("httpx", "AsyncHTTPTransport.handle_async_request", wrap_handle_async_request),
                ("requests.adapters", "HTTPAdapter.send", wrap_send),
                ("urllib3.connectionpool", "HTTPConnectionPool._make_request", wrap_make_request),
            )
        ]
        self.mocks = Hook(
            "responses",
            "RequestsMock._on_request",
            partial(wrap_on_request, self),
            without="intercept() redirects nothing while responses is active",
        )

    def enter(self) -> None:
        """Wrap the functions of the client libraries."""
        with self._lock:
            for hook in self.hooks:
                hook.enter()

    def leave(self) -> None:
        """Stop wrapping the functions. The last caller restores the originals."""
        with self._lock:
            for hook in self.hooks:
                hook.leave()

    def add(self, mount: Mount, *, lingers: bool = False) -> Shortcut | None:
        """Make a mounted app reachable at its origin without a socket, while the libraries are
        wrapped.

        With ``lingers``, requests to endpoints that may wait skip the socket too. Returns the
        previous shortcut, for ``put_back()``.
        """
        with self._lock:
            before = self._shortcuts.get(mount.origin)
            self._shortcuts[mount.origin] = Shortcut(mount, lingers=lingers)
        return before

    def put_back(self, origin: Origin, before: Shortcut | None) -> None:
        """Restore the shortcut that ``add()`` replaced."""
        with self._lock:
            if before is None:
                self._shortcuts.pop(origin, None)
            else:
                self._shortcuts[origin] = before

    def remove(self, origin: Origin) -> None:
        """Make requests for this origin use the socket again."""
        with self._lock:
            self._shortcuts.pop(origin, None)

    def redirect(self, origin: Origin, detour: Detour) -> bool:
        """Redirect an origin to a fake; return False if it is already redirected."""
        with self._lock:
            if self._detours.setdefault(origin, detour) is not detour:
                return False
            for hook in (*self.hooks, self.mocks):
                hook.enter()
        return True

    def restore(self, origin: Origin) -> None:
        """Stop redirecting an origin."""
        with self._lock:
            if self._detours.pop(origin, None) is not None:
                for hook in (*self.hooks, self.mocks):
                    hook.leave()

    def refresh(self) -> None:
        """Wrap libraries that were imported after ``enter()``, or whose functions another tool
        restored.
        """
        with self._lock:
            for hook in (*self.hooks, self.mocks):
                hook.refresh()

    def find(self, scheme: str, host: str, port: int | None) -> Shortcut | None:
        """Return the shortcut to the fake at an origin, or None."""
        return self._shortcuts.get(origin_of(scheme, host, port))

    def detour(self, scheme: str, host: str, port: int | None) -> Detour | None:
        """Return the detour of an intercepted origin, or None."""
        return self._detours.get(origin_of(scheme, host, port))


origins = Origins()
"""The origins of this process. There is only one table, because client libraries are patched for
the whole process.
"""
