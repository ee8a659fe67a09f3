"""Export of a test as a trace: OpenTelemetry's spans in OTLP's JSON encoding.

The test is the root span. Each call to a fake, each delivery of a queue and each request to the
application is a span. Its parent is the span of the header ``traceparent`` if the request has one, so
that it belongs to the application's own trace, and else the span of the row in which a report nests
it. Times are those of the cloud's clock. Names of attributes are those of OpenTelemetry's semantic
conventions; ``fakecloud.*`` are decided here.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..core.calls import on_connection
from ..core.errors import ContractError
from ..reporting.contract import functions_of
from ..reporting.model import ReportRow
from ..reporting.report import Report

SENDS_WITHIN_S = 5.0
"""Time limit in real seconds for sending the spans of a test."""
_INTERNAL, _SERVER, _CLIENT = 1, 2, 3
_ERROR = 2
_MOST_NS = 999
_WITH_SPANS = ("call", "delivery", "request")
"""The kinds of rows that have a span."""


class Target(NamedTuple):
    """Where spans are exported to: the URL of a collector or a file; the other one is empty."""

    url: str = ""
    file: Path = Path()


def target_of(text: str, folder: Path) -> Target:
    """Return what ``--fakecloud-otlp`` names: a URL, whose path is ``/v1/traces`` unless it has one, or
    a file, relative to ``folder``. Raises ``ContractError`` for another scheme than HTTP.
    """
    if "://" not in text:
        return Target(file=folder / text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ContractError(f"--fakecloud-otlp={text!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ContractError(
            f"--fakecloud-otlp={text!r} is not the URL of a collector: pass a URL such as "
            "http://127.0.0.1:4318, or the path of a file"
        )
    return Target(parts._replace(path=parts.path.rstrip("/") or "/v1/traces").geturl())


def export(target: Target, trace: Mapping[str, Any]) -> None:
    """Send a trace to a collector (OTLP over HTTP), or append it to a file as one line of JSON.

    Raises ``ContractError`` if the collector does not accept it, and ``OSError`` if the file cannot be
    written.
    """
    body = json.dumps(trace, separators=(",", ":")).encode()
    if not target.url:
        # One write, because several processes of a run may append to the file.
        with open(target.file, "ab", buffering=0) as file:
            file.write(body + b"\n")
        return
    import urllib3

    try:
        with urllib3.PoolManager(retries=False, timeout=SENDS_WITHIN_S) as pool:
            answer = pool.request(
                "POST", target.url, body=body, headers={"Content-Type": "application/json"}
            )
    except urllib3.exceptions.HTTPError as error:
        raise ContractError(f"no collector responds at {target.url}: {error}") from None
    if not 200 <= answer.status < 300:
        raise ContractError(f"the collector at {target.url} returned {answer.status}")


def trace_of(report: Report, *, failed: bool) -> dict[str, Any]:
    """Return the spans of a test as an OTLP message ``TracesData``, grouped by what they belong to."""
    trace = _Trace(report)
    root = trace.root(failed=failed)
    spans = {"pytest": [root]}
    for row in report.rows:
        if row.kind in _WITH_SPANS:
            # The queue sends a delivery; all other spans belong to the receiver.
            name = row.actor if row.kind == "delivery" else row.peer
            spans.setdefault(name, []).append(trace.span(row))
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": name})},
                "scopeSpans": [{"scope": {"name": "pytest-fakecloud"}, "spans": spans_of_name}],
            }
            for name, spans_of_name in spans.items()
        ]
    }


class _Trace:
    """The spans of one report: their IDs and times."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._trace_id, self._root_id = secrets.token_hex(16), secrets.token_hex(8)
        self._ids = {row.number: (self._trace_id, secrets.token_hex(8)) for row in report.rows}
        self._parents = {row.number: row.parent for row in report.rows}
        self._with_spans = {row.number for row in report.rows if row.kind in _WITH_SPANS}
        self._publishers: dict[tuple[str, str], int] = {}
        """The first call about each message, which published it, by the names of queue and message."""
        for row in report.rows:
            if row.kind == "call":
                for subject in row.subjects:
                    if subject.kind.is_delivered:
                        self._publishers.setdefault((row.peer, subject.name), row.number)
        # Spans of one microsecond keep their order: each begins a nanosecond after the one before.
        seen: Counter[int] = Counter()
        self._starts_ns: dict[int, int] = {}
        for row in report.rows:
            self._starts_ns[row.number] = row.at_us * 1000 + min(seen[row.at_us], _MOST_NS)
            seen[row.at_us] += 1

    def _end_ns(self, row: ReportRow) -> int:
        start = self._starts_ns[row.number]
        return max(start, (row.at_us + (row.took_us or 0)) * 1000)

    def root(self, *, failed: bool) -> dict[str, Any]:
        rows = self._report.rows
        now_ns = self._report.now_us * 1000
        attributes: dict[str, Any] = {
            "test.case.name": self._report.test,
            "test.case.result.status": "fail" if failed else "pass",
            "fakecloud.seed": str(self._report.seed),
            "fakecloud.clock": self._report.clock,
        }
        return {
            "traceId": self._trace_id, "spanId": self._root_id, "name": self._report.test,
            "kind": _INTERNAL,
            "startTimeUnixNano": str(min([now_ns, *self._starts_ns.values()])),
            "endTimeUnixNano": str(max([now_ns, *map(self._end_ns, rows)])),
            "attributes": _attributes(attributes),
            **({"status": {"code": _ERROR}} if failed else {}),
        }  # fmt: skip

    def span(self, row: ReportRow) -> dict[str, Any]:
        _, span_id = self._ids[row.number]
        trace_id, parent_id = row.trace or self._parent(row)
        # What this row causes belongs to the same trace.
        self._ids[row.number] = trace_id, span_id
        attributes = dict(_details(row))
        # A server is to blame for its own errors, a client for those of its requests, too.
        least = 400 if row.kind == "delivery" else 500
        failed = (not row.ok and row.status is None) or (row.status or 0) >= least
        if failed:
            attributes["error.type"] = str(row.status or row.outcome or "_OTHER")
        links = [{"traceId": self._trace_id, "spanId": self._root_id}]
        return {
            "traceId": trace_id, "spanId": span_id, "parentSpanId": parent_id, "name": _name_of(row),
            "kind": _CLIENT if row.kind == "delivery" else _SERVER,
            "startTimeUnixNano": str(self._starts_ns[row.number]),
            "endTimeUnixNano": str(self._end_ns(row)),
            "attributes": _attributes(attributes),
            "events": [
                {"timeUnixNano": str(self._starts_ns[row.number]), "name": "fakecloud.fault",
                 "attributes": _attributes({"fakecloud.fault": fault.description})}
                for fault in row.faults
            ],
            # A span of the application's trace leads to the test.
            **({} if trace_id == self._trace_id else {"links": links}),
            **({"status": {"code": _ERROR}} if failed else {}),
        }  # fmt: skip

    def _parent(self, row: ReportRow) -> tuple[str, str]:
        """Return the trace and the span of the nearest row in which a row is nested, or of the call
        that published the message of a delivery; else those of the test.
        """
        number = row.parent
        while number and number not in self._with_spans:
            number = self._parents.get(number, 0)
        if row.kind == "delivery" and not number:
            messages = [subject.name for subject in row.subjects if subject.kind.is_delivered]
            published = (self._publishers.get((row.actor, message), 0) for message in messages)
            number = next(filter(None, published), 0)
        return self._ids.get(number, (self._trace_id, self._root_id))


