"""Other tools of a suite: every recipe of docs/cookbook/tools.md is run as it stands there."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..harness import QUIET, Run, apart

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cookbook" / "tools.md"
MODULES = {
    "pytest-xdist": "xdist", "pytest-randomly": "pytest_randomly", "pytest-asyncio": "pytest_asyncio",
    "anyio": "trio", "pytest-django": "pytest_django", "pytest-timeout": "pytest_timeout",
    "pytest-socket": "pytest_socket", "pytest-httpserver": "pytest_httpserver",
    "responses": "responses", "respx": "respx", "pytest-httpx": "pytest_httpx", "VCR.py": "vcr",
    "requests-mock": "requests_mock", "freezegun": "freezegun", "time-machine": "time_machine",
    "unittest.TestCase": "unittest",
}  # fmt: skip
"""Headings of the page, and the module each recipe is about."""
IN_A_PROCESS_OF_ITS_OWN = {"pytest-xdist", "pytest-django", "pytest-socket", "pytest-timeout"}


@dataclass
class Recipe:
    """One test file of the page with all it needs."""

    tool: str
    number: int
    options: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    test: str = ""

    def __str__(self) -> str:
        return f"{self.tool}-{self.number}"


def recipes() -> list[Recipe]:
    found = []
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        tool = part.partition("\n")[0]
        recipe = Recipe(tool, 1)
        for match in re.finditer(
            r"^Options: `([^`\n]*)`$|^```(\w+)\n(.*?)^```$", part, re.M | re.S
        ):
            options, kind, text = match.groups()
            if options is not None:
                recipe.options = options.split()
            elif kind == "ini":
                recipe.files["pytest.ini"] = text
            elif text.startswith("# "):
                recipe.files[text[2:].partition("\n")[0]] = text
            else:
                recipe.test = text
                found.append(recipe)
                recipe = Recipe(tool, recipe.number + 1)
    return found


def test_every_tool_has_a_recipe() -> None:
    assert {recipe.tool for recipe in recipes()} == set(MODULES)


@pytest.mark.parametrize("recipe", recipes(), ids=str)
def test_recipe(recipe: Recipe, pytester: pytest.Pytester) -> None:
    if importlib.util.find_spec(MODULES[recipe.tool]) is None:
        pytest.skip(f"{recipe.tool} is not installed")
    for name, text in recipe.files.items():
        (pytester.path / name).write_text(text, encoding="utf-8")
    pytester.makepyfile(test_recipe=recipe.test)
    pytester.syspathinsert()
    wanted = {option for option in recipe.options if not option.startswith("-")}
    quiet = [option for option in QUIET if option.removeprefix("-pno:") not in wanted]
    if recipe.tool == "pytest-xdist":
        quiet.remove("-pno:xdist")
    if recipe.tool == "respx":
        quiet.remove("-pno:respx")
    if recipe.tool == "pytest-django":
        quiet.remove("-pno:django")
    arguments = [*quiet, "-Werror", "--strict-markers", *_without_names(recipe.options)]
    if recipe.tool in IN_A_PROCESS_OF_ITS_OWN:
        result = pytester.runpytest_subprocess(*arguments)
    else:
        result = pytester.runpytest_inprocess(*arguments)
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed"}


def _without_names(options: list[str]) -> list[str]:
    """Options without ``-p name``: entry points are loaded anyway unless they are switched off."""
    kept = []
    waiting = iter(options)
    for option in waiting:
        if option == "-p":
            next(waiting)
        else:
            kept.append(option)
    return kept


def test_a_session_scope_under_xdist_has_a_cloud_for_each_worker(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("xdist")
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    pytester.makepyfile(
        textwrap.dedent(
            """
            import pytest

            seen = set()

            @pytest.mark.parametrize("turn", range(8))
            def test_it(kv_server, turn):
                seen.add(kv_server.url)
                assert len(seen) == 1
                assert kv_server.client().incr("n") == 1
            """
        )
    )
    result = apart(pytester, "-n2", plugins=("xdist",))
    result.assert_outcomes(passed=8)


def test_the_order_of_randomly_changes_no_ids(run: Run) -> None:
    pytest.importorskip("pytest_randomly")
    source = """
        import pytest

        @pytest.mark.parametrize("turn", range(5))
        def test_it(queue, turn, request):
            print(f"<{request.node.name} {queue.publish('https://app.test/hook').id}>")
    """
    quiet = [option for option in QUIET if option != "-pno:randomly"]
    seen = []
    for seed in (1, 2, 3):
        result = run(source, *quiet, "-s", f"--randomly-seed={seed}", quiet=False)
        result.assert_outcomes(passed=5)
        seen.append(re.findall(r"<(\S+ msg_\w+)>", result.stdout.str()))
    assert len({tuple(lines) for lines in seen}) > 1
    assert len({tuple(sorted(lines)) for lines in seen}) == 1
