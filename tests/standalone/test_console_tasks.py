"""Test everyday tasks in the console, each from the question to its action."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from ..harness import wait_until
from .conftest import Server
from .test_console import CHROMIUM, at, browser, go, holds, page, sent, window
from .test_console_work import kv, listed, press, publish_dead_letters, said, typed

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
ROWS = "document.querySelectorAll('table.rows tbody tr').length"
"""What the browser of a common phone shows of a page."""


# -- streams -----------------------------------------------------------------------------------------


def test_pending_entries_are_found_claimed_and_acknowledged(page: Any, server: Server) -> None:
    for number in (1, 2, 3, 4):
        kv(server, "XADD", "orders", f"{number}-0", "item", f"kettle {number}")
    kv(server, "XGROUP", "CREATE", "orders", "mailers", "0")
    kv(server, "XREADGROUP", "GROUP", "mailers", "ada", "COUNT", "3", "STREAMS", "orders", ">")
    server.ask("POST", "/clock", {"action": "advance", "by": "90s"})
    at(page, "fake/kv_server/keys/orders", ".detail details")
    assert "mailers · 1 not delivered · 3 pending" in page.inner_text(".detail")
    typed(page, "Claim entries of mailers", consumer="bob", idle="100000")
    said(page, "Claim entries of mailers", "Claimed 0 entries for bob.")
    page.click(".detail a:text-is('3 pending entries')")
    holds(page, f"{ROWS} === 3")
    assert "1 m 30 s" in page.inner_text("table.rows tbody tr")
    page.click("table.rows a:text-is('2-0')")
    page.locator(".detail pre[aria-label=fields]", has_text="kettle 2").wait_for()
    typed(page, "Claim", consumer="bob")
    page.locator(".detail dd", has_text="bob").wait_for()
    page.click(".facet:has-text('ada')")
    holds(page, f"{ROWS} === 2")
    page.check("[data-key='choose all']")
    press(page, "Acknowledge 2…", sure=True)
    wait_until(lambda: kv(server, "XPENDING", "orders", "mailers")[0] == 1)
    page.click(".facet:has-text('all')")
    page.click("table.rows a:text-is('2-0')")
    page.locator(".detail h2", has_text="2-0").wait_for()
    press(page, "Acknowledge")
    wait_until(lambda: kv(server, "XPENDING", "orders", "mailers")[0] == 0)


# -- all that matches --------------------------------------------------------------------------------


def test_all_messages_of_a_queue_are_cancelled_after_a_question(page: Any, server: Server) -> None:
    for target, body in [("/v2/queues", {"queueName": "mails"}), ("/v2/queues/mails/pause", "")]:
        server.ask("POST", "/fakes/queue/requests", {"target": target, "body": body})
    for number in range(120):
        sent(server, "queue", f"/v2/enqueue/mails/http://127.0.0.1:9/{number}")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/other", Upstash_Delay="1h")
    at(page, "fake/queue/queues/mails", ".detail h2")
    page.click(".detail a:text-is('Its messages')")
    page.locator("summary:text-is('Filters: queue mails')").wait_for()
    # What acts on all that is found is offered once all of the page are chosen.
    assert not page.locator("button", has_text="found…").count()
    page.check("[data-key='choose all']")
    page.click("button:text-is('Cancel 120 messages found…')")
    asked = page.inner_text("dialog")
    assert "Cancel the 120 messages that this search finds?" in asked
    assert "… and 112 more" in asked
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="Cancelled 120 messages.").wait_for()
    pending = server.ask("GET", "/fakes/queue/lists/messages?state=pending")[1]
    assert [message["url"] for message in pending["items"]] == ["http://127.0.0.1:9/other"]
    page.check("[data-key='choose all']")
    page.click("button:text-is('Cancel 120 messages found…')")
    page.locator("#notice", has_text="No message that this search finds can be chosen").wait_for()


def test_all_dead_letters_found_are_retried(page: Any, server: Server) -> None:
    publish_dead_letters(server, 3)
    # The badge of the queue opens its dead letters.
    page.click("nav a[aria-label='3 dead letters of queue']")
    holds(page, f"{ROWS} === 3")
    assert page.evaluate("location.hash") == "#/fake/queue/dead-letters"
    page.fill("#search", listed(server, "queue/lists/dead-letters")[0]["message"])
    page.locator("#count", has_text="1–1 of 1 found").wait_for()
    page.check("[data-key='choose all']")
    press(page, "Retry 1")
    wait_until(lambda: len(listed(server, "queue/lists/messages")) == 4)


# -- the clock ---------------------------------------------------------------------------------------


def test_a_long_move_shows_its_progress_and_is_stopped(page: Any, server: Server) -> None:
    state = server.ask("GET", "/state")[1]
    move = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T04:00:00Z", "events": 1234}
    state["clock"] = {**state["clock"], "now": "2026-01-01T01:00:00Z", "move": move}
    moves: list[Any] = []
    page.route("**/__control__/clock", lambda route: moves.append(route))
    page.route("**/__control__/state", lambda route: route.fulfill(json=state))
    try:
        page.click("[data-by='1h']")
        page.locator("#moving", has_text="25 %: 2026-01-01 01:00:00 UTC, 1,234 events").wait_for()
        assert page.locator("#moving progress").evaluate("(one) => one.value") == 0.25
        page.click("#stop-move")
        wait_until(lambda: page.wait_for_timeout(20) or len(moves) == 2)
        assert moves[1].request.post_data_json == {"action": "stop"}
        state["clock"]["move"] = None
        for route in moves:
            fired = [
                "2026-01-01T00:10:00+00:00 delivery of msg_1",
                "2026-01-01T01:00:00+00:00 retry",
            ]
            events = [{"kind": "wait", "what": line.split(" ", 1)[1], "row": 0} for line in fired]
            now = state["clock"]["now"]
            result = {"since": now, "now": now, "count": 2, "expired": 0, "undoable": False}
            moved = {"fired": fired, "expired": [], "events": events, "result": result}
            route.fulfill(json={**state["clock"], **moved})
        page.locator("#moving").wait_for(state="hidden")
        text = "Stopped at 2026-01-01 01:00:00 UTC, before 2026-01-01 04:00:00. "
        text += "2 events became due, the last: retry."
        page.locator("#notice", has_text=text).wait_for()
    finally:
        page.unroute("**/__control__/clock")
        page.unroute("**/__control__/state")


def test_times_have_their_distance_and_the_local_time(browser: Any, server: Server) -> None:
    made = sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Delay="2h")
    context = browser.new_context(timezone_id="Asia/Kolkata")
    page = go(context.new_page(), server)
    at(page, f"fake/queue/messages/{made['messageId']}", ".detail h2")
    due = "2026-01-01 02:00:00 UTC · in {} · 2026-01-01 07:30:00 local"
    page.locator(".detail dd", has_text=due.format("2 h")).wait_for()
    title = page.locator("table.rows time").first.get_attribute("title")
    assert title == "2026-01-01 00:00:00 UTC · now · 2026-01-01 05:30:00 local"
    server.ask("POST", "/clock", {"action": "advance", "by": "1h"})
    page.locator(".detail dd", has_text=due.format("1 h")).wait_for()
    context.close()


# -- bytes and marks ---------------------------------------------------------------------------------


def base64(server: Server, name: str, *args: str) -> Any:
    return server.call("kv_server", "execute", name, *args)


def test_binary_values_are_shown_and_edited_as_hexadecimal(page: Any, server: Server) -> None:
    sent(server, "kv_server", "/set/bytes/%ff%00abc/ex/60/")
    sent(server, "kv_server", "/hset/hash/field/%fe/")
    at(page, "fake/kv_server/keys/bytes", ".detail pre")
    assert page.inner_text(".detail pre") == "0000  ff 00 61 62 63           ..abc"
    typed(page, "Edit as hexadecimal", value="00ff zz")
    said(page, "Edit as hexadecimal", "must be pairs of hexadecimal digits")
    typed(page, "Edit as hexadecimal", value="00 FE\n61")
    page.locator(".detail pre", has_text="00 fe 61").wait_for()
    assert base64(server, "GET", "bytes") == {"base64": "AP5h"}
    assert kv(server, "TTL", "bytes") == 60
    at(page, "fake/kv_server/keys/hash", ".detail table")
    page.click("button[aria-label='Edit field']")
    typed(page, "Edit field", value="fd")
    page.locator(".detail td", has_text="fd").wait_for()
    assert base64(server, "HGET", "hash", "field") == {"base64": "/Q=="}
    page.click("button[aria-label='Remove field']")
    wait_until(lambda: kv(server, "EXISTS", "hash") == 0)


def test_keys_of_any_name_are_opened_and_deleted(page: Any, server: Server) -> None:
    sent(server, "kv_server", "/set/%ff%20key/x/")
    kv(server, "SET", "", "nameless")
    kv(server, "SET", "a\u202egnp", "left\u200bright")
    at(page, "fake/kv_server/keys", "table.rows")
    assert page.locator("table.rows a").all_inner_texts() == ['""', r"a\u202egnp", r"\xff key"]
    assert r"left\u200bright" in page.inner_text("table.rows")
    page.click("table.rows a:text-is('\"\"')")
    page.locator(".detail h2", has_text='""').wait_for()
    assert page.evaluate("location.hash") == "#/fake/kv_server/keys/"
    page.reload()
    page.locator(".detail h2", has_text='""').wait_for()
    press(page, "Delete")
    wait_until(lambda: kv(server, "EXISTS", "") == 0)
    page.click(r"table.rows a:text-is('\\xff key')")
    page.locator(".detail h2", has_text=r"\xff key").wait_for()
    typed(page, "Change TTL", seconds="100")
    page.locator(".detail", has_text="expires 2026-01-01 00:01:40 UTC").wait_for()
    press(page, "Delete")
    wait_until(lambda: kv(server, "DBSIZE") == 1)


# -- the command box ---------------------------------------------------------------------------------


def test_names_of_keys_are_completed(page: Any, server: Server) -> None:
    kv(server, "MSET", "user:1", "ada", "user:two words", "bob", "user*", "star", "other", "x")
    at(page, "fake/kv_server/commands", "#command")
    page.locator("#command").fill("")
    page.type("#command", "GET user:t")
    page.locator("#options [role=option]", has_text="user:two words").wait_for()
    page.keyboard.press("Tab")
    assert page.input_value("#command") == 'GET "user:two words" '
    page.keyboard.press("Enter")
    page.locator(".log .entry:first-child", has_text='"bob"').wait_for()
    # A second key, on the second line.
    page.keyboard.type("PING")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("EXISTS other user:")
    holds(page, "document.querySelectorAll('#options [role=option]').length === 2")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("#command") == "PING\nEXISTS other user:1 "
    page.keyboard.press("Enter")
    # The replies of several lines are in the order of the lines.
    page.locator(".log .entry:nth-child(2)", has_text="(integer) 2").wait_for()
    assert '"PONG"' in page.locator(".log .entry:first-child").inner_text()
    page.keyboard.type(r'SET b "\xff\x00"')
    page.keyboard.press("Enter")
    wait_until(lambda: base64(server, "GET", "b") == {"base64": "/wA="})
    page.keyboard.type("GET b")
    page.keyboard.press("Enter")
    dump = page.locator(".log .entry:first-child pre[aria-label='reply in hexadecimal']")
    dump.wait_for()
    assert dump.inner_text() == "0000  ff 00                    .."
    page.keyboard.type("MGET b other nowhere")
    page.keyboard.press("Enter")
    reply = page.locator(".log .entry:first-child pre", has_text="nil")
    reply.wait_for()
    assert reply.inner_text() == '1) "\\xff\\u0000"\n2) "x"\n3) (nil)'


# -- long journals and small screens -----------------------------------------------------------------


def test_a_long_journal_is_read_in_parts(page: Any, server: Server) -> None:
    for _ in range(1000):
        kv(server, "PING")
    parts: list[str] = []

    def note(request: Any) -> None:
        if "/journal?" in request.url:
            parts.append(request.url)

    page.on("request", note)
    page.goto("about:blank")
    go(page, server)
    at(page, "activity", ".trace-row")
    holds(page, "document.querySelector('.trace-tools output').textContent === '1,000 rows'")
    page.remove_listener("request", note)
    queries = [dict(parse_qsl(urlsplit(url).query)) for url in parts]
    assert len(queries) >= 3
    assert all(int(query.get("limit", 100)) <= 400 for query in queries), queries


def test_a_topic_shows_the_lag_of_its_groups_and_takes_records(page: Any, server: Server) -> None:
    for partition in (0, 0, 0, 1):
        record = {"topic": "orders", "value": "tea", "partition": partition}
        sent(server, "broker", "/produce", record)
    at(page, "fake/broker/topics/orders", "p:has-text('No consumer group has offsets of this')")
    server.call("broker", "commit", "billing", "orders", 0, 1)
    page.locator("th", has_text="lag of billing").wait_for()
    at(page, "fake/broker/topics/orders", ".detail [aria-label=partitions]")
    table = page.locator(".detail [aria-label=partitions]")
    assert table.locator("th").last.inner_text().lower() == "lag of billing"
    lags = "(all) => all.map((row) => row.lastChild.innerText)"
    assert table.locator("tbody tr").evaluate_all(lags) == ["2", "1"]
    typed(page, "Produce", value="cup", partition="0")
    table.locator("td a", has_text="3").last.wait_for()
    assert table.locator("tbody tr").evaluate_all(lags) == ["3", "1"]
    # The lag leads to the first record that the group has not read.
    table.locator("a.fault").first.click()
    holds(page, "document.getElementById('count').textContent.startsWith('1–3')")
    assert "offset=1" in page.url


def test_a_query_of_vectors_is_in_the_address(page: Any, server: Server) -> None:
    for number in range(4):
        vector = {"id": f"v{number}", "vector": [number, 1], "metadata": {"year": 1990 + number}}
        sent(server, "vector_index", "/upsert", [vector])
    at(page, "fake/vector_index/vectors", "table.rows")
    found = page.locator("form[aria-label=Query] .out tbody tr")
    typed(page, "Query", what="3 1", most="2", where="year < 1993")
    holds(page, "document.querySelectorAll('form[aria-label=Query] .out tbody tr').length === 2")
    assert [text.split()[0] for text in found.all_inner_texts()] == ["v2", "v1"]
    page.reload()
    found.first.wait_for()
    assert [text.split()[0] for text in found.all_inner_texts()] == ["v2", "v1"]
    assert page.input_value("form[aria-label=Query] [name=where]") == "year < 1993"
    typed(page, "Query", what="0, 1", most="1")
    page.locator("form[aria-label=Query] .out", has_text="v0").wait_for()
    page.go_back()
    page.locator("form[aria-label=Query] .out", has_text="v2").wait_for()
    assert page.input_value("form[aria-label=Query] [name=what]") == "3 1"
    # A hit is opened beside the list, and the query stays.
    found.first.locator("a").click()
    page.locator(".detail h2", has_text="v2").wait_for()
    assert found.count() == 2


def test_a_query_of_vectors_is_sent_once(page: Any, server: Server) -> None:
    def queries() -> int:
        rows = server.ask("GET", "/journal")[1]
        return sum(row["operation"] == "query" for row in rows)

    for number in range(3):
        sent(server, "vector_index", "/upsert", [{"id": f"v{number}", "vector": [number, 1]}])
    at(page, "fake/vector_index/vectors", "table.rows")
    typed(page, "Query", what="2, 1", most="2")
    found = page.locator("form[aria-label=Query] .out tbody tr")
    found.first.wait_for()
    # The list has been read again at the address of the query once its map shows the query.
    page.locator("svg.picture path.query").wait_for()
    found.first.locator("a").click()
    page.locator(".detail h2", has_text="v2").wait_for()
    page.go_back()
    page.locator(".detail").wait_for(state="hidden")
    assert (found.count(), queries()) == (2, 1)
    typed(page, "Query", what="2", most="2")
    said = page.locator("form[aria-label=Query] .out", has_text="dimension")
    said.wait_for()
    page.go_back()
    found.first.wait_for()
    assert queries() == 3


def test_a_form_that_was_sent_is_empty_and_links_to_what_became_of_it(
    page: Any, server: Server
) -> None:
    sent(server, "broker", "/produce", {"topic": "orders", "value": "old", "partition": 0})
    forms: tuple[tuple[str, str, dict[str, str], str, str], ...] = (
        ("broker/topics/orders", "Produce", {"value": "tea", "partition": "0"}, "value", "0-1"),
        ("broker/topics", "Create a topic", {"name": "mails"}, "name", "mails"),
        ("kv_server/keys", "New key", {"key": "colour", "value": "red"}, "key", "colour"),
        ("vector_index/vectors", "Upsert", {"id": "v1", "what": "1, 2"}, "id", "v1"),
        ("queue/queues", "Create a queue", {"name": "mails"}, "name", "mails"),
        ("queue/messages", "Publish a message", {"to": "http://127.0.0.1:9/x", "body": "b"},
         "body", "127.0.0.1:9/x"),
        ("queue/schedules", "Create a schedule", {"to": "http://127.0.0.1:9/x", "cron": "0 9 * * *"},
         "to", "127.0.0.1:9/x, 0 9 * * *"),
    )  # fmt: skip
    for place, form, values, emptied, opens in forms:
        at(page, f"fake/{place}", ".list")
        typed(page, form, **values)
        page.locator("#notice a").first.wait_for()
        assert page.input_value(f"form[aria-label='{form}'] [name={emptied}]") == "", form
        page.locator("#notice a").first.click()
        page.locator(".detail h2", has_text=opens).wait_for()
