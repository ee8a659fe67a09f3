"""Run a queue: deliver the messages that are due, and report what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...core.clock import drive
from ...core.errors import FakecloudError, counted
from ...core.journal import Results
from ...core.timekeeper import Target, Timekeeper
from ...core.timers import Duration, Fired, duration_us, to_datetime
from ...handle import Aio
from ..attempt_reports import timeline, unfinished_text
from ..engine.engine import Engine
from ..model import Attempt
from ..views import ATTEMPTS

if TYPE_CHECKING:
    from qstash import AsyncQStash

    from ..handle import Queue


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


def run(engine: Engine, targets: Iterable[Target]) -> Attempts:
    """Move the clock to each of these times in this thread, and make the attempts due until then."""
    __tracebackhide__ = True
    fired: list[Fired] = []
    with engine.clock.drive():
        for target in targets:
            fired += engine.clock.fire(target)
        return _report(engine, fired)


async def run_async(engine: Engine, targets: Iterable[Target]) -> Attempts:
    """Like ``run()``, but await the attempts in the running event loop."""
    __tracebackhide__ = True
    fired: list[Fired] = []
    with engine.clock.drive():
        for target in targets:
            fired += await drive(engine.clock, target)
        return _report(engine, fired)


def until_idle(engine: Engine, within: Duration) -> Iterator[Target]:
    """Yield the due times of all messages; raise ``NotIdleError`` for one later than ``within``."""
    __tracebackhide__ = True
    clock = engine.clock
    # A running clock moves during the deliveries, so the limit counts from the time before them.
    end = duration_us(within) + clock.now_us()
    yield clock.now_us
    while engine.pending:
        due = engine.next_due_us()
        if due is None:
            break
        if due > end:
            pending = list(engine.pending.values())
            lines = [
                f"the queue is not idle after {within!r}, at {to_datetime(end).isoformat()}:"
                f" {counted(len(pending), 'undelivered message')}. Pass a longer within=, or cancel"
                " them"
            ]
            lines += [timeline(engine, one) for one in pending[:3]]
            raise NotIdleError("\n".join(lines))
        yield partial(at_least_now, clock, due)


def _report(engine: Engine, fired: Iterable[Fired]) -> Attempts:
    attempts = Attempts(())
    for one in fired:
        if isinstance(one.result, Attempt) and one.result.message_id in engine.messages:
            attempts.append(one.result)
    if engine.pending:
        attempts.waiting = unfinished_text(engine)
    return attempts


def at_least_now(clock: Timekeeper, instant_us: int) -> int:
    # Do not go back: a running clock may already be later than the due time.
    return max(instant_us, clock.now_us())


class QueueAio(Aio["AsyncQStash"]):
    """The asynchronous client, and awaitable versions of the methods that deliver, for destinations
    in the test's own event loop.
    """

    _handle: Queue
    _make: Callable[..., AsyncQStash]

    async def deliver_due(self) -> Attempts:
        """Awaitable version of ``Queue.deliver_due``."""
        __tracebackhide__ = True
        self._handle._check_open()
        engine = self._handle._engine
        return await run_async(engine, [engine.clock.now_us])

    async def run_until_idle(self, within: Duration = "30d") -> Attempts:
        """Awaitable version of ``Queue.run_until_idle``."""
        __tracebackhide__ = True
        self._handle._check_open()
        engine = self._handle._engine
        return await run_async(engine, until_idle(engine, within))
