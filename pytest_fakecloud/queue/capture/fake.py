"""The ``CallbackCapture`` fake, which records, decodes and verifies the queue's callbacks.

Waiting for a callback also delivers messages, unless the queue delivers in the background.
Importing this module imports pytest-httpserver.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Unpack, cast

from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ...cloud.actions import look
from ...cloud.fake import Snapshot, core_of
from ...core.clock import in_thread
from ...core.errors import ContractError, counted
from ...core.journal import Results, expect, results_of
from ...core.matching import Query
from ...core.timers import Occupied, process_seconds, to_datetime
from ..actions import at_least_now
from ..attempt_reports import dead_letter_lines, unfinished_lines
from ..delivery.destination_server import RAW_HEADERS, Destination, DestinationServer, ServerApp
from ..model import DAY
from ..settings import CallbackCaptureConfig
from ..signatures import explain, verified_claims
from ..views import MESSAGES, PublishedMessage, record_of
from .callbacks import DEFAULT_TIMEOUT, FIELDS, Callback, Patience, Predicate, query_of

if TYPE_CHECKING:
    from ..._typing.queue import CallbackCaptureSettings as CallbackCaptureSettings
    from ..._typing.queue import CallbackFields
    from ..fake import Queue
else:
    from ...core.settings import keywords_of

    CallbackCaptureSettings = keywords_of(CallbackCaptureConfig, "``Cloud.callback_capture()``")

LONGEST_MOVE_US = 30 * DAY
"""Maximum time by which a wait for a callback moves the clock."""
_NAP = 0.02
"""Real seconds between checks while background deliveries are in progress."""
_ALL = query_of({})
"""The condition that all callbacks meet."""


class Inbox:
    """The callbacks received at one URL of a capture. ``notes`` returns lines for an empty list."""

    def __init__(self, path: str, *, failure: bool, notes: Callable[[], Iterable[str]]) -> None:
        self.path = path
        self.failure = failure
        self.kind = "failure callback" if failure else "callback"
        self._notes = notes
        self.items: list[Callback] = []
        self._returned: set[Callback] = set()
        self._lock = threading.Lock()

    def results(self, query: Query = _ALL) -> Results[Callback]:
        with self._lock:
            items = list(self.items)
        # Compare without the lock, because a condition may be a function of the test.
        results = results_of(filter(query, items), FIELDS, self.kind)
        results._notes = self._notes
        return results

    def take(self, query: Query) -> Callback | None:
        """Return the oldest matching callback that no wait has returned yet, or None."""
        while (item := self.next(query)) is not None:
            with self._lock:
                if item not in self._returned:
                    self._returned.add(item)
                    return item
        return None

    def next(self, query: Query) -> Callback | None:
        """Like ``take()``, but do not count the callback as returned."""
        with self._lock:
            items = [callback for callback in self.items if callback not in self._returned]
        # Compare without the lock, because a condition may be a function of the test.
        return next((callback for callback in items if query(callback)), None)

    def saved(self) -> Any:
        with self._lock:
            return list(self.items), set(self._returned)

    def restore(self, saved: Any) -> None:
        with self._lock:
            self.items, self._returned = list(saved[0]), set(saved[1])


class _CaptureServer(DestinationServer):
    """Records callbacks before it responds."""

    _destination: CallbackCapture

    def dispatch(self, request: WerkzeugRequest) -> WerkzeugResponse:
        """Record a callback and return 200, or the response of a matching expectation."""
        capture, path = self._destination, request.environ["RAW_URI"].partition("?")[0]
        for inbox in (capture._callbacks, capture._failures):
            if f"{path}/".startswith(f"{inbox.path}/"):
                inbox.items.append(capture._read(request, inbox.failure))
                capture._arrival.notify()
                if not self._has_answer(request):
                    return WerkzeugResponse("")
        return super().dispatch(request)

    def _has_answer(self, request: WerkzeugRequest) -> bool:
        """Return whether pytest-httpserver answers a request itself, or has failed permanently."""
        return self.permanently_failed or any(
            handler.matcher.match(request)
            for handlers in (self.ordered_handlers[:1], self.oneshot_handlers, self.handlers)
            for handler in list(handlers)
        )


class _CaptureApp(ServerApp):
    paths: ClassVar[Mapping[str, str]] = {"callback": "callbacks", "failure": "failures"}


class CallbackCapture(Destination):
    """A receiver of callbacks. Publish messages with its ``callback_url`` and ``failure_url``.

    ``wait_for_callback()`` and ``wait_for_failure()`` return the next callback, ``callbacks()`` and
    ``failures()`` list all of them. Every request is answered with 200 unless an expectation of
    ``server`` matches or a fault is injected; ``route="callbacks"`` and ``route="failures"`` select
    the requests to one of the URLs. ``keys`` are the signing keys, by name, of a queue outside this
    cloud. By default, the keys of this cloud's queues are used.
    """

    service: ClassVar[str] = "callback_capture"
    fixture: ClassVar[str] = "callback_capture"

    _config_class = CallbackCaptureConfig
    _config: CallbackCaptureConfig
    _app_type = _CaptureApp
    _server_type = _CaptureServer

    def _make_app(self) -> ServerApp:
        self._keys = self._config.keys or None
        self._arrival = self._timekeeper.signal()
        """It is notified of each callback."""
        # End every wait for callbacks.
        self._exits.callback(self._arrival.close)
        notes = partial(undelivered_lines, weakref.proxy(self))
        self._callbacks = Inbox("/callback", failure=False, notes=notes)
        self._failures = Inbox("/failure", failure=True, notes=notes)
        return super()._make_app()

    @property
    def callback_url(self) -> str:
        """The URL to publish with in ``Upstash-Callback``."""
        return self.url + self._callbacks.path

    @property
    def failure_url(self) -> str:
        """The URL to publish with in ``Upstash-Failure-Callback``."""
        return self.url + self._failures.path

    # -- received callbacks ----------------------------------------------------------------------

    @look
    def callbacks(self, **where: Unpack[CallbackFields]) -> Results[Callback]:
        """Return the callbacks received at ``callback_url``, oldest first.

        ``where`` are conditions on fields, such as ``status``.
        """
        __tracebackhide__ = True
        return self._callbacks.results(query_of(where))

    @look
    def failures(self, **where: Unpack[CallbackFields]) -> Results[Callback]:
        """Return the failure callbacks received at ``failure_url``, oldest first.

        ``where`` are conditions on fields, such as ``status``.
        """
        __tracebackhide__ = True
        return self._failures.results(query_of(where))

    @look
    def assert_callback(
        self, *, times: int | None = None, **where: Unpack[CallbackFields]
    ) -> Results[Callback]:
        """Assert that a matching callback was received, and return all matching callbacks.

        ``times`` is the exact number of callbacks expected (at least one by default). This method
        delivers nothing. The error contains the closest callbacks and how they differ.
        """
        __tracebackhide__ = True
        return self._expect(self._callbacks, query_of(where), times)

    @look
    def assert_no_callback(self, **where: Unpack[CallbackFields]) -> None:
        """Assert that no matching callback was received."""
        __tracebackhide__ = True
        self.assert_callback(times=0, **where)

    @look
    def assert_failure(
        self, *, times: int | None = None, **where: Unpack[CallbackFields]
    ) -> Results[Callback]:
        """Like ``assert_callback()``, for failure callbacks."""
        __tracebackhide__ = True
        return self._expect(self._failures, query_of(where), times)

    @look
    def assert_no_failure(self, **where: Unpack[CallbackFields]) -> None:
        """Assert that no matching failure callback was received."""
        __tracebackhide__ = True
        self.assert_failure(times=0, **where)

    def _expect(self, inbox: Inbox, query: Query, times: int | None) -> Results[Callback]:
        __tracebackhide__ = True
        return expect(
            f"a {inbox.kind} at {self.url}{inbox.path}",
            inbox.results(),
            query,
            times=times,
            if_empty="none was received",
            notes=lambda results: wait_report(
                self, inbox, query, missing=times is None or results < times
            ),
        )

    # -- waiting ---------------------------------------------------------------------------------

    @look
    def wait_for_callback(
        self,
        predicate: Predicate | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **where: Unpack[CallbackFields],
    ) -> Callback:
        """Return the oldest matching callback that no wait has returned yet, waiting if necessary.

        ``where`` are conditions on fields (``status=200``, ``response_json={...}``). If the queue
        delivers only when the test calls a delivering method, this method runs the queue and moves
        the clock to the next due time until a callback matches or nothing is left to deliver. If
        the queue delivers in the background, it waits at most ``timeout`` real seconds. Raises
        ``AssertionError`` with the timelines of the messages and the differences of the closest
        callbacks.
        """
        __tracebackhide__ = True
        return self._next(self._callbacks, query_of(where, predicate), timeout)

    @look
    def wait_for_failure(
        self,
        predicate: Predicate | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **where: Unpack[CallbackFields],
    ) -> Callback:
        """Like ``wait_for_callback()``, for failure callbacks."""
        __tracebackhide__ = True
        return self._next(self._failures, query_of(where, predicate), timeout)

    @property
    def aio(self) -> AwaitableCapture:
        """Awaitable versions of the waiting methods."""
        return AwaitableCapture(self)

    def _next(self, inbox: Inbox, query: Query, timeout: float) -> Callback:
        __tracebackhide__ = True
        patience = Patience(timeout)
        while self._until(lambda: inbox.next(query) is not None, patience):
            # Keep waiting if another thread has taken the callback first.
            if (item := inbox.take(query)) is not None:
                return item
        self._fail_missing(inbox, query)

    def _fail_missing(self, inbox: Inbox, query: Query) -> NoReturn:
        """Fail because one more callback was expected than was received."""
        __tracebackhide__ = True
        matching = sum(map(query, inbox.results()))
        self._expect(inbox, query, matching + 1 if matching else None)
        raise AssertionError  # For the type checker only, because the line above always raises.

    def _until(self, done: Callable[[], bool], patience: Patience) -> bool:
        """Deliver or await messages until a condition is true; return False if it cannot become true."""
        __tracebackhide__ = True
        with self._timekeeper.moving_call():
            for target in self._due_times(done):
                self._timekeeper.fire(target, done=done)
        return self._wait(done, patience) if self._may_arrive() else done()

    async def _auntil(self, done: Callable[[], bool], patience: Patience) -> bool:
        __tracebackhide__ = True
        with self._timekeeper.moving_call():
            for target in self._due_times(done):
                await self._timekeeper.fire_async(target, done=done)
        if not self._may_arrive():
            return done()
        cancelled = threading.Event()
        try:
            return await in_thread(self._wait, done, patience, cancelled)
        finally:
            # Stop the thread. Otherwise it would keep waiting after its task was cancelled.
            cancelled.set()
            self._arrival.notify()

    def _due_times(self, done: Callable[[], bool]) -> Iterator[Callable[[], int]]:
        """Yield the next due times until nothing pending can produce a callback."""
        queues = [queue for queue in self._queues() if queue.delivery == "driven"]
        limit = self._timekeeper.now_us() + LONGEST_MOVE_US
        if queues and not done() and self._timekeeper.is_moving:
            # If a handler waits for a later callback, raise the error of any nested advance.
            yield self._timekeeper.now_us
        while queues and not done():
            due = _next_due_us(queues)
            if due is None or due > limit:
                return
            yield partial(at_least_now, self._timekeeper, due)

    def _wait(
        self, done: Callable[[], bool], patience: Patience, cancelled: threading.Event | None = None
    ) -> bool:
        """Wait for background deliveries, and move the clock if none is due yet."""
        limit = self._timekeeper.now_us() + LONGEST_MOVE_US
        background = [queue for queue in self._queues() if queue.delivery != "driven"]
        while True:
            version = self._arrival.version
            left = patience.left()
            if done():
                return True
            if left <= 0 or self._arrival.closed or (cancelled is not None and cancelled.is_set()):
                return False
            due, now = _next_due_us(background), self._timekeeper.now_us()
            if due is not None and now < due <= limit and self._move_clock_to(due, left):
                continue
            # Poll, because nothing signals the end of an attempt or a newly published message.
            self._arrival.sleep(version, min(left, _NAP) if background else left)

    def _move_clock_to(self, due_us: int, patience: float) -> bool:
        """Move the clock to the next background delivery; return False while the clock is busy.

        Raises ``ContractError`` if only real time moves the clock, and not soon enough.
        """
        try:
            # Fire internal timers only, because deliveries are made by their own threads.
            self._timekeeper.fire(
                partial(at_least_now, self._timekeeper, due_us), ("state",), yielding=True
            )
        except Occupied:
            return False
        except ContractError:
            if due_us - self._timekeeper.now_us() > patience * 1_000_000:
                raise
            return False
        return True

    def _may_arrive(self) -> bool:
        """Return whether a callback may still arrive from the background or from outside the cloud."""
        queues = self._queues()
        return not queues or any(queue.delivery != "driven" for queue in queues)

    # -- receiving -------------------------------------------------------------------------------

    def _read(self, request: WerkzeugRequest, failure: bool) -> Callback:
        body = request.get_data()
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError):
            payload = None
        environ = request.environ
        url = f"{environ['wsgi.url_scheme']}://{environ['HTTP_HOST']}{environ['RAW_URI']}"
        signature = environ.get("HTTP_UPSTASH_SIGNATURE") or environ.get("HTTP_SERVICE_SIGNATURE")
        return Callback(
            payload=payload if isinstance(payload, dict) else {},
            headers=environ[RAW_HEADERS],
            problem=self._why_not_verified(signature, body, url),
            at_us=self._timekeeper.now_us(),
            failure=failure,
            http_request=request,
        )

    def _why_not_verified(self, signature: str | None, body: bytes, url: str) -> str | None:
        if self._keys is not None:
            return explain(signature, body=body, keys=self._keys, at=process_seconds(), url=url)
        queues = self._queues()
        if not queues:
            return (
                "this cloud has no queue; pass the signing keys of the queue outside it, such as "
                "keys={'current': ...}"
            )
        keys: dict[str, str] = {}
        for queue in queues:
            whose = f"{queue.name} " if len(queues) > 1 else ""
            signing_keys = core_of(queue).engine.keys
            keys[f"{whose}current"], keys[f"{whose}next"] = signing_keys.current, signing_keys.next
        # Queues may sign with different clocks. Use the clock of the queue whose key signed.
        signer = queues[0]
        if len(queues) > 1:
            signer = next(
                (queue for queue in queues if _has_signed(queue, signature or "")), signer
            )
        at = signer._signer.now()
        return explain(signature, body=body, keys=keys, at=at, url=url)

    def _queues(self) -> list[Queue]:
        fakes = self._context.fakes
        return [cast("Queue", fake) for fake in fakes if fake.service == "queue"]

    def snapshot(self) -> Snapshot:
        """Return the expectations and the received callbacks."""
        saved = super().snapshot()
        saved.data["inboxes"] = self._callbacks.saved(), self._failures.saved()
        return saved

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the expectations and the callbacks of a snapshot."""
        super().restore(snapshot)
        for inbox, saved in zip(
            (self._callbacks, self._failures), snapshot.data["inboxes"], strict=True
        ):
            inbox.restore(saved)


