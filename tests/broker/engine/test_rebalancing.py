"""Test the range assignment of partitions to group members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.broker.engine.state import range_assignment


@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.sets(st.sampled_from("xyz"), min_size=1), min_size=1
    ),
    st.fixed_dictionaries({topic: st.integers(1, 9) for topic in "xyz"}),
)
def test_every_partition_has_one_owner_and_shares_differ_by_one_at_most(
    subscriptions: dict[str, set[str]], partitions: dict[str, int]
) -> None:
    members = {name: sorted(topics) for name, topics in subscriptions.items()}
    shares = range_assignment(members, partitions)
    for topic in {t for topics in members.values() for t in topics}:
        counts = [
            [n for t, n in shares[name] if t == topic]
            for name in sorted(members)
            if topic in members[name]
        ]
        assert [n for share in counts for n in share] == list(range(partitions[topic]))
        assert max(map(len, counts)) - min(map(len, counts)) <= 1
