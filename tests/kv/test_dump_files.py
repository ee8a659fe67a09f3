"""``load()`` of an ``.rdb`` file, and ``dump_rdb()``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.config import Config
from pytest_fakecloud.kv.dump_files import load_from_file
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.rdb.payloads import KeyRecord, write_file
from pytest_fakecloud.kv.values.array import ArrayValue
from pytest_fakecloud.kv.values.json import JsonValue
from pytest_fakecloud.kv.values.vector_set import VectorSet

from .backing import OwnServer
from .rdb.packing import LIBRARY, count, file_of, text
from .resp.test_port import Client, blocked

NOW = "2026-01-01T00:00:00Z"
NOW_MS = 1767225600000


@pytest.fixture
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(now=NOW)) as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dump.rdb"


def key(name: bytes, value: bytes) -> bytes:
    return b"\x00" + text(name) + text(value)


def expiry(ms: int) -> bytes:
    return b"\xfc" + ms.to_bytes(8, "little", signed=True)


def test_dumps_can_be_loaded(server: KVServer, file: Path) -> None:
    server.load({"s": "text", "l": ["a", "b"], "h": {"f": "v"}, "z": [("m", 1.5)], "set": {"x"}})
    server.load([["XADD", "x", "1-1", "f", "v"], ["JSON.SET", "j", "$", '{"a": [1]}']])
    server.load([["EXPIRE", "s", 100], ["HEXPIRE", "h", 50, "FIELDS", 1, "f"]])
    server.load([["FUNCTION", "LOAD", LIBRARY]])
    before = server.contents()
    server.dump_rdb(file)
    server.execute("FLUSHALL")
    server.execute("FUNCTION", "FLUSH")
    server.load(str(file))
    assert server.contents() == before
    assert server.ttl("s") == 100
    assert server.execute("HTTL", "h", "FIELDS", 1, "f") == [50]
    assert server.execute("FCALL", "f", 0) == 7


def test_keys_of_the_same_names_are_replaced_and_others_stay(server: KVServer, file: Path) -> None:
    file.write_bytes(file_of(key(b"both", b"new")))
    server.load({"both": ["old"], "other": "stays"})
    server.execute("EXPIRE", "both", 100)
    server.load(file)
    assert server.contents() == {"both": "new", "other": "stays"}
    assert server.ttl("both") is None


def test_expired_keys_are_not_loaded(server: KVServer, file: Path) -> None:
    old = b"\xfd" + (NOW_MS // 1000 + 5).to_bytes(4, "little")
    file.write_bytes(
        file_of(
            expiry(NOW_MS) + key(b"gone", b"1")
            + expiry(NOW_MS + 1500) + key(b"stays", b"2")
            + old + key(b"old", b"3")
            + key(b"never", b"4")
        )
    )  # fmt: skip
    server.load({"gone": "before"})
    line = "dump.rdb: skipped keys: 1 that have expired by the clock of the fake$"
    with pytest.warns(UserWarning, match=line):
        server.load(file)
    assert server.contents() == {"stays": "2", "old": "3", "never": "4"}
    assert server.execute("PTTL", "stays") == 1500
    assert server.execute("PTTL", "old") == 5000


def test_the_idle_time_and_the_access_counter_of_a_key_are_loaded(
    server: KVServer, file: Path
) -> None:
    file.write_bytes(file_of(b"\xf8" + count(50) + key(b"k", b"v") + b"\xf9\x09" + key(b"l", b"v")))
    server.load(file)
    assert server.execute("OBJECT", "IDLETIME", "k") == 50
    server.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    server.load(file)
    assert server.execute("OBJECT", "FREQ", "l") == 9


def test_what_is_not_supported_is_skipped_with_one_line(server: KVServer, file: Path) -> None:
    module_id = b"\x00" * 7 + b"\x01"  # nine times A
    items = b"\x02\x05\x05\x01x\x03abcd\x00"
    modules = b"".join(b"\x07" + text(name) + b"\x81" + module_id + items for name in (b"a", b"b"))
    aux = b"\xf7\x81" + module_id + b"\x02\x01" + b"\x04" + bytes(8) + b"\x00"
    other = b"\xfe\x03\xfb\x01\x00" + key(b"there", b"v")
    file.write_bytes(file_of(aux + key(b"k", b"v") + modules + other))
    line = (
        "dump.rdb: skipped keys: 2 of module type AAAAAAAAA, "
        "1 of databases that this server does not have"
    )
    with pytest.warns(UserWarning, match=line) as caught:
        server.load(file)
    [warning] = caught
    assert warning.filename == __file__
    assert server.keys() == ["k"]
    with KVServer(Context.alone(), dialect="redis") as stock:
        with pytest.warns(UserWarning, match="2 of module type AAAAAAAAA$"):
            stock.load(file)
        stock.execute("SELECT", 3)
        assert stock.execute("GET", "there") == "v"


def test_arrays_are_loaded_with_their_cursor(server: KVServer, file: Path) -> None:
    server.load([["ARINSERT", "k", "a", "b"], ["ARSET", "k", 9, "c"], ["SET", "s", "v"]])
    server.dump_rdb(file)
    server.execute("FLUSHALL")
    server.load(file)
    assert server.array("k") == {0: "a", 1: "b", 9: "c"}
    assert server.execute("ARNEXT", "k") == 2
    with KVServer(Context.alone(), dialect="redis") as stock:
        with pytest.warns(UserWarning, match="skipped keys: 1 of type array$"):
            stock.load(file)
        assert stock.contents() == {"s": "v"}


def test_a_server_without_the_module_has_no_json(
    server: KVServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.load([["JSON.SET", "j", "$", "[1]"], ["SET", "k", "v"]])
    server.dump_rdb(file)
    with KVServer(Context.alone(), dialect="redis", version="7.4") as stock:
        engine = stock._engine
        monkeypatch.delitem(engine.table.commands, "JSON.SET", raising=False)
        with pytest.warns(UserWarning, match="skipped keys: 1 of type ReJSON-RL$"):
            stock.load(file)
        assert stock.contents() == {"k": "v"}
        session = server._engine.session()
        payload = server._engine.execute(session, [b"DUMP", b"j"])
        with pytest.raises(CommandError, match="Bad data format"):
            engine.execute(engine.session(), [b"RESTORE", b"j", b"0", payload])


class TestRefused:
    def test_a_damaged_file_changes_nothing(self, server: KVServer, file: Path) -> None:
        whole = file_of(key(b"a", b"1") + key(b"b", b"2"))
        server.load({"a": "before"})
        for end in range(len(whole)):
            file.write_bytes(whole[:end])
            with pytest.raises(ContractError, match=r"^dump\.rdb cannot be loaded as an \.rdb"):
                server.load(file)
        assert server.contents() == {"a": "before"}

    def test_an_invalid_library_changes_nothing(self, server: KVServer, file: Path) -> None:
        file.write_bytes(file_of(b"\xf5" + text(b"#!lua name=l\nreturn 1") + key(b"k", b"v")))
        with pytest.raises(
            ContractError, match=r"^dump\.rdb: its function libraries cannot be loaded: ERR No func"
        ):
            server.load(file)
        assert server.contents() == {}

    @pytest.mark.parametrize("name", ["none.rdb", ".", "SET k v", "\x00"])
    def test_invalid_files(self, server: KVServer, tmp_path: Path, name: str) -> None:
        with pytest.raises(ContractError, match=r"cannot read .*; pass the path of an \.rdb file"):
            server.load(tmp_path / name)

    @pytest.mark.parametrize("name", ["", "none/dump.rdb", "\x00"])
    def test_files_that_cannot_be_written(
        self, server: KVServer, tmp_path: Path, name: str
    ) -> None:
        with pytest.raises(ContractError, match="cannot write"):
            server.dump_rdb(tmp_path / name)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no FIFOs")
    def test_a_fifo_is_not_waited_for(self, server: KVServer, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(ContractError, match="it is not a regular file"):
            server.load(tmp_path / "fifo")


def test_search_indexes_are_not_dumped(server: KVServer, file: Path) -> None:
    server.load({"u:1": {"name": "ann"}})
    server.execute("SEARCH.CREATE", "i", "ON", "HASH", "PREFIX", 1, "u:", "SCHEMA", "name", "TEXT")
    with pytest.warns(UserWarning, match="skipped indexes: 1; "):
        server.dump_rdb(file)
    with KVServer(Context.alone()) as other, warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load(file)
        assert other.keys() == ["u:1"]


def test_searches_find_loaded_data(server: KVServer, file: Path) -> None:
    server.load({"u:1": {"name": "ann"}})
    server.dump_rdb(file)
    server.execute("DEL", "u:1")
    server.execute("SEARCH.CREATE", "i", "ON", "HASH", "PREFIX", 1, "u:", "SCHEMA", "name", "TEXT")
    server.load(file)
    assert server.execute("SEARCH.COUNT", "i", '{"name": "ann"}') in (1, ["count", 1])


def test_clients_that_watch_or_wait_for_a_key_see_it_come(server: KVServer, file: Path) -> None:
    server.load({"queue": ["job"]})
    server.dump_rdb(file)
    server.execute("DEL", "queue")
    server.execute("WATCH", "queue")
    client = Client(server)
    client.send("BLPOP queue 0")
    blocked(server)
    server.load(file)
    assert client.read() == [b"queue", b"job"]
    server.execute("MULTI")
    assert server.execute("EXEC") is None
    client.close()


def test_a_real_server_is_loaded_by_restoring(file: Path) -> None:
    behind = OwnServer()
    try:
        with KVServer(Context.alone(now=NOW)) as made:
            made.load({"s": "text", "l": ["a", "b"], "h": {"f": "v"}})
            made.load([["JSON.SET", "j", "$", "[1]"], ["PEXPIREAT", "j", 9 * 10**12]])
            made.load([["FUNCTION", "LOAD", LIBRARY]])
            made.dump_rdb(file)
            expected = made.contents()
        with KVServer(Context.alone(), engine=behind.url, isolation="none") as server:
            server.load(file)
            assert server.contents() == expected
            assert server.ttl("j") > 0
            with pytest.raises(ContractError, match="use the SAVE command"):
                server.dump_rdb(file)
    finally:
        behind.close()


def test_keys_of_a_real_server_are_replaced_with_their_expiries(file: Path) -> None:
    records = [KeyRecord(0, b"j", JsonValue([1]), 5), KeyRecord(0, b"s", b"v", 0)]
    records += [KeyRecord(0, b"t", b"v")]
    records += [
        KeyRecord(1, b"other", b"v"),
        KeyRecord(0, b"a", ArrayValue([(7, b"x"), (9, b"y")])),
    ]
    vectors = VectorSet("f32", 5, 2)
    vectors.add(b"e", np.array([0.5, -1], np.float32))
    vectors.set_attributes(b"e", b"{}")
    records.append(KeyRecord(0, b"v", vectors))
    records.append(KeyRecord(0, b"d", JsonValue({})))
    file.write_bytes(write_file(records, [], Config("redis"), "7.0.15", 0))
    lines: list[list[bytes]] = []
    real: Any = None
    with pytest.warns(UserWarning, match="skipped keys: 1 of databases that this server does not"):
        load_from_file(real, file, lines.append)
    assert lines[-2:] == [[b"DEL", b"d"], [b"JSON.SET", b"d", b"$", b"{}"]]
    assert lines[:2] == [[b"DEL", b"j"], [b"JSON.SET", b"j", b"$", b"[1]"]]
    assert lines[2] == [b"PEXPIREAT", b"j", b"5"]
    assert [line[:3] for line in lines[3:5]] == [[b"RESTORE", b"s", b"1"], [b"RESTORE", b"t", b"0"]]
    assert lines[5:-2] == [
        [b"DEL", b"a"],
        [b"ARMSET", b"a", b"7", b"x", b"9", b"y"],
        [b"ARSEEK", b"a", b"0"],
        [b"DEL", b"v"],
        b"VADD v VALUES 2 0.5 -1.0 e NOQUANT SETATTR {} M 5".split(),
    ]


def test_a_real_server_that_rejects_a_key_is_explained(server: KVServer, file: Path) -> None:
    server.load({"k": "v"})
    server.dump_rdb(file)

    def reject(line: list[bytes]) -> None:
        raise CommandError(b"NOPERM no RESTORE")

    real: Any = SimpleNamespace(clock=server._engine.clock)
    with pytest.raises(
        ContractError, match=r"^dump\.rdb: the server rejected .* NOPERM no RESTORE"
    ):
        load_from_file(real, file, reject)