class AwaitableCapture:
    """Awaitable versions of the waiting methods of ``CallbackCapture``."""

    def __init__(self, capture: CallbackCapture) -> None:
        self._capture = capture

    async def wait_for_callback(
        self,
        predicate: Predicate | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **where: Unpack[CallbackFields],
    ) -> Callback:
        """Awaitable version of ``CallbackCapture.wait_for_callback()``, which awaits deliveries in
        the running loop.
        """
        __tracebackhide__ = True
        return await self._next(self._capture._callbacks, query_of(where, predicate), timeout)

    async def wait_for_failure(
        self,
        predicate: Predicate | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        **where: Unpack[CallbackFields],
    ) -> Callback:
        """Awaitable version of ``CallbackCapture.wait_for_failure()``, which awaits deliveries in
        the running loop.
        """
        __tracebackhide__ = True
        return await self._next(self._capture._failures, query_of(where, predicate), timeout)

    async def _next(self, inbox: Inbox, query: Query, timeout: float) -> Callback:
        __tracebackhide__ = True
        patience, wait = Patience(timeout), self._capture._auntil
        while await wait(lambda: inbox.next(query) is not None, patience):
            if (item := inbox.take(query)) is not None:
                return item
        self._capture._fail_missing(inbox, query)


def _has_signed(queue: Queue, signature: str) -> bool:
    keys = core_of(queue).engine.keys
    return verified_claims(signature, (keys.current, keys.next)) is not None


