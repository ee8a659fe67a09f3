"""Hashes as values."""

from __future__ import annotations

from pytest_fakecloud.kv.table.config import Config
from pytest_fakecloud.kv.values.containers import HashValue


def test_setting_reports_new_fields_and_drops_expiry() -> None:
    value = HashValue()
    assert value.set(b"a", b"1")
    value.expire_at(b"a", 5)
    assert not value.set(b"a", b"2", keep_ttl=True)
    assert value.expires.get(b"a") == 5
    assert not value.set(b"a", b"3")
    assert value.expires.get(b"a") is None
    assert value.expires == {}


def test_fields_expire_on_time() -> None:
    value = HashValue()
    for field, at_ms in ((b"a", 5), (b"b", 9)):
        value.set(field, b"x")
        value.expire_at(field, at_ms)
    assert value.soonest() == 5
    value.remove_expired(5)
    assert list(value) == [b"b"]
    assert value.persist(b"b")
    assert value.soonest() is None
    assert not value.persist(b"b")


def test_a_copy_is_independent() -> None:
    value = HashValue()
    value.set(b"a", b"x" * 100)
    value.expire_at(b"a", 5)
    twin = value.copy()
    twin.remove(b"a")
    assert b"a" in value
    assert value.expires.get(b"a") == 5
    assert twin.encoding(Config()) == "hashtable"
    assert len(twin) == 0
