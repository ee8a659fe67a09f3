"""Count the findings that reports would show for passing tests: ``python -m tests.facts examples
tests/kv``.

Every cloud of a passing test gets its report when it closes, as after a failure: the fixtures'
cloud and those opened by the test. The findings and hints are counted, each distinct one with an
example test, for review: a finding may be true in a passing test, because tests provoke errors, but
never false. ``--to FILE`` appends each one to a file as a line of JSON. Other arguments are passed
to pytest.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.hints.missing_requests import hints_about_silence, old_token_hints
from pytest_fakecloud.plugin import run_of
from pytest_fakecloud.reporting.render.text import text as as_text
from pytest_fakecloud.reporting.render.wording import sentence
from pytest_fakecloud.reporting.report import report_of

_ONE_OF_MANY = re.compile(
    r"\b(?:msg|scd|usr)_\w+|:\d{4,5}\b|\b\d{13}-\d+|[\w-]{20,}|#[0-9a-f]{4}\b|\d+(?:\.\d+)?"
)


def alike(text: str) -> str:
    """Return a finding without details that differ between tests: ids, ports, numbers."""
    return _ONE_OF_MANY.sub("#", text)


def said_of(cloud: Any, idle_s: float | None = None) -> list[str]:
    """Return the findings about a cloud, and a line for each section that fails."""
    try:
        report = report_of(cloud, idle_s=idle_s)
        as_text(report)
    except Exception as error:
        return [f"NO SECTION: {error!r}"]
    return [sentence(finding, report.lookups) for finding in report.findings]


@dataclass(eq=False)
class Counted:
    """A pytest plugin that counts; ``found`` maps each finding and hint to its test."""

    to: Path | None = None
    tests: int = 0
    clouds: int = 0
    found: list[tuple[str, str]] = field(default_factory=list)
    _pending: list[str] = field(default_factory=list)
    _opened: int = 0
    _seen: set[int] = field(default_factory=set)
    _item: pytest.Item | None = None
    _passed: bool = False

    def closing(self, cloud: Any) -> None:
        """Inspect a cloud that is about to close, once."""
        item = self._item
        if item is None or cloud.closed or id(cloud) in self._seen:
            return
        self._seen.add(id(cloud))
        self._opened += 1
        self._pending += said_of(cloud, run_of(item.config).test.slept_seconds())
        names = list(vars(getattr(item, "module", None) or object).values())
        for hint in [*old_token_hints(cloud)[:1], *hints_about_silence(cloud, names)]:
            self._pending.append(f"HINT: {hint}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        # Count a nested pytest run as a part of its test.
        if self._item is not None:
            return (yield)
        self._item, self._passed = item, False
        self._pending, self._opened, self._seen = [], 0, set()
        try:
            return (yield)
        finally:
            self._item = None
            if self._passed and self._opened:
                self.tests += 1
                self.clouds += self._opened
                self.found += [(text, item.nodeid) for text in self._pending]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Any:
        report = yield
        if item is self._item and report.when == "call":
            self._passed = report.passed
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        counts = Counter(alike(text) for text, _ in self.found)
        first: dict[str, tuple[str, str]] = {}
        for text, test in self.found:
            first.setdefault(alike(text), (text, test))
        hints = sum(text.startswith("HINT: ") for text, _ in self.found)
        write = terminalreporter.write_line
        write(
            f"{self.tests} passing tests with {self.clouds} clouds: {len(self.found) - hints} facts "
            f"and {hints} hints, {len(counts)} distinct"
        )
        for kind, count in counts.most_common():
            text, test = first[kind]
            write(f"{count:6} {text}")
            write(f"       {test}")
        if self.to is not None:
            with self.to.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps([test, text])}\n" for text, test in self.found)


def main() -> int:
    """Run pytest with the counter; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.facts", description=__doc__)
    parser.add_argument("--to", type=Path, help="a file that gets every fact with its test")
    options, rest = parser.parse_known_args()
    counter = Counted(options.to)
    close = Cloud.close

    def closing(cloud: Cloud) -> None:
        counter.closing(cloud)
        close(cloud)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cloud, "close", closing)
        return int(pytest.main(["-q", "-p", "no:cacheprovider", *rest], plugins=[counter]))


if __name__ == "__main__":
    sys.exit(main())
