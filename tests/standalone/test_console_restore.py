"""Test in the console what a restore shows before it, its undo, and who made a change."""

from __future__ import annotations

from typing import Any

import pytest

from ..harness import wait_until
from .conftest import Server, fetch
from .test_console import CHROMIUM, at, browser, fake, go, holds, page, sent, window
from .test_console_history import opened
from .test_console_work import kv, press, said, typed

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
UNDO = "#notice button:text-is('Undo')"


def previewed(page: Any) -> list[list[str]]:
    """Return the rows of the preview in a question, each with its cells."""
    page.locator("dialog #question table").first.wait_for()
    rows = page.locator("dialog .trace-state tr:is(.trace-changed, .trace-added, .trace-removed)")
    cells = "(row) => [...row.children].map((cell) => cell.innerText.replace(/\\s+/g, ' '))"
    return sorted(row.evaluate(cells) for row in rows.all())


def confirm(page: Any) -> None:
    page.click("dialog button[value=yes]")
    page.locator("dialog").wait_for(state="detached")


def test_a_restore_shows_what_it_changes_and_is_undone(page: Any, server: Server) -> None:
    kv(server, "SET", "price", "3")
    kv(server, "SET", "price", "4")
    kv(server, "SET", "late", "1")
    sent(server, "vector_index", "/upsert", [{"id": "v1", "vector": [1, 2]}])
    at(page, "activity", ".trace-row")
    opened(page, "SET price 4")
    buttons = page.locator(".row-changes .tools")
    buttons.locator("button", has_text="Restore price to before this…").click()
    assert previewed(page) == [["price", "value 4", "value 3"]]
    confirm(page)
    wait_until(lambda: kv(server, "GET", "price") == "3")
    assert kv(server, "GET", "late") == "1"
    page.click(UNDO)
    wait_until(lambda: kv(server, "GET", "price") == "4")
    buttons.locator("button", has_text="Restore kv_server…").click()
    rows = previewed(page)
    assert rows[1] == ["price", "value 4", "value 3"]
    assert rows[0][0] == "late"
    assert rows[0][2] == "removed"
    confirm(page)
    wait_until(lambda: kv(server, "EXISTS", "late") == 0)
    page.click(UNDO)
    wait_until(lambda: kv(server, "MGET", "price", "late") == ["4", "1"])
    # What has not changed is not restored.
    opened(page, "upsert")
    kv(server, "PING")
    server.ask("POST", "/snapshots", {"id": "same"})
    at(page, "snapshots", "table")
    page.click("button[aria-label='Restore “same”']")
    page.locator("#notice", has_text="Nothing has changed since then").wait_for()
    server.ask("DELETE", "/snapshots/same")


def test_the_undo_of_a_restore_keeps_what_was_written_since_or_takes_back_everything(
    page: Any, server: Server
) -> None:
    kv(server, "SET", "price", "3")
    kv(server, "SET", "price", "4")
    at(page, "activity", ".trace-row")
    for answer, late in (("Keep what was written since", "1"), ("Take back everything", None)):
        opened(page, "SET price 4")
        page.locator(".row-changes button", has_text="Restore kv_server…").click()
        confirm(page)
        page.locator(UNDO).wait_for()
        kv(server, "SET", "late", "1")
        page.click(UNDO)
        page.locator("dialog", has_text="Undo the restore?").wait_for()
        assert [row[0] for row in previewed(page)] == ["late", "price"]
        page.click(f"dialog button:text-is('{answer}')")
        page.locator("#notice", has_text="Undone.").wait_for()
        assert (kv(server, "GET", "price"), kv(server, "GET", "late")) == ("4", late)
        kv(server, "DEL", "late")


