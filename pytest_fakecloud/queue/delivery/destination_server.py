"""``Destination``: a fake with a pytest-httpserver behind the HTTP server of the fakes.

Expectations are written with pytest-httpserver's methods. The fakes' server listens on a free port,
accepts concurrent requests, and stops without pytest-httpserver's delay of half a second. Importing
this module imports pytest-httpserver.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_httpserver import HTTPServer
from pytest_httpserver.httpserver import (
    Error,
    HandlerType,
    RequestHandler,
    RequestHandlerList,
    RequestMatcher,
)
from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ...cloud.fake import Fake, Snapshot, core_of
from ...core.errors import ContractError
from ...core.field_types import is_url
from ...core.violations import Violation, raised_violation
from ...http.app import App, Instruments
from ...http.messages import Answer, Request
from ...http.routing import Route
from .applications import environ_of

if TYPE_CHECKING:
    from ...http.hub import Mount

BODY_LIMIT = 512 * 1024 * 1024
"""Maximum size of a body. A callback contains two bodies of the maximum message size, in Base64."""
RAW_HEADERS = "fakecloud.headers"
"""Key of the WSGI environment for the headers as received, which WSGI would merge by name."""
_METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE"


class ServerApp(App):
    """Adds a journal and injected faults, which every fake has, to a pytest-httpserver."""

    service = "destination"
    paths: ClassVar[Mapping[str, str]] = {}
    """The names of the routes of some paths, for faults and assertions."""

    def __init__(self, instruments: Instruments, receive: Callable[[Request], Answer]) -> None:
        super().__init__(instruments)
        self._receive = receive

    @classmethod
    def routes(cls) -> list[Route]:
        """Return a route for each named path, which faults can select, and one for the rest."""
        named = [
            Route(_METHODS, pattern, name, cls.receive)
            for path, name in cls.paths.items()
            for pattern in (f"/{path}", f"/{path}/{{rest*}}")
        ]
        return [*named, Route(_METHODS, "/{rest*}", "request", cls.receive)]

    def receive(self, request: Request) -> Answer:
        return self._receive(request)

    def leave_fake(self) -> None:
        super().leave_fake()
        self._receive = lambda request: Answer(b"", 503)


class _Oneshots(RequestHandlerList):
    """One-shot expectations. Each of them is used only once, even if requests are simultaneous."""

    def __init__(self, handlers: Iterable[RequestHandler] = ()) -> None:
        super().__init__(handlers)
        self._lock = threading.Lock()

    def match(self, request: WerkzeugRequest) -> RequestHandler | None:
        with self._lock:
            result = super().match(request)
            if result is not None:
                super().remove(result)
            return result

    def remove(self, handler: RequestHandler) -> None:
        """Do nothing, because ``match()`` has already removed the expectation."""


_WITHOUT_MEANING = frozenset(
    ("token", "headers", "env", "rotate_token", "client", "async_client", "load")
)
"""Names of a fake's members that are of no use to a test of a destination."""
_LISTS: dict[str, Callable[[Iterable[Any]], list[Any]]] = {
    "ordered_handlers": list,
    "oneshot_handlers": _Oneshots,
    "handlers": RequestHandlerList,
    "log": list,
    "assertions": list,
    "handler_errors": list,
}
"""The lists of pytest-httpserver with expectations and with what happened, and their types."""


class DestinationServer(HTTPServer):
    """A pytest-httpserver whose requests are received by the server of a fake."""

    def __init__(self, destination: Destination) -> None:
        super().__init__("127.0.0.1", 0, threaded=True)
        self._destination: Destination = weakref.proxy(destination)
        self.clear_all_handlers()

    def start(self) -> None:
        """Do nothing, because the server is already running."""
        if self._destination.closed:
            raise ContractError(f"{self._destination.name} is closed: create another one")

    def stop(self) -> None:
        """Close the fake immediately."""
        self._destination.close()

    def is_running(self) -> bool:
        """Return whether the server accepts requests."""
        return not self._destination.closed

    def create_matcher(self, *args: Any, **kwargs: Any) -> RequestMatcher:
        """Return the matcher of a new expectation."""
        destination = self._destination
        core_of(destination).recorder.note_change(destination.name)
        return super().create_matcher(*args, **kwargs)

    def clear_all_handlers(self) -> None:
        super().clear_all_handlers()
        self.oneshot_handlers = _Oneshots()


