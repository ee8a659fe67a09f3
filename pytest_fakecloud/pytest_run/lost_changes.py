"""The hint in a report about what fixtures of a wide scope changed in fakes that outlive tests, and a
later test misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..cloud.fake import Fake, core_of

if TYPE_CHECKING:
    import pytest

AT_IMPORT = ""
"""The name for the code that runs before the first test, beside the names of fixtures."""


class LostChanges:
    """The fakes that fixtures of a wide scope have changed, with the journal number of the last change
    of each. The fakes return to their baselines before the next test, so that it does not find changes
    which no baseline contains.
    """

    def __init__(self) -> None:
        self._current: dict[str, Mapping[Fake, int]] = {}
        """What each fixture has changed in the current test."""
        self._earlier: dict[str, Mapping[Fake, int]] = {}
        """What each fixture changed in an earlier test."""

    def begin_test(self) -> None:
        self._earlier |= self._current
        self._current = {}

    def note(self, fixture: str, fakes: Iterable[Fake], before: Mapping[Fake, int]) -> None:
        """Note which of the fakes a fixture has changed, given the journal numbers before it."""
        self._earlier.pop(fixture, None)
        self._current[fixture] = {
            fake: latest
            for fake in fakes
            if (latest := core_of(fake).recorder.latest) > before.get(fake, 0)
        }

    def hints(self, item: pytest.Item) -> list[str]:
        """Explain what a test may miss, because its fakes returned to their baseline before it."""
        hints = []
        for name in dict.fromkeys((AT_IMPORT, *getattr(item, "fixturenames", ()))):
            # Another fixture may have set the baseline since.
            lost = [
                fake.name
                for fake, number in self._earlier.get(name, {}).items()
                if core_of(fake).baseline.number < number
            ]
            if lost:
                calls = " and ".join(f"{fake}.set_baseline()" for fake in lost)
                hints.append(
                    f"{' and '.join(lost)} returned to the baseline before this test, so what "
                    f"{_shown_fixture(name)} changed there is gone. For data and destinations, end it "
                    f"with {calls}; faults, subscriptions and allow() belong in a fixture of scope "
                    "function"
                )
        return hints


def _shown_fixture(name: str) -> str:
    if name == AT_IMPORT:
        return "the code that ran before the first test"
    if name.startswith("_xunit_setup_"):
        return "setup_class or setup_module"
    return f"the fixture {name}"
