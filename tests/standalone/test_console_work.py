"""Working in the console: what a person does there, from the keyboard, in a real browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.core.timeparse import monotonic

from .conftest import Server
from .test_console import CHROMIUM, browser, page, window

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

TABS = ("timeline", "overview", "kv_server", "vector_index", "broker", "queue")
AXE = os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js")
"""The script of axe-core; the test that needs it is skipped without."""


@pytest.fixture
def tab(page: Any) -> Callable[[str], None]:
    """Go to a tab and wait until its data is there."""

    def go(name: str) -> None:
        page.click(f"#tab-{name}")
        page.wait_for_selector("#rows" if name == "timeline" else "#data > *", state="attached")

    return go


def sent(server: Server, name: str, target: str = "/", body: Any = "", **headers: str) -> Any:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    status, answer = server.ask(
        "POST", f"/handles/{name}/requests", {"target": target, "body": body, "headers": given}
    )
    assert (status, answer["status"] < 300) == (200, True), answer
    return answer


def typed(page: Any, form: str, **fields: str) -> None:
    """Fill a form and send it with Enter."""
    for name, value in fields.items():
        field = page.locator(f"form[aria-label='{form}'] [name={name}]")
        if field.evaluate("(one) => one.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.locator(f"form[aria-label='{form}'] input:not([type=number])").first.press("Enter")


def said(page: Any, form: str, text: str) -> None:
    page.locator(f"form[aria-label='{form}'] .out", has_text=text).wait_for()


def test_a_command_runs_and_its_answer_data_and_call_are_shown(page: Any, tab: Any) -> None:
    tab("kv_server")
    typed(page, "Run a command", line='SET greeting "hello  you" EX 60')
    said(page, "Run a command", '"OK"')
    page.wait_for_selector("#data td:text('hello  you')")
    typed(page, "Run a command", line="GET 'never closed")
    said(page, "Run a command", "never closed")
    field = page.locator("form[aria-label='Run a command'] input")
    field.fill("")
    field.press("ArrowUp")
    assert field.input_value() == 'SET greeting "hello  you" EX 60'
    tab("timeline")
    page.wait_for_selector("#rows summary:has-text('SET greeting')")


def test_vectors_are_put_in_and_found_and_the_query_is_among_them(page: Any, tab: Any) -> None:
    tab("vector_index")
    for number in range(3):
        typed(page, "Upsert", id=f"v{number}", what=f"{number}, 1", metadata='{"n": 1}')
        said(page, "Upsert", "Success")
    page.wait_for_function("document.querySelectorAll('svg .vector').length === 3")
    assert page.locator("svg .query").count() == 0
    typed(page, "Query", what="[2, 1]", most="1")
    page.wait_for_selector("form[aria-label=Query] .out td:text('v2')")
    page.wait_for_selector("svg .query", state="attached")
    assert page.locator("svg .found title").text_content().startswith("v2 ")
    typed(page, "Query", by="text", what="no model here")
    said(page, "Query", "422")


def test_records_are_produced_and_consumed_and_the_lag_is_drawn(page: Any, tab: Any) -> None:
    tab("broker")
    typed(page, "Produce", topic="orders", value="one", partition="1")
    said(page, "Produce", '"offset": 0')
    typed(page, "Consume", topic="orders")
    page.wait_for_selector("form[aria-label=Consume] .out td:text('one')")
    page.wait_for_selector("#data svg .member", state="attached")
    for number in range(3):
        typed(page, "Produce", topic="orders", value=f"{number}", partition="1")
    page.wait_for_function(
        "document.querySelector('#data svg')?.getAttribute('aria-label').includes('1: one, lag 4')"
    )
    widths = page.eval_on_selector_all(
        "#data svg .lag", "(all) => all.map((one) => +one.getAttribute('width'))"
    )
    assert len(widths) == 1
    assert widths[0] > 100


def test_a_message_is_published_and_its_retries_are_drawn_to_scale(
    page: Any, tab: Any, server: Server
) -> None:
    tab("queue")
    typed(page, "Publish", to="http://127.0.0.1:9/gone?a=1", retries="3", body='{"n": 1}')
    said(page, "Publish", "201")
    page.wait_for_selector("#data td:text('POST http://127.0.0.1:9/gone?a=1')")

    def attempts() -> list[Any]:
        found: list[Any] = server.ask("GET", "/handles/queue/view")[1]["messages"][0]["attempts"]
        return found

    # What a frozen clock is moved to may be attempted by another thread, a little later.
    until = monotonic() + 30
    while len(tried := attempts()) < 3:
        assert monotonic() < until, tried
        server.ask("POST", "/clock", {"action": "advance_to_next"})
    page.wait_for_function(
        "(count) => document.querySelectorAll('#data svg .bad').length === count",
        arg=len(tried),
    )
    drawn = page.eval_on_selector_all(
        "#data svg circle", "(all) => all.map((one) => +one.getAttribute('cx'))"
    )
    at = page.evaluate("(all) => all.map(micros)", [one["at"] for one in tried])
    scale = (drawn[2] - drawn[0]) / (at[2] - at[0])
    assert (drawn[1] - drawn[0]) / (at[1] - at[0]) == pytest.approx(scale, rel=0.01)


def test_a_workflow_run_is_drawn_as_a_graph(page: Any, tab: Any, server: Server) -> None:
    run = {"Upstash_Workflow_RunId": "wfr_1", "Upstash_Workflow_Url": "http://127.0.0.1:9/f"}
    target = "/v2/publish/http://127.0.0.1:9/f"
    sent(server, "queue", target, {"order": 7}, Upstash_Workflow_Init="true", **run)
    for number, name in enumerate(("reserve", "charge", "invoice"), 1):
        step = {"stepId": number, "stepName": name, "stepType": "Run", "out": "1"}
        step["concurrent"] = 1 if name == "reserve" else 2
        sent(server, "queue", target, step, Upstash_Workflow_CallType="step", **run)
    tab("queue")
    page.wait_for_selector("svg .node", state="attached")
    places = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('svg .node')].map((node) => [
            node.querySelector('title').textContent.split(':')[0],
            ['x', 'y'].map((name) => Number(node.getAttribute(name)))]))"""
    )
    assert places["charge"][1] == places["invoice"][1] > places["reserve"][1]
    assert places["charge"][0] < places["reserve"][0] < places["invoice"][0]


