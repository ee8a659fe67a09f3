"""A report as JSON, which pages, editors, CI annotations and agents read.

The schema is ``docs/reference/report.schema.json``.
"""

from __future__ import annotations

import json
import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from ..cloud.files import local_path
from ..core.characters import printable
from ..core.errors import shown
from ..core.output_files import write_public
from ..core.timers import to_datetime
from ..process.applications import ServedRequest
from .calls import contained
from .contract import functions_of
from .lookups import Lookups
from .mask import Mask
from .model import VERSION, Delivery, Finding, Marks, MaskedCall, Place, ReportRow, ReportSubject
from .report import Report
from .strings import decoded, parsed
from .wording import describe, headline, read_data_text, sentence, status_line, violation

LONGEST = 20_000
"""Maximum number of characters of a body in the JSON form."""
_MOST_BYTES = 4096
"""Maximum number of bytes of a body that are shown in hexadecimal because they are not UTF-8."""
_BEFORE, _AFTER = 2, 8
"""Number of source lines before and after a call that are shown with it."""
_COPIED = (
    "number", "began", "ended", "at_us", "kind", "actor", "peer", "service", "operation", "status",
    "outcome", "ok", "cause", "depth", "attempt", "took_us",
)  # fmt: skip
"""Fields of a row that its JSON contains unchanged."""
_Messages: TypeAlias = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""The request and the response of a row."""
_LEFT_OUT = {"traceback", "exception", "sent", "sent_headers", "answer", "changed"}


def as_json(report: Report) -> dict[str, Any]:
    """Return a report as plain data for ``json.dumps()``."""
    about: dict[int, list[int]] = {}
    for index, finding in enumerate(report.findings):
        for number in finding.rows:
            about.setdefault(number, []).append(index)
    return {
        "version": VERSION,
        "test": report.test,
        "failure": report.failure,
        "errors": list(report.errors),
        "hints": list(report.hints),
        "log": report.log,
        "clock": {"mode": report.clock, "now": _time(report.now_us), "now_us": report.now_us},
        "seed": report.seed,
        "fakes": [asdict(fake) for fake in report.fakes],
        "findings": _findings(report.findings, sentence, report.lookups),
        "unfinished": _findings(report.unfinished, sentence, report.lookups),
        "violations": _findings(report.violations, violation, report.lookups),
        "statement": None if report.read_data is None else _statement(report),
        "rows": [
            row_json(row, about.get(row.number, []), report.lookups, report.marks)
            for row in report.rows
        ],
    }


def _statement(report: Report) -> dict[str, Any]:
    read_data, lookups = report.read_data, report.lookups
    assert read_data is not None
    return {
        "kind": read_data.kind,
        "text": read_data_text(read_data, lookups),
        "headline": headline(report),
        "rows": list(read_data.rows),
        "subjects": [
            {**_subject(sought.subject), "part": sought.part} for sought in read_data.sought
        ],
    }


def _subject(subject: ReportSubject) -> dict[str, str]:
    return {"kind": subject.kind.name, "name": subject.name, "fake": subject.fake}


def write(report: Report, path: Path) -> Path:
    """Write the JSON of a report to a file; return its path."""
    text = json.dumps(as_json(report), ensure_ascii=False, indent=1, default=shown)
    return write_public(path, printable(text) + "\n")


def _findings(
    findings: Iterable[Finding], words: Callable[[Finding, Lookups], str], lookups: Lookups
) -> list[dict[str, Any]]:
    return [
        {
            "kind": finding.kind,
            "fake": finding.fake,
            "rows": list(finding.rows),
            "subjects": list(map(_subject, finding.subjects)),
            "values": _plain(finding.values),
            "failed": finding.failed,
            "text": words(finding, lookups),
        }
        for finding in findings
    ]


def row_json(
    row: ReportRow, findings: Sequence[int], lookups: Lookups, marks: Marks | None = None
) -> dict[str, Any]:
    """Return a row as plain data; `findings` are the indexes of the findings about it."""
    marks = marks or Marks()
    words = describe(row, lookups)
    lines = [*words.below, *words.remarks]
    text = {"what": words.what, "answer": words.answer, "lines": lines, "note": words.note}
    if words.script is not None:
        text["script"] = words.script.source
    request, response, data = None, None, dict[str, Any]()
    with contained("the data cannot be shown", lines, call=row.source.call):
        data = _data(row)
        request, response = _messages(row, lookups)
    return {
        **{name: getattr(row, name) for name in _COPIED},
        "at": _time(row.at_us),
        "subjects": list(map(_subject, row.subjects)),
        "faults": [asdict(fault) for fault in row.faults],
        "findings": list(findings),
        "marks": list(marks.of(row.number)),
        "read": row.number in marks.writers,
        "trace": None if row.trace is None else row.trace.trace_id,
        "where": None if row.where is None else _where(row.where, lookups.mask),
        "text": text,
        "request": request,
        "response": response,
        "data": data,
    }


def _where(place: Place, mask: Mask) -> dict[str, Any]:
    """Return a place with the source lines around it, which show what the code does with the answer."""
    lines = range(max(1, place.line - _BEFORE), place.line + _AFTER + 1)
    source = [(line, linecache.getline(place.file, line).rstrip()) for line in lines]
    while source and not source[-1][1]:
        source.pop()
    while source and not source[0][1]:
        source.pop(0)
    return {
        **_line(place),
        "callers": list(map(_line, place.callers)),
        "source": [{"line": line, "text": mask.text(text)} for line, text in source],
    }


def _line(place: Place) -> dict[str, Any]:
    return {"file": local_path(place.file), "line": place.line, "function": place.function}


def _messages(row: ReportRow, lookups: Lookups) -> _Messages:
    source = row.source
    if source.call is not None:
        return _called(source.call, lookups)
    if source.request is not None:
        return _served(source.request, lookups.mask)
    if source.delivery is not None:
        return _delivered(source.delivery, row.status, lookups)
    return None, None


def _called(call: MaskedCall, lookups: Lookups) -> _Messages:
    functions, mask = functions_of(call.service).protocol, lookups.mask
    if (exchange := functions.connection_exchange(call, lookups)) is not None:
        request = _message(exchange.request, (), b"", mask)
        if exchange.answer is None:
            return request, None
        answer = _message("reply", (), exchange.answer.encode(), mask)
        return request, answer | _digits(exchange.content)
    line = f"{call.method} {call.target}"
    headers, cut = call.request_headers.pairs, call.cut.get("request_body")
    request = _message(line, headers, call.request_body, mask, cut)
    headers, cut = call.response_headers.pairs, call.cut.get("response_body")
    answer = _message(status_line(call), headers, call.response_body, mask, cut)
    if "decoded" in answer:
        answer["decoded"] = functions.decoded_answer(call, answer["decoded"])
    return request, answer


def _served(served: ServedRequest, mask: Mask) -> _Messages:
    headers = [("Content-Type", served.body_type)] if served.body_type else []
    for variable, value in served.headers:
        name = variable.removeprefix("HTTP_").replace("_", "-").title()
        headers.append((name, mask.header(name, value)))
    request = _message(served.target, headers, mask.data(served.body.encode()), mask)
    if served.status is None:
        return request, None
    headers = [("Content-Type", served.answer_type)] if served.answer_type else []
    body = mask.data(served.answer or b"")
    cut = served.answer_size if served.answer_size > len(served.answer or b"") else None
    is_missing = served.answer is None
    return request, _message(str(served.status), headers, body, mask, cut, missing=is_missing)


def _delivered(delivery: Delivery, status: int | None, lookups: Lookups) -> _Messages:
    """Return the request and the response of a delivery attempt.

    A fake of this process keeps its most recent deliveries. For another one, only the events of failed
    attempts and callbacks contain bodies.
    """
    data, mask = delivery.data, lookups.mask
    line = f"{data.get('method', 'POST')} {delivery.url}"
    if attempt := lookups.attempts.get(delivery.began):
        request = _message(line, mask.headers(attempt.headers), mask.data(attempt.body), mask)
        headers, received = mask.headers(attempt.response_headers), mask.data(attempt.response_body)
        answer = _message(str(status), headers, received, mask)
    else:
        texts = (str(data.get(name) or "") for name in ("sent", "answer"))
        sent_body, body = (text.encode("utf-8", "surrogatepass") for text in texts)
        headers = [(str(name), str(value)) for name, value in data.get("sent_headers") or ()]
        request = _message(line, headers, sent_body, mask, missing="sent" not in data)
        answer = _message(str(status), (), body, mask, missing="answer" not in data)
    return request, None if status is None else answer


def _message(
    line: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    mask: Mask,
    cut: int | None = None,
    missing: bool = False,
) -> dict[str, Any]:
    text = body.decode("utf-8", "replace")
    message: dict[str, Any] = {"line": line, "headers": list(map(list, headers))}
    message |= {"body": text[:LONGEST], **_digits(body)}
    value = decoded(parsed(text)) if len(text) <= LONGEST else None
    if isinstance(value, dict | list):
        message["decoded"] = mask.value(value)
    if cut is not None or len(text) > LONGEST:
        message["cut"] = cut or len(body)
    if missing:
        message["missing"] = True
    return message


def _digits(body: bytes) -> dict[str, str]:
    """Return the hexadecimal digits of a body that is not UTF-8; nothing for another body."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": body[:_MOST_BYTES].hex()}
    return {}


def _data(row: ReportRow) -> dict[str, Any]:
    call, delivery = row.source.call, row.source.delivery
    data: Mapping[str, Any] = {}
    if call is not None:
        data = functions_of(call.service).protocol.shown_facts(call)
        if delivery is not None:
            data = {**data, "delivery": delivery.data}
    elif (event := delivery or row.source.event or row.source.action) is not None:
        data = event.data
    # The row shows where an action was called.
    left_out = {*_LEFT_OUT, "where"} if row.rules.is_of_test else _LEFT_OUT
    facts = _plain({name: value for name, value in data.items() if name not in left_out})
    if delivery is not None and delivery.data.get("traceback"):
        facts["traceback"] = str(delivery.data["traceback"])
    return facts


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(value, default=shown, skipkeys=True))
    return plain


def _time(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%dT%H:%M:%S.%f}Z"
