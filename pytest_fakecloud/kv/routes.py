"""The REST interface: its routes, the command lines in requests, and the formats of responses; and what
the database port shares with it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, TypeVar

from ..core.calls import Call, HeaderPairs, set_interruptions_end
from ..core.field_types import OneOf
from ..core.ids import new_token
from ..core.matching import Field
from ..core.timers import monotonic
from ..http.app import App, Instruments
from ..http.messages import Answer, Json, Request, Result, Stream, bearer_token, decode_bytes, same
from ..http.routing import Route
from . import errors
from .command_fields import COMMAND_FIELDS, facts_of, names_handshake
from .errors import CommandError, RestError
from .interruptions import CommandSender, Grouping, Interruptions
from .model import HANDSHAKE, TURN_SECONDS, AnyEngine, AnySession, CommandLimits
from .reply import Reply, size_of, to_json, to_resp
from .settings import KVConfig
from .table.registry import COMMANDS

if TYPE_CHECKING:
    from ..http.hub import Hub
    from .faults import NodeFaults
    from .resp.port import PortConnection
    from .sse import EventStream

R = TypeVar("R", bound=Reply)
METHODS = "GET HEAD POST PUT"
SYNC_TOKEN = "Upstash-Sync-Token"
_SERVICE_SYNC_TOKEN = "Service-Sync-Token"


def read_only_token(token: str) -> str:
    """Return the read-only token that belongs to a standard token.

    It depends only on the standard token, so that a ``.env`` file with a chosen token stays valid
    after a restart.
    """
    return sha256(f"read-only {token}".encode()).hexdigest()


class KVApp(App):
    """The key-value service: its REST interface, and what the database port shares with it, which are
    the limits, the interruptions, the password and the list of connections.
    """

    service: ClassVar[str] = "kv"
    node_faults: NodeFaults | None = None
    """The faults of a server with several nodes, or of a cluster."""
    hub: Hub | None = None
    """The hub whose thread serves the database port; None without one."""
    fact_fields: ClassVar[Mapping[str, Field]] = {
        **COMMAND_FIELDS,
        "encoding": Field(OneOf("encoding", ("", "base64"), fold=True)),
    }

    def __init__(self, instruments: Instruments, engine: AnyEngine, settings: KVConfig) -> None:
        super().__init__(instruments)
        self.engine = engine
        self.settings = settings
        self.password = ""
        password = settings.database_password
        self.set_password(new_token(32) if password is None else password)
        self.command_limits = CommandLimits(settings, self.clock.now_us)
        self.interruptions = Interruptions()
        self.clients: set[PortConnection] = set()
        """Open connections to the database port."""
        self._streams: set[EventStream] = set()
        self._sync = itertools.count(1)

    def catch_up(self) -> None:
        if self.hub is not None and self.clients:
            self.hub.catch_up()

    def leave_fake(self) -> None:
        """Also end all interruptions, whose functions usually refer to the fake."""
        self.interruptions.end()
        super().leave_fake()

    def set_password(self, password: str) -> None:
        """Set the password of the database port."""
        self.password = password
        self.engine.set_password(password.encode())

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            Route("POST PUT", "/", "command", cls.command),
            Route("GET HEAD", "/", "command", cls.no_command),
            Route("POST PUT", "/pipeline", "pipeline", cls.pipeline),
            Route("POST PUT", "/multi-exec", "multi-exec", cls.multi_exec),
            Route("GET POST", "/subscribe/{names*}", "subscribe", cls.subscribe, lingers=True),
            Route("GET POST", "/psubscribe/{names*}", "psubscribe", cls.subscribe, lingers=True),
            Route("GET POST", "/monitor", "monitor", cls.monitor, lingers=True),
            Route(METHODS, "/{command*}", "command", cls.command),
        ]

    def record_malformed(self, status: int, reason: str) -> None:
        """Record a malformed request, with a hint for clients that seem to use the Redis protocol."""
        if status == 400 and "method" in reason:
            reason += "; a Redis client connects to database_url"
        super().record_malformed(status, reason)

    # -- the dialect -----------------------------------------------------------------------------

    def authenticate(self, request: Request) -> object:
        """Return the user of the bearer token or of the query parameter ``_token``."""
        token = bearer_token(request.fields.get("authorization")) or request.query("_token")
        users = self.engine.users
        standard = self.token
        if same(token, standard):
            return users.default
        if same(token, read_only_token(standard)):
            return users.read_only
        user = users.holder_of(token) if token else None
        if user is None:
            raise RestError(401, errors.REST_UNAUTHORIZED)
        return user

    def wrong_method(self, request: Request, allowed: frozenset[str]) -> NoReturn:
        """Raise a 405 error for methods other than HEAD, GET, POST and PUT (specification)."""
        allow = ("Allow", METHODS.replace(" ", ", "))
        raise RestError(405, errors.METHOD_NOT_ALLOWED, headers=[allow])

    def facts(self, request: Request) -> dict[str, Any]:
        """Return the ``COMMAND_FIELDS`` of a request, and the encoding of strings in the response."""
        if not request.route:
            return {}
        words = [[word.decode("utf-8", "replace") for word in line] for line in lines_of(request)]
        return {**facts_of(words), "encoding": options(request)[0]}

    def is_handshake(self, call: Call) -> bool:
        if call.route != "database-port" or call.cut:
            return False
        [line] = call.facts["words"]
        return line[0].upper() in HANDSHAKE

    def names_handshake(self, conditions: Mapping[str, object]) -> bool:
        return names_handshake(conditions)

    def words(self) -> Iterable[str]:
        return (*super().words(), "database-port", *COMMANDS)

    def no_command(self, request: Request) -> NoReturn:
        raise RestError(400, errors.EMPTY_COMMAND)

    def command(self, request: Request) -> Result:
        """Run one command."""
        response_format = format_of(request)
        [line] = lines_of(request)
        session = self._session(request)
        reply = self.as_sent(self._run(request, session, line))
        # An error of the command or of a limit is a reply like any other: the call is carried out.
        if isinstance(reply, CommandError):
            return response_format.error(reply)
        return response_format.reply(reply, self._headers(request))

    def pipeline(self, request: Request) -> Result:
        """Run commands in order. Commands of other clients may run in between (specification)."""
        response_format = format_of(request)
        lines = self._checked_lines(request)
        session = self._session(request)
        replies: list[Reply] = []
        size = 0
        too_large: CommandError | None = None
        turn_ends = monotonic() + TURN_SECONDS
        for line in lines:
            if monotonic() > turn_ends:
                self.engine.give_way()
                turn_ends = monotonic() + TURN_SECONDS
            if replies:
                for listener in self.interruptions.listeners.items:
                    listener()
            reply = self._run(request, session, line, "pipelined" if replies else "alone")
            size += size_of(reply)
            too_large = self.command_limits.size_error(size)
            # The whole response will be rejected, so discard this reply.
            replies.append(None if too_large else reply)
        if too_large:
            return response_format.error(too_large)
        return self._replies(request, response_format, self.as_sent(replies))

    def _run(
        self, request: Request, session: AnySession, line: list[bytes], grouping: Grouping = "alone"
    ) -> Reply:
        """Run a command after its interruptions, unless it exceeds a limit; return its reply."""
        if self.interruptions:
            self.interrupt(request.call, _sender(request), line, grouping)
        return self.command_limits.check(line) or self.engine.reply_to(session, line)

    def _replies(
        self, request: Request, response_format: Format, replies: list[Reply] | CommandError
    ) -> Result:
        """Return the response to commands that have run, or to an error of all together."""
        if isinstance(replies, CommandError):
            return response_format.error(replies)
        return response_format.replies(replies, self._headers(request))

    def multi_exec(self, request: Request) -> Result:
        """Run commands as one transaction; if it is discarded, return one error (specification).

        The response is always JSON, also if the request asks for RESP2 (documentation).
        """
        response_format = format_of(request)._replace(resp2=False)
        lines = self._checked_lines(request)
        if rejection := self.command_limits.count(lines):
            # A rejected transaction counts as its first command, if the limits allow that.
            self.command_limits.count(lines[:1])
            raise RestError(400, rejection.text.decode())
        if self.interruptions:
            self.interrupt(request.call, _sender(request), [b"MULTI"], "alone")
            for line in (*lines, [b"EXEC"]):
                self.interrupt(request.call, _sender(request), line, "queued")
        replies = self._transaction(self._session(request), lines)
        return self._replies(request, response_format, self.as_sent(replies))

    def _transaction(
        self, session: AnySession, lines: list[list[bytes]]
    ) -> list[Reply] | CommandError:
        """Run commands as one transaction; return their replies, or the error that discarded it."""
        for line in lines:
            if error := self.command_limits.size_error(sum(map(len, line))):
                return error
        with self.engine.lock:
            self.engine.reply_to(session, [b"MULTI"])
            for line in lines:
                if line[0].upper() == b"EXEC":
                    # The request itself is the transaction, so no command in it may end it.
                    return CommandError(errors.exec_aborted_by(errors.EXEC_WITHOUT_MULTI))
                reply = self.engine.reply_to(session, line)
                if isinstance(reply, CommandError):
                    return CommandError(errors.exec_aborted_by(reply.text))
            replies = self.engine.reply_to(session, [b"EXEC"])
        return replies if isinstance(replies, list | CommandError) else []

    def _checked_lines(self, request: Request) -> list[list[bytes]]:
        """Return the command lines of a pipeline or transaction; raise ``RestError`` for too many."""
        lines = lines_of(request)
        limit = self.settings.max_pipeline_length
        if limit is not None and len(lines) > limit:
            raise RestError(400, errors.pipeline_too_long(limit, len(lines)).decode())
        return lines

    def subscribe(self, request: Request) -> Result:
        """Stream the messages of channels or patterns, if the client accepts server-sent events."""
        from .sse import SubscriptionStream

        [line] = lines_of(request)
        kind = "pattern" if request.route == "psubscribe" else "channel"
        return self._stream(
            request, partial(SubscriptionStream, self.engine, kind=kind, names=line[1:])
        )

    def monitor(self, request: Request) -> Result:
        """Stream every command that the server runs, if the client accepts server-sent events."""
        from .sse import MonitorStream

        return self._stream(request, partial(MonitorStream, self.engine))

    def _stream(self, request: Request, make: Callable[[AnySession], EventStream]) -> Result:
        if "text/event-stream" not in (request.fields.get("accept") or "").lower():
            return self.command(request)
        session = self._session(request)
        try:
            self._check_stream(session, *lines_of(request))
        except CommandError as error:
            return Json({"error": str(error)}, 400)
        events = make(session)
        self._streams.add(events)

        def closed() -> None:
            events.cut()
            self._streams.discard(events)

        chunks = events.chunks()
        next(chunks)  # The client may publish as soon as it has the head of the response.
        return Stream(chunks, on_close=closed)

    def is_full(self) -> bool:
        limit = self.settings.max_connections
        return limit is not None and len(self.clients) + len(self._streams) >= limit

    def too_many_connections(self) -> bytes:
        """Return the error for a connection that would exceed the limit."""
        usage = len(self.clients) + len(self._streams)
        return errors.max_connections(self.settings.max_connections, usage)

    def _check_stream(self, session: AnySession, line: list[bytes]) -> None:
        """Raise ``CommandError`` if limits or permissions forbid an event stream."""
        if error := self.command_limits.count([line]):
            raise error
        if self.is_full():
            raise CommandError(self.too_many_connections())
        spec = self.engine.table.commands[line[0].decode().upper()]
        if len(line) < spec.least:
            raise CommandError(errors.wrong_arity(spec.full_name))
        if not session.user.unrestricted:
            self.engine.users.permit(session, spec, line)

    def as_sent(self, reply: R) -> R | CommandError:
        """Return a reply as clients get it over both protocols: an error if it is too large, and errors
        with the text that the settings choose.
        """
        size = size_of(reply)
        if size > self.command_limits.largest:
            return self.command_limits.too_large(size)
        return _with_vendor_text(reply) if self.settings.int_text == "int" else reply

    def interrupt(
        self, call: Call, sender: CommandSender, line: list[bytes], grouping: Grouping
    ) -> None:
        """Run the interruptions that are due before a command of an authenticated client."""
        is_interrupted = self.interruptions.before(sender, line, grouping)
        # Not in a pipeline, of which earlier commands were executed before the interruption.
        if is_interrupted and grouping != "pipelined":
            set_interruptions_end(call, self.recorder.reserve())

    def _session(self, request: Request) -> AnySession:
        """Open a session for a request; each engine has its own class. The engine does not refer to the
        session, so it need not be ended, not even in a transaction: commands that the engine remembers a
        session for, such as WATCH and SUBSCRIBE, are not available over REST.
        """
        address = "127.0.0.1:0"
        if request.client is not None:
            address = f"{request.client[0]}:{request.client[1]}"
        session = self.engine.session(request.principal, "rest", address, request.call.at_us)
        session.call = request.call
        return session

    def _headers(self, request: Request) -> HeaderPairs:
        # Like the service, send the header even if the request has no sync token.
        token = str(next(self._sync))
        headers = [(SYNC_TOKEN, token)]
        if _SERVICE_SYNC_TOKEN.lower() in request.fields:
            headers.append((_SERVICE_SYNC_TOKEN, token))
        return headers


def _with_vendor_text(reply: R) -> R | CommandError:
    """Return a reply with the vendor's text of one error, also inside lists, which are changed."""
    whole = [reply]
    lists: list[list[Any]] = [whole]
    while lists:
        items = lists.pop()
        for at, item in enumerate(items):
            if isinstance(item, list):
                lists.append(item)
            elif isinstance(item, CommandError) and item.text == errors.NOT_INTEGER:
                items[at] = CommandError(errors.NOT_INTEGER_VENDOR)
    return whole[0]