def test_faults_are_added_seen_to_hit_and_removed(page: Any, tab: Any, server: Server) -> None:
    tab("kv_server")
    page.wait_for_selector("form[aria-label='Add a fault']")
    typed(page, "Add a fault", kind="answer", args="503", by="command", which="INCR")
    said(page, "Add a fault", "added")
    typed(page, "Run a command", line="INCR n")
    said(page, "Run a command", "503")
    page.wait_for_selector("#faults td:text-is('1')")
    page.focus("#faults button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#faults :text('no faults')")
    assert server.ask("GET", "/handles/kv_server/faults")[1] == []
    typed(page, "Add a fault", kind="answer", args="5 0")
    said(page, "Add a fault", "is not JSON")


def test_a_reset_asks_first(page: Any, server: Server) -> None:
    sent(server, "kv_server", body=["SET", "a", "1"])
    page.click("#reset")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog", state="detached")
    assert page.evaluate("document.activeElement.id") == "reset"
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert server.ask("GET", "/handles/kv_server/view")[1]["count"] == 1
    page.click("#reset")
    page.click("dialog button:text('Reset')")
    page.wait_for_function("rows.length === 0")
    assert server.ask("GET", "/handles/kv_server/view")[1]["count"] == 0


def test_a_snapshot_is_taken_restored_and_forgotten(page: Any, tab: Any, server: Server) -> None:
    sent(server, "kv_server", body=["SET", "a", "before"])
    tab("overview")
    typed(page, "Take a snapshot", id="one/two")
    said(page, "Take a snapshot", "taken: one/two")
    sent(server, "kv_server", body=["SET", "a", "after"])
    page.click("#snapshots button:text('Restore')")
    page.click("dialog button:text('Restore')")
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_function("rows.length >= 2")
    keys = server.ask("GET", "/handles/kv_server/view")[1]["keys"]
    assert [one["value"] for one in keys] == ["before"]
    page.click("#snapshots button:text('Forget')")
    page.wait_for_selector("#snapshots :text('nothing')")


