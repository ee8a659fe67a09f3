"""The checksum, compression, lengths and listpacks of RDB data."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.rdb import source as crc64
from pytest_fakecloud.kv.rdb.source import (
    lzf_compress,
    lzf_decompress,
    read_listpack,
    texts,
    write_listpack,
)
from pytest_fakecloud.kv.values.measures import LISTPACK_OVERHEAD, entry_size


def test_the_checksum_is_the_one_of_redis() -> None:
    assert crc64.crc64(b"") == 0
    assert crc64.crc64(b"123456789") == 0xE9C6D914C4B8D9CA


@pytest.mark.parametrize("size", [2**18 - 1, 2**18, 2**18 + 1, 3 * 2**18 + 77])
def test_blocks_are_summed_up_as_bytes_are(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Random(1).randbytes(size)
    checksum = crc64.crc64(data)
    monkeypatch.setattr(crc64, "_BLOCK_BYTES", size + 1)
    assert checksum == crc64.crc64(data)


@given(st.text("ab\xff", max_size=600) | st.binary(max_size=600))
def test_compression_is_lossless(text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    compressed = lzf_compress(data, max(0, len(data) - 4))
    if compressed is not None:
        assert len(compressed) <= len(data) - 4
        assert lzf_decompress(compressed, len(data)) == data


def test_repetitions_are_compressed() -> None:
    data = b'{"name": "somebody", "active": true},' * 1000
    compressed = lzf_compress(data, len(data) - 4)
    assert compressed is not None
    assert len(compressed) < len(data) // 50
    assert lzf_decompress(compressed, len(data)) == data
    assert lzf_compress(b"xabcabc", 20) == b"\x03xabc\x20\x02"


WIDTHS = [0, 1, 63, 64, 126, 127, 128, 4095, 4096, 16378, 16379, 16380, 2097146, 2097147]
NUMBERS = [
    sign * (1 << bits) + more
    for bits in (0, 7, 12, 15, 23, 31, 63)
    for sign in (1, -1)
    for more in (-1, 0, 1)
]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_listpack_holds_strings_of_any_length(width: int) -> None:
    blob = write_listpack([b"x" * width, b"end"])
    assert read_listpack(blob) == [b"x" * width, b"end"]
    assert len(blob) == LISTPACK_OVERHEAD + entry_size(b"x" * width) + entry_size(b"end")


def test_a_listpack_holds_integers_of_64_bits_and_the_rest_as_strings() -> None:
    words = [b"%d" % number for number in NUMBERS]
    blob = write_listpack(words)
    assert texts(read_listpack(blob)) == words
    assert sum(isinstance(entry, bytes) for entry in read_listpack(blob)) == 3
    assert len(blob) == LISTPACK_OVERHEAD + sum(map(entry_size, words))
