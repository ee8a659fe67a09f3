"""The database port, which serves the Redis protocol and REST over plain HTTP for the same data.

The first bytes of a connection determine its protocol (specification). A connection with the Redis
protocol has a session, a thread that reads and runs its commands in order, and an outbox for
replies and pushes. As for a REST request, every command has a call in the journal and can be
affected by faults (decided here):

- As over REST, a command passes the chain of interceptors only if its client is authenticated. Before
  that, AUTH, HELLO, QUIT and RESET pass it; any other command is rejected without.
- Faults skip the commands of a handshake, which clients send by themselves, unless they name them.
- ``respond(status, body)`` sends an error, or for ``{"result": …}`` and other bodies of a success a
  reply (``wire.reply_in``). In a transaction, the error acts like an error of the server: EXEC
  answers EXECABORT.
- No fault can change the bytes of a reply; one that does raises ``ContractError``.
- No fault can deliver a command twice, because clients repeat a command only over a new connection.
- ``drop``, ``lose_response``, ``truncate``, ``hang`` and ``down`` affect a connection as they affect an
  HTTP connection, and ``delay`` and ``call`` work as they do for HTTP.
"""

from __future__ import annotations

import contextlib
import selectors
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...core.calls import NO_HEADERS, Call, CutBytes, record_cut, set_interruptions_end
from ...core.errors import ContractError, ServiceError
from ...core.timers import monotonic
from ...http.hub import Mount
from ...http.messages import Answer, AnyResponse, ConnectionEffect, Request, Stream
from ...http.ports import is_free
from ...http.server import Connection, HTTPHandler
from .. import errors
from ..acl import ANONYMOUS
from ..command_fields import facts_of
from ..engine.engine import KVEngine
from ..engine.sessions import RUN_IN_TRANSACTION, Waiter
from ..engine.statistics import without_secrets
from ..errors import CommandError
from ..interruptions import Arrival, CommandSender
from ..model import HANDSHAKE, TURN_SECONDS
from ..reply import NIL_ARRAY, NO_REPLY, Blocked, Encoded, Push, Reply, resp_parts, size_of, to_resp
from ..routes import KVApp
from ..table.versions import MESSAGES_FOLLOW
from .wire import (
    RESP_TYPE,
    SEND_BYTES,
    CommandReader,
    Outbox,
    ProtocolFault,
    as_resp,
    facts_reader,
    json_of,
    protocol_of,
    reply_in,
)

T = TypeVar("T")
READ_BYTES = 64 * 1024

LARGE = 1024 * 1024
"""Size in bytes above which the journal keeps only the beginning of a command or reply."""
_SHOWN_WORDS = 256
"""Number of words of a large command that the journal keeps."""
SHOWN_BYTES = 256
"""Number of bytes that the journal keeps of each of these words, and of a large reply."""

_INVALIDATIONS = frozenset({b"invalidate", b"tracking-redir-broken"})
_MESSAGES = _INVALIDATIONS | {b"message", b"pmessage", b"smessage"}
"""Kinds of pushes that confirm no SUBSCRIBE or UNSUBSCRIBE."""
_TLS = b"\x16\x03"
"""The first bytes of a TLS connection."""
_OF_BROWSERS = frozenset({b"POST", b"HOST:"})
"""The first words of lines of HTTP requests, at which a real server closes the connection."""
_HANDSHAKE = frozenset({name.encode() for name in HANDSHAKE})


def connect(engine: KVEngine, app: KVApp, mount: Mount) -> None:
    """Wake the clients that wait at a port when it closes, and tell the engine which ports are free."""

    def wake() -> None:
        for client in app.clients.copy():
            if client.connection.ended:
                client.wake()
        engine.pauses.resumed.notify()

    mount.on_stop.append(wake)
    mount.on_reset.append(wake)
    # Keep no reference to the mount, which refers to the engine.
    host, own = mount.host, mount.port
    engine.can_listen = lambda port: port == own or is_free(host, port)


