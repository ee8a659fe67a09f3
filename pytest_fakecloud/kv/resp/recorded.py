"""Records the commands of a connection in the journal, and applies faults to them.

As for a REST request, every command has a call in the journal and can be affected by faults:

- ``answer(status, body)`` sends an error. If the body is ``{"result": …}``, it sends a reply with
  this result. In a transaction, the error acts like an error of the server: EXEC answers EXECABORT.
- No fault can change the bytes of a reply; one that does raises ``ContractError``.
- No fault can deliver a command twice, because clients repeat a command only over a new connection.

Decided here: ``drop``, ``lose_response``, ``truncate``, ``hang`` and ``down`` affect a connection as
they affect an HTTP connection, and ``delay`` and ``call`` work as they do for HTTP.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from ...core.calls import Call, CutBytes, end_faults, record_cut
from ...core.errors import ContractError
from ...core.timers import monotonic
from ...http.app import respond
from ...http.messages import OUTCOME_OF_EFFECT, Answer, AnyResponse, Effect, Request, Stream
from .. import errors
from ..command_fields import facts_of
from ..engine.blocking import RUN_IN_TRANSACTION
from ..engine.usage import without_secrets
from ..errors import CommandError
from ..reply import NIL_ARRAY, Reply, Status, to_resp

if TYPE_CHECKING:
    from .port import PortConnection

LARGE = 1024 * 1024
"""Size in bytes above which the journal keeps only the beginning of a command or reply."""
_SHOWN_WORDS = 256
"""Number of words of a large command that the journal keeps."""
SHOWN_BYTES = 256
"""Number of bytes that the journal keeps of each of these words, and of a large reply."""
HANG_SECONDS = 60.0
RESP_TYPE = "application/x-resp"


class RecordedCommands:
    """Runs the commands of one connection, each with its call in the journal and its faults."""

    def __init__(self, connection: PortConnection) -> None:
        self._connection = connection
        self._app = connection.app
        self._session = connection.session

    def run(self, argv: list[bytes]) -> bool:
        """Record and run a command, with faults; return False if the connection must be closed."""
        app = self._app
        size = sum(map(len, argv))
        line = without_secrets(argv)
        sizes: dict[str, int] = {}
        if size > LARGE:
            line, sizes = _shortened(line, size)
        body = orjson.dumps([word.decode("utf-8", "replace") for word in line])
        request = Request("RESP", "/", (), body, self._connection.client)
        call = request.call = app.recorder.open_call(
            request, facts=partial(_facts, database=self._session.db.index)
        )
        call.route = "database-port"
        if sizes:
            record_cut(call, sizes)
        try:
            return self._run_with_faults(argv, request)
        finally:
            app.recorder.answered(call)

    def _run_with_faults(self, argv: list[bytes], request: Request) -> bool:
        app, call = self._app, request.call
        try:
            app.clock.settle()
            self._connection.wait_for_pause(argv)
            if self._connection.signal.closed:
                # The connection was closed while the command waited, before it reached the engine.
                call.outcome = "dropped"
                return False
            if not app.faults.active:
                call.status, call.response_body = self._connection.perform(argv, put=True)
                call.reached = True
                if isinstance(call.response_body, CutBytes):
                    record_cut(call, {"response_body": call.response_body.size})
                call.outcome = "answered"
                return True
            request.principal = self._session.user
            mode = self._session.reply_mode
            serve = partial(self._run_unfaulted, argv, call)
            response, altered = respond(app.faults, request, serve)
            end_faults(call, app.recorder.reserve())
            if isinstance(response, Answer) and response.content_type != RESP_TYPE:
                response = self._injected(argv, response, mode)
            elif altered:
                raise ContractError(
                    f"the fault {call.fault} changes the bytes of a reply of the Redis protocol, after "
                    "which the client would wait for the rest or misread later replies: limit the "
                    "fault to REST requests with route=, or use truncate"
                )
        except BaseException as error:
            # Also catch pytest.fail() in a callback: pytest does not see exceptions in this thread.
            app.failed(request, error)
            call.status, call.outcome = 500, "answered"
            self._session.abort_transaction()
            text = f"ERR internal error: {error!r}".encode()
            self._connection.outbox.put(to_resp(CommandError(text)))
            return True
        return self._deliver(request, response, altered)

    def _run_unfaulted(self, argv: list[bytes], call: Call) -> AnyResponse:
        if call.reached:
            raise ContractError(
                "a command cannot arrive twice over one connection of the Redis protocol: use "
                "lose_response, so that the client sends it again over a new connection"
            )
        status, data = self._connection.perform(argv, put=False)
        call.reached = True
        return Answer(data, status, (), RESP_TYPE)

    def _injected(self, argv: list[bytes], answer: Answer, mode: str) -> Answer:
        """Return a fault's response as a reply, and change a transaction as a real server would.

        An error in reply to a queued command makes EXEC fail, and EXEC always ends the transaction.
        Raises ``ContractError`` if a queued command would get any other reply.
        """
        session = self._session
        reply = _reply_in(answer)
        if session.queue is not None:
            name = argv[0].upper().decode("utf-8", "replace")
            if name == "EXEC":
                session.discard_transaction()
                if reply is None:
                    reply = NIL_ARRAY
                elif isinstance(reply, CommandError) and not reply.text.startswith(b"EXECABORT"):
                    reply = CommandError(errors.exec_aborted_by(reply.text))
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
        if mode != "on" and session.reply_mode == "skip":
            session.reply_mode = "on"
        data = to_resp(reply, session.resp) if mode == "on" else b""
        return Answer(data, answer.status, (), RESP_TYPE)

    def _deliver(self, request: Request, response: AnyResponse, altered: bool) -> bool:
        """Send a response or apply a fault's effect; return False if the connection must be closed."""
        call = request.call
        assert not isinstance(response, Stream)
        if isinstance(response, Answer):
            call.status, call.outcome = response.status, "altered" if altered else "answered"
            call.response_body = _as_resp(response, self._session.resp)
            self._connection.outbox.put(call.response_body)
            return True
        call.outcome = OUTCOME_OF_EFFECT[response.kind]
        self._apply_effect(response)
        return False

    def _apply_effect(self, effect: Effect) -> None:
        self._connection.outbox.send()
        if effect.kind == "truncate" and effect.answer is not None:
            self._connection.outbox.put(_as_resp(effect.answer, self._session.resp)[: effect.keep])
            self._connection.outbox.send()
        elif effect.kind == "hang":
            deadline = monotonic() + HANG_SECONDS
            with self._connection.connection.watched(self._connection.signal.close):
                while not self._connection.signal.closed and monotonic() < deadline:
                    self._connection.signal.sleep(self._connection.signal.version, 1.0)
        if effect.reset:
            self._connection.connection.reset_when_closed()


