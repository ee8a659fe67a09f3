"""Early fakes: those that start before conftests and the application's settings are imported.

In runs with early fakes, this module is also a plugin of pytest, because of its fixture.
"""

from __future__ import annotations

import sys

import pytest

from ...core.errors import ContractError, unknown_name
from ..cloud import Cloud
from ..services import services_by_word
from .options import check_settings, fixture_of, words_of
from .run import Run


def begin_early(config: pytest.Config) -> Run:
    """Start fakes and set their variables before conftests are imported; return the run."""
    names = words_of(config, "fakecloud_early")
    fixtures = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(name) for name in names]
    unknown = [name for name in names if name not in fixtures]
    if unknown:
        raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', unknown[0], fixtures)}")
    check_settings(config)
    run = Run(config, "session")
    # Close the fakes here: nothing else would if a conftest cannot be imported.
    config.add_cleanup(run.close)

    config.pluginmanager.register(sys.modules[__name__])
    try:
        run.start_early(names)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error
    return run


@pytest.fixture(scope="session", autouse=True)
def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
    """Apply the settings of the session before the first test, whether or not it requests a fake. Also
    request the settings of tests, so that ``Run.begin_call()`` checks them for each test.
    """
