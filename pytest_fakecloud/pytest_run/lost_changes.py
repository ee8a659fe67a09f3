"""What fixtures of a wide scope changed in fakes that outlive tests, and a later test misses. Only a
hint in its report needs this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pytest

    from ..cloud.cloud import Cloud
    from ..cloud.fake import Fake

AT_IMPORT = ""
"""The name for the code that runs before the first test, beside the names of fixtures."""


class CloudMoment(NamedTuple):
    """A moment of a cloud, to find what has changed since."""

    number: int
    """A journal number: later entries have higher ones."""
    allowances: int
    """How often ``allow()`` had been called."""
    stubs: Mapping[Fake, list[object]]
    """The destinations and expectations of each fake."""


OPENING = CloudMoment(0, 0, {})
"""The moment at which a cloud opens."""


def moment_of(cloud: Cloud) -> CloudMoment:
    """Return the present moment of a cloud. This uses up a number of its journal."""
    context = cloud._context
    stubs = {fake: fake._stubs() for fake in cloud.fakes()}
    return CloudMoment(context.recorder.reserve(), len(cloud._allowed), stubs)


class LostChanges:
    """The changes by wider fixtures since the last test began, and those that were lost when a later
    test returned the fakes to their baseline.
    """

    def __init__(self) -> None:
        self._changes: dict[str, Mapping[Fake, int]] = {}
        """The fakes that each wider fixture has changed since the last test began, with the journal
        number of the last change of each.
        """
        self._lost: dict[str, list[str]] = {}
        """The fakes that each wider fixture changed, and that lost this when a later test began."""

    def add(self, fixture: str, cloud: Cloud, since: CloudMoment) -> None:
        """Note what a fixture has changed in a cloud since a moment."""
        self._lost.pop(fixture, None)
        context = cloud._context
        last: dict[str, int] = {}
        for entry in (*context.recorder.entries, *context.recorder.shared.actions):
            if entry.number > since.number:
                last[entry.fake] = max(entry.number, last.get(entry.fake, 0))
        has_allowed = len(cloud._allowed) > since.allowances
        for fake in cloud.fakes():
            if has_allowed or fake._stubs() != since.stubs.get(fake, []):
                last.setdefault(fake.name, since.number)
        self._changes[fixture] = {
            fake: last[fake.name] for fake in cloud.fakes() if fake.name in last
        }

    def note_losses(self) -> None:
        """Note what is lost because the fakes now return to their baseline."""
        for fixture, changes in self._changes.items():
            # A later fixture may have set the baseline.
            fakes = [fake.name for fake, last in changes.items() if fake._baseline.number <= last]
            if fakes:
                self._lost[fixture] = fakes
        self._changes = {}

    def hints(self, item: pytest.Item) -> list[str]:
        """Explain what a test may miss, because its fakes returned to their baseline before it."""
        names = (AT_IMPORT, *getattr(item, "fixturenames", ()))
        return [
            f"{' and '.join(self._lost[name])} returned to the baseline before this test, so what "
            f"{_shown_fixture(name)} changed there is gone. For data and destinations, end it with "
            f"{self._lost[name][0]}.set_baseline(); faults and allow() belong in a fixture of scope "
            "function"
            for name in dict.fromkeys(names)
            if name in self._lost
        ]


def _shown_fixture(name: str) -> str:
    if name == AT_IMPORT:
        return "the code that ran before the first test"
    if name.startswith("_xunit_setup_"):
        return "setup_class or setup_module"
    return f"the fixture {name}"
