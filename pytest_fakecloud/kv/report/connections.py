"""Calls on connections to a database: what they sent and received, and why a password was rejected."""

from __future__ import annotations

from contextlib import suppress

from ...core.bodies import compact
from ...core.calls import Call, on_connection
from ...core.secrets import HIDDEN
from ...reporting.contract import ConnectionExchange
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedCall
from ..resp.replies import is_error, reply
from .calls import hides_words, lines_of
from .wording import command_text


def exchange(call: MaskedCall, lookups: Lookups) -> ConnectionExchange | None:
    """Return the commands on a connection that one row shows, and the reply as a value; None for a
    request of HTTP.
    """
    if not on_connection(call):
        return None
    steps = lookups.grouped_calls.get(call.number, ())
    lines = [line for step in (*steps, call) for line in lines_of(step)]
    if hides_words(call):
        lines = [[line[0], HIDDEN] for line in lines]
    body, answer = call.response_body, None
    with suppress(ValueError, LookupError, RecursionError):  # of an incomplete reply
        value = reply(call)
        answer = compact(value["error"] if is_error(value) else value["result"])
    # The bytes of a string follow its length.
    content = body.partition(b"\r\n")[2][:-2] if body[:1] == b"$" else body
    return ConnectionExchange("\n".join(map(command_text, lines)), answer, content)


def error_of(call: Call) -> str | None:
    """Return the error with which a command on a connection was answered; None for any other call."""
    if not on_connection(call) or not call.response_body.startswith(b"-"):
        return None
    return str(reply(call)["error"])


def rejection(call: Call, fake: object) -> dict[str, str] | None:
    """Return why a password on a connection or a token in a URL was rejected; None for a header."""
    if on_connection(call):
        return {"kind": "password" if b"WRONGPASS" in call.response_body else "no_password"}
    has_header = call.request_headers.get("Authorization") is not None
    return {"kind": "query"} if "_token=" in call.target and not has_header else None
