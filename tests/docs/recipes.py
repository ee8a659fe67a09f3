"""Recipes of the documentation, run as they stand on their pages.

A recipe is a section (``##``) with at least one test. Its blocks say by their first line what they are:

- ``# name.py``: a file the tests import;
- ``# name.py, with the bug``: the same file with a bug. The tests run again with it and fail, and the
  ``text`` block below it shows lines of what pytest says then, in their order, where ``test.py`` is the
  file of tests;
- no such line: a file of tests. An ``ini`` block is ``pytest.ini``.

``Options: `…` `` in front of a block are options for pytest; ``-p name`` lets that plugin in.
``Needs: …`` tells of something that no test can bring: the recipe is read and not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..harness import QUIET, without_the_examples
from .blocks import missing_modules

_PART = re.compile(r"^Options: `([^`\n]*)`$|^```(\w+)\n(.*?)^```$", re.M | re.S)
_NEEDS = re.compile(r"^Needs: (.+)\.$", re.M)
_NAME = re.compile(r"# (\w+\.\w+)(, with the bug)?\n")
_TEST_FILE = re.compile(r"\btest_bug\d+_\d+\.py")


@dataclass
class Bug:
    """A file with a bug, and what pytest says of it."""

    name: str
    text: str
    says: list[str] = field(default_factory=list)


@dataclass
class Recipe:
    """The files, tests and bugs of one section."""

    page: str
    title: str
    needs: str = ""
    options: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)
    bugs: list[Bug] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}: {self.title}"

    @property
    def python_blocks(self) -> int:
        """How many blocks of Python it is made of."""
        files = sum(name != "pytest.ini" for name in self.files)
        return files + len(self.tests) + len(self.bugs)

    def missing(self) -> list[str]:
        """The modules its blocks import that are not installed."""
        files = [text for name, text in self.files.items() if name.endswith(".py")]
        texts = [*files, *self.tests, *(bug.text for bug in self.bugs)]
        own = {name.removesuffix(".py") for name in self.files}
        return sorted(set().union(*(missing_modules(text, own) for text in texts)))

    def run(self, pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
        """Run the tests with each bug, which they find, and once without, which passes.

        ``more`` are options of the run that passes, whose result is returned.
        """
        self.find_bugs(pytester)
        return self.run_without_bugs(pytester, *more)

    def find_bugs(self, pytester: pytest.Pytester) -> None:
        """Run the tests with each bug. They fail as the page shows."""
        for number, bug in enumerate(self.bugs):
            result = self._run(pytester, f"bug{number}", {**self.files, bug.name: bug.text})
            outcomes = result.parseoutcomes()
            assert outcomes.get("failed"), f"{self}: no test finds the bug of {bug.name}"
            assert not outcomes.keys() & {"errors", "error"}
            _assert_says(result.outlines, bug.says)

    def run_without_bugs(self, pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
        """Run the tests, which pass; ``more`` are options for pytest."""
        sound = self._run(pytester, "sound", self.files, *more)
        assert set(sound.parseoutcomes()) == {"passed"}, f"{self} does not pass"
        return sound

    def _run(
        self, pytester: pytest.Pytester, folder: str, files: dict[str, str], *more: str
    ) -> pytest.RunResult:
        """Run in a folder of its own: a file that changes within a second may look unchanged."""
        place = pytester.mkdir(folder)
        for name, text in files.items():
            (place / name).write_text(text, encoding="utf-8")
        for number, text in enumerate(self.tests, 1):
            name = f"test_{folder}_{number}.py"
            (place / name).write_text(text, encoding="utf-8")
        wanted = {option for option in self.options if not option.startswith("-")}
        quiet = [option for option in QUIET if option.removeprefix("-pno:") not in wanted]
        options = [*without_names(self.options), *more]
        arguments = [*quiet, "--strict-markers", *options, f"--rootdir={place}"]
        configures = any("settings.configure(" in text for text in (*files.values(), *self.tests))
        if self.page == "libraries" or configures:
            # What they keep in their modules does not live with a process that forgets modules, and
            # Django is configured once in a process.
            return pytester.runpytest_subprocess(*arguments, "-Wignore", place)
        with without_the_examples():
            return pytester.runpytest_inprocess(*arguments, "-Werror", place)


def recipes(page: Path) -> list[Recipe]:
    """The sections of a page that hold a test."""
    found = []
    for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.M)[1:]:
        needs = _NEEDS.search(section)
        recipe = Recipe(page.stem, section.partition("\n")[0], needs[1] if needs else "")
        for options, kind, text in _PART.findall(section):
            _add(recipe, options, kind, text)
        for bug in recipe.bugs:
            assert bug.says, f"{recipe}: what does the failing test say?"
            assert bug.name in recipe.files, f"{recipe}: {bug.name} without the bug is missing"
        if recipe.tests:
            found.append(recipe)
    return found


def _add(recipe: Recipe, options: str, kind: str, text: str) -> None:
    if options:
        recipe.options += options.split()
    elif kind == "ini":
        recipe.files["pytest.ini"] = text
    elif kind == "text" and recipe.bugs:
        recipe.bugs[-1].says += [line.strip() for line in text.splitlines() if line.strip()]
    elif kind == "python":
        named = _NAME.match(text)
        if named is None:
            recipe.tests.append(text)
        elif named[2] is None:
            recipe.files[named[1]] = text
        else:
            recipe.bugs.append(Bug(named[1], text))


def without_names(options: list[str]) -> list[str]:
    """Options without ``-p name``: entry points are loaded anyway unless they are switched off."""
    kept = []
    waiting = iter(options)
    for option in waiting:
        if option == "-p":
            next(waiting)
        else:
            kept.append(option)
    return kept


def _assert_says(output: list[str], says: list[str]) -> None:
    """Look for the lines in their order; where a long one is wrapped is not the page's affair."""
    text = _TEST_FILE.sub("test.py", " ".join(" ".join(output).split()))
    for wanted in says:
        _, found, text = text.partition(" ".join(wanted.split()))
        assert found, f"pytest does not say (any more, or at all): {wanted}"
