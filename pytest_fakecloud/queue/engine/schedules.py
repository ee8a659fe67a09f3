"""Schedules, which publish messages on the queue's clock, and their cron expressions.

Vendor's documentation: creating a schedule with an existing id replaces everything, including the
body. A paused schedule skips its runs. A delay applies to the messages that the schedule creates,
deduplication only to its creation.

**Cron expressions** have five fields with a resolution of one minute, in UTC unless they begin with
``CRON_TZ=<IANA zone>`` (or ``TZ=``). They can also be one of ``@hourly``, ``@daily``, ``@midnight``,
``@weekly``, ``@monthly``, ``@yearly``, ``@annually`` or ``@every <duration>``. Sunday is 0. If both
day fields are restricted, one of them must match. ``?`` means ``*`` in the day fields. Features of
other cron dialects (seconds, ``L``, ``W``, ``#``, 7 for Sunday) are rejected, and so is an
``@every`` of less than one minute.

Decided here: each run looks up the destination and the default headers of a URL group. If a run
cannot create its messages, the reason is stored in ``error`` and the schedule continues. Cron
expressions otherwise follow the documented rules of the common Go library that has the same zone
prefix. A time skipped by a clock change does not run, and a repeated time runs twice. ``5-5/2`` is
5, ``10/20`` is 10-59/20, and an asterisk with a step of one is an asterisk. ``@every`` counts in
whole seconds from the schedule's creation.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, partial
from importlib.machinery import SourceFileLoader
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.timers import Timer, to_datetime
from ..errors import QueueError, bad_request, existing, quota
from ..model import MINUTE, SECOND, Api, HeaderList, PublishSettings, copy_of
from ..wire.values import LATEST_US
from ..wire.waits import go_duration_us

if TYPE_CHECKING:
    from .data import QueueData

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ZONE = r"(?s)(?:CRON_TZ|TZ)=(\S+)\s+(.*)"
_PIECE = r"(?a)(?:(?P<all>[*?])|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d{1,9}))?"
_EVERY = "@every "


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    day: bool = False

    def number(self, text: str) -> int | None:
        if text.upper() in self.names:
            return self.least + self.names.index(text.upper())
        value = int(text) if text.isdecimal() and len(text) < 9 else -1
        return value if self.least <= value <= self.most else None


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day-of-month", 1, 31, day=True),
    _Field("month", 1, 12, _MONTHS),
    _Field("day-of-week", 0, 6, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), day=True),
)
_RUN_STATES = {"DELIVERED": "SUCCESS", "FAILED": "FAIL", "CANCELED": "FAIL"}
"""The API's name for the state of a message that a schedule has created."""
_SOON = timedelta(hours=3)
"""A period longer than any clock change that sets clocks back."""


