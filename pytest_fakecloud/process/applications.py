"""Requests to the application under test, as its framework or test client reports them.

Flask and Django send signals when a request begins and ends. Starlette and FastAPI send none, so the
transports of ``TestClient`` and the ``ASGITransport`` of httpx and httpx2 are wrapped for the duration
of a test.
Requests to aiohttp and plain WSGI applications are not observed. Source: the frameworks'
documentation of signals.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from traceback import walk_stack
from types import FunctionType, ModuleType
from typing import Any
from weakref import ref

from ..core.raised import look_up_libraries, raised_text
from ..core.recorder import CallStack, Recorder
from .replace import Replacement, replace
from .stacks import stack_above

_MOST = 1000
"""Maximum number of requests that are kept; beyond it, the oldest are dropped."""
_BODY = 2_000
"""Maximum number of characters of a body that are kept."""
_NEAR = 20
"""Maximum number of stack frames that are searched for the sender of a signal."""
_Receiver = Callable[..., None]


@dataclass(slots=True, eq=False)
class ServedRequest:
    """One request to the application.

    ``began`` and ``ended`` are journal numbers (``ended`` is 0 if the end is unknown), ``at_us`` and
    ``ended_us`` the times on the cloud's clock (``ended_us`` is None if it is unknown). ``status``
    is None if the framework does not report it, ``raised`` describes the exception that the view
    raised. ``thread`` is the ID of the thread that serves the request (0: an event loop).
    ``overlaps`` lists the requests that were served at the same time, except for requests that this
    one made itself. ``body`` is the beginning of the body that a test client sent, ``body_type`` its
    content type, ``headers`` are the other headers, sorted. ``answer`` is the beginning of the
    response's body (None if it is unknown), ``answer_cut`` the length of the whole body if it is longer,
    ``answer_type`` its content type. ``stack`` sent the request. ``application`` refers to the object
    that served it, if that is known, and ``instance`` counts those of one framework from 1.
    """

    began: int
    at_us: int
    target: str
    framework: str
    environ: object
    thread: int
    ended: int = 0
    ended_us: int | None = None
    status: int | None = None
    raised: str = ""
    overlaps: list[ServedRequest] = field(default_factory=list)
    body: str = ""
    body_type: str = ""
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    answer: bytes | None = None
    answer_cut: int | None = None
    answer_type: str = ""
    stack: CallStack | None = None
    application: ref[Any] | None = None
    instance: int = 1


def _header_of(variable: str) -> str:
    """Return the header of a variable of WSGI: ``X-User`` of ``HTTP_X_USER``."""
    return variable.removeprefix("HTTP_").replace("_", "-").title()


class Listener:
    """Records requests for one cloud at a time, through signals and test clients, until it is closed."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.served: deque[ServedRequest] = deque(maxlen=_MOST)
        self._under_way: list[ServedRequest] = []
        self._lock = threading.Lock()
        self._unobserved = set(_FRAMEWORKS)
        self._connected: list[tuple[Any, _Receiver]] = []
        self._wrapped: list[Replacement] = []
        self._unsubscribe: Callable[[], None] = lambda: None

    def listen(self, recorder: Recorder | None) -> None:
        """Record requests for the cloud of this recorder, and forget those for another one; None records
        nothing.
        """
        if recorder is not self.recorder:
            self._unsubscribe()
            if recorder is not None:
                self._unsubscribe = recorder.shared.forget_listeners.add(self.forget_since)
            self.recorder = recorder
            with self._lock:
                self.served.clear()
                self._under_way.clear()
        if recorder is not None:
            for name in sys.modules.keys() & self._unobserved:
                self._unobserved.remove(name)
                # Another version of the module may lack these names.
                with suppress(AttributeError, TypeError):
                    _FRAMEWORKS[name](self, sys.modules[name])

    def close(self) -> None:
        """Stop recording, and remove the wrappers."""
        while self._connected:
            signal, receiver = self._connected.pop()
            signal.disconnect(receiver)
        while self._wrapped:
            self._wrapped.pop().restore()
        self._unobserved.update(_FRAMEWORKS)

    def forget_since(self, number: int) -> None:
        """Forget the requests of a trial run, whose calls the journal forgets."""
        with self._lock:
            requests = [request for request in self.served if request.began <= number]
            self.served.clear()
            self.served.extend(requests)
            self._under_way = [request for request in self._under_way if request.began <= number]

    # -- records ---------------------------------------------------------------------------------

    def begin(
        self, framework: str, environ: Any, thread: int | None = None, application: object = None
    ) -> None:
        """Record a request. ``thread`` is 0 in an event loop, and this thread for WSGI by default."""
        recorder = self.recorder
        if recorder is None:
            return
        at_us, (target, path) = recorder.now_us(), _target(environ)
        if thread is None:
            thread = threading.get_ident() if "REQUEST_METHOD" in environ else 0
        with self._lock:
            number = recorder.reserve()
            request = ServedRequest(number, at_us, target, framework, environ, thread, path=path)
            request.body, request.body_type = _body_of(environ)
            request.stack = stack_above(sys._getframe(1))
            names = sorted(name for name in environ if str(name).startswith("HTTP_"))
            request.headers = tuple((_header_of(name), str(environ[name])) for name in names)
            with suppress(TypeError):  # of an object without weak references, such as None
                request.application = ref(application)
                request.instance = self._instance_of(request)
            for other in self._under_way:
                # Overlapping requests in one thread are nested: the earlier one made the later one.
                if not thread or other.thread != thread:
                    request.overlaps.append(other)
                    other.overlaps.append(request)
            self._under_way.append(request)
            self.served.append(request)

    def _instance_of(self, request: ServedRequest) -> int:
        """Return the number of the application that serves a request, among those of its framework."""
        others = [other for other in self.served
                  if other.framework == request.framework and other.application is not None]  # fmt: skip
        for other in others:
            if other.application is request.application:
                return other.instance
        return 1 + max((other.instance for other in others), default=0)

    def fail(self, environ: object, error: BaseException, *, is_over: bool = True) -> None:
        """Record an exception in a request. A response to it may follow, and is then the end."""
        raised = _in_words(error)
        with self._lock:
            if (request := self._find_open(environ)) is not None:
                request.raised = raised
                if is_over:
                    self._end(request)

    def end(self, environ: object, response: object) -> None:
        with self._lock:
            if (request := self._find_open(environ)) is None:
                return
            self._end(request)
            request.status, request.environ = getattr(response, "status_code", None), None
        with suppress(Exception):  # an application may have a response class of its own
            body = _response_body(response)
            if body is not None:
                request.answer = body[:_BODY]
                request.answer_cut = len(body) if len(body) > _BODY else None
            request.answer_type = str(getattr(response, "headers", {}).get("Content-Type", ""))

    def _end(self, request: ServedRequest) -> None:
        if self.recorder is not None:
            request.ended_us = self.recorder.now_us()
            request.ended = self.recorder.reserve()
        self._under_way = [other for other in self._under_way if other is not request]

    def _find_open(self, environ: object) -> ServedRequest | None:
        """Return the request with this WSGI environment or ASGI scope, unless a response ended it."""
        requests = reversed(self.served) if environ is not None else ()
        return next((request for request in requests if request.environ is environ), None)

    # -- Starlette, FastAPI and other ASGI applications --------------------------------------------

    def _wrap_async_transport(self, httpx: ModuleType) -> None:
        original = vars(httpx.ASGITransport).get("handle_async_request")

        async def observed(transport: Any, request: Any) -> Any:
            with self._observing(transport, request, 0) as responses:
                try:
                    responses.append(await original(transport, request))
                except Exception as error:
                    await look_up_libraries(error)
                    raise
            return responses[0]

        self._replace(httpx.ASGITransport, "handle_async_request", observed)

    def _wrap_transport(self, testclient: ModuleType) -> None:
        original = vars(testclient._TestClientTransport).get("handle_request")

        def observed(transport: Any, request: Any) -> Any:
            with self._observing(transport, request, threading.get_ident()) as responses:
                responses.append(original(transport, request))
            return responses[0]

        self._replace(testclient._TestClientTransport, "handle_request", observed)

    def _replace(self, owner: type, name: str, function: Callable[..., Any]) -> None:
        present = vars(owner).get(name)
        # After httpx2.alias_httpx(), both names are the same module, which is wrapped once.
        is_wrapped = any(replacement.value is present for replacement in self._wrapped)
        if isinstance(present, FunctionType) and not is_wrapped:
            self._wrapped.append(replace(owner, name, function))

    @contextmanager
    def _observing(self, transport: Any, request: Any, thread: int) -> Iterator[list[Any]]:
        """Record a request and its response, which the block appends to the list, or its exception."""
        environ, responses = self._begin_asgi(transport, request, thread), list[Any]()
        try:
            yield responses
        except BaseException as error:
            self.fail(environ, error)
            raise
        self.end(environ, responses[0])

    def _begin_asgi(self, transport: Any, request: Any, thread: int) -> object:
        """Record a request to an ASGI application; return its WSGI environment, None on an error."""
        with suppress(Exception):
            app = getattr(transport, "app", None)
            framework = "ASGI" if isinstance(app, FunctionType) else type(app).__name__
            url = request.url
            environ = {
                "REQUEST_METHOD": request.method,
                "PATH_INFO": url.path,
                "QUERY_STRING": url.query.decode("latin-1"),
                "CONTENT_TYPE": request.headers.get("Content-Type", ""),
                **{f"HTTP_{name}": value for name, value in request.headers.items()},
            }
            with suppress(Exception):  # a streamed body has not been read
                environ["wsgi.input"] = BytesIO(request.content)
            self.begin(framework, environ, thread, app)
            return environ
        return None

    # -- Flask and Django ------------------------------------------------------------------------

    def _connect(self, signal: Any, receive: _Receiver) -> None:
        """Connect a receiver to a signal; its exceptions do not reach the application."""

        def observed(sender: object, **arguments: Any) -> None:
            with suppress(Exception):
                receive(**arguments)

        signal.connect(observed)
        self._connected.append((signal, observed))

    def _observe_flask(self, flask: Any) -> None:
        def began(**_: object) -> None:
            application = flask.current_app._get_current_object()
            self.begin("Flask", flask.request.environ, application=application)

        def raised(exception: BaseException, **_: object) -> None:
            # If the application propagates exceptions, Flask sends no signal at the end.
            self.fail(flask.request.environ, exception)

        def ended(response: Any, **_: object) -> None:
            self.end(flask.request.environ, response)

        self._connect(flask.request_started, began)
        self._connect(flask.got_request_exception, raised)
        self._connect(flask.request_finished, ended)

    def _observe_django(self, signals: Any) -> None:
        def began(**arguments: Any) -> None:
            self.begin("Django", arguments.get("environ") or arguments["scope"])

        def raised(request: Any, **_: object) -> None:
            if (error := sys.exc_info()[1]) is not None:
                self.fail(_environ_of(request), error, is_over=False)

        def ended(**_: object) -> None:
            response = _closing_response()
            request = getattr(response, "wsgi_request", getattr(response, "asgi_request", None))
            self.end(_environ_of(request), response)

        self._connect(signals.request_started, began)
        self._connect(signals.got_request_exception, raised)
        self._connect(signals.request_finished, ended)


