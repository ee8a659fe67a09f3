"""The cloud of a scope, and what each test of the scope begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from ..cloud.base import fixture_fake, start_over
from ..cloud.cloud import Cloud
from ..cloud.fake import Fake
from ..core.exits import Exits
from ..core.settings import DeliveryMode
from ..http.ports import hand_over, release
from .checks import check_early_variables
from .cloud_state import BEFORE_OPENING, CloudState
from .lost_changes import LostChanges


def _do_nothing() -> None:
    """The end of what has ended."""


class CloudOwner:
    """The owner of the cloud of a test, of a class, of a module or of the session, and in a wide scope
    of what each test begins with. That is the fakes that fixtures of a wide scope have started, the
    credentials that these fixtures gave them, and their baselines (``Fake.set_baseline()``). Other
    fakes are closed before the next test. In a wide scope, ``kv_server`` and the plugin's other
    fixtures are such fixtures, and so is ``fakecloud_session``.

    ``settings`` are all settings of the cloud (``RunOptions.merged_settings()``), which its ``Context``
    has as ``fixture_settings``, and ``seed`` is for settings without one. By default, the queues deliver
    only when the test runs them, so that no outcome depends on the speed of a thread; a ``Cloud()``
    without pytest has another default (see ``BaseCloud``). The owner closes its cloud when it is closed
    itself: by ``close()``, or else with the ``run_exits``.
    """

    def __init__(
        self,
        run_exits: Exits,
        config: pytest.Config,
        seed: str,
        settings: Mapping[str, Any],
        delivery: DeliveryMode = "driven",
    ) -> None:
        self._config = config
        self._delivery = delivery
        self.fakecloud_session_settings: Mapping[str, Any] | None = None
        """The value of that fixture that the session's cloud has; None for a narrower scope, and for
        early fakes until it is known.
        """
        self.fakecloud_settings: Mapping[str, Any] | None = None
        """The value of that fixture for the first test that used the cloud by the fixtures; None before
        that test.
        """
        self._staying: dict[Fake, tuple[str, ...]] = {}
        """The fakes that each test begins with, and their credentials."""
        self._is_reused = False
        """Whether a test has begun since the cloud was opened."""
        self.lost = LostChanges()
        self.has_ended = False
        """Whether the scope of the cloud has ended. The run forgets the owner only when the test ends,
        because the report of its teardown reads the closed cloud.
        """
        self.cloud = self._new_cloud(seed, settings)
        self._end = run_exits.callback(self._close)
        """Calls ``_close()``, unless it has returned already."""

    def _new_cloud(self, seed: str, settings: Mapping[str, Any]) -> Cloud:
        """Return a new cloud with these settings."""
        cloud = Cloud(
            seed=seed if settings["seed"] is None else settings["seed"],
            now=settings["now"],
            clock=settings["clock"],
            process_time=settings["process_time"],
            delivery=self._delivery,
            transport=settings["transport"],
            tls=settings["tls"],
            share_tls_context=settings["share_tls_context"],
        )
        context = cloud._context
        context.fixture_settings = settings
        context.cache = getattr(self._config, "cache", None)  # None with -p no:cacheprovider
        return cloud

    def close(self) -> None:
        """Close the cloud, because its scope has ended. If this is interrupted, the exits of the run
        repeat it.
        """
        self._end()
        self._end = _do_nothing  # It refers to this owner, whose cloud is to be freed at once.

    def _close(self) -> None:
        self.has_ended = True
        self.cloud.close()

    def replace_cloud(self, seed: str, settings: Mapping[str, Any]) -> None:
        """Close the cloud of early fakes, and start these again at the same addresses, in a cloud with
        the settings of the session. If that fails, the scope has ended.
        """
        # A copy, because closing the cloud empties the original.
        formers = dict(self.cloud._context.fixture_fakes)
        try:
            for former in formers.values():
                for mount in former._mounts:
                    hand_over(mount.host, mount.port, mount.listener)
            self.cloud.close()
            self._staying, self._is_reused = {}, False
            self.cloud = self._new_cloud(seed, settings)
            for fixture, former in formers.items():
                fake = fixture_fake(self.cloud, fixture, port=former._mount.port)
                fake._take_over(former)
                check_early_variables(former, fake)
            self._let_stay(self.cloud.fakes())
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
        self._staying = {
            fake: credentials for fake, credentials in self._staying.items() if not fake.closed
        }
        # Before the reset, which these changes do not survive.
        self.lost.note_losses()
        start_over(cloud)
        for fake, credentials in self._staying.items():
            if fake._credentials() != credentials:
                fake._set_credentials(*credentials)
        seed = cloud._context.fixture_settings["seed"]
        cloud._context.ids.reseed(item.nodeid if seed is None else seed)

    def mark_earlier_calls(self) -> None:
        """Mark calls recorded before the test's own code, if an earlier test may have made them."""
        if not self._is_reused:
            return
        for call in self.cloud.journal.calls():
            call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def state(self) -> CloudState:
        """Return the present state of the cloud."""
        return CloudState.of(self.cloud)

    def note_changes(
        self, fixture_name: str, former: CloudState | None
    ) -> list[Callable[[], None]]:
        """Note what a fixture of a wide scope has changed in the cloud since a former state, or
        if there is none, since it was opened. Fakes that
        it has started or whose credentials it has rotated stay, even if a test requests it at run time.
        Other changes last until the next test, whose report says so. Return functions that restore the
        baselines that it has replaced.
        """
        changes = (former or BEFORE_OPENING).changes_in(self.cloud)
        self._let_stay([*changes.started, *changes.rotated])
        self.lost.add(fixture_name, changes.last_numbers)
        return changes.restorations

    def _let_stay(self, fakes: Iterable[Fake]) -> None:
        """Let each test begin with these fakes and their present credentials."""
        self._staying |= {fake: fake._credentials() for fake in fakes}
