"""The pictures of time in the console, in a real browser: spans, columns, and what they select."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ..harness import together, wait_until
from .conftest import Serve, Server, fetch
from .test_console import (
    CHROMIUM,
    LINES,
    Window,
    at,
    browser,
    command,
    fake,
    holds,
    page,
    sent,
    window,
)

__all__ = ["browser", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

AXIS = """async (spans) => {
    const {TimeAxis} = await import("/console/spans.js"), us = (seconds) => seconds * 1e6;
    const axis = new TimeAxis(spans.map(([kind, from, to]) => ({kind, from: us(from), to: us(to)})));
    return {
        folds: axis.folds.map(({length}) => length / 1e6),
        places: spans.map(([, from]) => axis.place(us(from))),
        labels: axis.ticks(600).map(({text}) => text),
    };
}"""
"""Return the folds, the places and the labels of an axis for spans in seconds."""


@pytest.mark.parametrize(
    ("spans", "folds", "labels"),
    [
        ([["call", 0, 1], ["call", 2, 3]], [],
         ["0", "+500 ms", "+1 s", "+1.5 s", "+2 s", "+2.5 s", "+3 s"]),
        # A sleep is folded, work of the same length is not.
        ([["step", 0, 1], ["sleep", 1, 7201], ["step", 7201, 7202]], [7200], None),
        ([["step", 0, 1], ["step", 1, 7201], ["step", 7201, 7202]], [], None),
        ([["delivery", 0, 0], ["delivery", 12, 12], ["delivery", 160, 160], ["delivery", 5160, 5160]],
         [148, 5000], ["0", "+2 s", "+4 s", "+6 s", "+8 s", "+10 s", "+1 h 26 m"]),
        # Gaps of one length are all folded, or none.
        ([["call", 9 * at, 9 * at + 0.001] for at in range(20)], [], None),
        ([["call", 5, 5]], [], ["0"]),
    ],
)  # fmt: skip
def test_an_axis_is_linear_and_folds_long_gaps(
    page: Any, spans: list[Any], folds: list[float], labels: list[str] | None
) -> None:
    axis = page.evaluate(AXIS, spans)
    assert axis["folds"] == folds
    assert axis["places"] == sorted(axis["places"])
    assert all(0 <= place <= 100 for place in axis["places"])
    assert len(set(axis["labels"])) == len(axis["labels"]) > 0
    if labels is not None:
        assert axis["labels"] == labels
    if not folds and len(spans) > 2:
        gaps = [after - before for before, after in pairwise(axis["places"])]
        times = [after[1] - before[1] for before, after in pairwise(spans)]
        assert [gap / gaps[0] for gap in gaps] == pytest.approx([time / times[0] for time in times])


def test_calls_over_time_show_errors_and_select_rows(page: Any, server: Server) -> None:
    for seconds in range(3):
        command(server, "SET", f"key:{seconds}", "1")
        server.ask("POST", "/clock", {"action": "advance", "by": "10s"})
    command(server, "INCR")
    at(page, "activity", ".over-time .span-column")
    if page.locator(".over-time[hidden]").count():
        page.click("button:text-is('Over time')")
    texts = page.eval_on_selector_all(
        ".over-time .span-column", "(all) => all.map((one) => one.ariaLabel)"
    )
    assert texts == [
        "1 call: 1 succeeded, 00:00:00", "1 call: 1 succeeded, 00:00:10",
        "1 call: 1 succeeded, 00:00:20", "1 call: 1 failed, 00:00:30",
    ]  # fmt: skip
    columns = page.locator(".over-time .span-column")
    columns.nth(1).click()
    holds(page, f"{LINES} === 1")
    assert page.locator(".trace-row").inner_text().split("\n")[-2] == "SET key:1 1"
    # The address keeps the span of time, and the chip ends it.
    holds(page, "location.hash.includes('from=')")
    page.reload()
    holds(page, f"{LINES} === 1")
    page.click(".trace-chip:has-text('00:00:10.000 – 00:00:10.000 ✕')")
    holds(page, f"{LINES} === 4")
    # Dragging, and the arrow keys with Shift, select several columns.
    first, third = (columns.nth(index).bounding_box() for index in (0, 2))
    page.mouse.move(first["x"] + 2, first["y"] + 30)
    page.mouse.down()
    page.mouse.move(third["x"] + 2, third["y"] + 30, steps=4)
    page.mouse.up()
    holds(page, f"{LINES} === 3")
    # The chart has the selected span alone, in which a finer one can be selected.
    assert columns.count() == 3
    assert columns.last.get_attribute("aria-label") == "1 call: 1 succeeded, 00:00:20"
    columns.nth(2).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    holds(page, f"{LINES} === 2")
    assert columns.count() == 2
    page.click(".trace-chip:has-text('✕')")
    # It has what the filters leave.
    page.fill(".trace input[type=search]", "key:1")
    holds(page, "document.querySelectorAll('.over-time .span-column').length === 1")


def test_one_burst_leaves_the_other_columns_visible(page: Any) -> None:
    heights = page.evaluate("""async () => {
      const {columnsElement} = await import('/console/columns.js');
      const items = [...Array(400).fill(0), 1e6, 2e6, 3e6].map((at) => ({at, kind: 'ok'}));
      const figure = columnsElement('calls', items, {noun: 'call'});
      return [figure.querySelector('figcaption').textContent,
        ...[...figure.querySelectorAll('.span-column > span')].map((bar) => bar.style.height)];
    }""")
    caption = "highest column: 400 calls; heights are square roots; 0 is 1970-01-01 00:00:00 UTC"
    assert heights == [caption, "100%", *["5%"] * 3]


LABELS = """async ([width, times]) => {
    const {spansElement} = await import("/console/spans.js"), us = (seconds) => seconds * 1e6;
    const rows = times.map(([kind, from, to]) =>
        ({name: "row", spans: [{kind, from: us(from), to: us(to)}]}));
    const figure = spansElement("spans", rows);
    figure.style.width = `${width}px`;
    document.body.prepend(figure);
    for (let turn = 0; turn < 2; turn++) await new Promise(requestAnimationFrame);
    const boxes = [...figure.querySelectorAll(".span-tick, .span-axis small")]
        .map((label) => [label.textContent, label.getBoundingClientRect()])
        .map(([text, {left, right, top}]) => [text, left, right, top]);
    const {left, right} = figure.querySelector(".span-axis").getBoundingClientRect();
    figure.remove();
    return {boxes, left, right};
}"""
"""Return the labels of a picture of a width, with their left, right and top, and its own sides."""


@together
@pytest.mark.parametrize("width", [260, 390, 900])
@pytest.mark.parametrize(
    "times",
    [
        # Two clocks: work of milliseconds, and waits of hours.
        [["call", 0, 0.003], ["wait", 0.003, 12], ["delivery", 12, 12.2], ["wait", 12.2, 553],
         ["delivery", 553, 554], ["sleep", 554, 90_000], ["callback", 90_000, 90_000.5]],
        [["call", 3607 * at, 3607 * at + 1.234] for at in range(40)],
        [["delivery", 1.5**at, 1.5**at] for at in range(30)],
        [["step", 0, 553], ["sleep", 553, 99_999]],
    ],
)  # fmt: skip
def test_labels_of_an_axis_never_overlap(page: Any, times: list[Any], width: int) -> None:
    drawn = page.evaluate(LABELS, [width, times])
    rows: dict[float, list[Any]] = {}
    for text, left, right, top in sorted(drawn["boxes"], key=lambda box: box[1]):
        assert drawn["left"] - 1 <= left <= right <= drawn["right"] + 1, text
        rows.setdefault(top, []).append((text, left, right))
    assert drawn["boxes"]
    for labels in rows.values():
        assert [pair for pair in pairwise(labels) if pair[0][2] > pair[1][1]] == []


def test_gaps_of_one_length_have_one_label(page: Any) -> None:
    starts = (0, 3607, 7214, 10_821)
    times = [["call", start, start + 1] for start in starts]
    boxes = page.evaluate(LABELS, [900, times])["boxes"]
    assert [text for text, *_ in boxes].count("1 h 6 s") == 1


def test_a_chart_names_the_column_with_the_focus_and_has_levels(page: Any, server: Server) -> None:
    for number in range(4):
        command(server, "SET", f"key:{number}", "1")
    server.ask("POST", "/clock", {"action": "advance", "by": "10s"})
    command(server, "INCR")
    # The chart is open, as in the visit before, or opened now.
    at(page, "activity", ".over-time .span-column")
    if page.locator(".over-time[hidden]").count():
        page.click("button:text-is('Over time')")
    assert page.locator(".span-levels span").all_inner_texts() == ["2", "4"]
    caption = page.locator(".over-time figcaption")
    assert caption.inner_text() == "highest column: 4 calls; from 2026-01-01 00:00:00 UTC"
    page.locator(".over-time .span-column").last.hover()
    assert caption.inner_text() == "1 call: 1 failed, 00:00:10"
    page.mouse.move(0, 0)
    assert caption.inner_text().startswith("highest column")
    page.locator(".over-time .span-column[tabindex='0']").focus()
    assert caption.inner_text() == "4 calls: 4 succeeded, 00:00:00"
    page.keyboard.press("ArrowRight")
    assert caption.inner_text() == "1 call: 1 failed, 00:00:10"


def test_rows_have_durations_and_are_ordered_by_them(window: Window, serve: Serve) -> None:
    running = serve("kv")
    command(running, "SET", "fast", "1")
    running.ask("POST", "/fakes/kv_server/faults", {"kind": "delay", "args": [0.3], "times": 1})
    command(running, "GET", "slow")
    command(running, "GET", "last")
    window.show(running)
    opened = window.page
    at(opened, "activity", ".trace-took")
    opened.select_option("select[aria-label=Order]", "slowest")
    holds(opened, "location.hash.includes('order=slowest')")
    first = opened.locator(".trace-row[aria-posinset='1']").inner_text()
    assert "GET slow" in first
    assert " ms" in first


@pytest.fixture
def application(server: Server) -> Iterator[str]:
    """The URL of a handler that writes to the key-value server, and fails once."""
    kv, calls = fake(server, "kv_server"), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            calls.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            # A call that names the message is known to be made during its delivery; others are not.
            named = {"X-Message": self.headers["Upstash-Message-Id"]}
            for words, headers in ((["INCR", "handled"], named), (["GET", "handled"], {})):
                fetch("POST", kv["url"], json=words, headers={**kv["headers"], **headers})
            self.send_response(503 if len(calls) == 1 else 200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    handler = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=handler.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{handler.server_port}"
    handler.shutdown()
    thread.join()
    handler.server_close()


def handled(server: Server, calls: int) -> None:
    """Wait until the application has handled so many deliveries."""
    kv = fake(server, "kv_server")
    url, headers, reply = f"{kv['url']}/get/handled", kv["headers"], {"result": str(calls)}
    wait_until(lambda: json.loads(fetch("GET", url, headers=headers).data) == reply)


def waterfall(page: Any, rows: int) -> list[str]:
    """Select the row that publishes; return the first words of its waterfall's rows, in order."""
    at(page, "activity?search=publish", ".trace-row")
    page.locator(".trace-row", has_text="publish").first.click()
    holds(page, f"document.querySelectorAll('.trace-pane .spans ol li').length === {rows}")
    names = page.locator(".trace-pane .spans ol li b").all_inner_texts()
    return [name.split()[0] for name in names]


