"""What a fixture of a wide scope has changed in the fakes of the clouds that are open."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest

    from ..cloud.fake import Baseline, Fake
    from .cloud_owner import CloudOwner


class FakeState(NamedTuple):
    """The state of a fake before a fixture of a wide scope."""

    baseline: Baseline
    latest: int
    """The journal number of what was recorded last (``Recorder.latest``)."""


def _state_of(fake: Fake) -> FakeState:
    # Every pytest run imports this module, but not every one uses a fake.
    from ..cloud.fake import core_of

    core = core_of(fake)
    return FakeState(core.baseline, core.recorder.latest)


class WideFixture:
    """A running fixture of a wide scope. What it changes lasts for different times:

    - The fakes that it starts, the credentials that it rotates, the origins that it intercepts and the
      limits of journals that it sets (``CloudState``) stay as long as the cloud.
    - A baseline that it sets lasts as long as the fixture, whose finalizer restores the one before.
    - Its other changes last until the next test, whose report says so (``LostChanges``).

    That holds also if a test requests the fixture at run time.
    """

    def __init__(self, definition: pytest.FixtureDef[Any], owners: Collection[CloudOwner]) -> None:
        self._definition = definition
        self._cloud_states = {owner: owner.state() for owner in owners}
        self._before = {fake: _state_of(fake) for owner in owners for fake in owner.cloud.fakes()}

    def failed(self) -> None:
        """Restore the baselines at once, because other tests of its scope run without the fixture. What
        it has started ends with the test.
        """
        for fake, state in self._before.items():
            fake._restore_baseline(state.baseline)

    def ended(self, owners: Iterable[CloudOwner]) -> None:
        """Keep what the fixture has changed."""
        latest = {fake: state.latest for fake, state in self._before.items()}
        for owner in owners:
            owner.let_stay(self._cloud_states.get(owner))
            owner.lost_changes.note(self._definition.argname, owner.cloud.fakes(), latest)
        for fake, baseline in self._replaced_baselines():
            self._definition.addfinalizer(partial(fake._restore_baseline, baseline))

    def has_requested(self, inner: WideFixture) -> None:
        """Note that the baselines which another fixture has set meanwhile are not this one's."""
        for fake, _ in inner._replaced_baselines():
            if fake in self._before:
                self._before[fake] = self._before[fake]._replace(baseline=_state_of(fake).baseline)

    def _replaced_baselines(self) -> list[tuple[Fake, Baseline]]:
        """Return the fakes whose baselines the fixture has set, with the baselines before."""
        return [
            (fake, state.baseline)
            for fake, state in self._before.items()
            if _state_of(fake).baseline is not state.baseline
        ]
