"""The clouds of a pytest run: their creation, their variables, and those that several tests share."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pytest

from ...core.settings import DeliveryMode
from ...process.replace import replace
from ..base import (
    credentials_of,
    fixture_fake,
    keep_only,
    replace_early_fakes,
    restore_credentials,
    start_over,
)
from ..cloud import Cloud
from ..fake import Fake, Snapshot
from ..services import SERVICES, find, settings_class
from .lost_changes import Changes, LostChanges
from .options import (
    PER_TEST_SETTINGS,
    SESSION_SETTINGS,
    RunOptions,
    fixture_of,
    misuse,
    without_traceback,
)


def new_cloud(
    config: pytest.Config, settings: Mapping[str, Any], delivery: DeliveryMode = "driven"
) -> Cloud:
    """Create a cloud with the settings of a test or of the session, and of its fixtures' fakes.

    Its queues deliver only when the test runs them, so that no outcome depends on the speed of a
    thread. A ``Cloud()`` without pytest has another default (see ``BaseCloud``).
    """
    cloud = Cloud(
        seed=settings["seed"],
        now=settings["now"],
        clock=settings["clock"],
        process_time=settings["process_time"],
        delivery=delivery,
        transport=settings["transport"],
        tls=settings["tls"],
        share_tls_context=settings["share_tls_context"],
    )
    cloud._context.fixture_settings = settings
    cloud._context.cache = getattr(config, "cache", None)  # None with -p no:cacheprovider
    return cloud


fake_in = without_traceback(fixture_fake)
"""Returns the fake of a fixture in a cloud."""


@contextmanager
def published_env(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the variables of a cloud's fakes, and of those that start in the block. ``monkeypatch``
    restores the variables; the block ends with the test, because the cloud may outlive it.
    """
    seen: set[str] = set()

    def publish(fake: Any) -> None:
        is_first = not seen
        variables = dict(fake.env)
        if cloud.authority is not None:
            variables.update(cloud.authority.variables)
        for name, value in variables.items():
            if name not in seen:
                seen.add(name)
                monkeypatch.setenv(name, value)
        if cloud.authority is not None and is_first:
            exits.callback(_replace_default_opener())

    with ExitStack() as exits:
        exits.callback(cloud._context.listeners.add(publish))
        for fake in cloud.fakes():
            publish(fake)
        yield


def _replace_default_opener() -> Callable[[], None]:
    """Give ``urlopen()`` an opener that has read the variables with the certificate authority;
    return a function that restores it. Since Python 3.12, the shared opener keeps the first TLS
    context. An application's own opener stays.
    """
    opener: Any = getattr(urllib.request, "_opener", None)
    default: Any = urllib.request.build_opener()
    usual = [*map(type, default.handlers)]
    # The default opener has no ProxyHandler if it was made before NO_PROXY was set for the fakes.
    early = [kind for kind in usual if kind is not urllib.request.ProxyHandler]
    if opener is not None and [*map(type, opener.handlers)] not in (usual, early):
        return lambda: None
    return replace(urllib.request, "_opener", default).restore


def _check_connections(early: Container[str], settings: Mapping[str, Any]) -> None:
    """Fail the test if settings would change the addresses or credentials of early fakes."""
    from ...core.settings import connection_settings

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


class BeforeFixture(NamedTuple):
    """The state of a shared cloud before a fixture of a wide scope."""

    cloud: Cloud
    credentials: Mapping[Fake, tuple[str, ...]]
    baselines: Mapping[Fake, tuple[Snapshot | None, int]]
    changes: Changes


