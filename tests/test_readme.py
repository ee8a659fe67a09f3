"""Every block of the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_block(block: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(block)
    result = pytester.runpytest_inprocess(
        "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:asyncio"
    )
    outcomes = result.parseoutcomes()
    assert not outcomes.keys() & {"failed", "error", "errors"}
    if "def test_" in block:
        assert outcomes["passed"] == block.count("def test_")
    else:
        exec(compile(block, "README.md", "exec"), {})


def test_try_it_has_exactly_two_commands_of_one_line() -> None:
    section = README.split("## Try it", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```(\w*)\n(.*?)\n```", section, re.S)
    assert [language for language, _ in blocks] == ["sh", "sh"]
    assert all("\n" not in command for _, command in blocks)
    assert "pytest examples" in blocks[0][1]
    assert blocks[1][1].endswith("pytest -n 2")