class Cron:
    """A parsed cron expression. Raises ``QueueError`` (400) if it is malformed.

    ``every_us`` is the interval of an ``@every`` expression. It is None for any other, which has
    its five fields in ``expression``.
    """

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        body, self.zone = self._split_zone(self.text)
        self.every_us = self._every(body) if body.lower().startswith(_EVERY) else None
        if self.every_us is not None:
            return
        if body.startswith("@"):
            expression = _ALIASES.get(body.lower())
            if expression is None:
                names = ", ".join([*_ALIASES, "@every <duration>"])
                raise self._bad(f"unknown name {body}, known are {names}")
            self.expression = expression
        else:
            fields = body.split()
            if len(fields) != len(_FIELDS):
                raise self._bad(f"expected 5 fields, got {len(fields)}")
            self.expression = " ".join(self._field(*numbered) for numbered in enumerate(fields))
        # Imported here, because the import takes 4 ms and few tests have a schedule.
        from cronsim import CronSim, CronSimError

        try:
            CronSim(self.expression, datetime(2000, 1, 1))
        except (CronSimError, ValueError) as error:
            raise self._bad(str(error)) from None

    def next_us(self, after_us: int, *, since_us: int | None = None) -> int | None:
        """Return the time of the next run after ``after_us``, or None if there is no further run.

        ``@every`` intervals start at ``since_us``, the time of an earlier run, or by default at
        ``after_us``.
        """
        if self.every_us is not None:
            since = (after_us if since_us is None else since_us) // SECOND * SECOND
            due = since + ((after_us - since) // self.every_us + 1) * self.every_us
            return due if due <= LATEST_US else None
        # If clocks are set back from 3:00 to 2:00, the first 2:30 precedes the second 2:00. Runs at
        # wall times are found in order, so keep the earliest second run until a later run is found.
        repeated: int | None = None
        from cronsim import CronSim

        try:
            for wall in CronSim(self.expression, self._wall(after_us)):
                first, second = self._instants(wall)
                if second is not None and second > after_us:
                    repeated = second if repeated is None else min(repeated, second)
                if first is not None and first > after_us:
                    return first if repeated is None else min(first, repeated)
        except (OverflowError, ValueError):
            return None
        return repeated

    def _wall(self, after_us: int) -> datetime:
        """Return the local time to search from, earlier if clocks are about to be set back."""
        after = to_datetime(after_us)
        here, later = after.astimezone(self.zone), (after + _SOON).astimezone(self.zone)
        soon = here.utcoffset() != later.utcoffset()
        return here.replace(tzinfo=None) - (_SOON if soon else timedelta(0))

    def _instants(self, wall: datetime) -> tuple[int | None, int | None]:
        """Return the first and the second time at which local clocks show ``wall``.

        The times differ if clocks are set back over ``wall``. Both are None if clocks skip it.
        """
        instants: list[int | None] = []
        for fold in (0, 1):
            there = wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
            exists = there.astimezone(self.zone).replace(tzinfo=None) == wall
            instants.append(round(there.timestamp()) * SECOND if exists else None)
        return instants[0], instants[1]

    def _split_zone(self, text: str) -> tuple[str, tzinfo]:
        match = re.fullmatch(_ZONE, text)
        if match is None:
            return text, UTC
        name = match.group(1)
        if name.upper() == "UTC":
            return match.group(2).strip(), UTC
        try:
            return match.group(2).strip(), _zone(name)
        except (KeyError, ValueError, OSError):
            raise self._bad(f"unknown time zone {name!r}") from None

    def _every(self, body: str) -> int:
        duration = go_duration_us(body[len(_EVERY) :])
        if duration is None:
            raise self._bad("expected a duration such as @every 5m or @every 1h30m")
        if duration < MINUTE:
            raise self._bad("the finest step is one minute")
        return duration // SECOND * SECOND

    def _field(self, index: int, text: str) -> str:
        """Return a cron field as a list of numbers, or as an asterisk if it restricts nothing."""
        field = _FIELDS[index]
        values: set[int] = set()
        unrestricted = False
        for piece in text.split(","):
            match = re.fullmatch(_PIECE, piece)
            span = None if match is None else _span(field, match)
            if match is None or span is None:
                raise self._bad(
                    f"Bad {field.name}: unexpected {piece!r} in field {index + 1}, expected numbers"
                    f" from {field.least} to {field.most}"
                )
            values.update(span)
            unrestricted = unrestricted or (match["all"] is not None and span.step == 1)
        return "*" if unrestricted else ",".join(map(str, sorted(values)))

    def _bad(self, why: str) -> Exception:
        return bad_request(f"invalid cron expression {self.text!r}: {why}")


def _span(field: _Field, piece: re.Match[str]) -> range | None:
    """Return the numbers that a part of a field matches, or None if it is invalid."""
    step = int(piece["step"] or 1)
    low: int | None = field.least
    high: int | None = field.most
    if piece["all"] is None:
        low = field.number(piece["low"])
        if piece["high"] is not None:
            high = field.number(piece["high"])
        elif piece["step"] is None:
            high = low
    elif piece["all"] == "?" and not field.day:
        return None
    if low is None or high is None or low > high or step == 0:
        return None
    return range(low, high + 1, step)


def _zone(name: str) -> tzinfo:
    """Return a time zone; raise ``KeyError``, ``ValueError`` or ``OSError`` if it is unknown.

    The zone is read through the import system, because a test may have faked the file system.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, OSError):
        for folder in zoneinfo.TZPATH:
            path = f"{folder}/{name}"
            with suppress(OSError):
                data = SourceFileLoader(name, path).get_data(path)
                return zoneinfo.ZoneInfo.from_file(BytesIO(data), key=name)
        raise


_cron = lru_cache(maxsize=256)(Cron)


def as_scheduled(settings: PublishSettings) -> PublishSettings:
    """Return settings without the ones that apply only to creating the schedule."""
    return settings._replace(
        cron=None, schedule_id=None, deduplication_id=None, content_based_deduplication=False
    )


@dataclass(eq=False, repr=False, kw_only=True)
class MessageSchedule:
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
    sent: HeaderList
    api: Api
    paused: bool = False
    planned_us: int | None = None
    last_us: int | None = None
    last_ids: list[str] = field(default_factory=list)
    error: str | None = None

    def copy(self) -> MessageSchedule:
        return copy_of(self)

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


class Schedules:
    """The schedules by id."""

    _publish_run: Callable[[MessageSchedule, int], list[str]]

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self.by_id: dict[str, MessageSchedule] = {}
        self.timers: dict[str, Timer] = {}

    def connect(self, publish_run: Callable[[MessageSchedule, int], list[str]]) -> None:
        """Set the function that creates the messages of a run at a time, and returns their ids."""
        self._publish_run = publish_run

    def get(self, schedule_id: str) -> MessageSchedule:
        return existing(self.by_id.get(schedule_id), "schedule", schedule_id)

    def create(self, destination: str, settings: PublishSettings, **origin: Any) -> MessageSchedule:
        """Create a schedule, or replace the schedule with the same id. ``origin`` are further fields.

        Raises ``QueueError``: 400 for a missing or malformed cron expression and for a not-before
        time, 412 if the plan's schedule limit is exceeded.
        """
        if not settings.cron:
            raise bad_request("invalid schedule: the Upstash-Cron header is missing")
        if settings.not_before_us is not None:
            raise bad_request("invalid schedule: Upstash-Not-Before cannot be used with a schedule")
        cron = _cron(settings.cron)
        now = self._data.clock.now_us()
        first_run = cron.next_us(now)
        if first_run is None:
            raise bad_request(f"invalid cron expression {settings.cron!r}: it never fires")
        schedule_id = settings.schedule_id or self._data.new_id("scd_")
        most = self._data.limits.schedules
        if most is not None and schedule_id not in self.by_id and len(self.by_id) >= most:
            raise quota("maxSchedules", most)
        schedule = MessageSchedule(
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

    def plan(self, schedule: MessageSchedule, due_us: int | None) -> None:
        """Set the time of the next run, and start a timer for it unless the schedule is paused."""
        schedule.planned_us = due_us
        self.unplan(schedule)
        if due_us is not None and not schedule.paused and not self._data.closed:
            self.timers[schedule.id] = self._data.clock.call_at(
                due_us,
                partial(self._timer_fired, schedule.id),
                lane=self._data.changes_lane,
                label=f"schedule {schedule.id}",
                subject=schedule.id,
            )

    def replan(self, schedule: MessageSchedule) -> None:
        """Plan the next run again after the timers were stopped, skipping runs in the past."""
        due, now = schedule.planned_us, self._data.clock.now_us()
        if due is not None and due < now:
            due = schedule.first_run_after(now)
        self.plan(schedule, due)

    def earliest_run_us(self) -> int | None:
        """Return the time of the next planned run of any schedule, or None."""
        return min((timer.due_us for timer in self.timers.values()), default=None)

    def unplan(self, schedule: MessageSchedule) -> None:
        timer = self.timers.pop(schedule.id, None)
        if timer is not None:
            timer.cancel()

    def delete(self, schedule_id: str) -> None:
        """Delete a schedule but not its messages."""
        self.unplan(self.get(schedule_id))
        del self.by_id[schedule_id]

    def set_paused(self, schedule_id: str, paused: bool) -> None:
        """Pause or resume a schedule; raise a 404 error for an unknown id."""
        schedule = self.get(schedule_id)
        if schedule.paused == paused:
            return
        due = self.next_run_us(schedule)
        schedule.paused = paused
        self.plan(schedule, due)

    def next_run_us(self, schedule: MessageSchedule) -> int | None:
        """Return the time of the next run. For a paused schedule, assume that it is resumed now."""
        if schedule.planned_us is None or not schedule.paused:
            return schedule.planned_us
        return schedule.first_run_after(self._data.clock.now_us())

    def run_now(self, schedule_id: str) -> list[str]:
        """Create the messages of a run now and return their ids."""
        schedule = self.get(schedule_id)
        self._run(schedule, self._data.clock.now_us())
        return list(schedule.last_ids)

    def states_of_run(self, schedule: MessageSchedule) -> dict[str, str]:
        """Return the states of the last run's messages that still exist, by public id."""
        messages = (
            self._data.messages[message_id]
            for message_id in schedule.last_ids
            if message_id in self._data.messages
        )
        return {
            message.public_id: _RUN_STATES.get(message.state, "IN_PROGRESS") for message in messages
        }

    def _timer_fired(self, schedule_id: str, at_us: int) -> None:
        with self._data.lock:
            schedule = self.by_id.get(schedule_id)
            if schedule is not None:
                self.plan(schedule, _cron(schedule.cron).next_us(at_us))
                self._run(schedule, at_us)

    def _run(self, schedule: MessageSchedule, at_us: int) -> None:
        schedule.last_us, schedule.last_ids, schedule.error = at_us, [], None
        try:
            schedule.last_ids = self._publish_run(schedule, at_us)
        except QueueError as error:
            schedule.error = error.message
