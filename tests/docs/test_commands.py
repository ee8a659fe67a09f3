"""Check that the command line accepts every call that the documentation shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fakecloud.cli import make_parser

from .blocks import DOCS, ROOT


def _calls() -> list[tuple[str, list[str]]]:
    found = []
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for block in re.findall(
            r"^```(?:sh|console)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S
        ):
            for line in block.replace("\\\n", " ").splitlines():
                found += [(_name(page), words) for words in _of_line(line)]
    return found


def _of_line(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each call in a shell line."""
    for part in re.split(r"&&|[|;>&]", line.removeprefix("$ ")):
        words = shlex.split(part, comments=True)
        if "pytest-fakecloud" in words and "install" not in words:
            yield words[words.index("pytest-fakecloud") + 1 :]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(("page", "words"), _calls())
def test_the_command_takes_what_the_page_shows(page: str, words: list[str]) -> None:
    plain = [re.sub(r"\$\w+", "1234", word) for word in words]
    given = make_parser().parse_args(plain)  # An invalid option ends the process.
    assert given.command == words[0], page


def test_there_are_calls() -> None:
    assert {words[0] for _, words in _calls()} >= {"serve", "run"}
