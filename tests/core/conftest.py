"""Fixtures for tests of the clock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_fakecloud.core.clock import Timekeeper


@pytest.fixture
def clock() -> Timekeeper:
    return Timekeeper("2026-01-01T12:00:00Z")


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool
