from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from pytest_fakecloud.http.hub import Hub

from .demo import Demo, Raw
from .harness import pytester as pytester
from .harness import run as run
from .harness import what_runs_need as what_runs_need

# How long an example takes is the machine's affair; which ones are tried is not.
settings.register_profile("fakecloud", deadline=None, derandomize=True)
settings.load_profile("fakecloud")


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub of the test's own."""
    hub = Hub()
    yield hub
    hub.stop()


@pytest.fixture
def demo() -> Iterator[Demo]:
    """The demo service on the process's hub."""
    with Demo() as demo:
        yield demo


@pytest.fixture
def raw(demo: Demo) -> Iterator[Raw]:
    """A raw connection to the demo service."""
    with Raw(demo.mount.address) as raw:
        yield raw
