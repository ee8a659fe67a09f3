"""The engine: dispatch, dialects, blocked clients, snapshots."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.reply import Blocked
from pytest_fakecloud.kv.settings import KVConfig
from tests.kv.conftest import Run


class TestDispatch:
    def test_the_same_seed_gives_the_same_choices(self, clock: Timekeeper) -> None:
        def choices() -> list[object]:
            engine = KVEngine(clock, Ids(3), KVConfig())
            run = Run(engine, engine.session())
            run("SADD s 1 2 3 4 5 6 7 8 9")
            return [run("SRANDMEMBER s") for _ in range(20)]

        assert choices() == choices()


@pytest.fixture
def client(engine: KVEngine) -> Session:
    return engine.session(interface="port")


def blocked(engine: KVEngine, session: Session, *words: bytes) -> Blocked:
    reply = engine.execute(session, list(words))
    assert isinstance(reply, Blocked)
    return reply


class TestWaiting:
    def test_the_timeout_is_on_the_clock(
        self, engine: KVEngine, client: Session, clock: Timekeeper
    ) -> None:
        waiter = engine.block(
            client, blocked(engine, client, b"BLPOP", b"k", b"1.5"), engine.clock.signal()
        )
        assert waiter.deadline_us == clock.now_us() + 1_500_000
        engine.unblock(waiter)
        assert client.id not in engine.waiters
        assert engine.databases[0].ready is None

    def test_killing_ends_the_wait(self, engine: KVEngine, client: Session, run: Run) -> None:
        waiter = engine.block(
            client, blocked(engine, client, b"BLPOP", b"k", b"0"), engine.clock.signal()
        )
        run(f"CLIENT KILL ID {client.id}")
        assert waiter.done

    def test_only_the_port_waits(self, engine: KVEngine) -> None:
        session = engine.session(interface="local")
        assert not isinstance(engine.execute(session, [b"BLPOP", b"k", b"0"]), Blocked)


class TestSnapshots:
    LINES = (
        "SET s v", "APPEND s w", "SET e v EX 10", "HSET h a 1 b 2", "HEXPIRE h 10 FIELDS 1 a",
        "RPUSH l 1 2", "SADD m 1 2", "ZADD z 1 a", "XADD x 1-1 a 1",
    )  # fmt: skip
    CHANGES = (
        "APPEND s x", "PERSIST e", "HSET h a 5", "RPUSH l 3", "SREM m 1", "ZADD z 5 a",
        "XADD x 2-1 b 1", "SET new 1", "DEL s",
    )  # fmt: skip

    def test_a_snapshot_is_restored_twice(
        self, engine: KVEngine, run: Run, clock: Timekeeper
    ) -> None:
        for line in self.LINES:
            run(line)
        saved = engine.snapshot()
        before = self.content(run)
        for _ in range(2):
            for line in self.CHANGES:
                run(line)
            assert self.content(run) != before
            engine.restore(saved)
            assert self.content(run) == before
        clock.advance(10)
        assert run("HKEYS h") == [b"b"]
        assert run("EXISTS e") == 0

    @staticmethod
    def content(run: Run) -> list[object]:
        readers = ("GET s", "PTTL e", "HGETALL h", "LRANGE l 0 -1", "SMEMBERS m")
        return [run(line) for line in (*readers, "ZRANGE z 0 -1 WITHSCORES", "XLEN x", "KEYS *")]

    def test_scripts_parameters_and_users_come_back_too(self, engine: KVEngine, run: Run) -> None:
        saved = engine.snapshot()
        run(b"SCRIPT", b"LOAD", b"return 1")
        run("CONFIG SET hz 50")
        token = engine.users.make_token(engine.users["default"], b"")
        engine.users.remove("default_ro")
        engine.restore(saved)
        assert run("SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db") == [0]
        assert run("CONFIG GET hz") == [b"hz", b"10"]
        assert engine.users.holder_of(token) is None
        assert sorted(engine.users) == ["default", "default_ro"]

    @pytest.mark.dialect("redis")
    def test_access_counters_belong_to_their_keys(self, engine: KVEngine, run: Run) -> None:
        run("CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0")
        for line in ("SET k v", "GET k", "GET k"):
            run(line)
        saved, often = engine.snapshot(), run("OBJECT FREQ k")
        assert often > 5
        run.each("SWAPDB 0 1", "SET k v")
        assert run("OBJECT FREQ k") == 5
        run("SWAPDB 0 1")
        assert run("OBJECT FREQ k") == often
        run.each("FLUSHDB", "SET k v")
        assert run("OBJECT FREQ k") == 5
        run("CONFIG SET maxmemory-policy noeviction")
        for _ in range(2):
            engine.restore(saved)
            assert run("OBJECT FREQ k") == often
            run("GET k")

    def test_blocked_clients_get_restored_data(self, engine: KVEngine, run: Run) -> None:
        run("RPUSH k x")
        saved = engine.snapshot()
        run("DEL k")
        client = engine.session(interface="port")
        waiter = engine.block(
            client, blocked(engine, client, b"BLPOP", b"k", b"0"), engine.clock.signal()
        )
        engine.restore(saved)
        assert waiter.done
        assert engine.unblock(waiter) == [b"k", b"x"]

    def test_restoring_breaks_transactions_that_watch(self, engine: KVEngine, run: Run) -> None:
        run("SET k 1")
        saved = engine.snapshot()
        run("WATCH k")
        engine.restore(saved)
        run("MULTI")
        assert run("EXEC") != []
