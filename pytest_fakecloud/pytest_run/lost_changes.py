"""The hint in a report about what fixtures of a wide scope changed in fakes that outlive tests, and a
later test misses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from .cloud_owner import CloudOwner

AT_IMPORT = ""
"""The name for the code that runs before the first test, beside the names of fixtures."""


def hints_about_lost_changes(owner: CloudOwner, item: pytest.Item) -> list[str]:
    """Explain what a test may miss, because its fakes returned to their baseline before it."""
    hints = []
    for name in dict.fromkeys((AT_IMPORT, *getattr(item, "fixturenames", ()))):
        # Another fixture may have set the baseline since.
        lost = [
            fake.name
            for fake, number in owner.lost.get(name, {}).items()
            if fake._baseline.number < number
        ]
        if lost:
            hints.append(
                f"{' and '.join(lost)} returned to the baseline before this test, so what "
                f"{_shown_fixture(name)} changed there is gone. For data and destinations, end it with "
                f"{lost[0]}.set_baseline(); faults and allow() belong in a fixture of scope function"
            )
    return hints


def _shown_fixture(name: str) -> str:
    if name == AT_IMPORT:
        return "the code that ran before the first test"
    if name.startswith("_xunit_setup_"):
        return "setup_class or setup_module"
    return f"the fixture {name}"
