"""The parts of a page, case by case: its head, arrows, classes, the list of pages, file names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.timeparse import instant_us
from pytest_fakecloud.reporting import page as module
from pytest_fakecloud.reporting.applications import Served
from pytest_fakecloud.reporting.facts import Fact
from pytest_fakecloud.reporting.page import file_name, page, write, write_index
from pytest_fakecloud.reporting.rows import Row

NOON = "2026-03-01T12:00:00Z"
START = instant_us(NOON)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now=NOON, delivery="driven") as opened:
        yield opened


def row(number: int, source: str = "client", target: str = "kv", **more: Any) -> Row:
    given = {"began": number, **more}
    return replace(Row(number, START, source, target, f"GET k{number}", "1", True), **given)


Shown = Callable[[Sequence[Row]], str]


@pytest.fixture
def shown(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Shown:
    def show(every: Sequence[Row]) -> str:
        monkeypatch.setattr(module, "rows", lambda *_, **__: list(every))
        return page(cloud, "test_a")

    return show


HEADS: dict[str, tuple[list[Row], str]] = {
    "none": ([row(1)], "</p>\n\n\n\n</header>"),
    "one": (
        [row(1), row(2, ok=False, answer="500")],
        '<div class="short"><a href="#error-1">the error</a>: client → kv GET k2 500</div>',
    ),
    "two": (
        [row(1, ok=False, answer="", remarks=("a", "<b>"), note="c"), row(2, ok=False)],
        '<div class="short"><a href="#error-1">the first of 2 errors</a>: client → kv GET k1'
        '<span class="below">\na\n&lt;b&gt;\nc</span></div>',
    ),
}


@pytest.mark.parametrize(("every", "expected"), HEADS.values(), ids=HEADS)
def test_the_head_has_the_first_error(shown: Shown, every: list[Row], expected: str) -> None:
    assert expected in shown(every)


def test_the_head_has_facts_and_problems(
    cloud: Cloud, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_facts", lambda *_: [Fact("one <it>"), Fact("two")])
    cloud._recorded.report("bug", "it broke\nline 1")
    text = shown([])
    assert (
        "<details><summary>[bug] it broke</summary><pre>line 1</pre></details>\n"
        '<div class="worth"><b>worth a look</b><ul><li>one &lt;it&gt;</li><li>two</li></ul></div>'
    ) in text


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("", ""),
        ("gone", "<details open><summary>the failure</summary><pre>gone</pre></details>"),
        (
            "x\nE   one\nE two\nEnd",
            '<div class="short">the failure<pre class="message">one\ntwo</pre></div>\n'
            "<details><summary>where it failed</summary><pre>x\nE   one\nE two\nEnd</pre></details>",
        ),
    ],
    ids=["none", "without words", "with its words"],
)
def test_the_head_has_the_failure(cloud: Cloud, failure: str, expected: str) -> None:
    text = page(cloud, "test_a", failure)
    head = text[text.index("</p>") : text.index("</header>")]
    assert head.removeprefix("</p>").strip() == expected


def entries(text: str) -> list[tuple[str, ...]]:
    """Of each row its classes, both ends, and which way its arrow goes."""
    found = re.findall(
        r'<details(?: id="[^"]*")? class="([^"]*)".*?<span class="ends">([^<]*)</span>(.*?)</summary>',
        text,
        re.DOTALL,
    )
    return [
        (classes, ends, "".join(re.findall(r'class="arrow (\w+)"', rest)))
        for classes, ends, rest in found
    ]


def test_rows_have_the_classes_of_their_lanes(shown: Shown) -> None:
    found = entries(
        shown(
            [
                row(1, "client", "a"),
                row(2, "client", "b", ok=False),
                row(3, "client", "c"),
                row(4, "a", "a"),
                row(5, "b", "b"),
                row(6, "c", "c", ok=False),
                row(7, "c", "a"),
                row(8, "a", "c"),
            ]
        )
    )
    assert found == [
        ("entry", "client → a", "right"),
        ("entry failed", "client → b", "right"),
        ("entry", "client → c", "right"),
        ("entry out", "a", ""),
        ("entry out late", "b", ""),
        ("entry failed out late", "c", ""),
        ("entry out", "c → a", "left"),
        ("entry out", "a → c", "right"),
    ]


def test_calls_begin_where_what_stands_above_them_ended(shown: Shown) -> None:
    depths = [("queue", "app", 0), ("client", "kv", 1), ("client", "b", 2), ("client", "c", 1),
              ("kv", "kv", 1), ("client", "d", 0), ("client", "e", 1)]  # fmt: skip
    every = [row(n, one, other, depth=depth) for n, (one, other, depth) in enumerate(depths, 1)]
    assert [ends for _, ends, _ in entries(shown(every))] == [
        "queue → app", "app → kv", "kv → b", "app → c", "kv", "client → d", "d → e",
    ]  # fmt: skip


def test_a_row_has_its_words(shown: Shown) -> None:
    text = shown(
        [
            row(1, at_us=START + 999_000, below=("a",), remarks=("b", "c"), detail="<d>"),
            row(2, answer=""),
        ]
    )
    assert '<div class="time" style="grid-row:3">12:00:00.999</div>' in text
    assert '<span class="what">GET k1 <span class="detail">&lt;d&gt;</span></span>' in text
    assert '<span class="below">a\nb\nc</span>' in text
    assert (
        '<summary><span class="ends">client → kv</span><span class="what">GET k2</span>'
        '<span class="arrow right"></span></summary>'
    ) in text


def test_pages_are_listed(cloud: Cloud, tmp_path: Path) -> None:
    assert write_index(tmp_path) is None
    one = Served(1, START, "GET /a", "Flask", None, 0, ended=2, status=500)
    path = write(cloud, tmp_path, "test_a.py::test_<é>", "E   no <way>\nE   at all", [one])
    assert "GET /a (Flask)" in path.read_text(encoding="utf-8")
    write(cloud, tmp_path, "test_b.py::test_it")
    (tmp_path / "c & d.html").write_text("no page of ours", encoding="utf-8")
    for _ in range(2):
        index = write_index(tmp_path)
    assert index == tmp_path / "index.html"
    text = index.read_text(encoding="utf-8")
    assert text.endswith(
        "<body><h1>3 timelines</h1><ul>"
        '<li><a href="c%20%26%20d.html">c &amp; d</a></li>'
        f'<li><a href="{path.name}">test_a.py::test_&lt;é&gt;</a>'
        '<div class="below">no &lt;way&gt;</div></li>'
        '<li><a href="test_b.py-test_it.html">test_b.py::test_it</a></li>'
        "</ul></body></html>\n"
    )


def digested(name: str, cleaned: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{cleaned}-{digest}"


NAMES = {
    "plain": ("a.py::t", "a.py-t"),
    "of one character": ("a.py::X[X]", "a.py-X-X"),
    "parameters with a dot at their ends": ("t[.a.]", digested("t[.a.]", "t-a")),
    "nothing but dots": ("t[..]", digested("t[..]", "t")),
    "a space": ("t[a b]", digested("t[a b]", "t-a-b")),
    "a bracket in the parameters": ("t[a[b]]", digested("t[a[b]]", "t-a-b")),
    "dots before": ("../t", "t"),
    "150 characters": ("t" * 150, "t" * 150),
    "151 characters": ("t" * 151, digested("t" * 151, "t" * 130)),
    "half a character": ("t[\ud800]", digested("t[\ud800]", "t")),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.values(), ids=NAMES)
def test_a_file_name(name: str, expected: str) -> None:
    assert file_name(name) == expected
