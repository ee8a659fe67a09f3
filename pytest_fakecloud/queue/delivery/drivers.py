"""Run a queue: deliver the messages that are due, and report what is left."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from ...core.concurrency.aio import drive
from ...core.found import Found
from ...core.timekeeper import Timekeeper
from ...core.timeparse import Duration, Instant, duration_us, to_datetime
from ...core.timers import Fired
from ...core.wording import counted
from ..engine.engine import Engine
from ..fields import ATTEMPTS
from ..model import Attempt
from ..timeline import timeline, unfinished_text


class Attempts(Found[Attempt]):
    """The attempts that a call made, oldest first. ``waiting`` describes the undelivered messages."""

    waiting: str = "nothing"
    _fields = ATTEMPTS
    _kind = "attempt"


class NotIdle(AssertionError):
    """Raised if a queue still has messages to deliver when the given time has passed.

    ``run_until_idle(within=...)`` raises it with the timelines of the first undelivered messages.
    """


Target = Callable[[], int]
"""Returns the time to move the clock to, in microseconds; called when the clock is about to move."""
Plan = Generator[Target, list[Fired], Attempts]
"""A generator that yields functions of times to move the clock to, and receives fired timers."""


class Driver:
    """Runs the deliveries of one queue, in this thread or in the running event loop.

    ``check_open`` is called before each run and raises an error if the queue is closed. ``release``
    is called after each run to close idle connections.
    """

    def __init__(
        self, engine: Engine, check_open: Callable[[], object], release: Callable[[], object]
    ) -> None:
        self._engine = engine
        self.clock = engine.clock
        self._check_open = check_open
        self._release = release

    def deliver_until(self, target: Target) -> Plan:
        """Plan the deliveries until the time that ``target()`` returns."""
        __tracebackhide__ = True
        fired = yield target
        return self._report(fired)

    def run_until_idle(self, within: Duration) -> Plan:
        """Plan all deliveries. The plan raises ``NotIdle`` if they take longer than ``within``."""
        __tracebackhide__ = True
        engine, clock = self._engine, self.clock
        span = duration_us(within)
        end = clock.now_us() + span
        fired = yield clock.now_us
        while engine.pending:
            due = engine.next_due_us()
            if due is None:
                break
            if due > end:
                raise NotIdle(self._not_idle(within, end))
            fired += yield partial(at_least_now, clock, due)
        return self._report(fired)

    def _report(self, fired: Iterable[Fired]) -> Attempts:
        own = self._engine.messages
        attempts = Attempts(
            one.result
            for one in fired
            if isinstance(one.result, Attempt) and one.result.message_id in own
        )
        if self._engine.pending:
            attempts.waiting = unfinished_text(self._engine)
        return attempts

    def _not_idle(self, within: Duration, end_us: int) -> str:
        pending = list(self._engine.pending.values())
        lines = [
            f"the queue is not idle after {within!r}, at {to_datetime(end_us).isoformat()}:"
            f" {counted(len(pending), 'undelivered message')}. Pass a longer within=, or cancel them"
        ]
        lines += [timeline(one, self.clock.now_us()) for one in pending[:3]]
        return "\n".join(lines)

    # -- running a plan --------------------------------------------------------------------------

    @contextmanager
    def _driving(self) -> Iterator[None]:
        __tracebackhide__ = True
        self._check_open()
        self._engine.drive += 1
        try:
            yield
        finally:
            self._release()

    def run(self, plan: Plan) -> Attempts:
        """Run a plan in this thread."""
        __tracebackhide__ = True
        with self._driving():
            step = _next_step(plan)
            while not isinstance(step, Attempts):
                step = _next_step(plan, self.clock._fire(step))
            return step

    async def run_async(self, plan: Plan) -> Attempts:
        """Run a plan in the running event loop, which awaits the attempts."""
        __tracebackhide__ = True
        with self._driving():
            step = _next_step(plan)
            while not isinstance(step, Attempts):
                step = _next_step(plan, await drive(self.clock, step))
            return step


def _next_step(plan: Plan, fired: list[Fired] | None = None) -> Target | Attempts:
    """Return the next target of a plan, or its result after the last target."""
    __tracebackhide__ = True
    try:
        return next(plan) if fired is None else plan.send(fired)
    except StopIteration as end:
        result: Attempts = end.value
        return result


def at_least_now(clock: Timekeeper, instant_us: int) -> int:
    # Do not go back: a running clock may already be later than the due time.
    return max(instant_us, clock.now_us())


class QueueAio:
    """Awaitable versions of the methods that deliver, for destinations in the test's own event
    loop.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._clock = driver.clock

    async def deliver_due(self) -> Attempts:
        """Awaitable version of ``Queue.deliver_due``."""
        __tracebackhide__ = True
        return await self._driver.run_async(self._driver.deliver_until(self._clock.now_us))

    async def advance(self, duration: Duration) -> Attempts:
        """Awaitable version of ``Queue.advance``."""
        __tracebackhide__ = True
        target = self._clock._after(duration)
        return await self._driver.run_async(self._driver.deliver_until(target))

    async def move_to(self, instant: Instant) -> Attempts:
        """Awaitable version of ``Queue.move_to``."""
        __tracebackhide__ = True
        return await self._driver.run_async(self._driver.deliver_until(self._clock._until(instant)))

    async def run_until_idle(self, within: Duration = "30d") -> Attempts:
        """Awaitable version of ``Queue.run_until_idle``."""
        __tracebackhide__ = True
        return await self._driver.run_async(self._driver.run_until_idle(within))
