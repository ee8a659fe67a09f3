"""The cloud of a scope, and what each test of the scope begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from ..cloud.base import start_over
from ..cloud.cloud import Cloud
from ..cloud.fake import Fake, Snapshot
from ..core.exits import Exits
from ..core.settings import DeliveryMode
from .lost_changes import AT_IMPORT, Changes, LostChanges
from .options import RunOptions


class BeforeFixture(NamedTuple):
    """The state of a cloud before a fixture of a wide scope."""

    credentials: Mapping[Fake, tuple[str, ...]]
    baselines: Mapping[Fake, tuple[Snapshot | None, int]]
    changes: Changes


class CloudOwner:
    """The owner of the cloud of a test, of a class, of a module or of the run, and what each test of
    that scope begins with: the fakes that fixtures of a wide scope have started, the credentials that
    these fixtures gave them, and their baselines (``Fake.set_baseline()``). Other fakes are closed
    before the next test. In a wide scope, ``kv_server`` and the plugin's other fixtures are such
    fixtures, and so is ``fakecloud_session``, in which the fakes of early variables start again.

    ``layers`` are the settings, of which later ones win; ``seed`` is for settings without one. By
    default, the queues deliver only when the test runs them, so that no outcome depends on the speed
    of a thread; a ``Cloud()`` without pytest has another default (see ``BaseCloud``). The cloud is
    closed by ``close()``, or else when the ``exits`` are closed.
    """

    def __init__(
        self,
        exits: Exits,
        options: RunOptions,
        seed: str,
        layers: Sequence[Mapping[str, Any]],
        delivery: DeliveryMode = "driven",
    ) -> None:
        self._options = options
        self._layers = layers
        self._staying: dict[Fake, tuple[str, ...]] = {}
        """The fakes that each test begins with, and their credentials."""
        self.lost = LostChanges()
        self._is_reused = False
        """Whether a test has begun since the cloud was opened."""
        self.cloud = _new_cloud(options.config, options.merged(seed, layers), delivery)
        self.is_closed = False
        """Whether the scope of the cloud has ended."""
        self._close_cloud = exits.callback(self.cloud.close)

    def close(self) -> None:
        """Close the cloud. If this is interrupted, the exits still close it."""
        self.is_closed = True
        self._close_cloud()

    def begin_test(self, item: pytest.Item) -> None:
        """Return to what each test begins with. Random values start over from the test's own seed,
        unless the settings of the cloud have one.
        """
        cloud = self.cloud
        self._is_reused = True
        for fake in cloud.fakes():
            if fake not in self._staying:
                fake.close()
        # Forget the fakes that a test has closed.
        self._staying = {fake: self._staying[fake] for fake in cloud.fakes()}
        # Before the reset, which these changes do not survive.
        self.lost.begin_test()
        start_over(cloud)
        for fake, credentials in self._staying.items():
            if fake._credentials() != credentials:
                fake._set_credentials(*credentials)
        cloud._context.ids.reseed(self._options.merged(item.nodeid, self._layers)["seed"])

    def begin_call(self) -> None:
        """Mark calls recorded before the test's own code, if an earlier test may have made them."""
        if not self._is_reused:
            return
        for call in self.cloud.journal.calls():
            call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def begin_fixture(self) -> BeforeFixture:
        """Note the state before a fixture of a wide scope."""
        cloud = self.cloud
        baselines = {fake: (fake._baseline, fake._baseline_number) for fake in cloud.fakes()}
        return BeforeFixture(_credentials(cloud), baselines, Changes(cloud))

    def end_fixture(
        self, fixture: pytest.FixtureDef[Any], before: BeforeFixture | None = None
    ) -> None:
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

    def abandon_fixture(self, before: BeforeFixture) -> None:
        """End the baselines of a fixture of a wide scope that has raised an exception. pytest would not
        call a finalizer. What the fixture has started ends before the next test.
        """
        for fake, (baseline, number) in before.baselines.items():
            if fake._baseline is not baseline:
                fake._restore_baseline(baseline, number)

    def end_imports(self) -> None:
        """Let what the code that ran before the first test has started stay."""
        self._stay(AT_IMPORT, self._at_start())

    def _at_start(self) -> BeforeFixture:
        return BeforeFixture({}, {}, Changes(self.cloud, is_from_start=True))

    def _stay(self, name: str, before: BeforeFixture) -> None:
        # The difference contains new fakes, and those whose credentials the fixture has rotated.
        self._staying |= _credentials(self.cloud).items() - before.credentials.items()
        self.lost.add(name, before.changes)


def _new_cloud(config: pytest.Config, settings: Mapping[str, Any], delivery: DeliveryMode) -> Cloud:
    """Create a cloud with its settings, and those of the fixtures' fakes."""
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


def _credentials(cloud: Cloud) -> dict[Fake, tuple[str, ...]]:
    return {fake: fake._credentials() for fake in cloud.fakes()}
