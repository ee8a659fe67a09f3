"""Schedules: cron expressions with time zones, and when they fire next.

Five fields, finest step one minute, UTC unless the text begins with `CRON_TZ=<IANA zone>`; the
names `@hourly @daily @midnight @weekly @monthly @yearly @annually`; Sunday is 0; both day fields
restricted means either.  The prefix is the one of the common Go library, whose rules fill the gaps
(*decided here*): a time that a change of clocks skips is not run, `?` is `*`, and what only other
cron dialects know (seconds, `L`, `W`, `#`, 7 for Sunday) is refused.
A fixed time that a change of clocks repeats is run once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
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
_NAMED = re.compile(r"[A-Za-z]{3}")


class Cron:
    """A cron expression that has been read; raises `QueueError` 400 for a malformed one."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        body, self.zone = self._split_zone(self.text)
        if body.startswith("@"):
            expression = _ALIASES.get(body.lower())
            if expression is None:
                raise self._bad(f"unknown name {body}, known are {', '.join(_ALIASES)}")
            self.expression = expression
        else:
            self.expression = self._fields(body)
        try:
            self._start(datetime(2000, 1, 1, tzinfo=UTC))
        except (CronSimError, ValueError) as error:
            raise self._bad(str(error)) from None

    def next_us(self, after_us: int) -> int | None:
        """Return the first instant after this one at which it fires; None when it never does."""
        after = to_datetime(after_us).astimezone(self.zone)
        try:
            runs = self._start(after)
            for _ in range(1000):
                moment = next(runs)
                if self._skipped(moment, runs):
                    continue
                instant = round(moment.timestamp()) * 1_000_000
                if instant > after_us:
                    return instant
        except (StopIteration, OverflowError, ValueError):
            return None
        return None

    def _start(self, after: datetime) -> CronSim:
        return CronSim(self.expression, after)

    @staticmethod
    def _skipped(moment: datetime, runs: CronSim) -> bool:
        # The library moves a time that the clocks jump over to just after the jump; the wall
        # clock then shows an hour or minute that was not asked for.
        return moment.hour not in runs.hours or moment.minute not in runs.minutes

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
