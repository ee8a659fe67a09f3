"""Error responses of the queue.

Texts marked *observed* were reported verbatim by users of the live service. The others are decided
here, in the same style. A request beyond a plan limit is rejected with 412 (*observed* for steps of
workflow runs; 400 has been seen, too), a malformed request with 400.
"""

from __future__ import annotations

from typing import TypeVar

from ..core.errors import FakecloudError, ServiceError
from .model import DAY, SECOND, HeaderList

T = TypeVar("T")

OVER_QUOTA = 412
"""Status of a request that exceeds a limit of the plan."""


class QueueError(ServiceError):
    """An error response of the queue, with a status and the body ``{"error": "<text>"}``."""

    __module__ = "pytest_fakecloud"


class LoopError(FakecloudError, AssertionError):
    """Raised if deliveries keep causing further messages endlessly. The next message then stays
    pending.

    The call that delivers raises it, because it would otherwise never return. The default limit is
    a chain of 1,000 deliveries at the same point in time, each caused by the previous one (setting
    ``loop_limit``), or ten times as many within one call. Handlers that publish several messages each
    are stopped after 5,000 deliveries to URLs that caused them, or 10,000 within one call. In the
    background, the same limits apply within a call that moves the clock, and otherwise between two
    pauses. A strict-mode violation then reports the loop.
    """

    __module__ = "pytest_fakecloud"


def bad_request(text: str) -> QueueError:
    """Return the error (400) for a malformed request."""
    return QueueError(400, text)


def not_found(what: str, name: str) -> QueueError:
    """Return the error (404) for an object that does not exist."""
    return QueueError(404, f"{what} {name} not found")


def existing(value: T | None, what: str, name: str) -> T:
    """Return ``value``; raise the error (404) for an object that does not exist if it is None."""
    if value is None:
        raise not_found(what, name)
    return value


def quota(name: str, limit: int | None = None, *, status: int = OVER_QUOTA) -> QueueError:
    """Return the error (412; 413 for a body) for exceeding a plan limit (*observed*: ``maxDelay``)."""
    tail = "" if limit is None else f", current limit: {limit}"
    return QueueError(status, f"quota {name} exceeded{tail}")


def unauthorized() -> QueueError:
    """Return the error (401) for a missing or wrong token (*observed*)."""
    return QueueError(401, "unable to authenticate: invalid token")


def read_only() -> QueueError:
    """Return the error (403) for a change requested with the read-only token.

    The vendor documents the token. The status and the text are *decided here*.
    """
    return QueueError(
        403, "forbidden: the read-only token can only GET, a change needs the queue's other token"
    )


def exceeds_limit(what: str, limit: int) -> QueueError:
    """Return the error (429) for a step with which a workflow run exceeds one of its limits.

    The vendor documents the status and the first word. The rest of the text is *decided here*.
    """
    return QueueError(429, f"EXCEEDS_LIMIT: a workflow has at most {limit} {what}")


_RATE_LIMITS = {"burst": ("Burst-RateLimit", SECOND), "daily": ("RateLimit", DAY)}
"""For each rate limit, the prefix of its headers, and its period."""


def limit_headers(kind: str, limit: int, now_us: int, remaining: int = 0) -> HeaderList:
    """Return the headers that report the ``burst`` or ``daily`` limit, and how much of it is left."""
    prefix, period_us = _RATE_LIMITS[kind]
    reset = (now_us // period_us + 1) * period_us // SECOND
    values = {"Limit": limit, "Remaining": remaining, "Reset": reset}
    return [(f"{prefix}-{name}", str(value)) for name, value in values.items()]


def rate_limited(kind: str, limit: int, now_us: int, remaining: int = 0) -> QueueError:
    """Return the error (429) for exceeding the ``burst`` or ``daily`` limit, with its headers."""
    headers = limit_headers(kind, limit, now_us, remaining)
    return QueueError(429, f"Exceeded {kind} rate limit", headers=headers)


INVALID_SCHEME = "endpoint has invalid scheme, add http:// or https://"
"""*Observed* for a destination that is neither a URL nor the name of a group."""
NO_DESTINATION = "a non-empty destination must be provided"
"""*Observed* for an empty destination. (*Decided here*: it is a malformed request.)"""
NO_WORKFLOW = (
    "detected a non-workflow destination for trigger/invoke. make sure you are sending the request to"
    " the correct endpoint"
)
"""*Observed* for a run whose URL does not serve a workflow."""
OLD_CLIENT = "trigger rest api is only usable with sdk versions after v1.0.0 major version"
"""*Observed* for a run that a REST trigger starts at a URL that no workflow client of 1.0 serves."""
RUN_EXISTS = "a workflow already exists, can not initialize a new one with same id"
"""*Observed* for a run with the id of one that is in progress."""
STEP_CONFIGURED = "can not append a step configuration after another"
"""*Decided here* for a request for the settings of a step that follows another such request."""
RUN_CANCELLED = "can not append to a cancelled workflow"
"""*Observed* in part for a step of a cancelled run; the wording is *decided here*."""
FLOW_WITHOUT_LIMIT = "should be either rate=X or parallelism=Y, or both"
"""*Observed* for a flow-control value that sets no limit."""
DEDUPLICATION_COLON = "DeduplicationId cannot contain ':'"
"""*Observed* for a deduplication id that contains a colon."""
