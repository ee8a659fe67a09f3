"""DUMP payloads: only this engine's own, checksummed format is ever read."""

from __future__ import annotations

import pickle
from contextlib import suppress
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.dumping import dump, load
from pytest_fakecloud.kv.values.hashes import HashValue
from pytest_fakecloud.kv.values.packing import verify
from pytest_fakecloud.kv.values.sets import SetValue


def sealed(body: bytes) -> bytes:
    body += b"\x01\x00"
    return body + blake2b(body, digest_size=8).digest()


@given(st.binary())
def test_strings_round_trip(value: bytes) -> None:
    payload = dump(value)
    assert verify(payload)
    assert load(payload) == value
    assert load(dump(bytearray(value))) == value


@given(st.dictionaries(st.binary(max_size=5), st.tuples(st.binary(), st.integers(0, 9))))
def test_hashes_round_trip(fields: dict[bytes, tuple[bytes, int]]) -> None:
    value = HashValue()
    for field, (text, at_ms) in fields.items():
        value.set(field, text)
        if at_ms:
            value.expire_at(field, at_ms)
    twin = load(dump(value))
    assert twin.fields == value.fields
    assert twin.expires == value.expires


@given(st.binary(max_size=60))
def test_anything_else_is_refused_or_harmless(junk: bytes) -> None:
    assert not verify(junk)
    payload = sealed(junk)
    if verify(payload):
        with suppress(ValueError):
            load(payload)


@pytest.mark.parametrize("at", range(0, 20, 3))
def test_a_flipped_bit_is_noticed(at: int) -> None:
    payload = bytearray(dump(b"some text, long enough"))
    payload[at] ^= 1
    assert not verify(bytes(payload))


def test_pickles_are_never_read() -> None:
    payload = pickle.dumps({"a": 1})
    assert not verify(payload)
    with pytest.raises(ValueError, match="type 128 is unknown"):
        load(sealed(payload))


def test_left_over_bytes_are_refused() -> None:
    body = dump(SetValue([b"a"]))[:-10]
    with pytest.raises(ValueError, match="left over"):
        load(sealed(body + b"x"))
