"""Schedules: cron expressions with time zones, and when they fire next.

Five fields, finest step one minute, UTC unless the text begins with `CRON_TZ=<IANA zone>`; the
names `@hourly @daily @midnight @weekly @monthly @yearly @annually`; Sunday is 0; both day fields
restricted means either.  The prefix is the one of the common Go library, whose rules fill the gaps
(*decided here*): a time that a change of clocks skips is not run, `?` is `*`, and what only other
cron dialects know (seconds, `L`, `W`, `#`, 7 for Sunday) is refused.
A fixed time that a change of clocks repeats is run once, one within a range of all hours or
minutes (`*`) each time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ..kernel.instants import to_datetime
from .errors import bad_request
from .model import PublishSettings

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
_FIELD = re.compile(r"[0-9*/,?-]+\Z")
_NAMES = {
    3: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    4: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
}
#: Every second day is a restriction as much as a list of days: an asterisk alone is none.
_DAYS = {2: "1-31", 4: "0-6"}
_STEPPED = re.compile(r"(?<![^,])[*?](/0*(?!1\b)[1-9])")
#: More than any change of clocks ever put them back.
_SOON = timedelta(hours=3)
_NAMED = re.compile(r"[A-Za-z]{3}")


class Cron:
    """A cron expression that has been read; raises `QueueError` 400 for a malformed one."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        body, self.zone = self._split_zone(self.text)
        if body.startswith("@"):
            expression = _ALIASES.get(body.lower())
            if expression is None:
                raise self._bad(f"unknown name {body}, known are {', '.join(_ALIASES)}")
            self.expression = expression
        else:
            self.expression = self._fields(body)
        # As in any cron: a job that runs every hour, or every so many minutes, does so throughout.
        self._repeats = any("*" in field for field in self.expression.split()[:2])
        try:
            CronSim(self.expression, datetime(2000, 1, 1))
        except (CronSimError, ValueError) as error:
            raise self._bad(str(error)) from None

    def next_us(self, after_us: int) -> int | None:
        """Return the first instant after this one at which it fires; None when it never does."""
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
        """The time on the wall to look on from: earlier where the clocks go back soon."""
        after = to_datetime(after_us)
        here, later = after.astimezone(self.zone), (after + _SOON).astimezone(self.zone)
        soon = here.utcoffset() != later.utcoffset()
        return here.replace(tzinfo=None) - (_SOON if soon else timedelta(0))

    def _instants(self, wall: datetime) -> tuple[int | None, int | None]:
        """The instants at which the wall shows a time.

        There is none when it is skipped, a second one when it is repeated and the expression does
        not fix it.
        """
        instants: list[int | None] = []
        for fold in (0, 1):
            there = wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)
            exists = there.astimezone(self.zone).replace(tzinfo=None) == wall
            instants.append(round(there.timestamp()) * 1_000_000 if exists else None)
        first, second = instants
        return first, second if self._repeats and second != first else None

    def _split_zone(self, text: str) -> tuple[str, tzinfo]:
        found = _ZONE.match(text)
        if found is None:
            return text, UTC
        name = found.group(1)
        if name.upper() == "UTC":
            return found.group(2).strip(), UTC
        try:
            return found.group(2).strip(), ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            raise self._bad(f"unknown time zone {name!r}") from None

    def _fields(self, body: str) -> str:
        fields = body.split()
        if len(fields) != 5:
            raise self._bad(f"expected 5 fields, got {len(fields)}")
        for index, part in enumerate(fields):
            plain = part
            for name in set(_NAMED.findall(part)):
                if name.upper() not in _NAMES.get(index, ()):
                    raise self._bad(f"unexpected {name!r} in field {index + 1}")
                plain = plain.replace(name, "0")
            if not _FIELD.match(plain) or (index == 4 and re.search(r"(?<!/)(?<!\d)7", part)):
                raise self._bad(f"unexpected {part!r} in field {index + 1}")
            if "?" in part and index not in (2, 4):
                raise self._bad(f"unexpected '?' in field {index + 1}")
            if index in _DAYS:
                fields[index] = _STEPPED.sub(rf"{_DAYS[index]}\1", part)
        return " ".join(fields).replace("?", "*")

    def _bad(self, why: str) -> Exception:
        return bad_request(f"invalid cron expression {self.text!r}: {why}")


@dataclass(slots=True, eq=False)
class Schedule:
    """One schedule; `settings` are those of the messages it creates."""

    id: str
    cron: str
    destination: str
    settings: PublishSettings
    body: bytes
    created_us: int
    caller_ip: str
    paused: bool = False
    next_us: int | None = None
    last_us: int | None = None
    last_ids: list[str] = field(default_factory=list)
    error: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Schedule:
        """Return an independent copy."""
        return replace(self, last_ids=list(self.last_ids), extra=dict(self.extra))

    def next_runs(self, count: int, after_us: int) -> list[datetime]:
        """Return the next instants at which it fires, paused or not."""
        cron = Cron(self.cron)
        runs: list[datetime] = []
        at: int | None = after_us
        while len(runs) < count and (at := cron.next_us(at)) is not None:  # type: ignore[arg-type]
            runs.append(to_datetime(at))
        return runs
