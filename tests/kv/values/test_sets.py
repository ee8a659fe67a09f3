"""Sets as values: random members, and scans that return every member that stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.values.containers import SetValue

NAMES = st.integers(0, 30).map(lambda n: b"%d" % n)


@given(
    st.sets(NAMES, min_size=5),
    st.lists(st.tuples(st.booleans(), NAMES), max_size=60),
    st.integers(1, 7),
)
def test_a_scan_meets_every_member_that_stays(
    start: set[bytes], changes: list[tuple[bool, bytes]], count: int
) -> None:
    members = SetValue(start)
    stayed, met, cursor, at = set(start), set(), 0, 0
    while True:
        cursor, page = members.scan(cursor, count)
        met |= set(page)
        if not cursor:
            break
        for adding, name in changes[at : at + 2]:
            if adding:
                members.add(name)
            else:
                members.remove(name)
                stayed.discard(name)
        at += 2
    assert stayed <= met


def test_an_impossible_cursor_ends_a_scan() -> None:
    members = SetValue([b"a", b"b", b"c"])
    assert members.scan(-1, 2) == members.scan(4, 2) == (0, [])


def test_positions_are_for_random_choice() -> None:
    members = SetValue([b"a", b"b", b"c"])
    assert members.remove(b"a")
    assert not members.remove(b"a")
    assert {members.at(0), members.at(1)} == {b"b", b"c"}


def test_integers_come_in_order() -> None:
    members = SetValue([b"10", b"-3", b"2"])
    assert list(members) == [b"-3", b"2", b"10"]
    members.add(b"x")
    assert list(members)[-1] == b"x"


def test_a_copy_is_independent() -> None:
    members = SetValue([b"a"])
    twin = members.copy()
    twin.add(b"b")
    assert b"b" not in members
    assert len(twin) == 2
