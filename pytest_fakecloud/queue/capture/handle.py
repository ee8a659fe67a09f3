"""The ``CallbackCapture`` fake, which records, decodes and verifies the queue's callbacks.

Waiting for a callback also delivers messages, unless the queue delivers in the background.
Importing this module imports pytest-httpserver.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar, Unpack

from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ...core.timeparse import monotonic
from ...handle import Context, Snapshot
from ..delivery.destination_server import Destination
from ..delivery.sender import real_time
from ..wire.signing import explain
from .callbacks import (
    DEFAULT_TIMEOUT,
    Callback,
    Captured,
)
from .faults import ScopedFaults
from .settings import CallbackCaptureConfig, CallbackCaptureSettings
from .waiting import Waiting, give_up_at


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
        self._waiting = Waiting(context)
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
        give_up = give_up_at(timeout)
        while self._waiting.until(captured._has_next, max(0.0, give_up - monotonic())):
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
        self._waiting.came.notify()
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
        queues = list(self._waiting.queues())
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
        self._waiting.came.close()
        super().close()


def _opens(signature: str | None, keys: Iterable[str]) -> bool:
    """Return whether a token was signed with one of the keys. Its claims are not checked."""
    import jwt

    for key in keys:
        with suppress(jwt.InvalidTokenError):
            jwt.PyJWS().decode(signature or "", key, algorithms=["HS256"])
            return True
    return False


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
        give_up, drive = give_up_at(timeout), self._capture._waiting.auntil
        while await drive(captured._has_next, max(0.0, give_up - monotonic())):
            if (item := captured._take()) is not None:
                return item
        captured._fail_missing()