def _next_due_us(queues: list[Queue]) -> int | None:
    engines = [core_of(queue).engine for queue in queues]
    dues = [engine.next_due_us() for engine in engines if engine.data.pending]
    return min((due_us for due_us in dues if due_us is not None), default=None)


_OF_SOURCE = (("source_message_id", "id"), ("url", "url"))
"""The fields of a callback that identify the message it reports on, with the fields of messages."""
_COMPARED = 1000
"""Maximum number of messages of each queue that are compared with the wanted one."""
_LISTED = 5
"""Maximum number of messages of each queue that the error lists."""


def undelivered_lines(capture: CallbackCapture) -> list[str]:
    lines: list[str] = []
    for queue in capture._queues():
        engine = core_of(queue).engine
        lines += [*unfinished_lines(engine), *dead_letter_lines(engine)]
    more = len(lines) - _LISTED
    return lines[:_LISTED] + ([f"and {more} more"] if more > 0 else [])


def wait_report(
    capture: CallbackCapture, inbox: Inbox, query: Query, *, missing: bool
) -> list[str]:
    """Return lines about both URLs and the messages; if some are ``missing``, also what is pending."""
    lines: list[str] = []
    received = inbox.results()
    if received and not query.conditions.keys() - {"callback"}:
        lines.append("  payload of the last callback:")
        text = json.dumps(received[-1].payload, indent=2, ensure_ascii=False)
        lines += [f"    {line}" for line in text.splitlines()]
    other = capture._callbacks if inbox.failure else capture._failures
    if others := other.results():
        where = f"{capture.url}{other.path}"
        lines.append(f"  {counted(len(others), other.kind)} arrived at {where} instead:")
        lines += [f"    {item!r}" for item in others[-3:]]
    lines += _message_lines(capture, inbox, query)
    return lines + (_pending_lines(capture) if missing else [])


