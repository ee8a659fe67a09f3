"""Every block of docs/vector.md runs, and the page names every setting there is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from pytest_fakecloud.vector.embedding import MODELS
from pytest_fakecloud.vector.handle import VectorIndex
from pytest_fakecloud.vector.settings import VectorLimits

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "vector.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", PAGE, re.M | re.S))


@pytest.mark.parametrize("title", BLOCKS)
def test_block(title: str, pytester: pytest.Pytester) -> None:
    pytest.importorskip("upstash_vector")
    pytester.makepyfile(BLOCKS[title])
    arguments = [f"-pno:{name}" for name in ("randomly", "cacheprovider", "asyncio", "xdist")]
    outcomes = pytester.runpytest_inprocess(*arguments, "-Werror").parseoutcomes()
    assert set(outcomes) == {"passed"}


def test_no_block_is_left_out() -> None:
    assert len(BLOCKS) == PAGE.count("```python") > 5


def test_every_setting_limit_and_model_is_named() -> None:
    settings = inspect.signature(VectorIndex.__init__).parameters.values()
    names = {setting.name for setting in settings if setting.kind is setting.KEYWORD_ONLY}
    names |= {field.name for field in fields(VectorLimits)}
    missing = [
        name for name in names - {"name"} if f"`{name}`" not in PAGE and f"`{name}=" not in PAGE
    ]
    missing += [name for name in MODELS if f'`"{name}"`' not in PAGE]
    assert missing == []
