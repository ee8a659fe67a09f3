"""Waits between the attempts of a message: the backoff, ``Retry-After`` or a retry-delay expression.

Specification and vendor's documentation: before retry n, the queue waits min(86400, e^(2.5 n))
seconds. A destination's ``Retry-After``, ``X-RateLimit-Reset``, ``X-RateLimit-Reset-Requests`` or
``X-RateLimit-Reset-Tokens`` sets the next wait instead, unless it is longer than a day.

Decided here: the first of these headers in this order counts, and takes precedence over an
expression. A date in the past and a negative duration mean no wait. An expression is evaluated in
floating point for every allowed retry when the message is published, and rejected if a division by
zero or an overflow occurs. If it has no value for a later retry, the backoff is used. Its value is
limited to between 0 and one day. ``round`` rounds halves away from zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from operator import add, mul, sub, truediv

from ...core.calls import HeaderPairs
from ...core.errors import counted
from ..errors import QueueError, bad_request
from ..model import DAY, SECOND, first

RETRY_HEADERS = (
    "Retry-After",
    "X-RateLimit-Reset",
    "X-RateLimit-Reset-Requests",
    "X-RateLimit-Reset-Tokens",
)
_TOKEN = r"(?a)\s*(?:((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|([A-Za-z_]+)|(.))"
_GO_GROUP = r"(?a)(?=\.?\d)(\d*)(?:\.(\d*))?([^\d.]*)"
"""Matches a number of a duration (in two parts) with its unit."""
_GO_UNITS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000,
    "m": 60_000_000_000, "h": 3_600_000_000_000,
}  # fmt: skip
"""The units of Go's durations in nanoseconds."""
_DAYS = {"d": 24 * _GO_UNITS["h"]}
"""The unit that durations in requests have in addition."""
_DEEPEST = 50
"""Maximum nesting of an expression, so that parsing never exceeds Python's recursion limit."""
_LONGEST = 500
"""Maximum number of characters of an expression."""


def backoff_us(retry: int) -> int:
    """Return the default wait before retry number ``retry`` (counted from 1), in microseconds."""
    if 2.5 * retry >= math.log(86_400):
        return DAY
    return round(math.exp(2.5 * retry) * SECOND)


def _round(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value)


_FUNCTIONS: dict[str, tuple[int | None, Callable[..., float]]] = {
    "pow": (2, math.pow),
    "exp": (1, math.exp),
    "sqrt": (1, math.sqrt),
    "abs": (1, abs),
    "floor": (1, lambda value: float(math.floor(value))),
    "ceil": (1, lambda value: float(math.ceil(value))),
    "round": (1, _round),
    "min": (None, min),
    "max": (None, max),
}


_Node = Callable[[float], float]


