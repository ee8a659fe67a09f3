"""Values in forms that the server itself does not write: of older and newer servers."""

from __future__ import annotations

import math
import shutil
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud.kv.rdb.payloads import read_file
from pytest_fakecloud.kv.rdb.source import write_listpack
from pytest_fakecloud.kv.rdb.types import module_id

from ..conftest import Run
from .packing import OTHERS, count, file_of, sealed, text, ziplist
from .test_real import Redis, plain

ID = (1).to_bytes(8, "big") + (1).to_bytes(8, "big")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server is installed")
    server = Redis(tmp_path_factory.mktemp("real"))
    yield server
    server.close()


def read(kind: int, body: bytes, magic: bytes = b"REDIS0012") -> Any:
    [record] = read_file(file_of(bytes([kind]) + text(b"k") + body, magic)).records
    return record.value


def test_sets_are_listpacks_since_7_2() -> None:
    assert set(read(20, text(write_listpack([b"a", 1])))) == {b"a", b"1"}


def test_consumers_tell_since_7_2_when_they_were_active() -> None:
    node = count(1) + text(ID) + text(write_listpack([1, 0, 1, b"f", 0, 2, 0, 0, b"v", 4]))
    ids = b"\x01\x01\x01" + b"\x01\x01" + b"\x00\x00" + b"\x01"
    pending = count(1) + ID + (5).to_bytes(8, "little") + b"\x01"
    times = (7).to_bytes(8, "little") + (6).to_bytes(8, "little")
    group = count(1) + text(b"g") + b"\x01\x01\x01" + pending
    stream = read(21, node + ids + group + count(1) + text(b"ann") + times + count(1) + ID)
    [ann] = stream.groups[b"g"].consumers.values()
    assert (ann.seen_ms, ann.active_ms, len(ann.pending)) == (7, 6, 1)


def test_fields_of_hashes_expire_since_7_4() -> None:
    first = (5000).to_bytes(8, "little")
    value = read(24, first + count(3) + b"\x00\x01a\x011" + b"\x01\x01b\x012" + b"\x0b\x01c\x013")
    assert value.fields == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert value.expires == {b"b": 5000, b"c": 5010}
    value = read(25, first + text(write_listpack([b"a", 1, 0, b"b", 2, 5000])))
    assert (value.fields, value.expires) == ({b"a": b"1", b"b": b"2"}, {b"b": 5000})


def test_fields_of_hashes_expire_in_another_form_in_valkey() -> None:
    never, at_ms = struct.pack("<q", -1), struct.pack("<q", 5000)
    value = read(22, count(2) + b"\x01a\x011" + never + b"\x01b\x012" + at_ms, b"VALKEY080")
    assert (value.fields, value.expires) == ({b"a": b"1", b"b": b"2"}, {b"b": 5000})


class TestModules:
    def test_json_is_the_text_that_redisjson_stores(self, run: Run) -> None:
        run("JSON.SET", "k", "$", '{"a": [1, 2.5, "x"]}')
        payload = run("DUMP k")
        assert payload[:1] == b"\x07"
        assert b'{"a":[1,2.5,"x"]}' in payload
        run("RESTORE", "copy", "0", payload)
        assert run("JSON.GET copy") == b'{"a":[1,2.5,"x"]}'

    def test_arrays_keep_the_cursor_and_the_size_of_a_ring(self, run: Run) -> None:
        run("ARRING k 3 a b c d")
        payload = run("DUMP k")
        run("RESTORE", "copy", "0", payload)
        assert run("ARGETRANGE copy 0 2") == [b"d", b"b", b"c"]
        assert run("ARRING copy 3 e") == 1
        assert run("DUMP k") == payload

    @pytest.mark.dialect("redis")
    def test_restoring_an_unknown_type_is_refused(self, run: Run) -> None:
        for name in (bytes(8), module_id("ReJSON-RL", 2).to_bytes(8, "big")):
            payload = sealed(b"\x07" + b"\x81" + name + b"\x02\x05\x00")
            assert run.error("RESTORE", "k", "0", payload) == "ERR Bad data format"


