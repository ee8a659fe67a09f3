"""Early fakes: those that start before conftests and the application's settings are imported.

In runs with early fakes, this module is also a plugin of pytest, because of its fixture.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
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
from .cloud_owner import CloudOwner
from .options import SESSION_SETTINGS, check_settings, fixture_of, misuse, words_of
from .run import Run


class EarlyRun(Run):
    """A run whose session's cloud opens with it, before conftests are imported; its fakes are the
    early ones, and their variables are set until the run closes.

    At that time, ``fakecloud_session_settings`` cannot be read. So early fakes have default settings,
    and before the first test, fakes with the session's settings replace them at the same addresses.
    """

    def __init__(self, config: pytest.Config) -> None:
        fixtures = _early_fixtures(config)
        check_settings(config)
        super().__init__(config, "session")
        variables = pytest.MonkeyPatch()
        self._exits.callback(variables.undo)
        self._is_importing = True
        """Whether no test has begun."""
        # Close the fakes here: nothing else would if a conftest cannot be imported.
        config.add_cleanup(self.close)
        config.pluginmanager.register(sys.modules[__name__])
        try:
            self.session_owner = early = CloudOwner(
                self._exits, self.options, "session", [], "background"
            )
            for fixture in fixtures:
                for name, value in fixture_fake(early.cloud, fixture).env.items():
                    variables.setenv(name, value)
        except (ContractError, OSError) as error:
            raise pytest.UsageError(f"fakecloud_early: {error}") from error

    def begin_test(self, item: pytest.Item) -> None:
        if self._is_importing and self.session_owner is not None:
            self.session_owner.end_imports()
        self._is_importing = False
        super().begin_test(item)

    def _new_session_owner(self, settings: Mapping[str, Any]) -> CloudOwner:
        """Return the cloud of the early fakes, or one that replaces it, if there are settings."""
        early = self.session_owner
        if early is None or not settings:
            # There is no early cloud if it was closed for settings that could not take effect.
            return early or super()._new_session_owner(settings)
        _check_connections({fake.fixture for fake in early.cloud.fakes()}, settings)
        session_owner = super()._new_session_owner(settings)
        try:
            _replace(early, session_owner.cloud)
        except BaseException:
            call_all((session_owner.close, early.close))
            self.session_owner = None
            raise
        return session_owner


def _early_fixtures(config: pytest.Config) -> list[str]:
    """Return the fixtures of the early fakes; raise ``UsageError`` for an unknown one."""
    fixtures = [service.fixture for service in services_by_word().values()]
    names = [fixture_of(word) for word in words_of(config, "fakecloud_early")]
    for name in names:
        if name not in fixtures:
            raise pytest.UsageError(f"fakecloud_early: {unknown_name('service', name, fixtures)}")
    return names


def _replace(early: CloudOwner, cloud: Cloud) -> None:
    """Close the cloud of the early fakes, and start them again in another cloud, with its settings, at
    the same addresses.
    """
    context, formers = cloud._context, dict(early.cloud._context.fixture_fakes)
    try:
        for former in formers.values():
            for mount in former._mounts:
                hand_over(mount.host, mount.port, mount.listener)
        early.close()
        for fixture, former in formers.items():
            settings = {**context.fixture_settings.get(fixture, {}), "port": former._mount.port}
            fake = context.fixture_fakes[fixture] = cloud._start(fixture, settings)
            fake._take_over(former)
            _check_variables(former, fake)
    finally:
        release()


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


@pytest.fixture(scope="session", autouse=True)
def _fakecloud_early(fakecloud_session: Cloud, fakecloud_settings: object) -> None:
    """Apply the settings of the session before the first test, whether or not it requests a fake. Also
    request the settings of tests, so that ``Run.begin_call()`` checks them for each test.
    """
