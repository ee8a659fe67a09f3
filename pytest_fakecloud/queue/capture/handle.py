"""The ``CallbackCapture`` fake, which records, decodes and verifies the queue's callbacks.

Waiting for a callback also delivers messages, unless the queue delivers in the background.
Importing this module imports pytest-httpserver.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ...core.errors import ContractError
from ...core.timeparse import monotonic
from ...core.wording import unknown_name
from ...faults.fault import rule_of
from ...faults.plan import fault_words
from ...handle import Context, Snapshot
from ..delivery.destination_server import RAW_HEADERS, Destination
from ..settings import CallbackCaptureConfig, CallbackCaptureSettings
from ..signature_clock import signature_clock
from ..wire.signing import explain, verified_claims
from .callbacks import DEFAULT_TIMEOUT, Callback, Captured
from .waiting import CallbackWaiter, deadline_after

if TYPE_CHECKING:
    from ...faults.fault import Fault
    from ..handle import Queue


class ScopedFaults:
    """The fault plan for one of a capture's two URLs, with the methods of ``FaultPlan``.

    Methods that list or end faults apply to the faults of this URL and to those of the whole
    capture, but not to the faults of the other URL. The methods that inject a fault are those of
    the capture's own plan, called with the ``route`` of this URL.
    """

    def __init__(self, capture: Destination, route: str) -> None:
        self._capture = capture
        self._route = route

    def __getattr__(self, name: str) -> Callable[..., Fault]:
        known = fault_words(type(self._capture.faults))
        if name not in known:
            raise AttributeError(unknown_name("fault", name, known))
        return functools.partial(self._inject_here, getattr(self._capture.faults, name))

    def _inject_here(self, method: Callable[..., Fault], *args: Any, **kwargs: Any) -> Fault:
        if kwargs.get("route", self._route) != self._route:
            raise ContractError(
                f"these faults are for /{self._route} only: remove route={kwargs['route']!r}, or"
                f" use the faults of {self._capture.name}"
            )
        return method(*args, **{**kwargs, "route": self._route})

    def _applies(self, fault: Fault) -> bool:
        return rule_of(fault).route in (None, self._route)

    @property
    def is_down(self) -> bool:
        """Whether a ``down()`` fault makes this URL unreachable."""
        return any(fault.kind == "down" for fault in self)

    def unused(self) -> list[Fault]:
        """Return the faults that never fired, or less often than planned."""
        return [fault for fault in self._capture.faults.unused() if self._applies(fault)]

    def up(self) -> None:
        """End every ``down()`` fault that applies to this URL."""
        for fault in self:
            if fault.kind == "down":
                fault.remove()

    def clear(self) -> None:
        """Remove the faults and forget which of them were not used."""
        for fault in {*self, *self.unused()}:
            # A strict test does not fail for an unused fault that was cleared.
            rule_of(fault).must_fire = False
            fault.remove()

    def __iter__(self) -> Iterator[Fault]:
        return iter([fault for fault in self._capture.faults if self._applies(fault)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *fault_words(type(self._capture.faults))})

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self)) or "none"
        return f"<faults of /{self._route}: {shown}>"


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

    def __init__(self, context: Context, **settings: Unpack[CallbackCaptureSettings]) -> None:
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

    def dispatch(self, request: WerkzeugRequest) -> WerkzeugResponse:
        """Record a callback and return 200, or the response of a matching expectation."""
        captured = self._captured_at(request.environ["RAW_URI"].partition("?")[0])
        if captured is None:
            return super().dispatch(request)
        captured.append(self._read(request, captured is self.failures))
        self._waiter.arrival.notify()
        return super().dispatch(request) if self._has_answer(request) else WerkzeugResponse("")

    def _has_answer(self, request: WerkzeugRequest) -> bool:
        """Return whether pytest-httpserver answers a request itself, or has failed permanently."""
        return self.permanently_failed or any(
            handler.matcher.match(request)
            for handlers in (self.ordered_handlers[:1], self.oneshot_handlers, self.handlers)
            for handler in list(handlers)
        )

    def _captured_at(self, path: str) -> Captured | None:
        both = (self.callbacks, self.failures)
        return next((one for one in both if f"{path}/".startswith(f"{one._path}/")), None)

    def _read(self, request: WerkzeugRequest, failure: bool) -> Callback:
        body = request.get_data()
        try:
            raw = json.loads(body)
        except (ValueError, RecursionError):
            raw = None
        environ = request.environ
        url = f"{environ['wsgi.url_scheme']}://{environ['HTTP_HOST']}{environ['RAW_URI']}"
        headers = environ[RAW_HEADERS]
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

    def snapshot(self) -> Snapshot:
        """Return the expectations and the received callbacks."""
        saved = super().snapshot()
        saved.data["callbacks"] = self.callbacks._saved()
        saved.data["failures"] = self.failures._saved()
        return saved

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the expectations and the callbacks of a snapshot."""
        super().restore(snapshot)
        self.callbacks._restore(snapshot.data["callbacks"])
        self.failures._restore(snapshot.data["failures"])

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


def why_not_signed_by(
    queues: Sequence[Queue],
    now_us: Callable[[], int],
    signature: str | None,
    *,
    body: bytes,
    url: str,
) -> str | None:
    """Return why a callback does not verify with the keys of any of these queues, or None.

    ``now_us`` is the cloud's clock, which some queues use for their signatures.
    """
    if not queues:
        return (
            "this cloud has no queue; pass the signing keys of the queue outside it, such as "
            "keys={'current': ...}"
        )
    keys: dict[str, str] = {}
    for queue in queues:
        whose = f"{queue.name} " if len(queues) > 1 else ""
        keys[f"{whose}current"] = queue.current_signing_key
        keys[f"{whose}next"] = queue.next_signing_key
    # Queues may sign with different clocks. Use the clock of the queue whose key signed the request.
    signer = queues[0]
    if len(queues) > 1:
        signer = next((queue for queue in queues if _has_signed(queue, signature or "")), signer)
    clock = signature_clock(signer.signature_clock, now_us)
    return explain(signature, body=body, keys=keys, at=clock(), url=url)


def _has_signed(queue: Queue, signature: str) -> bool:
    keys = (queue.current_signing_key, queue.next_signing_key)
    return verified_claims(signature, keys) is not None