_FRAMEWORKS: Mapping[str, Callable[[Listener, Any], None]] = {
    "flask": Listener._observe_flask,
    "django.core.signals": Listener._observe_django,
    "httpx": Listener._wrap_async_transport,
    "httpx2": Listener._wrap_async_transport,
    "starlette.testclient": Listener._wrap_transport,
}
"""The modules whose requests can be observed, with the methods that begin it."""


def _in_words(error: BaseException) -> str:
    try:
        return raised_text(error)
    except Exception:  # its __str__ may raise, which must not disturb the application
        return f"the handler raised {type(error).__name__}"


def _target(environ: Any) -> tuple[str, str]:
    """Return the method, path and query of a WSGI environment or ASGI scope, and the path alone."""
    if "REQUEST_METHOD" in environ:
        # WSGI allows a server to omit empty values.
        method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO") or "/"
        query = environ.get("QUERY_STRING", "")
    else:
        method, path, query = environ["method"], environ["path"], environ["query_string"]
        if isinstance(query, bytes):  # Django's test client provides a string here.
            query = query.decode("latin-1")
    return f"{method} {path}{query and f'?{query}'}", path


def _body_of(environ: Any) -> tuple[str, str]:
    """Return the beginning of a test client's body, and its content type; does not read streams."""
    stream = environ.get("wsgi.input")
    # Django's test client wraps the body in an object of its own.
    stream = getattr(stream, "_FakePayload__content", stream)
    if not isinstance(stream, BytesIO):
        return "", ""
    sent = bytes(stream.getbuffer()[: 4 * _BODY])
    return sent.decode("utf-8", "replace")[:_BODY], str(environ.get("CONTENT_TYPE") or "")


def _response_body(response: Any) -> bytes | None:
    """Return the body of a response of Flask or Django; None if it is streamed.

    The responses of other test clients are streams, which only the test may read.
    """
    if hasattr(response, "get_data"):
        is_whole = not (response.is_streamed or response.direct_passthrough)
        return bytes(response.get_data()) if is_whole else None
    return bytes(response.content) if getattr(response, "streaming", True) is False else None


def _environ_of(request: Any) -> object:
    """Return the WSGI environment or ASGI scope of a Django request."""
    return getattr(request, "environ", getattr(request, "scope", None))


def _closing_response() -> object:
    """Find the response that has just sent Django's signal on the stack: the signal has none."""
    # Other listeners, such as a tracer, may add frames in between.
    frames = (frame for frame, _ in islice(walk_stack(sys._getframe(1)), _NEAR))
    owners = (frame.f_locals.get("self") for frame in frames)
    response = sys.modules["django.http.response"].HttpResponseBase
    return next((owner for owner in owners if isinstance(owner, response)), None)
