"""Keyspace notifications: the events of every command, as observed on real servers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.settings import KVConfig
from tests.harness import wait_until
from tests.kv.conftest import pushing_to

from ...notations import alternatives, rows
from ..conftest import Run

EVENTS = Path(__file__).with_name("events.txt")
"""One session's commands in order, each with its events: those of Redis 7.0 (``stock``), and for
field expiry those of Valkey 9.1. Alternatives in braces are commands with the same events.
"""


class Listener:
    """Records events as ``key:event``, with ``@<db>`` after the key except for database 0."""

    def __init__(self, engine: KVEngine, pattern: bytes = b"__keyspace*") -> None:
        self.heard: list[str] = []
        session = engine.session()
        session.connection = pushing_to(self.hear)
        engine.pubsub.subscribe(session, "pattern", pattern)

    def hear(self, message: list[bytes]) -> None:
        if message[0] == b"pmessage":
            channel, event = message[2].decode(), message[3].decode()
            number, _, key = channel.partition("@")[2].partition("__:")
            self.heard.append(f"{key}{'' if number == '0' else '@' + number}:{event}")

    def take(self) -> list[str]:
        heard, self.heard = self.heard, []
        return heard


Listen = Callable[..., Listener]


@pytest.fixture
def listen(engine: KVEngine) -> Callable[..., Listener]:
    def begin(flags: str, pattern: bytes = b"__key*") -> Listener:
        command = ["CONFIG", "SET", "notify-keyspace-events", flags]
        engine.execute(engine.session(), [word.encode() for word in command])
        return Listener(engine, pattern)

    return begin


@pytest.mark.parametrize(("name", "version"), [("stock", "7.0.15"), ("fields", "9.1.0")])
def test_every_command_sends_the_events_of_a_real_server(name: str, version: str) -> None:
    engine = KVEngine(
        Timekeeper("2026-01-01T00:00:00Z"), Ids(1), KVConfig(dialect="redis", version=version)
    )
    session = engine.session()
    engine.execute(session, [b"CONFIG", b"SET", b"notify-keyspace-events", b"KAmn"])
    listener = Listener(engine)
    wrong = {}
    for lines, expected in rows(EVENTS, name, raw=True):
        for line in alternatives(lines):
            with suppress(CommandError):
                engine.execute(session, [word.encode() for word in shlex.split(line)])
            if (heard := listener.take()) != expected.split():
                wrong[line] = heard
    assert wrong == {}


class TestClasses:
    def test_keyevent_messages_are_keys(self, run: Run, listen: Listen) -> None:
        listener = listen("E$")
        run.each("SET k v", "EXPIRE k 10")
        assert listener.heard == ["set:k"]

    def test_both_channels_of_one_event_come_together(self, run: Run, listen: Listen) -> None:
        listener = listen("KEg")
        run.each("MSET a 1 b 2", "DEL a b")
        assert listener.heard == ["a:del", "del:a", "b:del", "del:b"]

    @pytest.mark.parametrize("flags", ["", "A", "g$x", "K", "E"])
    def test_no_events_without_both_letters(self, run: Run, listen: Listen, flags: str) -> None:
        listener = listen(flags)
        run.each("SET k v", "DEL k")
        assert listener.heard == []

    def test_they_end_with_the_parameter(self, run: Run, listen: Listen) -> None:
        listener = listen("KA")
        run("CONFIG", "SET", "notify-keyspace-events", "")
        run("SET k v")
        assert listener.heard == []

    def test_arrays_have_the_events_of_their_commands(self, run: Run, listen: Listen) -> None:
        listener = listen("Kdgn")
        run.each("ARSET a 0 x", "ARMSET a 0 y 9 z", "ARSET a 0 y", "ARINSERT a x", "ARRING a 2 y")
        run.each("ARSEEK a 9", "ARSEEK none 9", "ARDEL a 1", "ARDEL a 1", "ARDELRANGE a 0 5")
        assert listener.heard == [
            *("a:new", "a:arset", "a:arset", "a:arset", "a:arinsert", "a:arring", "a:arseek"),
            *("a:ardel", "a:ardelrange", "a:del"),
        ]

    def test_json_has_events_of_its_own(self, run: Run, listen: Listen) -> None:
        listener = listen("Kd")
        run("JSON.SET", "j", "$", '{"a": [1]}')
        run.each("JSON.ARRAPPEND j $.a 2", "JSON.NUMINCRBY j $.a[0] 2")
        assert listener.heard == ["j:json.set", "j:json.arrappend", "j:json.numincrby"]

    @pytest.mark.dialect("redis", modules=["ReJSON"], version="8.0.0")
    def test_the_last_member_of_a_document_takes_the_key_with_it(
        self, run: Run, listen: Listen
    ) -> None:
        listener = listen("Kdg")
        run("JSON.SET", "j", "$", '{"a": 1, "b": 2}')
        run.each("JSON.DEL j $.a", "JSON.DEL j $.b")
        assert listener.heard == ["j:json.set", "j:json.del", "j:json.del", "j:del"]

    def test_restoring_applies_parameters(self, engine: KVEngine, run: Run, listen: Listen) -> None:
        before = engine.snapshot()
        listener = listen("KA")
        engine.restore(before)
        run("SET k v")
        assert listener.heard == []


class TestExpiry:
    def test_a_key_expires_unread(self, run: Run, clock: Timekeeper, listen: Listen) -> None:
        listener = listen("Ex")
        run.each("SET a v EX 10", "SET b v EX 5", "SET c v EX 20", "PERSIST c")
        clock.advance("4s")
        assert listener.heard == []
        clock.advance("1s")
        assert listener.take() == ["expired:b"]
        clock.advance("1h")
        assert listener.heard == ["expired:a"]

    def test_expiries_set_before_notifications_were_enabled(
        self, run: Run, clock: Timekeeper, listen: Listen
    ) -> None:
        run("SET a v EX 10")
        listener = listen("Kx")
        clock.advance("10s")
        assert listener.heard == ["a:expired"]

    def test_fields_expire_too(self, run: Run, clock: Timekeeper, listen: Listen) -> None:
        run("HSET h a 1 b 2")
        listener = listen("Kgh")
        run.each("HEXPIRE h 10 FIELDS 1 a", "HEXPIRE h 20 FIELDS 1 b")
        listener.take()
        clock.advance("10s")
        assert listener.take() == ["h:hexpired"]
        clock.advance("10s")
        assert listener.heard == ["h:hexpired", "h:del"]

    def test_a_later_expiry_has_no_event(self, run: Run, clock: Timekeeper, listen: Listen) -> None:
        listener = listen("Kx")
        run.each("SET a v EX 10", "EXPIRE a 100")
        clock.advance("50s")
        assert listener.heard == []
        clock.advance("50s")
        assert listener.heard == ["a:expired"]


class TestParameter:
    @pytest.mark.parametrize(
        ("flags", "shown"),
        [
            ("KEA", "AKE"), ("KEg$lshzxetd", "AKE"), ("g$lshzxe", "g$lshzxe"), ("mnKEA", "AKEm"),
            ("nKm", "nKm"), ("dtx", "xtd"), ("KK", "K"), ("", ""),
        ],
    )  # fmt: skip
    def test_it_is_shown_in_order(self, run: Run, flags: str, shown: str) -> None:
        run("CONFIG", "SET", "notify-keyspace-events", flags)
        assert run("CONFIG GET notify-keyspace-events")[1] == shown.encode()

    @pytest.mark.parametrize("flags", ["q", "K E", "KEA\n"])
    def test_other_letters_are_refused(self, run: Run, flags: str) -> None:
        assert run.error("CONFIG", "SET", "notify-keyspace-events", flags) == (
            "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - "
            "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
        )


def test_keys_expire_without_an_access() -> None:
    """The clock is running, so nothing but time moves it."""
    with Cloud() as cloud:
        kv = cloud.kv_server(dialect="redis")
        kv.execute("CONFIG", "SET", "notify-keyspace-events", "Ex")
        engine = kv._engine
        heard: list[object] = []
        listener = engine.session(interface="port")
        listener.connection = pushing_to(heard.append)
        engine.execute(listener, [b"SUBSCRIBE", b"__keyevent@0__:expired"])
        kv.execute("SET", "k", "v", "PX", "20")
        wait_until(lambda: len(heard) == 2)
        assert heard[1] == [b"message", b"__keyevent@0__:expired", b"k"]


def test_a_lower_limit_evicts_immediately() -> None:
    with Cloud() as cloud:
        kv = cloud.kv_server(dialect="redis")
        kv.execute("SET", "k", "v")
        kv.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        kv.execute("CONFIG", "SET", "maxmemory", "1")
        assert kv._engine.memory.evicted == 1
