"""Redirects the requests for an origin to another address, for each supported client library."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit


class Detour:
    """Sends the requests for an intercepted origin to a fake, through the fake's socket.

    It opens its own connections, which ignore the proxies and certificates set for the client. A
    connection lasts for one request.
    """

    def __init__(self, url: str, ca_file: str | None = None) -> None:
        self.url = url
        self._ca_file = ca_file

    def _tls_context(self) -> ssl.SSLContext:
        if self._ca_file is not None:
            return ssl.create_default_context(cafile=self._ca_file)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def httpx_transport(self) -> Any:
        """Return a transport of ``httpx`` that trusts the fake."""
        import httpx

        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.HTTPTransport(verify=self._tls_context(), trust_env=False, limits=limits)

    def httpx_async_transport(self) -> Any:
        """Return an asynchronous transport of ``httpx`` that trusts the fake."""
        import httpx

        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.AsyncHTTPTransport(verify=self._tls_context(), trust_env=False, limits=limits)

    def httpx_request(self, request: Any) -> Any:
        """Return a copy of an ``httpx`` request for the other address."""
        import httpx

        parts = urlsplit(self.url)
        return httpx.Request(
            request.method,
            request.url.copy_with(scheme=parts.scheme, host=parts.hostname, port=parts.port),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )

    def send_with_requests(
        self, send: Callable[..., Any] | None, request: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Send a prepared request of ``requests`` to the other address.

        ``send`` is the adapter's original function. If ``responses`` is loaded, the original
        function that it saved is used instead.
        """
        from requests.adapters import HTTPAdapter

        send = getattr(sys.modules.get("responses"), "_real_send", None) or send
        assert send is not None
        options = {
            **dict(zip(("stream", "timeout", "verify", "cert"), args, strict=False)),
            **kwargs,
        }
        options.update(verify=self._ca_file or True, cert=None, proxies={})
        parts = urlsplit(request.url)
        moved = request.copy()
        moved.url = self.url + target_of(parts.path, parts.query)
        moved.headers.setdefault("Host", parts.netloc.rpartition("@")[2])
        with closing(HTTPAdapter()) as adapter:
            answer = send(adapter, moved, **options)
            if not options.get("stream"):
                _ = answer.content  # read the body before the adapter is closed
        answer.url, answer.request = request.url, request
        return answer

    def urllib3_pool(self) -> Any:
        """Return a ``urllib3`` connection pool for the other address."""
        import urllib3

        options: dict[str, Any] = {} if self._ca_file is None else {"ca_certs": self._ca_file}
        return urllib3.connection_from_url(self.url, **options)


def target_of(path: str, query: str) -> str:
    """Return the request target of a path and a query, as ``requests`` sends it."""
    return f"{path or '/'}?{query}" if query else path or "/"