class PortHandler:
    """Serves a connection with the protocol that its first bytes determine."""

    def __init__(self, engine: KVEngine, app: KVApp, connection: Connection) -> None:
        self._engine = engine
        self._app = app
        self._connection = connection
        self._begun = b""
        self._chosen: HTTPHandler | PortConnection | None = None
        self._is_refused = False

    def run(self) -> None:
        while self._chosen is None:
            data = self._connection.sock.recv(READ_BYTES)
            if not data:
                return
            self._choose(data)
            if self._is_refused:
                return
        self._chosen.run(self._begun)

    def receive(self, data: bytes) -> bool:
        if self._chosen is not None:
            return self._chosen.receive(data)
        self._choose(data)
        return not self._is_refused if self._chosen is None else self._chosen.receive(self._begun)

    def renew(self) -> bool:
        return not self._begun if self._chosen is None else self._chosen.renew()

    def close(self) -> None:
        if self._chosen is not None:
            self._chosen.close()

    def _choose(self, data: bytes) -> None:
        """Choose the protocol, if these first bytes are enough; refuse one client too many."""
        self._begun += data
        kind = protocol_of(self._begun)
        if self._begun.startswith(_TLS):
            self._is_refused = True
            self._app.record_malformed(
                400, "received TLS, but the database port uses none: use redis://"
            )
        elif kind == "http":
            self._chosen = HTTPHandler(self._connection)
        elif kind is not None and (self._app.is_full() or self._exceeds_maxclients()):
            self._is_refused = True
            self._engine.statistics.rejected_connections += 1
            is_stock = self._engine.dialect == "redis"
            text = errors.MAX_CLIENTS if is_stock else self._app.too_many_connections()
            self._connection.sock.sendall(to_resp(CommandError(text)))
        elif kind is not None:
            self._engine.statistics.received_connections += 1
            self._chosen = PortConnection(self._engine, self._app, self._connection)

    def _exceeds_maxclients(self) -> bool:
        return len(self._app.clients) >= self._engine.config.number("maxclients")


class EncodedReply(NamedTuple):
    """The bytes of a reply."""

    parts: list[bytes]
    """One, except for a large reply, whose long strings are parts, so that they are not copied."""
    status: int
    """The status of a REST response with this reply, for the journal."""

    def answer(self, *, whole: bool = False) -> Answer:
        """Return the reply as an answer: the ``whole``, or only the beginning of a large one, which is
        enough for the journal.
        """
        if whole or len(self.parts) == 1:
            return Answer(b"".join(self.parts), self.status, (), RESP_TYPE)
        size = sum(map(len, self.parts))
        beginning = b"".join(part[:SHOWN_BYTES] for part in self.parts[:SHOWN_BYTES])
        return Answer(CutBytes.of(beginning[:SHOWN_BYTES], size), self.status, (), RESP_TYPE)


