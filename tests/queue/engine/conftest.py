"""Fixtures for the tests of the queue's engine."""

from __future__ import annotations

import pytest

from .bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
