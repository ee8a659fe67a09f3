"""CLIENT commands about connections of the database port."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.reply import NO_REPLY, OK, Status
from tests.kv.conftest import NOW_MS, Run


@pytest.fixture
def port(run: Run) -> Run:
    return run.other(transport="port", address="127.0.0.1:5001")


@pytest.fixture
def second(run: Run) -> Run:
    return run.other(transport="port", address="127.0.0.1:5002")


class TestOneself:
    def test_names(self, port: Run) -> None:
        assert port("CLIENT GETNAME") is None
        assert port("CLIENT SETNAME me") == OK
        assert port("CLIENT GETNAME") == b"me"
        text = "ERR Client names cannot contain spaces, newlines or special characters."
        assert port.error("CLIENT SETNAME 'a b'") == text
        assert port.error("CLIENT FOO") == "ERR unknown subcommand 'FOO'. Try CLIENT HELP."

    def test_library_and_info(self, port: Run) -> None:
        assert port("CLIENT SETINFO LIB-NAME tool") == OK
        assert port("CLIENT SETINFO lib-ver 1.2") == OK
        line = port("CLIENT INFO").text.decode()
        assert f"id={port('CLIENT ID')} addr=127.0.0.1:5001 " in line
        assert "lib-name=tool lib-ver=1.2" in line
        assert port.error("CLIENT SETINFO FOO x") == "ERR Unrecognized option 'FOO'"
        assert port.error("CLIENT SETINFO LIB-NAME 'a b'").startswith("ERR lib-name cannot contain")

    def test_switches(self, port: Run) -> None:
        for name in ("NO-EVICT", "NO-TOUCH"):
            assert port(f"CLIENT {name} ON") == OK
            assert port(f"CLIENT {name} OFF") == OK
            assert port.error(f"CLIENT {name} x") == "ERR syntax error"
        assert port("CLIENT CAPA redirect") == OK
        assert port("CLIENT IMPORT-SOURCE OFF") == OK
        assert port.error("CLIENT IMPORT-SOURCE ON") == "ERR Server is not in import mode"
        assert Status(b"SETNAME <name>") in port("CLIENT HELP")

    def test_replies(self, port: Run) -> None:
        for mode in ("OFF", "SKIP"):
            assert port(f"CLIENT REPLY {mode}") is NO_REPLY
            assert port.session.reply_mode == mode.lower()
        assert port("CLIENT REPLY ON") == OK
        assert port.error("CLIENT REPLY x") == "ERR syntax error"


class TestTracking:
    def test_options(self, port: Run, second: Run) -> None:
        assert port("CLIENT GETREDIR") == -1
        assert port("CLIENT TRACKINGINFO")[1] == [b"off"]
        assert port("CLIENT TRACKING ON BCAST PREFIX a PREFIX b NOLOOP") == OK
        info = port("CLIENT TRACKINGINFO")
        assert (info[1], info[3], info[5]) == ([b"on", b"bcast", b"noloop"], 0, [b"a", b"b"])
        port("CLIENT TRACKING OFF")
        assert port(f"CLIENT TRACKING ON REDIRECT {second.session.id}") == OK
        assert port("CLIENT GETREDIR") == second.session.id
        assert port("CLIENT TRACKING ON OPTIN") == OK
        assert port("CLIENT CACHING YES") == OK
        assert port.error("CLIENT CACHING NO").startswith("ERR CLIENT CACHING NO is only valid")
        port("CLIENT TRACKING OFF")
        assert port("CLIENT TRACKING ON OPTOUT") == OK
        assert port("CLIENT CACHING NO") == OK
        assert port.error("CLIENT CACHING YES").startswith("ERR CLIENT CACHING YES is only valid")
        assert port("CLIENT TRACKING OFF") == OK

    @pytest.fixture
    def told(self, port: Run) -> list[object]:
        messages: list[object] = []
        port("HELLO 3")
        port.session.deliver = messages.append
        return messages

    def test_a_key_that_was_read_and_changed(
        self, run: Run, port: Run, told: list[object], clock: Timekeeper
    ) -> None:
        run("MSET a 1 b 2")
        port("CLIENT TRACKING ON")
        port("MGET a b")
        run("SET c 1")
        run("SET a 2")
        run("SET a 3")
        assert told == [[b"invalidate", [b"a"]]]
        run("PEXPIRE b 10")
        port("GET b")
        clock.advance(1)
        assert told[1:] == [[b"invalidate", [b"b"]]] * 2, "at its instant, asked for or not"
        run("FLUSHALL")
        assert told[3:] == [[b"invalidate", None]]
        port("CLIENT TRACKING OFF")
        run("SET a 1")
        assert len(told) == 4
        assert run.engine.databases[0].touched is None

    def test_prefixes_and_noloop(self, run: Run, port: Run, told: list[object]) -> None:
        port("CLIENT TRACKING ON BCAST PREFIX user: NOLOOP")
        run("MSET user:1 a other b")
        port("SET user:2 x")
        assert told == [[b"invalidate", [b"user:1"]]]

    def test_one_message_per_prefix(self, run: Run, port: Run, told: list[object]) -> None:
        port("CLIENT TRACKING ON BCAST PREFIX b: PREFIX a:")
        run("MSET b:2 x a:2 x c:1 x b:1 x a:1 x")
        assert told == [[b"invalidate", [b"a:1", b"a:2"]], [b"invalidate", [b"b:1", b"b:2"]]]
        run("FLUSHALL")
        assert told[2:] == [[b"invalidate", None]]
        port("CLIENT TRACKING OFF")
        port("CLIENT TRACKING ON BCAST")
        assert port("CLIENT TRACKINGINFO")[5] == [b""]

    def test_an_expiry_is_not_a_clients_own_change(
        self, run: Run, port: Run, told: list[object], clock: Timekeeper
    ) -> None:
        port("CLIENT TRACKING ON BCAST NOLOOP")
        port("SET gone x PX 5")
        port("SET stays x")
        assert told == []
        clock.advance(1)
        assert told == [[b"invalidate", [b"gone"]]]

    def test_one_message_per_key_in_order(self, run: Run, port: Run, told: list[object]) -> None:
        port("CLIENT TRACKING ON")
        port("MGET a b c")
        run("MSET c 1 a 1")
        assert told == [[b"invalidate", [b"c"]], [b"invalidate", [b"a"]]]

    def test_scripts_track_their_keys(self, run: Run, port: Run, told: list[object]) -> None:
        port("CLIENT TRACKING ON")
        port("""EVAL "redis.call('set', 'c', 1)" 2 a b""")
        run("MSET a 1 b 1")
        assert told == []
        for name in ("EVAL", "EVAL_RO"):
            port(f"""{name} "redis.call('get', 'c')" 2 a b""")
            run("MSET c 2 b 2 a 2")
            assert told == [[b"invalidate", [b"b"]], [b"invalidate", [b"a"]]]
            told.clear()
        port("""EVAL_RO "redis.call('ping')" 1 a""")
        run("SET a 3")
        assert told == []

    def test_a_transaction_reads_its_own_changes(
        self, run: Run, port: Run, told: list[object]
    ) -> None:
        port("CLIENT TRACKING ON")
        port("GET a")
        for line in ("MULTI", "SET a 1", "GET a", "EXEC"):
            port(line)
        assert told == [[b"invalidate", [b"a"]]]
        run("SET a 2")
        assert told[1:] == [[b"invalidate", [b"a"]]]

    def test_keys_beyond_the_limit_are_forgotten(
        self, run: Run, port: Run, told: list[object]
    ) -> None:
        port("CLIENT TRACKING ON NOLOOP")
        port("MGET a b c")
        assert "tracking_total_keys:3\r\ntracking_total_items:3" in run("INFO stats").text.decode()
        run("CONFIG SET tracking-table-max-keys 1")
        assert len(told) == 2
        assert run.engine.tracking.sizes() == (1, 1, 0)

    def test_optin_and_optout(self, run: Run, port: Run, told: list[object]) -> None:
        port("CLIENT TRACKING ON OPTIN")
        port("GET a")
        port("CLIENT CACHING YES")
        port("GET b")
        port("GET c")
        run("MSET a 1 b 1 c 1")
        assert told == [[b"invalidate", [b"b"]]]
        port("CLIENT TRACKING OFF")
        port("CLIENT TRACKING ON OPTOUT")
        port("CLIENT CACHING NO")
        port("GET a")
        port("GET c")
        run("MSET a 1 b 1 c 1")
        assert told[1:] == [[b"invalidate", [b"c"]]]

    def test_caching_is_shown_to_the_next_command(self, port: Run) -> None:
        port("CLIENT TRACKING ON OPTIN")
        port("CLIENT CACHING YES")
        assert port("CLIENT TRACKINGINFO")[1] == [b"on", b"optin", b"caching-yes"]
        assert port("CLIENT TRACKINGINFO")[1] == [b"on", b"optin"]

    def test_caching_is_shown_all_through_a_transaction(self, port: Run) -> None:
        port("CLIENT TRACKING ON OPTIN")
        for line in ("CLIENT CACHING YES", "MULTI", *["CLIENT TRACKINGINFO"] * 2):
            port(line)
        assert [told[1] for told in port("EXEC")] == [[b"on", b"optin", b"caching-yes"]] * 2
        assert port("CLIENT TRACKINGINFO")[1] == [b"on", b"optin"]

    def test_caching_applies_to_a_transaction(
        self, run: Run, port: Run, told: list[object]
    ) -> None:
        port("CLIENT TRACKING ON OPTIN")
        port("CLIENT CACHING YES")
        for line in ("MULTI", "GET a", "GET b", "EXEC", "GET c"):
            port(line)
        run("SET a 1")
        run("SET b 1")
        run("SET c 1")
        assert told == [[b"invalidate", [b"a"]], [b"invalidate", [b"b"]]]

    def test_a_redirection_target_that_disconnected(
        self, run: Run, port: Run, second: Run, told: list[object]
    ) -> None:
        port("HELLO 3")
        number = second.session.id
        port(f"CLIENT TRACKING ON REDIRECT {number}")
        port("GET a")
        run.engine.abandon(second.session)
        run("SET a 1")
        assert told == [[b"tracking-redir-broken", number]]
        assert port("CLIENT TRACKINGINFO")[1] == [b"on", b"broken_redirect"]

    def test_a_client_is_gone_after_quit(
        self, run: Run, port: Run, second: Run, told: list[object]
    ) -> None:
        port("HELLO 3")
        port(f"CLIENT TRACKING ON REDIRECT {second.session.id}")
        port("GET a")
        second("QUIT")
        run("SET a 1")
        assert told == [[b"tracking-redir-broken", second.session.id]]

    def test_redirection_for_version_2(self, run: Run, port: Run, second: Run) -> None:
        told: list[object] = []
        second.session.deliver = told.append
        second("SUBSCRIBE __redis__:invalidate")
        port(f"CLIENT TRACKING ON REDIRECT {second.session.id}")
        port("GET a")
        run("SET a 1")
        assert told[1:] == [[b"message", b"__redis__:invalidate", [b"a"]]]
        run.engine.abandon(port.session)
        assert not run.engine.tracking

    def test_version_2_needs_a_redirection(self, run: Run, port: Run, told: list[object]) -> None:
        port("HELLO 2")
        port("CLIENT TRACKING ON")
        port("GET a")
        run("SET a 1")
        run("FLUSHALL")
        assert told == []

    def test_version_2_has_no_message_for_a_lost_redirection(
        self, run: Run, port: Run, second: Run, told: list[object]
    ) -> None:
        port("HELLO 2")
        port(f"CLIENT TRACKING ON REDIRECT {second.session.id}")
        port("GET a")
        run.engine.abandon(second.session)
        run("SET a 1")
        assert told == []
        assert port("CLIENT TRACKINGINFO")[1] == [b"on", b"broken_redirect"]

    def test_messages_have_the_targets_protocol(self, run: Run, port: Run, second: Run) -> None:
        heard: list[object] = []
        second.session.deliver = heard.append
        port(f"CLIENT TRACKING ON REDIRECT {second.session.id}")
        port("GET a")
        run("SET a 1")
        assert heard == [], "version 2, and it does not listen"
        second("HELLO 3")
        port("GET a")
        run("SET a 2")
        assert heard == [[b"invalidate", [b"a"]]]

    def test_no_message_after_tracking_or_for_own_changes(
        self, run: Run, port: Run, second: Run, told: list[object]
    ) -> None:
        heard: list[object] = []
        second.session.deliver = heard.append
        for client in (port, second):
            client("HELLO 3")
        port("CLIENT TRACKING ON NOLOOP")
        second("CLIENT TRACKING ON")
        for client in (port, second):
            client("GET a")
        port("SET a 1")
        assert (told, heard) == ([], [[b"invalidate", [b"a"]]])
        second("GET a")
        second("CLIENT TRACKING OFF")
        run("SET a 2")
        assert len(heard) == 1

    def test_restoring_invalidates_all_keys(self, run: Run, port: Run, told: list[object]) -> None:
        port("HELLO 3")
        port("CLIENT TRACKING ON")
        port("GET a")
        run.engine.restore(run.engine.snapshot())
        assert told == [[b"invalidate", None]]

    def test_no_touch_leaves_idle_times_alone(self, run: Run, port: Run, clock: Timekeeper) -> None:
        run("SET k v")
        clock.advance(50)
        port("CLIENT NO-TOUCH ON")
        port("GET k")
        assert run("OBJECT IDLETIME k") == 50
        port("SET new v")
        assert run("OBJECT IDLETIME new") == 0
        line = run("CLIENT LIST").text.decode()
        assert "cmd=set user=default" in line

    def test_refusals(self, port: Run) -> None:
        assert port.error("CLIENT TRACKING x") == "ERR syntax error"
        assert port.error("CLIENT TRACKING ON PREFIX a").startswith("ERR PREFIX option requires")
        assert port.error("CLIENT TRACKING ON OPTIN OPTOUT").startswith("ERR You can't use both")
        assert port.error("CLIENT TRACKING ON BCAST OPTIN").startswith("ERR OPTIN and OPTOUT are")
        assert port.error("CLIENT TRACKING ON REDIRECT 99").startswith("ERR The client ID you want")
        assert port.error("CLIENT CACHING YES").startswith("ERR CLIENT CACHING can be called only")

    def test_modes_are_not_switched_on_the_way(self, port: Run) -> None:
        port("CLIENT TRACKING ON BCAST PREFIX ab")
        assert port("CLIENT TRACKING ON BCAST PREFIX ab PREFIX c") == OK
        assert port("CLIENT TRACKINGINFO")[5] == [b"ab", b"c"]
        assert port.error("CLIENT TRACKING ON").startswith("ERR You can't switch BCAST mode on/off")
        overlap = "Prefixes for a single client must not overlap."
        assert port.error("CLIENT TRACKING ON BCAST PREFIX a") == (
            f"ERR Prefix 'a' overlaps with an existing prefix 'ab'. {overlap}"
        )
        assert port.error("CLIENT TRACKING ON BCAST PREFIX x PREFIX xy") == (
            f"ERR Prefix 'x' overlaps with another provided prefix 'xy'. {overlap}"
        )
        port("CLIENT TRACKING OFF")
        port("CLIENT TRACKING ON OPTIN")
        assert port.error("CLIENT TRACKING ON OPTOUT").startswith(
            "ERR You can't switch OPTIN/OPTOUT"
        )


class TestAll:
    def test_list(self, port: Run, second: Run) -> None:
        second("SUBSCRIBE a")
        lines = port("CLIENT LIST").text.decode().splitlines()
        assert [line.split()[1] for line in lines] == ["addr=127.0.0.1:5001", "addr=127.0.0.1:5002"]
        assert b"5002" in port("CLIENT LIST TYPE PUBSUB").text
        assert b"5001" in port("CLIENT LIST TYPE NORMAL").text
        assert port("CLIENT LIST TYPE MASTER").text == b""
        assert port("CLIENT LIST TYPE REPLICA").text == b""
        assert b"5002" in port(f"CLIENT LIST ID {second.session.id}").text
        assert port.error("CLIENT LIST TYPE x") == "ERR Unknown client type 'x'"
        assert port.error("CLIENT LIST ID x") == "ERR Invalid client ID"
        assert port.error("CLIENT LIST FOO") == "ERR syntax error"

    @pytest.mark.parametrize(
        ("words", "killed"),
        [
            ("ADDR 127.0.0.1:5002", 1), ("LADDR 1.1.1.1:1", 0), ("USER default", 1),
            ("USER default SKIPME no", 2), ("TYPE normal", 1), ("TYPE pubsub", 0),
            ("TYPE MASTER", 0), ("TYPE SLAVE", 0), ("TYPE REPLICA", 0),
        ],
    )  # fmt: skip
    def test_kill_by_filter(self, port: Run, second: Run, words: str, killed: int) -> None:
        assert port(f"CLIENT KILL {words}") == killed
        assert second.session.closing == bool(killed)

    def test_kill_one(self, port: Run, second: Run) -> None:
        assert port(f"CLIENT KILL ID {second.session.id}") == 1
        assert port("CLIENT KILL 127.0.0.1:5001") == OK
        assert port.error("CLIENT KILL 1.1.1.1:1") == "ERR No such client"
        assert port.error("CLIENT KILL ID x") == "ERR client-id should be greater than 0"
        assert port.error("CLIENT KILL USER nobody") == "ERR No such user 'nobody'"
        assert port.error("CLIENT KILL FOO x") == "ERR syntax error"

    def test_pause(self, port: Run, clock: Timekeeper) -> None:
        assert port("CLIENT PAUSE 1000 WRITE") == OK
        assert port.engine.pauses.until_us == (NOW_MS + 1000) * 1000
        assert port.engine.pauses.writes_only
        assert port("CLIENT PAUSE 1000 ALL") == OK
        assert not port.engine.pauses.writes_only
        clock.advance(2)
        assert port("CLIENT PAUSE 500 WRITE") == OK
        assert port.engine.pauses.until_us == (NOW_MS + 2500) * 1000
        assert port.engine.pauses.writes_only
        assert port("CLIENT UNPAUSE") == OK
        assert port.engine.pauses.until_us == 0
        assert port.error("CLIENT PAUSE x") == "ERR timeout is not an integer or out of range"
        assert port.error("CLIENT PAUSE -1") == "ERR timeout is negative"
        assert port.error("CLIENT PAUSE 1 x") == "ERR CLIENT PAUSE mode must be WRITE or ALL"

    def test_unblock(self, port: Run, second: Run) -> None:
        for mode in ("", "TIMEOUT", "ERROR"):
            waiter = second.engine.block(second.session, second("BLPOP k 0"))
            assert port(f"CLIENT UNBLOCK {second.session.id} {mode}") == 1
            assert waiter.done
            assert ("UNBLOCKED" in str(second.engine.unblock(waiter))) == (mode == "ERROR")
        assert port("CLIENT UNBLOCK 99") == 0
        assert port.error("CLIENT UNBLOCK 99 x").startswith("ERR CLIENT UNBLOCK reason should be")


class TestLinesWithoutSense:
    def test_tracking_and_caching(self, port: Run) -> None:
        assert port.error("CLIENT CACHING maybe").startswith("ERR CLIENT CACHING can be called")
        assert port.error("CLIENT TRACKING on BCAST FOO") == "ERR syntax error"
        port("HELLO 3")
        assert port("CLIENT TRACKING on OPTIN") == OK
        assert port.error("CLIENT CACHING maybe") == "ERR syntax error"

    def test_kill_and_unblock(self, port: Run) -> None:
        assert port.error("CLIENT KILL ID 1 ADDR") == "ERR syntax error"
        text = "ERR value is not an integer or out of range"
        assert port.error("CLIENT UNBLOCK x") == text
