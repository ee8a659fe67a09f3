"""What a fixture of a wide scope does to a cloud that outlives tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

from ..cloud.cloud import Cloud
from ..cloud.fake import Fake, Snapshot

Credentials = Mapping[Fake, tuple[str, ...]]
"""The credentials of each fake."""
_NO_FAKES: Mapping[Fake, Any] = {}


def credentials_of(cloud: Cloud) -> Credentials:
    return {fake: fake._credentials() for fake in cloud.fakes()}


class BeforeFixture(NamedTuple):
    """The state of a cloud before a fixture of a wide scope; by default, of a cloud that did not exist.
    The methods return what the fixture has done since.
    """

    credentials: Credentials = _NO_FAKES
    baselines: Mapping[Fake, tuple[Snapshot, int]] = _NO_FAKES
    plans: Mapping[Fake, list[object]] = _NO_FAKES
    allowances: int = 0
    """How often ``allow()`` had been called."""
    number: int = 0
    """A journal number: entries with higher ones are later."""

    @classmethod
    def of(cls, cloud: Cloud) -> Self:
        """Return the present state. This uses up a number of the journal."""
        fakes, context = cloud.fakes(), cloud._context
        return cls(
            credentials_of(cloud),
            {fake: (fake._baseline, fake._baseline_number) for fake in fakes},
            {fake: fake._plans() for fake in fakes},
            len(context.allowed),
            context.recorder.reserve(),
        )

    def new_credentials(self, cloud: Cloud) -> Credentials:
        """Return the credentials of the fakes that were started, and those that were rotated."""
        return {
            fake: credentials
            for fake, credentials in credentials_of(cloud).items()
            if self.credentials.get(fake) != credentials
        }

    def restore_functions(self) -> list[Callable[[], None]]:
        """Return functions that restore the baselines that ``set_baseline()`` has replaced."""
        return [
            partial(fake._restore_baseline, baseline, number)
            for fake, (baseline, number) in self.baselines.items()
            if fake._baseline is not baseline
        ]

    def last_changes(self, cloud: Cloud) -> dict[Fake, int]:
        """Return the fakes that were changed, with the journal number of the last change of each."""
        context = cloud._context
        numbers: dict[str, int] = {}
        for entry in (*context.recorder.entries, *context.recorder.shared.actions):
            if entry.number > self.number:
                numbers[entry.fake] = max(entry.number, numbers.get(entry.fake, 0))
        is_allowed = len(context.allowed) > self.allowances
        for fake in cloud.fakes():
            if is_allowed or fake._plans() != self.plans.get(fake, []):
                numbers.setdefault(fake.name, self.number)
        return {fake: numbers[fake.name] for fake in cloud.fakes() if fake.name in numbers}
