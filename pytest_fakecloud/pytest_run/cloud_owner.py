"""The cloud of a scope, and what each test of the scope begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ..cloud.base import fixture_fake, start_over
from ..cloud.cloud import Cloud
from ..cloud.fake import Fake
from ..core.exits import Exits
from ..core.settings import DeliveryMode
from ..http.ports import hand_over, release
from .before_fixture import BeforeFixture, Credentials
from .checks import check_early_variables
from .lost_changes import LostChanges


class CloudOwner:
    """The owner of the cloud of a test, of a class, of a module or of the session, and in a wide scope
    of what each test begins with. That is the fakes that fixtures of a wide scope have started, the
    credentials that these fixtures gave them, and their baselines (``Fake.set_baseline()``). Other
    fakes are closed before the next test. In a wide scope, ``kv_server`` and the plugin's other
    fixtures are such fixtures, and so is ``fakecloud_session``.

    ``settings`` are all settings of the cloud (``RunOptions.merged_settings()``), which its ``Context``
    has as ``fixture_settings``, and ``seed`` is for settings without one. By default, the queues deliver
    only when the test runs them, so that no outcome depends on the speed of a thread; a ``Cloud()``
    without pytest has another default (see ``BaseCloud``). The cloud is closed by ``close()``, or else
    when the ``exits`` are closed.
    """

    def __init__(
        self,
        exits: Exits,
        config: pytest.Config,
        seed: str,
        settings: Mapping[str, Any],
        delivery: DeliveryMode = "driven",
    ) -> None:
        self._exits = exits
        self._config = config
        self._delivery = delivery
        self.is_early = False
        """Whether the cloud has default settings, because those of the session are not known yet."""
        self.fakecloud_session_settings: Mapping[str, Any] = {}
        """The value of that fixture that the cloud has; empty for early fakes and a narrower scope."""
        self.fakecloud_settings: Mapping[str, Any] | None = None
        """The value of that fixture for the first test that used the cloud by the fixtures; None before
        that test.
        """
        self._staying: dict[Fake, tuple[str, ...]] = {}
        """The fakes that each test begins with, and their credentials."""
        self.lost = LostChanges()
        self.has_ended = False
        """Whether the scope of the cloud has ended. The run forgets the owner only when the test ends,
        because the report of its teardown reads the closed cloud.
        """
        self._create_cloud(seed, settings)

    def _create_cloud(self, seed: str, settings: Mapping[str, Any]) -> None:
        self._seed = settings["seed"]
        """The seed of the settings; None if each test has its own."""
        self.cloud = Cloud(
            seed=seed if self._seed is None else self._seed,
            now=settings["now"],
            clock=settings["clock"],
            process_time=settings["process_time"],
            delivery=self._delivery,
            transport=settings["transport"],
            tls=settings["tls"],
            share_tls_context=settings["share_tls_context"],
        )
        self._close_cloud = self._exits.callback(self.cloud.close)
        self._is_reused = False
        """Whether a test has begun since the cloud was opened."""
        context = self.cloud._context
        context.fixture_settings = settings
        context.cache = getattr(self._config, "cache", None)  # None with -p no:cacheprovider

    def close(self) -> None:
        """Close the cloud. If this is interrupted, the exits still close it."""
        self.has_ended = True
        self._close_cloud()

    def replace_cloud(self, seed: str, settings: Mapping[str, Any]) -> None:
        """Close the cloud of early fakes, and start these again at the same addresses, in a cloud with
        the settings of the session. If that fails, the scope has ended.

        The new fakes stay for all tests like those that any fixture of a wide scope starts, because
        ``fakecloud_session`` calls this, for the autouse fixture of ``early``: ``Run.end_fixture()`` has
        no state of the new cloud from before that fixture, so it regards all of its fakes as started.
        """
        # A copy, because closing the cloud empties the original.
        formers = dict(self.cloud._context.fixture_fakes)
        try:
            for former in formers.values():
                for mount in former._mounts:
                    hand_over(mount.host, mount.port, mount.listener)
            self._close_cloud()
            self._create_cloud(seed, settings)
            for fixture, former in formers.items():
                fake = fixture_fake(self.cloud, fixture, port=former._mount.port)
                fake._take_over(former)
                check_early_variables(former, fake)
        except BaseException:
            self.close()
            raise
        finally:
            release()

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

    def let_stay(self, credentials: Credentials) -> None:
        """Let each test begin with these fakes and credentials, which a fixture of a wide scope has
        started or rotated, even if a test requests the fixture at run time.
        """
        self._staying |= credentials

    def note_changes(self, fixture: str, before: BeforeFixture) -> None:
        """Note what else a fixture of a wide scope has changed. Without ``set_baseline()``, later tests
        do not find it, and their reports say so.
        """
        self.lost.add(fixture, before.last_changes(self.cloud))
