"""The cloud of a scope, its settings, and what each test of the scope begins with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest

from ..cloud.base import start_over
from ..cloud.cloud import Cloud
from ..cloud.fake import Fake, Snapshot
from ..core.exits import Exits
from ..core.settings import DeliveryMode
from .lost_changes import AT_IMPORT, Changes, LostChanges
from .options import Node, RunOptions


class BeforeFixture(NamedTuple):
    """The state of a cloud before a fixture of a wide scope."""

    credentials: Mapping[Fake, tuple[str, ...]]
    baselines: Mapping[Fake, tuple[Snapshot, int]]
    changes: Changes


class CloudOwner:
    """The owner of the cloud of a test, of a class, of a module or of the run: its settings, and in a
    wide scope what each test begins with. That is the fakes that fixtures of a wide scope have started,
    the credentials that these fixtures gave them, and their baselines (``Fake.set_baseline()``). Other
    fakes are closed before the next test. In a wide scope, ``kv_server`` and the plugin's other
    fixtures are such fixtures, and so is ``fakecloud_session``, in which early fakes start again.

    ``settings`` and ``session_settings`` are the values of the two fixtures with settings, ``node`` has
    the markers for the whole scope, and ``seed`` is for settings without one. By default, the queues
    deliver only when the test runs them, so that no outcome depends on the speed of a thread; a
    ``Cloud()`` without pytest has another default (see ``BaseCloud``). The cloud is closed by
    ``close()``, or else when the ``exits`` are closed.
    """

    def __init__(
        self,
        exits: Exits,
        options: RunOptions,
        seed: str,
        node: Node | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        session_settings: Mapping[str, Any] | None = None,
        delivery: DeliveryMode = "driven",
    ) -> None:
        self._options = options
        self.settings = settings
        """The value of ``fakecloud_settings``; None until a test uses the cloud by the fixtures."""
        self.session_settings = session_settings
        """The value of ``fakecloud_session_settings``; None for early fakes, until it is known, and for
        clouds that do not last for the session.
        """
        merged = options.merged(node, settings, session_settings)
        self._seed = merged["seed"]
        self._staying: dict[Fake, tuple[str, ...]] = {}
        """The fakes that each test begins with, and their credentials."""
        self.lost = LostChanges()
        self._is_reused = False
        """Whether a test has begun since the cloud was opened."""
        self.cloud = _new_cloud(options.config, merged, seed, delivery)
        self.is_closed = False
        """Whether the scope of the cloud has ended."""
        self._close_cloud = exits.callback(self.cloud.close)

    def close(self) -> None:
        """Close the cloud. If this is interrupted, the exits still close it."""
        self.is_closed = True
        self._close_cloud()

    def merged(self, item: pytest.Item, settings: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all settings of a test of the scope. As long as its own value of
        ``fakecloud_settings`` is not known (None), it has the one that the cloud was opened with.
        """
        settings = self.settings if settings is None else settings
        return self._options.merged(item, settings, self.session_settings)

    def prepare(self, item: pytest.Item) -> None:
        """Return an open cloud of a wide scope to what each test begins with. Random values start over
        from the test's own seed, unless the settings of the cloud have one.
        """
        cloud = self.cloud
        self._is_reused = True
        for fake in cloud.fakes():
            if fake not in self._staying:
                fake.close()
        # Forget the fakes that a test has closed.
        self._staying = {fake: self._staying[fake] for fake in cloud.fakes()}
        # Before the reset, which these changes do not survive.
        self.lost.note_losses()
        start_over(cloud)
        for fake, credentials in self._staying.items():
            if fake._credentials() != credentials:
                fake._set_credentials(*credentials)
        cloud._context.ids.reseed(item.nodeid if self._seed is None else self._seed)

    def mark_earlier_calls(self) -> None:
        """Mark calls recorded before the test's own code, if an earlier test may have made them."""
        if not self._is_reused:
            return
        for call in self.cloud.journal.calls():
            call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def before_fixture(self) -> BeforeFixture:
        """Note the state before a fixture of a wide scope."""
        cloud = self.cloud
        baselines = {fake: (fake._baseline, fake._baseline_number) for fake in cloud.fakes()}
        return BeforeFixture(_credentials(cloud), baselines, Changes(cloud))

    def keep(self, fixture: pytest.FixtureDef[Any], before: BeforeFixture | None = None) -> None:
        """Let what a fixture of a wide scope has started and rotated stay, even if a test requests the
        fixture at run time. A baseline that it has set ends with it. ``before`` is None if the fixture
        has requested the cloud, which did not exist before.
        """
        if before is None:
            before = self._at_start()
        for fake, (baseline, number) in before.baselines.items():
            if fake._baseline is not baseline:
                fixture.addfinalizer(partial(fake._restore_baseline, baseline, number))
        self._stay(fixture.argname, before)

    def end_baselines(self, before: BeforeFixture) -> None:
        """End the baselines of a fixture of a wide scope that has raised an exception. pytest would not
        call a finalizer. What the fixture has started ends before the next test.
        """
        for fake, (baseline, number) in before.baselines.items():
            if fake._baseline is not baseline:
                fake._restore_baseline(baseline, number)

    def keep_imported(self) -> None:
        """Let what the code that ran before the first test has started stay."""
        self._stay(AT_IMPORT, self._at_start())

    def _at_start(self) -> BeforeFixture:
        return BeforeFixture({}, {}, Changes(self.cloud, is_from_start=True))

    def _stay(self, name: str, before: BeforeFixture) -> None:
        for fake, credentials in _credentials(self.cloud).items():
            # The fixture has started the fake, or rotated its credentials.
            if before.credentials.get(fake) != credentials:
                self._staying[fake] = credentials
        self.lost.add(name, before.changes)


def _new_cloud(
    config: pytest.Config, settings: Mapping[str, Any], seed: str, delivery: DeliveryMode
) -> Cloud:
    """Create a cloud with its settings, and those of the fixtures' fakes."""
    cloud = Cloud(
        seed=seed if settings["seed"] is None else settings["seed"],
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


def _credentials(cloud: Cloud) -> dict[Fake, tuple[str, ...]]:
    return {fake: fake._credentials() for fake in cloud.fakes()}
