"""Receivers: `CallbackCapture` for the queue's callbacks, `Destination` for anything else.

Both are pytest-httpserver servers, so expectations are written in the language testers know, but
their application is mounted on the hub: a fresh port, concurrent requests, and no half second to
stop.  Importing this module imports pytest-httpserver.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_httpserver import HTTPServer
from pytest_httpserver.httpserver import Error, HandlerType, RequestHandler, RequestHandlerList
from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ..kernel.aio import drive, in_thread
from ..kernel.app import Answer, App, Request
from ..kernel.errors import ContractError
from ..kernel.faults import Fault
from ..kernel.handle import Context, Handle, Snapshot
from ..kernel.instants import monotonic, to_datetime
from ..kernel.journal import Found
from ..kernel.routing import Route
from .gateway import environ_of
from .model import DAY, first
from .sender import real_time
from .signing import explain

__all__ = ["Callback", "CallbackCapture", "Captured", "Destination"]

_METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE"
_LONGEST_DRIVE_US = 30 * DAY
DEFAULT_TIMEOUT = 5.0


class _ServerApp(App):
    """The pipeline in front of a pytest-httpserver: journal and faults as for every fake."""

    service = "destination"

    def __init__(self, receive: Callable[[Request], Answer], names: Iterable[str] = ()) -> None:
        self._receive = receive
        self._names = tuple(names)

    def routes(self) -> list[Route]:
        """The whole tree; each named path is a route of its own, so that faults can tell."""
        named = [
            Route(_METHODS, pattern, name, self._receive)
            for name in self._names
            for pattern in (f"/{name}", f"/{name}/{{rest*}}")
        ]
        return [*named, Route(_METHODS, "/{rest*}", "request", self._receive)]


class _Oneshots(RequestHandlerList):
    """One-shot expectations, each handed out to one of several simultaneous requests."""

    def __init__(self, handlers: Iterable[RequestHandler] = ()) -> None:
        super().__init__(handlers)
        self._lock = threading.Lock()

    def match(self, request: WerkzeugRequest) -> RequestHandler | None:
        """Return the first that matches, and take it out."""
        with self._lock:
            found = super().match(request)
            if found is not None:
                super().remove(found)
            return found

    def remove(self, handler: RequestHandler) -> None:
        """Do nothing: `match` has taken it out."""


class Destination(Handle, HTTPServer):
    """A pytest-httpserver with `.url`, to receive deliveries.

    Write expectations with `expect_request()`, `expect_oneshot_request()` and
    `expect_ordered_request()`; what they do not meet fails the test in its call phase.  Handlers may
    run at the same time.
    """

    service: ClassVar[str] = "destination"
    fixture: ClassVar[str] = "destination"

    _paths: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: Context, *, name: str | None = None) -> None:
        HTTPServer.__init__(self, "127.0.0.1", 0, threaded=True)
        self.clear_all_handlers()
        Handle.__init__(self, context, _ServerApp(self._serve, self._paths), name=name)
        self.port = self._mount.port
        self.ssl_context = context.tls

    # -- pytest-httpserver on the hub ------------------------------------------------------------

    def start(self) -> None:
        """Do nothing: the server is up from the beginning."""
        if self.closed:
            raise ContractError(f"{self.name} is closed: ask the cloud for another one")

    def stop(self) -> None:
        """Close the handle; returns at once."""
        self.close()

    def is_running(self) -> bool:
        """Whether the server takes requests."""
        return not self.closed

    def _serve(self, request: Request) -> Answer:
        target = request.target if request.target.startswith("/") else request.path
        host = request.header("host")
        origin = f"{self.url.partition('://')[0]}://{host}" if host else self.url
        environ = environ_of(request.method, origin + target, list(request.headers), request.body)
        environ["fakecloud.headers"] = list(request.headers)
        if request.client:
            environ["REMOTE_ADDR"] = request.client[0]
        received = WerkzeugRequest(environ)
        try:
            response = self.application(received)
        except Error as error:
            # An expectation without an answer: the test forgot a respond_with_...().
            self.add_assertion(str(error))
            response = WerkzeugResponse(str(error), self.no_handler_status_code)
        except Exception as error:
            # Already among the assertions or the handler errors, which `unmet` reports.
            response = WerkzeugResponse(f"{type(error).__name__}: {error}", 500)
        return _answer(response)

    # -- expectations ----------------------------------------------------------------------------

    def clear_all_handlers(self) -> None:
        """Forget all expectations."""
        super().clear_all_handlers()
        self.oneshot_handlers = _Oneshots()

    def unmet(self) -> list[str]:
        """Return the reasons why the expectations are not met; an empty list when they are.

        Reasons are: a request nobody expected, a failed assertion or an exception in a handler, and
        a one-shot or ordered request that never came.
        """
        reasons = [str(text) for text in self.assertions]
        reasons += [
            f"a handler raised {type(error).__name__}: {error}" for error in self.handler_errors
        ]
        reasons += [
            f"the {kind.value} request never came: {handler.matcher}"
            for kind, handlers in (
                (HandlerType.ORDERED, self.ordered_handlers),
                (HandlerType.ONESHOT, self.oneshot_handlers),
            )
            for handler in handlers
        ]
        return reasons

    # -- data ------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The expectations, and what has come so far."""
        return Snapshot(
            self.fixture,
            {
                "ordered_handlers": list(self.ordered_handlers),
                "oneshot_handlers": list(self.oneshot_handlers),
                "handlers": list(self.handlers),
                "log": list(self.log),
                "assertions": list(self.assertions),
                "handler_errors": list(self.handler_errors),
                "permanently_failed": self.permanently_failed,
            },
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the expectations of a snapshot."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != self.fixture:
            raise ContractError(
                f"{snapshot!r} is no snapshot of a {self.fixture}: give what its snapshot() returned"
            )
        for attribute, value in snapshot.data.items():
            if attribute == "oneshot_handlers":
                value = _Oneshots(value)
            elif attribute == "handlers":
                value = RequestHandlerList(value)
            elif isinstance(value, list):
                value = list(value)
            setattr(self, attribute, value)

    def load(self, data: Any) -> None:
        """Not for this handle: expectations are written with `expect_request()`."""
        raise ContractError("a receiver holds no data; write expectations with expect_request()")


def _answer(response: WerkzeugResponse) -> Answer:
    headers = [
        (name, value)
        for name, value in response.headers
        if name.lower() not in ("content-type", "content-length")
    ]
    return Answer(response.get_data(), response.status_code, headers, response.content_type)


# -- callbacks -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Callback:
    """One callback or failure callback, decoded.

    `raw` is the whole body as JSON, under the service's names; `body` and `source_body` are bytes
    (what the destination answered, and what was published).  `problem` says why the signature does
    not verify, None when it does.  A body that is no callback leaves the fields None.
    """

    raw: dict[str, Any]
    headers: list[tuple[str, str]]
    problem: str | None
    at_us: int
    failure: bool
    request: WerkzeugRequest

    @property
    def status(self) -> int | None:
        """The status the destination answered; 0 when no answer came."""
        return _number(self.raw.get("status"))

    @property
    def body(self) -> bytes:
        """The body the destination answered."""
        return _decoded(self.raw.get("body"))

    def json(self) -> Any:
        """Return the destination's answer read as JSON; `ValueError` when it is none."""
        return json.loads(self.body)

    @property
    def source_body(self) -> bytes:
        """The body that was published."""
        return _decoded(self.raw.get("sourceBody"))

    def source_json(self) -> Any:
        """Return the published body read as JSON."""
        return json.loads(self.source_body)

    @property
    def source_message_id(self) -> str | None:
        """The id of the message this is about."""
        found = self.raw.get("sourceMessageId", self.raw.get("sourceMessasgeId"))
        return found if isinstance(found, str) else None

    @property
    def retried(self) -> int | None:
        """How many attempts the message had before this one."""
        return _number(self.raw.get("retried"))

    @property
    def max_retries(self) -> int | None:
        """How many retries the message may have."""
        return _number(self.raw.get("maxRetries"))

    @property
    def dlq_id(self) -> str | None:
        """The dead letter's id, in a failure callback."""
        found = self.raw.get("dlqId")
        return found if isinstance(found, str) else None

    @property
    def url(self) -> str | None:
        """The destination of the message this is about."""
        found = self.raw.get("url")
        return found if isinstance(found, str) else None

    @property
    def is_final(self) -> bool:
        """Whether no further attempt follows: delivered, given up, or a failure callback."""
        if self.failure or (self.status is not None and 200 <= self.status <= 299):
            return True
        return self.retried is not None and self.retried == self.max_retries

    @property
    def verified(self) -> bool:
        """Whether the signature is that of a queue of this cloud, for this URL and this body."""
        return self.problem is None

    @property
    def at(self) -> Any:
        """When it came, on the cloud's clock: an aware UTC datetime."""
        return to_datetime(self.at_us)

    def header(self, name: str) -> str | None:
        """Return the first request header of that name, in any spelling, or None."""
        return first(self.headers, name)

    def __repr__(self) -> str:
        kind = "failure callback" if self.failure else "callback"
        signature = "verified" if self.verified else f"not verified: {self.problem}"
        final = ", final" if self.is_final else ""
        return (
            f"<{kind} of {self.source_message_id} at {self.at.isoformat()}: status {self.status}, "
            f"retried {self.retried} of {self.max_retries}{final}, {signature}>"
        )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


class _ScopedFaults:
    """The faults of one of the two receivers; every word of the vocabulary, bound to its route."""

    def __init__(self, capture: CallbackCapture, route: str) -> None:
        self._capture = capture
        self._route = route

    def __getattr__(self, word: str) -> Callable[..., Fault]:
        method = getattr(self._capture.faults, word)
        if word in ("up", "clear", "unused"):
            bound: Callable[..., Fault] = method
            return bound
        return functools.partial(method, route=self._route)


class Captured(Found[Callback]):
    """What came to one URL of a capture, oldest first: a list with `.url` and `.wait_for()`."""

    def __init__(self, capture: CallbackCapture, path: str, failure: bool) -> None:
        super().__init__()
        self._capture = capture
        self._path = path
        self._failure = failure
        self.faults = _ScopedFaults(capture, path.strip("/"))

    @property
    def url(self) -> str:
        """The URL to publish with."""
        return self._capture.url + self._path

    @property
    def kind(self) -> str:
        """What the items are called."""
        return "failure callback" if self._failure else "callback"

    @property
    def aio(self) -> Any:
        """The waiting call, awaitable: `await captured.aio.wait_for(...)`."""
        return _Aio(self._capture, self)

    def wait_for(
        self, wanted: int | Callable[[Callback], object] = 1, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Found[Callback]:
        """Return the items once there are `wanted` of them, or one the predicate holds for.

        Where the queue is driven, this drives it, moving time to whatever falls due next, until the
        condition holds or nothing is left to deliver.  Where it delivers in the background, this
        waits at most `timeout` real seconds.  Raises `AssertionError` with the timelines of the
        messages and the nearest items.
        """
        condition = _Condition(self, wanted)
        self._capture.drive_until(condition, timeout)
        return condition.result(timeout)

    def reset(self) -> None:
        """Forget what came."""
        self.clear()


class _Condition:
    """What a wait is for, and how to say that it did not come."""

    def __init__(self, captured: Captured, wanted: int | Callable[[Callback], object]) -> None:
        if isinstance(wanted, bool) or not (callable(wanted) or isinstance(wanted, int)):
            raise ContractError(f"wait_for() takes a number or a predicate, got {wanted!r}")
        if isinstance(wanted, int) and wanted < 1:
            raise ContractError(f"wait_for({wanted}) waits for nothing: give 1 or more")
        self._captured = captured
        self._wanted = wanted

    def found(self) -> Found[Callback]:
        items = list(self._captured)
        if callable(self._wanted):
            predicate = self._wanted
            return Found(item for item in items if predicate(item))
        return Found(items)

    def __call__(self) -> bool:
        return len(self.found()) >= (self._wanted if isinstance(self._wanted, int) else 1)

    def result(self, timeout: float) -> Found[Callback]:
        if self():
            return self.found()
        raise AssertionError(self._captured._capture.failure_text(self._captured, self._wanted))


class _Aio:
    def __init__(self, capture: CallbackCapture, captured: Captured) -> None:
        self._capture = capture
        self._captured = captured

    async def wait_for(
        self, wanted: int | Callable[[Callback], object] = 1, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Found[Callback]:
        """`Captured.wait_for`, awaitable."""
        condition = _Condition(self._captured, wanted)
        await self._capture.adrive_until(condition, timeout)
        return condition.result(timeout)


class CallbackCapture(Destination):
    """A receiver of callbacks: publish with `callback_url` and `failure_url`.

    `callbacks` and `failures` are lists of `Callback`; `wait_for_callback()` and
    `wait_for_failure()` return the next one.  Everything is answered 200 unless an expectation of
    pytest-httpserver matches, or a fault says otherwise.  `keys` are the signing keys of a queue
    outside of this cloud, by name; without them the keys of this cloud's queues count.
    """

    service: ClassVar[str] = "callback_capture"
    fixture: ClassVar[str] = "callback_capture"

    _paths: ClassVar[tuple[str, ...]] = ("callback", "failure")

    def __init__(
        self,
        context: Context,
        *,
        name: str | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self._keys = dict(keys) if keys else None
        self.callbacks = Captured(self, "/callback", failure=False)
        self.failures = Captured(self, "/failure", failure=True)
        self._taken = {id(self.callbacks): 0, id(self.failures): 0}
        self._came = context.clock.signal()
        super().__init__(context, name=name)

    @property
    def callback_url(self) -> str:
        """Where callbacks go: the value for `Upstash-Callback`."""
        return self.callbacks.url

    @property
    def failure_url(self) -> str:
        """Where failure callbacks go: the value for `Upstash-Failure-Callback`."""
        return self.failures.url

    def wait_for_callback(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """Return the next callback: the oldest that no such call has returned yet."""
        return self._next(self.callbacks, timeout)

    def wait_for_failure(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """Return the next failure callback: the oldest that no such call has returned yet."""
        return self._next(self.failures, timeout)

    @property
    def aio(self) -> Any:
        """The waiting calls, awaitable."""
        return _CaptureAio(self)

    def _next(self, captured: Captured, timeout: float) -> Callback:
        number = self._taken[id(captured)] + 1
        item = captured.wait_for(number, timeout=timeout)[number - 1]
        self._taken[id(captured)] = number
        return item

    # -- receiving -------------------------------------------------------------------------------

    def dispatch(self, request: WerkzeugRequest) -> WerkzeugResponse:
        """Record a callback; answer 200, or what an expectation says."""
        captured = self._captured_at(request.environ["RAW_URI"].partition("?")[0])
        if captured is None:
            return super().dispatch(request)
        list.append(captured, self._read(request, captured is self.failures))
        self._came.notify()
        expected = self.permanently_failed or any(
            handler.matcher.match(request)
            for handlers in (self.ordered_handlers[:1], self.oneshot_handlers, self.handlers)
            for handler in list(handlers)
        )
        return super().dispatch(request) if expected else WerkzeugResponse("")

    def _captured_at(self, path: str) -> Captured | None:
        for captured in (self.callbacks, self.failures):
            if path == captured._path or path.startswith(captured._path + "/"):
                return captured
        return None

    def _read(self, request: WerkzeugRequest, failure: bool) -> Callback:
        body = request.get_data()
        try:
            raw = json.loads(body)
        except ValueError:
            raw = None
        environ = request.environ
        url = f"{environ['wsgi.url_scheme']}://{environ['HTTP_HOST']}{environ['RAW_URI']}"
        headers = environ["fakecloud.headers"]
        signature = first(headers, "Upstash-Signature") or first(headers, "Service-Signature")
        return Callback(
            raw=raw if isinstance(raw, dict) else {},
            headers=headers,
            problem=self._why_not_verified(signature, body, url),
            at_us=self.clock.now_us(),
            failure=failure,
            request=request,
        )

    def _why_not_verified(self, signature: str | None, body: bytes, url: str) -> str | None:
        if self._keys is not None:
            return explain(signature, body=body, keys=self._keys, at=time.time(), url=url)
        queues = list(self._queues())
        if not queues:
            return "there is no queue in this cloud: give its keys with keys={'current': ...}"
        keys: dict[str, str] = {}
        for queue in queues:
            whose = f"{queue.name} " if len(queues) > 1 else ""
            keys[f"{whose}current"] = queue.current_signing_key
            keys[f"{whose}next"] = queue.next_signing_key
        at = self._receiver_time(getattr(queues[0], "signature_clock", "receiver"))
        return explain(signature, body=body, keys=keys, at=at, url=url)

    def _receiver_time(self, kind: object) -> float:
        if kind == "virtual":
            return self.clock.now_us() / 1_000_000
        return real_time() if kind == "real" else time.time()

    # -- waiting ---------------------------------------------------------------------------------

    def drive_until(self, done: Callable[[], bool], timeout: float) -> None:
        """Drive the queues of this cloud, or wait for them, until the condition holds.

        Returns without it when nothing is left to deliver, or after `timeout` real seconds.
        """
        if not self._driven():
            self._wait(done, timeout)
            return
        for target in self._targets(done, timeout):
            for timer in (steps := self.clock.steps(target)):
                timer.callback(timer.due_us)
                if done():
                    steps.close()
                    break

    async def adrive_until(self, done: Callable[[], bool], timeout: float) -> None:
        """`drive_until`, awaitable: deliveries are awaited in the running loop."""
        if not self._driven():
            await in_thread(self._wait, done, timeout)
            return
        for target in self._targets(done, timeout):
            await drive(self.clock, target)

    def _targets(self, done: Callable[[], bool], timeout: float) -> Iterator[Callable[[], int]]:
        """The instants to drive to, one after the other, while there is something to hope for."""
        give_up = monotonic() + timeout
        limit = self.clock.now_us() + _LONGEST_DRIVE_US
        while not done() and monotonic() < give_up:
            due = self.clock.next_due_us()
            if due is None or due > limit or not any(q.engine.pending for q in self._queues()):
                return
            yield functools.partial(max, due, self.clock.now_us())

    def _wait(self, done: Callable[[], bool], timeout: float) -> None:
        give_up = monotonic() + timeout
        while True:
            seen = self._came.version
            left = give_up - monotonic()
            if done() or left <= 0 or self._came.closed:
                return
            self._came.sleep(seen, left)

    def _driven(self) -> bool:
        return self.context.delivery == "driven" and any(True for _ in self._queues())

    def _queues(self) -> Iterator[Any]:
        return (handle for handle in self.context.handles if handle.service == "queue")

    # -- saying what went wrong ------------------------------------------------------------------

    def failure_text(self, captured: Captured, wanted: int | Callable[[Callback], object]) -> str:
        """Return why a wait was in vain: what came, what did not, and how far the messages are."""
        kind = captured.kind
        if callable(wanted):
            name = getattr(wanted, "__name__", repr(wanted))
            lines = [f"no {kind} for which {name} holds; {len(captured)} came to {captured.url}"]
        else:
            lines = [f"expected {wanted} {kind}(s) at {captured.url}, {len(captured)} came"]
        lines += [f"  {item!r}" for item in captured[-5:]]
        if captured and callable(wanted):
            lines.append("  the nearest one's body:")
            text = json.dumps(captured[-1].raw, indent=2, ensure_ascii=False)
            lines += [f"    {line}" for line in text.splitlines()]
        other = self.failures if captured is self.callbacks else self.callbacks
        if other:
            lines.append(f"  {len(other)} {other.kind}(s) came to {other.url} instead:")
            lines += [f"    {item!r}" for item in other[-3:]]
        told = False
        for queue in self._queues():
            for message in queue.messages()[-5:]:
                told = True
                lines.append(f"  {message!r}")
                lines += [f"    {line}" for line in str(message.timeline).splitlines()]
        if not told:
            lines.append("  no message was published to a queue of this cloud")
        due = self.clock.next_due()
        if self._driven() and due is None:
            lines.append("  nothing is left to deliver, so no wait can bring it")
        elif not self._driven() and due is not None and self.clock.mode == "frozen":
            lines.append(
                f"  the clock is frozen at {self.clock.now().isoformat()} and the next thing is due "
                f"at {due.isoformat()}: move it with clock.advance()"
            )
        return "\n".join(lines)

    # -- data ------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The expectations and what has come so far."""
        saved = super().snapshot()
        saved.data["callbacks"] = list(self.callbacks)
        saved.data["failures"] = list(self.failures)
        saved.data["taken"] = (
            self._taken[id(self.callbacks)],
            self._taken[id(self.failures)],
        )
        return saved

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the expectations and the callbacks of a snapshot."""
        own = {"callbacks", "failures", "taken"}
        data = snapshot.data if isinstance(snapshot, Snapshot) else {}
        rest = {name: value for name, value in data.items() if name not in own}
        super().restore(Snapshot(snapshot.fixture, rest) if data else snapshot)
        self.callbacks[:] = data["callbacks"]
        self.failures[:] = data["failures"]
        taken = data["taken"]
        self._taken = {id(self.callbacks): taken[0], id(self.failures): taken[1]}

    def close(self) -> None:
        """End the receiver and every wait for it."""
        self._came.close()
        super().close()


class _CaptureAio:
    def __init__(self, capture: CallbackCapture) -> None:
        self._capture = capture

    async def wait_for_callback(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """`CallbackCapture.wait_for_callback`, awaitable."""
        return await self._next(self._capture.callbacks, timeout)

    async def wait_for_failure(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """`CallbackCapture.wait_for_failure`, awaitable."""
        return await self._next(self._capture.failures, timeout)

    async def _next(self, captured: Captured, timeout: float) -> Callback:
        number = self._capture._taken[id(captured)] + 1
        items = await captured.aio.wait_for(number, timeout=timeout)
        self._capture._taken[id(captured)] = number
        item: Callback = items[number - 1]
        return item
