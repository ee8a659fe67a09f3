"""The namespaces of requests, for the rows of a report."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.calls import Call
from ...reporting.model import Subject


def subjects(call: Call) -> Iterator[Subject]:
    """Yield the namespace of a request."""
    yield Subject("namespace", str(call.facts.get("namespace") or ""), call.handle)
