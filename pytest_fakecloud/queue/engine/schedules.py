"""Schedules, which publish messages on the queue's clock.

Vendor's documentation: creating a schedule with an existing id replaces everything, including the
body. A paused schedule skips its runs. A delay applies to the messages that the schedule creates,
deduplication only to its creation.

Decided here: each run looks up the destination and the default headers of a URL group. If a run
cannot create its messages, the reason is stored in ``error`` and the schedule continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from ...core.timers import Timer, to_datetime
from ..errors import QueueError, bad_request, existing, quota
from ..model import Api, HeaderList, PublishSettings
from .flow import Admission

if TYPE_CHECKING:
    from ..wire.cron import Cron


def as_scheduled(settings: PublishSettings) -> PublishSettings:
    """Return settings without the ones that apply only to creating the schedule."""
    return settings._replace(
        cron=None, schedule_id=None, deduplication_id=None, content_based_deduplication=False
    )


@dataclass(slots=True, eq=False)
class Schedule:
    """A schedule.

    ``settings`` are the settings of the messages that it creates. ``sent`` are the headers and the
    query of the request that created the schedule, and ``api`` is the API version of that request.
    ``planned_us`` is the time of the next run, or None if there is none. While the schedule is
    paused, this time is not updated and may be in the past.
    """

    id: str
    cron: str
    destination: str
    settings: PublishSettings
    body: bytes
    created_us: int
    caller_ip: str
    paused: bool = False
    planned_us: int | None = None
    last_us: int | None = None
    last_ids: list[str] = field(default_factory=list)
    error: str | None = None
    sent: HeaderList = field(default_factory=list)
    api: Api = "v2"

    def copy(self) -> Schedule:
        return replace(self, last_ids=list(self.last_ids))

    def next_runs(self, count: int, after_us: int) -> list[datetime]:
        """Return the times of the next runs, even if the schedule is paused."""
        cron = _cron(self.cron)
        runs: list[datetime] = []
        at = self.first_run_after(after_us)
        while len(runs) < count and at is not None:
            runs.append(to_datetime(at))
            at = cron.next_us(at)
        return runs

    def first_run_after(self, after_us: int) -> int | None:
        """Return the time of the first run after ``after_us``, even if the schedule is paused."""
        if self.planned_us is not None and self.planned_us > after_us:
            return self.planned_us
        return _cron(self.cron).next_us(after_us, since_us=self.planned_us)


@lru_cache(maxsize=256)
def _cron(text: str) -> Cron:
    # Imported here, because the import takes 4 ms and few tests have a schedule.
    from ..wire.cron import Cron

    return Cron(text)


class Schedules:
    """The schedules by id. ``publish_run`` creates the messages of a run and returns their ids.

    The methods require the lock unless stated otherwise.
    """

    def __init__(self, state: Admission, publish_run: Callable[[Schedule, int], list[str]]) -> None:
        self._state = state
        self._publish_run = publish_run
        self.by_id: dict[str, Schedule] = {}
        self.timers: dict[str, Timer] = {}

    def get(self, schedule_id: str) -> Schedule:
        return existing(self.by_id.get(schedule_id), "schedule", schedule_id)

    def create(self, destination: str, settings: PublishSettings, **origin: Any) -> Schedule:
        """Create a schedule, or replace the schedule with the same id. ``origin`` are further fields.

        Raises ``QueueError``: 400 for a missing or malformed cron expression and for a not-before
        time, 412 if the plan's schedule limit is exceeded.
        """
        if not settings.cron:
            raise bad_request("invalid schedule: the Upstash-Cron header is missing")
        if settings.not_before_us is not None:
            raise bad_request("invalid schedule: Upstash-Not-Before cannot be used with a schedule")
        cron = _cron(settings.cron)
        now = self._state.clock.now_us()
        first_run = cron.next_us(now)
        if first_run is None:
            raise bad_request(f"invalid cron expression {settings.cron!r}: it never fires")
        schedule_id = settings.schedule_id or self._state.new_id("scd_")
        most = self._state.limits.schedules
        if most is not None and schedule_id not in self.by_id and len(self.by_id) >= most:
            raise quota("maxSchedules", most)
        schedule = Schedule(
            id=schedule_id,
            cron=cron.text,
            destination=destination,
            settings=as_scheduled(settings),
            created_us=now,
            **origin,
        )
        self.by_id[schedule_id] = schedule
        self.plan(schedule, first_run)
        return schedule

    def plan(self, schedule: Schedule, due_us: int | None) -> None:
        """Set the time of the next run, and start a timer for it unless the schedule is paused."""
        schedule.planned_us = due_us
        self.unplan(schedule)
        if due_us is not None and not schedule.paused and not self._state.closed:
            self.timers[schedule.id] = self._state.clock.call_at(
                due_us,
                partial(self._timer_fired, schedule.id),
                lane=self._state.own_lane,
                label=f"schedule {schedule.id}",
            )

    def replan(self, schedule: Schedule) -> None:
        """Plan the next run again after the timers were stopped, skipping runs in the past."""
        due, now = schedule.planned_us, self._state.clock.now_us()
        if due is not None and due < now:
            due = schedule.first_run_after(now)
        self.plan(schedule, due)

    def earliest_run_us(self) -> int | None:
        """Return the time of the next planned run of any schedule, or None."""
        return min((timer.due_us for timer in self.timers.values()), default=None)

    def unplan(self, schedule: Schedule) -> None:
        timer = self.timers.pop(schedule.id, None)
        if timer is not None:
            timer.cancel()

    def delete(self, schedule_id: str) -> None:
        """Delete a schedule but not its messages. Acquires the lock."""
        with self._state.lock:
            self.unplan(self.get(schedule_id))
            del self.by_id[schedule_id]

    def set_paused(self, schedule_id: str, paused: bool) -> None:
        """Pause or resume a schedule; raise a 404 error for an unknown id. Acquires the lock."""
        with self._state.lock:
            schedule = self.get(schedule_id)
            if schedule.paused == paused:
                return
            due = self.next_run_us(schedule)
            schedule.paused = paused
            self.plan(schedule, due)

    def next_run_us(self, schedule: Schedule) -> int | None:
        """Return the time of the next run. For a paused schedule, assume that it is resumed now."""
        if schedule.planned_us is None or not schedule.paused:
            return schedule.planned_us
        return schedule.first_run_after(self._state.clock.now_us())

    def run_now(self, schedule_id: str) -> list[str]:
        """Create the messages of a run now and return their ids. Acquires the lock."""
        with self._state.lock:
            schedule = self.get(schedule_id)
            self._run(schedule, self._state.clock.now_us())
            return list(schedule.last_ids)

    def _timer_fired(self, schedule_id: str, at_us: int) -> None:
        with self._state.lock:
            schedule = self.by_id.get(schedule_id)
            if schedule is not None:
                self.plan(schedule, _cron(schedule.cron).next_us(at_us))
                self._run(schedule, at_us)

    def _run(self, schedule: Schedule, at_us: int) -> None:
        schedule.last_us, schedule.last_ids, schedule.error = at_us, [], None
        try:
            schedule.last_ids = self._publish_run(schedule, at_us)
        except QueueError as error:
            schedule.error = error.message
