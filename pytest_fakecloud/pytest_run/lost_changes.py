"""What fixtures of a wide scope changed in fakes that outlive tests, and a later test misses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from ..cloud.cloud import Cloud
    from ..cloud.fake import Fake

AT_IMPORT = ""
"""The name for the code that runs before the first test, beside the names of fixtures."""


def _shown_fixture(name: str) -> str:
    if name == AT_IMPORT:
        return "the code that ran before the first test"
    if name.startswith("_xunit_setup_"):
        return "setup_class or setup_module"
    return f"the fixture {name}"


class Changes:
    """What changes the fakes of a cloud, from now on or since its start, until ``end()``."""

    def __init__(self, cloud: Cloud, *, is_from_start: bool = False) -> None:
        self._cloud = cloud
        self._recorder = cloud._context.recorder
        self._began = 0 if is_from_start else self._recorder.reserve()
        self._plans = {} if is_from_start else {fake: fake._plans() for fake in cloud.fakes()}
        self._allowed = 0 if is_from_start else len(cloud._context.allowed)
        self._last: dict[Fake, int] = {}
        """The journal number of the last change of each fake."""

    def end(self) -> None:
        numbers: dict[str, int] = {}
        for entry in (*self._recorder.entries, *self._recorder.shared.actions):
            if entry.number > self._began:
                numbers[entry.fake] = max(entry.number, numbers.get(entry.fake, 0))
        is_allowed = len(self._cloud._context.allowed) > self._allowed
        for fake in self._cloud.fakes():
            if is_allowed or fake._plans() != self._plans.get(fake, []):
                numbers[fake.name] = max(self._began, numbers.get(fake.name, 0))
            if fake.name in numbers:
                self._last[fake] = numbers[fake.name]

    def unsaved(self) -> list[str]:
        """Return the names of the fakes whose baseline has not been set since they changed."""
        return [fake.name for fake, last in self._last.items() if fake._baseline_number <= last]


class LostChanges:
    """The changes by wider fixtures since the last test began, and those that were lost when a later
    test returned the fakes to their baseline. Only reports need them.
    """

    def __init__(self) -> None:
        self._unsaved: dict[str, Changes] = {}
        """What each wider fixture did since the last test began."""
        self._lost: dict[str, list[str]] = {}
        """The fakes that each wider fixture changed, and that lost this when a later test began."""

    def add(self, fixture: str, changes: Changes) -> None:
        """Note what a fixture changed just now."""
        changes.end()
        self._lost.pop(fixture, None)
        self._unsaved[fixture] = changes

    def note_losses(self) -> None:
        """Note what is lost because the fakes now return to their baseline."""
        # A later fixture may have set the baseline.
        lost = {name: changes.unsaved() for name, changes in self._unsaved.items()}
        self._lost |= {name: fakes for name, fakes in lost.items() if fakes}
        self._unsaved = {}

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
