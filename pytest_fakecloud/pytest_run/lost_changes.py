"""What fixtures of a wide scope changed in fakes that outlive tests, and a later test misses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from ..cloud.fake import Fake

AT_IMPORT = ""
"""The name for the code that runs before the first test, beside the names of fixtures."""


def _shown_fixture(name: str) -> str:
    if name == AT_IMPORT:
        return "the code that ran before the first test"
    if name.startswith("_xunit_setup_"):
        return "setup_class or setup_module"
    return f"the fixture {name}"


class LostChanges:
    """The changes by wider fixtures since the last test began, and those that were lost when a later
    test returned the fakes to their baseline. Only reports need them.
    """

    def __init__(self) -> None:
        self._changes: dict[str, Mapping[Fake, int]] = {}
        """The fakes that each wider fixture has changed since the last test began, with the journal
        number of the last change of each.
        """
        self._lost: dict[str, list[str]] = {}
        """The fakes that each wider fixture changed, and that lost this when a later test began."""

    def add(self, fixture: str, changes: Mapping[Fake, int]) -> None:
        """Note what a fixture changed just now."""
        self._lost.pop(fixture, None)
        self._changes[fixture] = changes

    def note_losses(self) -> None:
        """Note what is lost because the fakes now return to their baseline."""
        for fixture, changes in self._changes.items():
            # A later fixture may have set the baseline.
            fakes = [fake.name for fake, last in changes.items() if fake._baseline_number <= last]
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
