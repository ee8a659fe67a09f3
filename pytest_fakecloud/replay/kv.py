"""The replay of a key-value server."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..cloud.fake import Context, Fake
from ..core.calls import Action, Call, ReplayedScript, on_connection
from ..kv.accesses import text_of
from ..kv.acl import tester
from ..kv.engine.sessions import Waiter
from ..kv.errors import CommandError
from ..kv.reply import Reply, to_json, to_resp
from ..kv.table import kinds
from ..kv.table.groups import GROUPS
from ..kv.table.registry import CommandSpec
from . import journal


class ReplayedKVServer(journal.ReplayedFake):
    """A replayed key-value server, with its database connections and their blocked commands."""

    def __init__(self, real: Fake, context: Context, time: journal.Time) -> None:
        super().__init__(real, context, time)
        self._sessions: dict[object, Any] = {}
        self._waiting: list[tuple[Call, Any]] = []
        self.script_runs: dict[int, list[ReplayedScript]] = defaultdict(list)
        self._number = 0
        engine = self.fake._engine
        engine.listeners.add(self._begin_script)
        engine.scripting.listeners.add(self._note_command)

    def _begin_script(self, session: Any, spec: Any, line: Sequence[bytes]) -> None:
        if spec.name in kinds.SCRIPTS and not session.in_script:
            self.script_runs[self._number].append(ReplayedScript(list(map(text_of, line)), []))

    def _note_command(self, line: list[bytes], reply: Reply) -> None:
        is_error = isinstance(reply, CommandError)
        answer = {"error" if is_error else "result": to_json(reply)}
        self.script_runs[self._number][-1].commands.append((list(map(text_of, line)), answer))

    def replay_action(self, action: Action) -> None:
        self._number = action.number
        super().replay_action(action)

    def replay_call(self, call: Call) -> None:
        """Replay a request, or a command of the database port in its connection's session."""
        self._number = call.number
        if not on_connection(call):
            super().replay_call(call)
            return
        if call.outcome in journal.UNFINISHED or (call.fault is not None and not call.reached):
            return
        engine = self.fake._engine
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
                self._compare(call, self.fake._engine.unblock(waiter), waiter.session)

    def _compare(self, call: Call, reply: Any, session: Any) -> None:
        if call.fault is not None or "response_body" in call.cut:
            return
        if to_resp(self.fake._app.as_sent(reply), session.resp) != call.response_body:
            raise journal.Inexact(
                f"command {call.number} received a different answer in the replay"
            )


def _is_about_data(spec: CommandSpec) -> bool:
    """Return whether replies of a command depend on data, and not on connections or the process."""
    group = GROUPS[spec.group]
    return group.has_data or group.runs_commands or spec.readonly or spec.write


REPLAYED = ReplayedKVServer
