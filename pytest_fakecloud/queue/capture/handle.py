"""The ``CallbackCapture`` fake, which records, decodes and verifies the queue's callbacks.

Waiting for a callback also delivers messages, unless the queue delivers in the background.
Importing this module imports pytest-httpserver.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any, ClassVar, Unpack

from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ...core.concurrency.aio import drive, in_thread
from ...core.concurrency.turns import Occupied
from ...core.errors import ContractError
from ...core.matching import Query
from ...core.settings import number
from ...core.timeparse import monotonic, to_datetime
from ...core.wording import counted
from ...handle import Context, Snapshot
from ..delivery.destination_server import Destination
from ..delivery.sender import real_time
from ..model import DAY
from ..unfinished import given_up, pending
from ..wire.signing import explain
from .callbacks import (
    DEFAULT_TIMEOUT,
    Callback,
    Captured,
)
from .faults import ScopedFaults
from .settings import CallbackCaptureConfig, CallbackCaptureSettings

_LONGEST_DRIVE_US = 30 * DAY
_NAP = 0.02
"""Real seconds between checks while background deliveries are in progress."""
_TOLD = 5
"""Maximum number of messages of each queue that the error of a failed wait lists."""


class CallbackCapture(Destination):
    """A receiver of callbacks. Publish messages with its ``callback_url`` and ``failure_url``.

    ``callbacks`` and ``failures`` are lists of ``Callback``. ``wait_for_callback()`` and
    ``wait_for_failure()`` return the next one. Every request is answered with 200 unless an
    expectation of pytest-httpserver matches or a fault is injected. ``keys`` are the signing keys,
    by name, of a queue outside this cloud. By default, the keys of this cloud's queues are used.
    """

    service: ClassVar[str] = "callback_capture"
    fixture: ClassVar[str] = "callback_capture"

    _settings = CallbackCaptureConfig
    _paths: ClassVar[tuple[str, ...]] = ("callback", "failure")

    def __init__(
        self,
        context: Context,
        **settings: Unpack[CallbackCaptureSettings],
    ) -> None:
        config = self._configure(context, CallbackCaptureConfig, settings)
        self._keys = config.keys or None
        self.callbacks = self._captured("/callback", failure=False)
        self.failures = self._captured("/failure", failure=True)
        self._came = context.clock.signal()
        self._start(context, config)

    def _captured(self, path: str, *, failure: bool) -> Captured:
        return Captured(self, ScopedFaults(self, path.strip("/")), path, failure)

    @property
    def callback_url(self) -> str:
        """The URL to publish with in ``Upstash-Callback``."""
        return self.callbacks.url

    @property
    def failure_url(self) -> str:
        """The URL to publish with in ``Upstash-Failure-Callback``."""
        return self.failures.url

    def wait_for_callback(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """Return the oldest callback that has not been returned yet, waiting for one if necessary."""
        __tracebackhide__ = True
        return self._next(self.callbacks, timeout)

    def wait_for_failure(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """Return the oldest failure callback not returned yet, waiting for one if necessary."""
        __tracebackhide__ = True
        return self._next(self.failures, timeout)

    @property
    def aio(self) -> AwaitableCapture:
        """Awaitable versions of the waiting methods."""
        return AwaitableCapture(self)

    def _next(self, captured: Captured, timeout: float) -> Callback:
        __tracebackhide__ = True
        give_up = _give_up(timeout)
        while self._drive_until(captured._has_next, max(0.0, give_up - monotonic())):
            # Keep waiting if another thread has taken the callback first.
            if (item := captured._take()) is not None:
                return item
        captured._fail_missing()

    # -- receiving -------------------------------------------------------------------------------

    def dispatch(self, request: WerkzeugRequest) -> WerkzeugResponse:
        """Record a callback and return 200, or the response of a matching expectation."""
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
        except (ValueError, RecursionError):
            raw = None
        environ = request.environ
        url = f"{environ['wsgi.url_scheme']}://{environ['HTTP_HOST']}{environ['RAW_URI']}"
        headers = environ["fakecloud.headers"]
        signature = headers.get("Upstash-Signature") or headers.get("Service-Signature")
        return Callback(
            raw=raw if isinstance(raw, dict) else {},
            headers=headers,
            problem=self._why_not_verified(signature, body, url),
            at_us=self._time.now_us(),
            failure=failure,
            request=request,
        )

    def _why_not_verified(self, signature: str | None, body: bytes, url: str) -> str | None:
        if self._keys is not None:
            return explain(signature, body=body, keys=self._keys, at=time.time(), url=url)
        queues = list(self._queues())
        if not queues:
            return (
                "this cloud has no queue; pass the signing keys of the queue outside it, such as "
                "keys={'current': ...}"
            )
        keys: dict[str, str] = {}
        clocks: dict[object, list[str]] = {}
        for queue in queues:
            whose = f"{queue.name} " if len(queues) > 1 else ""
            pair = [queue.current_signing_key, queue.next_signing_key]
            keys[f"{whose}current"], keys[f"{whose}next"] = pair
            clocks.setdefault(getattr(queue, "signature_clock", "receiver"), []).extend(pair)
        # If several queues sign with different clocks, use the clock of the queue whose key signed
        # the request.
        kinds = list(clocks)
        if len(kinds) > 1:
            kinds = [kind for kind in kinds if _opens(signature, clocks[kind])] or kinds
        at = self._receiver_time(kinds[0])
        return explain(signature, body=body, keys=keys, at=at, url=url)

    def _receiver_time(self, kind: object) -> float:
        if kind == "virtual":
            return self._time.now_us() / 1_000_000
        return real_time() if kind == "real" else time.time()

    # -- waiting ---------------------------------------------------------------------------------

    def _drive_until(self, done: Callable[[], bool], timeout: float) -> bool:
        """Deliver the messages of this cloud's queues, or wait for them, until a condition is true.

        Returns False if nothing is left to deliver, or after ``timeout`` real seconds.
        """
        __tracebackhide__ = True
        give_up = _give_up(timeout)
        for target in self._targets(done, give_up):
            # Close the iterator immediately, because an exception with a traceback would keep it
            # alive.
            with closing(self._time.steps(target)) as steps:
                for timer in steps:
                    timer.callback(timer.due_us)
                    if done():
                        break
        return self._wait(done, give_up) if self._waits() else done()

    async def _adrive_until(self, done: Callable[[], bool], timeout: float) -> bool:
        """Awaitable version of ``_drive_until()``, which awaits deliveries in the running loop."""
        __tracebackhide__ = True
        give_up = _give_up(timeout)
        for target in self._targets(done, give_up):
            await drive(self._time, target, done=done)
        if not self._waits():
            return done()
        left = threading.Event()
        try:
            return await in_thread(self._wait, done, give_up, left)
        finally:
            # Stop the thread. Otherwise it would keep waiting after its task was cancelled.
            left.set()
            self._came.notify()

    def _targets(self, done: Callable[[], bool], give_up: float) -> Iterator[Callable[[], int]]:
        """Yield the next due times until nothing pending can produce a callback."""
        limit = self._time.now_us() + _LONGEST_DRIVE_US
        driven = [queue for queue in self._queues() if queue.delivery == "driven"]
        for queue in driven:
            queue._engine.drive += 1
        try:
            if driven and not done() and self._time.driving:
                # If a handler waits for a later callback, raise the same error as for any nested
                # advance.
                yield self._time.now_us
            while driven and not done() and monotonic() < give_up:
                due = _next_due_us(driven)
                if due is None or due > limit:
                    return
                yield partial(self._at_least, due)
        finally:
            for queue in driven:
                queue._sender.release()

    def _at_least(self, due_us: int) -> int:
        return max(due_us, self._time.now_us())

    def _wait(
        self, done: Callable[[], bool], give_up: float, left: threading.Event | None = None
    ) -> bool:
        """Wait for background deliveries, and move the clock if none is due yet."""
        limit = self._time.now_us() + _LONGEST_DRIVE_US
        background = [queue for queue in self._queues() if queue.delivery != "driven"]
        while True:
            seen = self._came.version
            patience = give_up - monotonic()
            if done():
                return True
            if patience <= 0 or self._came.closed or (left is not None and left.is_set()):
                return False
            due = _next_due_us(background)
            if (
                due is None
                or not self._time.now_us() < due <= limit
                or not self._jump(due, patience)
            ):
                # Poll, because nothing signals the end of an attempt or a newly published message.
                self._came.sleep(seen, min(patience, _NAP) if background else patience)

    def _jump(self, due_us: int, patience: float) -> bool:
        """Move the clock to the time of the next background delivery; return False while it is
        busy.

        Raises ``ContractError`` if the clock cannot be moved and real time will not reach that time
        soon enough.
        """
        try:
            # Fire internal timers only, because deliveries are made by their own threads.
            with closing(
                self._time.steps(partial(self._at_least, due_us), ("state",), yielding=True)
            ) as steps:
                for timer in steps:
                    timer.callback(timer.due_us)
        except Occupied:
            return False
        except ContractError:
            if due_us - self._time.now_us() > patience * 1_000_000:
                raise
            return False
        return True

    def _waits(self) -> bool:
        """Return whether a callback may still arrive from the background or from outside the cloud."""
        queues = list(self._queues())
        return not queues or any(queue.delivery != "driven" for queue in queues)

    def _queues(self) -> Iterator[Any]:
        return (handle for handle in self._context.handles if handle.service == "queue")

    # -- error messages --------------------------------------------------------------------------

    def _unfinished(self) -> list[str]:
        """Return lines about the unfinished and dead-lettered messages of the cloud's queues."""
        lines: list[str] = []
        for queue in self._queues():
            lines += [*pending(queue._engine), *given_up(queue._engine)]
        more = len(lines) - _TOLD
        return lines[:_TOLD] + ([f"and {more} more"] if more > 0 else [])

    def _account(self, captured: Captured, asked: Query, missing: bool) -> list[str]:
        """Return lines about callbacks that arrived at either URL, and about the state of the
        messages.

        ``missing`` is True if too few callbacks arrived. The lines then also list messages and
        schedules that may still produce callbacks.
        """
        lines: list[str] = []
        if captured and not asked.given.keys() - {"callback"}:
            lines.append("  body of the last callback:")
            text = json.dumps(captured[-1].raw, indent=2, ensure_ascii=False)
            lines += [f"    {line}" for line in text.splitlines()]
        other = self.failures if captured is self.callbacks else self.callbacks
        if other:
            lines.append(f"  {counted(len(other), other._kind)} arrived at {other.url} instead:")
            lines += [f"    {item!r}" for item in other[-3:]]
        lines += self._message_lines(captured)
        return lines + (self._pending_lines() if missing else [])

    def _message_lines(self, captured: Captured) -> list[str]:
        lines: list[str] = []
        for queue in self._queues():
            messages = list(queue.messages())
            # Prefer messages that concern this URL, then the newest. List them in the order of
            # publishing.
            ranked = sorted(
                enumerate(messages), key=lambda one: (captured._concerns(one[1]), one[0])
            )
            for _, message in sorted(ranked[-_TOLD:], key=lambda one: one[0]):
                lines += [f"  {line}" for line in str(message.timeline).splitlines()]
            if len(messages) > _TOLD:
                lines.append(
                    f"  and {counted(len(messages) - _TOLD, 'more message')} of {queue.name}"
                )
        return lines or ["  no message was published to a queue of this cloud"]

    def _pending_lines(self) -> list[str]:
        if self.closed:
            return [f"  {self.name} is closed and cannot receive callbacks any more"]
        due = self.clock.next_due()
        if not self._waits() and due is None:
            return ["  nothing is left to deliver, so no further callback can arrive"]
        return [text for queue in self._queues() for text in self._later_lines(queue)]

    def _later_lines(self, queue: Any) -> Iterator[str]:
        due = queue._engine.next_due_us() if queue._engine.pending else None
        if due is not None and due > self._time.now_us() + _LONGEST_DRIVE_US:
            yield (
                f"  the next message is due at {to_datetime(due).isoformat()}, more than 30 days ahead:"
                " move the clock with clock.advance()"
            )
        elif due is not None:
            yield (
                f"  {counted(len(queue._engine.pending), 'message')} still to be delivered, the next at "
                f"{to_datetime(due).isoformat()}: run the queue, or pass a longer timeout="
            )
        for schedule in queue.schedules():
            if not schedule.paused and (runs := schedule.next_runs(1)):
                yield (
                    f"  the schedule {schedule.id} to {schedule.destination} is due at "
                    f"{runs[0].isoformat()}; waiting does not run schedules: move the clock with"
                    " clock.advance()"
                )

    # -- data ------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the expectations and the received callbacks."""
        saved = super().snapshot()
        saved.data["callbacks"] = self.callbacks._saved()
        saved.data["failures"] = self.failures._saved()
        return saved

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the expectations and the callbacks of a snapshot."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != self.fixture:
            super().restore(snapshot)  # Raises the error for an invalid snapshot.
            return
        own = {"callbacks", "failures"}
        data = snapshot.data
        rest = {name: value for name, value in data.items() if name not in own}
        super().restore(Snapshot(snapshot.fixture, rest))
        self.callbacks._restore(data["callbacks"])
        self.failures._restore(data["failures"])

    def close(self) -> None:
        """Close the receiver and end every wait for its callbacks."""
        self._came.close()
        super().close()


