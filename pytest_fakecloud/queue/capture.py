"""`CallbackCapture`: a receiver of the queue's callbacks that knows what it received.

Each callback is decoded, its signature judged with the true reason of a failure, and the waits drive
the queue where nobody else does.  Importing this module imports pytest-httpserver.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from werkzeug import Request as WerkzeugRequest
from werkzeug import Response as WerkzeugResponse

from ..kernel.aio import drive, in_thread
from ..kernel.handle import Context, Snapshot
from ..kernel.instants import monotonic
from .arguments import number
from .captured import DEFAULT_TIMEOUT, Callback, Captured, nearest
from .model import DAY, first
from .receiver import Destination
from .sender import real_time
from .signing import explain

__all__ = ["Callback", "CallbackCapture", "Captured", "Destination"]

_LONGEST_DRIVE_US = 30 * DAY


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
        give_up = _give_up(timeout)
        for target in self._targets(done, give_up):
            for timer in (steps := self.clock.steps(target)):
                timer.callback(timer.due_us)
                if done():
                    steps.close()
                    break
        if self._waits():
            self._wait(done, give_up)

    async def adrive_until(self, done: Callable[[], bool], timeout: float) -> None:
        """`drive_until`, awaitable: deliveries are awaited in the running loop."""
        give_up = _give_up(timeout)
        for target in self._targets(done, give_up):
            await drive(self.clock, target)
        if self._waits():
            await in_thread(self._wait, done, give_up)

    def _targets(self, done: Callable[[], bool], give_up: float) -> Iterator[Callable[[], int]]:
        """The instants to drive to, one after the other, while there is something to hope for."""
        limit = self.clock.now_us() + _LONGEST_DRIVE_US
        driven = [queue for queue in self._queues() if queue.delivery == "driven"]
        for queue in driven:
            queue.engine.drive += 1
        try:
            while driven and not done() and monotonic() < give_up:
                dues = [queue.engine.next_due_us() for queue in driven if queue.engine.pending]
                due = min((one for one in dues if one is not None), default=None)
                if due is None or due > limit:
                    return
                yield functools.partial(self._at_least, due)
        finally:
            for queue in driven:
                queue.sender.release()

    def _at_least(self, due_us: int) -> int:
        return max(due_us, self.clock.now_us())

    def _wait(self, done: Callable[[], bool], give_up: float) -> None:
        while True:
            seen = self._came.version
            left = give_up - monotonic()
            if done() or left <= 0 or self._came.closed:
                return
            self._came.sleep(seen, left)

    def _waits(self) -> bool:
        """Whether a callback may come by itself: from the background, or from outside the cloud."""
        queues = list(self._queues())
        return not queues or any(queue.delivery != "driven" for queue in queues)

    def _queues(self) -> Iterator[Any]:
        return (handle for handle in self.context.handles if handle.service == "queue")

    # -- saying what went wrong ------------------------------------------------------------------

    def account(self, captured: Captured, fields: Mapping[str, object]) -> list[str]:
        """Return, line by line, what came, what differed, and how far the messages are."""
        lines = nearest(captured, fields)
        if captured and not fields:
            lines.append("  the last one's body:")
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
                lines += [f"  {line}" for line in str(message.timeline).splitlines()]
        if not told:
            lines.append("  no message was published to a queue of this cloud")
        due = self.clock.next_due()
        if not self._waits() and due is None:
            lines.append("  nothing is left to deliver, so no wait can bring it")
        elif self._waits() and due is not None and self.clock.mode == "frozen":
            lines.append(
                f"  the clock is frozen at {self.clock.now().isoformat()} and the next thing is due "
                f"at {due.isoformat()}: move it with clock.advance()"
            )
        return lines

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


def _give_up(timeout: object) -> float:
    number("timeout", timeout, whole=False)
    return monotonic() + float(timeout)  # type: ignore[arg-type]


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
