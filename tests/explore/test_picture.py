"""The page of a broken promise: strands as actors, events as rows, the step that broke it."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import BrokenSchedule, Cloud, KVServer, always
from pytest_fakecloud.explore.picture import picture
from pytest_fakecloud.reporting.page import page
from pytest_fakecloud.reporting.report import report_of

from .conftest import failure


def shown(cloud: Cloud, found: BrokenSchedule) -> Any:
    html = page(cloud, report_of(cloud), partial(picture, found=found))
    data = re.search(r'id="report">(.*?)</script>', html, re.S)
    assert data is not None
    return json.loads(data[1])


def test_clients_are_actors_and_events_are_rows(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def adds() -> None:
        redis.set("n", int(redis.get("n") or 0) + 1)

    def check() -> None:
        assert kv.value("n") == "2", "an update was lost"

    found = failure(cloud, {"ann": adds, "bob": adds}, check)
    data = shown(cloud, found)
    assert [(row["actor"], row["text"]["what"]) for row in data["rows"]] == [
        ("ann", "GET n"),
        ("bob", "runs before ann continues"),
        ("bob", "GET n"),
        ("bob", "SET n 1"),
        ("ann", "SET n 1"),
    ]
    broke = data["findings"][0]
    assert broke["rows"] == [data["rows"][3]["number"]]
    assert data["rows"][3]["findings"] == [0]
    assert broke["text"].startswith("an update was lost: bob's SET n 1 (test_picture.py:")
    assert data["rows"][1]["faults"]
    beside = data["beside"]["report"]["rows"]
    assert [row["actor"] for row in beside] == ["ann", "ann", "bob", "bob"]
    numbers = [row["number"] for row in data["rows"] + beside]
    assert len(set(numbers)) == len(numbers)


def test_the_first_step_at_which_a_promise_broke_is_marked(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def pays() -> None:
        redis.incr("paid")
        redis.incr("orders")

    def counted(key: str) -> int:
        return int(str(kv.value(key) or 0))

    def is_balanced() -> bool:
        return counted("paid") <= counted("orders") + 1

    found = failure(cloud, {"ann": pays, "bob": pays}, always(is_balanced))
    data = shown(cloud, found)
    broke = next(row for row in data["rows"] if row["findings"])
    assert broke["text"]["what"] == "breaks here"
    at = data["rows"].index(broke)
    assert [row["text"]["what"] for row in data["rows"][:at] if row["kind"] == "call"] == [
        "INCR paid",
        "INCR paid",
    ]


def test_rows_have_numbers_of_their_own_however_many_events_are_between_two_calls(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    names = [f"client{number}" for number in range(12)]

    def check() -> None:
        assert kv.value("n") == "0"

    found = failure(
        cloud,
        {name: partial(redis.incr, "n") for name in names},
        check,
        schedule=", ".join(f"{name}.0 delay 30" for name in names),
    )
    data = shown(cloud, found)
    numbers = [row["number"] for row in data["rows"] + data["beside"]["report"]["rows"]]
    assert len(set(numbers)) == len(numbers)
    assert [row["kind"] for row in data["rows"]] == ["event"] * 12 + ["call"] * 12


@pytest.mark.slow
def test_the_report_of_a_failing_test_is_that_page(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from upstash_redis import Redis

        def test_adds(fakecloud, kv_server):
            redis = Redis(kv_server.url, kv_server.token)

            def adds():
                redis.set("n", int(redis.get("n") or 0) + 1)

            def check():
                assert kv_server.value("n") == "2"

            fakecloud.explore({"ann": adds, "bob": adds}, check)
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--fakecloud-report=pages")
    result.assert_outcomes(failed=1)
    (written,) = (pytester.path / "pages").glob("test_*.html")
    assert "The undisturbed run" in written.read_text("utf-8")
