"""The trace contexts of rows: those that the requests had when they were sent."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.traces import TRACEPARENT, TraceParent, trace_parent
from .lookups import Lookups
from .model import ReportRow

_VARIABLE = f"HTTP_{TRACEPARENT.upper()}"


def parent_of(row: ReportRow, lookups: Lookups) -> TraceParent | None:
    """Return the trace that the request of a row belongs to, and the span that sent it; None if its
    header ``traceparent`` is missing or invalid, and for rows without a request.
    """
    source = row.source
    if source.call is not None:
        return trace_parent(source.call.request_headers.get(TRACEPARENT))
    if source.request is not None:
        return trace_parent(dict(source.request.headers).get(_VARIABLE))
    if source.delivery is None:
        return None
    attempt = lookups.attempts.get(source.delivery.began)
    sent: Iterable[tuple[str, str]] = source.delivery.data.get("sent_headers") or ()
    pairs = sent if attempt is None else attempt.headers
    return trace_parent(
        next((str(value) for name, value in pairs if str(name).lower() == TRACEPARENT), None)
    )


def trace_id(row: ReportRow, lookups: Lookups) -> str | None:
    """Return the ID of the trace that the request of a row belongs to; None without one."""
    parent = parent_of(row, lookups)
    return None if parent is None else parent.trace_id
