"""Check what coding assistants read: that it is short, and complete where it says so."""

from __future__ import annotations

import re

import pytest

from .blocks import DOCS, ROOT

if not DOCS.exists():
    pytest.skip("an installed package has no docs folder", allow_module_level=True)

from docs.generate.assistants import SKILL, excerpt
from docs.generate.options import documented_fixtures
from docs.generate.pages import PAGES

RAW = "https://raw.githubusercontent.com/pytest-fakecloud/pytest-fakecloud/main/"


def test_the_index_has_the_parts_of_its_form_and_every_page_of_the_sidebar() -> None:
    lines = PAGES["llms.txt"]().splitlines()
    assert lines[0] == "# pytest-fakecloud"
    assert lines[2].startswith("> ")
    entries = [line for line in lines if line.startswith("- ")]
    assert [
        line for line in entries if not re.match(r"- \[.+\]\(https://\S+\): \S.+[.?!]$", line)
    ] == []
    linked = set(re.findall(rf"\({re.escape(RAW)}(\S+)\)", "\n".join(lines)))
    assert [place for place in linked if not (ROOT / place).is_file()] == []
    for folder in ("guides", "cookbook", "migrating"):
        pages = {page.relative_to(ROOT).as_posix() for page in (DOCS / folder).glob("*.md")}
        assert pages <= linked


def test_the_skill_is_short_and_has_a_head() -> None:
    text = PAGES[SKILL]()
    assert text.startswith(f"---\nname: {(DOCS / SKILL).parent.name}\ndescription: ")
    assert len(text.splitlines()) <= 230
    assert "{{" not in text
    used = [name for name, *_ in documented_fixtures() if not name.startswith("fakecloud_")]
    assert [name for name in used if f"`{name}`" not in text and name != "destination"] == []


def test_an_excerpt_has_what_the_test_uses_and_no_other_test() -> None:
    page = """\
```python
import json
import time
from shop import Cart

LIMIT = 3


def helper():
    return time.time() + LIMIT


def test_first():
    assert json


@marked(Cart)
def test_second(kv_server):
    assert helper()
```
"""
    imports, test = excerpt(page, "test_second")
    assert sorted(imports) == ["from shop import Cart", "import time"]
    assert re.findall(r"^(?:def )?(\w+)", test, re.M) == ["LIMIT", "helper", "test_second"]
    assert "@marked(Cart)\ndef test_second(kv_server):" in test
