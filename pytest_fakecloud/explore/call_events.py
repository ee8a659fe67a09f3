"""The effects of events on a call over its transport, and their descriptions in a story."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import ServiceError, shown
from ..core.wording import counted, listed
from ..faults.kinds import lost
from ..http.messages import Answer, Effect, Request, Response, Serve
from .schedule import Event

if TYPE_CHECKING:
    from ..handle import Handle
    from .simulation.deliveries import Due

FAULT_WORDS: dict[str, str] = {
    "answer": "is rejected with 503",
    "drop": "is lost before it arrives",
    "lose_answer": "succeeds, but its answer is lost",
    "duplicate": "arrives twice",
}


def faulted(kind: str, handle: Handle, session: Any, serve: Serve) -> Response:
    """Return the response to a call that a fault of this kind befalls.

    ``session`` is the one of a command's connection, or None for an HTTP request. ``serve``
    executes the call.
    """
    if kind == "answer":
        return _refusal(handle) if session is None else _loading(session)
    if kind == "drop":
        return Effect("drop")
    if kind == "lose_answer":
        return lost(serve())
    if kind == "duplicate":
        serve()
        return serve()
    raise ValueError(kind)


def _refusal(handle: Handle) -> Answer:
    """Return the service's own 503 answer."""
    answer = handle._fault_table.answers.render(ServiceError(503, "Service Unavailable"))
    if not isinstance(answer.body, bytes):
        assert handle._fault_table.answers.dump is not None
        answer.body = handle._fault_table.answers.dump(answer.body)
    return answer


def lost_records(answer: Response) -> str:
    """Describe the records of the first answer to a consume request that arrives twice."""
    if not isinstance(answer, Answer) or answer.status != 200 or not isinstance(answer.body, bytes):
        return ""
    records = json.loads(answer.body)
    places = [f"{one['topic']}-{one['partition']}@{one['offset']}" for one in records]
    return f", and the first answer with {listed(places)} is lost" if places else ""


def _loading(session: Any) -> Answer:
    """Return a server's answer while it loads its data; an open transaction is discarded."""
    text = "LOADING Redis is loading the dataset in memory"
    if session.queue is not None:
        session.discard_transaction()
        text = f"EXECABORT Transaction discarded because of: {text}"
    return Answer(f"-{text}\r\n".encode(), 400, (), "application/x-resp")


def session_of(handle: Any, request: Request) -> Any:
    """Return the session of a command's connection, or None for an HTTP request."""
    if request.call.route != "database-port":
        return None
    return next((c.session for c in list(handle._port._open) if c.client == request.client), None)


def command_of(request: Request) -> str:
    found = request.call.facts.get("command") or [""]
    return str(found[0])


def delivery_words(due: Due, hit: Sequence[Event]) -> str:
    words = f"is delivered to {_place(due.message.url)}"
    for event in hit:
        if event.kind == "duplicate":
            words += " twice"
        elif event.kind == "crash_after_answer":
            words += "; the queue loses the answer"
        elif event.kind == "fail":
            more = int(event.detail) - 1
            words += "; the answer is lost"
            if more:
                words += f", and {counted(more, 'more attempt')} fail{'s' * (more == 1)}"
        elif event.kind == "unreachable":
            many = int(event.detail)
            words += ", which is unreachable" + (f" {many} times" if many > 1 else "")
    return words


def _place(url: Any) -> str:
    return url if isinstance(url, str) else shown(url)


def seconds(span_us: int) -> str:
    """Return a time span as text."""
    return f"{span_us / 1e6:.6g} s"
