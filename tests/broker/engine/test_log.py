"""Test the log of one partition: reading, offsets by time, retention, copies; partitions of keys."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.broker.engine import log as log_module
from pytest_fakecloud.broker.engine.log import (
    Columns,
    PartitionLog,
    Topic,
    murmur2,
    partition_for_key,
)
from pytest_fakecloud.broker.model import Header
from tests.harness import check_each


def append(
    log: PartitionLog,
    timestamps: list[int],
    values: list[str],
    sizes: list[int],
    *,
    by_client: bool = True,
) -> None:
    count = len(values)
    log.append(
        Columns(timestamps, [None] * count, values, [()] * count, sizes), by_client=by_client
    )


def filled(timestamps: list[int], *, first: int = 0, size: int = 1) -> PartitionLog:
    log = PartitionLog("t", 0, first)
    count = len(timestamps)
    if count:
        values = [str(number) for number in range(count)]
        append(log, timestamps, values, [size] * count)
    return log


def test_records_come_back_as_they_went_in() -> None:
    log = PartitionLog("t", 4, 100)
    headers = (Header("b", "1"), Header("a", "2"), Header("b", "3"))
    log.append(Columns([7], ["k"], ["v"], [headers], [9]), by_client=True)
    assert log.read(100) == [("t", 4, 100, 7, "k", "v", headers)]
    assert (log.start, log.end, log.size, len(log)) == (100, 101, 9, 1)


def test_read_stops_at_its_caps_but_gives_one_record() -> None:
    log = filled([1] * 10, size=4)
    assert [r.offset for r in log.read(3, 2)] == [3, 4]
    assert [r.offset for r in log.read(3, None, 11)] == [3, 4]
    assert [r.offset for r in log.read(3, None, 12)] == [3, 4, 5]
    assert [r.offset for r in log.read(3, None, 1)] == [3]
    assert log.read(10, 5, 5) == []


def test_a_trimmed_peak_no_longer_counts() -> None:
    log = filled([100, 10, 20, 30, 200])
    log.trim(1)
    assert [log.offset_at(t) for t in (5, 15, 25, 50, 150)] == [1, 2, 3, 4, 4]


def test_the_origin_of_records_is_kept() -> None:
    log = filled([1, 2])
    append(log, [3], ["tester"], [6], by_client=False)
    assert [r.value for r in log.records(by_client=True)] == ["0", "1"]
    assert [r.value for r in log.records(by_client=False)] == ["tester"]
    log.trim(1)
    assert [r.value for r in log.records(by_client=True)] == ["1"]


def test_a_copy_is_independent() -> None:
    log = filled([1, 2, 3])
    copy = log.copy()
    log.trim(2)
    append(log, [4], ["x"], [1])
    assert [r.value for r in copy.records()] == ["0", "1", "2"]
    assert [r.value for r in log.records()] == ["2", "x"]


def test_timestamps_of_records_that_are_gone_do_not_count() -> None:
    log = filled([9])
    log.trim(1)
    append(log, [1], ["x"], [1])
    assert log.offset_at(5) is None


steps = st.one_of(
    st.tuples(
        st.just("append"), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1)
    ),
    st.tuples(st.just("trim"), st.integers(0, 80)),
    st.tuples(st.just("expire"), st.integers(0, 60)),
    st.tuples(st.just("shrink"), st.integers(0, 20)),
)


@given(st.lists(steps, max_size=15), st.integers(0, 60))
def test_the_columns_behave_like_a_list_of_records(
    actions: list[tuple[str, Any]], when: int
) -> None:
    with mock.patch.object(log_module, "_WORTH_COMPACTING", 3):
        _check_against_a_list(actions, when)


def _check_against_a_list(actions: list[tuple[str, Any]], when: int) -> None:
    log = PartitionLog("t", 0)
    model: list[tuple[int, int, int]] = []  # offset, timestamp, size
    end = 0
    for action, argument in actions:
        if action == "append":
            values = [str(end + index) for index in range(len(argument))]
            times, sizes = zip(*argument, strict=True)
            append(log, times, values, sizes)
            model += [(end + index, *row) for index, row in enumerate(argument)]
            end += len(argument)
        else:
            before = len(model)
            deleted = getattr(log, action)(argument)
            if action == "trim":
                model = [row for row in model if row[0] >= argument]
            while action == "expire" and model and model[0][1] < argument:
                model.pop(0)
            while action == "shrink" and len(model) > 1 and sum(row[2] for row in model) > argument:
                model.pop(0)
            assert deleted == before - len(model)
        assert log.end == end
        assert log.start == (model[0][0] if model else end)
        assert log.size == sum(row[2] for row in model)
        assert log._head < 3 or log._head * 2 < len(log._values), "the log is not compacted"
        assert [(r.offset, r.timestamp, r.value) for r in log.records()] == [
            (offset, time, str(offset)) for offset, time, _ in model
        ]
        assert log.offset_at(when) == next(
            (offset for offset, time, _ in model if time >= when), None
        )


def test_a_topic_retains_by_time_and_bytes() -> None:
    logs = [PartitionLog("t", 0)]
    topic = Topic(name="t", logs=logs, retention_ms=100, retention_bytes=3, max_message_bytes=99)
    log = topic.logs[0]
    append(log, [0, 50, 60, 70], list("abcd"), [1] * 4)
    for _ in range(2):
        topic.retain(90)
    assert [r.value for r in log.records()] == ["b", "c", "d"]
    topic.retain(155)
    assert [r.value for r in log.records()] == ["c", "d"]


VECTORS = [
    ("", 275646681, 0, 1, 9),
    ("a", 2731586172, 1, 0, 4),
    ("ab", 316155434, 2, 2, 2),
    ("abc", 479470107, 0, 3, 3),
    ("abcd", 2971317748, 2, 0, 8),
    ("21", 3321034988, 0, 0, 0),
    ("city", 4141104759, 1, 3, 7),
    ("foobar", 3504634814, 0, 2, 6),
    ("k0", 3590428993, 2, 1, 5),
    ("k1", 1684045097, 2, 1, 5),
    ("order-42", 501153024, 0, 0, 0),
    ("user:1001", 2333083561, 2, 1, 5),
    ("\u015f", 183743328, 0, 0, 0),
]
"""Results of Kafka's Java client and of librdkafka's murmur2."""


def test_hash_and_partitions() -> None:
    def check(key: str, unsigned: int, of_3: int, of_4: int, of_12: int) -> None:
        data = key.encode()
        assert murmur2(data) == unsigned
        assert [partition_for_key(data, n) for n in (3, 4, 12)] == [of_3, of_4, of_12]

    check_each(check, VECTORS)
