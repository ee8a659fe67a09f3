"""Test each action of the console in a real browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.table.versions import ONLY_STOCK

from ..faults.conftest import ARGUMENTS
from ..harness import together, wait_until
from .conftest import Server
from .test_console import (
    CHROMIUM,
    COUNT,
    SEARCH,
    Window,
    at,
    browser,
    command,
    go,
    holds,
    page,
    sent,
    window,
)  # fmt: skip

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

AXE = Path(__file__).parents[1].joinpath("clients/js/node_modules/axe-core/axe.min.js")
"""The script of axe-core; the test that needs it is skipped without."""


def typed(page: Any, form: str, **fields: str) -> None:
    """Open a form, fill it and send it."""
    locator = page.locator(f"form[aria-label='{form}']").first
    locator.wait_for(state="attached")
    if not locator.is_visible():
        page.locator(f"summary:text-is('{form}')").first.click()
    for name, value in fields.items():
        field = locator.locator(f"[name='{name}']")
        if field.evaluate("(one) => one.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    locator.locator("button[type=submit]").click()


def said(page: Any, form: str, text: str) -> None:
    page.locator(f"form[aria-label='{form}'] .out", has_text=text).first.wait_for()


def press(page: Any, label: str, *, sure: bool = False) -> None:
    """Press a button by its text; with ``sure``, also the one that the question has for it."""
    page.locator(f"#view button:text-is('{label}')").first.click()
    if sure:
        page.click("dialog button[value=yes]")
        page.locator("dialog").wait_for(state="detached")


def kv(server: Server, *command: str) -> Any:
    """Run a command and return its reply."""
    return sent(server, "kv_server", body=list(command))["result"]


def listed(server: Server, path: str) -> list[Any]:
    status, listing = server.ask("GET", f"/fakes/{path}")
    assert status == 200
    items: list[Any] = listing["items"]
    return items


# -- key-value ---------------------------------------------------------------------------------------


def test_all_of_many_keys_can_be_reached_and_found(page: Any, server: Server) -> None:
    for start in range(0, 2005, 401):
        pairs = [word for number in range(start, start + 401) for word in (f"key:{number:04}", "x")]
        kv(server, "MSET", *pairs)
    at(page, "fake/kv_server/keys", "table.rows")
    assert page.inner_text("#count") == "1–100 of 2,005 keys"
    page.click("text=Next →")
    holds(page, "document.getElementById('count').textContent === '101–200 of 2,005 keys'")
    page.click("text=← Previous")
    holds(page, "document.getElementById('count').textContent.startsWith('1–100')")
    page.fill("#search", "key:1999")
    holds(page, "document.getElementById('count').textContent === '1–1 of 1 found in 2,005 keys'")
    assert page.inner_text("table.rows a") == "key:1999"
    page.fill("#search", "nowhere")
    page.locator(".empty", has_text="Search looks at all 2,005 keys").wait_for()


def test_a_key_is_added_edited_given_a_ttl_and_deleted(page: Any, server: Server) -> None:
    at(page, "fake/kv_server/keys", ".empty")
    typed(page, "New key", key="greeting", value="hello", ttl="60")
    page.locator(".detail h2", has_text="greeting").wait_for()
    assert (kv(server, "GET", "greeting"), kv(server, "TTL", "greeting")) == ("hello", 60)
    typed(page, "Value", value="good day")
    page.locator("#notice", has_text="Saved; the TTL stays.").wait_for()
    assert (kv(server, "GET", "greeting"), kv(server, "TTL", "greeting")) == ("good day", 60)
    typed(page, "Change TTL", seconds="")
    page.locator(".detail .tools", has_text="no TTL").first.wait_for()
    assert kv(server, "TTL", "greeting") == -1
    press(page, "Delete")
    page.locator(".empty", has_text="No keys yet.").wait_for()


@pytest.mark.parametrize(
    ("command", "fields", "changed", "read"),
    [
        (["HSET", "k", "f", "1"], {"value": "2"}, ["f", "2"], ["HGETALL", "k"]),
        (["RPUSH", "k", "a"], {"value": "b"}, ["b"], ["LRANGE", "k", "0", "-1"]),
        (["ARSET", "k", "7", "a"], {"value": "b"}, [[7, "b"]], ["ARSCAN", "k", "0", "9"]),
        (
            ["ZADD", "k", "1", "m"],
            {"score": "2"},
            ["m", "2"],
            ["ZRANGE", "k", "0", "-1", "WITHSCORES"],
        ),
    ],
)
def test_elements_are_edited(
    page: Any,
    server: Server,
    command: list[str],
    fields: dict[str, str],
    changed: Any,
    read: list[str],
) -> None:
    kv(server, *command)
    at(page, "fake/kv_server/keys/k", ".detail table")
    press(page, "Edit")
    name = page.locator("form[aria-label^=Edit]").get_attribute("aria-label")
    typed(page, name, **fields)
    wait_until(lambda: kv(server, *read) == changed)


def test_elements_are_added_and_removed(page: Any, server: Server) -> None:
    kv(server, "SADD", "tags", "red")
    at(page, "fake/kv_server/keys/tags", ".detail table")
    typed(page, "Add an element", member="blue")
    page.locator(".detail td", has_text="blue").wait_for()
    page.click("button[aria-label='Remove red']")
    wait_until(lambda: kv(server, "SMEMBERS", "tags") == ["blue"])


def test_an_array_is_created_extended_and_shrunk(page: Any, server: Server) -> None:
    at(page, "fake/kv_server/keys", ".empty")
    typed(page, "New key", key="log", type="array", value="a\nb")
    page.locator(".detail td", has_text="b").wait_for()
    typed(page, "Add an element", index="18446744073709551614", value="z")
    page.locator(".detail td", has_text="18446744073709551614").wait_for()
    page.click("button[aria-label='Remove 0']")
    pairs = [[1, "b"], ["18446744073709551614", "z"]]
    wait_until(lambda: kv(server, "ARSCAN", "log", "0", "18446744073709551614") == pairs)


def test_vectors_of_a_key_are_added_and_removed(page: Any, server: Server) -> None:
    kv(server, "VECTOR.CREATE", "v", "DIM", "2", "METRIC", "DOT")
    kv(server, "VECTOR.ADD", "v", "a", "VALUES", "2", "1", "0.5")
    at(page, "fake/kv_server/keys/v", ".detail table")
    typed(page, "Add an element", id="b", vector="[0, 1]")
    page.locator(".detail td", has_text="[0.0, 1.0]").wait_for()
    page.click("button[aria-label='Remove a']")
    wait_until(lambda: kv(server, "VECTOR.COUNT", "v") == 1)


def test_a_command_is_completed_explained_and_its_reply_typed(page: Any, server: Server) -> None:
    at(page, "fake/kv_server/commands", "#command")
    page.locator("#command").fill("")
    # The commands come with the page; Tab completes once they are there.
    page.type("#command", "HGETAL")
    page.locator("#options [role=option]", has_text="HGETALL").wait_for()
    page.keyboard.press("Tab")
    assert page.input_value("#command") == "HGETALL "
    assert "HGETALL key" in page.inner_text("#hint")

    def run(line: str, reply: str) -> None:
        page.fill("#command", line)
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        page.locator(".log .entry:first-child", has_text=reply).wait_for()

    run('HSET h "a b" 1', "(integer) 1")
    run("HGETALL h", "a b")
    assert page.locator(".log .entry:first-child td").count() == 2
    run("GET nothing", "(nil)")
    run("LRANGE nothing 0 -1", "(empty array)")
    run(r'SET q "two\nlines\x41 \"q\""', "OK")
    assert server.call("kv_server", "value", "q") == 'two\nlinesA "q"'
    run("INCR h", "(error) WRONGTYPE")
    page.fill("#command", "GET 'never closed")
    page.keyboard.press("Enter")
    page.locator("#hint", has_text="is not closed").wait_for()
    assert page.input_value("#command") == "GET 'never closed"
    page.keyboard.press("ArrowUp")
    assert page.input_value("#command") == "INCR h"
    server.ask("POST", "/fakes/kv_server/faults", {"kind": "drop", "args": [], "times": 1})
    run("GET dropped", "Injected fault: drop")
    # Several lines are run one after the other, and come back together.
    several = "SET pasted 7\n\nGET pasted\nINCR pasted"
    run(several, "OK")
    page.locator(".log .entry:nth-child(3)", has_text="(integer) 8").wait_for()
    page.keyboard.press("ArrowUp")
    assert page.input_value("#command") == several
    page.fill("#command", "PING")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("GET 'never closed")
    page.keyboard.press("Enter")
    page.locator("#hint", has_text="is not closed").wait_for()
    assert kv(server, "GET", "pasted") == "8"
    # The replies stay while the page is open, each with its command and its time.
    at(page, "fake/kv_server/keys")
    at(page, "fake/kv_server/commands", ".log .entry")
    assert page.locator(".log .entry b").all_inner_texts()[:3] == [
        "> SET pasted 7", "> GET pasted", "> INCR pasted",
    ]  # fmt: skip
    assert all(":" in text for text in page.locator(".entry .soft").all_inner_texts())


def test_an_empty_command_box_has_examples_that_work(page: Any, server: Server) -> None:
    page.reload()
    at(page, "fake/kv_server/commands", ".log .facet")
    examples = page.locator(".log .facet").all_inner_texts()
    for number, example in enumerate(examples):
        if number == 0:
            page.click(f".log .facet >> nth={number}")
        else:
            page.fill("#command", example)
        assert page.input_value("#command") == example
        page.keyboard.press("Enter")
        holds(page, f"document.querySelectorAll('.log .entry').length === {number + 1}")
    assert len(examples) >= 3
    assert page.locator(".entry .bad").count() == 0


def test_the_help_shows_the_synopsis_of_every_command(page: Any, server: Server) -> None:
    shown = page.evaluate(
        """async (fake) => {
            const {help} = await import("/console/commands.js");
            return [...await help(fake)].map(([name, {usage}]) => [name, usage]);
        }""",
        {"name": "kv_server"},
    )

    def spaced(text: str) -> str:
        return re.sub(r"\s*([|()\[\]])\s*", r"\1", text)

    assert len(shown) > 300
    # The server has no options that the vendor lacks.
    lacking = {name: word for name, _, word in (one.rpartition(" ") for one in ONLY_STOCK)}
    for name, usage in shown:
        if name in lacking:
            assert lacking[name] not in re.findall(r"\w+", usage)
            continue
        is_container = COMMANDS[name].subcommands is not None
        expected = "subcommand ..." if is_container else COMMANDS[name].synopsis
        assert (name, spaced(usage)) == (name, spaced(expected))


def test_a_search_index_shows_its_schema_and_is_queried(page: Any, server: Server) -> None:
    words = "SEARCH.CREATE books ON HASH PREFIX 1 book: SCHEMA title TEXT"
    kv(server, *words.split())
    kv(server, "HSET", "book:1", "title", "running shoes")
    kv(server, "SEARCH.WAITINDEXING", "books")
    at(page, "fake/kv_server/indexes/books", ".detail td:text-is('TEXT')")
    typed(page, "Query", filter='{"title": "running"}')
    said(page, "Query", "book:1")
    typed(page, "Query", filter="{")
    said(page, "Query", "must be JSON")


# -- vectors -----------------------------------------------------------------------------------------


def test_vectors_are_upserted_queried_filtered_and_deleted(page: Any, server: Server) -> None:
    at(page, "fake/vector_index/vectors", ".empty")
    for number in range(3):
        typed(page, "Upsert", id=f"v{number}", what=f"{number}, 1", metadata=f'{{"n": {number}}}')
        said(page, "Upsert", f"Upserted v{number}.")
        page.locator("table.rows a", has_text=f"v{number}").wait_for()
    assert page.locator("svg .vector").count() == 3
    page.select_option("select[aria-label='Colour by']", "n")
    page.locator(".span-legend li", has_text="2").wait_for()
    assert page.locator("svg .vector.kind-0, svg .vector.kind-1, svg .vector.kind-2").count() == 3
    typed(page, "Query", what="[2, 1]", most="1", where="n < 2")
    page.locator("form[aria-label=Query] .out a", has_text="v1").wait_for()
    page.locator("svg .query").first.wait_for(state="attached")
    # The filter of the query is not that of the list.
    assert page.locator("table.rows tbody tr").count() == 3
    page.fill("input[name=filter] >> nth=0", "n = 1")
    page.keyboard.press("Enter")
    holds(page, "document.querySelectorAll('table.rows tbody tr').length === 1")
    page.click("table.rows a")
    # Nearest neighbours obey the filter of the list.
    press(page, "Nearest neighbours")
    page.locator(".detail h3", has_text="Nearest neighbours with n = 1").wait_for()
    page.locator(".detail", has_text="Nothing was found.").wait_for()
    page.fill("input[name=filter] >> nth=0", "n > 0")
    page.keyboard.press("Enter")
    page.locator("table.rows a", has_text="v2").wait_for()
    page.click("table.rows a >> nth=0")
    press(page, "Nearest neighbours")
    page.locator(".detail td a", has_text="v2").wait_for()
    assert page.locator(".detail td a", has_text="v0").count() == 0
    press(page, "Delete")
    wait_until(lambda: len(listed(server, "vector_index/lists/vectors")) == 2)


def test_a_namespace_is_chosen_and_deleted(page: Any, server: Server) -> None:
    sent(server, "vector_index", "/upsert/films", {"id": "a", "vector": [1, 2]})
    at(page, "fake/vector_index/vectors", "select[name=namespace]")
    page.select_option("select[name=namespace]", "films")
    page.locator("table.rows a", has_text="a").wait_for()
    at(page, "fake/vector_index/namespaces/films", ".detail h2")
    press(page, "Delete namespace…", sure=True)
    wait_until(lambda: len(listed(server, "vector_index/lists/namespaces")) == 1)


# -- broker ------------------------------------------------------------------------------------------


def test_topics_records_and_groups_are_worked_with(page: Any, server: Server) -> None:
    at(page, "fake/broker/topics", ".list")
    typed(page, "Create a topic", name="created", partitions="2")
    page.locator("table.rows a", has_text="created").wait_for()
    at(page, "fake/broker/records?topic=created", ".empty")
    page.click("summary:text-is('Produce')")
    holds(page, "document.querySelector('[aria-label=Produce] [name=topic]').value === 'created'")
    typed(page, "Produce", value='{"n": 1}', key="k", partition="1", headers='{"t": "7"}')
    said(page, "Produce", "Written to partition 1 at offset 0.")
    page.click("table.rows a:text-is('1-0')")
    page.locator(".detail pre[aria-label=value]", has_text='"n": 1').wait_for()
    assert "t" in page.inner_text(".detail table")
    typed(page, "Consume", topic="created")
    page.locator("form[aria-label=Consume] .out td", has_text='{"n": 1}').wait_for()
    at(page, "fake/broker/groups/console", ".detail svg .trace-delivered")
    assert page.inner_text(".detail tr:has(svg) >> nth=1").split() == [
        "created-1",
        "1",
        "none",
        "1",
        "1",
        "one",
    ]
    typed(page, "Set a committed offset", partition="created-1", offset="0")
    page.locator(".detail dd", has_text="1").first.wait_for()
    wait_until(lambda: listed(server, "broker/lists/groups")[0]["total_lag"] == 1)
    page.locator("[aria-label='lag over time, by partition'] .span-column").first.wait_for()
    press(page, "Remove…", sure=True)
    wait_until(lambda: listed(server, "broker/lists/groups")[0]["members"] == [])
    at(page, "fake/broker/topics/created", ".detail table")
    typed(page, "Add partitions", count="1")
    holds(page, "document.querySelectorAll('.detail tbody tr').length === 3")
    press(page, "Delete all records…", sure=True)
    page.locator(".detail a", has_text="Show its 0 records").wait_for()
    press(page, "Delete topic…", sure=True)
    wait_until(
        lambda: [topic["name"] for topic in listed(server, "broker/lists/topics")] == ["orders"]
    )


def test_keys_are_walked_by_namespace_and_deleted_by_pattern(page: Any, server: Server) -> None:
    names = ["plain", "user:1", "user:1:cart", "user:2:cart", *(f"log:{n}" for n in range(600))]
    kv(server, "MSET", *(word for name in names for word in (name, "x")))
    at(page, "fake/kv_server/keys?view=tree", ".folders")
    folders = page.locator(".folders summary").all_inner_texts()
    assert re.fullmatch(r"log:600[\d.]+ KiB\s+List all", folders[0])
    assert re.fullmatch(r"user:3\d+ B\s+List all", folders[1])
    widths = page.eval_on_selector_all(".share i", "(all) => all.map((one) => one.offsetWidth)")
    assert widths[0] == 120 > widths[1]
    assert page.inner_text("table.rows a") == "plain"
    # The rows are those of the root, so no action is offered on "all that are found".
    assert not page.locator("button", has_text="found…").count()
    page.click(".folders summary:has-text('user:')")
    page.click(".folders .folders summary:has-text('1:')")
    page.locator(".folders .folders .folders a:text-is('cart')").wait_for()
    # What is open stays open while the rows below change.
    kv(server, "SET", "plain", "y", "EX", 60)
    page.locator("table.rows td", has_text="1 m").wait_for()
    page.click(".folders .folders .folders a:text-is('cart')")
    page.locator(".detail h2", has_text="user:1:cart").wait_for()
    page.click("a[aria-label='List all of log:']")
    page.locator("#count", has_text="600 found").wait_for()
    page.check("[data-key='choose all']")
    page.click("button:text-is('Delete 600 keys found…')")
    asked = page.inner_text("dialog")
    assert "Delete the 600 keys that this search finds?" in asked
    assert "log:0\n" in asked
    assert "… and 592 more" in asked
    kv(server, "SET", "log:late", "x")
    page.click("dialog button[value=yes]")
    # It deletes what it showed: a key that is written while the dialog is open stays.
    wait_until(lambda: kv(server, "DBSIZE") == 5)
    assert kv(server, "EXISTS", "log:late") == 1


def test_a_column_is_sorted_by_its_head(page: Any, server: Server) -> None:
    for number, (name, ttl) in enumerate({"a": 500, "b": 9, "c": 61, "d": 4000}.items()):
        kv(server, "SET", name, "x" * number * 500, "EX", str(ttl))
    at(page, "fake/kv_server/keys", "table.rows")

    def order(head: str, mark: str) -> str:
        page.click(f"th button:text-matches('^{head}')")
        page.locator(f"th[aria-sort] button:text-is('{head} {mark}')").wait_for()
        return "".join(page.locator("table.rows tbody a").all_inner_texts())

    clicks = {"TTL ↑": "bcad", "TTL ↓": "dacb", "size ↑": "abcd", "key ↑": "abcd", "key ↓": "dcba"}
    assert {shown: order(*shown.split()) for shown in clicks} == clicks
    assert page.get_attribute("th[aria-sort]", "aria-sort") == "descending"


# -- queue -------------------------------------------------------------------------------------------


def test_messages_are_filtered_cancelled_together_and_sent_again(page: Any, server: Server) -> None:
    for label in ("mail", "mail", "sms"):
        sent(
            server, "queue", "/v2/publish/http://127.0.0.1:9/x", {"to": label}, Upstash_Label=label,
            Upstash_Delay="1h", Upstash_Forward_X_Trace="7", Content_Type="application/json",
            Upstash_Timeout="30s", Upstash_Flow_Control_Key="api",
            Upstash_Flow_Control_Value="rate=5,period=60", Upstash_Callback="http://127.0.0.1:9/c",
            Upstash_Callback_Retries="1",
        )  # fmt: skip
    at(page, "fake/queue/messages", "table.rows a")
    page.click("summary:text-is('Filters')")
    page.fill("input[name=label]", "sms")
    page.press("input[name=label]", "Enter")
    holds(page, "document.querySelectorAll('table.rows tbody tr').length === 1")
    page.click("table.rows a")
    page.click(".detail summary:text-is('Edit and send again')")
    typed(page, "Edit and send again", body='{"to": "other"}')
    wait_until(lambda: len(listed(server, "queue/lists/messages")) == 4)
    newest = listed(server, "queue/lists/messages")[0]
    assert (newest["label"], newest["preview"]) == ("sms", '{"to": "other"}')
    again = server.ask("GET", f"/fakes/queue/lists/messages/{newest['id']}")[1]
    assert again["headers"]["X-Trace"] == ["7"]
    assert again["publish_headers"] == {
        "Content-Type": "application/json", "Upstash-Retries": "3", "Upstash-Timeout": "30s",
        "Upstash-Callback": "http://127.0.0.1:9/c", "Upstash-Label": "sms",
        "Upstash-Flow-Control-Key": "api", "Upstash-Flow-Control-Value": "rate=5,period=60",
        "Upstash-Callback-Retries": "1", "Upstash-Forward-X-Trace": "7",
    }  # fmt: skip
    at(page, "fake/queue/messages?label=mail", "table.rows a")
    holds(page, "document.querySelectorAll('table.rows tbody tr').length === 2")
    page.check(".list label.check input")
    press(page, "Cancel 2…", sure=True)
    wait_until(
        lambda: (
            sum(
                message["state"] == "cancelled"
                for message in listed(server, "queue/lists/messages")
            )
            == 2
        )
    )


def test_a_message_is_published_delivered_now_and_cancelled(page: Any, server: Server) -> None:
    at(page, "fake/queue/messages", ".empty")
    typed(
        page,
        "Publish a message",
        to="http://127.0.0.1:9/gone?a=1",
        retries="3",
        body='{"n": 1}',
        delay="1h",
    )
    page.click("form[aria-label='Publish a message'] .out a")
    page.locator(".detail pre[aria-label=body]", has_text='"n": 1').wait_for()
    press(page, "Deliver now")
    page.locator(".detail .span-item", has_text="Attempt 1").click()
    page.locator(".span-item pre", has_text="connection refused").wait_for()
    page.locator(".detail .span-bar.kind-planned").wait_for(state="attached")
    press(page, "Cancel…", sure=True)
    page.locator(".detail .pill", has_text="cancelled").wait_for()


def publish_dead_letters(server: Server, many: int) -> None:
    for number in range(many):
        sent(
            server,
            "queue",
            "/v2/publish/http://127.0.0.1:9/gone",
            {"n": number},
            Upstash_Retries="0",
        )
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    wait_until(lambda: len(listed(server, "queue/lists/dead-letters")) == many)


def test_dead_letters_are_retried_and_deleted_together(page: Any, server: Server) -> None:
    publish_dead_letters(server, 3)
    at(page, "fake/queue/dead-letters", "table.rows")
    page.check("label.check input")
    press(page, "Retry 3")
    wait_until(lambda: len(listed(server, "queue/lists/messages")) == 6)
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    wait_until(lambda: len(listed(server, "queue/lists/dead-letters")) == 3)
    for letter in listed(server, "queue/lists/dead-letters")[:2]:
        page.check(f"input[aria-label='choose {letter['id']}']")
    press(page, "Delete 2…", sure=True)
    holds(page, "document.querySelectorAll('table.rows tbody tr').length === 1")
    page.click("table.rows a")
    press(page, "Retry")
    wait_until(lambda: len(listed(server, "queue/lists/messages")) == 7)
    ids = [message["id"] for message in listed(server, "queue/lists/messages")]
    holds(page, f"{json.dumps(ids)}.includes(location.hash.split('/messages/')[1])")


def test_a_dead_letter_is_edited_sent_again_and_deleted(page: Any, server: Server) -> None:
    publish_dead_letters(server, 1)
    [letter] = listed(server, "queue/lists/dead-letters")
    at(page, f"fake/queue/dead-letters/{letter['id']}", ".detail h2")
    typed(page, "Edit and send again", body='{"n": "mended"}', letter="keep")
    wait_until(lambda: len(listed(server, "queue/lists/messages")) == 2)
    assert letter["id"] in [item["id"] for item in listed(server, "queue/lists/dead-letters")]
    page.locator(".detail pre[aria-label=body]", has_text="mended").wait_for()
    at(page, f"fake/queue/dead-letters/{letter['id']}", ".detail dt:text-is('since')")
    typed(page, "Edit and send again", body='{"n": "once more"}', letter="delete")
    page.locator(".detail pre[aria-label=body]", has_text="once more").wait_for()
    assert page.evaluate("location.hash").startswith("#/fake/queue/messages/")
    letters = listed(server, "queue/lists/dead-letters")
    assert letter["id"] not in [item["id"] for item in letters]


def test_a_schedule_is_created_run_paused_resumed_and_deleted(page: Any, server: Server) -> None:
    at(page, "fake/queue/schedules", ".empty")
    typed(page, "Create a schedule", to="https://app.example/x", cron="0 3 * * *", id="nightly")
    page.click("table.rows a:has-text('app.example/x')")
    page.locator(".detail h2", has_text="app.example/x, 0 3 * * *").wait_for()
    page.locator(".detail .facts", has_text="nightly").wait_for()
    press(page, "Run now")
    page.locator("#notice a", has_text="msg_").wait_for()
    wait_until(lambda: len(listed(server, "queue/lists/messages")) == 1)
    press(page, "Pause")
    page.locator(".detail .soft", has_text="None while it is paused.").wait_for()
    page.locator(".detail .pill", has_text="paused").wait_for()
    press(page, "Resume")
    wait_until(lambda: not listed(server, "queue/lists/schedules")[0]["paused"])
    press(page, "Delete…", sure=True)
    page.locator(".empty", has_text="No schedules yet.").wait_for()


def test_queues_groups_and_flow_control_are_worked_with(page: Any, server: Server) -> None:
    at(page, "fake/queue/queues", ".empty")
    typed(page, "Create a queue", name="ordered", parallelism="2")
    page.click("table.rows a:text-is('ordered')")
    press(page, "Pause")
    wait_until(lambda: listed(server, "queue/lists/queues")[0]["paused"])
    at(page, "fake/queue/url-groups", ".empty")
    typed(page, "Add an endpoint", group="team", url="https://a.example/in")
    page.click("table.rows a:text-is('team')")
    page.locator(".detail td", has_text="https://a.example/in").wait_for()
    for url in ("https://a.example/one", "https://a.example/two"):
        typed(page, "Add an endpoint", group="team", url=url, name="named")
        if url.endswith("two"):
            answer(page, "The endpoint named of team exists. Overwrite it?", "Overwrite named")
        page.locator(".detail td", has_text=url).wait_for()
    press(page, "Delete group…", sure=True)
    wait_until(lambda: listed(server, "queue/lists/url-groups") == [])
    for number in range(2):
        sent(
            server, "queue", "/v2/publish/http://127.0.0.1:9/x", {"n": number},
            Upstash_Flow_Control_Key="api", Upstash_Flow_Control_Value="rate=1,period=1h",
        )  # fmt: skip
    at(page, "fake/queue/flow-control/api", ".detail ol a")
    press(page, "Pause")
    wait_until(lambda: listed(server, "queue/lists/flow-control")[0]["paused"])


def test_a_workflow_run_shows_steps_inputs_and_outputs_and_is_cancelled(
    page: Any, server: Server
) -> None:
    run = {"Upstash_Workflow_RunId": "wfr_1", "Upstash_Workflow_Url": "http://127.0.0.1:9/f"}
    target = "/v2/publish/http://127.0.0.1:9/f"
    sent(server, "queue", target, {"order": 7}, Upstash_Workflow_Init="true", **run)
    for number, name in enumerate(("reserve", "charge", "invoice"), 1):
        step = {"stepId": number, "stepName": name, "stepType": "Run", "out": '{"done": 1}'}
        step["concurrent"] = 1 if name == "reserve" else 2
        sent(server, "queue", target, step, Upstash_Workflow_CallType="step", **run)
    wait = {"url": "http://127.0.0.1:9/f", "timeout": "1d", "step": {
        "stepId": 4, "stepName": "wait for click", "stepType": "Wait", "concurrent": 1},
        "timeoutHeaders": {"Upstash-Workflow-RunId": ["wfr_1"],
                           "Upstash-Workflow-Url": ["http://127.0.0.1:9/f"],
                           "Upstash-Workflow-CallType": ["step"]}}  # fmt: skip
    sent(server, "queue", "/v2/wait/clicked-7", wait, **run)
    server.ask("POST", "/fakes/queue/requests", {
        "target": "/v2/batch", "body": [{"destination": "http://127.0.0.1:9/f", "body": {"a": 1},
        "headers": {"Upstash-Workflow-RunId": "wfr_1", "Upstash-Workflow-CallType": "step",
                    "Upstash-Workflow-Url": "http://127.0.0.1:9/f"}}]})  # fmt: skip
    at(page, "fake/queue/runs/wfr_1", ".span-item")
    names = ["reserve", "charge", "invoice", "wait for click"]
    assert page.locator(".span-item summary b").all_inner_texts() == names
    assert page.inner_text("h3:has-text('steps')").lower() == "4 steps"
    assert page.locator(".span-item", has_text="waits for clicked-7").count() == 1
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    # The delivery that ran the first step failed, and is tried again.
    page.locator(
        ".span-item:has(summary:has-text('reserve')) .span-words",
        has_text=re.compile("failed.*planned"),
    ).wait_for(state="attached")
    page.locator(".banner.bad", has_text="body must be a string").wait_for()
    page.click(".span-item summary:has-text('reserve')")
    page.locator("pre[aria-label='result of the step']", has_text='"done": 1').first.wait_for()
    assert "connection refused" in page.inner_text("pre[aria-label^='error of Try 1']")
    assert '"order": 7' in page.inner_text("pre[aria-label=input]")
    typed(page, "Waits for the event clicked-7", data='{"clicked": true}')
    page.locator("form[aria-label^='Waits for']").wait_for(state="detached")
    press(page, "Cancel…", sure=True)
    page.locator(".detail .pill", has_text="canceled").first.wait_for()
    page.click(".detail-head a:has-text('In Activity')")
    page.locator(".trace-row.trace-failed", has_text="attempt 2").first.wait_for()
    holds(page, "location.hash.includes('kind=run&name=wfr_1')")


def test_parallel_steps_are_a_group_and_an_error_is_a_line(page: Any, server: Server) -> None:
    run = {"Upstash_Workflow_RunId": "wfr_2", "Upstash_Workflow_Url": "http://127.0.0.1:9/f"}
    target = "/v2/publish/http://127.0.0.1:9/f"
    sent(server, "queue", target, {}, Upstash_Workflow_Init="true", **run)
    for number, name in enumerate(("cool down", "charge"), 1):
        plan = {
            "stepId": 0,
            "stepName": name,
            "stepType": "Run",
            "concurrent": 2,
            "targetStep": number,
        }
        sent(server, "queue", target, plan, Upstash_Workflow_CallType="step", **run)
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    at(page, "fake/queue/runs/wfr_2", ".span-item")
    page.locator(".spans .span-name", has_text="2 in parallel").wait_for()
    error = page.locator(".span-item", has_text="charge").locator(".span-error")
    assert "connection refused" in error.inner_text()
    assert error.evaluate("(one) => one.offsetHeight") < 30


def test_a_refused_run_shows_its_error_and_is_run_again_with_its_retries(
    page: Any, server: Server
) -> None:
    sent(
        server, "queue", "/v2/trigger/http://127.0.0.1:9/f", {"order": 7},
        Upstash_Workflow_RunId="wfr_1", Upstash_Retries="1", Content_Type="application/json",
    )  # fmt: skip
    server.ask("POST", "/clock", {"action": "advance", "by": "1h"})
    at(page, "fake/queue/runs", "table.rows tbody tr")
    assert "connection refused" in page.inner_text("table.rows tbody tr")
    at(page, "fake/queue/runs/wfr_1", ".span-item")
    page.click(".span-item summary:has-text('first step')")
    assert "connection refused" in page.inner_text("pre[aria-label^='error of Try 2']")
    press(page, "Run again")
    page.locator("#notice", has_text="this is the new run").wait_for()
    [new, _] = listed(server, "queue/lists/runs")
    messages = server.ask("GET", f"/fakes/queue/lists/runs/{new['id']}")[1]["messages"]
    assert [message["max_retries"] for message in messages] == [1]


# -- faults, requests, violations -----------------------------------------------------------------


def test_faults_are_added_seen_to_hit_and_removed(
    page: Any, server: Server, window: Window
) -> None:
    at(page, "fake/kv_server/faults", "form[aria-label='Add a fault']")
    typed(
        page,
        "Add a fault",
        **{"kind": "respond", "status": "503", "only-command": "INCR", "times": "2"},
    )
    page.locator(
        ".sentences",
        has_text="Each of the next 2 INCR requests answers 503 and is not carried out.",
    ).wait_for()
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["INCR", "n"]})
    page.locator(".sentences .pill", has_text="hit once").wait_for()
    server.ask("POST", "/fakes/kv_server/requests", {"body": ["INCR", "n"]})
    page.locator(".sentences .pill", has_text="used up").wait_for()
    press(page, "Add again")
    page.locator(".sentences .pill", has_text="not hit yet").wait_for()
    unused = next(
        fault for fault in server.ask("GET", "/fakes/kv_server/faults")[1] if not fault["hits"]
    )
    server.ask("DELETE", f"/fakes/kv_server/faults/{unused['id']}")
    page.locator(".sentences .pill", has_text="not hit yet").wait_for(state="detached")
    made = {"kind": "respond", "args": [503], "command": "INCR", "times": 2}
    assert server.ask("GET", "/fakes/kv_server/faults")[1][0]["made"] == made
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    page.click(".sentences button:text-is('pytest')")
    holds(page, "document.getElementById('notice').textContent.startsWith('Copied as pytest')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == 'kv_server.faults.respond(503, command="INCR", times=2)\n'
    page.click("form[aria-label='Add a fault'] .out button:text-is('curl')")
    wait_until(lambda: "curl" in page.evaluate("navigator.clipboard.readText()"))
    copied = page.evaluate("navigator.clipboard.readText()")
    assert '"$PYTEST_FAKECLOUD_URL/__control__/fakes/kv_server/faults"' in copied
    assert server.token not in copied
    press(page, "Remove")
    page.locator(".empty", has_text="No faults.").wait_for()
    page.select_option("select[name=kind]", "sequence")
    typed(page, "Add a fault", steps="503, ok, drop")
    said(page, "Add a fault", "Added")
    page.select_option("select[name=kind]", "respond")
    typed(page, "Add a fault", status="99999")
    page.locator("form[aria-label='Add a fault'] .out .bad").wait_for()
    window.violations.clear()
    server.ask("DELETE", "/fakes/kv_server/faults")


def test_every_kind_of_fault_can_be_added_and_has_a_sentence(page: Any, server: Server) -> None:
    for name in ("kv_server", "queue"):
        at(page, f"fake/{name}/faults", f"h1:has-text('{name}')")
        page.locator("select[name=kind]").wait_for()
        kinds = page.eval_on_selector_all(
            "select[name=kind] option", "(all) => all.map((one) => one.value)"
        )
        assert len(kinds) >= 10
        for kind in kinds:
            page.select_option("select[name=kind]", kind)
            values = {"only-route": "/nothing"} if name == "kv_server" else {"only-label": "x"}
            if page.locator("form[aria-label='Add a fault'] [name=args]").count():
                values["args"] = json.dumps(ARGUMENTS[kind])
            typed(page, "Add a fault", **values)
            said(page, "Add a fault", "Added:")
        assert page.locator(".sentences li").count() == len(kinds)
        server.ask("DELETE", f"/fakes/{name}/faults")


def test_copied_requests_have_no_headers_that_clients_add_to_each_request(page: Any) -> None:
    headers = [
        ["Host", "x"], ["User-Agent", "node"], ["Accept", "*/*"], ["sec-fetch-mode", "cors"],
        ["Upstash-Telemetry-Sdk", "1"], ["traceparent", "00-1"], ["Content-Type", "text/plain"],
        ["Upstash-Retries", "3"], ["Accept", "text/event-stream"],
    ]  # fmt: skip
    row = {"request": {"line": "POST https://app.example/", "headers": headers}, "peer": "x"}
    kept = page.evaluate(
        "async (row) => (await import('/console/copying.js')).requestOf(row, {}).headers", row
    )
    assert kept == headers[-3:]


def test_any_request_is_sent(page: Any, server: Server) -> None:
    at(page, "fake/queue/request", "form[aria-label='Any request']")
    typed(page, "Any request", method="GET", target="/v2/schedules")
    said(page, "Any request", "Status 200")


def test_violations_are_counted_and_advise_in_terms_of_the_server(
    page: Any, server: Server
) -> None:
    sent(server, "queue", "/v2/publish/https://app.example/hook")
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    page.locator("#nav .many.bad").wait_for()
    at(page, "violations", ".violation")
    shown = page.inner_text(".violation")
    assert "serve --forward https://app.example=" in shown
    assert "serve --load state.json" in shown
    assert "https://app.example/hook" in shown
    assert "destinations.respond" not in shown


def test_violations_of_one_cause_are_one_card_with_its_times(page: Any, server: Server) -> None:
    server.ask("POST", "/fakes/kv_server/faults", {"kind": "respond", "args": [503]})
    for number in range(4):
        sent(server, "queue", f"/v2/publish/https://app.example/hook{number % 2}")
    sent(server, "queue", "/v2/publish/https://other.example/x")
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    server.ask("POST", "/clock", {"action": "advance", "by": "1h"})
    at(page, "violations", ".violation")
    # A fault that has not fired yet may still fire.
    holds(page, "document.querySelectorAll('.violation').length === 2")
    many = [int(text.split()[0]) for text in page.locator("h2 .many").all_inner_texts()]
    # Each number says what it counts. That of the navigation counts each cause once.
    summary = page.locator("#view .page section > p", has_text="dead letters of queue").first
    summary.wait_for()
    words = r"2 problems: 2 violations, (\d+) times \((\d+) dead letters of queue\)"
    violations, letters = map(int, re.fullmatch(words, summary.inner_text()).groups())
    assert violations == sum(many)
    problems = page.locator("#nav .many.bad").first
    assert int(problems.inner_text()) == 2
    title = (
        f"{violations} violations, {letters} dead letters, each cause once, without failed calls"
    )
    assert problems.get_attribute("title") == title
    holds(page, "document.title.startsWith('(2) Problems')")
    # What failed for such a cause is shown with it alone.
    assert page.locator("[aria-label=errors]").count() == 0
    page.locator(".violation a", has_text="4 dead letters of queue").wait_for()
    page.locator(".violation h2 + .soft", has_text="2026-01-01 00:").first.wait_for()
    page.locator(".violation h2 + .soft", has_text=re.compile(r":\d\d to 2026-")).first.wait_for()
    page.click(".violation li a:text-is('https://app.example/hook1')")
    page.locator(".trace-row", has_text="POST /hook1").first.wait_for()


def test_a_redacted_header_is_asked_for_before_a_message_is_sent_again(
    page: Any, server: Server
) -> None:
    sent(
        server, "queue", "/v2/publish/http://127.0.0.1:9/x", "body", Upstash_Delay="1h",
        Upstash_Redact_Fields="header[x-secret]", Upstash_Forward_X_Secret="hush",
        Upstash_Forward_X_Trace="7",
    )  # fmt: skip
    at(page, "fake/queue/messages", "table.rows a")
    page.click("table.rows a")
    page.click(".detail summary:text-is('Edit and send again')")
    page.click(".detail button:text-is('Send again')")
    page.locator(".detail .bad[role=alert]", has_text="The queue redacts X-Secret.").wait_for()
    assert len(listed(server, "queue/lists/messages")) == 1
    typed(page, "Edit and send again", headers='{"X-Secret": "new", "X-Trace": "8"}')
    wait_until(lambda: len(listed(server, "queue/lists/messages")) == 2)
    newest = listed(server, "queue/lists/messages")[0]
    again = server.ask("GET", f"/fakes/queue/lists/messages/{newest['id']}")[1]
    assert (again["headers"]["X-Secret"], again["headers"]["X-Trace"]) == (["new"], ["8"])


# -- search ------------------------------------------------------------------------------------------


def test_one_search_finds_what_all_fakes_hold(page: Any, server: Server) -> None:
    kv(server, "SET", "needle:key", "1")
    sent(server, "vector_index", "/upsert/films", {"id": "needle-vector", "vector": [1, 2]})
    sent(server, "broker", "/produce", {"topic": "orders", "value": "a needle in a record"})
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", {"in": "needle"}, Upstash_Delay="1h")
    run = {"Upstash_Workflow_RunId": "wfr_needle", "Upstash_Delay": "1h"}
    sent(server, "queue", "/v2/trigger/http://127.0.0.1:9/f", **run)
    page.keyboard.press("Control+k")
    page.locator("input[aria-label='search everything']").fill("Needle")
    titles = page.locator("#view h2 a")
    page.locator("#view h2", has_text="runs").wait_for()
    assert titles.all_inner_texts() == [
        "kv_server · keys", "vector_index · vectors · films", "broker · records · orders",
        "queue · messages", "queue · workflow runs", "Recorded calls",
    ]  # fmt: skip
    hits = page.eval_on_selector_all("#view li a", "(all) => all.map((one) => one.hash)")
    assert len(hits) == 10
    for place in hits:
        at(page, place.removeprefix("#/"), ".detail h2, .trace-pane h3")
        assert page.locator(".detail .empty").count() == 0
    at(page, "search?search=nowhere-at-all", "#view :text('Nothing was found.')")


def test_a_search_shows_whole_words_before_parts_of_words(page: Any, server: Server) -> None:
    kv(server, "MSET", "a:metadata", "1", "b:nomad ada", "2", "c:deadada", "3")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/ada", Upstash_Delay="1h")
    at(page, "search?search=ada", "#view h2:has-text('keys')")
    first = page.locator("#view ul").first.locator("li a")
    assert first.all_inner_texts() == ["b:nomad ada", "a:metadata", "c:deadada"]


def test_a_search_marks_what_it_has_found_in_values_calls_and_errors(
    page: Any, server: Server
) -> None:
    kv(server, "SET", "letter", "x" * 400 + " Salzburg Graz " + "y" * 400)
    command(server, "INCR", "letter")
    sent(server, "queue", "/v2/publish/https://app.example/graz")
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    at(page, "search?search=graz+salzburg", "#view h2:has-text('keys')")
    marks = page.locator("#view li", has_text="letter").first.locator("mark")
    assert marks.all_inner_texts() == ["Salzburg", "Graz"]
    at(page, "search?search=app.example", "#view h2:has-text('Violations')")
    assert page.locator("#view li", has_text="unstubbed").locator("mark").count() > 0
    at(page, "search?search=INCR", "#view h2:has-text('Failed calls')")
    failed = page.locator("#view li a.bad", has_text="INCR letter")
    failed.locator("mark").wait_for()
    assert failed.locator("mark").all_inner_texts() == ["INCR"]
    failed.first.click()
    page.locator(".trace-pane h3", has_text="INCR letter").wait_for()


def test_enter_acts_on_the_results_of_what_was_typed(page: Any, server: Server) -> None:
    for name, city in [("user:1", "Graz"), ("user:2", "Lyon"), ("shop:3", "Lyon")]:
        kv(server, "HSET", name, "city", city)
    at(page, "search?search=Graz", "#view li a")
    page.fill("input[aria-label='search everything']", "user:2")
    page.keyboard.press("Enter")
    page.locator(".detail h2", has_text="user:2").wait_for()


def test_a_search_that_a_reader_goes_back_to_is_where_it_was(page: Any, server: Server) -> None:
    for number in range(40):
        kv(server, "RPUSH", f"kettles:{number}", "kettle")
        kv(server, "SET", f"kettle:{number}", "x")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/kettle")
    page.set_viewport_size({"width": 1280, "height": 400})
    at(page, "search?search=kettle", "#view li a")
    page.mouse.move(600, 300)
    page.mouse.wheel(0, 150)
    holds(page, "history.state?.scrolled === 150")
    page.locator("#view li a:visible").nth(6).click()
    page.locator(":is(.detail h2, .trace-pane h3)").first.wait_for()
    page.go_back()
    page.locator("#view li a").first.wait_for()
    holds(page, "scrollY === 150")


# -- time and snapshots ------------------------------------------------------------------------------


def test_the_clock_moves_by_its_buttons(page: Any, server: Server) -> None:
    page.click("[data-by='1h']")
    holds(page, "document.getElementById('now').textContent.includes('01:00:00')")
    page.fill("#by", "90m")
    page.press("#by", "Enter")
    holds(page, "document.getElementById('now').textContent.includes('02:30:00')")
    assert server.ask("GET", "/clock")[1]["now"] == "2026-01-01T02:30:00+00:00"
    page.fill("#by", "soon")
    page.press("#by", "Enter")
    page.locator("#by-error", has_text="Type a duration, such as 90m").wait_for()
    page.fill("#by", "1d 2h")
    assert page.inner_text("#by-error") == ""
    # The button says how far it goes, and the move can be undone.
    kv(server, "SET", "session", "ada", "EX", "60")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Delay="1d")
    page.locator("#next[title='expires: session, due at 2026-01-01 02:31:00 UTC']").wait_for()
    page.locator("#next", has_text="Next due: 1 m").click()
    holds(page, "document.getElementById('now').textContent.includes('02:31:00')")
    page.locator("#next", has_text="Next due: 23 h 59 m").click()
    holds(page, "document.getElementById('now').textContent.includes('2026-01-02')")
    page.click("#notice button:text-is('Undo the move…')")
    page.click("dialog button[value=yes]")
    holds(page, "document.getElementById('now').textContent.includes('02:31:00')")
    page.click("#freeze")
    holds(page, "document.getElementById('freeze').textContent === 'Freeze'")


def test_what_falls_due_is_on_a_strip_and_can_be_gone_to(page: Any, server: Server) -> None:
    for delay in ("10s", "5m", "1d"):
        sent(server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Delay=delay)
    sent(server, "queue", "/v2/schedules/http://127.0.0.1:9/x", Upstash_Cron="5 0 * * *")
    at(page, "time", ".span-column")
    texts = page.eval_on_selector_all(".span-column", "(all) => all.map((one) => one.ariaLabel)")
    assert texts == [
        "1 event: 1 delivery, +10 s", "2 events: 1 delivery, 1 schedule, +5 m",
        "1 event: 1 delivery, +1 d",
    ]  # fmt: skip
    page.click("button[aria-label='only schedule']")
    holds(page, "document.querySelectorAll('td[data-name=event]').length === 1")
    page.click("button[aria-label='only schedule']")
    holds(page, "document.querySelectorAll('td[data-name=event]').length === 4")
    # The arrow keys move between the columns, of which one is in the order of the Tab key.
    page.locator(".span-column[tabindex='0']").press("ArrowRight")
    page.keyboard.press("Enter")
    holds(page, "document.querySelectorAll('td[data-name=event]').length === 2")
    page.click("button:text-is('due in 5 m ✕')")
    holds(page, "document.querySelectorAll('td[data-name=event]').length === 4")
    page.locator("button:text-is('Just before')").first.press("Enter")
    wait_until(lambda: server.ask("GET", "/clock")[1]["now"] == "2026-01-01T00:00:09.999999+00:00")
    holds(page, "document.querySelectorAll('td[data-name=event]').length === 4")
    page.locator("button:text-is('Move there')").nth(1).press("Enter")
    holds(page, "document.getElementById('now').textContent.includes('00:05:00')")
    # The selection of columns ends with their time.
    page.locator("figcaption", has_text="00:05:00 UTC").wait_for()
    page.locator(".span-column").first.click()
    page.locator(".trace-chip").wait_for()
    page.locator("button:text-is('Move there')").first.press("Enter")
    page.locator(".trace-chip").wait_for(state="detached")
    # As the page shows times.
    typed(page, "Move the clock to a time", to="2026-03-01 00:00:00")
    holds(page, "document.getElementById('now').textContent.includes('2026-03-01')")
    page.locator(".form .ok", has_text="Moved.").wait_for()
    wait_until(lambda: page.locator("#view span:text-is('Copy as')").count() == 1)


def test_a_snapshot_is_taken_restored_and_deleted(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "before")
    at(page, "snapshots")
    typed(page, "Take a snapshot", id="one/two")
    said(page, "Take a snapshot", "Taken: one/two.")
    kv(server, "SET", "a", "after")
    kv(server, "SET", "constructor", "<b>")
    server.ask("POST", "/snapshots", {"id": "two"})
    page.locator("select[name=until] option[value=two]").wait_for(state="attached")
    kv(server, "DEL", "a")
    typed(page, "Compare", since="one/two", until="two")
    said(page, "Compare", "kv_server: 1 added, 1 changed.")
    rows = page.locator("form[aria-label=Compare] tbody tr:has(td)").all_inner_texts()
    assert [row.split() for row in rows] == [
        ["a", "value", "before", "value", "after"],
        ["constructor", "–", "added", "type", "string", "value", "<b>"],
    ]
    typed(page, "Compare", since="two", until="")
    said(page, "Compare", "kv_server: 1 removed")
    server.ask("DELETE", "/snapshots/two")
    page.locator("td", has_text="two").nth(1).wait_for(state="detached")
    press(page, "Restore…", sure=True)
    wait_until(lambda: kv(server, "GET", "a") == "before")
    press(page, "Delete…", sure=True)
    page.locator(".empty", has_text="No snapshots yet.").wait_for()


def test_a_reset_asks_first(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    page.click("#reset")
    page.locator("dialog[open]").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    page.keyboard.press("Enter")
    page.locator("dialog").wait_for(state="detached")
    assert kv(server, "EXISTS", "a") == 1
    page.click("#reset")
    page.click("dialog button:text('Reset')")
    wait_until(lambda: kv(server, "EXISTS", "a") == 0)


def test_the_environment_is_copied_as_shells_read_it(page: Any, server: Server) -> None:
    copied = page.evaluate(
        """async (env) => {
            const {FORMATS} = await import("/console/connect.js");
            return Object.values(FORMATS).map((make) => make(env));
        }""",
        {"A": "it's $x", "B": "1"},
    )
    assert copied == [
        'A="it\'s $x"\nB=1\n',
        "export A='it'\\''s $x'\nexport B='1'\n",
        "$env:A = 'it''s $x'\n$env:B = '1'\n",
        '{\n  "A": "it\'s $x",\n  "B": "1"\n}\n',
    ]
    at(page, "connect")
    text = page.inner_text("pre[aria-label=environment]")
    for fake in server.summary["fakes"]:
        for name, content in fake["env"].items():
            assert f"{name}={content}" in text
    # The control token is copied, but not shown.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    page.click("button[aria-label='Copy the environment']")
    wait_until(lambda: server.token in page.evaluate("navigator.clipboard.readText()"))
    assert "PYTEST_FAKECLOUD_TOKEN=" in text
    assert server.token not in page.inner_text("body")


# -- much data, small screens, everybody ---------------------------------------------------------------

FRAMES = """async (scroll) => {
    const spent = [];
    let last = await new Promise(requestAnimationFrame);
    for (let turn = 0; turn < 40; turn++) {
        scroll ? (document.querySelector(scroll).scrollTop += 900) : scrollBy(0, 300);
        const now = await new Promise(requestAnimationFrame);
        spent.push(now - last);
        last = now;
    }
    return spent.sort((one, other) => one - other);
}"""
"""Scroll for 40 frames; return the sorted durations of the frames in milliseconds."""


def test_ten_thousand_entries_are_in_reach_and_few_in_the_page(page: Any, server: Server) -> None:
    # The page drops entries that are newer than all of the server's.
    kv(server, "SET", "key:1", "x")
    at(page, "activity", ".trace-row")
    page.evaluate(
        """async () => {
            const {entries, journal} = await import("/console/journal.js");
            entries.cover(Array.from({length: 10000}, (_, index) => ({
                number: index + 1, began: index + 1, at_us: 1767225600000000 + index,
                kind: "call", rules: {is_received: true},
                fake: "kv_server", actor: "client", peer: "kv_server", ok: true, done: true,
                depth: 0, parent: 0, faults: [], findings: [],
                subjects: [{kind: "key", name: `key:${index + 1}`, fake: "kv_server"}],
                text: {what: `SET key:${index + 1}`, answer: "OK", lines: [], note: ""},
                request: {line: "POST /", headers: [], body: "x"}, response: null, data: {}})));
            for (const listener of journal.listeners) listener();
        }"""
    )
    holds(page, f"{COUNT} === '10,000 rows'")
    page.locator(".trace-row", has_text="SET key:10000").wait_for()
    page.evaluate("scrollTo(0, 0)")
    spent = page.evaluate(FRAMES)
    print(f"frames: median {spent[20]:.1f} ms, longest {spent[-1]:.1f} ms")
    assert page.locator(".trace-row").count() < 120
    page.evaluate("scrollTo(0, 0)")
    page.locator(".trace-what span:text-is('SET key:1')").wait_for()
    page.fill(SEARCH, "key:777")
    holds(page, f"{COUNT} === '11 of 10,000 rows'")


LARGEST_LOAD = 192_000
"""Maximum size of the uncompressed HTML, CSS and JavaScript for any address of the console."""


def test_opening_any_page_transfers_little(page: Any, server: Server) -> None:
    fill_all(server)
    # A notice of an earlier page that can undo something would be shown again.
    page.evaluate("sessionStorage.clear()")
    loads = {}
    for place in (
        "connect", "activity", "time", "fake/kv_server/keys/h", "fake/vector_index/vectors/v1",
        "fake/broker/groups/billing", "fake/queue/runs/wfr_1",
    ):  # fmt: skip
        page.goto("about:blank")
        page.goto(f"{server.url}/#/{place}")
        page.locator(".detail h2" if place.count("/") > 2 else "#view h1").wait_for()
        loads[place] = page.evaluate(
            """() => performance.getEntries().filter((one) => one.name.includes("/console/")
                || one.entryType === "navigation").reduce((sum, one) => sum + one.decodedBodySize, 0)"""
        )
    print(loads)
    assert min(loads.values()) > 30_000
    assert max(loads.values()) < LARGEST_LOAD


def test_who_reads_further_down_keeps_the_place(page: Any, server: Server) -> None:
    for number in range(80):
        kv(server, "SET", f"key:{number}", "1")
    at(page, "activity", ".trace-row")
    holds(page, f"{COUNT} === '80 rows'")
    page.evaluate("scrollTo(0, 900)")
    first = "document.elementFromPoint(600, 400).closest('.trace-row').innerText"
    holds(page, "document.elementFromPoint(600, 400).closest('.trace-row')")
    before = page.evaluate(first)
    for number in range(10):
        kv(server, "SET", f"late:{number}", "1")
    holds(page, f"{COUNT} === '90 rows'")
    assert page.evaluate(first) == before


def fill_all(server: Server) -> None:
    """Add data to every fake, with retries, lag, a query, a run, a fault and a violation."""
    kv(server, "SET", "a-key-that-is-long:" + "x" * 80, "1", "EX", "60")
    kv(server, "HSET", "h", "field", "y" * 200)
    kv(server, "PUBLISH", "news", "hello")
    kv(server, "XADD", "stream", "1-1", "item", "kettle")
    kv(server, "XGROUP", "CREATE", "stream", "readers", "0")
    kv(server, "XREADGROUP", "GROUP", "readers", "ada", "STREAMS", "stream", ">")
    sent(server, "kv_server", "/set/bytes/%ff%00/")
    # More than a page of keys, so that the list has a pager.
    kv(server, "MSET", *(word for number in range(101) for word in (f"many:{number}", "1")))
    kv(server, "SEARCH.CREATE", "i", "ON", "HASH", "PREFIX", "1", "h", "SCHEMA", "field", "TEXT")
    vectors = [{"id": f"v{n}", "vector": [n, n % 3], "metadata": {"n": n}} for n in range(8)]
    sent(server, "vector_index", "/upsert", vectors)
    sent(server, "vector_index", "/query", {"vector": [1, 1], "topK": 2})
    sent(server, "broker", "/consume/billing/a", {"topic": "orders"})
    sent(server, "broker", "/produce", {"topic": "orders", "value": "x", "partition": 0})
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/gone")
    sent(server, "queue", "/v2/publish/https://app.example/nobody")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/dead", Upstash_Retries="0")
    sent(
        server,
        "queue",
        "/v2/schedules/https://app.example/x",
        Upstash_Cron="0 3 * * *",
        Upstash_Schedule_Id="s",
    )
    sent(server, "queue", "/v2/trigger/http://127.0.0.1:9/flow", Upstash_Workflow_RunId="wfr_1")
    server.ask("POST", "/fakes/kv_server/faults", {"kind": "respond", "args": [503]})
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    server.ask("POST", "/snapshots", {"id": "one"})


PLACES = (
    "overview", "connect", "search?search=h", "activity", "activity/@", "time", "problems", "snapshots",
    "fake/kv_server/keys", "fake/kv_server/keys/h", "fake/kv_server/keys/stream",
    "fake/kv_server/keys/bytes", "fake/kv_server/commands", "fake/kv_server/pending",
    "fake/kv_server/pending/@",
    "fake/kv_server/indexes/i", "fake/kv_server/faults", "fake/kv_server/request",
    "fake/vector_index/vectors/v1", "fake/vector_index/namespaces",
    "fake/broker/topics/orders", "fake/broker/records/0-0?topic=orders",
    "fake/broker/groups/billing", "fake/queue/messages", "fake/queue/messages/@",
    "fake/queue/dead-letters", "fake/queue/schedules/s", "fake/queue/runs",
    "fake/queue/runs/@", "fake/queue/callbacks", "fake/queue/queues",
    "fake/queue/url-groups", "fake/queue/flow-control", "fake/queue/destinations",
)  # fmt: skip
"""Every page, and an item of every list that has some; ``@`` is the first item."""


def all_places(opened: Any) -> Iterator[str]:
    """Visit all pages with all details open; yield their names."""
    for place in PLACES:
        if place.endswith("/@"):
            opened.locator(".trace-row, table.rows a").first.click()
            opened.locator(".detail h2, .trace-pane h3").first.wait_for()
        else:
            parts = place.split("?")[0].split("/")
            ready = (
                "h1"
                if len(parts) < 3
                else ".detail h2"
                if len(parts) > 3
                else f".subtabs a[data-key='{parts[2]}'][aria-current]"
            )
            at(opened, place, ".trace-row" if place == "activity" else ready)
            if place in ("fake/queue/messages", "fake/queue/runs"):
                opened.locator("table.rows a").first.wait_for()
        if place == "fake/queue/dead-letters":
            opened.locator("table.rows").wait_for()
        opened.evaluate(
            """async () => {
                for (const one of document.querySelectorAll("details:not([open])")) one.open = true;
                for (let turn = 0; turn < 2; turn++) await new Promise(requestAnimationFrame);
            }"""
        )
        holds(opened, "!document.querySelector('[aria-busy=true]')")
        yield place


def test_nothing_is_wider_than_a_telephone(page: Any, server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    fill_all(server)
    assert page.is_hidden("#reset")
    assert page.locator("header").bounding_box()["height"] < 60
    page.click("#clock-more")
    assert page.is_visible("#reset")
    for name in all_places(page):
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(page: Any, server: Server, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    fill_all(server)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations: list[Any] = []
    for name in all_places(page):
        run = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        violations += [
            (
                name,
                violation["id"],
                violation["nodes"][0]["html"][:150],
                violation["nodes"][0]["failureSummary"],
            )
            for violation in run["violations"]
        ]
        assert len(run["passes"]) > 10
    assert violations == []
    if width == 390:
        page.click("#clock-more")
    page.click("#reset")
    run = page.evaluate("axe.run(document.querySelector('dialog'))")
    assert [violation["id"] for violation in run["violations"]] == []


def test_isolated_clouds_are_listed_opened_and_closed(page: Any, server: Server) -> None:
    server.ask("POST", "/clouds", {"services": {"kv": {}}})
    other = server.ask("POST", "/clouds", {"services": {"queue": {}}})[1]
    cloud = server.ask("POST", f"/clouds/{other['id']}/failed", {"test": "failed"})[1]
    server.ask("DELETE", f"/clouds/{other['id']}")
    at(page, "connect")
    page.locator("#nav a", has_text="Isolated clouds").click()
    rows = page.locator("main tbody tr")
    rows.nth(1).wait_for()
    assert [text.split()[1:3] for text in rows.all_inner_texts()] == [
        ["running", "kv_server"],
        ["failed", "queue"],
    ]
    with page.context.expect_page() as opened:
        rows.nth(1).get_by_role("button", name="Open").click()
    inside = opened.value
    inside.locator("#nav a", has_text="QStash").wait_for()
    assert inside.url.startswith(cloud["env"]["PYTEST_FAKECLOUD_URL"])
    inside.close()
    rows.first.get_by_role("button", name="Close").click()
    rows.nth(1).wait_for(state="detached")
    rows.first.get_by_role("button", name="Close").click()
    page.locator(".empty", has_text="No isolated clouds.").wait_for()


# -- edits in progress -----------------------------------------------------------------------------


def typed_in(page: Any, text: str) -> None:
    """Change the value of the shown key without saving it, and move the focus elsewhere."""
    page.fill(".detail textarea[name=value]", text)
    page.focus("#skip")


def answer(page: Any, question: str, button: str) -> None:
    page.locator("dialog #question", has_text=question).wait_for()
    page.click(f"dialog button:text('{button}')")
    page.locator("dialog").wait_for(state="detached")


WAYS = {
    "another item": "fake/kv_server/keys/other",
    "the list": "fake/kv_server/keys",
    "another tab": "fake/kv_server/faults",
    "another page": "time",
}


@together
@pytest.mark.parametrize("place", WAYS.values())
def test_an_unsent_edit_is_dropped_only_after_a_question(
    page: Any, server: Server, place: str
) -> None:
    kv(server, "MSET", "edited", "old", "other", "x")
    at(page, "fake/kv_server/keys/edited", ".detail textarea")
    typed_in(page, "typed")
    # A change of the item, which redraws the details, does not drop the text either.
    kv(server, "EXPIRE", "edited", "100")
    before = page.url
    with page.expect_response("**/lists/keys/edited?*"):
        page.evaluate("document.dispatchEvent(new Event('changed'))")
    page.evaluate("(place) => { location.hash = '#/' + place; }", place)
    answer(page, "Discard what you have typed?", "Keep editing")
    assert page.url == before
    assert page.input_value(".detail textarea") == "typed"
    page.evaluate("(place) => { location.hash = '#/' + place; }", place)
    answer(page, "Discard what you have typed?", "Discard")
    holds(page, f"location.hash === '#/{place}'")
    page.locator(".detail textarea:visible", has_text="typed").wait_for(state="detached")
    at(page, "fake/kv_server/keys/edited", ".detail textarea")
    holds(page, "document.querySelector('.detail textarea').value === 'old'")
    # What was sent is no edit in progress.
    typed(page, "Value", value="new")
    page.locator("#notice", has_text="Saved").wait_for()
    at(page, "time", "h1:text-is('Time')")
    assert kv(server, "GET", "edited") == "new"


def test_the_browser_asks_before_it_leaves_an_unsent_edit(page: Any, server: Server) -> None:
    kv(server, "SET", "edited", "old")
    at(page, "fake/kv_server/keys/edited", ".detail textarea")
    event = "dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert page.evaluate(event)
    typed_in(page, "typed")
    assert not page.evaluate(event)
    page.evaluate("for (const one of document.querySelectorAll('form')) one.dataset.typed = 'no'")


EDITS: list[tuple[list[str], str, str, dict[str, str], list[str], list[str], Any, Any]] = [
    (["SET", "k", "old"], "", "Value", {"value": "mine"},
     ["SET", "k", "theirs"], ["GET", "k"], "theirs", "mine"),
    (["SET", "k", "old"], "", "Value", {"value": "mine"}, ["DEL", "k"], ["GET", "k"], None, "mine"),
    (["SET", "k", "old"], "", "Change TTL", {"seconds": "10"},
     ["EXPIRE", "k", "99"], ["TTL", "k"], 99, 10),
    (["JSON.SET", "k", "$", "[1]"], "", "Document", {"value": "[2]"},
     ["JSON.SET", "k", "$", "[3]"], ["JSON.GET", "k"], "[3]", "[2]"),
    (["HSET", "k", "f", "old"], "Edit", "Edit f", {"value": "mine"},
     ["HSET", "k", "f", "theirs"], ["HGET", "k", "f"], "theirs", "mine"),
    (["HSET", "k", "f", "old"], "", "Add an element", {"field": "g", "value": "mine"},
     ["HSET", "k", "g", "theirs"], ["HGET", "k", "g"], "theirs", "mine"),
    (["RPUSH", "k", "old"], "Edit", "Edit 0", {"value": "mine"},
     ["LPUSH", "k", "theirs"], ["LINDEX", "k", "0"], "theirs", "mine"),
    (["ZADD", "k", "1", "m"], "Edit", "Edit m", {"score": "2"},
     ["ZADD", "k", "3", "m"], ["ZSCORE", "k", "m"], "3", "2"),
    (["SET", "other", "x"], "", "New key", {"key": "k", "value": "mine"},
     ["SET", "k", "theirs"], ["GET", "k"], "theirs", "mine"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "press_first", "form", "fields", "change", "read", "theirs", "mine"),
    EDITS,
    ids=[f"{edit[2]} of {edit[0][0]}, {edit[4][0]} meanwhile" for edit in EDITS],
)
def test_an_edit_overwrites_a_change_of_somebody_else_only_after_a_question(
    page: Any, server: Server, made: list[str], press_first: str, form: str,
    fields: dict[str, str], change: list[str], read: list[str], theirs: Any, mine: Any,
) -> None:  # fmt: skip
    kv(server, *made)
    name = "k" if made[1] == "k" else ""
    at(page, f"fake/kv_server/keys/{name}", ".detail h2" if name else "table.rows")
    if press_first:
        press(page, press_first)
    shown = page.locator(f"form[aria-label='{form}']").first
    if not shown.is_visible():
        page.locator(f"summary:text-is('{form}')").first.click()
    for field, value in fields.items():
        shown.locator(f"[name='{field}']").fill(value)
    kv(server, *change)
    submit = shown.locator("button[type=submit]")
    submit.click()
    question = page.locator("dialog #question").inner_text()
    # An element of a list may have moved, and what was deleted has no value.
    if theirs is not None and made[0] != "RPUSH" and form != "New key":
        now = {99: "to expire in 1 m 39 s", "[3]": "[ 3 ]", "3": "3"}.get(theirs, theirs)
        assert f"k is now {now}. Overwrite it with {mine}?" in question
    page.click("dialog button:text-is('Cancel')")
    said(page, form, "Nothing was changed.")
    assert kv(server, *read) == theirs
    submit.click()
    page.locator("dialog #question").wait_for()
    page.click("dialog button[value=yes]")
    page.locator("dialog").wait_for(state="detached")
    page.locator("form[data-typed=yes]").wait_for(state="detached")
    assert kv(server, *read) == mine


# -- the clock ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_a_notice_shows_while_the_clock_moves(
    page: Any, window: Window, server: Server, width: int, scheme: str
) -> None:
    page.set_viewport_size({"width": width, "height": 720})
    page.emulate_media(color_scheme=scheme)
    moves: list[Any] = []
    page.route("**/__control__/clock", lambda route: moves.append(route))
    at(page, "time", "h1:text-is('Time')")
    try:
        typed(page, "Move the clock to a time", to="2026-01-01T00:05:00Z")
        notice = page.locator("#notice", has_text="Moving the clock to 2026-01-01 00:05:00 UTC…")
        notice.wait_for()
        # It stays on other pages, and while they say that they have nothing to say.
        at(page, "violations", "h1:text-is('Problems')")
        assert notice.is_visible()
        box = notice.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        if folder := os.environ.get("PYTEST_FAKECLOUD_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / f"moving-{width}-{scheme}.png")
        moves.pop().continue_()
        page.locator("#notice", has_text="It is 2026-01-01 00:05:00 UTC.").wait_for()
        # Without an answer, an error takes its place.
        page.evaluate("document.querySelector('[data-by]').click()")
        page.locator("#notice", has_text="Moving the clock…").wait_for()
        moves.pop().fulfill(status=400, json={"error": {"type": "Refused", "message": "no way"}})
        page.locator("#notice", has_text="no way").wait_for()
        assert window.violations == ["400 /__control__/clock"]
        window.violations.clear()
    finally:
        page.unroute("**/__control__/clock")
        page.set_viewport_size(Window.SIZE)
        page.emulate_media(color_scheme="light")


def test_a_question_ends_when_the_address_changes(page: Any, server: Server) -> None:
    command(server, "SET", "city", "Lima")
    at(page, "fake/kv_server/keys")
    at(page, "fake/kv_server/keys/city", "form[aria-label=Value]")
    page.locator("form[aria-label=Value] textarea").fill("Bergen")
    command(server, "SET", "city", "Quito")
    page.click("form[aria-label=Value] button")
    page.locator("dialog[open]", has_text="city is now Quito").wait_for()
    page.go_back()
    answer(page, "Discard what you have typed?", "Discard")
    holds(page, "!location.hash.includes('city')")
    # The form is gone, so that later moves ask nothing.
    at(page, "time", "h1:text-is('Time')")
    assert page.locator("dialog").count() == 0
    assert kv(server, "GET", "city") == "Quito"


def test_a_touch_screen_selects_a_column_while_calls_arrive(browser: Any, server: Server) -> None:
    for number in range(5):
        command(server, "SET", f"key:{number}", "1")
        server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    context = browser.new_context(
        has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844}
    )
    page = go(context.new_page(), server)
    at(page, "activity", ".trace-row")
    page.tap("button:text-is('Over time')")
    box = page.locator(".span-column").first.bounding_box()
    point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] - 5}
    touches = context.new_cdp_session(page)
    touches.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    command(server, "SET", "another", "1")
    page.locator(".trace-row", has_text="another").wait_for()
    touches.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.locator(".trace-chip:visible").wait_for()
    at(page, "fake/kv_server/commands", "#command")
    assert "Enter adds a line; Run runs all lines." in page.inner_text("#hint")
    context.close()


def test_filters_are_not_written_into_the_address_of_another_page(page: Any) -> None:
    at(page, "activity")
    write = """async (place) => {
        const {go} = await import("/console/dom.js");
        location.hash = place;
        go("#/activity?search=kettle", {replace: true});
        return location.hash;
    }"""
    assert page.evaluate(write, "#/fake/kv_server/commands") == "#/fake/kv_server/commands"
    assert page.evaluate(write, "#/activity/7") == "#/activity?search=kettle"


GROWING = Path(__file__).parent.joinpath("js", "growing.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("seed", range(5, 8))
def test_a_timeline_that_grows_is_as_if_drawn_whole(page: Any, seed: int) -> None:
    at(page, "activity")
    assert page.evaluate(GROWING, seed) > 50


def test_what_was_said_of_a_fault_ends_when_the_fault_is_removed(page: Any, server: Server) -> None:
    at(page, "fake/kv_server/faults", "form[aria-label='Add a fault']")
    typed(page, "Add a fault", kind="drop")
    said(page, "Add a fault", "Added:")
    press(page, "Remove")
    page.locator(".empty", has_text="No faults.").wait_for()
    assert page.locator("form[aria-label='Add a fault'] .out").inner_text() == ""
