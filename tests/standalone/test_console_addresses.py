"""Test that addresses of the console keep what is shown, and that keys go on from there."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Server
from .test_console import CHROMIUM, SEARCH, at, browser, holds, page, sent, window
from .test_console_work import kv, press, typed

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
ACTIVE = "document.activeElement"


def test_the_address_of_a_row_that_is_not_kept_shows_no_other_row(
    page: Any, server: Server
) -> None:
    kv(server, "SET", "a", "1")
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text="SET a 1").click()
    page.locator(".trace-pane h3", has_text="SET a 1").wait_for()
    at(page, "activity/99999", "text=There is no row #99999")
    page.locator(".trace-pane").wait_for(state="hidden")
    # Of a row that was dropped, it says which row is the next.
    first = server.ask("GET", "/journal?limit=1")[1][0]["number"]
    at(page, f"activity/{first - 1}", f"text=There is no row #{first - 1}")
    page.click(f"a:text-is('#{first}')")
    page.locator(".trace-pane h3").wait_for()
    assert page.locator("text=There is no row").count() == 0


def test_a_row_is_shown_while_the_rows_around_it_are_loading(page: Any, server: Server) -> None:
    for number in range(150):
        kv(server, "SET", "k", f"{number}")
    first = server.ask("GET", "/journal?limit=1")[1][0]["number"]
    held = []
    page.route("**/journal?after=*&limit=*", lambda route: held.append(route))
    page.goto("about:blank")
    page.goto(f"{server.url}/#/activity/{first}")
    seen = set()
    while page.locator(".trace-pane h3").count() == 0:
        page.wait_for_timeout(20)
        for route in held[:]:
            held.remove(route)
            limit = route.request.url.rpartition("limit=")[2]
            seen.add(limit)
            # The older rows do not arrive.
            if limit in ("1", "400"):
                route.continue_()
    page.locator(".trace-pane h3", has_text="SET k 0").wait_for()
    assert "1" in seen
    assert page.locator("text=There is no row").count() == 0


def test_a_pause_while_older_rows_are_loading_hides_none(page: Any, server: Server) -> None:
    for number in range(150):
        kv(server, "SET", "k", f"{number}")
    latest, held = server.ask("GET", "/state")[1]["latest"], list[Any]()

    def hold(route: Any) -> None:
        # The newest rows pass, the older ones are held.
        if f"after={latest - 100}&" in route.request.url:
            route.continue_()
        else:
            held.append(route)

    page.route("**/journal?after=*&limit=*", hold)
    page.goto("about:blank")
    page.goto(f"{server.url}/#/activity")
    page.locator(".trace-tools", has_text="100 rows").wait_for()
    page.click("button:text-is('Pause')")
    for route in held:
        route.continue_()
    page.locator(".trace-tools", has_text="150 rows").wait_for()
    kv(server, "SET", "k", "new")
    page.locator("button:has-text('Resume') .many:text-is('1')").wait_for()


def test_an_item_that_is_opened_by_its_address_is_in_the_list(page: Any, server: Server) -> None:
    for number in range(120):
        kv(server, "SET", f"key:{number:03}", "x")
    page.goto("about:blank")
    page.goto(f"{server.url}/#/fake/kv_server/keys/key%3A115")
    chosen = page.locator("tr.chosen", has_text="key:115")
    chosen.wait_for()
    assert page.inner_text("#count") == "101–120 of 120 keys"
    holds(page, "document.title.startsWith('key:115 · kv_server')")
    box = chosen.bounding_box()
    assert 100 < box["y"] < page.viewport_size["height"] - 40
    at(page, "fake/kv_server/keys/key%3A115?search=key:00", ".banner:visible:text('not among')")
    assert page.locator("tr.chosen").count() == 0


def test_a_comparison_of_snapshots_is_in_the_address(page: Any, server: Server) -> None:
    server.ask("POST", "/snapshots", {"id": "one"})
    kv(server, "SET", "later", "1")
    at(page, "snapshots", "select[name=since]")
    typed(page, "Compare", since="one", until="")
    page.locator(".trace-state", has_text="later").wait_for()
    holds(page, "location.hash === '#/snapshots?since=one'")
    page.reload()
    page.locator(".trace-state", has_text="later").wait_for()


def test_filters_of_time_and_lanes_are_in_the_address(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    for delay in ("1h", "2h"):
        sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Delay=delay)
    at(page, "time", ".over-time .span-column")
    page.click(".over-time .span-column >> nth=0")
    holds(page, "document.querySelectorAll('[aria-label=\"due events\"] tbody tr').length === 1")
    page.reload()
    page.locator(".trace-chip", has_text="due in").wait_for()
    holds(page, "document.querySelectorAll('[aria-label=\"due events\"] tbody tr').length === 1")
    page.go_back()
    holds(page, "document.querySelectorAll('[aria-label=\"due events\"] tbody tr').length === 2")
    at(page, "activity", ".trace-row")
    press(page, "Lanes")
    holds(page, "location.hash.includes('lanes=yes')")
    at(page, "activity", ".trace-party")
    page.go_back()
    page.locator(".trace-row svg").first.wait_for()


def test_enter_in_search_opens_an_exact_match_or_moves_into_the_results(
    page: Any, server: Server
) -> None:
    kv(server, "SET", "user:1", "x")
    kv(server, "SET", "user:10", "x")
    at(page, "search", SEARCH)
    page.keyboard.type("user")
    page.keyboard.press("Enter")
    holds(page, f"{ACTIVE}.matches('.sentences a') && {ACTIVE}.textContent === 'user:1'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".detail h2", has_text="user:10").wait_for()
    at(page, "search", SEARCH)
    page.keyboard.type("user:1")
    page.keyboard.press("Enter")
    page.locator(".detail h2:text-is('user:1')").wait_for()


def test_arrow_keys_go_on_from_the_selected_row_after_a_reload(page: Any, server: Server) -> None:
    for number in range(9):
        kv(server, "SET", f"key:{number}", "x")
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text="key:4").click()
    page.locator(".trace-pane h3", has_text="key:4").wait_for()
    page.reload()
    holds(page, f"{ACTIVE}.matches('.trace-list')")
    page.keyboard.press("ArrowDown")
    page.locator(".trace-pane h3", has_text="key:5").wait_for()
    at(page, "fake/kv_server/keys/key%3A4", ".detail h2")
    page.reload()
    holds(page, f"{ACTIVE}.matches('.list a') && {ACTIVE}.textContent === 'key:4'")
    page.keyboard.press("ArrowDown")
    page.locator(".detail h2", has_text="key:5").wait_for()


@pytest.mark.parametrize("way", ["Back", "Close"])
def test_the_focus_returns_to_the_row_whose_details_are_closed(
    page: Any, server: Server, way: str
) -> None:
    for number in range(9):
        kv(server, "SET", f"key:{number}", "x")
    at(page, "fake/kv_server/keys", "table.rows")
    page.click(".list a:text-is('key:4')")
    holds(page, f"{ACTIVE}.matches('.detail h2')")
    page.go_back() if way == "Back" else page.click(".detail a[aria-label='close the details']")
    holds(page, f"{ACTIVE}.matches('.list a') && {ACTIVE}.textContent === 'key:4'")
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text="key:4").click()
    page.locator(".trace-pane h3", has_text="key:4").wait_for()
    page.keyboard.press("Enter")
    holds(page, f"{ACTIVE}.matches('.trace-pane')")
    page.go_back() if way == "Back" else page.click("[aria-label='Close the details']")
    holds(page, f"{ACTIVE}.matches('.trace-list')")
    # The row is marked, and the next key goes on there.
    holds(page, f"{ACTIVE}.getAttribute('aria-activedescendant') !== null")
    page.keyboard.press("ArrowDown")
    page.locator(".trace-pane h3", has_text="key:4").wait_for()


def test_parts_of_details_that_were_open_are_open_after_back(page: Any, server: Server) -> None:
    kv(server, "SET", "key", "x")
    at(page, "fake/kv_server/keys/key", ".detail summary:text-is('History')")
    page.click(".detail summary:text-is('History')")
    page.locator(".versions td").first.wait_for()
    at(page, "activity", ".trace-row")
    page.go_back()
    page.locator(".versions td").first.wait_for()
    page.reload()
    page.locator(".versions td").first.wait_for()


def test_a_row_that_is_opened_just_after_typing_stays_open(page: Any, server: Server) -> None:
    for number in range(3):
        kv(server, "SET", f"key:{number}", "x")
    at(page, "activity", ".trace-row")
    # Both timers are due, so the filter is written between the click and its hashchange event.
    page.evaluate(
        """() => {
            const search = document.querySelector(".trace input[type=search]");
            search.focus();
            search.value = "key";
            setTimeout(() => [...document.querySelectorAll(".trace-row")].at(-1).click(), 100);
            search.dispatchEvent(new Event("input"));
            const from = performance.now();
            while (performance.now() < from + 120);
        }"""
    )
    holds(page, "/activity.[0-9]+.search=key/.test(location.hash)")
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert page.is_visible(".trace-pane h3:has-text('key:2')")
