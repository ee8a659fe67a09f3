"""Parse the headers of publish requests into ``PublishSettings``.

Names are case-insensitive and start with either ``Upstash-`` or ``Service-``. Lower-case query keys
(``?upstash-retries=3``) count as headers if the header is missing. Nested settings
(``Upstash-Callback-*``) are parsed in the same way after their prefix is replaced.

Decided here: an unknown ``Upstash-*`` header is ignored. The first value of a repeated setting
counts. A flow-control key may have no value, because it may be pinned. ``Upstash-Header-Forward``
never forwards the queue's own ``Authorization``. If two settings exclude each other (delay and
not-before, the two kinds of deduplication), a setting that was sent drops the default of the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from .. import errors
from ..errors import bad_request
from ..model import (
    DAY,
    SECOND,
    FlowSettings,
    HeaderList,
    PublishSettings,
    Redaction,
)
from .retry import check_expression

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
HOP_BY_HOP = frozenset(
    [
        "host",
        "content-length",
        "connection",
        "transfer-encoding",
        "accept-encoding",
        "keep-alive",
        "te",
        "upgrade",
        "trailer",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "expect",
    ]
)
"""Headers about a message's framing or about a single connection, which are not forwarded."""
NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DURATION = re.compile(r"(?:\d{1,15}[smhd])+\Z", re.ASCII)
_GROUP = re.compile(r"(\d+)([smhd])")
_UNIT = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": DAY}
_REDACT_HEADER = re.compile(r"headers?\[([^\[\]]+)\]\Z", re.IGNORECASE)
LONGEST_US = 36_525 * DAY
"""Maximum delay in microseconds. No plan allows more, and longer delays exceed the range of dates."""
LATEST_US = 253_402_300_799 * SECOND
LONGEST_PERIOD_US = 7 * DAY


def canonical(name: str) -> str:
    """Return a header name in canonical case (``X-My-Id`` for ``x-my-id``)."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def unprefixed(name: str) -> str | None:
    """Return the rest of a header name after ``Upstash-`` or ``Service-``, in lower case.

    Returns None for other headers.
    """
    lower = name.lower()
    if lower.startswith(("upstash-", "service-")):
        return lower[8:]
    return None


def first_setting(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the first value of a setting such as ``workflow-runid``, or None."""
    return next((value for key, value in headers if unprefixed(key) == name), None)


def read_duration(text: str, what: str) -> int:
    """Parse a duration such as ``1d10h30m`` (units s, m, h, d) into microseconds.

    Raises a 400 error if it is malformed.
    """
    compact = text.strip()
    if not _DURATION.match(compact):
        raise bad_request(
            f"invalid {what}: {quoted(text)} is not a duration, use numbers with s, m, h or d"
            " such as 10s or 1d10h30m"
        )
    total = sum(int(number) * _UNIT[unit] for number, unit in _GROUP.findall(compact))
    if total > LONGEST_US:
        raise bad_request(f"invalid {what}: {text!r} is longer than 100 years")
    return total


def read_integer(text: str, what: str, *, least: int = 0) -> int:
    """Parse a decimal integer of at most 18 digits; raise a 400 error if it is malformed."""
    stripped = text.strip()
    if not re.fullmatch(r"[0-9]{1,18}", stripped) or int(stripped) < least:
        raise bad_request(f"invalid {what}: {quoted(text)} is not an integer of at least {least}")
    return int(stripped)


def read_flag(text: str, what: str) -> bool:
    """Parse ``true`` or ``false``, ignoring case because the Python client sends ``True``.

    Raises a 400 error for any other value.
    """
    lower = text.strip().lower()
    if lower not in ("true", "false"):
        raise bad_request(f"invalid {what}: {quoted(text)}, expected true or false")
    return lower == "true"


def check_url(url: str, what: str) -> str:
    """Return an absolute http(s) URL unchanged; raise the service's 400 error for any other value."""
    if not url.lower().startswith(("http://", "https://")):
        raise bad_request(f"invalid {what} url: {errors.INVALID_SCHEME}")
    if re.search(r"[\x00-\x20\x7f]", url):
        raise bad_request(f"invalid {what} url: endpoint contains a space or control character")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise bad_request(f"invalid {what} url: {_unreadable(as_text(url)) or error}") from None
    # Check the decoded text as well, which may be malformed even if the bytes are not.
    if not url.isascii() and (unreadable := _unreadable(as_text(url))) is not None:
        raise bad_request(f"invalid {what} url: {unreadable}")
    if not host:
        raise bad_request(f"invalid {what} url: endpoint has no host")
    return url


def _unreadable(url: str) -> ValueError | None:
    try:
        _ = urlsplit(url).port
    except ValueError as error:
        return error
    return None


def check_name(name: str, what: str) -> str:
    """Return a name of letters, digits, ``-``, ``.`` and ``_``; raise a 400 error for any other
    name.
    """
    if not NAME.match(name):
        raise bad_request(
            f"invalid {what}: {quoted(name)} may only contain letters, digits, hyphen, underscore"
            " and dot"
        )
    return name