def _message_lines(capture: CallbackCapture, inbox: Inbox, query: Query) -> list[str]:
    url = capture.url + inbox.path
    conditions = {
        field: query.conditions[name] for name, field in _OF_SOURCE if name in query.conditions
    }
    source = Query(conditions, MESSAGES, "message")

    def likeness(message: PublishedMessage) -> tuple[bool, float, bool]:
        """Compare a message with the wanted one; the last value is whether it concerns this URL."""
        settings = record_of(message).settings
        callback_url = settings.failure_callback if inbox.failure else settings.callback
        concerns = any(address.startswith(url) for address in (message.url, callback_url or ""))
        return source(message), -source.unlikeness(message), concerns

    lines: list[str] = []
    for queue in capture._queues():
        messages = list(queue.messages())
        # Prefer the wanted message, then those that concern this URL, then the newest, but list
        # them as published.
        ranked = sorted(messages[-_COMPARED:], key=likeness)[-_LISTED:]
        for message in messages:
            if message in ranked:
                lines += [f"  {line}" for line in message.timeline.splitlines()]
        if len(messages) > _LISTED:
            lines.append(
                f"  and {counted(len(messages) - _LISTED, 'more message')} of {queue.name}"
            )
    return lines or ["  no message was published to a queue of this cloud"]