def test_what_falls_due_is_on_a_strip_and_can_be_gone_to(
    page: Any, tab: Any, server: Server
) -> None:
    for delay in ("10s", "5m", "1d"):
        target = "/v2/publish/http://127.0.0.1:9/x"
        sent(server, "queue", target, Upstash_Delay=delay)
    tab("overview")
    page.wait_for_function("document.querySelectorAll('svg .due').length === 3")
    places = page.eval_on_selector_all(
        "svg .due", "(all) => all.map((one) => +one.getAttribute('cx'))"
    )
    assert places == sorted(set(places))
    page.focus("#data summary")
    page.keyboard.press("Enter")
    page.locator("#data button:text('Go there')").nth(1).focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('now').textContent.includes('00:05:00')")


def test_problems_are_counted_and_told(page: Any, server: Server) -> None:
    sent(server, "queue", "/v2/publish/https://app.example/hook")
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    page.wait_for_selector("#problems:not([hidden])")
    page.click("#problems")
    page.wait_for_selector(
        "#data pre:has-text('nothing stands in for POST https://app.example/hook')"
    )


def test_the_environment_is_copied_as_shells_read_it(page: Any, server: Server) -> None:
    page.wait_for_function("state.handles.length > 0")
    env = {name: value for one in server.summary["handles"] for name, value in one["env"].items()}
    assert page.evaluate("environment()") == env
    copied = page.evaluate(
        "(env) => Object.values(environments).map((make) => make(env))", {"A": "it's $x", "B": "1"}
    )
    assert copied == [
        'A="it\'s $x"\nB=1\n',
        "export A='it'\\''s $x'\nexport B='1'\n",
        "$env:A = 'it''s $x'\n$env:B = '1'\n",
        '{\n "A": "it\'s $x",\n "B": "1"\n}',
    ]


def test_rate_and_memory_are_drawn_over_time(page: Any, tab: Any, server: Server) -> None:
    tab("overview")
    page.wait_for_function("memories.kv_server?.length === 1")
    sent(server, "kv_server", body=["SET", "a", "x" * 5000])
    page.wait_for_function("rows.length > 0")
    page.evaluate("measure()")
    page.evaluate("measure()")
    assert page.evaluate("rates.length >= 2 && rates.some((one) => one.value > 0)")
    assert page.evaluate("memories.kv_server.length >= 2")
    # What the page still measures by itself comes too late to count.
    page.evaluate(
        """memories.kv_server = Object.assign(
               [{at: 0, value: 1024}, {at: 1000, value: 6000}], {push() {}});
           drawn = ''; drawOverview()"""
    )
    page.wait_for_function("document.querySelectorAll('svg .curve').length === 2")
    told = page.eval_on_selector_all(
        "svg:has(.curve)", "(all) => all.map((one) => one.getAttribute('aria-label'))"
    )
    assert told[0].startswith("now ")
    assert told[1] == "now 6000 bytes, at most 6000 bytes"


