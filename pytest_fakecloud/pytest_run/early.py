"""Early fakes: those that start before conftests and the application's settings are imported.

``Run`` only decides whether there are any (``is_early``), and gives them the settings of the session
before the first test (``apply()``). What a fake needs to continue at the address of another one is
``Fake._take_over()`` and ``http.ports.hand_over()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ..cloud.base import fixture_fake
from ..cloud.cloud import Cloud
from ..cloud.fake import Fake
from ..cloud.services import find, services_by_word, settings_class
from ..core.errors import ContractError, unknown_name
from ..core.settings import connection_settings
from ..http.ports import hand_over, release
from ..process.surroundings import Variables
from .cloud_owner import CloudOwner
from .lost_changes import AT_IMPORT, OPENING
from .options import SESSION_SETTINGS, FixtureValues, fixture_of, misuse, words_of
from .run import Run


def start_early_fakes(run: Run) -> None:
    """Start the early fakes in the cloud of the session, and set their variables until the run ends."""
    fixtures = _early_fixtures(run.config)
    variables = Variables()
    run.exits.callback(variables.restore)
    # The variables of a test end before those that they have replaced, even if it was interrupted.
    run.exits.callback(run.end_test)
    try:
        # The fixture with the settings of the session cannot be called yet.
        run.session_owner = owner = run.new_session_owner({}, "session")
        for fixture in fixtures:
            for name, value in fixture_fake(owner.cloud, fixture).env.items():
                variables.set(name, value)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error
    run.early = EarlyFakes(owner)
    run.config.pluginmanager.register(run.early)


def _early_fixtures(config: pytest.Config) -> list[str]:
    """Return the fixtures of the early fakes; raise ``UsageError`` for an unknown one."""
    fixtures = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(word) for word in words_of(config, "fakecloud_early")]
    for name in names:
        if name not in fixtures:
            raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', name, fixtures)}")
    return names


class EarlyFakes:
    """Early fakes from their start to the first test: a plugin of pytest, in runs that have some."""

    def __init__(self, owner: CloudOwner) -> None:
        self._owner = owner

    def pytest_collection_finish(self) -> None:
        """Let the fakes stay, with the credentials that conftests and modules have given them. Note
        their other changes, which the first test does not find.
        """
        owner = self._owner
        owner.let_stay(owner.cloud.fakes())
        owner.lost.add(AT_IMPORT, owner.cloud, OPENING)

    @pytest.fixture(scope="session", autouse=True)
    @staticmethod
    def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
        """Request the session's cloud for every test, so that ``Run.open_session_cloud()`` calls
        ``apply()`` before the first one, even if it requests no fake. Also request the settings of
        tests, so that ``Run.begin_call()`` checks them for each test.
        """

    def apply(self, values: FixtureValues, test: str) -> None:
        """Close the cloud of the early fakes, and start these again at the same addresses, in a cloud
        with the settings of the session, if there are any. If that fails, the session's cloud has ended.
        """
        owner = self._owner
        if not any(values.values()):
            owner.values = values
            return
        _check_addresses(owner.cloud, values[SESSION_SETTINGS])
        settings = owner.settings_with(values)
        # A copy, because closing the cloud empties the original.
        formers = dict(owner.cloud._fixture_fakes)
        try:
            for former in formers.values():
                for mount in former._mounts:
                    # A client that connects in between waits.
                    hand_over(mount.host, mount.port, mount.listener)
            owner._close_cloud()
            owner._open(values, settings, test)
            for fixture, former in formers.items():
                fake = fixture_fake(owner.cloud, fixture, port=former._mount.port)
                fake._take_over(former)
                _check_variables(former, fake)
            owner.let_stay(owner.cloud.fakes())
        except BaseException:
            owner.close()
            raise
        finally:
            release()


def _check_addresses(cloud: Cloud, settings: Mapping[str, Any]) -> None:
    """Fail the test if settings would change the addresses or credentials of early fakes."""
    if settings.get("tls"):
        raise misuse(
            f"tls in {SESSION_SETTINGS} has no effect with fakecloud_early, which starts the fakes "
            "before the settings are known: set fakecloud_scope = session instead of fakecloud_early"
        )
    for name, service_settings in settings.items():
        fixture = fixture_of(name)
        if fixture not in cloud._fixture_fakes or not isinstance(service_settings, Mapping):
            continue
        connection = connection_settings(settings_class(find(fixture)))
        if wrong := connection.intersection(service_settings):
            raise misuse(
                f"{', '.join(sorted(wrong))} of {name} in {SESSION_SETTINGS} has no effect, because "
                "fakecloud_early has already chosen the address and the credentials: leave it out, or "
                "set fakecloud_scope = session instead of fakecloud_early"
            )


def _check_variables(former: Fake, fake: Fake) -> None:
    """Fail the test if a fake's variables differ from those of the early fake that it replaces."""
    before, now = former.env, fake.env
    changed = sorted(name for name in before | now if before.get(name) != now.get(name))
    if changed:
        raise misuse(
            f"the settings of {fake.fixture} in {SESSION_SETTINGS} change {', '.join(changed)}, which "
            "fakecloud_early has already set: set fakecloud_scope = session instead of fakecloud_early"
        )
