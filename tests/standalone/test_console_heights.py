"""Test that the first row of each list is near the top of the page, and that nothing is cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

from ..harness import check_each, wait_until
from .conftest import Server
from .test_console import CHROMIUM, at, browser, fake, go, page, sent, window
from .test_console_work import fill_all, kv

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
MOST_ABOVE = {"wide": 200, "phone": 280}
"""The most pixels above the first row of a list. On a phone, set filters take up to four lines."""
SCREENS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
WITHOUT_LIST = {"connect", "commands", "request"}
"""The pages and tabs that have no list."""
SEARCHES = {"search": ["?search=h"], "fake/broker/records": ["?topic=orders"],
            "fake/kv_server/keys": ["", "?search=many", "?view=tree"],
            "fake/queue/messages": ["", "?state=pending&url=9"]}  # fmt: skip
"""The filters of pages that need some, or have more above their rows with them."""
VALUES = [
    ["RPUSH", "list", "a"], ["SADD", "set", "a"], ["ZADD", "zset", "1", "a"],
    ["JSON.SET", "json", "$", "[1]"], ["ARSET", "array", "7", "a"],
    ["VECTOR.CREATE", "vector", "DIM", "2", "METRIC", "DOT"],
]  # fmt: skip
"""Commands that make a key of each type that `fill_all()` does not make."""
CANCELLED, DELIVERED = "/v2/messages?label=cancelled", "https://delivered.example/in"
FIRST_ROW = (
    ":is(tbody tr, .sentences li, .folders li, .trace-list:has(.trace-row), .violation, .entry)"
)


@pytest.fixture
def filled(server: Server) -> Iterator[Server]:
    """A server with rows in every list."""
    with (
        redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"]) as client,
        client.pubsub() as subscriber,
    ):
        subscriber.subscribe("news")
        subscriber.get_message(timeout=5)
        for words in VALUES:
            kv(server, *words)
        sent(server, "queue", "/v2/publish/http://127.0.0.1:9/cancelled", Upstash_Label="cancelled")
        server.ask("POST", "/fakes/queue/requests", {"method": "DELETE", "target": CANCELLED})
        server.ask("POST", "/fakes/queue/destinations", {"url": DELIVERED, "answer": 200})
        sent(server, "queue", f"/v2/publish/{DELIVERED}")
        fill_all(server)
        flow = {"Upstash_Flow_Control_Key": "a", "Upstash_Flow_Control_Value": "rate=1,period=1h"}
        sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", **flow)
        sent(server, "queue", "/v2/enqueue/ordered/http://127.0.0.1:9/x")
        callback = {"Upstash_Callback": "http://127.0.0.1:9/done"}
        sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Retries="0", **callback)
        group = {"endpoints": [{"url": "https://app.example/in"}]}
        request = {"target": "/v2/topics/team/endpoints", "body": group}
        server.ask("POST", "/fakes/queue/requests", request)
        for name in ("vector_index", "broker", "queue"):
            unused = {"kind": "respond", "args": [503], "route": "/never"}
            server.ask("POST", f"/fakes/{name}/faults", unused)
        server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
        isolated = server.ask("POST", "/clouds", {"services": {"kv": {}}})[1]["id"]
        yield server
        server.ask("DELETE", f"/clouds/{isolated}")


def lists(opened: Any) -> Iterator[str]:
    """Yield the address of each page and tab of the console that has a list, as its links name it, with
    its filters.
    """
    keys = "(all) => all.map((one) => one.dataset.key)"
    for place in opened.eval_on_selector_all("#nav a[aria-current], #nav a:not(.many)", keys):
        names = [place]
        if place.startswith("fake/"):
            at(opened, place, f"#nav a[data-key='{place}'][aria-current]")
            opened.locator(".subtabs a").first.wait_for()
            names = [f"{place}/{tab}" for tab in opened.eval_on_selector_all(".subtabs a", keys)]
        for name in names:
            if name.rpartition("/")[2] not in WITHOUT_LIST:
                yield from (name + search for search in SEARCHES.get(name, [""]))


def top_of_first_row(opened: Any, place: str) -> float:
    """Return the pixels from the top of a page to its first row.

    The page before is replaced by one without rows. Loading the console again would take six times as
    long.
    """
    at(opened, "nowhere", "#view h1:text-is('Not found')")
    at(opened, place, f"#view {FIRST_ROW}")
    row = opened.locator(f"#view {FIRST_ROW}:visible").first
    row.wait_for(timeout=10_000)
    opened.evaluate("scrollTo(0, 0)")
    top: float = row.evaluate("(row) => row.getBoundingClientRect().top + scrollY")
    return top


@pytest.mark.parametrize("screen", SCREENS)
def test_little_is_above_the_first_row_of_each_list(
    browser: Any, filled: Server, screen: str
) -> None:
    context = browser.new_context(bypass_csp=True, **SCREENS[screen])
    opened = go(context.new_page(), filled)
    tops = {}
    for place in list(lists(opened)):
        tops[place] = top_of_first_row(opened, place)
        if folder := os.environ.get("PYTEST_FAKECLOUD_SCREENSHOTS"):
            name = f"{screen}-{place.replace('/', '-')}.png"
            opened.screenshot(path=Path(folder) / name)
    context.close()
    print(tops)
    assert len(tops) > 25
    assert {place: top for place, top in tops.items() if top > MOST_ABOVE[screen]} == {}


# The lines of text of each cell whose words are all short.
BROKEN = """() => [...document.querySelectorAll("main td")].filter((cell) => cell.offsetHeight
    && /^\\S+$/.test(cell.textContent.trim()) && cell.textContent.trim().length < 17
    && !cell.querySelector("button, input")).filter((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell.querySelector("a") ?? cell);
        return new Set([...range.getClientRects()].map(({top}) => Math.round(top / 8))).size > 1;
    }).map((cell) => cell.textContent)"""


@pytest.mark.parametrize("screen", SCREENS)
def test_no_table_breaks_a_short_word(browser: Any, filled: Server, screen: str) -> None:
    context = browser.new_context(bypass_csp=True, **SCREENS[screen])
    opened = go(context.new_page(), filled)
    broken = {}
    for place in ("overview", "time", "violations", "snapshots", "fake/queue/destinations"):
        top_of_first_row(opened, place)
        broken[place] = opened.evaluate(BROKEN)
    context.close()
    assert set(map(tuple, broken.values())) == {()}, broken


def test_the_first_screen_has_all_parts_of_the_overview(browser: Any, filled: Server) -> None:
    context = browser.new_context(bypass_csp=True, **SCREENS["wide"])
    opened = go(context.new_page(), filled)
    top_of_first_row(opened, "overview")
    bottoms = opened.eval_on_selector_all(
        ".overview section",
        "(all) => all.map((one) => one.querySelector('tbody tr').getBoundingClientRect().bottom)",
    )
    context.close()
    assert len(bottoms) == 4
    assert max(bottoms) < SCREENS["wide"]["viewport"]["height"]


def test_what_stays_above_a_list_is_below_the_header(page: Any, filled: Server) -> None:
    def check(width: int) -> None:
        page.set_viewport_size({"width": width, "height": 700})
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        bars = ["header", "#nav", ".trace-top"] if width < 700 else ["header", ".trace-top"]
        boxes = [page.locator(bar).bounding_box() for bar in bars]
        assert boxes[0]["height"] < 50
        for above, below in pairwise(boxes):
            assert abs(above["y"] + above["height"] - below["y"]) <= 1, (above, below)

    at(page, "activity", ".trace-row")
    check_each(check, [(width,) for width in (360, 701, 860, 1081, 1201, 1280)])


CUT = """() => {
    const context = document.createElement("canvas").getContext("2d"), edge = innerWidth;
    return [...document.querySelectorAll("#view :is(button, input, select, summary)")].filter((one) => {
        const {left, right, width} = one.getBoundingClientRect(), style = getComputedStyle(one);
        if (!width || one.closest(".over-time, .list > .tools")) return false;
        const place = one.closest(".wide-table")?.getBoundingClientRect().right ?? edge;
        context.font = style.font;
        const isCut = one.matches("select") &&
            context.measureText(one.selectedOptions[0].text).width > width - 28;
        return (left < 0 && left > -999) || right > place + 1 || isCut;
    }).map((one) => one.outerHTML.slice(0, 90));
}"""
"""Return the controls of the page that reach over an edge, or do not show their text."""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_control_of_a_page_is_cut(page: Any, server: Server, width: int) -> None:
    kv(server, "SET", "a", "1")
    server.ask("POST", "/snapshots", {"id": "one"})
    url = "/v2/publish/http://127.0.0.1:9/a/long/path/of/an/application/that/takes/mails"
    for delay in ("1h", "6d"):
        sent(server, "queue", url, {"id": 42}, Upstash_Delay=delay)
    page.set_viewport_size({"width": width, "height": 800})
    for place, selector in {
        "overview": "[aria-label='next events'] button", "activity": ".trace-row",
        "time": "[aria-label='due events'] button", "search?search=long": ".sentences",
        "snapshots": "td summary", "violations": "h1", "connect": "pre",
        "fake/queue/messages": "table.rows", "fake/kv_server/faults": "form",
    }.items():  # fmt: skip
        at(page, place, selector)
        page.eval_on_selector_all(
            "#view td details", "(all) => all.forEach((details) => details.open = true)"
        )
        # The page of before may still be drawn, with the controls of the next one in it.
        with suppress(AssertionError):
            wait_until(lambda: page.evaluate(CUT) == [], 5)
        assert (place, page.evaluate(CUT)) == (place, [])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
