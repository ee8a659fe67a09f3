"""What tests of closing share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from pytest_fakecloud.http import mount

Unhindered = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def unhindered(monkeypatch: pytest.MonkeyPatch) -> Unhindered:
    """A block that must not wait until busy handlers are given up, which takes a minute here."""
    monkeypatch.setattr(mount, "LEAVE_SECONDS", 60.0)

    @contextmanager
    def block() -> Iterator[None]:
        started = time.monotonic()
        yield
        assert time.monotonic() - started < 20

    return block
