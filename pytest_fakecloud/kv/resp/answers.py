"""Replies of the database port as interceptors see them, and what faults make of them.

An interceptor gets and returns an HTTP response, over both protocols. That of a command is a
``ReplyAnswer``. Any other answer is a fault's, and becomes a reply. In a transaction, it acts like a
reply of the server: after an error in reply to a queued command, EXEC answers EXECABORT, and EXEC always
ends the transaction (decided here).
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...core.calls import Call
from ...core.errors import ContractError, ServiceError
from ...http.messages import Answer, AnyResponse, ConnectionEffect
from .. import errors
from ..engine.sessions import RUN_IN_TRANSACTION, Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, Reply, Status, to_resp

_REJECTIONS = frozenset({errors.NOAUTH, errors.HELLO_NOAUTH, errors.WRONGPASS})
"""The errors for missing and for wrong credentials."""


@dataclass
class ReplyAnswer(Answer):
    """A reply in the Redis protocol."""

    content_type: str | None = "application/x-resp"  # decided here


def answer_of(session: Session, reply: Reply, status: int | None = None) -> ReplyAnswer:
    """Return an encoded reply. Its status is that of the same error over REST, unless a fault has
    chosen one.
    """
    if status is None:
        status = _status_of(reply) if isinstance(reply, CommandError) else 200
    return ReplyAnswer(to_resp(reply, session.resp), status)


def _status_of(error: CommandError) -> int:
    return 401 if error.text in _REJECTIONS else 400


def internal_error(session: Session, error: ServiceError) -> Answer:
    """Return an internal error as a reply. It also makes a transaction fail."""
    session.abort_transaction()
    text = f"ERR {error.message}".encode("utf-8", "replace")
    return answer_of(session, CommandError(text), error.status)


def with_replies(
    session: Session, line: list[bytes], call: Call, response: AnyResponse
) -> AnyResponse:
    """Return the response to a command, in which a fault's answer has become a reply. Raises
    ``ContractError`` for bytes of a fault that might not be a whole reply.
    """
    if isinstance(response, ConnectionEffect):
        answer = response.answer
        if answer is None or isinstance(answer, ReplyAnswer):
            return response
        return response._replace(answer=answer_of(session, _reply_in(answer), answer.status))
    if not isinstance(response, Answer) or isinstance(response, ReplyAnswer):
        return response
    if response.content_type == ReplyAnswer.content_type:
        raise ContractError(
            f"the fault {call.fault} answers with bytes of the Redis protocol, after which the client "
            'might wait for the rest or misread later replies: give it a body such as {"result": 1}, '
            "limit the fault to REST requests with route=, or use truncate"
        )
    reply = _reply_in(response)
    if session.is_queuing:
        reply = _in_transaction(session, line, reply)
    replaced = answer_of(session, reply, response.status)
    replaced.altered = response.altered
    return replaced


def _in_transaction(session: Session, line: list[bytes], reply: Reply) -> Reply:
    """Return a fault's reply to a queued command or EXEC, and change the transaction as a real server
    would. Raises ``ContractError`` for a reply to a queued command that is no error.
    """
    name = line[0].upper().decode("utf-8", "replace")
    if name == "EXEC":
        session.discard_transaction()
        if reply is None:
            return NIL_ARRAY
        if isinstance(reply, CommandError) and not reply.text.startswith(b"EXECABORT"):
            return CommandError(errors.exec_aborted_by(reply.text))
    elif isinstance(reply, CommandError):
        session.abort_transaction()
    elif name not in RUN_IN_TRANSACTION:
        shown = to_resp(reply, session.resp)
        raise ContractError(
            f"the fault replies {shown!r:.80} to {name:.80} inside MULTI, where a server "
            "replies QUEUED or an error: inject an error, or a reply to EXEC"
        )
    elif name in ("DISCARD", "RESET"):
        session.discard_transaction()
    return reply


def _reply_in(answer: Answer) -> Reply:
    """Convert a fault's HTTP response to a reply.

    The body ``{"result": ...}`` becomes a reply with this result. ``{"error": text}``, and any body
    with a status of 400 or more, becomes an error, with ``ERR`` added unless the text starts with
    the word of a class of errors, such as ``WRONGTYPE``. Any other body becomes a string.
    """
    body = answer.body
    value = None
    with suppress(ValueError):
        value = json.loads(body)
    fields = value if isinstance(value, dict) else {}
    if "result" in fields:
        return _reply_of(fields["result"])
    if "error" not in fields and answer.status < 400:
        return body
    text = str(fields.get("error", body.decode("utf-8", "surrogateescape"))).strip()
    if not text.partition(" ")[0].isupper():
        text = f"ERR {text}"
    return CommandError(text.encode("utf-8", "surrogateescape"))


def _reply_of(value: Any) -> Reply:
    if isinstance(value, list):
        return [_reply_of(item) for item in value]
    if isinstance(value, str):
        return Status(b"OK") if value == "OK" else value.encode("utf-8", "surrogateescape")
    if value is None or isinstance(value, int):
        return value if value is None else int(value)
    return json.dumps(value).encode()
