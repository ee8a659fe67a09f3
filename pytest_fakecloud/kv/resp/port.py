"""The database port, which serves the Redis protocol and REST over plain HTTP for the same data.

The first bytes of a connection determine its protocol (specification). The hub's thread serves all
connections with the Redis protocol, each of which has a session, and an outbox for replies and
pushes. As for a REST request, every command has a call in the journal, whose body is the JSON of the
command line, and can be affected by faults (decided here):

- As over REST, faults, interruptions and limits concern only clients that are authenticated. Of the
  others, they concern AUTH, HELLO, QUIT and RESET; any other command is rejected without them.
- Faults skip the commands of a handshake, which clients send by themselves, unless they name them.
- ``respond(status, body)`` sends an error, or for ``{"result": …}`` and other bodies of a success a
  reply (``answers``).
- No fault can deliver a command twice, because clients repeat a command only over a new connection.
- ``drop``, ``lose_response``, ``truncate``, ``hang`` and ``down`` affect a connection as they affect an
  HTTP connection, and ``delay`` and ``call`` work as they do for HTTP.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Literal, TypeAlias

from ...core.calls import NO_HEADERS, Call
from ...core.errors import ContractError
from ...core.threads import step_aside
from ...core.timers import monotonic
from ...http.hub import Mount
from ...http.loop import SEND_BYTES
from ...http.messages import Answer, AnyResponse, ConnectionEffect, Request
from ...http.ports import is_free
from ...http.server import Connection, HTTPHandler
from .. import errors
from ..acl import ANONYMOUS
from ..engine.engine import KVEngine
from ..engine.replication import Node, NodeClient
from ..engine.sentinel import Sentinel
from ..engine.sessions import Waiter
from ..errors import CommandError
from ..interruptions import CommandSender, Grouping
from ..model import TURN_SECONDS
from ..reply import NO_REPLY, Map, Push, Reply, to_resp
from ..routes import KVApp
from ..table.versions import MESSAGES_FOLLOW
from .answers import answer_of, internal_error, with_replies
from .records import LARGE, beginning_of, open_call
from .wire import CommandReader, ExecMessages, Outbox, ProtocolFault, protocol_of

_TLS = b"\x16\x03"
"""The first bytes of a TLS connection."""
_OF_BROWSERS = frozenset({b"POST", b"HOST:"})
"""The first words of lines of HTTP requests, at which a real server closes the connection."""
Place: TypeAlias = Literal["instead of a reply", "before a reply", "behind", "next"]
"""The place of a message: in the reply to EXEC, instead of the reply to the running command or before
it; behind the reply to the running command; or next, behind what has been sent.
"""


def tell_free_ports(engine: KVEngine, mount: Mount) -> None:
    """Let the engine of a port find out which other ports are free."""
    # Keep no reference to the mount, which refers to the engine.
    host, own = mount.host, mount.port
    engine.can_listen = lambda port: port == own or is_free(host, port)


class PortHandler:
    """Waits for the first bytes of a connection, and passes it on to the handler of their protocol."""

    is_unfinished = False

    def __init__(
        self, engine: KVEngine, app: KVApp, node: Node | None, connection: Connection
    ) -> None:
        self._engine = engine
        self._app = app
        self._node = node
        self._connection = connection
        self._begun = b""
        """The first bytes, which do not determine the protocol yet."""

    def receive(self, data: bytes) -> bool:
        """Look at bytes; return False to close the connection, also that of one client too many."""
        begun = self._begun = self._begun + data
        if begun.startswith(_TLS):
            self._app.record_malformed(
                400, "received TLS, but the database port uses none: use redis://"
            )
            return False
        protocol = protocol_of(begun)
        if protocol is None:
            return True
        if protocol == "http":
            return self._connection.switch(HTTPHandler, begun)
        if self._app.is_full() or self._exceeds_maxclients():
            self._send_max_clients()
            return False
        self._engine.statistics.received_connections += 1
        self._connection.handler = client = self._client()
        return client.receive(begun)

    def _client(self) -> PortConnection:
        """Return what runs the commands of a client of the Redis protocol."""
        if self._node is None or self._engine.topology is None:
            return PortConnection(self._engine, self._app, self._connection)
        client = NodeConnection(self._engine, self._app, self._connection)
        client.session.node = NodeClient(self._engine.topology, self._node)
        return client

    def renew(self) -> bool:
        return not self._begun

    def end(self) -> None:
        """Do nothing, because nothing waits."""

    def close(self) -> None:
        """Do nothing, because the client has no session."""

    def _send_max_clients(self) -> None:
        self._engine.statistics.rejected_connections += 1
        is_stock = self._engine.dialect == "redis"
        text = errors.MAX_CLIENTS if is_stock else self._app.too_many_connections()
        self._connection.write(to_resp(CommandError(text)))

    def _exceeds_maxclients(self) -> bool:
        return len(self._app.clients) >= self._engine.config.number("maxclients")


class PortConnection:
    """A client's connection that uses the Redis protocol: its session, and what runs its commands. It is
    also the ``ClientConnection`` through which the engine reaches the client, in any thread.
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
        self.outbox = Outbox(
            connection, engine.clock, lambda: engine.config.text("client-output-buffer-limit")
        )
        self.reserve = self.outbox.reserve
        session.connection = self
        self.reader = CommandReader(
            lambda: session.is_known,
            lambda: engine.config.number("proto-max-bulk-len"),
            lambda: engine.config.number("client-query-buffer-limit"),
        )
        self.is_unfinished = False
        self.signal = engine.clock.signal()
        """Wakes the connection's thread if its command waits. ``end()`` closes it, so that all waits are
        over.
        """
        self._in_exec: ExecMessages | None = None
        """The messages in the reply to the running EXEC; None without any."""
        self._is_executing = False
        """Whether the connection's thread is running a command."""
        app.clients.add(self)

    # -- the thread that serves the connection -----------------------------------------------------

    def receive(self, data: bytes) -> bool:
        """Run the commands that these bytes complete, until the turn is over; return False to close the
        connection.
        """
        session, reader = self.session, self.reader
        reader.feed(data)
        self.is_unfinished = False
        turn_ends = monotonic() + TURN_SECONDS
        while not session.closing:
            try:
                line = reader.next()
            except ProtocolFault as fault:
                self.outbox.put(to_resp(CommandError(fault.text)))
                self.end()
                break
            if line is None:
                break
            self._exchange(line)
            if not reader.pending:
                break
            if self._has_had_its_turn(turn_ends):
                self.is_unfinished = True
                break
        return not session.closing

    def _has_had_its_turn(self, turn_ends: float) -> bool:
        """Return whether other clients get their turn before the next command of a long pipeline."""
        if monotonic() > turn_ends:
            self.engine.give_way()
            return True
        # A few bytes of commands can request any number of replies, so send them regularly.
        return self.connection.unsent_bytes > SEND_BYTES

    # -- one command -----------------------------------------------------------------------------

    def _exchange(self, line: list[bytes]) -> None:
        """Record and run a command, with faults, in the steps of ``App.respond``."""
        app, engine, session = self.app, self.engine, self.session
        if line[0].upper() in _OF_BROWSERS:
            app.record_malformed(400, "a line of an HTTP request in place of a Redis command")
            self.end()
            return
        at_us = app.settle() if engine.clock.state_timers else engine.clock.now_us()
        size, node = sum(map(len, line)), session.node
        call = open_call(
            app.recorder,
            line,
            size,
            at_us,
            client=self.client,
            database=session.db.index,
            node=0 if node is None else node.node.number,
        )
        session.call = call
        if session.reply_mode != "on":
            session.begin_command()
        response: AnyResponse
        try:
            if engine.pauses.delays_end_us and self._is_closed_in_pause(line):
                response = ConnectionEffect("drop")  # before the command reached the engine
            elif session.user is ANONYMOUS and not session.may_send(line):
                response = self._answer(self._run(line))
            elif app.chain.members:
                perform = partial(self._perform_once, line, call)
                response = app.chain.run(self._request_of(call), perform)
                response = with_replies(session, line, call, response)
            else:
                response = self._perform(line, size, call)
        except BaseException as error:
            response = internal_error(session, app.report_bug(self._request_of(call), error))
        self._deliver(call, response)

    def _request_of(self, call: Call) -> Request:
        """Return a command as interceptors see it."""
        request = Request(call.method, call.target, NO_HEADERS, call.request_body, self.client)
        request.principal, request.route, request.call = self.session.user, call.route, call
        return request

    def _perform_once(self, line: list[bytes], call: Call) -> AnyResponse:
        """Run the command of a call: the end of the chain."""
        if call.reached:
            raise ContractError(
                "a command cannot arrive twice over one connection of the Redis protocol: use "
                "lose_response, so that the client sends it again over a new connection"
            )
        return self._perform(line, sum(map(len, line)), call)

    def _perform(self, line: list[bytes], size: int, call: Call) -> AnyResponse:
        """Run the command of a call, unless its ``size`` in bytes or a rate exceeds a limit."""
        app, session = self.app, self.session
        if app.interruptions:
            grouping: Grouping = "queued" if session.is_queuing else "alone"
            app.interrupt(call, CommandSender(self.client), line, grouping)
        limits = app.command_limits
        if (limits.windows or size > limits.largest) and (error := limits.check(line)) is not None:
            session.abort_transaction()
            answer = self._answer(error)
        else:
            answer = self._answer(self._run(line))
        call.reached = True
        return answer

    def _run(self, line: list[bytes]) -> Reply:
        """Run a command, and wait if it blocks; return its reply."""
        self._is_executing = True
        try:
            result = self.engine.reply_to(self.session, line, self.signal)
        finally:
            self._is_executing = False
        return self._wait(result) if isinstance(result, Waiter) else result

    def _answer(self, reply: Reply) -> Answer:
        """Return a reply as it is sent."""
        if self._in_exec is not None:
            reply = self._in_exec.fill(reply, self.session.resp)
            self._in_exec = None
        answer, app = answer_of(self.session, reply), self.app
        # The strings of a reply are not larger than its bytes.
        if len(answer.body) > app.command_limits.largest or app.settings.int_text == "int":
            return answer_of(self.session, app.as_sent(reply))
        return answer

    def _deliver(self, call: Call, response: AnyResponse) -> None:
        """Record a response, and send it, unless CLIENT REPLY makes the server silent, or apply the
        effect of a fault, which ends the connection.
        """
        is_silent = self.session.reply_mode in ("off", "skip")
        if isinstance(response, Answer):
            if is_silent:
                response.body = b""
            # Another thread may send the reply as soon as it is in the outbox, so record it first.
            is_large = len(response.body) > LARGE
            self.app.record(call, beginning_of(response) if is_large else response)
            self.outbox.put(response.body)
            return
        assert isinstance(response, ConnectionEffect)
        self.app.record(call, response)
        if response.kind == "truncate" and response.answer is not None and not is_silent:
            self.outbox.put(response.answer.body[: response.keep], is_last=True)
        if response.kind == "hang":
            self.connection.hang()
        if response.reset:
            self.connection.reset_when_closed()
        self.end()

    def _wait(self, waiter: Waiter) -> Reply:
        """Wait until a blocking command is served, its time runs out, or its client leaves."""
        engine = self.engine
        step_aside()
        try:
            engine.clock.wait(self.signal, lambda: waiter.done or None, waiter.deadline_us)
        finally:
            reply = engine.unblock(waiter)
        return NO_REPLY if self.session.closing else reply

    def _is_closed_in_pause(self, line: list[bytes]) -> bool:
        """Wait for the end of CLIENT PAUSE; return whether the connection has been closed meanwhile."""
        engine = self.engine
        if not engine.pauses.delays(self.session, line):
            return self.session.closing

        def resumed() -> bool | None:
            return self.session.closing or not engine.pauses.delays(self.session, line) or None

        step_aside()
        # Register this wait, so that it ends like other waits if the clock is frozen.
        engine.pauses.delayed.add(self.session.id)
        try:
            until_us = 0
            # Check again, because a later CLIENT PAUSE may have extended the wait.
            while until_us < engine.pauses.delays_end_us and not resumed():
                until_us = engine.pauses.delays_end_us
                engine.clock.wait(engine.pauses.resumed, resumed, until_us)
        finally:
            engine.pauses.delayed.discard(self.session.id)
        return self.session.closing

    # -- calls from other threads ----------------------------------------------------------------

    def push(self, message: list[Any]) -> None:
        """Add a message to the outbox, or to the reply to EXEC: where real servers have it. Called under
        the engine's lock.
        """
        session, outbox = self.session, self.outbox
        if session.closing:
            return
        place = self._place_of(message)
        if place in ("instead of a reply", "before a reply"):
            in_exec = self._in_exec = self._in_exec or ExecMessages()
            if place == "instead of a reply":
                in_exec.instead[session.exec_position] += to_resp(message, session.resp)
            else:
                in_exec.before[session.exec_position] += self._encoded(message)
        elif place == "behind":
            outbox.push(self._encoded(message), behind=True)
        else:
            outbox.push(self._encoded(message))
            if outbox.exceeds_limits():
                self.end()
                self.connection.cut()

    def _place_of(self, message: list[Any]) -> Place:
        """Return where real servers have a message."""
        in_exec = self.session.in_exec
        kind = message.kind if isinstance(message, Push) else "monitor"
        if kind == "reply":
            return "instead of a reply" if in_exec else "next"
        if kind == "message" and in_exec:
            # One that a transaction publishes to its own client follows the reply to EXEC; before Redis
            # 7.2, it stands in this reply, before that to the command that follows.
            return "behind" if self.engine.table.knows[MESSAGES_FOLLOW] else "before a reply"
        if kind in ("message", "eviction"):
            return "next"
        # An invalidation or a line of MONITOR that the client's own command causes follows the reply to
        # it, but not the invalidation of a key that was evicted before the command.
        is_own = self._is_executing and self.connection.worker == threading.get_ident()
        return "behind" if is_own else "next"

    def _encoded(self, message: list[Any]) -> bytes:
        if isinstance(message, Push):
            return to_resp(message, self.session.connection_resp)
        return b"".join(map(to_resp, message))

    def has_left(self) -> bool:
        """Return whether the client has closed its side."""
        return self.connection.has_hung_up()

    def cut(self) -> None:
        """Close the connection. Another thread can call this, for example to run CLIENT KILL."""
        self.end()
        self.connection.cut()

    def end(self) -> None:
        """End the connection: after the reply to the command that runs, or at once if it waits. Called
        in any thread, also if the client has closed its side during a wait.
        """
        self.session.closing = True
        self.signal.close()
        self.engine.pauses.resumed.notify()

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
        session.connection = None
        self.engine.abandon(session)