def _pending_lines(capture: CallbackCapture) -> list[str]:
    if capture.closed:
        return [f"  {capture.name} is closed and cannot receive callbacks any more"]
    due = capture.clock.next_due()
    if not capture._may_arrive() and due is None:
        return ["  nothing is left to deliver, so no further callback can arrive"]
    now_us = core_of(capture).timekeeper.now_us()
    return [text for queue in capture._queues() for text in _later_lines(queue, now_us)]


def _later_lines(queue: Queue, now_us: int) -> Iterator[str]:
    engine = core_of(queue).engine
    due = engine.next_due_us() if engine.data.pending else None
    if due is not None and due > now_us + LONGEST_MOVE_US:
        yield (
            f"  the next message is due at {to_datetime(due).isoformat()}, more than 30 days ahead:"
            " move the clock with clock.advance()"
        )
    elif due is not None:
        advice = "run the queue" if queue.delivery == "driven" else "pass a longer timeout="
        yield (
            f"  {counted(len(engine.data.pending), 'message')} still to be delivered, the next at "
            f"{to_datetime(due).isoformat()}: {advice}"
        )
    for schedule in queue.schedules():
        if not schedule.paused and (runs := schedule.next_runs(1)):
            yield (
                f"  the schedule {schedule.id} to {schedule.url} is due at "
                f"{runs[0].isoformat()}; waiting does not run schedules: move the clock with"
                " clock.advance()"
            )
