"""Findings in tests that pass, each compared with its test by a person.

A file has a section for each test or run: ``== TITLE``, then one finding per line. When a line is
new, check that the finding is true of its test before you write it.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..notations import golden

ALWAYS = ("--fakecloud-journal=always", "-rP")
"""Options that make pytest show the findings of tests that pass, on a terminal ``COLUMNS`` wide."""
COLUMNS = "140"
_ENDS = re.compile(r"(?:\[|[-=_]{3,}|$)")


def reported(text: str) -> set[str]:
    """Return the findings in all sections, without the parts that differ between runs."""
    facts, fact, inside = set(), "", False
    for line in [*text.splitlines(), ""]:
        begins = line.startswith(("Findings:", "- ")) and (inside or line[0] == "F")
        if fact and not line.startswith("  "):
            facts.add(fact)
            fact = ""
        if begins:
            inside = True
            fact = line.removeprefix("Findings:").removeprefix("- ").strip()
        elif inside and line.startswith("  ") and fact:
            fact += f" {line.strip()}"
        else:
            inside = inside and not _ENDS.match(line)
    plain = (re.sub(r"^\[\d+\] ", "", reported_fact) for reported_fact in facts if reported_fact)
    return {
        re.sub(r"msg_\w+|scd_\w+|:\d{4,5}\b|(?<=session:)[\w-]{22}", "#", statement)
        for statement in plain
    }


def judge(file: Path, title: str, text: str) -> None:
    """Fail if the findings in pytest's output differ from those in the file under this title."""
    golden(file, sorted(reported(text)), title)