class NodeConnection(PortConnection):
    """A client's connection to one of several nodes, which have faults of their own."""

    def _perform(self, line: list[bytes], size: int, call: Call) -> AnyResponse:
        faults = self.app.node_faults
        if faults is None or not faults.is_active:
            return super()._perform(line, size, call)
        request = self._request_of(call)
        effect = faults.before(self.session, request, line)
        if isinstance(effect, CommandError):
            return self._answer(effect)
        if effect is not None:
            self._end_other_connections()
            return effect
        answer = super()._perform(line, size, call)
        faults.after(request)
        return answer

    def _end_other_connections(self) -> None:
        """End those of all other clients of this node, because it fails."""
        own = self.session.node
        for client in list(self.app.clients):
            other = client.session.node
            is_here = own is not None and other is not None and other.node is own.node
            if is_here and client is not self:
                client.cut()


class SentinelHandler(PortHandler):
    """Waits for the first bytes of a connection to a sentinel."""

    def __init__(self, sentinel: Sentinel, app: KVApp, connection: Connection) -> None:
        super().__init__(sentinel.engine, app, None, connection)
        self._sentinel = sentinel

    def _client(self) -> PortConnection:
        return SentinelConnection(self._sentinel, self._app, self._connection)


class SentinelConnection(PortConnection):
    """A client's connection to a sentinel."""

    def __init__(self, sentinel: Sentinel, app: KVApp, connection: Connection) -> None:
        super().__init__(sentinel.engine, app, connection)
        self._sentinel = sentinel

    def _run(self, line: list[bytes]) -> Reply:
        reply = self._sentinel.reply_to(self.session, line)
        if reply is None:
            reply = super()._run(line)
            if line[0].upper() == b"HELLO" and isinstance(reply, Map):
                return _of_sentinel(reply)
        return reply


def _of_sentinel(greeting: Map) -> Map:
    """Return the reply to HELLO as of a sentinel, which has no role."""
    pairs = dict(zip(greeting[::2], greeting[1::2], strict=True))
    del pairs[b"role"]
    pairs[b"mode"] = b"sentinel"
    return Map([part for pair in pairs.items() for part in pair])