def test_a_snapshot_is_compared_again_after_a_restore(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    server.ask("POST", "/snapshots", {"id": "one"})
    kv(server, "SET", "a", "2")
    at(page, "snapshots", "form[aria-label=Compare]")
    typed(page, "Compare", since="one")
    said(page, "Compare", "kv_server: 1 changed.")
    page.click("button[aria-label='Restore “one”']")
    assert previewed(page) == [["a", "value 2", "value 1"]]
    confirm(page)
    said(page, "Compare", "No data differs.")
    page.click(UNDO)
    said(page, "Compare", "kv_server: 1 changed.")
    assert kv(server, "GET", "a") == "2"


def test_the_history_of_a_key_goes_back_to_each_version(page: Any, server: Server) -> None:
    for value in ("3", "4", "5"):
        kv(server, "SET", "stock", value)
    at(page, "fake/kv_server/keys/stock", ".detail .versions summary")
    page.click(".detail .versions summary")
    rows = page.locator(".versions tbody tr")
    rows.nth(2).wait_for()
    cells = (
        "(all) => all.map((row) => [...row.cells].slice(2).map((cell) => cell.innerText.trim()))"
    )
    # The newest is the first.
    assert [
        [text.split()[-1] for text in row]
        for row in page.eval_on_selector_all(".versions tbody tr", cells)
    ] == [["4", "5"], ["3", "4"], ["–", "3"]]
    assert [rows.nth(at).locator("button").count() for at in range(3)] == [0, 1, 1]
    rows.nth(1).locator("button").click()
    assert previewed(page) == [["stock", "value 5", "value 4"]]
    confirm(page)
    wait_until(lambda: kv(server, "GET", "stock") == "4")
    rows.first.locator("a", has_text="restored: stock to just before").wait_for()


def test_changes_in_the_console_are_those_of_the_console(page: Any, server: Server) -> None:
    at(page, "fake/kv_server/keys", "summary:text-is('New key')")
    typed(page, "New key", key="made", value="here")
    page.locator(".detail h2", has_text="made").wait_for()
    press(page, "Delete")
    page.locator("#notice", has_text="Deleted made.").wait_for()
    at(page, "activity", ".trace-row")
    opened(page, "DEL made")
    page.locator(".trace-pane", has_text="console → kv_server").wait_for()
    page.locator(".trace-row", has_text="DEL made").locator(
        ".trace-party", has_text="console → kv_server"
    ).wait_for()


def test_lanes_are_shown_on_request(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    at(page, "activity", ".trace-row")
    row = page.locator(".trace-row", has_text="SET a 1")
    row.locator(".trace-party").wait_for()
    assert row.locator("svg").count() == 0
    press(page, "Lanes")
    row.locator("svg").wait_for()
    assert row.locator(".trace-party").count() == 0
    page.reload()
    row.locator("svg").wait_for()
    press(page, "Lanes")
    row.locator(".trace-party").wait_for()


def test_times_of_several_days_have_their_dates(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    at(page, "activity", ".trace-row")
    first = page.locator(".trace-row .trace-time").first
    assert first.inner_text() == "00:00:00.000"
    server.ask("POST", "/clock", {"action": "advance", "by": "36h"})
    kv(server, "SET", "a", "2")
    page.locator(".trace-time", has_text="01-02 12:00:00.000").wait_for()
    assert first.inner_text() == "01-01 00:00:00.000"
    fits = (
        "(all) => all.every((one) => one.scrollWidth <= one.clientWidth && one.offsetHeight < 30)"
    )
    assert page.eval_on_selector_all(".trace-row .trace-time:not(.trace-party)", fits)


def test_failures_are_counted_among_what_the_other_filters_leave(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "x")
    for _ in range(2):
        server.ask("POST", "/fakes/kv_server/requests", {"body": ["INCR", "a"]})
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Retries="0")
    at(page, "activity", ".trace-row")
    label = "document.querySelector('.trace-tools label').innerText.trim()"
    holds(page, f"{label} === 'Failed or faulty (3)'")
    page.select_option("select[aria-label=Fake]", "queue")
    holds(page, f"{label} === 'Failed or faulty (1)'")
    page.select_option("select[aria-label=Fake]", "")
    page.fill(".trace-tools input[type=search]", "INCR")
    holds(page, f"{label} === 'Failed or faulty (2)'")


def test_namespaces_are_searched(page: Any, server: Server) -> None:
    kv(server, "MSET", *(word for n in range(12) for word in (f"user:{n}", "x")), "cart:1", "x")
    at(page, "fake/kv_server/keys?view=tree", ".folders")
    assert page.locator(".folders summary").count() == 2
    page.fill("#search", "user:1")
    holds(page, "document.querySelectorAll('.folders summary').length === 1")
    # What is found is in sight.
    holds(page, "document.querySelectorAll('.folders .folders a.mono').length === 3")
    assert page.locator(".folders .many").first.inner_text() == "3"


def test_a_fault_is_said_before_it_is_added(page: Any, server: Server) -> None:
    at(page, "fake/kv_server/faults", "form[aria-label='Add a fault']")
    preview = page.locator("form[aria-label='Add a fault'] .preview")
    assert preview.inner_text() == (
        "Each request answers 503 and is not carried out, until you remove this fault.\n"
        "Calls of a running application count too. "
        "To spare them, limit it to a command or a key or a route."
    )
    page.fill("[name=only-command]", "SET")
    page.fill("[name=times]", "1")
    assert preview.inner_text() == "The next SET request answers 503 and is not carried out."
    page.fill("[name=times]", "3")
    page.fill("[name=skip]", "2")
    text = "Each of the next 3 SET requests, after 2 that pass, answers 503 and is not carried out."
    assert preview.inner_text() == text
    page.click("button:text-is('Add fault')")
    page.locator(".sentences span", has_text=text).wait_for()
    at(page, "fake/queue/faults", "form[aria-label='Add a fault']")
    page.select_option("select[name=kind]", "duplicate")
    page.fill("[name=only-label]", "mail")
    preview.filter(has_text="Each delivery of the label mail is made twice, until").wait_for()
    page.evaluate("document.querySelector('form[aria-label=\"Add a fault\"]').dataset.typed = 'no'")


def test_expiries_and_schedules_in_words_are_among_what_is_due(page: Any, server: Server) -> None:
    kv(server, "SET", "session:9", "ada", "EX", "900")
    named = {"Upstash_Cron": "0 9 * * *", "Upstash_Schedule_Id": "report"}
    sent(server, "queue", "/v2/schedules/http://127.0.0.1:9/report", **named)
    at(page, "time", "td[data-name=event]")
    events = page.locator("td[data-name=event]").all_inner_texts()
    assert events == [
        "expires: session:9",
        "schedule report, every day at 09:00: 127.0.0.1:9/report",
    ]
    page.click("td[data-name=event] a:text-is('expires: session:9')")
    page.locator(".detail h2", has_text="session:9").wait_for()
    at(page, "fake/queue/schedules", "table.rows")
    page.locator("table.rows td", has_text="every day at 09:00").wait_for()


def test_a_call_with_a_wrong_token_leads_to_the_right_one(page: Any, server: Server) -> None:
    body = {"target": "/get/a", "headers": {"Authorization": "Bearer wrong"}}
    server.ask("POST", "/fakes/kv_server/requests", body)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    at(page, "activity", ".trace-row")
    opened(page, "GET a")
    page.locator(".trace-pane .banner", has_text="No fake has the token").wait_for()
    page.click("button:text-is('Copy the token of kv_server')")
    wait_until(
        lambda: (
            page.evaluate("navigator.clipboard.readText()")
            == fake(server, "kv_server")["env"]["UPSTASH_REDIS_REST_TOKEN"]
        )
    )
    page.click(".trace-pane .banner a:text-is('Connect')")
    page.locator("h1", has_text="Connect").wait_for()
    fetch("GET", f"{fake(server, 'kv_server')['url']}/get/without")
    at(page, "activity", ".trace-row")
    opened(page, "without")
    page.locator(".trace-pane .banner", has_text="The request has no token").wait_for()


def test_the_filters_of_activity_are_in_sight_on_a_phone(browser: Any, server: Server) -> None:
    kv(server, "SET", "a", "x")
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["INCR", "a"]})
    context = browser.new_context(bypass_csp=True, viewport={"width": 390, "height": 844})
    opened_page = go(context.new_page(), server)
    at(opened_page, "activity", ".trace-row")
    tools = opened_page.locator(".trace-tools")
    assert tools.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    for name in (
        "[aria-label=Fake]",
        "label",
        "button:text-is('Over time')",
        "button:text-is('Pause')",
    ):
        box = tools.locator(name).first.bounding_box()
        assert box["x"] + box["width"] <= 390, name
    assert tools.evaluate("(one) => one.offsetHeight") < 90
    # The clock takes one line more, and what is pressed is high enough for a finger.
    opened_page.click("#clock-more")
    assert opened_page.locator("header").bounding_box()["height"] < 90
    reset = opened_page.locator("#reset").bounding_box()
    assert reset["x"] + reset["width"] <= 390
    at(opened_page, "overview", "[aria-label='What failed'] h2")
    heights = opened_page.locator(":is(main, header) :is(a, button):visible").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert min(heights) >= 24
    context.close()


