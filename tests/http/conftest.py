"""Fixtures for tests of closing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from pytest_fakecloud.http import hub as hub_module

Unhindered = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def unhindered(monkeypatch: pytest.MonkeyPatch) -> Unhindered:
    """A context manager for code that must not wait for busy handlers, which takes a minute here."""
    monkeypatch.setattr(hub_module, "LEAVE_SECONDS", 60.0)

    @contextmanager
    def block() -> Iterator[None]:
        started = time.monotonic()
        yield
        assert time.monotonic() - started < 20

    return block
