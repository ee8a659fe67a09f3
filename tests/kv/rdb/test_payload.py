"""Payloads of DUMP, RESTORE, FUNCTION DUMP and FUNCTION RESTORE.

``payloads.txt`` was measured on Redis 7.0.15.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ...notations import rows
from ..conftest import Run
from .packing import sealed, text

PAYLOADS = rows(Path(__file__).with_name("payloads.txt"), "Redis 7.0.15")
READ_ONLY = [
    (
        "1202020a0a0000000100816102ff010f706c61696e706c61696e706c61696e0a004ba4dec11213104c",
        "LRANGE k 0 -1",
        [b"a", b"plainplainplain"],
    ),
    (
        "13011000000000000000010000000000000001323200000014000201010101018161020001020100010001010104"
        "0103010101dfff020201040102010201dfff0203010401ff0203000101020003000a0078bfd522ae2b9dd3",
        "XRANGE k - +",
        [[b"1-1", [b"a", b"1"]], [b"3-0", [b"a", b"3"]]],
    ),
    (
        "130110000000000000000100000000000000011c1c0000000a00010100010101816102000102010001000101010401"
        "ff01010101010000010101670101010100000000000000010000000000000001cc4230fea101000001010163cc42"
        "30fea101000001000000000000000100000000000000010a009b55b260b6d4f895",
        "XPENDING k g",
        [1, b"1-1", b"1-1", [[b"c", b"1"]]],
    ),
]
"""Payloads that commands cannot recreate here: of other nodes, deletions and times."""
LIBRARY = b"#!lua name=mylib\nredis.register_function('f1', function(k,a) return 1 end)"
LIBRARY_DUMP = (
    "f5404a23216c7561206e616d653d6d796c69620a72656469732e72656769737465725f66756e6374696f6e28276631"
    "272c2066756e6374696f6e286b2c61292072657475726e203120656e64290a00d5ae5ef458e724a0"
)


@pytest.mark.dialect("redis")
@pytest.mark.parametrize(("line", "payload"), PAYLOADS)
def test_values_are_dumped_as_redis_dumps_them(run: Run, line: str, payload: str) -> None:
    run(line)
    assert run("DUMP k").hex() == payload
    run("RESTORE", "copy", "0", bytes.fromhex(payload))
    assert run("DUMP copy") == bytes.fromhex(payload)


@pytest.mark.dialect("redis")
@pytest.mark.parametrize(("payload", "line", "reply"), READ_ONLY)
def test_payloads_of_redis_are_read(run: Run, payload: str, line: str, reply: Any) -> None:
    run("RESTORE", "k", "0", bytes.fromhex(payload))
    assert run(line) == reply


@pytest.mark.dialect("redis")
def test_libraries_are_dumped_as_redis_dumps_them(run: Run) -> None:
    assert run("FUNCTION DUMP").hex() == "0a005d9b5c400f7fa2da"
    run("FUNCTION", "LOAD", LIBRARY)
    assert run("FUNCTION DUMP").hex() == LIBRARY_DUMP
    run("FUNCTION", "RESTORE", bytes.fromhex("0a005d9b5c400f7fa2da"), "FLUSH")
    assert run("FUNCTION LIST") == []
    run("FUNCTION", "RESTORE", bytes.fromhex(LIBRARY_DUMP))
    assert run("FCALL f1 0") == 1


BAD_SEAL = "ERR DUMP payload version or checksum are wrong"


class TestVersions:
    """The versions that a server writes and reads."""

    @pytest.mark.parametrize("number", [
        pytest.param(12, marks=pytest.mark.dialect("vendor")),
        pytest.param(10, marks=pytest.mark.dialect("redis")),
        pytest.param(11, marks=pytest.mark.dialect("redis", version="7.2.0")),
        pytest.param(12, marks=pytest.mark.dialect("redis", version="7.4.0")),
    ])  # fmt: skip
    def test_they_follow_what_the_server_announces(self, run: Run, number: int) -> None:
        run("SET k v")
        payload = run("DUMP k")
        assert int.from_bytes(payload[-10:-8], "little") == number
        run("RESTORE", "old", "0", sealed(payload[:-10], 0))
        assert run.error("RESTORE", "new", "0", sealed(payload[:-10], number + 1)) == BAD_SEAL

    @pytest.mark.dialect("redis", version="7.2.0")
    def test_sets_and_streams_have_forms_of_their_own_since_7_2(self, run: Run) -> None:
        run("SADD s a b")
        run("XADD x 1-1 f v")
        run("XGROUP CREATE x g 0")
        run("XREADGROUP GROUP g ann STREAMS x >")
        assert [run("DUMP s")[0], run("DUMP x")[0]] == [20, 21]
        before = run("XINFO STREAM x FULL")
        for key in ("s", "x"):
            run("RESTORE", key, "0", run(f"DUMP {key}"), "REPLACE")
        assert run("XINFO STREAM x FULL") == before
        assert run("OBJECT ENCODING s") == b"listpack"

    @pytest.mark.dialect("redis")
    @pytest.mark.parametrize("kind", [20, 21, 22, 24, 25])
    def test_forms_of_later_versions_are_unknown(self, run: Run, kind: int) -> None:
        assert run.error("RESTORE", "k", "0", sealed(bytes([kind, 0]))) == "ERR Bad data format"


@pytest.mark.dialect("redis")
class TestPayloads:
    def test_bytes_behind_the_value_are_ignored(self, run: Run) -> None:
        run("RESTORE", "k", "0", sealed(b"\x00\x01vrest"))
        assert run("GET k") == b"v"

    def test_a_value_does_not_reach_into_the_seal(self, run: Run) -> None:
        payload = sealed(b"\x00\x09hello")
        assert run.error("RESTORE", "k", "0", payload) == "ERR Bad data format"

    @pytest.mark.parametrize(
        "payload", [b"", b"123456789", bytes(9) + b"1", sealed(b"\x00\x01v")[:-1]]
    )
    def test_invalid_payloads_are_rejected(self, run: Run, payload: bytes) -> None:
        assert run.error("RESTORE", "k", "0", payload) == BAD_SEAL

    def test_nothing_but_a_seal_holds_no_value(self, run: Run) -> None:
        assert run.error("RESTORE", "k", "0", sealed(b"")) == "ERR Bad data format"

    def test_without_compression_everything_is_as_it_is(self, run: Run) -> None:
        run("CONFIG SET rdbcompression no")
        run("SET k " + "a" * 40)
        assert run("DUMP k") == sealed(b"\x00\x28" + b"a" * 40)


@pytest.mark.dialect("redis")
@pytest.mark.parametrize(("body", "error"), [
    ((b"\xf5" + text(LIBRARY)) * 2, "ERR Library 'mylib' already exists"),
    (b"\xf5" + text(LIBRARY) + b"\x00\x01v", "ERR given type is not a function"),
    (b"\xf5\x40\xff" + LIBRARY, "ERR Failed loading library payload"),
    (b"\xf5" + text(b"return 1"), "ERR Missing library metadata"),
    (
        b"\xf5" + text(LIBRARY) + b"\xf5" + text(b"#!lua name=other\nreturn"),
        "ERR No functions registered",
    ),
])  # fmt: skip
def test_libraries_are_restored_all_or_none(run: Run, body: bytes, error: str) -> None:
    assert run.error("FUNCTION", "RESTORE", sealed(body)) == error
    assert run("FUNCTION LIST") == []
