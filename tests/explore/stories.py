"""Update the stories in the guide: ``python -m tests.explore.stories``."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import hypothesis

from pytest_fakecloud import BrokenSchedule, Cloud

from .bugs import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "explore.md"


def told(found: BrokenSchedule) -> str:
    """Return a story as the page shows it."""
    cause = f"cause: {found.cause}\n" if found.cause else ""
    return f"{cause}{found.story}\nschedule: {found.schedule}\n"


def main() -> None:
    """Find each bug and write its story into the page."""
    hypothesis.settings.register_profile("bare", database=None)
    hypothesis.settings.load_profile("bare")
    page = PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        with Cloud(seed=1, delivery="driven", now="2026-11-20T12:00:00Z") as cloud:
            of = importlib.import_module(f"tests.explore.bugs.{name}").scenario(cloud, False)
            try:
                cloud.explore(of.run, of.check, workers=of.workers, setup=of.setup, **of.options)
            except BrokenSchedule as found:
                story = told(found)
                print(f"{name}: {found.tried} schedules, {found.seconds:.1f} s\n{story}")
            else:
                raise SystemExit(f"{name} was not found")
        page, count = re.subn(
            rf"(^<!-- story: {name} -->\n```text\n).*?(```$)",
            lambda match, story=story: match[1] + story + match[2],  # type: ignore[misc]
            page,
            flags=re.M | re.S,
        )
        if not count:
            print(f"the page has no story of {name}")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
