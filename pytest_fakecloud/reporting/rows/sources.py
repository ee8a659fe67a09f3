"""What rows of each kind show: a class derived from `RowSource` for each, which `rows` makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http.client import responses
from typing import Any

from ...core.bodies import parsed, scalar
from ...core.calls import CREATED, Call
from ...core.characters import shortened
from ..calls import has_full_answer
from ..contract import ExchangedValues, functions_of
from ..errors import contained
from ..lookups import Lookups
from ..mask import Mask
from ..model import (
    Accesses,
    Delivery,
    MaskedAction,
    MaskedCall,
    MaskedEvent,
    MaskedRequest,
    Messages,
    ReportRow,
    RowSource,
    Summary,
)
from ..readable import EXCERPT, decoded, readable

_LONGEST = 20_000
"""Maximum number of characters of a body in the JSON form."""
_MOST_BYTES = 4096
"""Maximum number of bytes of a body that are shown in hexadecimal because they are not UTF-8."""
_Exchanges = Iterable[ExchangedValues]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSource(RowSource):
    call: MaskedCall

    def words(self, row: ReportRow, last: ReportRow, lookups: Lookups) -> Summary:
        call = self.call
        summary = summarise(call, lookups) or _raw(call)
        note = "" if call.violation == "bug" else call.note
        answer, errors = "", list[str]()
        with contained("the answer cannot be described", errors):
            answer = _answer(call, summary)
        return replace(summary, answer=answer, note=note, remarks=[*summary.remarks, *errors])

    def messages(self, row: ReportRow, lookups: Lookups) -> Messages:
        call, mask = self.call, lookups.mask
        functions = functions_of(call.service)
        if (exchange := functions.protocol.connection_exchange(call, lookups)) is not None:
            request = _message(exchange.request, (), b"", mask)
            if exchange.answer is None:
                return request, None
            answer = _message("reply", (), exchange.answer.encode(), mask)
            return request, answer | _digits(exchange.content)
        line = f"{call.method} {call.target}"
        headers, cut = call.request_headers.pairs, call.cut.get("request_body")
        request = _message(line, headers, call.request_body, mask, cut)
        headers, cut = call.response_headers.pairs, call.cut.get("response_body")
        answer = _message(_status_line(call), headers, call.response_body, mask, cut)
        if "decoded" in answer:
            answer["decoded"] = functions.calls.decoded_answer(call, answer["decoded"])
        return request, answer

    def data(self) -> Mapping[str, Any]:
        return functions_of(self.call.service).calls.shown_facts(self.call)

    def values(self, row: ReportRow, accesses: Accesses, lookups: Lookups) -> _Exchanges:
        call, commands_of = self.call, functions_of(self.call.service).protocol.commands
        if commands_of is None:
            returned = _content(call.response_body) if has_full_answer(call) else ()
            return [ExchangedValues(_content(call.request_body), returned, accesses)]
        return commands_of(call, lookups)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySource(RowSource):
    """A delivery, with its call if a fake of the cloud received it: its words are those of both, its
    request, response and values those of the call.
    """

    delivery: Delivery

    @property
    def _received(self) -> CallSource | None:
        return None if self.call is None else CallSource(call=self.call)

    def words(self, row: ReportRow, last: ReportRow, lookups: Lookups) -> Summary:
        received = self._received and self._received.words(row, last, lookups)
        summary = functions_of(self.delivery.event.service).deliveries.summary
        default = received or Summary(self.delivery.url or row.operation)
        return _of_service(summary, default, row, last, lookups, received)

    def messages(self, row: ReportRow, lookups: Lookups) -> Messages:
        """A fake of this process keeps its most recent deliveries. For another one, only the events of
        failed deliveries and callbacks contain bodies.
        """
        if self._received is not None:
            return self._received.messages(row, lookups)
        data, mask, status = self.delivery.event.data, lookups.mask, str(row.status)
        line = f"{data.get('method', 'POST')} {self.delivery.url}"
        if sent := lookups.exchanges.get(self.delivery.began):
            request = _message(line, mask.headers(sent.headers), mask.data(sent.body), mask)
            headers, body = mask.headers(sent.response_headers), mask.data(sent.response_body)
            answer = _message(status, headers, body, mask)
        else:
            texts = (str(data.get(name) or "") for name in ("sent", "answer"))
            sent_body, body = (text.encode("utf-8", "surrogatepass") for text in texts)
            headers = [(str(name), str(value)) for name, value in data.get("sent_headers") or ()]
            request = _message(line, headers, sent_body, mask, missing="sent" not in data)
            answer = _message(status, (), body, mask, missing="answer" not in data)
        return request, None if row.status is None else answer

    def data(self) -> Mapping[str, Any]:
        data = own = self.delivery.event.data
        if self._received is not None:
            data = {**self._received.data(), "delivery": own}
        traceback = {"traceback": str(own["traceback"])} if own.get("traceback") else {}
        return {name: data[name] for name in data if name != "traceback"} | traceback

    def values(self, row: ReportRow, accesses: Accesses, lookups: Lookups) -> _Exchanges:
        if self._received is not None:
            return self._received.values(row, accesses, lookups)
        exchange = lookups.exchanges.get(row.began)
        if exchange is None:
            return ()
        sent = _content(lookups.mask.data(exchange.body))
        returned = _content(lookups.mask.data(exchange.response_body))
        return [ExchangedValues(sent, returned, accesses)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSource(RowSource):
    request: MaskedRequest

    def words(self, row: ReportRow, last: ReportRow, lookups: Lookups) -> Summary:
        request = self.request
        is_form = request.body_type.startswith("multipart/")
        body = "" if is_form else shortened(readable(request.body, request.body_type), 120)
        number = f" {request.instance}" if request.instance > 1 else ""
        what = " ".join(filter(None, [request.target, body, f"({request.framework}{number})"]))
        answer = "" if request.status is None else str(request.status)
        return Summary(what, answer, note=request.raised)

    def messages(self, row: ReportRow, lookups: Lookups) -> Messages:
        served, mask = self.request, lookups.mask
        headers = [("Content-Type", served.body_type)] if served.body_type else []
        headers += served.headers
        request = _message(served.target, headers, served.body.encode(), mask)
        if served.status is None:
            return request, None
        headers = [("Content-Type", served.answer_type)] if served.answer_type else []
        body, cut, is_missing = served.answer or b"", served.answer_cut, served.answer is None
        return request, _message(str(served.status), headers, body, mask, cut, missing=is_missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource(RowSource):
    event: MaskedEvent

    def words(self, row: ReportRow, last: ReportRow, lookups: Lookups) -> Summary:
        event = self.event
        summary, default = functions_of(event.service).events.summary, f"{event.kind}: {event.text}"
        words = _of_service(summary, Summary(default), event, lookups)
        return replace(words, note=str(event.data.get("note") or ""))

    def data(self) -> Mapping[str, Any]:
        return self.event.data


@dataclass(frozen=True, slots=True, kw_only=True)
class UnshownSource(RowSource):
    error: str
    """The words for an entry that cannot be shown, with the reason."""

    def words(self, row: ReportRow, last: ReportRow, lookups: Lookups) -> Summary:
        return Summary(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSource(RowSource):
    action: MaskedAction

    def words(self, row: ReportRow, last: ReportRow, lookups: Lookups) -> Summary:
        action, arguments = self.action, tuple(self.action.data.get("arguments") or ())
        argument_list = ", ".join(arguments)
        verb = {"add_fault": "added", "remove_fault": "removed"}.get(action.kind)
        if verb:
            limits = f" ({argument_list})" if argument_list else ""
            return Summary(f"{action.fake} fault {verb}: {action.data['fault']}{limits}")
        if action.kind == "clear_faults":
            return Summary(f"{action.fake} faults cleared")
        # Of equal actions, those that the first and the last one created.
        last_action = last.source.action or action
        ids = dict.fromkeys(own_action.data.get(CREATED) for own_action in (action, last_action))
        result = " … ".join(lookups.short(created_id) for created_id in ids if created_id)
        owner, _, name = action.kind.rpartition(".")
        what = f"{action.kind}({argument_list})"
        if owner not in ("", "faults"):
            what = f"{owner}({''.join(arguments[:1])}).{name}({', '.join(arguments[1:])})"
        default = Summary(f"{action.fake}.{what}{f' -> {result}' if result else ''}")
        return _of_service(functions_of(action.service).actions.summary, default, action, lookups)

    def data(self) -> Mapping[str, Any]:
        # The row shows where it was called.
        return {name: value for name, value in self.action.data.items() if name != "where"}

    def values(self, row: ReportRow, accesses: Accesses, lookups: Lookups) -> _Exchanges:
        positional, by_name = self.action.call or ((), {})
        return [ExchangedValues([*positional, *by_name.values()], (), accesses)]


# -- words and bodies -------------------------------------------------------------------------------


def summarise(call: Call, lookups: Lookups) -> Summary | None:
    """Return the description of a call; None if its service has none or its body is malformed.

    The story of an exploration has the words of raw calls.
    """
    errors: list[str] = []
    with contained("cannot be described", errors):
        return functions_of(call.service).calls.summary(MaskedCall(call), lookups)
    return replace(_raw(call), remarks=errors)


def _of_service(
    summary: Callable[..., Summary | None], default: Summary, *arguments: object
) -> Summary:
    """Return the words of a service, or the default; an error of the service is a remark."""
    words, errors = None, list[str]()
    with contained("cannot be described", errors):
        words = summary(*arguments)
    words = words or default
    return replace(words, remarks=[*words.remarks, *errors])


def _raw(call: Call) -> Summary:
    """Return a request as it is."""
    kind = call.request_headers.get("Content-Type") or ""
    body = shortened(readable(call.request_body, kind), EXCERPT)
    return Summary(f"{call.method} {call.target} {body}".strip())


def error_of(call: Call) -> tuple[str, str]:
    """Return the status and the message of an error response; empty strings for any other response."""
    if call.status is None or call.status < 400:
        return "", ""
    error = functions_of(call.service).protocol.connection_error(call)
    if error is not None:
        return "", error  # such an answer has no status
    body = parsed(call.response_body)
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return str(call.status), scalar(body["error"])
    return str(call.status), readable(call.response_body)


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


def _status_line(call: Call) -> str:
    """Return the status line of a response, or the outcome of a call without a response."""
    if call.status is None:
        return call.outcome
    ending = "" if call.outcome == "answered" else f" ({call.outcome})"
    return f"{call.status} {responses.get(call.status, '')}".strip() + ending


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
    message |= {"body": text[:_LONGEST], **_digits(body)}
    value = decoded(parsed(text)) if len(text) <= _LONGEST else None
    if isinstance(value, dict | list):
        message["decoded"] = mask.value(value)
    if cut is not None or len(text) > _LONGEST:
        message["cut"] = cut or len(body)
    if missing:
        message["missing"] = True
    return message


def _digits(body: bytes) -> dict[str, str]:
    """Return the hexadecimal digits of a body that is not UTF-8; nothing for another body."""
    is_text = body.decode("utf-8", "replace").encode() == body
    return {} if is_text else {"hex": body[:_MOST_BYTES].hex()}


def _content(body: bytes) -> list[object]:
    """Return a body as it is, and decoded."""
    value = parsed(body)
    text = body.decode("utf-8", "replace") if value is None else value
    return [text, decoded(text)]