class PortConnection:
    """A client's connection that uses the Redis protocol.

    Most pushed messages are sent immediately. A message that the client's own command causes follows
    its reply, and in a transaction the confirmations of SUBSCRIBE are part of the reply to EXEC.
    """

    def __init__(self, engine: KVEngine, app: KVApp, connection: Connection) -> None:
        self.engine = engine
        self.app = app
        self.connection = connection
        host, at = connection.address[:2]
        self.client = (host, at)
        self.session = session = engine.session(
            engine.users.visitor(), "port", address=f"{host}:{at}"
        )
        mount = connection.mount
        session.local_address = f"{mount.host}:{mount.port}"
        session.wake = self._cut
        session.has_left = connection.has_hung_up
        session.deliver = self._push
        self.reader = CommandReader(
            lambda: session.user is not ANONYMOUS,
            lambda: engine.config.number("proto-max-bulk-len"),
            lambda: engine.config.number("client-query-buffer-limit"),
        )
        self.signal = engine.clock.signal()
        self._waiter: Waiter | None = None
        """The wait of the running command if it is blocked. Only this connection's thread sets it."""
        self.outbox = Outbox(
            connection, engine.clock, lambda: engine.config.text("client-output-buffer-limit")
        )
        self._confirmations: dict[int, bytes] = {}
        """Encoded confirmations of SUBSCRIBE to include in the reply to EXEC, by its elements."""
        self._messages: dict[int, bytes] = {}
        """Encoded messages to include in the reply to EXEC, each before one of its elements."""
        self._after_reply: list[bytes] = []
        """Encoded messages to send after the reply of the running command."""
        self._thread = 0
        """The connection's own thread, which runs its commands."""
        self._executing: int | None = None
        """The thread that is running a command of this connection, or None."""
        self._gone = False
        """Whether the client has closed its side while its command was blocked."""
        app.clients.add(self)

    # -- the connection's own thread -------------------------------------------------------------

    def run(self, begun: bytes) -> None:
        sock = self.connection.sock
        receive = self._receive_secured if isinstance(sock, ssl.SSLSocket) else sock.recv
        data = begun
        while data and self.receive(data):
            data = receive(READ_BYTES)

    def receive(self, data: bytes) -> bool:
        """Run the commands that these bytes complete; return False to close the connection."""
        self.reader.feed(data)
        if not self.connection.enter("a command of the database port"):
            return False
        self._thread = threading.get_ident()
        self.outbox.owner_will_send = True
        try:
            going_on = self._run_all()
        finally:
            self.connection.leave()
        self.outbox.send()
        return going_on

    def _receive_secured(self, size: int) -> bytes:
        # Read only when data is available: a TLS connection cannot be read while another thread
        # writes to it, and a push may be written at any time.
        sock = self.connection.sock
        assert isinstance(sock, ssl.SSLSocket)
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_READ)
            while not sock.pending() and not selector.select():
                pass
        with self.outbox.sending:
            return sock.recv(size)

    def _run_all(self) -> bool:
        """Run all complete commands; return False if the connection must be closed."""
        session, reader = self.session, self.reader
        turn_ends = monotonic() + TURN_SECONDS
        while not session.closing:
            try:
                line = reader.next()
            except ProtocolFault as fault:
                self.outbox.put(to_resp(CommandError(fault.text)))
                return False
            if line is None:
                return True
            if not self._run(line):
                return False
            # Further commands can arrive while a command is blocked.
            if not reader.pending:
                return True
            if self.outbox.waiting_bytes > SEND_BYTES:
                # A few bytes of commands can request any number of replies, so send them regularly.
                self.outbox.send()
                self.outbox.owner_will_send = True
            if monotonic() > turn_ends:
                self.engine.give_way()
                turn_ends = monotonic() + TURN_SECONDS
        return False

    # -- one command -----------------------------------------------------------------------------

    def _run(self, line: list[bytes]) -> bool:
        """Record and run a command, with faults; return False if the connection must be closed."""
        app, session = self.app, self.session
        if line[0].upper() in _OF_BROWSERS:
            app.record_malformed(400, "a line of an HTTP request in place of a Redis command")
            return False
        size = sum(map(len, line))
        call = self._open_call(line, size, app.settle())
        response: AnyResponse
        try:
            if self.engine.pauses.delays_end_us:
                self.wait_for_pause(line)
            passes_chain = self._passes_chain(line)
            if self.signal.closed:
                # The connection was closed while the command waited, before it reached the engine.
                response = ConnectionEffect("drop")
            elif passes_chain and not app.chain.is_empty:
                response = self._respond_in_chain(line, size, call)
            else:
                # Nothing can replace the reply, so it is recorded and put into the outbox at once.
                reply = partial(self._reply_at_once, call, passes_chain)
                self.perform(line, size, call, reply)
                return not session.closing
        except BaseException as error:
            response = self._render_error(app.report_bug(self._request_of(call), error))
        return self._deliver(call, response) and not session.closing

    def _open_call(self, line: list[bytes], size: int, at_us: int) -> Call:
        """Record a command without its secrets, and only the beginning of a large one."""
        whole = without_secrets(line)
        shown = whole if size <= LARGE else [word[:SHOWN_BYTES] for word in whole[:_SHOWN_WORDS]]
        call = self.app.recorder.open_call(
            "RESP",
            "/",
            body=json_of(shown),
            at_us=at_us,
            client=self.client,
            route="database-port",
            read_facts=facts_reader(self.session.db.index),
        )
        if size > LARGE:
            record_cut(call, dict.fromkeys(("request_body", *_cut_facts(whole, shown)), size))
        return call

    def _request_of(self, call: Call) -> Request:
        """Return a command as interceptors see it."""
        request = Request(call.method, call.target, NO_HEADERS, call.request_body, self.client)
        request.principal, request.route, request.call = self.session.user, call.route, call
        return request

    def _respond_in_chain(self, line: list[bytes], size: int, call: Call) -> AnyResponse:
        """Return the response of the interceptors around the engine."""
        request = self._request_of(call)
        request.is_handshake = line[0].upper() in _HANDSHAKE
        mode = self.session.reply_mode
        response = self.app.chain.run(request, partial(self._perform_once, line, size, call))
        if isinstance(response, Answer) and response.content_type != RESP_TYPE:
            return self._injected(line, response, mode)
        if isinstance(response, Answer) and response.altered:
            raise ContractError(
                f"the fault {call.fault} changes the bytes of a reply of the Redis protocol, "
                "after which the client would wait for the rest or misread later replies: limit the "
                "fault to REST requests with route=, or use truncate"
            )
        return response

    def _passes_chain(self, line: list[bytes]) -> bool:
        """Return whether a command passes the chain: its client is authenticated, or need not be."""
        if self.session.user is not ANONYMOUS:
            return True
        spec = self.engine.table.find(line)
        return spec is not None and "no_auth" in spec.flags

    def _render_error(self, error: ServiceError) -> Answer:
        """Return an internal error as a reply. It also makes a transaction fail."""
        self.session.abort_transaction()
        text = f"ERR {error.message}".encode("utf-8", "replace")
        return Answer(to_resp(CommandError(text)), error.status, (), RESP_TYPE)

    def _perform_once(self, line: list[bytes], size: int, call: Call) -> AnyResponse:
        if call.reached:
            raise ContractError(
                "a command cannot arrive twice over one connection of the Redis protocol: use "
                "lose_response, so that the client sends it again over a new connection"
            )
        answer = self.perform(line, size, call, lambda reply: reply.answer(whole=True))
        call.reached = True
        return answer

    def _injected(self, line: list[bytes], answer: Answer, mode: str) -> Answer:
        """Return a fault's response as a reply, and change a transaction as a real server would.

        An error in reply to a queued command makes EXEC fail, and EXEC always ends the transaction.
        Raises ``ContractError`` if a queued command would get any other reply.
        """
        session = self.session
        reply = reply_in(answer)
        if session.queue is not None:
            name = line[0].upper().decode("utf-8", "replace")
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
        injected = Answer(data, answer.status, (), RESP_TYPE)
        injected.altered = answer.altered
        return injected

    def _deliver(self, call: Call, response: AnyResponse) -> bool:
        """Record a response, and send it or apply a fault's effect; return False if the connection must
        be closed.
        """
        assert not isinstance(response, Stream)
        self.app.record(call, response)
        if isinstance(response, Answer):
            self.outbox.put(as_resp(response, self.session.resp))
            return True
        if response.kind == "truncate" and response.answer is not None:
            self.outbox.put(as_resp(response.answer, self.session.resp)[: response.keep])
        with contextlib.suppress(OSError):  # The client may have closed its side already.
            self.outbox.send()
        if response.kind == "hang":
            self.connection.hang()
        if response.reset:
            self.connection.reset_when_closed()
        return False

    def perform(
        self, line: list[bytes], size: int, call: Call, conclude: Callable[[EncodedReply], T]
    ) -> T:
        """Run the command of a call, which has about ``size`` bytes. Return what ``conclude`` returns
        for its encoded reply. It is called before another client gets its turn.
        """
        engine, session = self.engine, self.session
        if self.app.interruptions:
            arrival: Arrival = "alone" if session.queue is None else "queued"
            if self.app.interruptions.before(CommandSender(self.client), line, arrival):
                set_interruptions_end(call, self.app.recorder.reserve())
        mode = session.reply_mode  # which the command may change

        def block_or_conclude(reply: Reply) -> T | Waiter:
            if isinstance(reply, Blocked):
                return engine.block(session, reply)
            return conclude(self._encode(line, mode, reply))

        self._executing = self._thread
        try:
            self.app.command_limits.check(line, is_known=session.user is not ANONYMOUS)
            result = engine.reply_then(session, line, block_or_conclude)
        except CommandError as error:  # of a limit
            session.abort_transaction()
            result = block_or_conclude(error)
        finally:
            self._executing = None
        if not isinstance(result, Waiter):
            return result
        reply = self._wait(result)
        with engine.lock:
            return conclude(self._encode(line, mode, reply))

    def _reply_at_once(self, call: Call, reached: bool, reply: EncodedReply) -> None:
        """Record a reply, and put it into the outbox, so that later pushes follow it."""
        call.reached = reached
        self.app.record(call, reply.answer())
        for part in reply.parts:
            self.outbox.put(part)

    def _encode(self, line: list[bytes], mode: str, reply: Reply) -> EncodedReply:
        """Encode the reply to a command line, with the messages that belong to it. ``mode`` is that of
        CLIENT REPLY before the command.
        """
        session = self.session
        reply = self.app.with_int_text(reply)
        if self._confirmations or self._messages:
            reply = self._with_messages(reply)
        size = size_of(reply)
        reply = self.app.command_limits.size_error(size) or reply
        parts = resp_parts(reply, session.resp) if size > LARGE else [to_resp(reply, session.resp)]
        if mode == "skip" and session.reply_mode == "skip":
            if [word.upper() for word in line[:2]] != [b"CLIENT", b"REPLY"]:
                session.reply_mode = "on"
            parts = [b""]
        elif session.reply_mode == "off":
            parts = [b""]
        parts[-1] += b"".join(self._after_reply)
        self._after_reply.clear()
        return EncodedReply(parts, 400 if isinstance(reply, CommandError) else 200)

    def _with_messages(self, reply: Reply) -> Reply:
        """Return the reply to EXEC with the confirmations in place of the replies to SUBSCRIBE.

        Before 7.2, messages stand where the transaction published them, before the next reply.
        """
        confirmations, self._confirmations = self._confirmations, {}
        messages, self._messages = self._messages, {}
        if not isinstance(reply, list):
            return reply
        replies: list[Reply] = list(reply)
        for at, confirmation in confirmations.items():
            replies[at] = Encoded(confirmation)
        for at, message in messages.items():
            replies[at] = Encoded(message + to_resp(replies[at], self.session.resp))
        return replies

    def _wait(self, waiter: Waiter) -> Reply:
        """Wait until a blocking command is served, its time runs out, or its client leaves."""
        engine = self.engine
        self.outbox.send()
        self._waiter = waiter
        if self.signal.closed:
            waiter.signal.close()

        def over() -> bool | None:
            return waiter.done or self._poll_client(resume) or None

        try:
            with self.connection.watched(
                waiter.signal.close, arrived=waiter.signal.notify
            ) as resume:
                engine.clock.wait(waiter.signal, over, waiter.deadline_us)
        finally:
            self._waiter = None
            self.outbox.owner_will_send = True
            reply = engine.unblock(waiter)
        if not waiter.done and (waiter.signal.closed or self._gone):
            self.session.closing = True
        return NO_REPLY if self.session.closing else reply

    def _poll_client(self, resume: Callable[[], None]) -> bool:
        """Pass bytes that have arrived to the parser; return whether the client closed its side.

        ``resume()`` watches the connection again for further bytes.
        """
        try:
            data = self._read_arrived()
        except OSError:
            data = b""
        self._gone = data == b""
        if data:
            self.reader.feed(data)
        resume()
        return self._gone

    def _read_arrived(self) -> bytes | None:
        """Return bytes that can be read without waiting, an empty string at the end, or None."""
        sock = self.connection.sock
        if not isinstance(sock, ssl.SSLSocket):
            return sock.recv(READ_BYTES) if self.connection.has_arrived() else None
        with self.outbox.sending:
            sock.setblocking(False)
            try:
                return sock.recv(READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
            finally:
                sock.setblocking(True)

    def wait_for_pause(self, line: list[bytes]) -> None:
        engine = self.engine
        if not engine.pauses.delays(self.session, line):
            return

        def resumed() -> bool | None:
            if self._poll_client(resume):
                self.signal.close()
            return self.signal.closed or not engine.pauses.delays(self.session, line) or None

        self.outbox.send()
        # Register this wait, so that it ends like other waits if the clock is frozen.
        engine.pauses.delayed.add(self.session.id)
        try:
            arrived = engine.pauses.resumed.notify
            with self.connection.watched(self.signal.close, arrived=arrived) as resume:
                until_us = 0
                # Check again, because a later CLIENT PAUSE may have extended the wait.
                while until_us < engine.pauses.delays_end_us and not resumed():
                    until_us = engine.pauses.delays_end_us
                    engine.clock.wait(engine.pauses.resumed, resumed, until_us)
        finally:
            engine.pauses.delayed.discard(self.session.id)
        self.outbox.owner_will_send = True

    # -- calls from other threads ----------------------------------------------------------------

    def _push(self, message: list[Any]) -> None:
        """Add a message to the outbox. Called under the engine's lock."""
        session, outbox = self.session, self.outbox
        if session.in_exec and isinstance(message, Push) and message[0] not in _MESSAGES:
            encoded = to_resp(message, session.resp)
            at = session.exec_position
            self._confirmations[at] = self._confirmations.get(at, b"") + encoded
            return
        if session.closing:
            return
        if isinstance(message, Push):
            data = to_resp(message, session.connection_resp)
        else:
            data = b"".join(map(to_resp, message))
        # A message that the client itself caused follows the reply: an invalidation, or lines of
        # MONITOR, which are a list of strings.
        waiter = self._waiter
        is_own = self._executing == threading.get_ident() or (waiter is not None and waiter.done)
        is_later = (
            not isinstance(message, Push)
            or message[0] in _INVALIDATIONS
            or message[1:2] == [b"__redis__:invalidate"]
        )
        if session.in_exec and not is_later:
            # It is a message that the transaction published.
            if not self.engine.table.knows[MESSAGES_FOLLOW]:
                at = session.exec_position
                self._messages[at] = self._messages.get(at, b"") + data
                return
            is_later = True
        if is_own and is_later and not self.engine.tracking.evicting:
            self._after_reply.append(data)
            return
        outbox.push(data)
        if outbox.exceeds_limits():
            self._cut()
        elif not outbox.owner_will_send:
            outbox.send_later()

    def _cut(self) -> None:
        """Close the connection. Another thread can call this, for example to run CLIENT KILL."""
        self.session.closing = True
        self.wake()
        if not self.outbox.owner_will_send:
            self.connection.shut_down()

    def wake(self) -> None:
        self.signal.close()
        waiter = self._waiter
        if waiter is not None:
            waiter.signal.close()

    def renew(self) -> bool:
        """End the client's transaction. Its database, name, protocol and user stay, because a client
        chooses them once per connection. One that waits for messages must connect again.
        """
        session = self.session
        with self.engine.lock:
            waits = session.monitor is not None or session.tracking is not None
            if waits or any(session.subscriptions.values()) or self.reader.pending:
                return False
            session.discard_transaction()
            session.reply_mode = "on"
        return True

    def close(self) -> None:
        self.app.clients.discard(self)
        session = self.session
        session.deliver = session.wake = session.has_left = None
        self.signal.close()
        self.engine.abandon(session)


def _cut_facts(line: list[bytes], shown: list[bytes]) -> list[str]:
    """Return the names of the facts that differ if only a part of a command is shown."""
    whole, part = (
        facts_of([[word.decode("latin-1") for word in words]]) for words in (line, shown)
    )
    return [name for name in whole if whole[name] != part[name]]
