"""Fixtures for the tests of the callback capture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.queue.capture.fake import CallbackCapture
from pytest_fakecloud.queue.fake import Queue

NOW = "2026-01-01T00:00:00Z"
APP = "https://app.example.com/job"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(now=NOW, seed=1, delivery="driven") as cloud:
        yield cloud


@pytest.fixture
def capture(cloud: Cloud, queue: Queue) -> CallbackCapture:
    return cloud.callback_capture()
