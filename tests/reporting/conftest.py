"""The cloud of tests that need no settings of their own, and the browser for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud

CHROMIUM = shutil.which("chromium")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened._timekeeper.wait_cap = 0.01
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, shared by the tests of a module. Skips the test if it is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
