"""Test the notices of the console: where they are, how long they stay, and a restart of the server."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Server
from .test_console import CHROMIUM, at, browser, holds, page, sent, window
from .test_console_work import kv, typed

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
SEEN = """(notice) => {
    const {top, bottom} = notice.getBoundingClientRect();
    const header = document.querySelector("header").getBoundingClientRect().bottom;
    return top >= header - 1 && bottom <= innerHeight && notice.contains(
        document.elementFromPoint(innerWidth / 2, (top + bottom) / 2));
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_a_banner_is_in_sight_on_a_page_that_is_scrolled(
    page: Any, server: Server, width: int
) -> None:
    for number in range(60):
        kv(server, "SET", f"key:{number}", "1")
    page.set_viewport_size({"width": width, "height": 720})
    at(page, "activity", ".trace-row")
    holds(page, "scrollY > 500")
    page.evaluate("import('/console/dom.js').then(({say}) => say('This is not a duration.'))")
    banner = page.locator("#notice", has_text="not a duration")
    assert banner.evaluate(SEEN)
    page.evaluate("scrollTo(0, 0)")
    assert banner.evaluate(SEEN)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_notice_names_its_item_covers_nothing_and_ends_at_the_next_action(
    page: Any, server: Server, width: int
) -> None:
    kv(server, "SET", "edited", "old")
    page.set_viewport_size({"width": width, "height": 720})
    at(page, "fake/kv_server/keys/edited", ".detail textarea")
    typed(page, "Value", value="new")
    notice = page.locator("#notice", has_text="edited: Saved.")
    notice.locator("button:text-is('Undo')").wait_for()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    top = notice.bounding_box()["y"]
    end = page.locator("#view").bounding_box()
    assert end["y"] + end["height"] <= top
    page.click("summary:text-is('Change TTL')")
    notice.wait_for()
    typed(page, "Change TTL", seconds="60")
    page.locator("#notice", has_text="edited: Changed.").wait_for()
    # Another page ends it, but not while it offers to undo.
    at(page, "fake/kv_server/channels", ".empty")
    page.locator("#notice button:text-is('Undo')").wait_for()
    page.evaluate("import('/console/dom.js').then(({say}) => say('This went wrong.'))")
    page.locator("#notice", has_text="This went wrong.").wait_for()
    at(page, "fake/kv_server/keys", "table.rows")
    assert page.inner_text("#notice") == ""


def test_the_notice_of_a_move_stays_with_its_link(page: Any, server: Server) -> None:
    sent(
        server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Delay="1m", Upstash_Retries="0"
    )
    at(page, "time", "td[data-name=event]")
    kv(server, "SET", "a", "1")
    page.click("[data-by='1h']")
    notice = page.locator("#notice", has_text="1 event became due.")
    notice.locator("a").wait_for()
    moves = page.locator("h2:text-is('Became due') + ul li")
    line = moves.filter(has_text="1 event became due by the move to 2026-01-01 01:00:00")
    line.wait_for()
    shown = line.inner_text()
    page.reload()
    assert line.inner_text() == shown
    # The clock goes back with the data. What was written since can stay.
    for answer, said, later in (
        ("yes", "has stayed", "1"),
        ("other", "all data are as before", None),
    ):
        kv(server, "SET", "b", "1")
        undo = page.locator("h2:text-is('Became due') + ul button:text-is('Undo the move…')")
        undo.click()
        page.locator("#question", has_text="The clock goes back to 2026-01-01 00:00:00").wait_for()
        page.click(f"dialog button[value={answer}]")
        page.locator("#notice", has_text=said).wait_for()
        assert kv(server, "MGET", "a", "b") == ["1", later]
        if answer == "yes":
            kv(server, "DEL", "b")
            page.click("[data-by='1h']")
            notice.wait_for()
    assert server.ask("GET", "/clock")[1]["now"] < "2026-01-01T00:10"
    moves.wait_for(state="detached")
    page.locator("td[data-name=event]").first.wait_for()
    page.focus("#notice button[aria-label=Dismiss]")
    page.keyboard.press("Escape")
    assert page.inner_text("#notice") == ""
    page.reload()


def test_the_advice_of_a_failed_delivery_fits_its_details(page: Any, server: Server) -> None:
    answer = {"url": "https://app.example", "answer": {"status": 500, "body": "no address"}}
    server.ask("POST", "/fakes/queue/destinations", answer)
    sent(server, "queue", "/v2/publish/https://app.example/mail", Upstash_Retries="0")
    at(page, "activity?problems=yes", ".trace-row")
    page.locator(".trace-row.trace-failed").first.click()
    banner = page.locator(".trace-pane .banner")
    banner.filter(has_text="app.example/mail answered 500").wait_for()
    assert "no address" in banner.inner_text()
    banner.locator("a:text-is('dead letter')").click()
    page.locator(".detail button:text-is('Retry')").wait_for()
    # The same beside its dead letter, of which the list has the reason.
    page.locator(".detail .banner", has_text="app.example/mail answered 500").wait_for()
    page.locator("table.rows td", has_text="500 no address").wait_for()
    server.ask("POST", "/fakes/kv_server/faults", {"kind": "respond", "args": [503]})
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["GET", "a"]})
    at(page, "activity?status=fault", ".trace-row")
    page.locator(".trace-row").first.click()
    page.click(".trace-pane .banner a:text-is('Faults of kv_server')")
    page.click("a:has-text('hit once')")
    page.locator(".trace-row", has_text="GET a").wait_for()
    server.ask("DELETE", "/fakes/kv_server/faults")
    server.ask("DELETE", "/fakes/queue/destinations?url=https://app.example")


