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
from ..core.exits import call_all
from ..core.settings import connection_settings
from ..http.ports import hand_over, release
from ..process.surroundings import Variables
from .cloud_owner import CloudOwner
from .ini import words_of
from .lost_changes import AT_IMPORT
from .options import SESSION_SETTINGS, fixture_of, misuse
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
        owner = CloudOwner(run.exits, run.options, None, {}, "session")
        run.owners["session"] = owner
        for fixture in fixtures:
            for name, value in fixture_fake(owner.cloud, fixture).env.items():
                variables.set(name, value)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error
    run.early = EarlyFakes(run)
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

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def _owner(self) -> CloudOwner:
        return self._run.owners["session"]

    def pytest_collection_finish(self) -> None:
        """Let the fakes stay, with the credentials that conftests and modules have given them. Note
        their other changes, which the first test does not find.
        """
        self._owner.let_stay({})
        self._owner.note_changes(AT_IMPORT, {})

    @pytest.fixture(scope="session", autouse=True)
    @staticmethod
    def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
        """Request the session's cloud for every test, so that ``Run.open_session_cloud()`` calls
        ``apply()`` before the first one, even if it requests no fake. Also request the settings of
        tests, so that ``Run.begin_call()`` checks them for each test.
        """

    def apply(self, value: Mapping[str, Any], test: str) -> CloudOwner:
        """Return the owner of a cloud with the settings of the session, in which fakes continue at the
        addresses of the early ones; the former owner if there are no settings. If that fails after the
        cloud has been opened, both clouds have ended.
        """
        former = self._owner
        if not value:
            return former
        _check_addresses(former.cloud, value)
        owner = CloudOwner(self._run.exits, self._run.options, None, value, test)
        owner.lost = former.lost
        # A copy, because closing the cloud empties the original.
        early_fakes = dict(former.cloud._fixture_fakes)
        try:
            for early_fake in early_fakes.values():
                for mount in early_fake._mounts:
                    # A client that connects in between waits.
                    hand_over(mount.host, mount.port, mount.listener)
            former.close()
            for fixture, early_fake in early_fakes.items():
                fake = fixture_fake(owner.cloud, fixture, port=early_fake._mount.port)
                fake._take_over(early_fake)
                _check_variables(early_fake, fake)
            owner.let_stay({})
        except BaseException:
            call_all([former.close, owner.close])
            raise
        finally:
            release()
        return owner


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
