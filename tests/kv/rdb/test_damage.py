"""Damaged data of every kind raise ``RdbError``, quickly and within little memory."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from random import Random

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.dump_files import records_of
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.rdb import payloads, source
from pytest_fakecloud.kv.rdb.payloads import read_file, write_file
from pytest_fakecloud.kv.rdb.source import RdbError, lzf_compress, write_listpack
from pytest_fakecloud.kv.rdb.types import ARRAY_MODULE, VECTOR_SET_MODULE, module_id
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.kv.values import vector_set  # noqa: F401 - its import takes memory
from pytest_fakecloud.kv.values.measures import value_digest
from tests.budget import cases

from .packing import LIBRARY, OTHERS, count, file_of, sealed, text, ziplist

LINES = """SET s hello|SET n 12345|SET z aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
RPUSH l a b -7 1000|SADD i 1 2 70000|SADD m a b|ZADD zs 1.5 a 2 b
HSET h f v n 10|HPEXPIREAT h 9000000000000 FIELDS 1 f
XADD x 1-1 f v|XADD x 2-0 g w h 1|XGROUP CREATE x g 0|XREADGROUP GROUP g ann COUNT 1 STREAMS x >
JSON.SET j $ {"a":[1]}|ARRING r 3 a b c d|ARSET sparse 9 x|PEXPIREAT s 9000000000000"""


@pytest.fixture(scope="module")
def engine() -> KVEngine:
    engine = KVEngine(Timekeeper("2026-01-01T00:00:00Z"), Ids(0), KVConfig())
    session = engine.session()
    for line in LINES.replace("\n", "|").split("|"):
        engine.execute(session, line.encode().split())
    return engine


@pytest.fixture(scope="module")
def sample(engine: KVEngine) -> bytes:
    return write_file(records_of(engine), [LIBRARY], engine.config, "8.2.0", 1)


@pytest.fixture(scope="module")
def values(engine: KVEngine) -> list[bytes]:
    made = [payloads.dump(record.value, engine.config, 12) for record in records_of(engine)]
    return [*(payload[:-10] for payload in made), *OTHERS.values()]


def test_the_sample_is_in_order(sample: bytes) -> None:
    dump = read_file(sample)
    assert len(dump.records) == 12
    assert dump.libraries == [LIBRARY]


def test_a_truncated_file_is_rejected(sample: bytes) -> None:
    for end in range(len(sample)):
        with pytest.raises(RdbError):
            read_file(sample[:end])


def test_a_flipped_bit_anywhere_is_noticed(sample: bytes) -> None:
    for place in range(len(sample)):
        damaged = bytearray(sample)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(RdbError):
            read_file(bytes(damaged))


def test_values_that_end_too_soon_are_refused(values: list[bytes]) -> None:
    for body in values:
        # Most bytes of the longest values are inside a long string.
        for end in range(1, len(body), 1 + len(body) // 100):
            with pytest.raises(RdbError):
                payloads.load(sealed(body[:end]), 12)


def test_damage_under_a_valid_checksum(engine: KVEngine, values: list[bytes]) -> None:
    random = Random(7)
    for number in range(cases(1000)):
        damaged = bytearray(values[number % len(values)])
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            byte = random.choice((0, 1, 255, 254, 0x80, 0x81, 0xC3, random.randrange(256)))
            damaged[random.randrange(len(damaged))] = byte
        with suppress(RdbError):
            value = payloads.load(sealed(bytes(damaged)), 12)
            again = payloads.load(payloads.dump(value, engine.config, 12), 12)
            assert value_digest(again, False) == value_digest(value, False)


HUGE = b"\x81" + (1 << 62).to_bytes(8, "big")
JSON_ID = module_id("ReJSON-RL", 3).to_bytes(8, "big")
VECTOR_SET_ID = module_id(VECTOR_SET_MODULE, 1).to_bytes(8, "big")
ARRAY_ID = module_id(ARRAY_MODULE, 1).to_bytes(8, "big")


def array_of(*items: int | bytes) -> bytes:
    return module_value(ARRAY_ID, *items)


def vectors_of(*items: int | bytes) -> bytes:
    return module_value(VECTOR_SET_ID, *items)


def module_value(module: bytes, *items: int | bytes) -> bytes:
    parts = (
        b"\x02\x81" + item.to_bytes(8, "big") if isinstance(item, int) else b"\x05" + text(item)
        for item in items
    )
    return b"\x07\x81" + module + b"".join(parts) + b"\x00"


ELEMENT = (b"a", bytes(4), bytes(8), b"")
INFINITE = b"\x00\x00\x80\x7f"
HOSTILE = {
    "an array without values": array_of(0, 0),
    "an array without anything": array_of(),
    "an array with an index twice": array_of(0, 0, 7, b"a", 7, b"b"),
    "an array with an index that is too high": array_of(0, 0, 2**64 - 1, b"a"),
    "an array with an index without a value": array_of(0, 0, 7, b"a", 8),
    "an array with a value without an index": array_of(0, 0, b"a", 7),
    "an array with another item": array_of(0, 0, 7, b"a", b"b", b"c"),
    "a vector set without elements": vectors_of(0, 16, 1, 0, 0, 0),
    "a vector set without anything": vectors_of(),
    "a vector set of an unknown form": vectors_of(3, 16, 1, 0, 0, 0, *ELEMENT),
    "a vector set without dimensions": vectors_of(0, 16, 0, 0, 0, 0, b"a", b"", bytes(8), b""),
    "a vector set of 2^62 dimensions": vectors_of(0, 16, 1, 1 << 62, 0, 0, *ELEMENT),
    "a vector set with an element twice": vectors_of(0, 16, 1, 0, 0, 0, *ELEMENT, *ELEMENT),
    "a vector set with a short vector": vectors_of(0, 16, 2, 0, 0, 0, *ELEMENT),
    "a vector set with an infinite vector": vectors_of(0, 16, 1, 0, 0, 0, b"a", INFINITE, bytes(8), b""),
    "a vector set with a short length": vectors_of(0, 16, 1, 0, 0, 0, b"a", bytes(4), bytes(7), b""),
    "a vector set with a part of an element": vectors_of(0, 16, 1, 0, 0, 0, *ELEMENT, b"b"),
    "a vector set with another item": vectors_of(0, 16, 1, 0, 0, 0, *ELEMENT, 7),
    "a string of 2^62 bytes": b"\x00" + HUGE,
    "a list of 2^62 strings": b"\x01" + HUGE + b"\x01a",
    "a set of a million strings": b"\x02" + count(10**6) + b"\x01a" * 99,
    "a hash of 2^62 fields": b"\x04" + HUGE + b"\x01a\x01b",
    "a sorted set of 2^62 members": b"\x05" + HUGE + b"\x01a" + bytes(8),
    "LZF of 2^62 bytes": b"\x00\xc3\x05" + HUGE + b"\x01ab\xe0\xff\x00",
    "LZF of 2^62 compressed bytes": b"\x00\xc3" + HUGE + b"\x05" + b"\x01ab\xe0\xff",
    "LZF with more than it says": b"\x00\xc3\x05\x14" + b"\x00a\xe0\xff\x00",
    "LZF with less than it says": b"\x00\xc3\x05\x80\x00\x00\x01\x1c" + b"\x00a\xe0\x00\x00",
    "LZF that begins before its start": b"\x00\xc3\x04\x05" + b"\x00a\x20\x07",
    "a length of no form": b"\x00\x82\x00\x00\x00\x00",
    "a string of no form": b"\x00\xc4\x00",
    "a length that is an integer": b"\x02\xc0\x01\x01a",
    "type 6": b"\x06\x01a",
    "type 8": b"\x08\x01a",
    "type 99": b"\x63\x01a",
    "an empty list": b"\x01\x00",
    "an empty set": b"\x02\x00",
    "an empty hash": b"\x04\x00",
    "an empty quicklist": b"\x12\x00",
    "a quicklist of an empty listpack": b"\x12\x01\x02" + text(write_listpack([])),
    "a quicklist with a node of no form": b"\x12\x01\x03" + text(write_listpack([b"a"])),
    "a member twice": b"\x02\x02\x01a\x01a",
    "a field twice": b"\x04\x02\x01a\x01b\x01a\x01b",
    "a member of a sorted set twice": b"\x05\x02\x01a" + bytes(8) + b"\x01a" + bytes(8),
    "a score that is a word": b"\x11" + text(write_listpack([b"a", b"junk"])),
    "a member without a score": b"\x11" + text(write_listpack([b"a", 1, b"b"])),
    "a field without a value": b"\x10" + text(write_listpack([b"a", 1, b"b"])),
    "a listpack with another size": b"\x10" + text(write_listpack([b"a", 1])[:-1] + b"\x00\xff"),
    "a listpack with another count": b"\x10"
    + text(write_listpack([b"a", 1]).replace(b"\x02", b"\x03", 1)),
    "a listpack without an end": b"\x10" + text(write_listpack([b"a", 1])[:-1] + b"\xfe"),
    "a listpack with a byte of no form": b"\x10"
    + text(write_listpack([b"a", 5]).replace(b"\x05", b"\xf5")),
    "a listpack with another length after an entry": b"\x10"
    + text(write_listpack([b"a" * 200, 1]).replace(b"\x01\xca", b"\x01\xcb")),
    "a listpack that is empty": b"\x10\x00",
    "a ziplist with a wrong tail": b"\x0d" + text(ziplist(b"a", 1)[:4] + b"\x63" + ziplist(b"a", 1)[5:]),
    "a ziplist that is empty": b"\x0d\x00",
    "a zipmap that is empty": b"\x09\x00",
    "a zipmap that ends within a field": b"\x09" + text(b"\x01\x01f\x05\xff"),
    "a zipmap with another count": b"\x09" + text(b"\x05\x01f\x01\x00v\xff"),
    "integers of no width": b"\x0b" + text(b"\x03\x00\x00\x00\x01\x00\x00\x00abc"),
    "integers out of order": b"\x0b" + text(b"\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x01\x00"),
    "no integers": b"\x0b" + text(b"\x02\x00\x00\x00\x00\x00\x00\x00"),
    "a stream with a short id": b"\x13\x01" + text(b"short") + text(write_listpack([0, 0, 0, 0])),
    "a stream whose node promises too much": b"\x13\x01" + text(bytes(16))
    + text(write_listpack([2**62, 0, 1, b"f", 0])),
    "a stream whose entry has too many fields": b"\x13\x01" + text(bytes(16))
    + text(write_listpack([1, 0, 1, b"f", 0, 0, 0, 1, 2**62])),
    "a stream whose node has an element too many": b"\x13\x01" + text(bytes(16))
    + text(write_listpack([1, 0, 1, b"f", 0, 2, 0, 0, b"v", 4, 4])) + b"\x01" + bytes(8),
    "a stream whose node has too few deleted entries": b"\x13\x01" + text(bytes(16))
    + text(write_listpack([0, 1, 1, b"f", 0, 2, 0, 0, b"v", 4])) + b"\x01" + bytes(8),
    "a stream of another length": b"\x13\x00" + b"\x05" + bytes(8),
    "a stream with 2^62 groups": b"\x13\x00" + bytes(8) + HUGE,
    "a group with 2^62 pending entries": b"\x13\x00" + bytes(8) + b"\x01\x01g\x00\x00\x00" + HUGE,
    "a pending entry of nobody": b"\x13\x00" + bytes(8) + b"\x01\x01g\x00\x00\x00"
    + (b"\x01" + bytes(16 + 8) + b"\x01\x00"),
    "a module whose item has no form": b"\x07\x81" + bytes(8) + b"\x09",
    "JSON that is none": b"\x07\x81" + JSON_ID + b"\x05\x01{\x00",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_are_refused_in_little_memory(name: str) -> None:
    payload = sealed(HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(RdbError):
            payloads.load(payload, 12)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [False, True])
def test_data_that_unpack_to_too_much(monkeypatch: pytest.MonkeyPatch, *, packed: bool) -> None:
    monkeypatch.setattr(source, "MOST_UNPACKED", {packed: 50_000, not packed: 0})
    fits, more = (write_list(number, packed) for number in (5, 30))
    assert len(payloads.load(sealed(fits), 12)) == 5
    with pytest.raises(RdbError, match="decompress to too many bytes"):
        payloads.load(sealed(more), 12)


def write_list(length: int, packed: bool) -> bytes:
    """Return a list of strings that repeat one byte 5,000 times, each in a node of its own."""
    item = write_listpack([b"a" * 5000]) if packed else b"a" * 5000
    compressed = lzf_compress(item, len(item))
    assert compressed is not None
    string = b"\xc3" + count(len(compressed)) + count(len(item)) + compressed
    node = b"\x02" + string if packed else b"\x01" + string
    return b"\x12" + count(length) + node * length


KEY = b"\x00\x01k\x01v"


@pytest.mark.parametrize(("data", "words"), [
    (b"", "begins with b''"),
    (b"hello world", "begins with"),
    (b"REDIS", "begins with"),
    (b"REDISabcd\xff", "begins with"),
    (file_of(KEY, b"REDIS0000"), "version 0 is not supported; expected 1 to 12"),
    (file_of(KEY, b"REDIS0013"), "version 13"),
    (file_of(KEY, b"VALKEY079"), "version 79 is not supported; expected 80 to 81"),
    (file_of(KEY)[:-8] + b"\x01" * 8, "checksum is wrong"),
    (file_of(KEY)[:-9], "data ends at byte 14"),
    (file_of(KEY + KEY), "database 0 has the key 'k' twice"),
    (file_of(b"\x06\x01k\x01v"), "the key 'k' is damaged: type 6 does not exist"),
    (file_of(b"\x14\x01k\x01v"), "type 20 does not exist in format version 10"),
    (file_of(b"\xf4\x00\x00\x00"), "type 244 does not exist in format version 10"),
    (file_of(b"\xf3\x00\x00\x00", b"REDIS0012"), "type 243 does not exist"),
    (file_of(b"\xfa\x01a"), "unknown encoding 63"),
    (file_of(b"\x00\x82"), "expected a length at byte 10, got 0x82"),
])  # fmt: skip
def test_errors_name_the_problem_of_a_file(data: bytes, words: str) -> None:
    with pytest.raises(RdbError, match=words.replace("(", r"\(")):
        read_file(data)
