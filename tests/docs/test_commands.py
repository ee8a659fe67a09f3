"""Check that the command line accepts every call that the documentation shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from pytest_fakecloud.cli import make_parser

from .blocks import DOCS, ROOT


def _calls() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of the page and the arguments of each call in its blocks of shell lines."""
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        text = page.read_text("utf-8")
        for block in re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                for part in re.split(r"&&|[|;>&]", line.removeprefix("$ ")):
                    words = shlex.split(part, comments=True)
                    if "pytest-fakecloud" in words and "install" not in words:
                        arguments = words[words.index("pytest-fakecloud") + 1 :]
                        yield page.relative_to(ROOT).as_posix(), arguments


@pytest.mark.parametrize(("page", "words"), list(_calls()))
def test_the_command_takes_what_the_page_shows(page: str, words: list[str]) -> None:
    plain = [re.sub(r"\$\w+", "1234", word) for word in words]
    options = make_parser().parse_args(plain)  # An invalid option ends the process.
    assert options.command == words[0], page


def test_there_are_calls() -> None:
    assert {words[0] for _, words in _calls()} >= {"serve", "run"}
