"""ACL users over REST: their tokens, and their rules compared with a real server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import copy
from typing import Any

import httpx
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.acl import AclUser, KeyPattern, apply_rules, describe_user, make_token
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.budget import cases
from tests.kv.comparison.faces import InProcess
from tests.kv.comparison.servers import RealServer, running


def ask(server: KVServer, token: str, *line: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(server.url, json=list(line), headers=headers)
    return answer.json().get("result", (answer.status_code, answer.json().get("error")))


def noperm(command: str) -> tuple[int, str]:
    text = f"NOPERM this user has no permissions to run the '{command}' command or its subcommand"
    return 400, text


class TestUserTokens:
    def make(self, server: KVServer, *rules: str) -> str:
        assert (
            ask(server, server.token, "ACL", "SETUSER", "ann", "on", f">{PASSWORD}", *rules) == "OK"
        )
        token = ask(server, server.token, "ACL", "RESTTOKEN", "ann", PASSWORD)
        assert isinstance(token, str)
        return token

    def test_it_survives_reset_as_its_user_does(self, server: KVServer) -> None:
        late = self.make(server, "~*", "+get")
        server.reset()
        assert ask(server, late, "GET", "k")[0] == 401
        client = self.make(server, "~*", "+get")
        server.set_baseline()
        server.execute("ACL", "SETUSER", "ann", "-get")
        assert ask(server, client, "GET", "k") == noperm("get")
        server.reset()
        assert ask(server, client, "GET", "k") is None

    def test_streams_of_events(self, server: KVServer) -> None:
        token = self.make(server, "&c*", "+subscribe")
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        answer = httpx.get(f"{server.url}/subscribe/d", headers=headers)
        assert answer.json()["error"].startswith("NOPERM")
        assert httpx.get(f"{server.url}/monitor", headers=headers).status_code == 400
        with httpx.stream("GET", f"{server.url}/subscribe/c1", headers=headers) as stream:
            assert next(stream.iter_lines()) == "data: subscribe,c1,1"

    def test_the_tester_may_everything(self) -> None:
        with KVServer(Context.alone(), dialect="redis") as server:
            server.execute("ACL", "SETUSER", "default", "-@all")
            assert server.execute("SET", "k", "v") == "OK"
            assert ask(server, server.token, "GET", "k") == (
                400,
                "NOPERM this user has no permissions to run the 'get' command",
            )


class TestSelectors:
    def test_a_copy_is_independent(self) -> None:
        user = AclUser("u")
        apply_rules(user, [b"+get", b"~a", b"&c", b"(+set ~b)"])
        former = copy(user)
        apply_rules(user, [b"-get", b"~b", b"&d", b"clearselectors"])
        assert COMMANDS["GET"] in former.root.commands
        assert former.root.keys == [KeyPattern(b"a", True, True)]
        assert (former.root.channels, len(former.selectors)) == ([b"c"], 2)

    def test_one_selector_must_allow_it_all(self) -> None:
        user = AclUser("u", "redis")
        apply_rules(user, [b"+mget", b"~a", b"(+mget ~b)"])
        spec = COMMANDS["MGET"]
        user.check(spec, [b"MGET", b"a"])
        user.check(spec, [b"MGET", b"b"])
        with pytest.raises(CommandError, match="access one of the keys"):
            user.check(spec, [b"MGET", b"a", b"b"])

    def test_channels_of_shards_need_no_permission_for_keys(self) -> None:
        user = AclUser("u")
        apply_rules(user, [b"+spublish", b"&news"])
        user.check(COMMANDS["SPUBLISH"], [b"SPUBLISH", b"news", b"hello"])
        with pytest.raises(CommandError, match="channel"):
            user.check(COMMANDS["SPUBLISH"], [b"SPUBLISH", b"other", b"hello"])

    def test_an_unrestricted_user(self) -> None:
        user = AclUser("u")
        assert not user.unrestricted
        apply_rules(user, [b"+@all", b"~*", b"&*"])
        assert user.unrestricted
        apply_rules(user, [b"-get"])
        assert not user.unrestricted

    def test_key_patterns_add_up(self) -> None:
        user = AclUser("u")
        apply_rules(user, [b"%R~a", b"%W~a", b"%w~b"])
        assert user.root.keys == [KeyPattern(b"a", True, True), KeyPattern(b"b", False, True)]


PASSWORD = make_token(b"secret").decode()
RULES = [
    "on", "off", "nopass", "resetpass", ">a", ">b", "<a", "<b", "~*", "~a*", "%R~r*", "%W~w*", "~b",
    "%R~b", "allkeys", "resetkeys", "&*", "&c*", "&d", "allchannels", "resetchannels", "+@all",
    "-@all", "+@read", "-@read", "+@write", "-@write", "+@string", "-@dangerous", "+get", "-get",
    "+set", "+client|id", "-client|id", "+client", "+config|get", "+select|0", "-select", "+mset",
    "reset", "clearselectors", "(+get ~s*)", "(+@write %W~t*)", "(~x", "+nosuch", "junk", "%Q~x",
    "sanitize-payload", "skip-sanitize-payload", "+@hash", "-hset", "+eval", "+publish",
    "+subscribe", "+psubscribe", "+sort", "+bitfield", "+xreadgroup", "+copy", "+config|nosuch",
]  # fmt: skip
LINES = [
    "get a1", "get b", "get r1", "get w1", "get s1", "set a1 v", "set w1 v", "set r1 v",
    "set w1 v GET", "set t1 v", "mset a1 1 w1 2", "mget a1 r1", "del a1", "hset a1 f v",
    "hgetall r1", "client id", "client list", "config get x", "config set x y", "select 0",
    "select 1", "publish c1 m", "publish d m", "publish e m", "subscribe c1 d", "psubscribe c*",
    "psubscribe cx", "eval s 1 a1", "eval s 1 r1", "sort a1 STORE w1", "sort r1", "flushall",
    "keys *", "bitfield r1 get u8 0", "bitfield w1 set u8 0 1", "strlen w1", "copy r1 w1",
    "copy w1 r1", "xreadgroup GROUP g c STREAMS r1 >", "auth x", "ping", "acl whoami", "quit",
]  # fmt: skip


@pytest.fixture
def real() -> Iterator[RealServer]:
    with running() as server:
        yield server


def test_rules_against_a_real_server(real: RealServer) -> None:
    """Random rules, and what the user may run with them, agree with Redis 7."""
    choose = random.Random(20260101)
    face = InProcess()

    def ours(*line: str) -> Any:
        return face.call([word.encode() for word in line])

    def theirs(*line: str) -> Any:
        return real.call([word.encode() for word in line])

    differences = []
    for _ in range(cases(50)):
        rules = choose.choices(RULES, k=choose.randint(1, 7))
        for call in (ours, theirs):
            call("ACL", "SETUSER", "u", "reset")
        results = [call("ACL", "SETUSER", "u", *rules) for call in (ours, theirs)]
        if _shown(results[0]) != _shown(results[1]):
            differences.append((rules, results))
        for line in LINES:
            pair = [_shown(call("ACL", "DRYRUN", "u", *line.split())) for call in (ours, theirs)]
            if pair[0] != pair[1]:
                differences.append((rules, line, pair))
        pair = [_details(call("ACL", "GETUSER", "u")) for call in (ours, theirs)]
        if pair[0] != pair[1]:
            differences.append((rules, pair))
    assert differences == []


def _shown(reply: Any) -> Any:
    return reply if isinstance(reply, bytes) else getattr(reply, "text", reply)


def _details(reply: Any) -> list[Any]:
    """Return GETUSER without commands, whose wording depends on the commands of a server."""
    flat = list(reply)
    at = flat.index(b"commands")
    del flat[at : at + 2]
    selectors = [list(selector) for selector in flat[flat.index(b"selectors") + 1]]
    for selector in selectors:
        del selector[:2]
    return [*flat[:-1], selectors]


def test_every_key_of_a_line_needs_permission() -> None:
    """The second key of ``LCS`` was once mistaken for an option."""
    engine = KVEngine(Timekeeper(), Ids(1), KVConfig(dialect="redis"))
    owner = engine.session()
    for line in (["SET", "mine", "x"], ["SET", "theirs", "x"]):
        engine.execute(owner, [word.encode() for word in line])
    engine.execute(owner, b"ACL SETUSER ann on >p ~mine +@all".split())
    ann = engine.session()
    engine.execute(ann, b"AUTH ann p".split())
    for line in (b"LCS mine theirs", b"MGET mine theirs", b"SINTER mine theirs"):
        with pytest.raises(CommandError, match="NOPERM"):
            engine.execute(ann, line.split())


class TestRulesThatSayNothingNew:
    @pytest.fixture
    def user(self) -> AclUser:
        return AclUser("ada", dialect="redis")

    def test_twice_is_once(self, user: AclUser) -> None:
        for rule in (b"", b"&news", b"&news", b"+get|x", b"+get|x", b"%R~a", b"%R~a"):
            apply_rules(user, [rule])
        expected = b"user ada off %R~a resetchannels &news -@all +get|x"
        assert describe_user(user) == expected

    def test_a_first_word_is_allowed_and_never_taken(self, user: AclUser) -> None:
        for rule in (b"-get|x", b"+config|nothing"):
            with pytest.raises(CommandError, match="Unknown command or category name in ACL"):
                apply_rules(user, [rule])
        apply_rules(user, [b"+@all", b"+get|x"])
        assert b"get|x" not in describe_user(user)

    def test_all_channels_are_all_patterns(self, user: AclUser) -> None:
        apply_rules(user, [b"allchannels"])
        assert user.root.allows_channel(b"any", False)
        assert user.root.allows_channel(b"any*", True)
        apply_rules(user, [b"resetchannels", b"&a*"])
        assert user.root.allows_channel(b"a*", True)
        assert not user.root.allows_channel(b"ab*", True)
        assert user.root.allows_channel(b"ab", False)
