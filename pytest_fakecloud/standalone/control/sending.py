"""Endpoints that send requests to fakes like a client, new ones and recorded ones again."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...cloud.cloud import Cloud
from ...cloud.fake import Fake, core_of
from ...cloud.services import data_module
from ...core.calls import Call, Entry, on_connection
from ...core.errors import ContractError
from ...core.field_types import TOKEN
from ...http.messages import Answer, ConnectionEffect, Request
from ...http.routing import Route
from ...inspect.data import whole_number
from ..copied_tests.by_hand import ControlRequest, copies
from .data import row_numbered
from .endpoints import PREFIX, Part, Refused, contract, fake_named, fields, named
from .redis_protocol import RedisConnection

_METHOD = re.compile(r"[A-Za-z]{1,20}")
_TARGET = re.compile(r"/[!-~]*")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")


class SendingRoutes(Part):
    """Endpoints that send requests and commands to fakes. These meet faults and are recorded."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @classmethod
    def routes(cls) -> list[Route]:
        requests = f"{PREFIX}/fakes/{{name}}/requests"
        again = f"{PREFIX}/journal/{{number}}/again"
        return [
            cls.route("POST", requests, "send", cls.send_request, lingers=True),
            cls.route("POST", again, "send_again", cls.send_again, lingers=True),
            cls.route("POST", f"{PREFIX}/copies", "copy_request", cls.copy_request),
        ]

    def send_request(self, request: Request) -> dict[str, Any]:
        """Send a request to a fake like a client: ``{"method", "target", "headers", "body"}``.

        ``again_of`` is the number of the row that the request sends again, such as that of a delivery.
        The request carries the fake's credentials unless ``headers`` sets others, is subject to
        injected faults, and is recorded. A string ``body`` is sent unchanged, any other value as
        JSON. Returns ``{"status", "headers", "body", "row"}``, or ``{"broken", "row"}`` for a broken
        connection; ``row`` is the number of its row in the journal. An error has its ``advice``.
        """
        body = fields(request)
        answer = self._send(
            named(self._cloud, request),
            body.get("method", "POST"),
            body.get("target", "/"),
            body.get("headers", {}),
            _sent(body.get("body", "")),
            whole_number("again_of", str(body.get("again_of", 0))) or 0,
        )
        if answer.get("status", 0) >= 400 and answer["row"] is not None:
            row = row_numbered(self._cloud, answer["row"])
            return answer | ({"advice": row["advice"]} if "advice" in row else {})
        return answer

    def send_again(self, request: Request) -> dict[str, Any]:
        """Send a recorded call to its fake again, as it was or with changes.

        ``{"method", "target", "headers", "body"}`` replace parts of a request, ``{"commands": [[…]]}``
        the commands of a call over the Redis protocol, which are sent over that protocol. An omitted
        part is sent as it was recorded, byte for byte, with the credentials of the fake. Returns what
        ``POST /fakes/{name}/requests`` returns; for commands, ``{"replies", "row"}``. A part of which
        the journal has kept only the beginning must be given.
        """
        body, call = fields(request), self._recorded(request)
        fake = fake_named(self._cloud, call.fake)
        if on_connection(call):
            return _run(fake, body.get("commands") or _commands_of(fake, call), call.number)
        content = _sent(body["body"]) if "body" in body else call.request_body
        if "body" not in body and "request_body" in call.cut:
            raise Refused(422, "the journal has only the beginning of the body: pass body")
        if "target" not in body and "target" in call.cut:
            raise Refused(422, "the journal has only the beginning of the target: pass target")
        own = {name.lower() for name in fake.headers}
        recorded = {
            name: value
            for name, value in call.request_headers.pairs
            if name.lower() not in own and name.lower() not in _OF_CONNECTION
        }
        return self._send(
            fake,
            body.get("method", call.method),
            body.get("target", call.target),
            body.get("headers", recorded),
            content,
            call.number,
        )

    def copy_request(self, request: Request) -> dict[str, str]:
        """Return code that makes a request of this API again, by language; it is not made now.

        ``{"method", "path", "body"}``. Code for pytest is there if a method of a fixture does the same.
        """
        body = fields(request)
        with contract():
            return copies(ControlRequest(body["method"], body["path"], body.get("body")))

    def _recorded(self, request: Request) -> Call:
        number = whole_number("number", request.params["number"])
        for entry in self._cloud.journal.entries:
            if entry.number == number and isinstance(entry, Call):
                return entry
        raise Refused(404, f"the journal has no call {number}")

    def _send(
        self,
        fake: Fake,
        method: str,
        target: str,
        extra: Mapping[str, str],
        content: bytes,
        again_of: int = 0,
    ) -> dict[str, Any]:
        if not _METHOD.fullmatch(method):
            raise Refused(422, f"method must be a word such as 'POST', got {method!r:.100}")
        if not _TARGET.fullmatch(target):
            raise Refused(
                422,
                f"target must be a path that begins with / and is percent-encoded, got {target!r:.100}",
            )
        headers = _headers(fake, extra)
        # The request goes through the fake's whole pipeline, but not through a socket.
        own = threading.get_ident()
        with _recording(fake, lambda call: threading.get_ident() == own, again_of) as recorded:
            answer = core_of(fake).app.respond(Request(method, target, headers, content))
        row = recorded[0].number if recorded else None
        if isinstance(answer, Answer):
            raw_body = answer.body if isinstance(answer.body, bytes) else _sent(answer.body)
            return {
                "status": answer.status,
                "headers": [list(pair) for pair in answer.headers],
                "body": raw_body.decode("utf-8", "replace"),
                "row": row,
            }
        if isinstance(answer, ConnectionEffect):
            return {"broken": answer.kind, "row": row}
        # The stream has no reader, so end it like one whose client disconnected.
        answer.end()
        raise Refused(422, "the response is an endless stream: request it with a client")


