"""The application of the REST interface: routes, authentication, limits and responses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import orjson

from ...core.field_types import OneOf
from ...core.ids import new_token
from ...core.matching import Field
from ...core.timekeeper import Timekeeper
from ...core.timers import monotonic, on_first_use
from ...http.app import App, Route
from ...http.messages import Answer, Request, Stream, bearer_token, same
from .. import errors
from ..command_fields import COMMAND_FIELDS, facts_of
from ..engine.engine import Engine
from ..errors import CommandError, RestError
from ..model import TURN_SECONDS, AnyEngine, AnySession
from ..races import Arrival, Interruptions, Sender
from ..reply import LARGEST, Reply, size_of
from ..settings import KVConfig
from ..table.registry import COMMANDS
from .formats import (
    CommandLimits,
    Format,
    Headers,
    command_of_body,
    command_of_path,
    commands_of_body,
    format_of,
    option,
)

if TYPE_CHECKING:
    from .sse import EventStream

METHODS = "GET HEAD POST PUT"
_SYNC_TOKEN = "Upstash-Sync-Token"
_SYNC_TOKEN_NEUTRAL = "Service-Sync-Token"
_STREAMS = ("subscribe", "psubscribe", "monitor")


def read_only_token(token: str) -> str:
    """Return the read-only token that belongs to a standard token.

    It depends only on the standard token, so that a ``.env`` file with a chosen token stays valid
    after a restart.
    """
    return sha256(f"read-only {token}".encode()).hexdigest()


class KVApp(App):
    """The key-value service as an HTTP application.

    ``new_engine`` creates the engine on first use, because many suites give each test fakes that it
    never uses. ``created_engine`` is None until then.
    """

    service: ClassVar[str] = "kv"
    fact_fields: ClassVar[Mapping[str, Field]] = {
        **COMMAND_FIELDS,
        "encoding": Field(OneOf("encoding", ("", "base64"), fold=True)),
    }

    def __init__(
        self, new_engine: Callable[[], AnyEngine], clock: Timekeeper, settings: KVConfig
    ) -> None:
        self.new_engine = new_engine
        self.created_engine: AnyEngine | None = None
        self.creating = threading.Lock()
        """Held while the engine or the database port is created."""
        self.settings = settings
        self.command_limits = CommandLimits(settings, clock.now_us)
        self.interruptions = Interruptions()
        self.connections: set[object] = set()
        """Open connections to the database port and open event streams."""
        self._sync = itertools.count(1)

    @on_first_use
    def password(self) -> str:
        """The password of the user ``default`` for the database port."""
        return self.settings.database_password or new_token(32)

    @cached_property
    def engine(self) -> AnyEngine:
        """The engine, created on first use."""
        with self.creating:
            if self.created_engine is None:
                engine = self.new_engine()
                self.apply_password(engine)
                # Assign the engine last, because it is read without the lock.
                self.created_engine = engine
            return self.created_engine

    def apply_password(self, engine: AnyEngine | None) -> None:
        """Set the password of an engine in memory. A real server has its own."""
        if isinstance(engine, Engine):
            engine.users["default"].set_password(self.password.encode())

    def routes(self) -> list[Route]:
        return [
            Route("POST PUT", "/", "command", self.body_command),
            Route("GET HEAD", "/", "command", self.no_command),
            Route("POST PUT", "/pipeline", "pipeline", self.pipeline),
            Route("POST PUT", "/multi-exec", "multi-exec", self.multi_exec),
            Route("GET POST", "/subscribe/{names*}", "subscribe", self.subscribe, lingers=True),
            Route("GET POST", "/psubscribe/{names*}", "psubscribe", self.subscribe, lingers=True),
            Route("GET POST", "/monitor", "monitor", self.monitor, lingers=True),
            Route(METHODS, "/{command*}", "command", self.path_command),
        ]

    def refused(self, status: int, reason: str) -> None:
        """Record a malformed request, with a hint for clients that seem to use the Redis protocol."""
        if status == 400 and "method" in reason:
            reason += "; a Redis client connects to database_url"
        super().refused(status, reason)

    # -- the dialect -----------------------------------------------------------------------------

    def authenticate(self, request: Request) -> object:
        """Return the user of the bearer token or of the query parameter ``_token``."""
        token = bearer_token(request.fields.get("authorization")) or request.query("_token")
        users = self.engine.users
        standard = self.token
        if same(token, standard):
            return users["default"]
        if same(token, read_only_token(standard)):
            return users.read_only
        user = users.holder_of(token) if token else None
        if user is None:
            raise RestError(401, errors.REST_UNAUTHORIZED)
        return user

    def wrong_method(self, request: Request, allowed: frozenset[str]) -> NoReturn:
        """Raise a 405 error for methods other than HEAD, GET, POST and PUT (specification)."""
        headers = [("Allow", ", ".join(METHODS.split()))]
        raise RestError(405, errors.METHOD_NOT_ALLOWED, headers=headers)

    def facts(self, request: Request) -> dict[str, Any]:
        """Return the fields that the journal records for a request.

        ``command`` contains the commands' names in upper case, with subcommands (``"XGROUP
        CREATE"``). ``key`` contains their keys, ``words`` the command lines as strings, ``index`` the
        searched indexes, and ``encoding`` the encoding of strings in the response. A request with an
        unsupported method has none of these fields.
        """
        if not request.route:
            return {}
        if request.route in ("pipeline", "multi-exec"):
            lines = commands_of_body(request.body)
        elif request.path == "/":
            lines = [command_of_body(request.body)]
        else:
            # Ignore the body, because the arguments of an event stream are in the path.
            body = b"" if request.route in _STREAMS else request.body
            lines = [command_of_path(request.path[1:], body, request.query_string)]
        words = [[word.decode("utf-8", "replace") for word in line] for line in lines]
        return {**facts_of(words), "encoding": option(request, "encoding").lower()}

    def words(self) -> Iterable[str]:
        return (*super().words(), "database-port", *COMMANDS)

    # Replies are plain JSON values, so orjson can serialize them directly.
    dump = staticmethod(orjson.dumps)  # type: ignore[assignment]

    # -- single commands -------------------------------------------------------------------------

    def body_command(self, request: Request) -> Answer | Stream:
        """Run the command in the JSON body of ``POST /``."""
        wanted = format_of(request)
        return self._single(request, command_of_body(request.body), wanted)

    def no_command(self, request: Request) -> NoReturn:
        raise RestError(400, errors.EMPTY_COMMAND)

    def path_command(self, request: Request) -> Answer | Stream:
        """Run a command in a path such as ``/set/key/value``, the body and the query parameters."""
        wanted = format_of(request)
        line = command_of_path(request.params["command"], request.body, request.query_string)
        return self._single(request, line, wanted)

    def _single(self, request: Request, line: list[bytes], wanted: Format) -> Answer | Stream:
        session = self._session(request)
        reply: Reply
        try:
            if self.interruptions:
                self._may_interrupt(request, [line])
            if self.command_limits.must_check(request):
                self.command_limits.check(line)
            reply = self.engine.execute(session, line)
        except CommandError as error:
            return wanted.error(self.error_of(error))
        finally:
            self._leave(session)
        return wanted.reply(self.with_int_text(reply), self._headers(request))

    # -- several commands ------------------------------------------------------------------------

    def pipeline(self, request: Request) -> Answer | Stream:
        """Run commands in order. Commands of other clients may run in between (specification)."""
        wanted = format_of(request)
        lines = self._lines(request)
        limits = self.command_limits if self.command_limits.must_check(request) else None
        session = self._session(request)
        try:
            replies, size = self._run_each(session, lines, limits, request)
        finally:
            self._leave(session)
        self.with_int_text(replies)
        return wanted.replies(replies, size, self._headers(request))

    def _run_each(
        self,
        session: AnySession,
        lines: list[list[bytes]],
        limits: CommandLimits | None,
        request: Request,
    ) -> tuple[list[Reply], int]:
        """Run commands; return the replies, and the total size of their strings in bytes."""
        replies: list[Reply] = []
        size = 0
        execute = self.engine.execute
        turn_ends = monotonic() + TURN_SECONDS
        for at, line in enumerate(lines):
            if monotonic() > turn_ends:
                self.engine.give_way()
                turn_ends = monotonic() + TURN_SECONDS
            if self.interruptions:
                self._may_interrupt(request, [line], "pipelined" if at else "alone")
            try:
                if limits is not None:
                    limits.check(line)
                reply = execute(session, line)
                size += size_of(reply)
                # The whole response will be rejected as too large, so discard this reply.
                replies.append(reply if size <= LARGEST else None)
            except CommandError as error:
                replies.append(error)
        return replies, size

    def multi_exec(self, request: Request) -> Answer | Stream:
        """Run commands as one transaction; if it is discarded, return one error (specification).

        The response is always JSON, also if the request asks for RESP2 (documentation).
        """
        wanted = format_of(request)._replace(resp2=False)
        lines = self._lines(request)
        try:
            self.command_limits.count(len(lines))
        except CommandError as rejection:
            # A rejected transaction counts as one command, if the limits allow one more.
            with suppress(CommandError):
                self.command_limits.count()
            raise RestError(400, rejection.text.decode()) from None
        if self.interruptions:
            self._may_interrupt(request, [[b"MULTI"]])
            self._may_interrupt(request, [*lines, [b"EXEC"]], "queued")
        session = self._session(request)
        try:
            replies = self._transaction(session, lines)
        except CommandError as error:
            return wanted.error(self.error_of(error))
        finally:
            self._leave(session)
        self.with_int_text(replies)
        return wanted.replies(replies, size_of(replies), self._headers(request))

    def _transaction(self, session: AnySession, lines: list[list[bytes]]) -> list[Reply]:
        for line in lines:
            self.command_limits.check_size(line)
        with self.engine.lock:
            self.engine.execute(session, [b"MULTI"])
            for line in lines:
                try:
                    if line[0].upper() == b"EXEC":
                        # The request itself is the transaction, so no command in it may end it.
                        raise CommandError(errors.EXEC_WITHOUT_MULTI)
                    self.engine.execute(session, line)
                except CommandError as error:
                    raise CommandError(errors.exec_aborted_by(error.text)) from None
            replies = self.engine.execute(session, [b"EXEC"])
        return replies if isinstance(replies, list) else []

    def _lines(self, request: Request) -> list[list[bytes]]:
        lines = commands_of_body(request.body)
        limit = self.settings.max_pipeline_length
        if limit is not None and len(lines) > limit:
            raise RestError(400, errors.pipeline_too_long(limit, len(lines)).decode())
        return lines

    # -- streams ---------------------------------------------------------------------------------

    def subscribe(self, request: Request) -> Answer | Stream:
        """Stream the messages of channels or patterns, if the client accepts server-sent events."""
        from .sse import subscription_stream

        command = request.path[1:].partition("/")[0]
        # Ignore the body: the JavaScript client sends an empty command, which has no meaning here.
        names = command_of_path(f"{command}/{request.params['names']}", b"", request.query_string)
        kind = "pattern" if command == "psubscribe" else "channel"
        make = partial(subscription_stream, self.engine, kind=kind, names=names[1:])
        return self._stream(request, names, make)

    def monitor(self, request: Request) -> Answer | Stream:
        """Stream every command that the server runs, if the client accepts server-sent events."""
        from .sse import monitor_stream

        return self._stream(request, [b"MONITOR"], partial(monitor_stream, self.engine))

    def _stream(
        self, request: Request, line: list[bytes], make: Callable[[AnySession], EventStream]
    ) -> Answer | Stream:
        if "text/event-stream" not in (request.fields.get("accept") or "").lower():
            return self._single(request, line, format_of(request))
        session = self._session(request)
        try:
            self._check_stream(session, line)
        except CommandError as error:
            return Answer({"error": str(error)}, 400)
        events = make(session)
        self.connections.add(events)

        def closed() -> None:
            events.close()
            self.connections.discard(events)

        return Stream(events.chunks(), on_close=closed)

    def is_full(self) -> bool:
        limit = self.settings.max_connections
        return limit is not None and len(self.connections) >= limit

    def _check_stream(self, session: AnySession, line: list[bytes]) -> None:
        """Raise ``CommandError`` if limits or permissions forbid an event stream."""
        self.command_limits.count()
        if self.is_full():
            raise CommandError(errors.MAX_CONNECTIONS)
        spec = self.engine.table.commands[line[0].decode().upper()]
        if len(line) < spec.least:
            raise CommandError(errors.wrong_arity(spec.full_name))
        if not session.user.unrestricted:
            self.engine.users.permit(session, spec, line)

    # -- answers ---------------------------------------------------------------------------------

    def failed(self, request: Request, error: BaseException) -> None:
        """Report an exception on the database port: a bug, or an error in a callback."""
        self._report_bug(request, error)

    def with_int_text(self, reply: Reply) -> Reply:
        """Write "int" for "integer" in a reply's errors if ``int_text`` says so, in place in lists."""
        if self.settings.int_text == "int":
            if isinstance(reply, CommandError):
                return self.error_of(reply)
            lists = [reply] if isinstance(reply, list) else []
            while lists:
                items = lists.pop()
                for at, item in enumerate(items):
                    if isinstance(item, list):
                        lists.append(item)
                    else:
                        items[at] = self.with_int_text(item)
        return reply

    def error_of(self, error: CommandError) -> CommandError:
        """Return the error, with "int" instead of "integer" if the setting ``int_text`` says so."""
        if self.settings.int_text == "int" and error.text == errors.NOT_INTEGER:
            return CommandError(errors.NOT_INTEGER_VENDOR)
        return error

    def _may_interrupt(
        self, request: Request, lines: list[list[bytes]], arrival: Arrival = "alone"
    ) -> None:
        """Run the test's interruptions that are due before these commands."""
        connection = request.client
        if connection is not None and not connection[1]:
            connection = None  # a request without a socket (``transport="inprocess"``)
        sender = Sender(connection, request.principal.name)
        for line in lines:
            self.interruptions.before(sender, line, arrival)

    def _session(self, request: Request) -> AnySession:
        address = "127.0.0.1:0"
        if request.client is not None:
            address = f"{request.client[0]}:{request.client[1]}"
        return self.engine.session(request.principal, "rest", address, request.call.at_us)

    def _leave(self, session: AnySession) -> None:
        if session.queue is not None:
            self.engine.abandon(session)

    def _headers(self, request: Request) -> Headers:
        # Like the service, send the header even if the request has no sync token.
        token = str(next(self._sync))
        headers = [(_SYNC_TOKEN, token)]
        if _SYNC_TOKEN_NEUTRAL.lower() in request.fields:
            headers.append((_SYNC_TOKEN_NEUTRAL, token))
        return headers