# -- the attributes of a span ----------------------------------------------------------------------


def _name_of(row: ReportRow) -> str:
    """Return the name of a span, which has no values that differ from call to call."""
    request = row.source.request
    if row.kind == "delivery":
        return f"deliver {urlsplit(_url_of(row)).netloc or row.peer}"
    if request is not None:
        return f"{request.target.partition(' ')[0]} {request.path}".strip()
    return row.operation


def _details(row: ReportRow) -> Iterator[tuple[str, Any]]:
    call, request, delivery = row.source.call, row.source.request, row.source.delivery
    yield "fakecloud.journal.number", row.number
    if row.status is not None:
        yield "http.response.status_code", row.status
    if delivery is not None:
        data, names = delivery.event.data, functions_of(delivery.event.service).spans
        if names is not None:
            yield f"{names.kind}.system", names.system
        yield "messaging.operation.name", "deliver"
        yield "messaging.operation.type", "process"
        yield "messaging.message.id", data.get("message_id")
        yield "http.request.method", data.get("method", "POST")
        yield "http.request.resend_count", row.attempt - 1 or None
        yield "url.full", _url_of(row)
    elif request is not None:
        yield "http.request.method", request.target.partition(" ")[0]
        yield "url.path", request.path
    elif call is not None:
        if not on_connection(call):
            yield "http.request.method", call.method
            yield "url.path", call.path
        names = functions_of(call.service).spans
        if names is None:
            return
        yield f"{names.kind}.system{'.name' if names.kind == 'db' else ''}", names.system
        for name, fact in names.attributes:
            value = call.route if fact == "route" else call.facts.get(fact)
            if name == "db.operation.name" and isinstance(value, list) and len(value) > 1:
                yield "db.operation.batch.size", len(value)
                yield name, "PIPELINE"
            else:
                yield name, value[0] if isinstance(value, list) and value else value


def _url_of(row: ReportRow) -> str:
    """Return the URL of a delivery without its query, which may contain credentials."""
    data = {} if row.source.delivery is None else row.source.delivery.event.data
    return str(data.get("url", "")).partition("?")[0]


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes in OTLP's JSON encoding, without those that are None or empty."""
    return [
        {
            "key": name,
            "value": {"intValue": str(value)}
            if type(value) is int
            else {"stringValue": str(value)},
        }
        for name, value in values.items()
        if value not in (None, "", [])
    ]
