"""List commands, apart from the scenarios: what a blocking command waits for."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import Blocked
from tests.kv.conftest import Run


def test_a_blocked_command_has_keys_and_a_time_limit(run: Run) -> None:
    waiting = run.other(interface="port")
    for line, keys, timeout_ms in (
        ("BLPOP a l 5", [b"a", b"l"], 5000),
        ("BLMOVE a b LEFT RIGHT 0.001", [b"a"], 1),
    ):
        blocked = waiting(line)
        assert isinstance(blocked, Blocked)
        assert (blocked.keys, blocked.timeout_ms) == (keys, timeout_ms)