_OF_CONNECTION = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "keep-alive", "te", "upgrade"}
)
"""Headers that belong to the connection of the client that sent them."""


@contextmanager
def _recording(
    fake: Fake, is_own: Callable[[Call], bool], again_of: int = 0
) -> Iterator[list[Call]]:
    """Collect the calls to a fake that are sent here, and mark them as those of the console."""
    calls: list[Call] = []
    shared = core_of(fake).recorder.shared

    def note(entry: Entry) -> None:
        if isinstance(entry, Call) and entry.fake == fake.name and is_own(entry):
            shared.from_console[entry.number] = again_of
            if not calls or calls[-1] is not entry:
                calls.append(entry)

    stop = shared.listeners.add(note)
    try:
        yield calls
    finally:
        stop()


def _commands_of(fake: Fake, call: Call) -> list[list[str]]:
    """Return the commands of a call over the Redis protocol, as they were sent."""
    if "request_body" in call.cut or "words" in call.cut:
        raise Refused(422, "the journal has only the beginning of the command: pass commands")
    words: list[str] = data_module(fake.fixture).words_as_sent(call)
    if words[0].upper() == "EXEC":  # The row of a transaction has its commands as facts.
        return [["MULTI"], *call.facts.get("words", []), ["EXEC"]]
    return [words]


def _run(fake: Fake, commands: Sequence[Sequence[str]], again_of: int) -> dict[str, Any]:
    """Run commands over the Redis protocol on a connection of their own."""
    url = fake.env.get("REDIS_URL")
    if url is None:
        raise Refused(422, f"{fake.name} has no port for the Redis protocol")
    if not all(commands):
        raise Refused(422, "a command needs at least one word")
    connection = RedisConnection(url)

    def is_own(call: Call) -> bool:
        return call.client == connection.address

    # The connection logs in first, which sends nothing again.
    with _recording(fake, is_own), connection, _recording(fake, is_own, again_of) as recorded:
        replies = [connection.run(command) for command in commands]
    return {"replies": replies, "row": recorded[-1].number if recorded else None}


def _headers(fake: Fake, extra: Mapping[str, str]) -> list[tuple[str, str]]:
    for name, value in extra.items():
        if not re.fullmatch(TOKEN, name) or not _VALUE.fullmatch(value):
            raise ContractError(
                f"{name!r:.100}: {value!r:.100} is not a header: pass strings without line breaks"
            )
    lower = {name.lower() for name in extra}
    own = [pair for pair in fake.headers.items() if pair[0].lower() not in lower]
    return [*own, *extra.items()]


def _sent(body: object) -> bytes:
    return (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")
