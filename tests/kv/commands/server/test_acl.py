"""ACL commands: users, their REST tokens, categories, dry runs and the log."""

from __future__ import annotations

import re

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run

redis = pytest.mark.dialect("redis")


def facts(reply: list[object]) -> dict[object, object]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


class TestSetuser:
    @redis
    def test_stock_changes_default(self, run: Run, engine: KVEngine) -> None:
        assert run("ACL USERS") == [b"default"]
        assert run("ACL LIST") == [b"user default on nopass ~* &* +@all"]
        run("ACL SETUSER default >pw -flushall")
        other = run.other(user=engine.users.visitor(), interface="port")
        assert other.error("PING") == "NOAUTH Authentication required."
        assert other("AUTH pw") == OK
        assert other.error("FLUSHALL").endswith("permissions to run the 'flushall' command")
        assert run.error("ACL DELUSER default") == "ERR The 'default' user cannot be removed"

    @redis
    @pytest.mark.parametrize(
        ("rules", "shown"),
        [
            ("+@all", "+@all"), ("+@read -get", "-@all +@read -get"),
            ("+@read -get +get", "-@all +@read"), ("+get +set -get", "-@all +set"),
            ("+@all -@dangerous", "+@all -@dangerous"),
            ("-@all +@hash +@string", "-@all +@string +@hash"),
            ("+client -client|kill", "-@all +client -client|kill"),
            ("+client|id +config|get -config", "-@all +client|id"),
            ("+select|0", "-@all +select|0"), ("+select|0 +select", "-@all +select"),
            ("+@read +@write -@all", "-@all"), ("allcommands -get", "+@all -get"),
            ("+GET +@READ", "-@all +@read"), ("nocommands", "-@all"),
        ],
    )  # fmt: skip
    def test_commands_as_they_are_shown(self, run: Run, rules: str, shown: str) -> None:
        run("ACL", "SETUSER", "u", *rules.split())
        assert facts(run("ACL GETUSER u"))[b"commands"] == shown.encode()
        # The described rules recreate the user.
        run("ACL", "SETUSER", "v", *shown.split())
        assert run.engine.users["u"].root.commands == run.engine.users["v"].root.commands


class TestPasswords:
    def test_generated(self, run: Run) -> None:
        assert re.fullmatch(b"[0-9a-f]{64}", run("ACL GENPASS"))
        assert re.fullmatch(b"[0-9a-f]{2}", run("ACL GENPASS 1"))
        assert re.fullmatch(b"[0-9a-f]{4}", run("ACL GENPASS 9"))
        assert run("ACL GENPASS") != run("ACL GENPASS")

    @redis
    def test_generated_by_redis(self, run: Run) -> None:
        assert re.fullmatch(b"[0-9a-f]{1}", run("ACL GENPASS 1"))
        assert re.fullmatch(b"[0-9a-f]{3}", run("ACL GENPASS 9"))

    def test_a_token_for_a_user(self, run: Run) -> None:
        token = run("ACL GENTOKEN ann")
        assert re.fullmatch(b"[0-9a-f]{80}", token)
        password = "correct horse battery"
        assert run("ACL", "GENTOKEN", "ann", password) == run("ACL", "GENTOKEN", "ann", password)
        run("ACL", "SETUSER", "ann", "on", b">" + token)
        assert run("ACL", "RESTTOKEN", "ann", token)

    def test_the_rules_of_the_read_only_user(self, run: Run) -> None:
        default_ro = run("ACL LIST")[1]
        assert default_ro.startswith(b"user default_ro on ~* &* -@all ")
        assert {b"+@read", b"-keys", b"-scan"} <= set(default_ro.split())


def test_a_rest_token_lives_with_user_and_password(run: Run, engine: KVEngine) -> None:
    run("ACL SETUSER ann on >pw >other")
    token = run("ACL RESTTOKEN ann pw").decode()
    assert engine.users.holder_of(token) is engine.users["ann"]
    assert engine.users.holder_of("guess") is None
    run("ACL SETUSER ann off")
    assert engine.users.holder_of(token) is None
    run("ACL SETUSER ann on <pw")
    assert engine.users.holder_of(token) is None
    run("ACL SETUSER ann >pw")
    assert engine.users.holder_of(token) is not None
    run("ACL DELUSER ann")
    run("ACL SETUSER ann on >pw")
    assert engine.users.holder_of(token) is None


@redis
class TestLog:
    def entries(self, run: Run, *count: int) -> list[dict[object, object]]:
        return [facts(entry) for entry in run("ACL", "LOG", *count)]

    def test_rejected(self, run: Run) -> None:
        run("ACL", "SETUSER", "v", "on", ">pw", "~a*", "&c*", "+get", "+publish", "+eval", "+multi")
        other = run.other(interface="port", address="127.0.0.1:5001")
        other("AUTH v pw")
        assert other.error("AUTH nobody pw").startswith("WRONGPASS")
        assert other.error("HELLO 2 AUTH v no").startswith("WRONGPASS")
        other.error("DEL a")
        other.error("GET z")
        other.error("PUBLISH z m")
        other.error("EVAL", "return redis.call('get', 'z')", 0)
        other("MULTI")
        other.error("GET z")
        shown = [
            (entry[b"reason"], entry[b"context"], entry[b"object"], entry[b"username"])
            for entry in self.entries(run)
        ]
        assert shown == [
            (b"key", b"multi", b"z", b"v"),
            (b"key", b"lua", b"z", b"v"),
            (b"channel", b"toplevel", b"z", b"v"),
            (b"key", b"toplevel", b"z", b"v"),
            (b"command", b"toplevel", b"del", b"v"),
            (b"auth", b"toplevel", b"HELLO", b"v"),
            (b"auth", b"toplevel", b"AUTH", b"nobody"),
        ]
        info = self.entries(run, 1)[0][b"client-info"]
        assert isinstance(info, bytes)
        assert b"addr=127.0.0.1:5001 " in info

    def test_counting_and_age(self, run: Run, clock: Timekeeper) -> None:
        run("ACL SETUSER v on nopass +get")
        other = run.other()
        other("AUTH v x")
        for _ in range(3):
            other.error("GET z")
            clock.advance(1.5)
        entry = self.entries(run)[0]
        assert (entry[b"count"], entry[b"age-seconds"]) == (3, 1.5)
        clock.advance(61)
        other.error("GET z")
        assert [entry[b"count"] for entry in self.entries(run)] == [1, 3]
        assert len(self.entries(run, 1)) == 1
        assert run("ACL LOG RESET") == OK
        assert self.entries(run) == []

    def test_it_is_as_long_as_configured(self, run: Run) -> None:
        run("CONFIG SET acllog-max-len 2")
        other = run.other()
        for name in ("a", "b", "c"):
            other.error("AUTH", name, "x")
        assert [entry[b"username"] for entry in self.entries(run)] == [b"c", b"b"]