def test_ten_thousand_rows_are_in_reach_and_few_in_the_page(page: Any) -> None:
    page.evaluate(
        """() => {
            entries.cover(Array.from({length: 10000}, (_, index) => ({
                number: index + 1, at: "2026-01-01T00:00:00.000000+00:00", kind: "call",
                handle: "kv_server", source: "client", target: "kv_server",
                what: `SET key:${index + 1}`, answer: "OK", ok: true, done: true,
                fault: null, note: null, sent: "POST /\\n\\nx", got: "OK"})));
            rows = entries.list; fill();
        }"""
    )
    page.wait_for_function("document.getElementById('count').textContent === '10000 of 10000'")
    assert page.locator("#rows tr").count() < 80
    assert "SET key:10000" in page.inner_text("#rows tr:first-child")
    shown = "[...document.querySelectorAll('#rows summary')].map((one) => one.textContent)"
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function(f"{shown}.at(-1) === 'SET key:1'")
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    page.wait_for_function(f"/key:[45]\\d{{3}}$/.test({shown}[0])")
    numbers = page.eval_on_selector_all(
        "#rows summary", "(all) => all.map((one) => +one.textContent.slice(8))"
    )
    assert numbers == list(range(numbers[0], numbers[-1] - 1, -1))
    assert len(numbers) < 80
    # A frame of scrolling through all of them, in milliseconds.
    spent = page.evaluate(
        """() => {
            const begun = performance.now();
            for (let turn = 0; turn < 20; turn++) { scrollTo(0, turn * 15000); list.draw(); }
            return (performance.now() - begun) / 20;
        }"""
    )
    assert spent < 500
    print(f"{spent:.1f} ms a frame")


def test_who_reads_further_down_keeps_the_place(page: Any, server: Server) -> None:
    for number in range(80):
        sent(server, "kv_server", body=["SET", f"key:{number}", "1"])
    page.wait_for_function("rows.length === 80")
    page.evaluate("scrollTo(0, 900)")
    top = "(one) => one.getBoundingClientRect().top > 150"
    first = f"[...document.querySelectorAll('#rows tr')].find({top})"
    page.wait_for_function("document.querySelector('#rows tr')?.innerText.includes('key:')")
    page.evaluate("list.draw()")
    before = page.evaluate(f"[{first}.innerText, {first}.getBoundingClientRect().top]")
    for number in range(10):
        sent(server, "kv_server", body=["SET", f"late:{number}", "1"])
    page.wait_for_function("rows.length === 90")
    page.evaluate("list.draw()")
    after = page.evaluate(f"[{first}.innerText, {first}.getBoundingClientRect().top]")
    assert after[0] == before[0]
    assert after[1] == pytest.approx(before[1], abs=3)


def fill_all(server: Server) -> None:
    """Something in every fake, with retries, lag and a query."""
    sent(server, "kv_server", body=["SET", "a-key-that-is-long:" + "x" * 80, "1", "EX", "60"])
    vectors = [{"id": f"v{n}", "vector": [n, n % 3], "metadata": {"n": n}} for n in range(8)]
    sent(server, "vector_index", "/upsert", vectors)
    sent(server, "vector_index", "/query", {"vector": [1, 1], "topK": 2})
    sent(server, "broker", "/consume/billing/a", {"topic": "orders"})
    sent(server, "broker", "/produce", {"topic": "orders", "value": "x", "partition": 0})
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/gone")
    server.ask("POST", "/handles/kv_server/faults", {"kind": "answer", "args": [503]})
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})


def whole_tabs(opened: Any) -> Iterator[str]:
    """Go to one tab after the other, with all its details open; their names."""
    for name in TABS:
        opened.click(f"#tab-{name}")
        opened.wait_for_selector("#rows tr" if name == "timeline" else "#data > *")
        opened.evaluate(
            """async () => {
                const frame = () => new Promise(requestAnimationFrame);
                const shut = [...document.querySelectorAll("details:not([open])")];
                await Promise.all(shut.map((one) => new Promise((done) => {
                    one.addEventListener("toggle", done, {once: true});
                    one.open = true;
                })));
                await frame();
                await frame();
            }"""
        )
        yield name


def test_nothing_is_wider_than_a_telephone(page: Any, server: Server) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    fill_all(server)
    for name in whole_tabs(page):
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name


@pytest.mark.skipif(not Path(AXE).is_file(), reason="axe-core is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(page: Any, server: Server, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    fill_all(server)
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    for name in whole_tabs(page):
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == [], name
        assert len(found["passes"]) > 10
    page.click("#reset")
    found = page.evaluate("axe.run(document.querySelector('dialog'))")
    assert [one["id"] for one in found["violations"]] == []