class RetryDelay:
    """A parsed retry-delay expression, which computes milliseconds from ``retried`` (0, 1, ...).

    It may contain numbers, ``retried``, ``+ - * / %``, unary minus, parentheses and the functions
    ``pow exp sqrt abs floor ceil round min max``. Raises ``QueueError`` (400) for anything else.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise self._bad(f"it is longer than {_LONGEST} characters")
        self._tokens: list[str] = [
            number or name or sign
            for number, name, sign in re.findall(_TOKEN, text)
            if (number or name or sign).strip()
        ]
        self._at = 0
        self._depth = 0
        self._node = self._sum()
        if self._at != len(self._tokens):
            raise self._bad(f"unexpected {self._tokens[self._at]!r}")

    def milliseconds(self, retried: int) -> float:
        """Return the wait in milliseconds; raise a 400 error if it is not a finite number."""
        try:
            value = self._node(float(retried))
        except ZeroDivisionError:
            raise self._bad(f"it divides by zero when retried is {retried}") from None
        except OverflowError:
            raise self._bad(f"it overflows when retried is {retried}") from None
        except ValueError:
            raise self._bad(f"it has no value when retried is {retried}") from None
        if not math.isfinite(value):
            raise self._bad(f"it overflows when retried is {retried}")
        return value

    def wait_us(self, retried: int) -> int:
        return max(0, round(min(self.milliseconds(retried) * 1_000, DAY)))

    def _bad(self, why: str) -> Exception:
        return bad_request(f"invalid retry delay expression {self.text!r}: {why}")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._take() != sign:
            raise self._bad(f"expected {sign!r}")

    def _sum(self) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._bad(f"it is nested deeper than {_DEEPEST} levels")
        node = self._product()
        while self._peek() in ("+", "-"):
            node = _combined(self._take(), node, self._product())
        self._depth -= 1
        return node

    def _product(self) -> _Node:
        node = self._unary()
        while self._peek() in ("*", "/", "%"):
            node = _combined(self._take(), node, self._unary())
        return node

    def _unary(self) -> _Node:
        negative = False
        while self._peek() in ("-", "+"):
            negative ^= self._take() == "-"
        node = self._atom()
        return (lambda retried: -node(retried)) if negative else node

    def _atom(self) -> _Node:
        token = self._take()
        if not token:
            raise self._bad("it ends too early")
        if token[0] in "0123456789" or (token[0] == "." and len(token) > 1):
            number = float(token)
            return lambda retried: number
        if token == "(":
            node = self._sum()
            self._expect(")")
            return node
        if token == "retried":
            return lambda retried: retried
        if token in _FUNCTIONS:
            return self._call(token)
        raise self._bad(f"unexpected {token!r}")

    def _call(self, name: str) -> _Node:
        arity, function = _FUNCTIONS[name]
        self._expect("(")
        arguments = [self._sum()]
        while self._peek() == ",":
            self._take()
            arguments.append(self._sum())
        self._expect(")")
        if arity is not None and len(arguments) != arity:
            raise self._bad(f"{name} takes {counted(arity, 'argument')}, got {len(arguments)}")
        if arity is None and len(arguments) == 1:
            return arguments[0]
        return lambda retried: function(*(argument(retried) for argument in arguments))


def _remainder(left: float, right: float) -> float:
    # fmod() raises ValueError for a divisor of zero, which would have another error message.
    if right == 0:
        raise ZeroDivisionError
    return math.fmod(left, right)


_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": add, "-": sub, "*": mul, "/": truediv, "%": _remainder,
}  # fmt: skip


def _combined(sign: str, left: _Node, right: _Node) -> _Node:
    operator = _OPERATORS[sign]
    return lambda retried: operator(left(retried), right(retried))


def asked_wait(headers: HeaderPairs, now_us: int) -> tuple[int, str] | None:
    """Return the wait of at most a day that a destination requested, and the header, or None."""
    for name in RETRY_HEADERS:
        value = first(headers, name)
        if value is None:
            continue
        wait = _read_wait(value.strip(), now_us)
        if wait is not None and wait <= DAY:
            return wait, f"{name}: {value.strip()}"
    return None


def read_go_duration(text: str, *, days: bool = False) -> int:
    """Parse a duration of Go (``1h30m``, ``1.5s``, ``500ms``) into microseconds.

    Parts of a microsecond are rounded up. ``days`` allows the unit ``d``, too. Raises ``ValueError``
    with the text of Go's parser if the duration is malformed.
    """
    units = _GO_UNITS | _DAYS if days else _GO_UNITS
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if digits == "0":
        return 0
    total = at = 0
    while at < len(digits):
        group = re.compile(_GO_GROUP).match(digits, at)
        if group is None or len(digits) >= 100:
            break
        whole, fraction, unit = group.groups(default="")
        if not unit:
            raise ValueError(f'time: missing unit in duration "{text}"')
        if unit not in units:
            raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
        total += int(whole or 0) * units[unit]
        total += int(fraction or 0) * units[unit] // 10 ** len(fraction)
        at = group.end()
    if not digits or at < len(digits):
        raise ValueError(f'time: invalid duration "{text}"')
    return -(-total // 1000) * (-1 if text.startswith("-") else 1)


def go_duration_us(text: str) -> int | None:
    """Parse a duration of Go into microseconds; return None if it is malformed."""
    try:
        return read_go_duration(text)
    except ValueError:
        return None


def _read_wait(value: str, now_us: int) -> int | None:
    if re.fullmatch(r"-?[0-9]{1,18}", value):
        return max(0, int(value) * SECOND)
    duration = go_duration_us(value)
    if duration is not None:
        return max(0, duration)
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0, round(moment.timestamp() * SECOND) - now_us)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def next_wait(
    expression: str | None, retried: int, headers: HeaderPairs, now_us: int
) -> tuple[int, str]:
    """Return the wait before the next retry in microseconds, and its reason. ``retried`` starts at 0."""
    requested = asked_wait(headers, now_us)
    if requested is not None:
        return requested
    if expression is not None:
        try:
            return RetryDelay(expression).wait_us(retried), f"retry delay {expression}"
        except QueueError:
            # Use the backoff, because the request was accepted earlier and cannot be rejected now.
            pass
    wait = backoff_us(retried + 1)
    return wait, "backoff, at most one day" if wait == DAY else f"backoff e^{2.5 * (retried + 1):g}"
