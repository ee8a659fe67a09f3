"""Run a queue: deliver the messages that are due, and report what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...core.clock import drive
from ...core.errors import ContractError, FakecloudError, counted
from ...core.journal import Results
from ...core.timekeeper import Target, Timekeeper
from ...core.timers import Duration, Fired, duration_us, to_datetime
from ...handle import Aio, Handle
from ..attempt_reports import timeline, unfinished_text
from ..engine.engine import Engine
from ..model import Attempt
from ..views import ATTEMPTS

if TYPE_CHECKING:
    from qstash import AsyncQStash


class Attempts(Results[Attempt]):
    """The attempts that a call made, oldest first. ``waiting`` describes the undelivered messages."""

    waiting: str = "nothing"
    _fields = ATTEMPTS
    _kind = "attempt"


class NotIdleError(FakecloudError, AssertionError):
    """Raised if a queue still has messages to deliver when the given time has passed.

    ``run_until_idle(within=...)`` raises it with the timelines of the first undelivered messages.
    """

    __module__ = "pytest_fakecloud"


class Driver:
    """Runs the deliveries of one queue, in this thread or in the running event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.clock = engine.clock

    def run(self, targets: Iterable[Target]) -> Attempts:
        """Move the clock to each of these times in this thread, and make the attempts due until then."""
        __tracebackhide__ = True
        self._check_open()
        fired: list[Fired] = []
        with self.clock.drive():
            for target in targets:
                fired += self.clock.fire(target)
            return self._report(fired)

    async def run_async(self, targets: Iterable[Target]) -> Attempts:
        """Like ``run()``, but await the attempts in the running event loop."""
        __tracebackhide__ = True
        self._check_open()
        fired: list[Fired] = []
        with self.clock.drive():
            for target in targets:
                fired += await drive(self.clock, target)
            return self._report(fired)

    def _check_open(self) -> None:
        __tracebackhide__ = True
        if self._engine.closed:
            raise ContractError(f"{self._engine.owner.name} is closed: create another one")

    def until_idle(self, within: Duration) -> Iterator[Target]:
        """Yield the due times of all messages; raise ``NotIdleError`` for one later than ``within``."""
        __tracebackhide__ = True
        engine, clock = self._engine, self.clock
        # A running clock moves during the deliveries, so the limit counts from the time before them.
        end = duration_us(within) + clock.now_us()
        yield clock.now_us
        while engine.pending:
            due = engine.next_due_us()
            if due is None:
                break
            if due > end:
                raise NotIdleError(self._not_idle(within, end))
            yield partial(at_least_now, clock, due)

    def _report(self, fired: Iterable[Fired]) -> Attempts:
        attempts, messages = Attempts(()), self._engine.messages
        for one in fired:
            if isinstance(one.result, Attempt) and one.result.message_id in messages:
                attempts.append(one.result)
        if self._engine.pending:
            attempts.waiting = unfinished_text(self._engine)
        return attempts

    def _not_idle(self, within: Duration, end_us: int) -> str:
        pending = list(self._engine.pending.values())
        lines = [
            f"the queue is not idle after {within!r}, at {to_datetime(end_us).isoformat()}:"
            f" {counted(len(pending), 'undelivered message')}. Pass a longer within=, or cancel them"
        ]
        lines += [timeline(self._engine, one) for one in pending[:3]]
        return "\n".join(lines)


def at_least_now(clock: Timekeeper, instant_us: int) -> int:
    # Do not go back: a running clock may already be later than the due time.
    return max(instant_us, clock.now_us())


class QueueAio(Aio["AsyncQStash"]):
    """The asynchronous client, and awaitable versions of the methods that deliver, for destinations
    in the test's own event loop.
    """

    def __init__(self, handle: Handle, make: Callable[..., AsyncQStash], driver: Driver) -> None:
        super().__init__(handle, make)
        self._driver = driver
        self._clock = driver.clock

    async def deliver_due(self) -> Attempts:
        """Awaitable version of ``Queue.deliver_due``."""
        __tracebackhide__ = True
        return await self._driver.run_async([self._clock.now_us])

    async def run_until_idle(self, within: Duration = "30d") -> Attempts:
        """Awaitable version of ``Queue.run_until_idle``."""
        __tracebackhide__ = True
        return await self._driver.run_async(self._driver.until_idle(within))
