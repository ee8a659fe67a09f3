"""Details of a delivery attempt: the request, the response, and the exceptions that were logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.errors import report_failure
from .handler_errors import raised_text
from .model import HeaderList, Outcome, SigningKeys, first
from .signature_details import SignatureDetails, signature_details
from .wire.values import shortened_body

if TYPE_CHECKING:
    from .attempt_reports import StartedDelivery

_QUEUES_OWN = ("upstash-", "user-agent", "content-type", "host", "content-length")
"""Beginnings of the names of headers that the queue sets itself."""


class AttemptDetails(TypedDict, total=False):
    """Fields of the ``attempt`` event that describe a finished attempt.

    Callbacks also have ``sent`` and ``sent_type``, because their body reports the result. Attempts
    that failed or logged an exception have these and the fields below them.
    """

    began: int
    """The journal number at which the attempt started."""
    alone: bool
    """Whether the attempt caused everything recorded since."""
    where: str
    sent: Any
    sent_type: str
    sent_headers: list[list[str]]
    answer: Any
    answer_type: str
    logged: list[str]
    """The exceptions as text."""
    signature: SignatureDetails
    """The signature that a 401 or 403 rejected."""
    location: str | None
    """The target of a 3xx."""


def exchange_details(
    started: StartedDelivery, outcome: Outcome, keys: SigningKeys, now: Callable[[], float]
) -> AttemptDetails:
    """Return the request of an attempt and, if the attempt did not succeed, its response.

    ``now`` returns the Unix time of signatures.
    """
    sent = started.exchange.delivery
    details: AttemptDetails = {}
    problems: list[str] = []
    # Record an error while collecting details, because it must not fail the delivery.
    with report_failure("the request and the response cannot be described", problems.append):
        details["sent"] = shortened_body(sent.body)
        details["sent_type"] = first(sent.headers, "Content-Type") or ""
        if not started.succeeded(outcome):
            details |= _failure_details(started, outcome, keys, now)
    if problems:
        details["logged"] = problems
    return details


def _failure_details(
    started: StartedDelivery, outcome: Outcome, keys: SigningKeys, now: Callable[[], float]
) -> AttemptDetails:
    sent, status = started.exchange.delivery, outcome.status
    details: AttemptDetails = {"sent_headers": _published_headers(sent.headers)}
    if status is not None:
        details["answer"] = shortened_body(outcome.body)
        details["answer_type"] = first(outcome.headers, "Content-Type") or ""
    details["logged"] = [
        raised_text(error, "the handler logged")
        for error in started.logged
        if error is not outcome.exception
    ]
    if status in (401, 403):
        details["signature"] = signature_details(sent, started.failed_checks, keys, now())
    if status is not None and 300 <= status < 400:
        details["location"] = first(outcome.headers, "Location")
    return details


def _published_headers(headers: HeaderList) -> list[list[str]]:
    return [
        [name, value]
        for name, value in headers
        if not (lower := name.lower()).startswith(_QUEUES_OWN) and not lower.endswith("-signature")
    ]