def _sender(request: Request) -> CommandSender:
    return CommandSender(request.client, request.principal.name)


# -- command lines in requests ---------------------------------------------------------------------

_STREAMS = frozenset(("subscribe", "psubscribe", "monitor"))
"""Routes of event streams."""


def lines_of(request: Request) -> list[list[bytes]]:
    """Return the command lines in a request, in the form that its route has; raise ``RestError`` 400 if
    they are invalid.

    A pipeline and a transaction have an array of arrays in the body, and ``/`` has an array. In a path
    such as ``/set/key/value``, the body and the query parameters are further arguments.
    """
    if request.route in ("pipeline", "multi-exec"):
        return commands_of_body(request.body)
    if request.path == "/":
        return [_command_line(_json(request.body))]
    # Ignore the body of a stream's request: the JavaScript client sends an empty command in it.
    body = b"" if request.route in _STREAMS else request.body
    return [command_of_path(request.path[1:], body, request.query_string)]


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


# Numbers keep their source text: 1.10 stays 1.10, and a number may have 5,000 digits.
_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_reject_constant).decode


def _json(body: bytes) -> Any:
    try:
        return _decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RestError(400, f"{errors.BAD_JSON}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise RestError(400, f"{errors.BAD_JSON}: nested too deeply") from None
    except ValueError as error:
        raise RestError(400, f"{errors.BAD_JSON}: {error}") from None


def _argument(item: Any) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError:
            return re.sub("[\ud800-\udfff]", "\ufffd", item).encode()
    if isinstance(item, bool):
        return b"true" if item else b"false"
    kind = {type(None): "null", list: "array", dict: "object"}[type(item)]
    raise RestError(400, errors.unsupported_arguments(kind).decode())


def _command_line(items: Any, number: int = 0) -> list[bytes]:
    """Return the command line in a parsed array; raise ``RestError`` for null and nested values.

    ``number`` is the line's position in a pipeline, from 1.
    """
    try:
        if isinstance(items, list) and items:
            return list(map(str.encode, items))
    except (TypeError, UnicodeEncodeError):
        pass  # An argument is not a string, or contains a lone surrogate.
    name = f"command {number}" if number else "the body"
    if not isinstance(items, list):
        raise RestError(400, f"{errors.BAD_ARGUMENTS}: {name} is not an array")
    if not items:
        raise RestError(400, f"{errors.EMPTY_COMMAND}: {name} is an empty array")
    return list(map(_argument, items))


def commands_of_body(body: bytes) -> list[list[bytes]]:
    """Return the command lines in a JSON array of arrays; raise ``RestError`` 400 if it is invalid."""
    lines = _json(body)
    if not isinstance(lines, list):
        raise RestError(400, f"{errors.BAD_ARGUMENTS}: the body is not an array of arrays")
    if not lines:
        raise RestError(400, errors.EMPTY_PIPELINE)
    return [_command_line(line, number) for number, line in enumerate(lines, 1)]


def command_of_path(raw_path: str, body: bytes, query_string: str) -> list[bytes]:
    """Return the command line in a URL: the path's segments, the body, the query parameters.

    The path is split before its segments are decoded. A query parameter adds its name and its
    value, or only its name if the value is empty (``NX=``). ``_token`` is ignored.
    """
    segments = raw_path.split("/")
    if len(segments) > 1 and not segments[-1]:
        segments.pop()
    if "%" in raw_path:
        line = list(map(decode_bytes, segments))
    else:
        line = [segment.encode("latin-1") for segment in segments]
    if not line[0]:
        raise RestError(400, errors.EMPTY_COMMAND)
    if body:
        line.append(body)
    for part in query_string.replace("+", " ").split("&") if query_string else ():
        name, _, value = map(decode_bytes, part.partition("="))
        if name and name != b"_token":
            line.append(name)
            if value:
                line.append(value)
    return line


# -- formats of responses --------------------------------------------------------------------------

_BINARY = "application/octet-stream"


class Format(NamedTuple):
    """The response format that a request asks for."""

    base64: bool
    resp2: bool

    def reply(self, reply: Reply, headers: HeaderPairs) -> Result:
        """Return the response to a command."""
        if self.resp2:
            return Answer(to_resp(reply), 200, headers, _BINARY)
        return Json({"result": to_json(reply, self.base64)}, 200, headers)

    def replies(self, replies: list[Reply], headers: HeaderPairs) -> Result:
        """Return the response to several commands."""
        if self.resp2:
            return Answer(b"".join(map(to_resp, replies)), 200, headers, _BINARY)
        envelopes = [
            {"error": str(reply)}
            if isinstance(reply, CommandError)
            else {"result": to_json(reply, self.base64)}
            for reply in replies
        ]
        return Json(envelopes, 200, headers)

    def error(self, error: CommandError) -> Result:
        if self.resp2:
            return Answer(to_resp(error), 400, (), _BINARY)
        return Json({"error": str(error)}, 400)


def format_of(request: Request) -> Format:
    """Return the response format of a request; raise ``RestError`` if it does not exist."""
    encoding, name = options(request)
    base64 = encoding == "base64"
    if name not in ("", "json", "resp2"):
        raise RestError(400, errors.BAD_FORMAT)
    if base64 and name == "resp2":
        raise RestError(400, errors.FORMAT_WITH_BASE64)
    return Format(base64, name == "resp2")


def options(request: Request) -> tuple[str, str]:
    """Return the encoding and the response format that a request names in lower case, or empty strings:
    in the headers ``Upstash-…``, as the official clients call them, or ``Service-…`` (specification).
    """
    value_of = request.fields.get
    encoding = value_of("upstash-encoding") or value_of("service-encoding") or ""
    name = value_of("upstash-response-format") or value_of("service-response-format") or ""
    return encoding.strip().lower(), name.strip().lower()