def test_a_waterfall_has_the_whole_request(page: Any, server: Server, application: str) -> None:
    sent(
        server, "queue", f"/v2/publish/{application}/hook", Upstash_Delay="5s",
        Upstash_Callback=f"{application}/done",
    )  # fmt: skip
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    handled(server, 4)
    rounds = ["attempt", "INCR", "callback", "INCR"]
    assert waterfall(page, 9) == ["publish", *rounds, *rounds]
    words = page.locator(".trace-pane .span-words").all_inner_texts()
    assert words[1] == "delay, sleep or wait at 0 for 5 s, delivery at +5 s failed"
    assert sum("retry wait" in text for text in words) == 1
    assert page.locator(".trace-pane .span-legend li").all_inner_texts() == [
        "call", "delivery", "callback", "retry wait", "delay, sleep or wait", "failed",
    ]  # fmt: skip
    page.locator(".trace-pane .spans ol li button", has_text="attempt 2").click()
    holds(page, "document.querySelector('.trace-pane h3').textContent.startsWith('attempt 2')")
    assert page.locator(".spans button[aria-current=true]").inner_text().startswith("attempt 2")


def test_a_waterfall_of_deliveries_in_the_background_has_no_calls_of_others(
    page: Any, server: Server, application: str
) -> None:
    sent(server, "queue", f"/v2/publish/{application}/hook", Upstash_Callback=f"{application}/done")
    handled(server, 2)
    assert sorted(waterfall(page, 3)) == ["attempt", "callback", "publish"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_request_and_its_message_are_shown_in_light_and_dark(
    page: Any, server: Server, application: str, scheme: str
) -> None:
    order = {"order": 104, "items": ["book", "pen"]}
    target = f"/v2/publish/{application}/orders/"
    sent(server, "queue", target + "ship", order, Upstash_Callback=f"{application}/shipped")
    sent(server, "queue", target + "mail", order, Upstash_Delay="1h")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/orders/bill", order)
    server.ask("POST", "/clock", {"action": "advance", "by": "5m"})
    page.emulate_media(color_scheme=scheme)
    at(page, "fake/queue/messages", "table.rows tr:has-text('orders/bill')")
    page.click("table.rows tr:has-text('orders/bill') a")
    page.locator(".detail h3", has_text=re.compile("3 attempts", re.IGNORECASE)).wait_for()
    _picture(page, f"console-{scheme}")
    at(page, "activity?search=orders/ship", ".trace-row:has-text('publish')")
    page.locator(".trace-row", has_text="publish").first.click()
    page.locator(".trace-pane .spans ol li", has_text="callback").first.wait_for()
    over_time = page.locator(".over-time")
    over_time.evaluate("(one) => { one.hidden = false; }")
    over_time.locator(".span-column").first.wait_for()
    _picture(page, f"console-waterfall-{scheme}")
    over_time.evaluate("(one) => { one.hidden = true; }")
    at(page, "overview", "section[aria-label='What failed'] td:has-text('connection refused')")
    _picture(page, f"console-overview-{scheme}")
    page.set_viewport_size({"width": 390, "height": 844})
    at(page, "fake/queue/messages", "table.rows tr:has-text('orders/bill')")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    _picture(page, f"console-narrow-{scheme}")


def _picture(page: Any, name: str) -> None:
    """Save a picture for the guide, if a folder for pictures is given."""
    if folder := os.environ.get("PYTEST_FAKECLOUD_SCREENSHOTS"):
        page.mouse.move(0, 0)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_hostile_names_are_text_in_spans_and_columns(page: Any, server: Server) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">\u202eabc" + "x" * 5000
    run = {"Upstash_Workflow_RunId": "wfr_evil", "Upstash_Workflow_Url": "http://127.0.0.1:9/f"}
    target = "/v2/publish/http://127.0.0.1:9/f"
    sent(server, "queue", target, Upstash_Workflow_Init="true", **run)
    step = {"stepId": [1], "stepName": evil, "stepType": "Run", "out": evil, "concurrent": 1}
    sent(server, "queue", target, step, Upstash_Workflow_CallType="step", **run)
    sent(
        server,
        "vector_index",
        "/upsert",
        {"id": evil[:500], "vector": [1, 2], "metadata": {evil[:99]: evil}},
    )
    at(page, "fake/queue/runs/wfr_evil", ".span-item")
    name = page.inner_text(".span-item b")
    assert name.startswith("<img src=x")
    assert "\\u202e" in name
    assert len(name) < 200
    at(page, "fake/vector_index/vectors", "select[aria-label='Colour by']")
    page.select_option("select[aria-label='Colour by']", index=1)
    page.locator(".span-legend li", has_text="<img src=x").wait_for()
    assert page.query_selector("img") is None
    holds(page, "document.documentElement.scrollWidth <= innerWidth")


# -- differences of snapshots ------------------------------------------------------------------------

DIFFERENCE = """async ([before, after]) => {
    const {changesTable} = await import("/console/elements.js");
    const item = {fake: "kv", section: "keys", item: "k"};
    const table = changesTable([{...item, before: {value: before}, after: {value: after}}]);
    for (const mark of table.querySelectorAll("mark")) mark.replaceWith(`<${mark.textContent}>`);
    const texts = (side) => [...side.querySelectorAll("dl > div")].map((part) => part.textContent);
    return [...table.querySelectorAll("td")].map(texts);
}"""
"""Return the parts of a value that differ, before and after, with the marked words in <>."""
LONG = {"items": [{"number": number, "name": f"item {number}"} for number in range(200)]}


@pytest.mark.parametrize(
    ("before", "after", "parts_before", "parts_after"),
    [
        (json.dumps(LONG | {"total": 1}), json.dumps(LONG | {"total": 2, "new": True}),
         ["value.total <1>", "value.new –"], ["value.total <2>", "value.new <true>"]),
        ({"f1": "red wine", "f3": "value 3"}, {"f1": "red beer"},
         ["value.f1 red <wine>", "value.f3 <value 3>"], ["value.f1 red <beer>", "value.f3 –"]),
        # An element at the head moves the others.
        (["job-a", "job-b"], ["job-x", "job-a", "job-b"], ["value[0] –"], ["value[0] <job-x>"]),
        (["a", "b", "c"], ["a", "x", "c"], ["value[1] <b>"], ["value[1] <x>"]),
        ({"1-0": {"city": "Cusco"}}, {"1-0": {"city": "Lima", "extra": "1"}},
         ["value.1-0.city <Cusco>", "value.1-0.extra –"],
         ["value.1-0.city <Lima>", "value.1-0.extra <1>"]),
        ("\x00\x01 a", "\t\n\x0b", ["value <\\x00\\x01 a>"], ["value <\\x09\\x0a\\x0b>"]),
        ("two\nlines", "\t\n\\xff", ["value <two\nlines>"], ["value <\\x09\\x0a\\xff>"]),
        # JavaScript rounds such integers, and whitespace of JSON is no difference of its parts.
        ('{"n": 9007199254740993}', '{"n": 9007199254740992}',
         ["value.n <9007199254740993>"], ["value.n <9007199254740992>"]),
        ('{"n": 1}', '{"n":1}', ['value {"n":< >1}'], ['value {"n":1}']),
        (" ".join(map(str, range(9000))), " ".join(map(str, [*range(4000), "x", *range(4001, 9000)])),
         None, None),
    ],
)  # fmt: skip
def test_a_difference_of_two_versions_is_that_of_their_smallest_parts(
    page: Any,
    before: Any,
    after: Any,
    parts_before: list[str] | None,
    parts_after: list[str] | None,
) -> None:
    sides = page.evaluate(DIFFERENCE, [before, after])
    if parts_before is None:
        assert [re.findall("<.*?>", side[0]) for side in sides] == [["<4000>"], ["<x>"]]
    else:
        assert sides == [parts_before, parts_after]


def test_a_comparison_of_snapshots_is_that_of_whole_values(page: Any, server: Server) -> None:
    items = [f"item {number} " + "x" * 30 for number in range(200)]
    command(server, "JSON.SET", "cart", "$", json.dumps({"items": items, "total": 1}))
    command(server, "ZADD", "board", "1", "ada", "2", "bob")
    command(server, "XADD", "log", "1-0", "city", "Cusco")
    server.ask("POST", "/snapshots", {"id": "first"})
    changed = [*items[:60], "another item", *items[61:]]
    command(server, "JSON.SET", "cart", "$", json.dumps({"items": changed, "total": 2}))
    command(server, "ZADD", "board", "7", "bob")
    command(server, "XADD", "log", "2-0", "city", "Lima")
    at(page, "snapshots", "table")
    page.click("form[aria-label=Compare] button")
    page.locator("form[aria-label=Compare] .trace-state").wait_for()
    names = page.locator(".trace-state td[data-name=after] dt").all_inner_texts()
    assert [name.strip() for name in names] == [
        "value.items[60]", "value.total", "value.bob", "value.2-0", "last ID",
    ]  # fmt: skip


def test_a_kind_without_events_leaves_the_chart_in_its_place(page: Any, server: Server) -> None:
    sent(
        server, "queue", "/v2/publish/http://127.0.0.1:9/x", Upstash_Delay="1h", Upstash_Retries="0"
    )
    at(page, "time", "[aria-label='due events']")
    left = "document.querySelector('.due > .filters').getBoundingClientRect().left"
    before = page.evaluate(left)
    at(page, "time?kind=schedule", ".due :text('No event of this kind is planned.')")
    assert page.evaluate(left) == before
    assert page.locator(".due table").count() == 0
    assert page.locator(".due .span-column").count() == 0


def test_expiries_hide_no_other_event(page: Any, server: Server) -> None:
    for number in range(40):
        command(server, "SET", f"session:{number:02}", "x", "EX", str(60 * (number + 1)))
    target = "/v2/publish/http://127.0.0.1:9/later"
    sent(server, "queue", target, Upstash_Delay="1230s", Upstash_Retries="0")
    at(page, "overview", "[aria-label='next events'] td:has-text('/later')")
    cells = page.locator("[aria-label='next events'] tbody td:nth-child(2)").all_inner_texts()
    texts = [text.splitlines()[0] for text in cells]
    assert texts == [
        "20 keys expire: session:…", "delivery: POST 127.0.0.1:9/later", "20 keys expire: session:…",
    ]  # fmt: skip
    at(page, "time", "[aria-label='due events']")
    rows = "document.querySelectorAll('[aria-label=\"due events\"] tbody tr').length"
    holds(page, f"{rows} === 3")
    # A line of several is opened in its place, and closed again.
    several = page.locator("[aria-label='due events'] a[aria-expanded]").first
    several.click()
    holds(page, f"{rows} === 23")
    page.reload()
    holds(page, f"{rows} === 23")
    several.click()
    holds(page, f"{rows} === 3")
    # A kind is left out at one click, and one is shown alone at another.
    page.click("input[aria-label='expiry of a key']")
    holds(page, f"{rows} === 1")
    page.click("button[aria-label='only expiry of a key']")
    holds(page, f"{rows} === 40")
    page.click("button:text-is('next hour')")
    page.click("input[aria-label='delivery']")
    holds(page, f"{rows} === 3")
    page.click("[data-by='1h']")
    notice = page.locator("#notice")
    notice.locator("a:text-is('40 keys expired')").wait_for()
    notice.locator("a:text-is('1 event became due')").click()
    line = page.locator("[aria-label='events that became due'] tbody tr")
    assert "session:" not in line.inner_text()