def read_flow(key: str, value: str | None) -> FlowSettings:
    """Parse ``parallelism=<n>, rate=<n>, period=<duration>``, in any order.

    Raises a 400 error if the value is malformed.
    """
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


def read_redaction(text: str) -> Redaction:
    """Parse a comma-separated list of ``body``, ``header`` and ``header[Name]``.

    Raises a 400 error if the list is malformed.
    """
    body = False
    every = False
    names: set[str] = set()
    for part in (piece.strip() for piece in text.split(",")):
        if part.lower() == "body":
            body = True
        elif part.lower() in ("header", "headers"):
            every = True
        elif found := _REDACT_HEADER.match(part):
            names.add(found.group(1).strip().lower())
        elif part:
            raise bad_request(
                f"invalid redact field: {quoted(part)}, expected body, header or header[<name>]"
            )
    return Redaction(body=body, all_headers=every, headers=frozenset(names))


def read_deduplication_id(text: str) -> str:
    """Return a deduplication id; raise a 400 error if it is empty or contains a colon or white
    space.
    """
    if ":" in text:
        raise bad_request(errors.DEDUPLICATION_COLON)
    if not text or re.search(r"\s", text):
        raise bad_request("DeduplicationId cannot be empty or contain white space")
    return text


def check_header(name: str, value: str) -> None:
    """Raise a 400 error for a forwarded header that cannot be sent or would inject another header."""
    if not _TOKEN.match(name):
        raise bad_request(f"invalid header name: {quoted(name)}")
    if _CONTROL.search(value):
        raise bad_request(f"invalid header value for {name}: it contains a control character")


