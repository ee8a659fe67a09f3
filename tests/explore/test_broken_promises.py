"""What breaks a promise under ``explore``: assertions, and ``pytest.fail()``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.explore.explore import BrokenSchedule


def by_assertion(held: bool) -> None:
    assert held, "the work is lost"


def by_pytest(held: bool) -> None:
    if not held:
        pytest.fail("the work is lost")


@pytest.mark.parametrize("say", [by_assertion, by_pytest])
def test_it_is_told_either_way(say: Callable[[bool], None]) -> None:
    with Cloud(seed=1, delivery="driven") as cloud:
        kv = cloud.kv_server()
        client = kv.client()

        def run() -> None:
            client.set("work", "done")

        with pytest.raises(BrokenSchedule, match="the work is lost"):
            cloud.explore(run, lambda: say(kv.value("work") == "done"), budget=20)
