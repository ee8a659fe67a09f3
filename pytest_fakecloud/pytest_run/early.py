"""Early fakes: those that start before conftests and the application's settings are imported.

The fixture with their settings can be called only before the first test. ``with_settings()`` then
starts them again, at the same addresses.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from ..cloud.base import fixture_fake
from ..cloud.cloud import Cloud
from ..cloud.fake import Takeover, core_of
from ..cloud.services import find, services_by_word, settings_class
from ..core.errors import ContractError, unknown_name
from ..core.settings import connection_settings
from ..http.ports import Listeners, close_listeners
from ..process.surroundings import Variables
from .checks import EARLY, reject_ineffective
from .cloud_owner import CloudOwner
from .ini import value_of
from .lost_changes import AT_IMPORT
from .options import SESSION_SETTINGS, fixture_of, misuse

if TYPE_CHECKING:
    from .run import Run


def start_early_fakes(run: Run) -> None:
    """Start the early fakes in the cloud of the session, and set their variables until the run ends."""
    fixtures = _early_fixtures(run.config)
    run.early_variables = variables = Variables()
    try:
        owner = CloudOwner(run.exits, run.options, None, {}, "session")
        run.owners["fakecloud_early"] = owner
        for fixture in fixtures:
            for name, value in fixture_fake(owner.cloud, fixture).env.items():
                variables.set(name, value)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error
    run.config.pluginmanager.register(_BeforeFirstTest(run))


def _early_fixtures(config: pytest.Config) -> list[str]:
    """Return the fixtures of the early fakes; raise ``UsageError`` for an unknown one."""
    fixtures = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(word) for word in value_of(config, "fakecloud_early")]
    for name in names:
        if name not in fixtures:
            raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', name, fixtures)}")
    return names


class _BeforeFirstTest:
    """The plugin of pytest in runs with early fakes."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def pytest_collection_finish(self) -> None:
        """Let the fakes stay, with the credentials that conftests and modules have given them. Note
        their other changes, which the first test does not find.
        """
        owner = self._run.owners["fakecloud_early"]
        owner.let_stay()
        owner.lost_changes.note(AT_IMPORT, owner.cloud.fakes(), {})

    @pytest.fixture(scope="session", autouse=True)
    @staticmethod
    def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
        """Request the session's cloud for every test, so that ``open_session_cloud()`` calls
        ``with_settings()`` before the first one, even if it requests no fake. Also request the settings
        of tests, so that ``Run.begin_call()`` checks them for each test.
        """


def with_settings(
    run: Run, early: CloudOwner, returned_settings: Mapping[str, Any], test: str
) -> CloudOwner:
    """Return the owner of a cloud with the settings of the session, in which the early fakes have
    started again: at the same addresses, with the same credentials and without data. If one cannot
    start again, all have ended.
    """
    early_fakes = dict(early.cloud._fixture_fakes)  # a copy, because close() empties the original
    _check_settings(early_fakes, returned_settings)
    owner = CloudOwner(run.exits, run.options, None, returned_settings, test)
    owner.lost_changes = early.lost_changes
    listeners: Listeners = {}
    try:
        # Copies of the listening sockets: another program cannot take a port in between, and a client
        # that connects then waits.
        for mount in chain.from_iterable(core_of(fake).mounts for fake in early_fakes.values()):
            listeners[mount.address] = mount.listener.dup()
        early.close()
        for fixture, early_fake in early_fakes.items():
            takeover = Takeover(listeners, early_fake._credentials())
            fixture_fake(owner.cloud, fixture, takeover, **early_fake._ports())
        owner.let_stay()
    except BaseException:
        owner.close()
        close_listeners(listeners)
        raise
    return owner


def _check_settings(early_fixtures: Container[str], settings: Mapping[str, Any]) -> None:
    """Fail the test if settings would change addresses, credentials or variables of early fakes.

    Those of a service are not in ``EFFECTS``, because its class declares which settings connect.
    """
    # One that is False or None changes nothing.
    reject_ineffective(filter(settings.get, settings), SESSION_SETTINGS, EARLY)
    for name, service_settings in settings.items():
        fixture = fixture_of(name)
        if fixture not in early_fixtures or not isinstance(service_settings, Mapping):
            continue
        connection = connection_settings(settings_class(find(fixture)))
        if wrong := connection.intersection(service_settings):
            raise misuse(
                f"{', '.join(sorted(wrong))} of {name} in {SESSION_SETTINGS} has no effect, because "
                "fakecloud_early has already chosen the address and the credentials: leave it out, or "
                "set fakecloud_scope = session instead of fakecloud_early"
            )
        if fixture == "kv_server" and service_settings.get("engine") is not None:
            raise misuse(
                f"engine of {name} in {SESSION_SETTINGS} would remove KV_URL and REDIS_URL, which "
                "fakecloud_early has already set: set fakecloud_scope = session instead of "
                "fakecloud_early"
            )
