"""Cron expressions in words, for those that are common."""

from __future__ import annotations

import re

from ..engine.schedules import _ALIASES, _EVERY, _ZONE

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_MOST_TIMES = 4


def cron_words(expression: str) -> str:
    """Return a valid cron expression in words, such as "every day at 09:00".

    The words are empty for an expression that is better read as it is.
    """
    zone, body = "", " ".join(expression.split())
    if match := re.fullmatch(_ZONE, body):
        zone, body = f" in {match.group(1)}", match.group(2)
    if body.lower().startswith(_EVERY):
        return f"every {body[len(_EVERY) :]}"
    fields = _ALIASES.get(body.lower(), body).replace("?", "*").split()
    if len(fields) != 5:
        return ""
    minute, hour, *dates = fields
    times, days = _times(minute, hour), _days(*dates)
    if not times or days is None:
        return ""
    if times.startswith("every "):
        return f"{times}{f' {days}' if days else ''}{zone}"
    return f"{days or 'every day'} at {times}{zone}"


def _times(minute: str, hour: str) -> str:
    """Return the times of a day: times, or a period that begins with "every"."""
    if hour == "*":
        if minute == "*":
            return "every minute"
        if step := re.fullmatch(r"\*/(\d+)", minute):
            return f"every {step.group(1)} minutes"
        return f"every hour at minute {minute}" if minute.isdecimal() else ""
    if not minute.isdecimal():
        return ""
    if step := re.fullmatch(r"\*/(\d+)", hour):
        return f"every {step.group(1)} hours at minute {minute}"
    hours = hour.split(",")
    if len(hours) > _MOST_TIMES or not all(text.isdecimal() for text in hours):
        return ""
    return _listed([f"{int(text):02}:{int(minute):02}" for text in hours])


def _days(day: str, month: str, weekday: str) -> str | None:
    """Return the days, empty for every day; None if they have no short words."""
    if day != "*" and weekday != "*":
        return None
    months = "" if month == "*" else _named(month, _MONTHS, 1)
    if months is None:
        return None
    if weekday != "*":
        names = _named(weekday, _DAYS, 0)
        return None if names is None else f"every {names}{f' in {months}' if months else ''}"
    if day == "*":
        return f"every day in {months}" if months else ""
    if not re.fullmatch(r"\d+(,\d+)*", day):
        return None
    numbers = _listed(day.split(","))
    return f"on {numbers} {months}" if months else f"on day {numbers} of each month"


def _named(field: str, names: tuple[str, ...], first: int) -> str | None:
    """Return the names of the days or months in a field: single ones, or one span."""
    short = {name[:3].upper(): name for name in names}

    def name_of(text: str) -> str | None:
        if text.isdecimal():
            at = int(text) - first
            return names[at] if 0 <= at < len(names) else None
        return short.get(text.upper())

    parts = [name_of(text) for text in re.split("[,-]", field)]
    if None in parts or ("-" in field and len(parts) != 2):
        return None
    found = [part for part in parts if part]
    return " to ".join(found) if "-" in field else _listed(found)


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
