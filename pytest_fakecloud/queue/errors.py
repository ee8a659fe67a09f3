"""What the queue answers to a bad request: every text in one place.

Texts marked *observed* were reported verbatim by users of the live service; the others are decided
here, in the same tone.  A quota that a plan does not allow is answered 412 (*decided here*: both
400 and 412 have been seen), everything malformed 400.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..kernel.errors import ServiceError


class QueueError(ServiceError):
    """An error answer of the queue: `{"error": "<text>"}` with a status."""


def bad_request(text: str) -> QueueError:
    """Return the 400 for a malformed request."""
    return QueueError(400, text)


def not_found(what: str, name: str) -> QueueError:
    """Return the 404 for a message, dead letter, schedule, queue, group or flow-control key."""
    return QueueError(404, f"{what} {name} not found")


def quota(name: str, limit: int | None = None) -> QueueError:
    """Return the 412 for a plan limit (*observed*: `quota maxDelay exceeded, current limit: n`)."""
    tail = "" if limit is None else f", current limit: {limit}"
    return QueueError(412, f"quota {name} exceeded{tail}")


def too_large(limit: int) -> QueueError:
    """Return the 413 for a body above the plan's message size."""
    return QueueError(413, f"quota maxMessageSize exceeded, current limit: {limit}")


def unauthorized() -> QueueError:
    """Return the 401 for a missing or wrong token (*observed*)."""
    return QueueError(401, "unable to authenticate: invalid token")


def burst_limited(headers: Iterable[tuple[str, str]]) -> QueueError:
    """Return the 429 of the burst limit; its headers carry no `RateLimit-Limit`."""
    return QueueError(429, "Exceeded burst rate limit", headers=headers)


def daily_limited(headers: Iterable[tuple[str, str]]) -> QueueError:
    """Return the 429 of the daily message limit, with `RateLimit-*` headers."""
    return QueueError(429, "Exceeded daily rate limit", headers=headers)


#: *Observed* for a destination that is neither a URL nor a known group.
INVALID_SCHEME = "endpoint has invalid scheme, add http:// or https://"
#: *Observed*.
DEDUPLICATION_COLON = "DeduplicationId cannot contain ':'"
