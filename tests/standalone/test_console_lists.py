"""Test in the console that lists stay true: what follows, what was dropped, what comes first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Serve, Server
from .test_console import (
    CHROMIUM,
    COUNT,
    SEARCH,
    at,
    browser,
    command,
    go,
    holds,
    page,
    sent,
    window,
)
from .test_console_work import kv

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
BELOW = """() => [...document.querySelectorAll(".trace-row")].filter((row) =>
    row.getBoundingClientRect().top + 19 > innerHeight).length"""
"""How many of the rows near the window are below it."""
AT_END = "scrollY + innerHeight >= document.documentElement.scrollHeight - 1"


def newest_is_seen(page: Any, text: str) -> None:
    page.locator(".trace-row", has_text=text).wait_for(state="visible")
    holds(page, AT_END)


def newer_are_counted(page: Any) -> None:
    """Wait until the button counts the rows below the window, of which the last are not drawn."""
    holds(
        page,
        f"""() => {{
            const button = document.querySelector(".trace-newer");
            const drawn = [...document.querySelectorAll(".trace-row")];
            const last = Math.max(...drawn.map((row) => row.ariaPosInSet)), all = drawn[0].ariaSetSize;
            const below = ({BELOW})() + (all - last);
            return below ? !button.hidden && button.textContent === `${{below}} newer ↓` : button.hidden;
        }}""",
    )


def test_activity_follows_until_the_reader_scrolls_up(page: Any, server: Server) -> None:
    for number in range(120):
        kv(server, "SET", f"key:{number}", "x")
    at(page, "activity", ".trace-row")
    newest_is_seen(page, "key:119")
    # After a reload, whatever the height of the page was when it was scrolled.
    page.evaluate("scrollBy(0, -30)")
    page.reload()
    newest_is_seen(page, "key:119")
    kv(server, "SET", "after the reload", "x")
    newest_is_seen(page, "after the reload")
    # A page that grows does not end it, either.
    page.set_viewport_size({"width": 900, "height": 500})
    kv(server, "SET", "after the resize", "x")
    newest_is_seen(page, "after the resize")
    page.mouse.move(400, 350)
    page.mouse.wheel(0, -600)
    holds(page, f"!({AT_END})")
    for number in range(3):
        kv(server, "SET", f"unseen:{number}", "x")
    page.locator(".trace-row", has_text="key:").first.wait_for()
    newer_are_counted(page)
    assert not page.evaluate(AT_END)
    page.click(".trace-newer")
    newest_is_seen(page, "unseen:2")
    assert page.is_hidden(".trace-newer")
    kv(server, "SET", "followed again", "x")
    newest_is_seen(page, "followed again")


def test_a_selected_row_stays_and_newer_ones_are_counted(page: Any, server: Server) -> None:
    for number in range(60):
        kv(server, "SET", f"key:{number}", "x")
    at(page, "activity", ".trace-row")
    newest_is_seen(page, "key:59")
    page.locator(".trace-row", has_text="key:59").click()
    page.locator(".trace-pane h3", has_text="key:59").wait_for()
    before = page.locator(".trace-row", has_text="key:59").bounding_box()
    kv(server, "SET", "newer", "x")
    page.locator(".trace-row", has_text="newer").wait_for()
    newer_are_counted(page)
    assert page.locator(".trace-row", has_text="key:59").bounding_box() == before
    for number in range(30):
        kv(server, "SET", f"later:{number}", "x")
    holds(page, "!document.querySelector('.trace-newer').hidden")
    newer_are_counted(page)
    page.click(".trace-newer")
    page.locator(".trace-row", has_text="later:29").wait_for()
    assert page.evaluate(f"({BELOW})()") == 0
    # The details stay, and what is recorded later is followed beside them.
    assert page.is_visible(".trace-pane h3:has-text('key:59')")
    kv(server, "SET", "followed", "x")
    page.locator(".trace-row", has_text="followed").wait_for()
    holds(page, f"({BELOW})() === 0")


def test_a_selected_row_stays_in_view_when_filters_change(page: Any, server: Server) -> None:
    for number in range(400):
        words = ("LPUSH", "text", "x") if number % 40 == 20 else ("SET", "text", f"{number}")
        command(server, *words)
    at(page, "activity", ".trace-row")
    newest_is_seen(page, "SET text 399")
    page.fill("input[type=search]", "LPUSH")
    page.locator(".trace-row").nth(4).click()
    number = page.evaluate("Number(location.hash.match(/\\d+/)[0])")
    row = f".trace-row[data-number='{number}']"
    inside = f"""() => {{
        const row = document.querySelector("{row}"), box = row?.getBoundingClientRect();
        const from = document.querySelector(".trace-top").getBoundingClientRect().bottom;
        return box && box.top >= from - 1 && box.bottom <= innerHeight;
    }}"""
    for fill in ("", "LPUSH", "text", ""):
        page.fill("input[type=search]", fill)
        holds(page, inside)
        newer_are_counted(page)
    for status in ("failed", "", "failed"):
        page.select_option("select[aria-label=Status]", status)
        holds(page, inside)
        newer_are_counted(page)
    # Few hits without the selected row begin at the top of the list.
    page.fill("input[type=search]", "SET text 39")
    page.select_option("select[aria-label=Status]", "")
    holds(page, "(many => many > 5 && many < 20)(document.querySelectorAll('.trace-row').length)")
    first = page.locator(".trace-row").first.bounding_box()
    top = page.locator(".trace-top").bounding_box()
    assert -1 <= first["y"] - top["y"] - top["height"] < 60


ACTIVE = "document.activeElement"


@pytest.mark.parametrize("way", ["the button", "Escape", "Back"])
def test_closing_the_details_leaves_the_rows_where_they_are(
    page: Any, server: Server, way: str
) -> None:
    for number in range(200):
        kv(server, "SET", f"key:{number}", "x" * 50)
    at(page, "activity", ".trace-row")
    newest_is_seen(page, "key:199")
    page.mouse.move(600, 500)
    page.mouse.wheel(0, -2500)
    holds(page, "!document.querySelector('.trace-newer').hidden")
    in_view = "(row) => row.getBoundingClientRect().top"
    row = page.locator(".trace-row", has_text="key:100")
    row.click()
    page.locator(".trace-pane h3", has_text="key:100").wait_for()
    before = row.evaluate(in_view)
    if way == "the button":
        page.click("[aria-label='Close the details']")
    elif way == "Escape":
        page.keyboard.press("Escape")
    else:
        page.go_back()
    page.locator(".trace-pane").wait_for(state="hidden")
    assert abs(row.evaluate(in_view) - before) < 2
    assert page.is_visible(".trace-newer")


def test_lanes_leave_the_rows_where_they_are(page: Any, server: Server) -> None:
    for number in range(200):
        kv(server, "SET", f"key:{number}", "x" * 50)
    at(page, "activity", ".trace-row")
    newest_is_seen(page, "key:199")
    page.mouse.move(600, 500)
    page.mouse.wheel(0, -2500)
    holds(page, "!document.querySelector('.trace-newer').hidden")
    first = page.evaluate(
        """() => {
            const from = document.querySelector(".trace-top").getBoundingClientRect().bottom;
            return [...document.querySelectorAll(".trace-row")].find((row) =>
                row.getBoundingClientRect().top > from + 40).dataset.number;
        }"""
    )
    row, place = f".trace-row[data-number='{first}']", "(row) => row.getBoundingClientRect().top"
    before = page.locator(row).evaluate(place)
    for pressed in ("true", "false"):
        page.click(".trace-laned")
        page.locator(f".trace-laned[aria-pressed={pressed}]").wait_for()
        assert abs(page.locator(row).evaluate(place) - before) < 2
    # No button covers the head of a lane.
    page.click(".trace-laned")
    newer, heads = (page.locator(one).bounding_box() for one in (".trace-newer", ".trace-heads"))
    assert newer["y"] > heads["y"] + heads["height"]


def test_the_entry_of_activity_leads_to_the_newest_rows(page: Any, server: Server) -> None:
    for number in range(100):
        kv(server, "SET", f"key:{number}", "x")
    at(page, "activity", ".trace-row")
    newest_is_seen(page, "key:99")
    page.mouse.move(600, 500)
    page.mouse.wheel(0, -5000)
    page.locator(".trace-row", has_text="SET key:0 x").click()
    page.locator(".trace-pane h3", has_text="key:0").wait_for()
    page.click("#nav a:text-is('Activity')")
    page.locator(".trace-pane").wait_for(state="hidden")
    newest_is_seen(page, "key:99")
    assert page.evaluate("location.hash") == "#/activity"


def test_what_is_recorded_after_a_move_was_undone_comes_last(page: Any, server: Server) -> None:
    server.ask("POST", "/clock", {"action": "freeze"})
    kv(server, "SET", "short", "x", "EX", "60")
    server.ask("POST", "/clock", {"action": "advance", "by": "2m", "undoable": True})
    kv(server, "SET", "in the move", "x")
    server.ask("POST", "/clock/undo", {})
    kv(server, "SET", "after", "x")
    at(page, "activity", ".trace-row")
    texts = page.locator(".trace-list > :is(.trace-row, .trace-gap)")
    texts.filter(has_text="SET after").wait_for()
    order = texts.evaluate_all(
        "(all) => all.sort((one, other) => one.getBoundingClientRect().top"
        " - other.getBoundingClientRect().top).map((one) => one.textContent)"
    )
    named = ("EX 60", "expired: short", "in the move", "the clock went back", "restored", "after x")
    assert [next(at for at, text in enumerate(order) if name in text) for name in named] == sorted(
        next(at for at, text in enumerate(order) if name in text) for name in named
    )
    assert "after x" in order[-1]


def test_focus_moves_into_what_was_opened_and_back_to_its_row(page: Any, server: Server) -> None:
    for number in range(20):
        kv(server, "SET", f"session:{number}", f"ada {number}")
    at(page, "search", SEARCH)
    page.keyboard.type("session:9")
    page.keyboard.press("Enter")
    holds(page, f"{ACTIVE}.matches('.detail h2') && {ACTIVE}.textContent === 'session:9'")
    page.keyboard.press("Tab")
    assert page.evaluate(f"{ACTIVE}.closest('.detail') !== null")
    page.keyboard.press("Escape")
    holds(page, f"{ACTIVE}.matches('.list a[data-key]') && {ACTIVE}.textContent === 'session:9'")
    page.keyboard.press("Enter")
    holds(page, f"{ACTIVE}.matches('.detail h2')")
    page.keyboard.press("Escape")
    holds(page, f"{ACTIVE}.matches('.list a[data-key]')")
    # Moving along the list keeps the focus in it.
    page.locator(".list a", has_text="session:12").click()
    holds(page, f"{ACTIVE}.matches('.detail h2')")
    page.keyboard.press("j")
    page.locator(".detail h2", has_text="session:13").wait_for()
    assert page.evaluate(f"{ACTIVE}.textContent") == "session:13"
    assert page.evaluate(f"{ACTIVE}.closest('.list') !== null")


def test_focus_moves_into_an_opened_call_and_back_to_its_row(page: Any, server: Server) -> None:
    for number in range(20):
        kv(server, "SET", f"key:{number}", f"word{number}")
    at(page, "search", SEARCH)
    page.keyboard.type("word7")
    page.locator("li a", has_text="SET key:7").focus()
    page.keyboard.press("Enter")
    page.locator(".trace-pane h3", has_text="key:7").wait_for()
    holds(page, f"{ACTIVE}.matches('.trace-pane')")
    page.keyboard.press("Escape")
    holds(page, f"{ACTIVE}.matches('.trace-list')")
    page.keyboard.press("ArrowDown")
    page.locator(".trace-pane h3", has_text="key:7").wait_for()


def test_a_row_that_is_opened_by_its_address_stays_in_view(page: Any, server: Server) -> None:
    for number in range(1200):
        kv(server, "SET", "text", f"{number}")
        if number % 7 == 3:
            server.ask("POST", "/clock", {"action": "advance", "by": "5s"})
    last = server.ask("GET", "/state")[1]["latest"]
    middle = last - 500
    page.goto("about:blank")
    page.goto(f"{server.url}/#/activity/{middle}")
    page.locator(f".trace-row[data-number='{middle}']").wait_for()
    holds(page, f"{COUNT} === '1,200 rows'")
    box = page.locator(f".trace-row[data-number='{middle}']").bounding_box()
    assert 100 < box["y"] < 700
    # The last row is where it was selected, too, when the rows above it arrive after a reload.
    at(page, f"activity/{last}", f".trace-row[data-number='{last}']")
    page.reload()
    page.locator(f".trace-row[data-number='{last}']").wait_for()
    holds(page, f"{COUNT} === '1,200 rows'")
    box = page.locator(f".trace-row[data-number='{last}']").bounding_box()
    assert box["y"] > 500


def test_a_chatty_fake_leaves_the_history_of_the_others(browser: Any, serve: Serve) -> None:
    chatty = serve("--now", "2026-01-01T00:00:00Z", "--journal-entries", "40")
    sent(chatty, "queue", "/v2/publish/http://127.0.0.1:9/once", Upstash_Delay="1h")
    for _ in range(3):
        chatty.ask("POST", "/clock", {"action": "advance", "by": "1m"})
        kv(chatty, "PING")
    chatty.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    for number in range(80):
        kv(chatty, "SET", f"key:{number}", "x")
    opened = go(browser.new_page(bypass_csp=True), chatty)
    at(opened, "activity?fake=queue", ".trace-row")
    assert "/once" in opened.inner_text(".trace-row")
    fakes = {fake["name"]: fake for fake in chatty.ask("GET", "/state")[1]["fakes"]}
    assert (fakes["queue"]["forgotten"], fakes["queue"]["recorded_since"]) == (0, None)
    assert fakes["kv_server"]["forgotten"] >= 40
    assert fakes["kv_server"]["recorded_since"] == "2026-01-01T00:04:00+00:00"
    text = f"{fakes['kv_server']['forgotten']} older rows of kv_server were dropped"
    opened.locator(".dropped", has_text=text).wait_for()
    assert "its rows begin at 2026-01-01 00:04:00" in opened.inner_text(".dropped")
    opened.fill("input[type=search]", "key:0 ")
    opened.select_option("select[aria-label=Fake]", "kv_server")
    opened.locator(".trace-empty", has_text=text).wait_for()
    opened.close()


def test_what_a_search_names_comes_first(page: Any, server: Server) -> None:
    names = [f"cart:user:1:{number:03}" for number in range(150)]
    names += ["user:10", "user:1", "other"]
    kv(server, "MSET", *(word for name in names for word in (name, "x")))
    kv(server, "SET", "a-copy", "user:1")
    at(page, "fake/kv_server/keys?search=user:1", "table.rows")
    holds(page, "document.querySelectorAll('table.rows tbody tr').length === 100")
    shown = page.locator("table.rows tbody a[data-key]").all_inner_texts()
    assert shown[:4] == ["user:1", "a-copy", "user:10", "cart:user:1:000"]
    # The pages go on in the same order.
    page.click("a:text-is('Next →')")
    page.locator("#count", has_text="101–153").wait_for()
    assert "user:1" not in page.locator("table.rows tbody a[data-key]").all_inner_texts()
    page.click("a:text-is('← Previous')")
    page.locator("#count", has_text="1–100").wait_for()
    at(page, "search?search=user:1", ".sentences li a")
    assert page.inner_text(".sentences li a") == "user:1"


def test_why_a_delivery_failed_is_said_in_no_language_of_programs(
    page: Any, server: Server
) -> None:
    made = sent(server, "queue", "/v2/publish/https://app.example/nobody", Upstash_Retries="0")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/refused", Upstash_Retries="0")
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    at(page, "activity", ".trace-row")
    for text in ("no destination answers this address", "connection refused: no server"):
        page.locator(".trace-row", has_text=text).first.wait_for()
    at(page, f"fake/queue/messages/{made['messageId']}", ".detail .spans")
    page.locator(".detail", has_text="no destination answers this address").wait_for()
    rows = server.ask("GET", "/journal")[1]
    for text in (str(rows), page.inner_text(".detail"), str(listed_messages(server))):
        assert "wsgi(" not in text
        assert "UnstubbedDestinationError(" not in text


def listed_messages(server: Server) -> Any:
    return server.ask("GET", "/fakes/queue/attempts")[1]


def test_kinds_of_events_differ_in_colour(page: Any, server: Server) -> None:
    at(page, "time")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours = page.evaluate(
            """(kinds) => kinds.map((kind) => {
                const one = document.createElement("i");
                one.className = `kind-${kind} span-bar`;
                document.querySelector("#view").append(one);
                const found = getComputedStyle(one).backgroundColor;
                one.remove();
                return found;
            })""",
            ["delivery", "callback", "wait", "sleep", "schedule", "other"],
        )
        assert len(set(colours)) == 6, (scheme, colours)


def test_the_focus_stays_on_the_page_when_its_button_goes(page: Any, server: Server) -> None:
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/later", Upstash_Delay="1h")
    at(page, "time", "button:text-is('Move there')")
    page.focus("button:text-is('Move there')")
    page.keyboard.press("Enter")
    page.locator("button:text-is('Move there')[aria-label$='01:00:00+00:00']").wait_for(
        state="detached"
    )
    holds(page, "document.activeElement.closest('#view') !== null")


def test_a_run_that_waits_does_not_look_like_one_that_runs(page: Any, server: Server) -> None:
    sent(
        server, "queue", "/v2/trigger/http://127.0.0.1:9/flow",
        Upstash_Workflow_RunId="wfr_later", Upstash_Delay="1h",
    )  # fmt: skip
    at(page, "fake/queue/runs", "table.rows")
    page.locator("table.rows .pill.asleep:text-is('waiting')").wait_for()
    destination = {"url": "http://127.0.0.1:9/now", "answer": "hang"}
    server.ask("POST", "/fakes/queue/destinations", destination)
    sent(server, "queue", "/v2/trigger/http://127.0.0.1:9/now", Upstash_Workflow_RunId="wfr_now",
         Upstash_Forward_Upstash_Workflow_Sdk_Version="1")  # fmt: skip
    page.locator("table.rows .pill:text-is('running')").wait_for()
    looks = page.evaluate(
        """() => [...document.querySelectorAll("table.rows .pill")].map((one) => {
            const style = getComputedStyle(one);
            return `${style.color} ${style.borderStyle}`;
        })"""
    )
    assert len(set(looks)) == 2
    chip = page.locator(".facet[data-key='facet started']")
    assert chip.inner_text() == "running or waiting 2"


def test_runs_of_a_workflow_differ_in_the_list_beside_details(page: Any, server: Server) -> None:
    ids = []
    server.ask("POST", "/clock", {"action": "move_to", "to": "2026-01-01T09:30:00Z"})
    server.ask(
        "POST", "/fakes/queue/destinations", {"url": "http://127.0.0.1:9/flow", "answer": 500}
    )
    for _ in range(2):
        made = sent(
            server, "queue", "/v2/trigger/http://127.0.0.1:9/flow", Upstash_Retries="0",
            Upstash_Forward_Upstash_Workflow_Sdk_Version="1",
        )  # fmt: skip
        ids.append(made["workflowRunId"])
        server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    at(page, f"fake/queue/runs/{ids[0]}", ".detail .span-item, .detail h2")
    heads = page.locator("table.rows thead th:visible").all_inner_texts()
    assert [head.split()[0] for head in heads if head.strip()] == [
        "started", "workflow", "state", "input", "now,",
    ]  # fmt: skip
    texts = page.locator("table.rows tbody tr").all_inner_texts()
    assert [text.split()[0] for text in texts] == ["09:31:00", "09:30:00"]


def test_what_options_name_is_there_beside_a_kept_state(serve: Serve, tmp_path: Any) -> None:
    options = ("broker", "queue", "--random", "--state", str(tmp_path / "work.json"))
    first = serve(*options, "--broker", 'topics={"orders": 2, "mails": 3}')
    sent(first, "broker", "/produce", {"topic": "orders", "value": "kept", "partition": 1})
    first.process.terminate()
    first.process.wait(20)
    topics = 'topics={"orders": 4, "mails": 1, "new": 2}'
    again = serve(
        *options, "--broker", topics, "--forward", "https://app.example=http://127.0.0.1:9"
    )
    found = again.ask("GET", "/fakes/broker/lists/topics")[1]["items"]
    partitions = {topic["name"]: len(topic["partitions"]) for topic in found}
    assert partitions == {"orders": 4, "mails": 3, "new": 2}
    assert {topic["name"]: topic["records"] for topic in found}["orders"] == 1
    destinations = again.ask("GET", "/fakes/queue/destinations")[1]
    assert [one["url"] for one in destinations] == ["https://app.example"]


@pytest.mark.parametrize("name", ["kv_server", "vector_index", "broker", "queue"])
def test_the_page_of_a_fake_has_the_address_of_its_first_list(
    page: Any, server: Server, name: str
) -> None:
    at(page, f"fake/{name}", ".fake input[type=search]")
    holds(page, f"location.hash.startsWith('#/fake/{name}/')")
    page.fill(".fake input[type=search]", "wanted")
    holds(page, "location.hash.includes('wanted')")


def test_a_link_to_what_failed_keeps_its_filter_and_is_one_step(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "x")
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["INCR", "a"]})
    at(page, "overview", "table[aria-label=errors], [aria-label=errors] a")
    page.click("[aria-label=errors] a")
    page.locator(".trace-pane h3", has_text="INCR").wait_for()
    holds(page, "/^#.activity.\\d+\\?fake=kv_server&problems=yes$/.test(location.hash)")
    assert page.locator(".trace-row").count() == 1
    page.go_back()
    page.locator("h1", has_text="Overview").wait_for()
    page.go_forward()
    page.locator(".trace-pane h3", has_text="INCR").wait_for()
    assert page.locator(".trace-row").count() == 1
    page.click("button[aria-label='Clear all filters']")
    holds(page, "/^#.activity.\\d+$/.test(location.hash)")
    assert page.locator(".trace-row").count() == 2
    assert page.is_hidden("button[aria-label='Clear all filters']")


def test_filters_are_cleared_where_one_is_set(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "x")
    kv(server, "RPUSH", "b", "x")
    clear = page.locator("button[aria-label='Clear all filters']")
    at(page, "fake/kv_server/keys", "table.rows")
    assert clear.is_hidden()
    page.fill("#search", "a")
    holds(page, "document.querySelectorAll('table.rows tbody tr').length === 1")
    clear.click()
    holds(page, "document.querySelectorAll('table.rows tbody tr').length === 2")
    assert clear.is_hidden()
    at(page, "fake/queue/messages?status=5xx", ".list")
    clear.click()
    holds(page, "location.hash === '#/fake/queue/messages'")
    at(page, "activity?status=failed", ".trace-empty")
    clear.click()
    holds(page, "location.hash === '#/activity'")


def test_the_calls_about_an_item_are_found_in_activity(page: Any, server: Server) -> None:
    kv(server, "PUBLISH", "news", "hello")
    sent(server, "broker", "/produce", {"topic": "orders", "value": "tea", "partition": 1})
    cron = {"Upstash_Cron": "5 0 * * *", "Upstash_Retries": "0", "Upstash_Schedule_Id": "daily"}
    sent(server, "queue", "/v2/schedules/http://127.0.0.1:9/x", **cron)
    requests: dict[str, Any] = {
        "/v2/topics/all/endpoints": {"endpoints": [{"url": "http://127.0.0.1:9/x"}]},
        "/v2/queues": {"queueName": "mails"},
        "/v2/queues/mails/pause": "",
        "/v2/schedules/daily/pause": "",
    }
    for target, body in requests.items():
        request = {"method": "POST", "target": target, "body": body}
        server.ask("POST", "/fakes/queue/requests", request)
    sent(server, "vector_index", "/upsert", {"id": "v", "vector": [1, 2]})
    found = {
        "broker/records/1-0?topic=orders": "produce",
        "queue/url-groups/all": "/v2/topics/all/endpoints",
        "queue/queues/mails": "/v2/queues/mails/pause",
        "queue/schedules/daily": "/v2/schedules/daily/pause",
        "vector_index/namespaces/(default)": "upsert",
    }
    for place, call in found.items():
        at(page, f"fake/{place}", ".detail-head")
        page.click(".detail-head a:has-text('In Activity')")
        page.locator(".trace-row", has_text=call).first.wait_for()
        assert page.locator(".trace-row", has_text="PUBLISH").count() == 0


def test_dead_letters_beside_open_details_are_told_apart_and_can_be_selected(
    page: Any, server: Server
) -> None:
    for name in ("ada", "bob"):
        sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", {"to": name}, Upstash_Retries="0")
    at(page, "fake/queue/dead-letters", "tbody a")
    page.locator("tbody a").first.click()
    page.locator(".detail h2").wait_for()
    for name in ("ada", "bob"):
        assert page.locator("table.rows td:visible", has_text=name).count() == 1
    cut = page.locator("table.rows td.fill").evaluate_all(
        "(all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)"
    )
    assert cut == []
    # A row is one line.
    heights = page.locator("table.rows tr").evaluate_all(
        "(all) => all.map((one) => one.offsetHeight)"
    )
    assert max(heights) < 40
    page.locator("label.check:has-text('all 2'):visible").click()
    page.locator("button:text-is('Delete 2…'):visible").wait_for()


def test_one_form_of_a_list_is_open_and_covers_no_row(page: Any, server: Server) -> None:
    sent(server, "vector_index", "/upsert", body=[{"id": "v1", "vector": [1, 0]}])
    covered = """() => [...document.querySelectorAll("table.rows a")].filter((link) => {
        const {x, y} = link.getBoundingClientRect();
        return y < innerHeight && !link.contains(document.elementFromPoint(x + 2, y + 4));
    }).length"""
    for width, height in ((1280, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        at(page, "fake/vector_index/vectors", "table.rows tbody a")
        for name in ("Query", "Upsert"):
            page.click(f".list summary:text-is('{name}')")
            page.locator(
                f"form[aria-label='{name}'] textarea, form[aria-label='{name}'] input"
            ).first.wait_for()
            assert page.locator(".list details.form[open]").count() == 1
            assert page.evaluate(covered) == 0


def test_the_details_of_a_row_have_its_data_before_the_whole_request(
    page: Any, server: Server
) -> None:
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Retries="0")
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text="attempt 1").click()
    page.locator(".trace-pane summary:text-is('Waterfall')").wait_for()
    data, waterfall = (
        page.locator(f".trace-pane {part}").bounding_box()["y"]
        for part in ("h4:text-is('Data before and after')", "summary:text-is('Waterfall')")
    )
    assert data < waterfall


def test_the_search_of_a_list_is_that_of_the_address_while_it_has_the_focus(
    page: Any, server: Server
) -> None:
    kv(server, "MSET", "one", "1", "two", "2")
    at(page, "fake/kv_server/keys?search=one", "tbody a")
    page.focus(SEARCH)
    page.evaluate("location.hash = '#/fake/kv_server/keys?search=two'")
    holds(page, "document.querySelector('input[type=search]').value === 'two'")
    page.locator("tbody a", has_text="two").wait_for()


def test_closed_details_are_not_opened_by_going_back(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    at(page, "time", "h1:text-is('Time')")
    at(page, "fake/kv_server/keys", "tbody a")
    page.click("tbody a")
    page.locator(".detail h2").wait_for()
    page.click("[aria-label='close the details']")
    page.locator(".detail").wait_for(state="hidden")
    page.go_back()
    page.wait_for_timeout(0)
    assert page.locator(".detail").is_hidden()


def test_errors_that_clients_expect_count_as_failed_nowhere(page: Any, server: Server) -> None:
    command(server, "CLIENT", "MAINT_NOTIFICATIONS", "ON")
    command(server, "INCR")
    at(page, "violations", "a:text-is('1 failed call')")
    page.locator("a:text-is('1 error that clients expect')").wait_for()
    at(page, "activity", ".trace-row")
    page.locator("label:has-text('Failed or faulty (1)')").wait_for()
    assert page.locator(".trace-row.trace-failed").count() == 1
    assert page.locator(".trace-row .trace-bad").count() == 1


FILTERS = ":is(input[type=search], select, button:not([hidden]), label, summary)"
PLACES = f"""() => [...document.querySelectorAll(".trace-tools > {FILTERS}")]
    .filter((one) => one.checkVisibility() && !one.matches("[aria-label^=Clear]"))
    .map((one) => Math.round(one.getBoundingClientRect().left))"""
"""The left sides of the filters of Activity."""


def test_no_filter_of_activity_moves_the_others(page: Any, server: Server) -> None:
    for number in range(20):
        kv(server, "SET", f"key:{number}", "1")
    page.set_viewport_size({"width": 1280, "height": 800})
    at(page, "activity", ".trace-row")
    before = page.evaluate(PLACES)
    for name, value in (("Status", "expected"), ("Fake", "kv_server"), ("Status", "failed")):
        page.select_option(f"select[aria-label={name}]", value)
        assert page.evaluate(PLACES) == before
    page.set_viewport_size({"width": 390, "height": 844})
    for name in ("Status", "Fake"):
        assert page.locator(f"select[aria-label={name}]").is_visible()
    assert page.locator(".trace-tools output").is_visible()


def test_a_search_shows_json_as_values_and_messages_by_their_destination(
    page: Any, server: Server
) -> None:
    made = sent(
        server, "queue", "/v2/publish/http://127.0.0.1:9/mail", {"text": json.dumps({"of": "tea"})},
        Upstash_Delay="1h",
    )  # fmt: skip
    at(page, "search?search=tea", "li a")
    hit = page.locator("li", has_text=f"POST 127.0.0.1:9/mail {made['messageId']}")
    hit.filter(has_text='{"of": "tea"}').first.wait_for()


def test_rows_beside_details_show_what_tells_them_apart(page: Any, server: Server) -> None:
    value = json.dumps({"kind": "a session of the shop", "of": "ada"})
    for number in range(12):
        key = f"session:of:the:shop:in:the:north:{number}"
        kv(server, "SET", key, value[:-2] + f'{number}", "n": "0", "cart": "{"x" * 50}"}}')
    page.set_viewport_size({"width": 1280, "height": 800})
    at(page, "fake/kv_server/keys", "table.rows")
    page.locator("table.rows tbody a").first.click()
    page.locator(".detail:not([hidden]) h2").wait_for()
    # What is the same in all rows gives way: a column, and the beginning of texts.
    assert page.locator("table.rows th:visible").all_inner_texts() == ["key", "value"]
    seen = """() => [...document.querySelectorAll("table.rows tbody tr")].map((row) =>
        [...row.querySelectorAll(".cut")].map((cut) => {
            const range = document.createRange(), {right} = cut.closest("td").getBoundingClientRect();
            const text = cut.lastChild.firstChild;
            range.setStart(text, 0);
            range.setEnd(text, Math.min(4, text.length));
            return range.getBoundingClientRect().right <= right;
        }))"""
    assert page.evaluate(seen) == [[True, True]] * 12
    texts = page.locator("table.rows tbody .cut").evaluate_all(
        "(all) => all.map((one) => one.title)"
    )
    assert texts[:2] == [
        "session:of:the:shop:in:the:north:0",
        # A value is as it was written.
        value[:-2] + f'0", "n": "0", "cart": "{"x" * 50}"}}',
    ]  # fmt: skip


CONTROLS = """() => [...document.querySelectorAll(".trace-tools > :is(input, select, button, label)")]
    .filter((one) => one.checkVisibility({visibilityProperty: true}))
    .map((one) => [one.ariaLabel ?? one.textContent, one.getBoundingClientRect().toJSON()])"""
"""Return the controls of Activity, with the places of their borders."""


@pytest.mark.parametrize("width", [1280, 1440])
def test_the_controls_of_activity_keep_their_places(page: Any, server: Server, width: int) -> None:
    kv(server, "SET", "a", "1")
    command(server, "LPUSH", "a", "1")
    page.evaluate("localStorage.removeItem('calls over time')")
    page.set_viewport_size({"width": width, "height": 800})
    at(page, "activity", ".trace-row")
    page.reload()
    # All rows are known.
    page.locator(".trace-tools label", has_text="faulty (1)").wait_for()
    assert page.locator(".trace input[type=search]").bounding_box()["width"] >= 220
    before = page.evaluate(CONTROLS)
    for name in ("Over time", "Lanes"):
        page.click(f".trace-tools button:text-is('{name}')")
        assert page.evaluate(CONTROLS) == before
    page.locator(".trace-row", has_text="LPUSH").click()
    page.locator(".trace-pane h3", has_text="LPUSH").wait_for()
    assert page.evaluate(CONTROLS) == before


def test_the_row_of_an_item_that_is_opened_stays_under_the_pointer(
    page: Any, server: Server
) -> None:
    for number in range(60):
        kv(server, "SET", f"key:{number:02}", "a long value " * 20)
    kv(server, "SADD", "tags", "a")
    page.set_viewport_size({"width": 1280, "height": 800})
    at(page, "fake/kv_server/keys", "table.rows")
    row = page.locator("table.rows tbody tr").nth(5)
    before = row.bounding_box()["y"]
    row.click()
    page.locator(".detail h2").wait_for()
    assert abs(row.bounding_box()["y"] - before) < 2
    page.keyboard.press("Escape")
    page.locator(".detail").wait_for(state="hidden")
    assert abs(row.bounding_box()["y"] - before) < 2


def test_lanes_without_room_are_not_offered(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/a-long-name", Upstash_Retries="0")
    sent(server, "broker", "/produce/orders", [{"value": "1"}])
    page.set_viewport_size({"width": 1280, "height": 800})
    at(page, "activity?lanes=yes", ".trace-lanes")
    lanes = page.locator("button:text-is('Lanes')")
    assert lanes.get_attribute("aria-pressed") == "true"
    page.locator(".trace-row", has_text="SET a").click()
    page.locator(".trace-pane h3").wait_for()
    if page.locator(".trace-lanes").count() == 0:
        assert lanes.get_attribute("aria-pressed") == "false"
        assert lanes.is_disabled()
        assert "close the details" in lanes.get_attribute("title")
    page.keyboard.press("Escape")
    page.locator(".trace-lanes").first.wait_for()
    assert lanes.get_attribute("aria-pressed") == "true"


def test_a_phone_filters_what_failed(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    command(server, "LPUSH", "a", "1")
    page.set_viewport_size({"width": 390, "height": 844})
    at(page, "activity", ".trace-row")
    page.click("label:has-text('Failed or faulty')")
    holds(page, "document.querySelectorAll('.trace-row').length === 1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_calls_that_an_application_repeats_are_hidden_on_request(page: Any, server: Server) -> None:
    for number in range(4):
        kv(server, "GET", f"session:{number}")
        kv(server, "GET", f"user:{number}")
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text="GET session:2").click()
    page.click(".trace-pane button:text-is('Hide calls like this')")
    page.locator(".trace-row", has_text="session").first.wait_for(state="detached")
    assert page.locator(".trace-row", has_text="GET user").count() == 4
    # The address has it, and others can be hidden, too, until all are shown again.
    page.reload()
    page.locator(".trace-row", has_text="GET user:1").click()
    page.click(".trace-pane button:text-is('Hide calls like this')")
    page.locator(".trace-row").first.wait_for(state="detached")
    page.click(".trace-chip:has-text('without kv_server GET session:#, kv_server GET user:#')")
    page.locator(".trace-row", has_text="GET session:2").wait_for()
    assert page.locator(".trace-row").count() == 8
