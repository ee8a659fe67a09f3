"""Sentences of reports, one module for each service.

Only renderers call this package. It returns strings for rows and findings, which no code parses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.calls import Call, Event
from ..applications import ServedRequest
from ..calls import error_of, readable, shortened, visible
from ..model import Finding, Lookups, Row
from . import broker, common, kv, queue, vector
from .broker import effect
from .common import EXCERPT, Sentences, Summary, filled

__all__ = ["Summary", "describe", "effect", "sentence", "summarise"]

_BY_SERVICE: Mapping[str, Callable[[Call, Lookups], Summary | None]] = {
    "kv": kv.summary,
    "vector": vector.summary,
    "broker": broker.summary,
    "queue": queue.summary,
    "callback_capture": queue.callback_summary,
    "destination": queue.callback_summary,
}
_SENTENCES: Sentences = {
    **kv.SENTENCES,
    **vector.SENTENCES,
    **broker.SENTENCES,
    **queue.SENTENCES,
    **common.SENTENCES,
}


def summarise(call: Call, lookups: Lookups) -> Summary | None:
    """Return the description of a call; None if its service has none or its body is malformed."""
    summary = _BY_SERVICE.get(call.service)
    if summary is None:
        return None
    try:
        return summary(call, lookups)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def describe(row: Row, lookups: Lookups, last: Row | None = None) -> Summary:
    """Return the description of a row; ``last`` is the last of several equal attempts."""
    words = _described(row, last or row, lookups)

    def mask(text: str) -> str:
        return visible(lookups.mask.text(text))

    script = words.script and words.script._replace(source=mask(words.script.source))
    below, remarks = map(mask, words.below), map(mask, words.remarks)
    return Summary(
        mask(words.what), mask(words.answer), tuple(below), script, tuple(remarks), mask(words.note)
    )


def _described(row: Row, last: Row, lookups: Lookups) -> Summary:
    entry = row.entry
    if row.failure:
        return Summary(row.failure)
    if isinstance(entry, Call):
        return _call(row, last, entry, lookups)
    if isinstance(entry, ServedRequest):
        is_form = entry.body_type.startswith("multipart/")
        body = "" if is_form else shortened(readable(entry.body, entry.body_type), 120)
        what = " ".join(filter(None, [entry.target, body, f"({entry.framework})"]))
        return Summary(what, "" if entry.status is None else str(entry.status), note=entry.raised)
    if isinstance(entry, Event):
        if row.kind == "attempt":
            return queue.attempt_summary(row, last, lookups)
        if row.kind == "action":
            return Summary(common.action(entry, lookups))
        is_brokers = row.service == "broker"
        what = broker.event_text(entry, lookups) if is_brokers else f"{entry.kind}: {entry.text}"
        return Summary(what, note=str(entry.data.get("note") or ""))
    return Summary(row.operation)


def _call(row: Row, last: Row, call: Call, lookups: Lookups) -> Summary:
    summary = summarise(call, lookups)
    if summary is None:
        body = shortened(
            readable(call.request_body, call.request_headers.get("Content-Type") or ""), EXCERPT
        )
        summary = Summary(f"{call.method} {call.target} {body}".strip())
    what, remarks = summary.what, list(summary.remarks)
    if row.delivery is not None:
        what = f"{queue.attempt_name(row, last, lookups)} {what}"
        # If a fake received the delivery, the fake's own row shows the body.
        if "answer" in row.delivery.data:
            remarks += queue.exchange_lines(row.delivery.data, lookups)
    note = "" if call.problem == "bug" else call.note
    answer = _answer(call, summary)
    return Summary(what, answer, summary.below, summary.script, tuple(remarks), note)


def _answer(call: Call, summary: Summary) -> str:
    if call.status is None:
        return call.outcome
    ending = {"answered": "", "lost": "answer lost"}.get(call.outcome, call.outcome)
    status, wrong = error_of(call)
    if status or wrong:
        return " ".join(filter(None, [status, ending, shortened(wrong, EXCERPT)]))
    if summary.answer:
        return f"{summary.answer} ({call.status} {ending})" if ending else summary.answer
    kind = call.response_headers.get("Content-Type", "")
    body = shortened(readable(call.response_body, kind), EXCERPT)
    return " ".join(filter(None, [str(call.status), ending, body]))


def status_line(call: Call) -> str:
    """Return the status line of a response, or the outcome of a call without a response."""
    if call.status is None:
        return call.outcome
    ending = "" if call.outcome == "answered" else f" ({call.outcome})"
    return f"{call.status} {queue.phrase_of(call.status)}".strip() + ending


def sentence(finding: Finding, lookups: Lookups) -> str:
    """Return the sentence of a finding, with the name of its fake."""
    says = _SENTENCES[finding.kind]
    values = {**finding.values, "fake": finding.fake}
    text = filled(says, values, lookups) if isinstance(says, str) else says(values, lookups)
    # The text of a violation already contains the name of its fake.
    named = bool(finding.fake) and finding.kind != "problem"
    return visible(f"{finding.fake}: {text}" if named else text)
