"""The replay of a key-value server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..cloud.fake import Context, Fake, core_of
from ..core.calls import Action, Call, on_connection
from ..kv.acl import tester
from ..kv.engine.replication import Node, NodeClient
from ..kv.engine.sessions import Waiter
from ..kv.faults import KINDS as NODE_FAULTS
from ..kv.faults import arrive, happen_to_nodes
from ..kv.reply import to_resp
from ..kv.resp.records import words_of
from ..kv.table.groups import GROUPS
from ..kv.table.registry import CommandSpec
from . import journal


class ReplayedKVServer(journal.ReplayedFake):
    """A replayed key-value server, with its database connections and their blocked commands."""

    fault_actions = frozenset({"remove_fault", "clear_faults"})

    def __init__(self, real: Fake, context: Context, time: journal.Time) -> None:
        super().__init__(real, context, time)
        self._sessions: dict[object, Any] = {}
        self._of_unknown_protocol: set[Any] = set()
        """The sessions of connections whose version of the protocol no entry tells."""
        self._waiting: list[tuple[Call, Any]] = []
        self._migrating: set[int] = set()
        """The slots of a cluster that a fault migrates."""
        self._before = 0
        """The number of executed commands that are not about data, before the last call."""
        nodes, real_nodes = _nodes_of(self.fake), _nodes_of(real)
        for node, real_node in zip(nodes, real_nodes, strict=True):
            node.host, node.port = real_node.host, real_node.port

    def replay_action(self, action: Action) -> None:
        super().replay_action(action)
        if action.kind in self.fault_actions:
            self._end_migrations()

    def replay_call(self, call: Call) -> None:
        """Replay a request, or a command of the database port in its connection's session."""
        self._before = self._without_data()
        if not on_connection(call):
            super().replay_call(call)
            return
        if call.outcome in journal.UNFINISHED:
            return
        engine = core_of(self.fake).engine
        if engine.topology is not None and "node" not in call.facts:
            return  # a command of a sentinel, which has no data
        session = self._session_of(call)
        words = words_of(call)
        if engine.topology is not None:
            self._repeat_faults(call, session, words)
        if call.fault is not None and not call.reached:
            return
        if words[0].upper() == b"HELLO":
            words = words[:2]
        # The database port reads the clock once before it records the call.
        self.time.expect(call.at_us, number=call.number)
        self.time.settle()
        reply = engine.reply_to(session, words, engine.clock.signal())
        if isinstance(reply, Waiter):
            self._waiting.append((call, reply))
            return
        if any("arrives" in fault for fault in call.faults):
            self._end_migrations()
        if self._repeats_answer():
            self._compare(call, reply, session)

    def _repeats_answer(self) -> bool:
        return self._without_data() == self._before

    def _without_data(self) -> int:
        """Return the number of executed commands that are not about data, also by scripts and EXEC."""
        counts = core_of(self.fake).engine.statistics.commands.items()
        return sum(count.calls for spec, count in counts if not _is_about_data(spec))

    def _session_of(self, call: Call) -> Any:
        """Return the session of a call's connection, at the node that has received it."""
        session = self._sessions.get(call.client)
        if session is None:
            engine = core_of(self.fake).engine
            # Only sessions of the port may block.
            session = engine.session(tester(self.fake._dialect), interface="port")
            self._sessions[call.client] = session
            # The connection can be older than the copied data.
            session.db = engine.databases[call.facts.get("database", 0)]
            protocol = self._protocol_before(call)
            if protocol is None:
                self._of_unknown_protocol.add(session)
            else:
                session.resp = protocol
            if engine.topology is not None:
                node = engine.topology.nodes[call.facts["node"] - 1]
                session.node = NodeClient(engine.topology, node)
        return session

    def _protocol_before(self, call: Call) -> int | None:
        """Return the version of the protocol in which a call's connection got replies before it, by its
        last HELLO; None without one, because the journal may have dropped it.
        """
        for entry in reversed(self.real.journal.entries):
            if (
                isinstance(entry, Call)
                and on_connection(entry)
                and entry.client == call.client
                and entry.number < call.number
                and not entry.response_body.startswith(b"-")
            ):
                words = json.loads(entry.request_body)
                if words[0].upper() == "HELLO" and len(words) > 1:
                    return int(words[1])
        return None

    def _repeat_faults(self, call: Call, session: Any, words: list[bytes]) -> None:
        """Let the faults of a call happen to the nodes again."""
        nodes = core_of(self.fake).engine.topology.nodes
        for fault in call.faults:
            kind = fault["kind"]
            if kind in NODE_FAULTS:
                slot, target = int(fault["slot"]), nodes[int(fault["node"]) - 1]
                happen_to_nodes(kind, session, words, slot, target)
                if kind == "ask":
                    self._migrating.add(slot)

    def _end_migrations(self) -> None:
        if self._migrating:
            arrive(core_of(self.fake).engine, self._migrating)
            self._migrating.clear()

    def end_waits(self) -> None:
        for call, waiter in list(self._waiting):
            if waiter.done or waiter.deadline_us <= self.time.now_us():
                self._waiting.remove((call, waiter))
                self._compare(call, core_of(self.fake).engine.unblock(waiter), waiter.session)

    def _compare(self, call: Call, reply: Any, session: Any) -> None:
        if call.fault is not None or "response_body" in call.cut:
            return
        sent = core_of(self.fake).app.as_sent(reply)
        protocols = (2, 3) if session in self._of_unknown_protocol else (session.resp,)
        fitting = [version for version in protocols if to_resp(sent, version) == call.response_body]
        if len(fitting) == 1:
            # Most answers are the same in both versions. The first that is not tells which it is.
            session.resp = fitting[0]
            self._of_unknown_protocol.discard(session)
        elif not fitting:
            raise journal.Inexact(
                f"command {call.number} received a different answer in the replay"
            )


def _nodes_of(fake: Any) -> Sequence[Node]:
    """Return the nodes of a server, none if it has one address."""
    topology = core_of(fake).engine.topology
    return () if topology is None else topology.nodes


def _is_about_data(spec: CommandSpec) -> bool:
    """Return whether replies of a command depend on data, and not on connections or the process."""
    group = GROUPS[spec.group]
    return group.has_data or group.runs_commands or spec.readonly or spec.write


REPLAYED = ReplayedKVServer