class SharedCloud:
    """The cloud that the tests of a class or a module share. It returns to its baseline before each of
    them. ``cloud`` is None until it is created, and after it is closed.
    """

    delivery: ClassVar[DeliveryMode] = "driven"
    """How its queues deliver."""

    def __init__(self, options: RunOptions) -> None:
        self.cloud: Cloud | None = None
        self._options = options
        self._item: pytest.Item | None = None
        """The current test; None before the first one."""
        self._seed: Any = None
        """The seed that the settings give. By default, each test has its own."""
        self._staying: list[Any] = []
        """The fakes that stay after the current test, besides the fixtures' own: those that existed
        before it, and those that fixtures of a wide scope start. Others are closed before the next one.
        """
        self._credentials: dict[Fake, tuple[str, ...]] = {}
        """The credentials of the open fakes that each test begins with."""
        self.lost = LostChanges()

    def begin_fixture(self) -> BeforeFixture | None:
        """Note the state before a fixture of a wide scope; None without a cloud."""
        cloud = self.cloud
        if cloud is None:
            return None
        baselines = {fake: (fake._baseline, fake._baseline_number) for fake in cloud.fakes()}
        return BeforeFixture(cloud, credentials_of(cloud), baselines, Changes(cloud))

    def end_fixture(self, fixture: pytest.FixtureDef[Any], before: BeforeFixture | None) -> None:
        """Let what a fixture of a wide scope has started and rotated stay, also if a test requests it
        at run time. A baseline that it has set ends with it.
        """
        cloud = self.cloud
        if cloud is None:
            return
        if before is None or before.cloud is not cloud:
            # The fixture has requested the cloud, which did not exist before.
            before = BeforeFixture(cloud, {}, {}, Changes(cloud, is_from_start=True))
        for fake, (baseline, number) in before.baselines.items():
            if fake._baseline is not baseline:
                fixture.addfinalizer(partial(fake._restore_baseline, baseline, number))
        self.lost.add(fixture.argname, before.changes)
        changed = dict(credentials_of(cloud).items() - before.credentials.items())
        self._credentials |= changed
        self._staying += changed.keys() - before.credentials.keys()

    def create(self, layers: Sequence[Mapping[str, Any]]) -> Cloud:
        """Create the cloud with the settings of these layers, of which later ones win."""
        seed = "session" if self._item is None else self._item.nodeid
        merged = self._options.merged(seed, layers)
        is_given = any(layer.get("seed") is not None for layer in layers)
        self._seed = merged["seed"] if is_given else None
        self.cloud = new_cloud(self._options.config, merged, self.delivery)
        return self.cloud

    def return_to_baseline(self, item: pytest.Item) -> None:
        """Return to the baseline before a test. Random values start over from the test's own seed."""
        cloud, is_first, self._item = self.cloud, self._item is None, item
        if cloud is None:
            return
        if is_first:
            # Only early fakes exist before the first test, and all that imports have started stays.
            self.lost.add_imports(cloud)
        else:
            keep_only(cloud, self._staying)
        self._staying = list(cloud.fakes())
        self.lost.begin_test()
        start_over(cloud)
        restore_credentials(cloud, self._credentials)
        seed = self._options.defaults["seed"] or item.nodeid
        cloud._context.ids.reseed(seed if self._seed is None else self._seed)

    def begin_call(self) -> None:
        """Mark calls recorded before the test's own code, and remember the credentials of its fakes."""
        if self.cloud is not None:
            former = self._credentials
            self._credentials = {
                fake: former.get(fake, present)
                for fake, present in credentials_of(self.cloud).items()
            }
            for call in self.cloud.journal.calls():
                call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def close(self) -> None:
        cloud, self.cloud = self.cloud, None
        self.lost.clear()
        self._staying, self._seed = [], None
        self._credentials = {}
        if cloud is not None:
            cloud.close()


class SessionCloud(SharedCloud):
    """The cloud that all tests of a run share, if the run needs one.

    Early fakes start before ``fakecloud_session_settings`` can be read, so they are replaced by fakes
    with these settings at the same addresses before the first test.
    """

    delivery = "background"
    """Applications use the queues beside the tests, so no test could run them for all."""

    def __init__(self, options: RunOptions) -> None:
        super().__init__(options)
        self._settings: Mapping[str, Any] | None = None
        """The settings of the session, once they are known."""

    @property
    def settings_of_tests(self) -> dict[str, Any]:
        """The settings of the session that apply to each test."""
        settings = self._settings or {}
        return {name: settings[name] for name in PER_TEST_SETTINGS if name in settings}

    def start_early(self, fixtures: Sequence[str]) -> dict[str, str]:
        """Start fakes with default settings; return their environment variables."""
        cloud = self.create([])
        variables: dict[str, str] = {}
        for fixture in fixtures:
            variables |= fixture_fake(cloud, fixture).env
        return variables

    def open(self, settings: Any) -> Cloud:
        """Return the cloud, created on first use; fail a test with other settings than the cloud
        was created with.
        """
        if self.cloud is not None and self._settings is not None:
            if settings is not self._settings and settings != self._settings:
                raise misuse(
                    f"{SESSION_SETTINGS} has other settings for this test than for an earlier one, but "
                    "the session's fakes start only once: override the fixture once, without "
                    "parameters, in the top conftest.py"
                )
            return self.cloud
        self._check(settings)
        early = self.cloud
        if early is None:
            cloud = self.create([settings])
        else:
            cloud = self._replaced(early, settings) if settings else early
        self._settings = settings
        return cloud

    def _check(self, settings: Any) -> None:
        """Fail the test if settings of the session cannot take effect."""
        if not isinstance(settings, Mapping):
            raise misuse(
                f"the fixture {SESSION_SETTINGS} must return a dict of settings, got {settings!r}"
            )
        if self._options.scope == "session":
            return
        names = {fixture_of(name) for name in settings}
        if wrong := names.intersection(PER_TEST_SETTINGS):
            raise misuse(
                f"{', '.join(sorted(wrong))} in {SESSION_SETTINGS} has no effect, because each test has "
                "its own fakes: return it from the fixture fakecloud_settings, or set "
                "fakecloud_scope = session"
            )
        if wrong := names.intersection(SERVICES):
            name = min(wrong)
            raise misuse(
                f"{', '.join(sorted(wrong))} in {SESSION_SETTINGS} has no effect, because each test has "
                "its own fakes: return it from the fixture fakecloud_settings, set "
                "fakecloud_scope = session, or pass the settings to the fake that you start: "
                f"fakecloud_session.{name}(...)"
            )

    def _replaced(self, early: Cloud, settings: Mapping[str, Any]) -> Cloud:
        """Replace early fakes by fakes with the settings of the session, at the same addresses."""
        _check_connections({fake.fixture for fake in early.fakes()}, settings)
        cloud = self.create([settings])
        try:
            for former, fake in replace_early_fakes(cloud, early):
                _check_variables(former, fake)
        except BaseException:
            self.cloud = None
            cloud.close()
            raise
        return cloud