def test_the_row_of_a_restore_shows_its_data_before_and_after_it(page: Any, server: Server) -> None:
    kv(server, "MSET", "price", "3", "stock", "1", "late", "1")
    server.ask("POST", "/snapshots", {"id": "one"})
    kv(server, "MSET", "price", "4", "stock", "2", "late", "2")
    server.ask("POST", "/snapshots/one", {})
    at(page, "activity", ".trace-row")
    # The other fakes have not changed, so they have no row.
    assert page.locator(".trace-row", has_text="restored").count() == 1
    opened(page, "restored: all data of kv_server")
    page.locator(".row-changes tr", has_text="price").wait_for()
    cells = page.locator(".row-changes tr.trace-changed").all_inner_texts()
    assert [text.split() for text in cells] == [
        [name, "value", old, "value", new]
        for name, old, new in (("price", "4", "3"), ("stock", "2", "1"), ("late", "2", "1"))
    ]
    assert page.locator(".trace-pane :is(.trace-chip, summary)").count() == 0
    buttons = page.locator(".trace-pane .row-changes button").all_inner_texts()
    assert buttons == [
        "Undo this restore…",
        "Restore 3 items to before this…",
        "Restore kv_server…",
        "Restore all fakes…",
    ]


def test_compared_topics_show_the_records_that_were_added(page: Any, server: Server) -> None:
    record = {"topic": "orders", "partition": 1, "key": "k"}
    sent(server, "broker", "/produce", {**record, "value": "old"})
    server.ask("POST", "/snapshots", {"id": "one"})
    sent(server, "broker", "/produce", {**record, "value": "tea"})
    at(page, "snapshots", "form[aria-label=Compare]")
    typed(page, "Compare", since="one")
    row = page.locator("tr.trace-changed", has_text="orders-1")
    row.locator("p", has_text="@1 k tea").wait_for()
    row.locator("a").click()
    page.locator("table.rows tr", has_text="tea").wait_for()
    assert page.locator("table.rows tr", has_text="old").count() == 0
