"""Sends the requests of ``requests`` to mounted fakes without a socket, or redirects them, also while
``responses`` is active.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from http.client import RemoteDisconnected
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .detour import target_of
from .shortcut import NoAnswer
from .timeouts import are_timeouts
from .urllib3_hook import as_text, response_of

if TYPE_CHECKING:
    from .inprocess import Origins

_BODIES = frozenset({bytes, str, type(None)})


def wrap_send(
    origins: Origins, original: Callable[..., Any], active: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def send(adapter: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not active():
            return original(adapter, request, *args, **kwargs)
        parts = urlsplit(request.url)
        detour = origins.detour(parts.scheme, parts.hostname or "", parts.port)
        if detour is not None:
            return detour.send_with_requests(original, request, *args, **kwargs)
        shortcut = origins.find(parts.scheme, parts.hostname or "", parts.port)
        # A request that is passed on reaches the hook of urllib3, which may still skip the
        # socket.
        if shortcut is None or args or not _sends_normally(adapter, request, kwargs):
            return original(adapter, request, *args, **kwargs)
        body = request.body or b""
        if isinstance(body, str):
            body = body.encode("utf-8")
        headers = [(as_text(n), as_text(v)) for n, v in request.headers.items()]
        headers.insert(0, ("Host", parts.netloc.rpartition("@")[2]))
        target = target_of(parts.path, parts.query)
        # Use the socket if urllib3 would add headers, or if the target begins with two slashes,
        # of which older versions of requests send only one.
        names = [name for name, _ in headers]
        if (
            target.startswith("//")
            or "User-Agent" not in names
            or "Accept-Encoding" not in names
            or shortcut.body_length(request.method, target, headers) != len(body)
        ):
            return original(adapter, request, **kwargs)
        try:
            status, out, payload = shortcut.send(request.method, target, headers, body)
        except NoAnswer as error:
            raise _connection_error(error, request) from error
        return adapter.build_response(
            request, response_of(request.method, target, status, out, payload)
        )

    return send


def wrap_on_request(
    origins: Origins, original: Callable[..., Any], active: Callable[[], bool]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def on_request(mock: Any, adapter: Any, request: Any, **kwargs: Any) -> Any:
        if active():
            parts = urlsplit(request.url)
            detour = origins.detour(parts.scheme, parts.hostname or "", parts.port)
            if detour is not None:
                kwargs.pop("retries", None)
                return detour.send_with_requests(None, request, **kwargs)
        return original(mock, adapter, request, **kwargs)

    return on_request


def _sends_normally(adapter: Any, request: Any, options: Mapping[str, Any]) -> bool:
    """Return whether ``requests`` would send a request in the usual way.

    It would not with retries, a proxy, an unusual timeout, or a subclass of the adapter.
    """
    if type(adapter).__module__ != "requests.adapters" or options.get("proxies"):
        return False
    if type(request.body) not in _BODIES:
        return False
    retries, timeout = adapter.max_retries, options.get("timeout")
    if retries.total or retries.status_forcelist:
        return False
    if type(timeout) is tuple:
        return len(timeout) == 2 and are_timeouts(*timeout)
    return are_timeouts(timeout)


def _connection_error(error: NoAnswer, request: Any) -> Exception:
    """Return the error that ``requests`` raises for a connection that ended without a response."""
    from requests.exceptions import ConnectionError
    from urllib3.exceptions import ProtocolError

    cause = ProtocolError("Connection aborted.", RemoteDisconnected(str(error)))
    return ConnectionError(cause, request=request)