def _shortened(line: list[bytes], size: int) -> tuple[list[bytes], dict[str, int]]:
    """Return the beginning of a large command, and the full size of each field that is cut."""
    kept = [word[:SHOWN_BYTES] for word in line[:_SHOWN_WORDS]]
    whole, shown = (facts_of([[word.decode("latin-1") for word in one]]) for one in (line, kept))
    return kept, {
        "request_body": size,
        **{name: size for name in whole if whole[name] != shown[name]},
    }


def _facts(call: Call, database: int) -> dict[str, Any]:
    found = {**facts_of([orjson.loads(call.request_body)]), "encoding": ""}
    return {**found, "database": database} if database else found


def _as_resp(answer: Answer, version: int) -> bytes:
    if answer.content_type == RESP_TYPE:
        assert isinstance(answer.body, bytes)
        return answer.body
    return to_resp(_reply_in(answer), version)


def _reply_in(answer: Answer) -> Reply:
    """Convert an injected HTTP response to a reply.

    The body ``{"result": ...}`` becomes a reply with this result. ``{"error": text}``, and any body
    with a status of 400 or more, becomes an error, with ``ERR`` added unless the text starts with a
    class word. Any other body becomes a string.
    """
    body = answer.body
    assert isinstance(body, bytes)
    try:
        value = json.loads(body)
    except ValueError:
        value = None
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
