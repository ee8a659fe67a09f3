"""Every block of docs/queue.md runs, and the page names every setting and limit there is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from pytest_fakecloud.queue.handle import Queue
from pytest_fakecloud.queue.settings import PlanLimits

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "queue.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", PAGE, re.M | re.S))


@pytest.mark.parametrize("title", BLOCKS)
def test_block(title: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BLOCKS[title])
    arguments = [f"-pno:{name}" for name in ("randomly", "cacheprovider", "asyncio", "xdist")]
    outcomes = pytester.runpytest_inprocess(*arguments, "-Werror").parseoutcomes()
    assert set(outcomes) == {"passed"}


def test_no_block_is_left_out() -> None:
    assert len(BLOCKS) == PAGE.count("```python") >= 5


def test_every_setting_and_limit_is_named() -> None:
    settings = inspect.signature(Queue.__init__).parameters.values()
    names = {setting.name for setting in settings if setting.kind is setting.KEYWORD_ONLY}
    names |= {field.name for field in fields(PlanLimits)}
    assert [name for name in sorted(names - {"name"}) if f"`{name}`" not in PAGE] == []
