"""Cron expressions with time zones.

An expression has five fields with a resolution of one minute, in UTC unless it begins with
``CRON_TZ=<IANA zone>`` (or ``TZ=``). It can also be one of ``@hourly``, ``@daily``, ``@midnight``,
``@weekly``, ``@monthly``, ``@yearly``, ``@annually`` or ``@every <duration>``. Sunday is 0. If both
day fields are restricted, one of them must match. ``?`` means ``*`` in the day fields. Features of
other cron dialects (seconds, ``L``, ``W``, ``#``, 7 for Sunday) are rejected, and so is an
``@every`` of less than one minute.

Decided here: everything else follows the documented rules of the common Go library that has the
same zone prefix. A time skipped by a clock change does not run, and a repeated time runs twice.
``5-5/2`` is 5, ``10/20`` is 10-59/20, and an asterisk with a step of one is an asterisk. ``@every``
counts in whole seconds from the schedule's creation.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from importlib.machinery import SourceFileLoader
from io import BytesIO

from cronsim import CronSim, CronSimError

from ...core.timers import to_datetime
from ..errors import bad_request
from ..model import MINUTE, SECOND
from .values import LATEST_US
from .waits import go_duration_us

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ZONE = re.compile(r"(?:CRON_TZ|TZ)=(\S+)\s+(.*)\Z", re.DOTALL)
_PIECE = re.compile(
    r"(?:(?P<all>[*?])|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d{1,9}))?\Z", re.ASCII
)
_EVERY = "@every "


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    day: bool = False

    def number(self, text: str) -> int | None:
        if text.upper() in self.names:
            return self.least + self.names.index(text.upper())
        given = int(text) if text.isdecimal() and len(text) < 9 else -1
        return given if self.least <= given <= self.most else None


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day-of-month", 1, 31, day=True),
    _Field("month", 1, 12, _MONTHS),
    _Field("day-of-week", 0, 6, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), day=True),
)
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
                known = ", ".join([*_ALIASES, "@every <duration>"])
                raise self._bad(f"unknown name {body}, known are {known}")
            self.expression = expression
        else:
            fields = body.split()
            if len(fields) != len(_FIELDS):
                raise self._bad(f"expected 5 fields, got {len(fields)}")
            self.expression = " ".join(self._field(*numbered) for numbered in enumerate(fields))
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
        found = _ZONE.match(text)
        if found is None:
            return text, UTC
        name = found.group(1)
        if name.upper() == "UTC":
            return found.group(2).strip(), UTC
        try:
            return found.group(2).strip(), _zone(name)
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
            found = _PIECE.match(piece)
            span = None if found is None else _span(field, found)
            if found is None or span is None:
                raise self._bad(
                    f"Bad {field.name}: unexpected {piece!r} in field {index + 1}, expected numbers"
                    f" from {field.least} to {field.most}"
                )
            values.update(span)
            unrestricted = unrestricted or (found["all"] is not None and span.step == 1)
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
    # Imported here, because the import is slow and few schedules have a zone.
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, OSError):
        for folder in zoneinfo.TZPATH:
            path = f"{folder}/{name}"
            with suppress(OSError):
                data = SourceFileLoader(name, path).get_data(path)
                return zoneinfo.ZoneInfo.from_file(BytesIO(data), key=name)
        raise
