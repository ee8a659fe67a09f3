"""The cloud of each case."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_fakecloud import Cloud


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened
