"""CONFIG, commands of clusters, and DEBUG, which a setting enables, apart from the scenarios."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.reply import OK
from tests.harness import wait_until
from tests.kv.comparison.faces import InProcess, Port
from tests.kv.comparison.servers import running
from tests.kv.comparison.wire import Error, Status
from tests.kv.conftest import NOW, Run, pushing_to

KINDS = "string integer double null array set map attrib verbatim true false bignum"


class Face(InProcess):
    """The engine in process, with DEBUG enabled."""

    def __init__(self, resp: int = 2) -> None:
        super().__init__(resp=resp, debug_command=True)

    def __call__(self, line: str) -> Any:
        return self.call(line.encode().split(b" "))


@pytest.fixture
def kv() -> Iterator[KVServer]:
    with Cloud(clock="frozen", now=NOW, seed=1) as cloud:
        yield cloud.kv_server(dialect="redis", debug_command=True)


def test_a_setting_allows_it(kv: KVServer) -> None:
    assert kv.execute("CONFIG", "GET", "enable-debug-command") == ["enable-debug-command", "yes"]
    assert kv.execute("DEBUG", "RELOAD") == "OK"
    kv.reset()
    assert kv.execute("DEBUG", "RELOAD") == "OK"


def test_scripts_may_call_denied_commands(kv: KVServer) -> None:
    def asked() -> object:
        return kv.execute("EVAL", "return redis.call('DEBUG', 'PROTOCOL', 'integer')", 0)

    with pytest.raises(CommandError, match="not allowed from script"):
        asked()
    kv.execute("DEBUG", "SET-DISABLE-DENY-SCRIPTS", "1")
    assert asked() == 12345
    # A script in a script ends the process of Redis.
    for line in ("'EVAL', 'return 1', 0", "'FCALL', 'f', 0", "'FUNCTION', 'FLUSH'"):
        script = f"redis.call('PING') return redis.pcall({line}).err .. redis.call('PING').ok"
        reply = kv.execute("EVAL", script, 0)
        assert reply == "ERR This Redis command is not allowed from scriptPONG"
    kv.execute("DEBUG", "SET-DISABLE-DENY-SCRIPTS", "0")
    with pytest.raises(CommandError, match="not allowed from script"):
        asked()


def test_errors() -> None:
    face = Face()
    wrong = "ERR unknown subcommand or wrong number of arguments for '%s'. Try DEBUG HELP."
    for arguments, text in (
        ("ERROR MY-CODE", "MY-CODE"), ("NOSUCH", wrong % "NOSUCH"), ("SLEEP", wrong % "SLEEP"),
        ("SLEEP x", "ERR value is not a valid float"),
        ("SLEEP 1", "ERR DEBUG SLEEP blocks: use a connection to the database port"),
        ("PROTOCOL push", "ERR RESP2 is not supported by this command"),
    ):  # fmt: skip
        assert face(f"DEBUG {arguments}") == Error(text.encode())
    assert face("DEBUG SLEEP 0") == face("DEBUG SLEEP -1") == Status(b"OK")


@pytest.mark.dialect("redis", debug_command=True)
def test_a_push_comes_before_the_reply(run: Run) -> None:
    pushed: list[object] = []
    port = run.other(resp=3, interface="port")
    port.session.connection = pushing_to(pushed.append)
    assert port("DEBUG PROTOCOL push") == b"Some real reply following the push reply"
    assert pushed == [[b"server-cpu-usage", 42]]


def test_a_sleep_holds_everybody_back_until_the_clock_has_moved(kv: KVServer) -> None:
    sleeper, other = Port(kv.database_url), Port(kv.database_url)
    answers: list[tuple[str, Any]] = []

    def ask(name: str, face: Port, *line: bytes) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append((name, face.call([*line]))))
        thread.start()
        return thread

    asleep = ask("sleeper", sleeper, b"DEBUG", b"SLEEP", b"1.5")
    wait_until(lambda: kv._engine.pauses.delays_end_us)
    waiting = ask("other", other, b"PING")
    kv.clock.advance("1s")
    assert answers == []
    kv.clock.advance("0.5s")
    for thread in (asleep, waiting):
        thread.join(10)
    assert sorted(answers) == [("other", Status(b"PONG")), ("sleeper", Status(b"OK"))]
    sleeper.close()
    other.close()


def test_a_transaction_with_sleeps_in_the_slow_log(kv: KVServer) -> None:
    sleeper = Port(kv.database_url)
    answers: list[Any] = []
    for line in ("CONFIG SET slowlog-log-slower-than 100000", "MULTI", "PING", "debug sleep 0.2"):
        sleeper.call([word.encode() for word in line.split()])
    sleeper.call([b"GET", b"k"])
    waiting = threading.Thread(target=lambda: answers.append(sleeper.call([b"EXEC"])))
    waiting.start()
    wait_until(lambda: kv._engine.pauses.delays_end_us)
    kv.clock.advance("0.1s")
    assert answers == []
    kv.clock.advance("0.1s")
    waiting.join(10)
    assert answers == [[Status(b"PONG"), Status(b"OK"), None]]
    (entry,) = kv._engine.statistics.slow
    assert (entry.usec, entry.line) == (200_000, [b"debug", b"sleep", b"0.2"])
    sleeper.close()


def test_expired_keys_stay_without_an_access() -> None:
    face = Face()
    engine = face.engine
    for line in ("DEBUG SET-ACTIVE-EXPIRE 0", "SET a 1 PX 5", "SET b 1"):
        face(line)
    engine.clock.advance("1s")
    engine.remove_expired()
    assert engine.databases[0].expired == 0
    assert face("DBSIZE") == 2
    assert b"encoding:int" in face("DEBUG OBJECT a").text
    face("DEBUG SET-ACTIVE-EXPIRE 1")
    engine.remove_expired()
    assert engine.databases[0].expired == 1
    assert face("DBSIZE") == 1


def test_digests_tell_contents_apart() -> None:
    face = Face()
    empty = face("DEBUG DIGEST")
    assert empty == Status(b"0" * 40)
    for line in ("SET a 1", "RPUSH l a b"):
        face(line)
    before, values = face("DEBUG DIGEST"), face("DEBUG DIGEST-VALUE a l none")
    assert len({*values, before}) == 4
    assert values[2] == empty
    face("RPUSH l c")
    assert face("DEBUG DIGEST") != before
    assert face("DEBUG DIGEST-VALUE a l")[0] == values[0]
    face("RPOP l")
    face("SET k v PX 60000")
    assert face("DEBUG DIGEST") not in (before, empty)
    face.engine.clock.advance("60s")
    assert face("DEBUG DIGEST") == before
    assert b"encoding:quicklist" in face("DEBUG OBJECT l").text
    assert face("DEBUG OBJECT none") == Error(b"ERR no such key")


def test_objects_have_the_encoding_and_references_of_redis() -> None:
    values = [b"1", b"10000", b"-1", b"01", b"text", b"x" * 45, b"1.5"]
    face = Face()
    with running("redis", "--enable-debug-command", "yes") as server:
        for call in (face.call, server.call):
            for value in values:
                call([b"SET", value, value])
            call([b"APPEND", b"text", b""])
            call([b"INCRBYFLOAT", b"1.5", b"0.5"])
            call([b"RPUSH", b"list", b"1"])
        for key in [*values, b"list"]:
            line = [b"DEBUG", b"OBJECT", key]
            mine, theirs = (call(line).text.split() for call in (face.call, server.call))
            for name in (b"refcount:", b"encoding:", b"serializedlength:"):
                assert [w for w in mine if name in w] == [w for w in theirs if name in w], key


@pytest.mark.parametrize("resp", [2, 3])
def test_replies_of_every_type_are_a_real_servers(resp: int) -> None:
    face = Face(resp)
    with running("redis", "--enable-debug-command", "yes") as server:
        server.speak(resp)
        for kind in KINDS.split():
            line = [b"DEBUG", b"PROTOCOL", kind.encode()]
            assert face.call(line) == server.call(line), kind
        for line in ("DEBUG ERROR ERR-text", "DEBUG SET-ACTIVE-EXPIRE 1", "DEBUG ERROR"):
            assert face(line) == server.call(line.encode().split()), line


READ = """redis.setresp(ARGV[2])
local function shown(value)
  if type(value) ~= 'table' then return type(value) .. ':' .. tostring(value) end
  local fields = {}
  for key, item in pairs(value) do fields[#fields + 1] = shown(key) .. '=' .. shown(item) end
  table.sort(fields)
  return '{' .. table.concat(fields, ' ') .. '}'
end
return shown(redis.pcall('DEBUG', 'PROTOCOL', ARGV[1]))"""
RETURN = "redis.setresp(ARGV[2]) return redis.pcall('DEBUG', 'PROTOCOL', ARGV[1])"


@pytest.mark.parametrize("resp", [2, 3])
def test_scripts_receive_and_return_replies_of_every_type(resp: int) -> None:
    face = Face(resp)
    with running("redis", "--enable-debug-command", "yes") as server:
        server.speak(resp)
        for call in (face.call, server.call):
            call(b"DEBUG SET-DISABLE-DENY-SCRIPTS 1".split())
        for kind in [*KINDS.split(), "nope"]:
            for script, version in product((READ, RETURN), (b"2", b"3")):
                line = [b"EVAL", script.encode(), b"0", kind.encode(), version]
                assert face.call(line) == server.call(line), (kind, script, version)


WITHOUT_EFFECT = (
    "CHANGE-REPL-ID", "PAUSE-CRON 0", "PAUSE-CRON x", "RELOAD", "RELOAD NOSAVE merge noflush",
    "RELOAD NOSAVE x", "REPLYBUFFER RESIZING x", "REPLYBUFFER RESIZING",
    *(f"REPLYBUFFER peak-reset-time {value}" for value in ("100", "never", "RESET", "x")),
    *(
        f"QUICKLIST-PACKED-THRESHOLD {value}"
        for value in ("100", "1b", "0", "x", "-1", "4293918720", "4293918721", "5gb")
    ),
)  # fmt: skip
WITH_OTHER_REPLIES = ("ERROR", "DIGEST", "DIGEST-VALUE", "OBJECT", "SET-ACTIVE-EXPIRE", "PROTOCOL",
                      "MALLCTL", "MALLCTL-STR", "SLEEP", "JMAP", "STRINGMATCH-LEN",
                      "SET-DISABLE-DENY-SCRIPTS", "CONFIG-REWRITE-FORCE-ALL")  # fmt: skip


def test_arguments_are_checked_as_on_a_real_server() -> None:
    names = dict.fromkeys(line.split()[0] for line in (*WITHOUT_EFFECT, *WITH_OTHER_REPLIES))
    counts = (f"{name}{' 0' * count}" for name in names for count in range(5))
    # Their replies to valid arguments depend on the build, or are about the effect.
    rejects = b"wrong number of arguments"
    face = Face()
    with running("redis", "--enable-debug-command", "yes", version="7.0") as server:
        for line in (*WITHOUT_EFFECT, *counts):
            mine, theirs = (
                call(f"DEBUG {line}".encode().split()) for call in (face.call, server.call)
            )
            if line in WITHOUT_EFFECT:
                assert mine == theirs, line
            else:
                assert (rejects in repr(mine).encode()) == (rejects in repr(theirs).encode()), line


def test_it_is_off_by_default(run: Run) -> None:
    assert "not allowed" in run.error("DEBUG SLEEP 1")


@pytest.mark.dialect("redis")
def test_a_password_is_the_only_one_of_the_default_user(run: Run) -> None:
    user = run.engine.users["default"]
    run("ACL SETUSER default >first")
    run("CONFIG SET requirepass second")
    assert (user.accepts(b"first"), user.accepts(b"second")) == (False, True)
    assert run.engine.users.visitor() is not user
    other = run.other(user=run.engine.users.visitor(), interface="port")
    assert other.error("GET k") == "NOAUTH Authentication required."
    assert other("AUTH second") == OK
    run("CONFIG", "SET", "requirepass", "")
    assert user.accepts(b"anything")
    assert run.engine.users.visitor() is user
    assert run.other(interface="port").error("AUTH second").startswith("ERR AUTH <password>")


def test_cluster_mode_is_off_for_every_word_of_it(run: Run) -> None:
    words = run("COMMAND LIST FILTERBY PATTERN cluster|*")
    assert len(words) > 20
    for name in words:
        (info,) = run("COMMAND", "INFO", name)
        line = name.decode().upper().split("|") + ["x"] * (abs(info[1]) - 2)
        assert run.error(*line) == "ERR This instance has cluster support disabled"