def _give_up(timeout: object) -> float:
    number(0).read("timeout", timeout)
    # Limit the timeout, because a longer timeout overflows in the threading module.
    return monotonic() + float(min(timeout, threading.TIMEOUT_MAX / 2))  # type: ignore[call-overload]


def _opens(signature: str | None, keys: Iterable[str]) -> bool:
    """Return whether a token was signed with one of the keys. Its claims are not checked."""
    import jwt

    for key in keys:
        with suppress(jwt.InvalidTokenError):
            jwt.PyJWS().decode(signature or "", key, algorithms=["HS256"])
            return True
    return False


def _next_due_us(queues: list[Any]) -> int | None:
    """Return the next time at which a pending message of these queues changes, or None."""
    dues = [queue._engine.next_due_us() for queue in queues if queue._engine.pending]
    return min((one for one in dues if one is not None), default=None)


class AwaitableCapture:
    """Awaitable versions of the waiting methods of ``CallbackCapture``."""

    def __init__(self, capture: CallbackCapture) -> None:
        self._capture = capture

    async def wait_for_callback(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """Awaitable version of ``CallbackCapture.wait_for_callback()``."""
        __tracebackhide__ = True
        return await self._next(self._capture.callbacks, timeout)

    async def wait_for_failure(self, *, timeout: float = DEFAULT_TIMEOUT) -> Callback:
        """Awaitable version of ``CallbackCapture.wait_for_failure()``."""
        __tracebackhide__ = True
        return await self._next(self._capture.failures, timeout)

    async def _next(self, captured: Captured, timeout: float) -> Callback:
        __tracebackhide__ = True
        give_up, drive = _give_up(timeout), self._capture._adrive_until
        while await drive(captured._has_next, max(0.0, give_up - monotonic())):
            if (item := captured._take()) is not None:
                return item
        captured._fail_missing()
