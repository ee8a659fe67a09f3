"""What the README promises besides its blocks of Python, which tests/docs runs."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_try_it_has_exactly_two_commands_of_one_line() -> None:
    section = README.split("## Try it", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```(\w*)\n(.*?)\n```", section, re.S)
    assert [language for language, _ in blocks] == ["sh", "sh"]
    assert all("\n" not in command for _, command in blocks)
    assert "pytest examples" in blocks[0][1]
    assert blocks[1][1].endswith("pytest -n 2")
