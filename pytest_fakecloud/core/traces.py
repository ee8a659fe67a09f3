"""Trace contexts: the header ``traceparent``, which tracing libraries add to requests."""

from __future__ import annotations

import re
from typing import NamedTuple

TRACEPARENT = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.ASCII)


class TraceParent(NamedTuple):
    """The trace that a request belongs to, and the span that sent it; both as hexadecimal digits."""

    trace_id: str
    span_id: str


def trace_parent(header: str | None) -> TraceParent | None:
    """Return the content of a header ``traceparent``, or None without a valid one (W3C Trace Context).

    Of a later version of the header, only the parts that the first version has are read.
    """
    match = None if header is None else _FORM.fullmatch(header.strip(" \t"))
    if match is None:
        return None
    version, trace_id, span_id, rest = match.groups()
    if (
        version == "ff"
        or (version == "00" and rest)
        or not (trace_id.strip("0") and span_id.strip("0"))
    ):
        return None
    return TraceParent(trace_id, span_id)
