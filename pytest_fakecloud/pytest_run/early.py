"""Early fakes: those that start before conftests and the application's settings are imported.

In runs with early fakes, this module is also a plugin of pytest: it has a fixture.
"""

from __future__ import annotations

import sys

import pytest

from ..cloud.base import fixture_fake
from ..cloud.cloud import Cloud
from ..cloud.services import services_by_word
from ..core.errors import ContractError, unknown_name
from ..process.surroundings import Variables
from .options import fixture_of, words_of
from .run import Run


def start_early_fakes(run: Run) -> None:
    """Start the early fakes in the cloud of the session, and set their variables until the run ends.

    Now, ``fakecloud_session_settings`` cannot be read, so the cloud has the default settings.
    ``Run.open_session_cloud()`` applies those of the session before the first test.
    """
    config = run.config
    config.pluginmanager.register(sys.modules[__name__])
    fixtures = _early_fixtures(config)
    variables = Variables()
    run.exits.callback(variables.restore)
    # The variables of a test end before those that they have replaced, even if it was interrupted.
    run.exits.callback(run.end_test)
    try:
        owner = run.new_session_owner("session", None)
        for fixture in fixtures:
            for name, value in fixture_fake(owner.cloud, fixture).env.items():
                variables.set(name, value)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error


@pytest.fixture(scope="session", autouse=True)
def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
    """Request the session's cloud for every test, so that early fakes have the settings of the session
    in the first one, even if it requests no fake. Also request the settings of tests, so that
    ``Run.begin_call()`` checks them for each test.
    """


def _early_fixtures(config: pytest.Config) -> list[str]:
    """Return the fixtures of the early fakes; raise ``UsageError`` for an unknown one."""
    fixtures = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(word) for word in words_of(config, "fakecloud_early")]
    for name in names:
        if name not in fixtures:
            raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', name, fixtures)}")
    return names