def test_a_group_without_commits_says_so(page: Any, server: Server) -> None:
    server.ask("POST", "/call", {"object": "broker", "name": "create_topic", "args": ["orders", 1]})
    sent(server, "broker", "/produce/orders", [{"value": "1"}, {"value": "2"}])
    headers = {"Kafka_Auto_Offset_Reset": "latest", "Kafka_Enable_Auto_Commit": "false"}
    request = {"method": "GET", "target": "/consume/billing/one/orders"}
    wire = {name.replace("_", "-"): value for name, value in headers.items()}
    server.ask("POST", "/fakes/broker/requests", {**request, "headers": wire})
    at(page, "fake/broker/groups/billing", ".detail .facts")
    page.locator(".detail dd", has_text="0: nothing committed, 2 records").wait_for()
    page.locator("table.rows td", has_text="0, nothing committed").wait_for()
    # What waits for it is also shown without its member.
    assert server.call("broker", "group.leave", "billing", "one") is None
    page.locator(".detail dd", has_text="2: nothing committed, 2 records").wait_for()
    page.locator("[aria-label=offsets] td", has_text="no member").first.wait_for()
    page.click("summary:text-is('History')")
    page.locator(".versions td", has_text="one → none").first.wait_for()
    server.call("broker", "create_topic", "others", 1)
    page.reload()
    page.click("summary:text-is('Set a committed offset')")
    options = page.locator("form[aria-label='Set a committed offset'] option")
    assert options.all_inner_texts() == ["orders-0", "orders-1", "others-0"]


def test_a_test_that_is_copied_is_shown(page: Any, server: Server) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    kv(server, "SET", "a", "1")
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text="SET a 1").click()
    page.click("button[aria-label='Copy as a test with pytest']")
    page.locator("#notice", has_text="Copied, as shown.").wait_for()
    shown = page.inner_text("pre[aria-label='the test with pytest']")
    assert "def test_set_" in shown
    assert page.evaluate("navigator.clipboard.readText()").strip() == shown.strip()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_notice_covers_no_last_line_and_can_be_closed(
    page: Any, server: Server, width: int
) -> None:
    for number in range(60):
        kv(server, "SET", f"key:{number}", "x")
    page.set_viewport_size({"width": width, "height": 720})
    at(page, "fake/kv_server/keys", "table.rows")
    for kind in ("good", "bad"):
        page.evaluate(f"import('/console/dom.js').then(({{say}}) => say('Short.', '{kind}'))")
        notice = page.locator("#notice", has_text="Short.")
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        last = page.locator("table.rows tr").last.bounding_box()
        assert last["y"] + last["height"] <= notice.bounding_box()["y"]
        notice.locator("button[aria-label=Dismiss]").click()
        assert page.inner_text("#notice") == ""
        assert page.evaluate("document.body.style.getPropertyValue('--floating')") == ""


def test_an_undo_outlives_a_reload(page: Any, server: Server) -> None:
    kv(server, "SET", "edited", "old")
    at(page, "fake/kv_server/keys/edited", ".detail textarea")
    typed(page, "Value", value="new")
    page.locator("#notice button:text-is('Undo')").wait_for()
    page.reload()
    notice = page.locator("#notice", has_text="edited: Saved.")
    notice.locator("button:text-is('Undo')").click()
    page.locator("#notice", has_text="Undone.").wait_for()
    assert kv(server, "GET", "edited") == "old"
    # One that was closed does not come back. The row of the change can still undo it.
    holds(page, "document.querySelector('.detail textarea').value === 'old'")
    typed(page, "Value", value="newer")
    row = notice.locator("a").get_attribute("href")
    page.click("#notice button[aria-label=Dismiss]")
    page.reload()
    page.locator(".detail textarea").wait_for()
    assert page.inner_text("#notice") == ""
    at(page, row.removeprefix("#/"), ".row-changes button:has-text('Restore edited')")


def test_a_key_that_is_gone_is_no_error_of_the_browser(page: Any, server: Server) -> None:
    kv(server, "SET", "there", "1")
    failed: list[str] = []
    page.on("response", lambda answer: answer.status >= 400 and failed.append(answer.url))
    at(page, "fake/kv_server/keys/gone", ".detail h2:text-is('There is no key gone.')")
    at(page, "fake/queue/messages/gone", ".detail h2:text-is('There is no message gone.')")
    assert failed == []


def test_an_unknown_command_has_the_name_that_was_meant(page: Any, server: Server) -> None:
    at(page, "fake/kv_server/commands", "#command")
    for typed_name, name in (("STE", "SET"), ("HGETAL", "HGETALL"), ("incrr", "INCR")):
        page.fill("#command", f"{typed_name} a 1")
        page.press("#command", "Enter")
        entry = page.locator(".log .entry", has_text=f"> {typed_name}")
        entry.locator(".bad", has_text="(error)").wait_for()
        entry.locator(f"button:text-is('{name}')").click()
        assert page.input_value("#command") == f"{name} a 1"
    page.fill("#command", "NOTHINGLIKEIT")
    page.press("#command", "Enter")
    page.locator(".log .entry", has_text="> NOTHINGLIKEIT").locator(".bad").wait_for()
    assert page.locator(".log .entry").first.locator("button").count() == 0
    kv(server, "SET", "stock", "3")
    page.fill("#command", "LPUSH stock tea")
    page.press("#command", "Enter")
    page.locator(".log .entry", has_text="stock holds a string: use GET").wait_for()
