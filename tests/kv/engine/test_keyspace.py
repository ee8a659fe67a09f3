"""Keyspaces, and the order of their scans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.engine.execution import Execution
from pytest_fakecloud.kv.engine.keyspace import Keyspace
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.values.containers import HashValue, ScanOrder, SetValue
from pytest_fakecloud.kv.values.types import type_name


def keyspace_at(now_ms: int) -> Keyspace:
    return Keyspace(0, Execution(now_ms * 1000))


class TestAccess:
    def test_typed_access(self) -> None:
        db = keyspace_at(0)
        db.set(b"s", b"v")
        assert db.string(b"s") == b"v"
        assert db.get(b"none", SetValue) is None
        with pytest.raises(CommandError, match="WRONGTYPE"):
            db.get(b"s", SetValue)
        with pytest.raises(CommandError, match="WRONGTYPE"):
            db.get_or_create(b"s", SetValue)
        db.get_or_create(b"set", SetValue).add(b"x")
        with pytest.raises(CommandError, match="WRONGTYPE"):
            db.string(b"set")
        assert type_name(db.peek(b"set")) == "set"

    def test_an_emptied_collection_is_removed(self) -> None:
        db = keyspace_at(0)
        value = db.get_or_create(b"k", SetValue)
        value.add(b"x")
        value.remove(b"x")
        db.remove_if_empty(b"k")
        assert not db.exists(b"k")
        db.remove_if_empty(b"k")


class TestExpiry:
    def test_a_key_expires_on_the_millisecond(self) -> None:
        db = keyspace_at(1000)
        db.set(b"k", b"v")
        db.expire_at(b"k", 1001)
        assert db.exists(b"k")
        db.execution.set_time(1000 * 1001)
        assert db.lookup(b"k") is None
        assert db.expired == 1

    def test_a_past_expiry_deletes_immediately(self) -> None:
        db = keyspace_at(1000)
        db.set(b"k", b"v")
        db.expire_at(b"k", 1000)
        assert len(db) == 0

    def test_a_value_with_an_expiry_is_one_change_or_none(self) -> None:
        db = keyspace_at(0)
        for is_change in (True, False):
            for at_ms in (None, 5):
                before = db.changes
                db.put_back(b"k", b"v", at_ms, is_change=is_change)
                assert db.changes == before + is_change
        assert db.expires == {b"k": 5}

    @given(st.lists(st.tuples(st.binary(max_size=2), st.integers(1, 20)), max_size=20))
    def test_every_count_agrees_with_the_keys(self, keys: list[tuple[bytes, int]]) -> None:
        db = keyspace_at(0)
        for key, at_ms in keys:
            db.set(key, b"v")
            db.expire_at(key, at_ms)
        alive = dict(keys)
        for now in range(22):
            db.execution.set_time(1000 * now)
            left = {key for key, at_ms in alive.items() if at_ms > now}
            assert set(db) == left
            assert len(db) == len(left)
            assert {key for key in alive if db.exists(key)} == left

    def test_a_kept_expiry_that_is_over_is_not_kept(self) -> None:
        db = keyspace_at(0)
        db.set(b"k", b"v")
        db.expire_at(b"k", 5)
        db.execution.set_time(1000 * 5)
        db.set(b"k", b"w", keep_ttl=True)
        assert b"k" not in db.expires

    def test_fields_take_their_key_along(self) -> None:
        db = keyspace_at(0)
        value = db.get_or_create(b"h", HashValue)
        value.set(b"f", b"v")
        value.expire_at(b"f", 10)
        db.note_fields(b"h", value)
        db.execution.set_time(1000 * 10)
        assert db.peek(b"h") is None
        assert len(db) == 0


class TestScanOrder:
    @given(st.data())
    def test_what_stays_is_met_exactly_once(self, data: st.DataObject) -> None:
        live = {b"%d" % n: None for n in range(data.draw(st.integers(0, 40)))}
        staying = (
            set(data.draw(st.lists(st.sampled_from(sorted(live)), unique=True))) if live else set()
        )
        order = ScanOrder(live)
        cursor, seen, fresh = 0, [], 0
        while True:
            cursor, page = order.page(cursor, data.draw(st.integers(1, 10)))
            seen += page
            for key in (
                data.draw(st.lists(st.sampled_from(sorted(live)), max_size=5)) if live else ()
            ):
                if key not in staying:
                    live.pop(key, None)
            if fresh < 30 and data.draw(st.booleans()):
                fresh += 1
                live[b"new%d" % fresh] = None
                order.add(b"new%d" % fresh)
            if cursor == 0:
                break
        assert staying <= set(seen)
        assert len(seen) == len(set(seen))

    def test_the_departed_are_swept_out(self) -> None:
        live = {b"%d" % n: None for n in range(1000)}
        order = ScanOrder(live)
        cursor, _ = order.page(0, 500)
        for n in range(900):
            del live[b"%d" % n]
        _, page = order.page(cursor, 1000)
        assert page == [b"%d" % n for n in range(900, 1000)]
        for n in range(5000):
            live[b"x%d" % n] = None
            order.add(b"x%d" % n)
            del live[b"x%d" % n]
        assert len(order._elements) < 1000

    def test_a_restored_member_keeps_its_position(self) -> None:
        live = {b"a": None, b"b": None}
        order = ScanOrder(live)
        del live[b"a"]
        live[b"a"] = None
        order.add(b"a")
        assert order.page(0, 10) == (0, [b"a", b"b"])


def test_unread_expired_keys_are_removed_by_writes() -> None:
    keyspace = keyspace_at(0)
    for number in range(20_000):
        keyspace.execution.set_time(1000 * number)
        keyspace.set(b"k%d" % number, b"v")
        keyspace.expire_at(b"k%d" % number, number + 10)
    assert len(keyspace.values) < 2_100
    assert keyspace.expired > 17_000
