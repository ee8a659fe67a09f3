"""Facts of tests that pass, each read by somebody who found it true of its test, and written down.

A file of them has a section for each test or run, ``== TITLE`` and a fact a line. A new line is a fact
that a change of the test, or of the facts, brought. Read whether it is true of its test, and then write
it down: ``FAKECLOUD_WRITE_FACTS=1``, without ``-n``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

ALWAYS = ("--fakecloud-journal=always", "-rP")
"""What pytest shows the facts of tests that pass by, and COLUMNS with it."""
COLUMNS = "140"
_ENDS = re.compile(r"(?:\[|[-=_]{3,}|$)")


def reported(text: str) -> set[str]:
    """The facts of all sections, without what differs from run to run."""
    found, fact, inside = set(), "", False
    for line in [*text.splitlines(), ""]:
        begins = line.startswith(("Findings:", "- ")) and (inside or line[0] == "F")
        if fact and not line.startswith("  "):
            found.add(fact)
            fact = ""
        if begins:
            inside = True
            fact = line.removeprefix("Findings:").removeprefix("- ").strip()
        elif inside and line.startswith("  ") and fact:
            fact += f" {line.strip()}"
        else:
            inside = inside and not _ENDS.match(line)
    plain = (re.sub(r"^\[\d+\] ", "", one) for one in found if one)
    return {re.sub(r"msg_\w+|scd_\w+|:\d{4,5}\b|(?<=session:)[\w-]{22}", "#", one) for one in plain}


def read(file: Path) -> dict[str, list[str]]:
    """The facts of a file by their titles."""
    found: dict[str, list[str]] = {}
    for section in file.read_text(encoding="utf-8").split("== ")[1:]:
        title, *facts = section.splitlines()
        found[title] = facts
    return found


def judge(file: Path, title: str, text: str) -> None:
    """Fail where the facts in pytest's output are other ones than the file has under that title."""
    found, judged = sorted(reported(text)), read(file)
    if os.environ.get("FAKECLOUD_WRITE_FACTS"):
        judged[title] = found
        lines = [
            line
            for one, facts in sorted(judged.items())
            if facts
            for line in (f"== {one}\n", *(f"{fact}\n" for fact in facts))
        ]
        file.write_text("".join(lines), encoding="utf-8")
    assert found == judged.get(title, [])