@pytest.mark.dialect("redis")
class TestOlder:
    @pytest.mark.parametrize(("name", "line", "reply"), [
        ("list of strings", "LRANGE k 0 -1", [b"a", b"7"]),
        ("zset with scores as text", "ZRANGE k 0 -1", [b"c", b"a", b"d", b"b"]),
        ("hash as zipmap", "HGETALL k", [b"f", b"v", b"fx", b"v" * 300]),
        ("zset as ziplist", "ZRANGE k 0 -1", [b"a", b"b", b"3"]),
        ("hash as ziplist", "HGETALL k", [b"a", b"1", b"b" * 70, b"1.5", b"3", b""]),
        ("list as quicklist", "LRANGE k 0 1", [b"a", b"7"]),
        ("stream", "XRANGE k - +", [[b"1-1", [b"f", b"v"]], [b"2-0", [b"g", b"w"]]]),
        ("list with over-long lengths", "LRANGE k 0 -1", [b"a"]),
    ])  # fmt: skip
    def test_they_are_read(self, run: Run, name: str, line: str, reply: Any) -> None:
        run("RESTORE", "k", "0", sealed(OTHERS[name]))
        assert run(line) == reply

    @pytest.mark.parametrize("name", OTHERS)
    def test_redis_reads_the_same(self, run: Run, real: Redis, name: str) -> None:
        line = [b"RESTORE", b"k", b"0", sealed(OTHERS[name]), b"REPLACE"]
        real.run([line])
        run(*line)
        assert run("OBJECT ENCODING k") == real.run([[b"OBJECT", b"ENCODING", b"k"]])[0]
        real.run([[b"RESTORE", b"copy", b"0", run("DUMP k"), b"REPLACE"]])
        first, second = real.run([[b"DEBUG", b"DIGEST-VALUE", b"k", b"copy"]])[0]
        assert first == second
        if name.startswith("stream"):
            theirs = real.run([b"XINFO STREAM k FULL".split()])[0]
            # In an empty stream Redis reports the highest ID as the first.
            mine = plain(run("XINFO STREAM k FULL"))
            highest = b"18446744073709551615-18446744073709551615"
            assert mine == [b"0-0" if item == highest else item for item in theirs]


def test_a_score_that_is_not_a_number_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a number"):
        read(5, count(1) + text(b"a") + struct.pack("<d", math.nan))


@pytest.mark.parametrize("description", [b"\x01" + text(b"about"), b"\x00"])
def test_a_library_of_a_release_candidate_gets_its_first_line(description: bytes) -> None:
    old = b"\xf6" + text(b"lib") + text(b"LUA") + description + text(b"return 1")
    assert read_file(file_of(old)).libraries == [b"#!lua name=lib\nreturn 1"]


def test_a_file_of_an_old_version_has_no_checksum() -> None:
    [record] = read_file(b"REDIS0004" + b"\x00" + text(b"k") + text(b"v") + b"\xff").records
    assert (record.key, record.value) == (b"k", b"v")


def test_sizes_of_cluster_slots_are_skipped() -> None:
    key = b"\x00" + text(b"k") + text(b"v")
    [record] = read_file(file_of(b"\xf4\x05\x01\x00" + key, b"REDIS0012")).records
    assert record.value == b"v"


GROUP = text(b"g") + b"\x01\x01"
ANN = text(b"ann") + bytes(8) + count(0)
PENDING = ID + (5).to_bytes(8, "little") + b"\x01"


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (15, bytes(4) + count(2) + 2 * (GROUP + bytes(2)), "two groups of the same name"),
        (15, bytes(4) + count(1) + GROUP + count(2) + 2 * PENDING, "duplicate pending"),
        (15, bytes(4) + count(1) + GROUP + count(0) + count(2) + 2 * ANN, "two consumers"),
        (12, text(ziplist(b"a", b"1_0")), "not a number"),
        (12, text(ziplist(b"a", b"one")), "not a number"),
        (25, bytes(8) + text(write_listpack([b"a", 1, b"x"])), "without a value or an expiry"),
        (9, text(b"\x01\x01a\xff\xff"), "end marker before its end"),
    ],
)
def test_contradictions_are_rejected(kind: int, body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(kind, body)
