"""No false fact in a suite that passes: the examples and recipes, with each fact judged by hand.

A new line here is a fact that a change of the examples or recipes, or of the facts, brought. Read
whether it is true of its test, and then write it down: ``FAKECLOUD_WRITE_FACTS=1``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ..docs.blocks import DOCS
from ..docs.recipes import recipes

ROOT = Path(__file__).parents[2]
JUDGED = Path(__file__).parent / "judged_facts.txt"
_ENDS = re.compile(r"(?:\[|[-=_]{3,}|$)")


def reported(text: str) -> set[str]:
    """The facts of all sections, without what differs from run to run."""
    found, fact, inside = set(), "", False
    for line in [*text.splitlines(), ""]:
        begins = line.startswith(("worth a look", "- ")) and (inside or line[0] == "w")
        if fact and not line.startswith("  "):
            found.add(fact)
            fact = ""
        if begins:
            inside = True
            fact = line.removeprefix("worth a look:").removeprefix("- ").strip()
        elif inside and line.startswith("  ") and fact:
            fact += f" {line.strip()}"
        else:
            inside = inside and not _ENDS.match(line)
    plain = (re.sub(r"^\[\d+\] ", "", one) for one in found if one)
    return {re.sub(r"msg_\w+|scd_\w+|:\d{4,5}\b|(?<=session:)[\w-]{22}", "#", one) for one in plain}


def run(*paths: str, cwd: Path) -> str:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:randomly", "-p",
            "no:cacheprovider", "--fakecloud-journal=always", *paths,
        ],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "140"},
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def of_recipes(pytester: pytest.Pytester) -> set[str]:
    """The facts of all recipes that run in this process, which pass."""
    found: set[str] = set()
    for page in sorted((DOCS / "cookbook").glob("*.md")):
        for number, recipe in enumerate(recipes(page) if page.stem != "tools" else ()):
            texts = "".join([*recipe.files.values(), *recipe.tests])
            # Django is configured once in a process, and this one has others' tests of it.
            if recipe.page == "libraries" or recipe.missing() or "settings.configure" in texts:
                continue
            options = [*recipe.options, "--fakecloud-journal=always", "-rP"]
            always = replace(recipe, options=options)
            result = always._run(pytester, f"{page.stem}{number}", recipe.files)
            assert set(result.parseoutcomes()) == {"passed"}, str(recipe)
            found |= reported("\n".join(result.outlines))
    return found


@pytest.mark.slow
def test_every_fact_of_examples_and_recipes_was_judged(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fastapi.testclient", "flask", "redis", "upstash_workflow"):
        pytest.importorskip(name)
    monkeypatch.setenv("COLUMNS", "140")
    found = reported(run("examples", cwd=ROOT)) | of_recipes(pytester)
    text = "".join(f"{one}\n" for one in sorted(found))
    if os.environ.get("FAKECLOUD_WRITE_FACTS"):
        JUDGED.write_text(text, encoding="utf-8")
    assert text == JUDGED.read_text(encoding="utf-8")


def test_facts_are_read_out_of_a_section() -> None:
    text = (
        "12:00:00.000 --> kv GET a <-- 1\n\nunfinished: msg_1 due\nworth a look:\n"
        "- [1] kv: this SET\n  took msg_2\n- queue: nobody called it\n[bug] no\n- not one\n"
        "=== x ===\nworth a look: [2] kv: only\n  one\n"
    )
    assert reported(text) == {"kv: this SET took #", "queue: nobody called it", "kv: only one"}
