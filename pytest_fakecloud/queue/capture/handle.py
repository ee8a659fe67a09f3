"""The ``CallbackCapture`` fake, which records, decodes and verifies the queue's callbacks.

Waiting for a callback also delivers messages, unless the queue delivers in the background.
Importing this module imports pytest-httpserver.
"""

from __future__ import annotations

import json
import time
from typing import ClassVar, Unpack

from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ...core.timeparse import monotonic
from ...handle import Context, Snapshot
from ..delivery.destination_server import Destination
from ..wire.signing import explain
from .callbacks import (
    DEFAULT_TIMEOUT,
    Callback,
    Captured,
)
from .faults import ScopedFaults
from .settings import CallbackCaptureConfig, CallbackCaptureSettings
from .verification import why_not_signed_by
from .waiting import CallbackWaiter, deadline_after


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
        self._waiter = CallbackWaiter(context)
        self.callbacks = self._captured("/callback", failure=False)
        self.failures = self._captured("/failure", failure=True)
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
        deadline = deadline_after(timeout)
        while self._waiter.until(captured._has_next, max(0.0, deadline - monotonic())):
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
        self._waiter.arrival.notify()
        return super().dispatch(request) if self._has_answer(request) else WerkzeugResponse("")

    def _has_answer(self, request: WerkzeugRequest) -> bool:
        """Return whether pytest-httpserver answers a request itself: by an expectation, or because
        it has failed permanently.
        """
        return self.permanently_failed or any(
            handler.matcher.match(request)
            for handlers in (self.ordered_handlers[:1], self.oneshot_handlers, self.handlers)
            for handler in list(handlers)
        )

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
        return why_not_signed_by(
            list(self._waiter.queues()), self._time.now_us, signature, body=body, url=url
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
        self._waiter.arrival.close()
        super().close()


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
        deadline, drive = deadline_after(timeout), self._capture._waiter.auntil
        while await drive(captured._has_next, max(0.0, deadline - monotonic())):
            if (item := captured._take()) is not None:
                return item
        captured._fail_missing()
