"""The replay of a key-value server."""

from __future__ import annotations

import json
from typing import Any

from ..cloud.fake import Context, Fake, core_of
from ..core.calls import Call, on_connection
from ..kv.acl import tester
from ..kv.engine.sessions import Waiter
from ..kv.reply import to_resp
from ..kv.table.groups import GROUPS
from ..kv.table.registry import CommandSpec
from . import journal


class ReplayedKVServer(journal.ReplayedFake):
    """A replayed key-value server, with its database connections and their blocked commands."""

    def __init__(self, real: Fake, context: Context, time: journal.Time) -> None:
        super().__init__(real, context, time)
        self._sessions: dict[object, Any] = {}
        self._waiting: list[tuple[Call, Any]] = []

    def replay_call(self, call: Call) -> None:
        """Replay a request, or a command of the database port in its connection's session."""
        if not on_connection(call):
            super().replay_call(call)
            return
        if call.outcome in journal.UNFINISHED or (call.fault is not None and not call.reached):
            return
        engine = core_of(self.fake).engine
        session = self._sessions.get(call.client)
        if session is None:
            # Only sessions of the port may block.
            session = engine.session(tester(self.fake._dialect), interface="port")
            self._sessions[call.client] = session
        words = [word.encode("utf-8", "surrogatepass") for word in json.loads(call.request_body)]
        if words[0].upper() == b"HELLO":
            words = words[:2]
        # The database port reads the clock once before it records the call.
        self.time.expect(call.at_us, number=call.number)
        self.time.settle()
        reply = engine.reply_to(session, words, engine.clock.signal())
        if isinstance(reply, Waiter):
            self._waiting.append((call, reply))
            return
        spec = engine.table.find(words)
        if spec is None or _is_about_data(spec):
            self._compare(call, reply, session)

    def end_waits(self) -> None:
        for call, waiter in list(self._waiting):
            if waiter.done or waiter.deadline_us <= self.time.now_us():
                self._waiting.remove((call, waiter))
                self._compare(call, core_of(self.fake).engine.unblock(waiter), waiter.session)

    def _compare(self, call: Call, reply: Any, session: Any) -> None:
        if call.fault is not None or "response_body" in call.cut:
            return
        if to_resp(core_of(self.fake).app.as_sent(reply), session.resp) != call.response_body:
            raise journal.Inexact(
                f"command {call.number} received a different answer in the replay"
            )


def _is_about_data(spec: CommandSpec) -> bool:
    """Return whether replies of a command depend on data, and not on connections or the process."""
    group = GROUPS[spec.group]
    return group.has_data or group.runs_commands or spec.readonly or spec.write


REPLAYED = ReplayedKVServer