class Destination(Fake):
    """A server to deliver messages to, at ``url``.

    ``server`` is its pytest-httpserver. Write expectations with ``server.expect_request()``,
    ``expect_oneshot_request()`` and ``expect_ordered_request()``. Unmet expectations and unexpected
    requests fail the test in its call phase. Handlers may run concurrently.
    """

    service: ClassVar[str] = "destination"
    fixture: ClassVar[str] = "destination"

    _app_type: ClassVar[type[ServerApp]] = ServerApp
    _server_type: ClassVar[type[DestinationServer]] = DestinationServer

    def _make_app(self) -> ServerApp:
        if self._config.token is not None:
            raise ContractError(
                f"token has no effect on {self.fixture}, which accepts requests without credentials: "
                "leave it out"
            )
        self._server = self._server_type(self)
        return self._app_type(self._instruments, self._serve_request)

    def _add_mount(self, mount: Mount) -> None:
        super()._add_mount(mount)
        mount.body_limit = BODY_LIMIT
        # Methods of pytest-httpserver read these, for example to return the URL of a path.
        self._server.port = mount.port
        self._server.ssl_context = mount.tls

    @property
    def server(self) -> HTTPServer:
        """The pytest-httpserver that responds, for expectations and its other methods."""
        return self._server

    def __dir__(self) -> list[str]:
        # Requests need no credentials, there is no client, and the only data are expectations.
        return [name for name in super().__dir__() if name not in _WITHOUT_MEANING]

    def _serve_request(self, request: Request) -> Answer:
        host = request.fields.get("host")
        if host and not _is_host(host):
            text = f"400 Bad Request: the Host header {host!r} names no host\n"
            return Answer(text.encode("utf-8", "replace"), 400, (), "text/plain; charset=utf-8")
        try:
            # A request in its own environment would be a circle of references.
            response = self._server.application(
                WerkzeugRequest(self._environ(request), populate_request=False)
            )
        except Error as error:
            # Report that the test has not called respond_with_...() for the expectation.
            self._server.add_assertion(str(error))
            response = WerkzeugResponse(str(error), self._server.no_handler_status_code)
        except Exception as error:
            # Only respond: `_unmet` reports the exception.
            response = WerkzeugResponse(f"{type(error).__name__}: {error}", 500)
        own = ("content-type", "content-length")
        headers = [pair for pair in response.headers if pair[0].lower() not in own]
        return Answer(response.get_data(), response.status_code, headers, response.content_type)

    def _environ(self, request: Request) -> dict[str, Any]:
        host = request.fields.get("host")
        scheme = "http" if self._server.ssl_context is None else "https"
        origin = f"{scheme}://{host}" if host else self.url
        target = request.target if request.target.startswith("/") else request.path
        pairs = list(request.headers.pairs)
        environ = environ_of(request.method, origin + target, pairs, request.body)
        environ[RAW_HEADERS] = request.headers
        if request.client:
            environ["REMOTE_ADDR"] = request.client[0]
        return environ

    def _unmet(self) -> list[str]:
        reasons = [
            str(text) for text in self._server.assertions if not isinstance(text, AssertionError)
        ]
        reasons += [
            f"a handler raised {type(error).__name__}: {error}"
            for error in self._server.handler_errors
        ]
        pending = [(HandlerType.ORDERED, handler) for handler in self._server.ordered_handlers]
        pending += [(HandlerType.ONESHOT, handler) for handler in self._server.oneshot_handlers]
        return reasons + [
            f"the {kind.value} request was never received: {handler.matcher}"
            for kind, handler in pending
        ]

    def _left_behind(self) -> list[Violation]:
        violations = super()._left_behind()
        violations += [
            raised_violation(error, self.name, fake=self.name)
            for error in self._server.assertions
            if isinstance(error, AssertionError)
        ]
        return violations

    def snapshot(self) -> Snapshot:
        """Return the expectations and the log."""
        saved: dict[str, Any] = {name: list(getattr(self._server, name)) for name in _LISTS}
        return Snapshot(
            self.fixture, saved | {"permanently_failed": self._server.permanently_failed}
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the expectations from a snapshot."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != self.fixture:
            raise ContractError(
                f"{snapshot!r} is not a snapshot of a {self.fixture}; pass what its snapshot() returned"
            )
        for name, kind in _LISTS.items():
            setattr(self._server, name, kind(snapshot.data[name]))
        self._server.permanently_failed = snapshot.data["permanently_failed"]

    def load(self, data: Any) -> None:
        """Raise ``ContractError``, because a destination has no data apart from its expectations."""
        raise ContractError(
            "a destination has no data to load; write expectations with server.expect_request()"
        )


def _is_host(text: str) -> bool:
    """Return whether a ``Host`` header is a name or an address, with an optional port."""
    return not re.search(r"[\s@\\/?#]", text) and is_url(f"http://{text}/")
