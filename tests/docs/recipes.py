"""Run the recipes of the documentation exactly as their pages show them.

A recipe is a section (``##``) with at least one test. The first line of a block says what the block
is:

- ``# name.py``: a file that the tests import. All sections share the files before the first section;
- ``# name.py, with the bug``: the same file with a bug. The tests must fail with it. The ``text`` block
  below shows lines of pytest's output in order, in which ``test.py`` is the test file. In a ``diff``
  block, the lines of the file that change, and enough of their neighbours to find them;
- ``# name.py, corrected``: in a ``diff`` block, the changes that remove the bug of the file above;
- any other line: a test file. An ``ini`` block is ``pytest.ini``.

``Options: `…` `` before a block contains pytest options; ``-p name`` loads that plugin. A recipe
with ``Needs: …`` requires something that tests cannot provide, so it is parsed but not run.
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
_CHANGED = re.compile(r"# (\w+\.\w+), (with the bug|corrected)\n")
_TEST_FILE = re.compile(r"\btest_bug\d+_\d+\.py")


@dataclass
class Bug:
    """A file with a bug, and the expected output of pytest."""

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
        """The number of Python and diff blocks in the recipe."""
        files = sum(name != "pytest.ini" for name in self.files)
        return files + len(self.tests) + len(self.bugs)

    def missing(self) -> list[str]:
        """The modules that the recipe imports and that are not installed."""
        files = [text for name, text in self.files.items() if name.endswith(".py")]
        texts = [*files, *self.tests, *(bug.text for bug in self.bugs)]
        own = {name.removesuffix(".py") for name in self.files}
        return sorted(set().union(*(missing_modules(text, own) for text in texts)))

    def run(self, pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
        """Run the tests with each bug, which must fail, and once without, which must pass.

        ``more`` are options of the passing run, whose result is returned.
        """
        self.find_bugs(pytester)
        return self.run_without_bugs(pytester, *more)

    def find_bugs(self, pytester: pytest.Pytester) -> None:
        """Run the tests with each bug; they must fail as the page shows."""
        for number, bug in enumerate(self.bugs):
            result = self._run(pytester, f"bug{number}", {**self.files, bug.name: bug.text})
            outcomes = result.parseoutcomes()
            assert outcomes.get("failed"), f"{self}: no test finds the bug of {bug.name}"
            assert not outcomes.keys() & {"errors", "error"}
            _assert_says(result.outlines, bug.says)

    def run_without_bugs(self, pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
        """Run the tests, which must pass; ``more`` are options for pytest."""
        sound = self._run(pytester, "sound", self.files, *more)
        assert set(sound.parseoutcomes()) == {"passed"}, f"{self} does not pass"
        return sound

    def _run(
        self, pytester: pytest.Pytester, folder: str, files: dict[str, str], *more: str
    ) -> pytest.RunResult:
        """Run the tests in a new folder, because a file that changes twice within a second may look
        unchanged.
        """
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
            # Libraries whose module state does not survive when modules are imported again; Django
            # can be configured only once per process.
            return pytester.runpytest_subprocess(*arguments, "-Wignore", place)
        with without_the_examples():
            return pytester.runpytest_inprocess(*arguments, "-Werror", place)


def recipes(page: Path) -> list[Recipe]:
    """Return the sections of a page that contain a test."""
    all_recipes = []
    shared, *sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.M)
    files = {named[1]: text for _, _, text in _PART.findall(shared) if (named := _NAME.match(text))}
    for section in sections:
        needs = _NEEDS.search(section)
        recipe = Recipe(page.stem, section.partition("\n")[0], needs[1] if needs else "")
        recipe.files |= files
        for options, kind, text in _PART.findall(section):
            _add(recipe, options, kind, text)
        for bug in recipe.bugs:
            assert bug.says, f"{recipe}: what does the failing test say?"
            assert bug.name in recipe.files, f"{recipe}: {bug.name} without the bug is missing"
        if recipe.tests:
            all_recipes.append(recipe)
    return all_recipes


def _add(recipe: Recipe, options: str, kind: str, text: str) -> None:
    if options:
        recipe.options += options.split()
    elif kind == "ini":
        recipe.files["pytest.ini"] = text
    elif kind == "text" and recipe.bugs:
        recipe.bugs[-1].says += [line.strip() for line in text.splitlines() if line.strip()]
    elif kind == "diff":
        name, version = _CHANGED.match(text).groups()  # type: ignore[union-attr]
        if version == "with the bug":
            recipe.bugs.append(Bug(name, _changed(recipe.files[name], text)))
        else:
            [bug] = [bug for bug in recipe.bugs if bug.name == name]
            recipe.files[name] = _changed(bug.text, text)
    elif kind == "python":
        named = _NAME.match(text)
        if named is None:
            recipe.tests.append(text)
        elif named[2] is None:
            recipe.files[named[1]] = text
        else:
            recipe.bugs.append(Bug(named[1], text))


def _changed(text: str, diff: str) -> str:
    """Apply a diff to a file. ``@@`` separates its parts, which replace text that occurs once."""
    for part in re.split(r"^@@\n", diff.partition("\n")[2], flags=re.M):
        lines = part.splitlines(keepends=True)
        assert {line[0] for line in lines} <= {" ", "+", "-", "\n"}, part
        old, new = ("".join(line[1:] or line for line in lines if line[0] != mark) for mark in "+-")
        assert old != new, f"this changes nothing: {part}"
        assert text.count(old) == 1, f"found {text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


def without_names(options: list[str]) -> list[str]:
    """Return the options without ``-p name``, because entry points are loaded unless they are
    disabled.
    """
    remaining = []
    waiting = iter(options)
    for option in waiting:
        if option == "-p":
            next(waiting)
        else:
            remaining.append(option)
    return remaining


def _assert_says(output: list[str], says: list[str]) -> None:
    """Check that the output contains the lines in order; ignore where long lines are wrapped.

    An ellipsis in a line stands for any text.
    """
    text = _TEST_FILE.sub("test.py", " ".join(" ".join(output).split()))
    for wanted in (part for line in says for part in line.split("…")):
        _, match, text = text.partition(" ".join(wanted.split()))
        assert match, f"pytest does not say (any more, or at all): {wanted}"
