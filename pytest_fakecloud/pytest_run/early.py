"""Early fakes: those that start before conftests and the application's settings are imported.

In runs with early fakes, this module is also a plugin of pytest: it has a hook and a fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from typing import Any

import pytest

from ..cloud.base import fixture_fake
from ..cloud.fake import Fake
from ..cloud.services import find, services_by_word, settings_class
from ..core.errors import ContractError, unknown_name
from ..core.settings import connection_settings
from ..http.ports import hand_over, release
from .checks import check_session_settings
from .options import SESSION_SETTINGS, fixture_of, misuse, words_of
from .run import Run

_EARLY = pytest.StashKey["EarlyFakes"]()


class EarlyFakes:
    """The fakes of the session's cloud, started when the run begins, with default settings, and their
    variables, which the run restores when it ends.

    At that time, ``fakecloud_session_settings`` cannot be read. So before the first test, if there are
    settings, fakes in a cloud with these settings replace the early ones at the same addresses.
    """

    def __init__(self, config: pytest.Config, run: Run) -> None:
        fixtures = _early_fixtures(config)
        self._run = run
        config.stash[_EARLY] = self
        config.pluginmanager.register(sys.modules[__name__])
        try:
            self._owner = run.open_session_owner("session", None)
            for fixture in fixtures:
                for name, value in fixture_fake(self._owner.cloud, fixture).env.items():
                    run.early_variables.set(name, value)
        except (ContractError, OSError) as error:
            raise pytest.UsageError(f"fakecloud_early: {error}") from error

    def end_imports(self) -> None:
        """Let what conftests and modules have done to the fakes while they were imported stay."""
        self._owner.keep_imported()

    def apply(self, settings: Mapping[str, Any]) -> None:
        """Let the fakes have the settings of the session, from the first test on."""
        if settings and not self._owner.is_closed:
            self._replace(settings)
        self._run.open_session(settings)

    def _replace(self, settings: Mapping[str, Any]) -> None:
        """Close the cloud of the early fakes, and start them again in another cloud of the session, with
        its settings, at the same addresses.
        """
        check_session_settings("session", settings, None)
        # A copy, because closing the cloud empties the original.
        formers = dict(self._owner.cloud._context.fixture_fakes)
        _check_connections(formers, settings)
        try:
            for former in formers.values():
                for mount in former._mounts:
                    hand_over(mount.host, mount.port, mount.listener)
            self._owner.close()
            cloud = self._run.open_session(settings).cloud
            context = cloud._context
            for fixture, former in formers.items():
                own_settings = {
                    **context.fixture_settings.get(fixture, {}),
                    "port": former._mount.port,
                }
                fake = context.fixture_fakes[fixture] = cloud._start(fixture, own_settings)
                fake._take_over(former)
                _check_variables(former, fake)
        except BaseException:
            self._run.close_session()
            raise
        finally:
            release()


def _early_fixtures(config: pytest.Config) -> list[str]:
    """Return the fixtures of the early fakes; raise ``UsageError`` for an unknown one."""
    fixtures = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(word) for word in words_of(config, "fakecloud_early")]
    for name in names:
        if name not in fixtures:
            raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', name, fixtures)}")
    return names


def _check_connections(early: Container[str], settings: Mapping[str, Any]) -> None:
    """Fail the test if settings would change the addresses or credentials of early fakes."""
    if settings.get("tls"):
        raise misuse(
            f"tls in {SESSION_SETTINGS} has no effect with fakecloud_early, which starts the fakes "
            "before the settings are known: set fakecloud_scope = session instead of fakecloud_early"
        )
    for name, service_settings in settings.items():
        fixture = fixture_of(name)
        if fixture not in early:
            continue
        if wrong := connection_settings(settings_class(find(fixture))).intersection(
            service_settings
        ):
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


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note that conftests, the application and the tests have been imported."""
    session.config.stash[_EARLY].end_imports()


@pytest.fixture(scope="session", autouse=True)
def _fakecloud_early(
    request: pytest.FixtureRequest,
    fakecloud_session_settings: Mapping[str, Any],
    fakecloud_settings: object,
) -> None:
    """Apply the settings of the session before the first test, whether or not it requests a fake. Also
    request the settings of tests, so that ``Run.begin_call()`` checks them for each test.
    """
    request.config.stash[_EARLY].apply(fakecloud_session_settings)
