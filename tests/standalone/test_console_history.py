"""Test in the console the data before and after rows, going back, undo, and versions of items."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ..harness import wait_until
from .conftest import Server
from .test_console import CHROMIUM, at, browser, holds, page, sent, window
from .test_console_work import answer, kv, listed, press, typed

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
CHANGES = ".row-changes"


def opened(page: Any, text: str) -> None:
    page.locator(".trace-row", has_text=text).last.click()
    page.locator(".trace-pane h3", has_text=text).wait_for()


def test_a_row_shows_what_it_changed_and_restores_what_was_before(
    page: Any, server: Server
) -> None:
    kv(server, "HSET", "user:1", "name", "Ada", "city", "London")
    kv(server, "HSET", "user:1", "city", "Paris")
    kv(server, "GET", "nothing")
    sent(server, "vector_index", "/upsert", [{"id": "v1", "vector": [1, 2]}])
    at(page, "activity", ".trace-row")
    opened(page, "HSET user:1 city Paris")
    page.locator(f"{CHANGES} tr.trace-changed").wait_for()
    before, after = page.locator(f"{CHANGES} tr.trace-changed td").all_inner_texts()
    assert ("London" in before, "Paris" in after, "Ada" in before) == (True, True, False)
    opened(page, "GET nothing")
    page.locator(CHANGES, has_text="This row changed no data.").wait_for()
    opened(page, "HSET user:1 city Paris")
    page.locator(f"{CHANGES} button", has_text="Restore kv_server…").click()
    answer(page, "Restore kv_server to just before #", "Restore kv_server")
    page.locator("#notice", has_text="kv_server is restored.").wait_for()
    assert kv(server, "HGET", "user:1", "city") == "London"
    assert len(listed(server, "vector_index/lists/vectors")) == 1
    page.locator(f"{CHANGES} button", has_text="Restore all fakes…").click()
    answer(page, "Restore all fakes to just before #", "Restore all fakes")
    wait_until(lambda: listed(server, "vector_index/lists/vectors") == [])
    page.locator(f"{CHANGES} th a", has_text="user:1").click()
    page.locator(".detail h2", has_text="user:1").wait_for()


def test_long_ids_and_new_items_have_room_in_the_data_of_a_row(page: Any, server: Server) -> None:
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", "body", Upstash_Delay="1h")
    name = f"user:{'x' * 60}"
    for value in ("first", "second"):
        kv(server, "SET", name, value)
    at(page, "activity", ".trace-row")
    opened(page, "second")
    page.locator(f"{CHANGES} tr.trace-changed").wait_for()
    wide = """(row) => [...row.children].map((cell) => [
        cell.scrollWidth <= cell.clientWidth, cell.offsetWidth / row.offsetWidth])"""
    cells = page.locator(f"{CHANGES} tr.trace-changed").evaluate(wide)
    assert [fits for fits, _ in cells] == [True] * 3
    opened(page, "publish")
    page.locator(f"{CHANGES} tr.trace-added", has_text="body").wait_for()
    cells = page.locator(f"{CHANGES} tr.trace-added", has_text="body").evaluate(wide)
    assert [fits for fits, _ in cells] == [True] * 3
    assert cells[2][1] > 0.5


def test_edits_of_a_key_are_undone(page: Any, server: Server) -> None:
    kv(server, "SET", "colour", "red", "EX", "600")
    at(page, "fake/kv_server/keys/colour", ".detail textarea")
    typed(page, "Value", value="blue")
    page.locator("#notice", has_text="Saved").wait_for()
    kv(server, "SET", "other", "stays")
    page.click("#notice button:text-is('Undo')")
    page.locator("#notice", has_text="Undone.").wait_for()
    page.wait_for_function("document.querySelector('.detail textarea').value === 'red'")
    assert (kv(server, "TTL", "colour"), kv(server, "GET", "other")) == (600, "stays")
    press(page, "Delete")
    page.locator("#notice", has_text="Deleted colour.").wait_for()
    assert kv(server, "EXISTS", "colour") == 0
    page.click("#notice button:text-is('Undo')")
    wait_until(lambda: kv(server, "GET", "colour") == "red")
    kv(server, "HSET", "hash", "field", "old")
    at(page, "fake/kv_server/keys/hash", ".detail table")
    page.click("button[aria-label='Remove field']")
    page.click("#notice button:text-is('Undo')")
    wait_until(lambda: kv(server, "HGET", "hash", "field") == "old")


UNDO = "#notice button:text-is('Undo')"
EDITS = {
    "hash": (
        ["HSET", "k", "tea", "2", "cup", "1"], "cup", {"value": "5"},
        ["HSET", "k", "tea", "9"], ["HGETALL", "k"], ["tea", "9", "cup", "1"],
        ["HSET", "k", "cup", "7"], "cup of k is now 7, 2 more than after your change. "
        "Set it to 3, which takes back only your change?",
    ),
    "zset": (
        ["ZADD", "k", "1", "a", "2", "b"], "a", {"score": "5"},
        ["ZADD", "k", "9", "b"], ["ZSCORE", "k", "b"], "9",
        ["ZADD", "k", "7", "a"], "a of k is now 7, 2 more than after your change. "
        "Set it to 3, which takes back only your change?",
    ),
    "list": (
        ["RPUSH", "k", "a", "b"], "0", {"value": "x"},
        ["RPUSH", "k", "c"], ["LRANGE", "k", "0", "-1"], ["a", "b", "c"],
        ["LPUSH", "k", "z"], "0 of k was changed meanwhile. Set it to a, as before your change?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("type_", EDITS)
def test_the_undo_of_an_edit_keeps_later_changes_of_the_application(
    page: Any, server: Server, type_: str
) -> None:
    made, name, fields, other, read, kept, same, question = EDITS[type_]
    kv(server, *made)
    for later in (other, same):
        at(page, "fake/kv_server/keys/k", ".detail table")
        page.click(f"button[aria-label='Edit {name}']")
        typed(page, f"Edit {name}", **fields)
        page.locator("#notice", has_text="Saved.").wait_for()
        kv(server, *later)
        page.click(UNDO)
        if later is same:
            assert page.locator("dialog #question").inner_text() == question
            page.click("dialog button:text-is('Cancel')")
            page.locator(UNDO).wait_for()
        else:
            page.locator("#notice", has_text="Undone.").wait_for()
            assert kv(server, *read) == kept
        at(page, "fake/kv_server/channels", ".list")


def test_the_undo_of_an_edited_counter_keeps_later_increments(page: Any, server: Server) -> None:
    kv(server, "HSET", "k", "visits", "248", "plan", "free")
    at(page, "fake/kv_server/keys/k", ".detail table")
    page.click("button[aria-label='Edit visits']")
    typed(page, "Edit visits", value="5")
    page.locator("#notice", has_text="Saved.").wait_for()
    kv(server, "HINCRBY", "k", "visits", "2")
    page.click(UNDO)
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="Undone.").wait_for()
    assert kv(server, "HGETALL", "k") == ["visits", "250", "plan", "free"]


def test_the_undo_of_an_overwritten_value_is_the_value_that_was_replaced(
    page: Any, server: Server
) -> None:
    kv(server, "HSET", "k", "visits", "1")
    at(page, "fake/kv_server/keys/k", ".detail table")
    page.click("button[aria-label='Edit visits']")
    kv(server, "HSET", "k", "visits", "7")
    typed(page, "Edit visits", value="50")
    page.locator("dialog #question", has_text="visits of k is now 7").wait_for()
    # The application goes on while the question is open, and afterwards.
    kv(server, "HINCRBY", "k", "visits", "2")
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="Saved.").wait_for()
    kv(server, "HINCRBY", "k", "visits", "1")
    page.click(UNDO)
    page.locator("dialog #question", has_text="Set it to 10").wait_for()
    kv(server, "HINCRBY", "k", "visits", "1")
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="Undone.").wait_for()
    assert kv(server, "HGET", "k", "visits") == "11"


def test_the_undo_of_an_element_and_of_a_ttl_keeps_the_rest_of_the_key(
    page: Any, server: Server
) -> None:
    kv(server, "HSET", "k", "tea", "2", "cup", "1")
    at(page, "fake/kv_server/keys/k", ".detail table")
    page.click("button[aria-label='Remove cup']")
    page.locator("#notice", has_text="Removed cup.").wait_for()
    kv(server, "HSET", "k", "tea", "9")
    page.click(UNDO)
    wait_until(lambda: kv(server, "HGETALL", "k") == ["tea", "9", "cup", "1"])
    typed(page, "Add an element", field="pot", value="3")
    page.locator("#notice", has_text="Added.").wait_for()
    kv(server, "HSET", "k", "tea", "10")
    page.click(UNDO)
    wait_until(lambda: kv(server, "HGETALL", "k") == ["tea", "10", "cup", "1"])
    typed(page, "Change TTL", seconds="60")
    page.locator("#notice", has_text="Changed.").wait_for()
    kv(server, "HSET", "k", "tea", "11")
    page.click(UNDO)
    wait_until(lambda: kv(server, "TTL", "k") == -1)
    assert kv(server, "HGETALL", "k") == ["tea", "11", "cup", "1"]


def test_an_undo_of_what_has_changed_since_shows_what_it_takes_back(
    page: Any, server: Server
) -> None:
    """A value, a deletion and a restore have no smaller inverse than a restore."""
    kv(server, "SET", "k", "1")
    at(page, "fake/kv_server/keys/k", ".detail textarea")
    typed(page, "Value", value="2")
    page.locator("#notice", has_text="Saved").wait_for()
    kv(server, "SET", "k", "3")
    page.click(UNDO)
    question = page.locator("dialog #question")
    question.filter(has_text="The data has changed since").wait_for()
    assert question.locator("tr.trace-changed").inner_text().split() == [
        "k", "value", "3", "value", "1",
    ]  # fmt: skip
    assert kv(server, "GET", "k") == "3"
    page.click("dialog button[value=yes]")
    wait_until(lambda: kv(server, "GET", "k") == "1")
    press(page, "Delete")
    page.locator("#notice", has_text="Deleted k.").wait_for()
    kv(server, "SET", "k", "new")
    page.click(UNDO)
    question.filter(has_text="The data has changed since").wait_for()
    page.click("dialog button:text-is('Cancel')")
    assert kv(server, "GET", "k") == "new"


def test_a_deletion_of_many_items_is_undone(page: Any, server: Server) -> None:
    kv(server, "MSET", *(word for number in range(120) for word in (f"user:{number}", "ada")))
    at(page, "fake/kv_server/keys?search=user", "table.rows")
    page.check("[data-key='choose all']")
    press(page, "Delete 120 keys found…", sure=True)
    page.locator("#notice", has_text="Deleted 120 keys.").wait_for()
    assert kv(server, "DBSIZE") == 0
    kv(server, "SET", "other", "stays")
    page.click("#notice button:text-is('Undo')")
    wait_until(lambda: kv(server, "DBSIZE") == 121)
    for number in range(3):
        sent(server, "vector_index", "/upsert", {"id": f"v{number}", "vector": [number, 1]})
    at(page, "fake/vector_index/vectors/v1", ".detail h2")
    press(page, "Delete")
    page.locator("#notice", has_text="Deleted v1.").wait_for()
    page.click("#notice button:text-is('Undo')")
    wait_until(lambda: len(listed(server, "vector_index/lists/vectors")) == 3)
    page.locator("input[aria-label^='choose v']").nth(2).check()
    page.locator("input[aria-label^='choose v']").first.check()
    press(page, "Delete 2…", sure=True)
    wait_until(lambda: len(listed(server, "vector_index/lists/vectors")) == 1)
    page.click("#notice button:text-is('Undo')")
    wait_until(lambda: len(listed(server, "vector_index/lists/vectors")) == 3)


def test_items_have_their_versions_with_the_calls_that_made_them(page: Any, server: Server) -> None:
    for value in ("1", "2", "3"):
        kv(server, "SET", "n", value)
    vectors = "/upsert"
    for number in (1, 2):
        sent(server, "vector_index", vectors, [{"id": "v", "vector": [number, 1]}])
    sent(server, "broker", "/produce", {"topic": "orders", "value": "tea", "partition": 0})
    sent(server, "broker", "/consume/billing/a", {"topic": "orders"})
    made = sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Retries="0")
    wait_until(lambda: listed(server, "queue/lists/dead-letters"))
    at(page, f"fake/queue/messages/{made['messageId']}", ".detail h2")
    for place, least, last in (
        ("kv_server/keys/n", 3, "3"),
        ("vector_index/vectors/v", 2, "2"),
        ("broker/groups/billing", 1, "orders-0"),
        (f"queue/messages/{made['messageId']}", 2, "dead_lettered"),
    ):
        at(page, f"fake/{place}", ".detail .versions summary")
        page.click(".detail .versions summary")
        rows = page.locator(".versions tbody tr")
        rows.first.wait_for()
        assert rows.count() >= least, place
        # The newest is the first.
        assert last in rows.first.inner_text(), place
    page.locator(".versions tbody tr a").last.click()
    page.locator(".trace-pane h3", has_text="publish").wait_for()


def test_a_history_is_read_once_at_a_time_and_says_that_it_is_loading(
    page: Any, server: Server
) -> None:
    kv(server, "MSET", *(word for number in range(1200) for word in (f"user:{number}", "ada")))
    for number in range(300):
        kv(server, "INCRBY", "visits", str(1 + number % 2))
    routes: list[Any] = []

    def hold_the_first(route: Any) -> None:
        routes.append(route)
        if len(routes) > 1:
            route.fallback()

    page.route("**/versions?*", hold_the_first)
    at(page, "fake/kv_server/keys/visits", ".detail .versions summary")
    page.click(".detail .versions summary")
    page.locator(".versions [role=status]", has_text="Loading…").wait_for()
    for visits in (451, 452):
        kv(server, "INCR", "visits")
        page.wait_for_function(f"document.querySelector('.detail textarea').value === '{visits}'")
        page.locator(".versions [role=status]", has_text="Loading…").wait_for()
    assert len(routes) == 1
    # What changed while the first was under way is in one more, which leaves the rows in place.
    with page.expect_request("**/versions?*"):
        routes[0].continue_()
    page.locator(".versions", has_text="The newest 50 of 302 versions.").wait_for()
    assert (len(routes), page.locator(".versions [role=status]").count()) == (2, 0)


def test_a_key_that_is_gone_says_how_and_is_restored(page: Any, server: Server) -> None:
    kv(server, "SADD", "tags", "new", "sale")
    kv(server, "SET", "session", "ada", "EX", "60")
    kv(server, "SET", "other", "ada", "EX", "60")
    kv(server, "SET", "late", "ada", "EX", "60")
    kv(server, "DEL", "late")
    kv(server, "DEL", "tags")
    gone = page.locator(".detail .versions")
    at(page, "fake/kv_server/keys/never", ".detail .empty h2:text-is('There is no key never.')")
    gone.locator("p", has_text="None was recorded.").wait_for()
    at(page, "fake/kv_server/keys/tags", ".detail .empty h2:text-is('There is no key tags.')")
    deleted = re.compile(r"^It was deleted at 2026-01-01 00:00:00 UTC.*, by DEL tags\.")
    gone.locator("p", has_text=deleted).wait_for()
    page.click(".versions button:text-is('Bring it back…')")
    page.click("dialog button[value=yes]")
    # A call during a restore would make the history unknown, so wait for its end.
    page.locator("#notice", has_text="restored.").wait_for()
    assert kv(server, "SCARD", "tags") == 2
    server.ask("POST", "/clock", {"action": "advance", "by": "2m"})
    for name in ("session", "other"):
        at(
            page,
            f"fake/kv_server/keys/{name}",
            f".detail .empty h2:text-is('There is no key {name}.')",
        )
        gone.locator("p", has_text="It expired at 2026-01-01 00:01:00 UTC").wait_for()
        page.click(".versions button:text-is('Bring it back')")
        page.locator("#notice", has_text="without its TTL.").wait_for()
        assert (kv(server, "GET", name), kv(server, "TTL", name)) == ("ada", -1)
        page.click(UNDO)
        page.locator("#notice", has_text="Undone.").wait_for()
        assert not kv(server, "EXISTS", name)
    # The TTL of a deleted key may have ended, with which it would expire at once.
    at(page, "fake/kv_server/keys/late", ".detail .empty h2:text-is('There is no key late.')")
    page.click(".versions button:text-is('Bring it back…')")
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="late is restored.").wait_for()
    assert (kv(server, "GET", "late"), kv(server, "TTL", "late")) == ("ada", -1)


def test_one_field_of_a_busy_key_is_read_over_time_and_back_returns_to_it(
    page: Any, server: Server
) -> None:
    kv(server, "HSET", "user", "name", "Ada", "visits", "0")
    for _ in range(30):
        kv(server, "HINCRBY", "user", "visits", "1")
    kv(server, "HSET", "user", "name", "Bob")
    kv(server, "HINCRBY", "user", "visits", "1")
    at(page, "fake/kv_server/keys/user", ".detail .versions summary")
    # The history is below the elements of the key, which stay where they are.
    place = page.locator(".detail [aria-label=elements]").bounding_box()
    page.click(".detail .tools button:text-is('History ↓')")
    rows = page.locator(".versions tbody tr")
    # The thirty increments are one line until it is opened.
    holds(page, "document.querySelectorAll('.versions tbody tr').length === 4")
    assert [text.split() for text in rows.nth(2).locator("td").all_inner_texts()[2:]] == [
        ["value.visits", "0"], ["value.visits", "30"],
    ]  # fmt: skip
    page.click(".versions button:text-is('+1, 30 times')")
    holds(page, "document.querySelectorAll('.versions tbody tr').length === 33")
    page.locator(".detail").evaluate("(pane) => { pane.scrollTop = 0; scrollTo(0, 0); }")
    assert page.locator(".detail [aria-label=elements]").bounding_box() == place
    page.select_option("[aria-label='field of the history']", "name")
    holds(page, "document.querySelectorAll('.versions tbody tr').length === 2")
    after = "(all) => all.map((row) => row.cells[3].innerText)"
    assert rows.evaluate_all(after) == ["value Bob", "value Ada"]
    rows.last.locator("a").click()
    page.locator(".trace-pane h3", has_text="HSET user name Ada").wait_for()
    page.go_back()
    holds(page, "document.activeElement.matches('.versions tbody tr:last-child a')")
    assert rows.count() == 2
    assert page.input_value("[aria-label='field of the history']") == "name"
    # It is closed by its reader only.
    page.evaluate("document.activeElement.blur()")
    page.click(".detail .versions summary")
    at(page, "activity", ".trace-row")
    at(page, "fake/kv_server/keys/user", ".detail .versions summary")
    assert page.locator(".versions[open]").count() == 0


def test_a_key_that_is_gone_is_found_by_a_part_of_its_name(page: Any, server: Server) -> None:
    kv(server, "SET", "coupon:AUTUMN", "10%")
    kv(server, "SET", "other", "1")
    kv(server, "DEL", "coupon:AUTUMN")
    at(page, "fake/kv_server/keys?search=coup", ".empty")
    page.click(".empty a:text-is('the history of coupon:AUTUMN')")
    page.locator(".detail p[role=status]", has_text="It was deleted").wait_for()


def test_the_history_of_one_key_is_not_open_on_the_next(page: Any, server: Server) -> None:
    for name in ("first", "second"):
        kv(server, "SET", name, "1")
    at(page, "fake/kv_server/keys/first", ".detail .versions summary")
    page.click(".detail .versions summary")
    page.locator(".versions tbody tr").wait_for()
    page.click("table.rows a:text-is('second')")
    page.locator(".detail h2", has_text="second").wait_for()
    assert page.locator(".versions[open]").count() == 0
