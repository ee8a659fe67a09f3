"""The state of a cloud that outlives tests, and what code that runs once for several tests changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Self

from ..cloud.cloud import Cloud
from ..cloud.fake import Fake, Snapshot


class FakeState(NamedTuple):
    """The state of a fake: what tests begin with, and what they do not find again."""

    credentials: tuple[str, ...]
    baseline: Snapshot
    baseline_number: int
    plans: list[object]


class CloudChanges(NamedTuple):
    """The difference between a former state of a cloud and its present state."""

    started: list[Fake]
    rotated: list[Fake]
    """The older fakes that have other credentials now."""
    restorations: list[Callable[[], None]]
    """Functions that restore the baselines that ``set_baseline()`` has replaced."""
    last_numbers: dict[Fake, int]
    """The fakes that were changed, with the journal number of the last change of each."""


class CloudState(NamedTuple):
    """The state of a cloud at one moment."""

    fakes: Mapping[Fake, FakeState]
    allowances: int
    """How often ``allow()`` had been called."""
    number: int
    """A journal number: entries with higher ones are later."""

    @classmethod
    def of(cls, cloud: Cloud) -> Self:
        """Return the present state. This uses up a number of the journal."""
        context = cloud._context
        fakes = {
            fake: FakeState(
                fake._credentials(), fake._baseline, fake._baseline_number, fake._plans()
            )
            for fake in cloud.fakes()
        }
        return cls(fakes, len(context.allowed), context.recorder.reserve())

    def changes_in(self, cloud: Cloud) -> CloudChanges:
        """Return what has changed in a cloud since it had this state."""
        return CloudChanges(
            [fake for fake in cloud.fakes() if fake not in self.fakes],
            [
                fake
                for fake in cloud.fakes()
                if fake in self.fakes and fake._credentials() != self.fakes[fake].credentials
            ],
            [
                partial(fake._restore_baseline, former.baseline, former.baseline_number)
                for fake, former in self.fakes.items()
                if fake._baseline is not former.baseline
            ],
            self._last_numbers(cloud),
        )

    def _last_numbers(self, cloud: Cloud) -> dict[Fake, int]:
        context = cloud._context
        numbers: dict[str, int] = {}
        for entry in (*context.recorder.entries, *context.recorder.shared.actions):
            if entry.number > self.number:
                numbers[entry.fake] = max(entry.number, numbers.get(entry.fake, 0))
        is_allowed = len(context.allowed) > self.allowances
        for fake in cloud.fakes():
            former_plans = self.fakes[fake].plans if fake in self.fakes else []
            if is_allowed or fake._plans() != former_plans:
                numbers.setdefault(fake.name, self.number)
        return {fake: numbers[fake.name] for fake in cloud.fakes() if fake.name in numbers}


BEFORE_OPENING = CloudState({}, allowances=0, number=0)
"""The state of a cloud that has not been opened yet."""