class _Reading:
    """Collects the headers of one request as fields of ``PublishSettings``."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.forward: HeaderList = []
        self.callback: HeaderList = []
        self.failure: HeaderList = []
        self.workflow: HeaderList = []
        self.plain: HeaderList = []
        self.flow_key: str | None = None
        self.flow_value: str | None = None
        self.forward_all: bool | None = None

    def take(self, name: str, value: str) -> None:
        rest = unprefixed(name)
        if rest is None:
            if name.lower() == "content-type":
                self.given.setdefault("content_type", value)
            else:
                self.plain.append((name, value))
        elif rest.startswith("forward-"):
            self.forward.append((name[16:], value))
        elif rest.startswith("failure-callback-"):
            self.failure.append(("Upstash-" + name[25:], value))
        elif rest.startswith("callback-"):
            self.callback.append(("Upstash-" + name[17:], value))
        elif rest.startswith("workflow-") or rest == "feature-set":
            self.workflow.append(("Upstash-" + name[8:], value))
        else:
            self._setting(rest, value)

    def _setting(self, rest: str, value: str) -> None:
        if rest == "flow-control-key":
            self.flow_key = self.flow_key or value
        elif rest == "flow-control-value":
            self.flow_value = self.flow_value or value
        elif rest == "header-forward":
            if self.forward_all is None:
                self.forward_all = read_flag(value, "header-forward")
        elif rest in _SETTINGS:
            field, read = _SETTINGS[rest]
            if field not in self.given:
                self.given[field] = read(value)

    def default(self, defaults: _Reading) -> None:
        """Add default settings and headers that the request did not send."""
        if self.forward_all is None:
            self.forward_all = defaults.forward_all
        self.forward_plain()
        replaced = {other for one, other in _EXCLUDES if one in self.given}
        self.given = {
            **{name: value for name, value in defaults.given.items() if name not in replaced},
            **self.given,
        }
        self.forward = over(defaults.forward, self.forward)
        self.callback = over(defaults.callback, self.callback)
        self.failure = over(defaults.failure, self.failure)
        self.workflow = over(defaults.workflow, self.workflow)
        if self.flow_key is None:
            self.flow_key = defaults.flow_key
        if self.flow_value is None:
            self.flow_value = defaults.flow_value

    def forward_plain(self) -> None:
        if self.forward_all:
            taken = {name.lower() for name, _ in self.forward} | {"authorization", "user-agent"}
            self.forward += [pair for pair in self.plain if pair[0].lower() not in taken]

    def finish(self) -> dict[str, Any]:
        if self.flow_key is not None:
            self.given["flow"] = read_flow(self.flow_key, self.flow_value)
        elif self.flow_value is not None:
            raise bad_request("invalid flow control: a value was given without a key")
        forward = [
            pair
            for pair in self.forward
            if pair[0].lower() not in HOP_BY_HOP and pair[0].lower() != "content-type"
        ]
        for name, value in forward:
            check_header(name, value)
        if _CONTROL.search(self.given.get("content_type", "")):
            raise bad_request("invalid header value for Content-Type: control character")
        for field, found in (
            ("forward", forward),
            ("callback_headers", self.callback),
            ("failure_callback_headers", self.failure),
            ("workflow", self.workflow),
        ):
            if found:
                self.given[field] = found
        return self.given


_EXCLUDES = (
    ("delay_us", "not_before_us"),
    ("not_before_us", "delay_us"),
    ("deduplication_id", "content_based_deduplication"),
    ("content_based_deduplication", "deduplication_id"),
)
"""Pairs of settings. If a request sets the first one, the default of the second does not apply."""


def over(base: HeaderList, given: HeaderList) -> HeaderList:
    """Return headers combined with ``given``, whose headers replace those of the same name."""
    own = {name.lower() for name, _ in given}
    return [pair for pair in base if pair[0].lower() not in own] + given


def _method(value: str) -> str:
    method = value.strip().upper()
    if method not in METHODS:
        raise bad_request(f"invalid method: {quoted(value)}, expected one of {', '.join(METHODS)}")
    return method


def _timeout(value: str) -> int:
    # Accept a number of seconds without a unit, which workflow clients send.
    return read_duration(f"{value.strip()}s" if value.strip().isdecimal() else value, "timeout")


def _not_before(value: str) -> int:
    instant = read_integer(value, "not before") * SECOND
    if instant > LATEST_US:
        raise bad_request(f"invalid not before: {value!r} is not Unix time in seconds")
    return instant


def labels_of(value: str) -> tuple[str, ...]:
    """Return the labels in the value of a label header, which separates them by commas."""
    return tuple(part.strip() for part in as_text(value).split(",") if part.strip())


_SETTINGS: Mapping[str, tuple[str, Any]] = {
    "method": ("method", _method),
    "delay": ("delay_us", lambda text: read_duration(text, "delay")),
    "not-before": ("not_before_us", _not_before),
    "notbefore": ("not_before_us", _not_before),
    "retries": ("retries", lambda text: read_integer(text, "retries")),
    "retry-delay": ("retry_delay", lambda text: check_expression(as_text(text))),
    "timeout": ("timeout_us", _timeout),
    "callback": ("callback", lambda text: check_url(text.strip(), "callback")),
    "failure-callback": (
        "failure_callback",
        lambda text: check_url(text.strip(), "failure callback"),
    ),
    "deduplication-id": ("deduplication_id", read_deduplication_id),
    "content-based-deduplication": (
        "content_based_deduplication",
        lambda text: read_flag(text, "content-based-deduplication"),
    ),
    "cron": ("cron", lambda text: as_text(text.strip())),
    "schedule-id": ("schedule_id", lambda text: check_name(text.strip(), "schedule id")),
    "queue-name": ("queue_name", lambda text: check_name(text.strip(), "queue name")),
    "label": ("labels", labels_of),
    "redact-fields": ("redaction", read_redaction),
}


def read_given(
    headers: Iterable[tuple[str, str]],
    query: Iterable[tuple[str, str]] = (),
    defaults: HeaderList | None = None,
) -> dict[str, Any]:
    """Return the settings in the headers and in ``upstash-*`` query keys.

    ``defaults`` are the headers of a URL group, which apply unless the request sets them. Raises
    ``QueueError`` (400) for the first malformed header.
    """
    reading = _Reading()
    for name, value in headers:
        reading.take(name, value)
    for name, value in query:
        if name.lower().startswith("upstash-"):
            reading.take(name, value)
    if defaults:
        known = _Reading()
        for name, value in defaults:
            known.take(name, value)
        reading.default(known)
    else:
        reading.forward_plain()
    return reading.finish()


def read_settings(headers: Iterable[tuple[str, str]]) -> PublishSettings:
    """Return the settings of a publish request; raise ``QueueError`` (400) if it is malformed."""
    return PublishSettings(**read_given(headers))


def json_headers(headers: Mapping[str, Any], *, first_spelling: bool = False) -> HeaderList:
    """Return headers as pairs, from a JSON object that maps names to values or lists of values.

    ``first_spelling`` drops a name that is repeated in another case, as workflow clients do. Raises
    a 400 error for values that are not strings, numbers or booleans.
    """
    pairs: HeaderList = []
    seen: set[str] = set()
    for name, values in headers.items():
        if first_spelling and str(name).lower() in seen:
            continue
        seen.add(str(name).lower())
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, dict | list) or value is None:
                raise bad_request(f"invalid header {name}: expected a string")
            text = value if isinstance(value, str) else json.dumps(value)
            pairs.append((as_wire(str(name)), as_wire(text)))
    return pairs


def header_map(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return headers as the API represents them, with lists of values by canonical name."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(canonical(name), []).append(as_text(value))
    return found


def as_text(wire: str) -> str:
    """Decode Latin-1 wire characters as UTF-8. Return them unchanged if they are not UTF-8."""
    if wire.isascii():
        return wire
    try:
        return wire.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return wire


def quoted(wire: str) -> str:
    """Return decoded wire characters in quotes, for error messages."""
    return repr(as_text(wire))


def as_wire(text: str) -> str:
    """Encode a string as UTF-8 and return it with one Latin-1 character per byte."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("latin-1")
