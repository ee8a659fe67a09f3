"""Parse the values of settings: durations, integers, URLs, names and flow-control limits.

Each function raises a 400 error if the value is malformed, unless stated otherwise.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

from .. import errors
from ..errors import bad_request
from ..model import DAY, SECOND, FlowSettings
from .text import as_text, quoted

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
LONGEST_US = 36_525 * DAY
"""Maximum delay in microseconds. No plan allows more, and longer delays exceed the range of dates."""
LATEST_US = 253_402_300_799 * SECOND
"""The last second of the year 9999, the latest that a ``datetime`` can hold."""
LONGEST_PERIOD_US = 7 * DAY
"""Maximum period of a flow-control rate."""
MAX_NESTING = 500
"""Maximum depth of JSON. Deeper JSON may be readable, but too deep to be written again in a response."""
_DURATION = r"(?a)(?:\d{1,15}[smhd])+\Z"
_UNIT = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": DAY}


def check_nesting(value: Any) -> Any:
    """Return a JSON value unchanged; raise ``ValueError`` if it is nested too deeply."""
    level = [value]
    for _ in range(MAX_NESTING):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict | list):
                inner += one.values() if isinstance(one, dict) else one
        level = inner
        if not level:
            return value
    raise ValueError("the body is nested too deeply")


def read_json(text: str | bytes) -> Any:
    """Parse JSON; raise ``ValueError`` if it is malformed or nested too deeply."""
    try:
        return check_nesting(json.loads(text))
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None


def read_duration(text: str, what: str) -> int:
    """Parse a duration such as ``1d10h30m`` (units s, m, h, d) into microseconds."""
    compact = text.strip()
    if not re.match(_DURATION, compact):
        raise bad_request(
            f"invalid {what}: {quoted(text)} is not a duration, use numbers with s, m, h or d"
            " such as 10s or 1d10h30m"
        )
    total = sum(int(number) * _UNIT[unit] for number, unit in re.findall(r"(\d+)([smhd])", compact))
    if total > LONGEST_US:
        raise bad_request(f"invalid {what}: {text!r} is longer than 100 years")
    return total


def read_integer(text: str, what: str, *, least: int = 0) -> int:
    """Parse a decimal integer of at most 18 digits."""
    stripped = text.strip()
    if not re.fullmatch(r"[0-9]{1,18}", stripped) or int(stripped) < least:
        raise bad_request(f"invalid {what}: {quoted(text)} is not an integer of at least {least}")
    return int(stripped)


def read_flag(text: str, what: str) -> bool:
    """Parse ``true`` or ``false``, ignoring case because the Python client sends ``True``."""
    lower = text.strip().lower()
    if lower not in ("true", "false"):
        raise bad_request(f"invalid {what}: {quoted(text)}, expected true or false")
    return lower == "true"


def read_method(value: str) -> str:
    method = value.strip().upper()
    if method not in METHODS:
        raise bad_request(f"invalid method: {quoted(value)}, expected one of {', '.join(METHODS)}")
    return method


def read_timeout(value: str) -> int:
    # Accept a number of seconds without a unit, which workflow clients send.
    return read_duration(f"{value.strip()}s" if value.strip().isdecimal() else value, "timeout")


def read_not_before(value: str) -> int:
    instant = read_integer(value, "not before") * SECOND
    if instant > LATEST_US:
        raise bad_request(f"invalid not before: {value!r} is not Unix time in seconds")
    return instant


def read_labels(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in as_text(value).split(",") if part.strip())


def check_url(url: str, what: str) -> str:
    """Return an absolute http(s) URL unchanged; raise the service's 400 error for any other value."""
    if not url.lower().startswith(("http://", "https://")):
        raise bad_request(f"invalid {what} url: {errors.INVALID_SCHEME}")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise bad_request(f"invalid {what} url: endpoint contains a space or control character")
    try:
        # Check the decoded text as well, which may be malformed even if the bytes are not.
        for spelling in dict.fromkeys((as_text(url), url)):
            parts = urlsplit(spelling)
            _ = parts.port  # Raises ValueError for an invalid port.
        host = parts.hostname
    except ValueError as error:
        raise bad_request(f"invalid {what} url: {error}") from None
    if not host:
        raise bad_request(f"invalid {what} url: endpoint has no host")
    return url


def check_name(name: str, what: str) -> str:
    """Return a name of letters, digits, ``-``, ``.`` and ``_``; raise a 400 error for another."""
    if not re.match(r"[A-Za-z0-9._-]+\Z", name):
        raise bad_request(
            f"invalid {what}: {quoted(name)} may only contain letters, digits, hyphen, underscore"
            " and dot"
        )
    return name


def read_flow(key: str, value: str | None) -> FlowSettings:
    """Parse ``parallelism=<n>, rate=<n>, period=<duration>``, in any order."""
    if not key.strip():
        raise bad_request("invalid flow control key: it is empty")
    numbers: dict[str, int] = {}
    for part in (value or "").split(","):
        if not part.strip():
            continue
        name, equals, given = (piece.strip() for piece in part.partition("="))
        lower = name.lower()
        if not equals or lower not in ("parallelism", "rate", "period"):
            raise bad_request(
                f"invalid flow control value: {quoted(part.strip())}, expected parallelism=<n>,"
                " rate=<n> or period=<duration>"
            )
        if lower == "period":
            seconds = f"{given}s" if given.isdecimal() else given
            numbers[lower] = read_duration(seconds, "flow control period")
            if not SECOND <= numbers[lower] <= LONGEST_PERIOD_US:
                raise bad_request(
                    f"invalid flow control period: {given!r}, it must be from 1s to 7d"
                )
        else:
            numbers[lower] = read_integer(given, f"flow control {lower}", least=1)
    return FlowSettings(
        key=as_text(key.strip()),
        parallelism=numbers.get("parallelism"),
        rate=numbers.get("rate"),
        period_us=numbers.get("period", SECOND),
    )


def read_deduplication_id(text: str) -> str:
    """Return a deduplication id; raise a 400 error if it is empty or has a colon or white space."""
    if ":" in text:
        raise bad_request(errors.DEDUPLICATION_COLON)
    if not text or re.search(r"\s", text):
        raise bad_request("DeduplicationId cannot be empty or contain white space")
    return text
