"""The HTML document of a report, and its timeline in a real browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.model import Kind
from pytest_fakecloud.reporting.render.as_json import rules_of
from pytest_fakecloud.reporting.render.page import document, exception_line

from .test_page import FAILURE as CHECKOUT
from .test_page import fill, written

AXE = os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js")
"""The script of axe-core; without it, the test that needs it is skipped."""
EVIL = "</script><script>document.title='owned'</script>&\"'"
NOON = 1772366400000000
FAILURE = """\
    def test_total():
        first()

        shop.pay()
>       assert total == 3
E       assert 4 == 3

test_shop.py:7: AssertionError"""


def subject(name: str, kind: str = "key", fake: str = "kv") -> dict[str, Any]:
    return {"kind": kind, "name": name, "fake": fake}


def row(number: int, what: str = "GET k", *, kind: Kind = "call", **more: Any) -> dict[str, Any]:
    text = {"what": what, "answer": "OK", "lines": [], "note": "", **more.pop("text", {})}
    return {
        "number": number, "at_us": NOON, "kind": kind, "actor": "client", "peer": "kv",
        "rules": rules_of(kind),
        "ok": True, "depth": 0, "parent": 0, "findings": [], "faults": [], "subjects": [],
        "where": None, "status": 200, "outcome": "answered", "attempt": 0, "data": {},
        "request": {"line": "POST /", "headers": [["Authorization", "***"], ["Host", "x"]],
                    "body": '["GET"]', "decoded": ["GET"]},
        "response": {"line": "200 OK", "headers": [], "body": "1"}, **more, "text": text,
    }  # fmt: skip


def report(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    fakes = [
        {"name": name, "service": name, "url": f"http://127.0.0.1:{port}", "closed": False}
        for port, name in enumerate(("kv", "queue"), 8000)
    ]
    return {
        "version": 4, "test": "test_shop.py::test_total", "failure": FAILURE, "seed": 1,
        "clock": {"mode": "frozen", "now": "2026-03-01T12:00:00.000000Z", "now_us": NOON},
        "fakes": fakes, "findings": [], "unfinished": [], "violations": [], "rows": list(rows), **more,
    }  # fmt: skip


def finding(text: str, *rows: int) -> dict[str, Any]:
    return {"kind": "a", "fake": "kv", "rows": list(rows), "subjects": [],
            "values": {}, "failed": False, "text": text}  # fmt: skip


RACE = report(
    row(1, "POST /pay", kind="request", peer="application"),
    row(2, "GET total", actor="application", parent=1, depth=1, subjects=[subject("total")]),
    row(3, "POST /pay", kind="request", peer="application"),
    row(4, "GET total", actor="application", parent=3, depth=1, subjects=[subject("total")]),
    row(5, "SET total 4", actor="application", parent=3, depth=1, subjects=[subject("total")],
        where={"file": "shop.py", "line": 7, "function": "write",
               "callers": [{"file": "shop.py", "line": 31, "function": "pay"}]}, findings=[0],
        faults=[{"kind": "call", "description": "call f before"}]),
    row(6, "attempt 1", at_us=NOON + 300_000_000, kind="delivery", actor="queue", ok=False,
        peer="https://shop.example.com/hook", status=500, attempt=1,
        subjects=[subject("msg_1", "message", "queue")], text={"answer": "500"}),
    row(7, "attempt 2", at_us=NOON + 330_000_000, kind="delivery", actor="queue", attempt=2,
        peer="https://shop.example.com/hook", subjects=[subject("msg_1", "message", "queue")]),
    findings=[finding("this SET wrote over row 4", 5, 4)],
    states={"note": "", "initial": {"kv": {"keys": {"total": {"value": "3"}}}}, "steps": [
        {"number": 5, "changes": [["kv", "keys", "total", {"value": "4"}]]}]},
)  # fmt: skip


def test_the_document_starts_with_the_assertion_and_the_findings() -> None:
    text = document(RACE)
    assertion = (
        '<pre class="assertion" tabindex="0">  shop.pay()\n<b>&gt; assert total == 3</b>\n'
        "<b>E assert 4 == 3</b>\ntest_shop.py:7: AssertionError</pre>"
    )
    link = (
        "<li><b>▲1</b> this SET wrote over row 4<br>"
        '<a href="#row-5">row 5: application → kv SET total 4</a> '
        "(called at shop.py:7 from shop.py:31) · "
        '<a href="#row-4">row 4</a></li>'
    )
    assert assertion in text
    assert text.index(assertion) < text.index(link) < text.index('id="timeline"')
    assert document(report(failure="gone")).count("<pre>gone</pre>") == 1
    assert exception_line(FAILURE) == "assert 4 == 3"
    assert exception_line("gone\n    at where") == "gone"
    assert (
        exception_line("Traceback (most recent call last):\n  File\nKeyError: 1") == "KeyError: 1"
    )


def test_the_log_comes_last_and_is_open_without_findings() -> None:
    findings, unfinished = [finding("a cause", 5)], [finding("left", 5)]
    text = document(
        report(row(5, "SET k"), log="shop: retrying", findings=findings, unfinished=unfinished)
    )
    assert text.index("left") < text.index("<details><summary>Log</summary>") < text.index("<main>")
    assert "<details open><summary>Log" in document(report(log="shop: retrying"))


def test_data_is_neither_markup_nor_code() -> None:
    errors, findings = [EVIL], [finding(EVIL, 1)]
    text = document(report(row(1, EVIL), test=EVIL, failure=EVIL, errors=errors, findings=findings))
    assert EVIL not in text
    assert "<h2>Missing in this report</h2>" in text
    assert text.count("<script") == 2
    data = re.search(r'id="report">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["test"] == EVIL
    # The document can be written to a file even if the data contains a lone surrogate.
    document(report(row(1, "\ud800"))).encode("utf-8")


# -- in a browser ----------------------------------------------------------------------------------

Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Any]:
    """A page without a network. Tests share it, because Chromium starts a process for a new one."""
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def opened(tab: Any, tmp_path: Path) -> Iterator[Opened]:
    """Open a report from a file; fail the test on any console message, error or other request."""
    complaints: list[str] = []
    listeners: dict[str, Callable[[Any], object]] = {
        "console": lambda message: complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
        "request": lambda request: (
            request.url.startswith("file:") or complaints.append(request.url)
        ),
    }

    def open_page(
        data: dict[str, Any], hash: str = "", width: int = 1280, scheme: str = "light"
    ) -> Any:
        path = tmp_path / "page.html"
        path.write_text(document(data), encoding="utf-8")
        tab.set_viewport_size({"width": width, "height": 800})
        tab.emulate_media(color_scheme=scheme)
        tab.goto(path.as_uri() + hash)
        return tab

    for event, listener in listeners.items():
        tab.on(event, listener)
    yield open_page
    tab.evaluate("null")  # Events arrive before this reply.
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    assert complaints == []


def rows_of(page: Any) -> list[str]:
    rows: list[str] = page.locator("[role=option]").evaluate_all(
        "all => all.sort((a, b) => a.ariaPosInSet - b.ariaPosInSet)"
        ".map(one => one.querySelector('.trace-what > span').textContent)"
    )
    return rows


@pytest.mark.slow
def test_calls_are_drawn_between_the_true_lanes(opened: Opened) -> None:
    page = opened(RACE)
    heads = [head.replace("\u200b", "") for head in page.locator(".trace-head").all_inner_texts()]
    assert heads == ["client", "application", "kv", "queue", "shop.example.com"]
    assert page.locator(".trace-gap").all_inner_texts() == ["2026-03-01", "+5 m", "+30 s"]

    def arrow(number: int) -> tuple[str, str]:
        line = page.locator(f"#row-{number} line[class*=arrow]").bounding_box()
        boxes = [
            page.locator(".trace-head").nth(index).bounding_box() for index in range(len(heads))
        ]
        ends = sorted((line["x"], line["x"] + line["width"]))
        columns = [
            next(name for name, box in zip(heads, boxes, strict=True)
                 if box["x"] <= x <= box["x"] + box["width"])
            for x in ends
        ]  # fmt: skip
        return columns[0], columns[1]

    assert arrow(1) == ("client", "application")
    assert arrow(4) == ("application", "kv")
    assert arrow(6) == ("queue", "shop.example.com")
    # A request and its calls have a colour of their own.
    hues = [
        page.locator(f"#row-{number} line[class*=arrow]").evaluate("one => getComputedStyle(one).stroke")
        for number in (1, 2, 3, 4)
    ]  # fmt: skip
    assert hues[0] == hues[1] != hues[2] == hues[3]


@pytest.mark.slow
def test_the_pane_shows_the_row_and_leads_to_the_others(opened: Opened) -> None:
    page = opened(RACE, "#row-5")
    pane = page.locator(".trace-pane")
    text = pane.inner_text()
    for part in ("SET total 4", "application → kv", "Injected fault: call f before", "POST /pay",
                 "this SET wrote over row 4", "State: 1 change"):  # fmt: skip
        assert part in text
    assert pane.locator(".trace-state").first.inner_text().split() == [
        "data", "before", "after", "kv", "·", "keys", "total", "value", "3", "value", "4",
    ]  # fmt: skip
    assert pane.locator(".trace-state mark").all_inner_texts()[:2] == ["3", "4"]
    pane.get_by_role("button", name="row 4").click()
    assert page.url.endswith("#row-4")
    assert "This row changed no data." in pane.inner_text()
    page.evaluate("location.hash = '#row-7'")
    pane.get_by_text("Waterfall").wait_for()
    second = "delivery at +30 s"
    assert second in pane.locator(".spans button[aria-current]").inner_text()
    assert pane.locator(".spans .span-words").all_inner_texts() == [
        "delivery at 0 failed", f"retry wait at 0 for 30 s, {second}",
    ]  # fmt: skip
    pane.get_by_role("button", name="attempt 1 500").click()
    assert page.url.endswith("#row-6")
    page.keyboard.press("Escape")
    assert not pane.is_visible()
    assert "#" not in page.url


@pytest.mark.slow
def test_the_pane_escapes_what_looks_alike_and_has_the_source_of_the_call(opened: Opened) -> None:
    quoted = {"line": "POST /", "body": "", "decoded": {"city": "Zu\u0308rich", "now": "Zürich"}}
    source = [
        {"line": 6, "text": "hit = query(vector)"},
        {"line": 7, "text": "if hit.score < 0.2:"},
    ]
    where = {"file": "app.py", "line": 6, "function": "answer", "source": source}
    page = opened(
        report(
            row(1, request=quoted, where=where),
            row(2, at_us=NOON + 600_000),
            row(3, at_us=NOON + 1_900_000),
        ),
        "#row-1",
    )
    text = page.locator(".trace-pane").inner_text()
    assert '"Zu\\u0308rich"' in text
    assert "Called at app.py:6 in answer" in text
    assert "7  if hit.score < 0.2:" in text
    assert page.locator(".trace-called").all_inner_texts() == ["    6  hit = query(vector)"]
    assert page.locator(".trace-gap").all_inner_texts() == ["2026-03-01", "+1 s"]
    page.evaluate("location.hash = '#row-2'")
    page.get_by_text("The line that made this call is not known.").wait_for()


@pytest.mark.slow
def test_rows_are_numbered_as_they_are_shown(opened: Opened) -> None:
    findings = [finding("this SET wrote over the other", 6, 4)]
    page = opened(
        report(
            row(8, "POST /pay", kind="request", peer="application"),
            row(4, "GET k", actor="application", parent=8, depth=1, findings=[0]),
            row(6, "SET k", actor="application", parent=8, depth=1, findings=[0]), findings=findings,
        ),
        "#row-3",
    )  # fmt: skip
    assert page.locator(".trace-number").all_inner_texts() == ["1", "2", "3"]
    # A delivery is recorded when it ends, but the data shown for its calls includes its start.
    texts = page.locator(".trace-row .trace-finding").all_inner_texts()
    assert texts == ["▲1 see row 3", "▲1 this SET wrote over the other"]
    pane = page.locator(".trace-pane")
    assert "row 3 · application → kv" in pane.inner_text()
    pane.get_by_role("button", name="row 1: POST /pay").click()
    assert page.url.endswith("#row-1")


@pytest.mark.slow
def test_the_state_of_a_row_is_that_of_its_time(opened: Opened) -> None:
    """A delivery is recorded when it ends. The data beside its calls includes its start."""
    steps = [
        {
            "number": 9,
            "order": 3,
            "changes": [
                ["queue", "messages", "m", {"state": "ACTIVE"}],
                ["queue", "queues", "q", {"active": ["m"]}],
            ],
        },
        {"number": 6, "changes": [["kv", "keys", "k", {"value": "1"}]]},
        {
            "number": 9,
            "changes": [
                ["queue", "messages", "m", {"state": "DELIVERED"}],
                ["queue", "queues", "q", {"active": []}],
            ],
        },
    ]
    page = opened(
        report(
            row(9, "attempt 1", kind="delivery", actor="queue", peer="http://a", began=3),
            row(5, "GET k", actor="http://a", parent=9, depth=1),
            row(6, "SET k 1", actor="http://a", parent=9, depth=1),
            row(7, "queue.rotate_keys()", kind="action", operation="rotate_keys", request=None),
            states={"note": "", "steps": steps, "initial": {
                "kv": {"keys": {}}, "queue": {
                    "messages": {"m": {"state": "CREATED"}}, "queues": {"q": {"active": []}}}}},
        ),
        "#row-2",
    )  # fmt: skip
    pane = page.locator(".trace-pane")
    assert "This row changed no data." in pane.inner_text()
    data = pane.locator("details details", has_text="All data of queue after this row")
    assert "ACTIVE" in data.text_content()
    page.evaluate("location.hash = '#row-1'")
    pane.get_by_text("State: 2 changes by this row and the rows below it").wait_for()
    assert pane.locator(".trace-state mark").all_inner_texts()[:2] == ["CREATED", "DELIVERED"]
    page.evaluate("location.hash = '#row-4'")
    pane.get_by_text("This row changed credentials, which are not shown.").wait_for()


@pytest.mark.slow
def test_decoded_strings_name_their_encoding(opened: Opened) -> None:
    decoded = {"body": {"Base64": {"item": "kettle"}}, "plain": [1, 2]}
    real = {"Base64": "a field"}
    page = opened(
        report(row(1, request={"line": "POST /", "body": '{"body": "eyJp"}', "decoded": decoded},
                   response={"line": "200", "body": json.dumps(real), "decoded": real})),
        "#row-1",
    )  # fmt: skip
    bodies = page.locator(".trace-pane pre").all_inner_texts()
    assert '"body": Base64 of { "item": "kettle" }' in bodies[0]
    assert bodies[-1] == '{ "Base64": "a field" }'


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["PING", "EXEC", "MULTI\nSET a 1\nEXEC", "GET https://a.example", "GET /a"]
)
def test_rows_of_commands_on_a_connection_open_without_a_request_to_copy(
    opened: Opened, line: str
) -> None:
    request = {"line": line, "headers": [], "body": ""}
    reply = {"line": "reply", "headers": [], "body": "1"}
    page = opened(report(row(1, line, request=request, response=reply)), "#row-1")
    page.locator(".trace-pane h3").wait_for()
    assert page.locator(".trace-pane h3").text_content() == line
    assert page.get_by_role("button", name="Copy as curl").count() == 0
    page.get_by_role("button", name="Copy link").wait_for()


@pytest.mark.slow
def test_a_request_can_be_copied(opened: Opened) -> None:
    quoted = {
        "line": "POST /set/k?a=1",
        "headers": [["X-A", "it's"], ["Host", "x"]],
        "body": "it's",
    }
    page = opened(report(row(1, request=quoted)), "#row-1")
    page.evaluate(
        "() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }"
    )
    page.get_by_role("button", name="Copy as curl").click()
    assert page.evaluate("window.copied") == (
        "curl -g -X POST 'http://127.0.0.1:8000/set/k?a=1' \\\n  -H 'X-A: it'\\''s' \\\n"
        "  --data-raw 'it'\\''s'"
    )
    page.get_by_role("button", name="Copy as Python").click()
    code = page.evaluate("window.copied")
    compile(code, "copied", "exec")
    assert '"X-A": "it\'s"' in code
    assert "Host" not in code
    for language in ("JavaScript", "Go"):
        page.get_by_role("button", name=f"Copy as {language}").click()
        code = page.evaluate("window.copied")
        assert '"it\'s"' in code
        assert '"X-A"' in code
        assert "Host" not in code
    page.evaluate(
        "() => { navigator.clipboard.writeText = async () => { throw new Error('no'); }; }"
    )
    page.get_by_role("button", name="Copy as curl").click()
    page.locator(".trace-copy pre", has_text="curl -g -X POST").wait_for()


@pytest.mark.slow
def test_rows_are_filtered_with_their_causes(opened: Opened) -> None:
    page = opened(RACE)
    search = page.get_by_role("searchbox")
    search.fill("set total")
    assert rows_of(page) == ["POST /pay", "SET total 4"]
    assert page.locator("#row-3").get_attribute("class") == "trace-row trace-context"
    assert page.locator(".trace-tools output").inner_text() == "1 of 7 rows"
    # The number of those among the rows that the other filters leave.
    assert page.get_by_text("Failed or faulty (1)").is_visible()
    search.fill("nowhere")
    assert page.get_by_text("No row matches the filters.").is_visible()
    page.get_by_role("button", name="Clear the filters").click()
    assert search.input_value() == ""
    page.get_by_label("Failed or faulty").check()
    assert rows_of(page) == ["POST /pay", "SET total 4", "attempt 1"]
    page.get_by_label("Failed or faulty").uncheck()
    page.get_by_label("Fake").select_option("queue")
    assert rows_of(page) == ["attempt 1", "attempt 2"]
    # The link shows the row even if a filter hides it.
    page.evaluate("location.hash = '#row-2'")
    page.locator("#row-2").wait_for()
    page.locator(".trace-pane").get_by_role("button", name="key total").click()
    assert rows_of(page) == ["POST /pay", "GET total", "POST /pay", "GET total", "SET total 4"]
    page.get_by_role("button", name="Stop following key total").click()
    assert len(rows_of(page)) == 7


@pytest.mark.slow
def test_the_keyboard_reaches_everything(opened: Opened) -> None:
    page = opened(RACE)
    page.locator("[role=listbox]").focus()
    selected = []
    for key in ("j", "ArrowDown", "End", "k", "Home", "n", "n", "p", "ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
        selected.append(page.locator("[aria-selected=true]").get_attribute("data-number"))
    assert selected == ["1", "2", "7", "6", "1", "5", "6", "5", "3", "4"]
    assert page.locator("[role=listbox]").get_attribute("aria-activedescendant") == "row-4"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.className") == "trace-pane"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"


@pytest.mark.slow
def test_letters_work_before_anything_has_the_focus(opened: Opened) -> None:
    page = opened({**RACE, "beside": {"title": "The run before", "report": RACE}})
    selected = []
    for key in ("j", "j", "k", "n", "n", "p"):
        page.keyboard.press(key)
        selected.append(page.locator("#timeline [aria-selected=true]").get_attribute("data-number"))
    assert selected == ["1", "2", "1", "5", "6", "5"]
    assert page.locator("#beside [aria-selected=true]").count() == 0
    page.keyboard.press("/")
    page.keyboard.type("j")
    assert page.locator("#timeline [type=search]").input_value() == "j"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "hash"), [(1280, ""), (1280, "#row-2"), (390, ""), (390, "#row-2")]
)
def test_rows_wrap_their_texts(opened: Opened, width: int, hash: str) -> None:
    """Also beside open details, a row has its number, time and answer, and cuts nothing."""
    what = f"publish https://shop.example.com/{'pack/' * 12} (retries 4, flow key tenant-acme)"
    commands = [f"SET item:{number} {'x' * 20} <-- OK" for number in range(12)]
    answer = '500 {"error":"RuntimeError","message":"payment failed twice"}'
    page = opened(
        report(
            row(1, what, peer="queue", text={"answer": "msg_a2b4"}),
            row(2, "EXEC of 12", text={"answer": "12 answers", "lines": commands}),
            row(3, "attempt 1 " + "of " * 40 + "\u4e16\u754c" * 30, ok=False,
                text={"answer": answer, "note": "the handler raised KeyError: 'id' " + "y" * 90}),
            row(4, depth=1, parent=3),
        ),
        hash,
    )  # fmt: skip
    cut = page.locator(".trace-text span").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
    )
    assert cut == []
    for number, texts in (
        (1, [what, "msg_a2b4"]), (2, ["EXEC of 12", *commands]), (3, [answer, "KeyError"]),
    ):  # fmt: skip
        element = page.locator(f"#row-{number}")
        assert f"{number}" in element.inner_text()
        assert "12:00:00.000" in element.inner_text()
        lines = element.locator(".trace-text span:not(.trace-answer)").all_inner_texts()
        answers = element.locator(".trace-answer").all_inner_texts()
        shown = "".join("".join([*lines, *answers]).split())
        for text in texts:
            assert "".join(text.split()) in shown
        box = element.bounding_box()
        last = element.locator(".trace-text > div").last.bounding_box()
        assert last["y"] + last["height"] <= box["y"] + box["height"]
    if not hash or width == 390:
        return
    columns = [
        page.locator(f".trace-{name}").first.bounding_box()["width"] for name in ("number", "time")
    ]
    assert all(columns)


@pytest.mark.slow
def test_a_row_limits_its_lines_and_shows_what_failed_within_it(opened: Opened) -> None:
    long = "POST /v2/batch " + "x" * 2_000 + "\nsecond line"
    mixed = [{"result": "OK"}, {"error": "WRONGTYPE"}, {"error": None}]
    page = opened(
        report(
            row(1, long, text={"answer": "y" * 2_000, "lines": ["z" * 2_000] * 2}),
            row(2, response={"line": "200 OK", "headers": [], "body": "", "decoded": mixed}),
            row(3, response={"line": "200 OK", "headers": [], "body": "",
                             "decoded": {"responses": [{"error": "gone"}, {"messageId": "m"}]}}),
        )
    )  # fmt: skip
    lines = page.locator("#row-1 .trace-text > div").all_inner_texts()
    assert [line[0] for line in lines] == [*"Pxxxxxxxyyyyzzzzzzzz"]
    assert [line[-1] for line in lines if line.endswith("…")] == ["…"] * 4
    assert page.get_by_text("Failed or faulty (2)").is_visible()
    assert page.locator("#row-2 .trace-bad").inner_text() == "1 failed: OK"
    assert page.locator("#row-2.trace-failed, #row-3.trace-failed").count() == 2


@pytest.mark.slow
def test_the_border_of_the_details_can_be_moved(opened: Opened) -> None:
    page = opened(RACE, "#row-5")
    border, rows = page.get_by_role("separator"), page.locator(".trace-rows")

    def share() -> float:
        whole = page.locator(".trace-main").bounding_box()["width"]
        return round(float(rows.bounding_box()["width"]) / whole, 2)

    assert share() == 0.6
    border.press("ArrowLeft")
    assert (share(), border.get_attribute("aria-valuenow")) == (0.55, "55")
    box = border.bounding_box()
    page.mouse.move(box["x"] + 6, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(page.locator(".trace-main").bounding_box()["width"] * 0.4 + 20, 300)
    page.mouse.up()
    assert 0.38 < share() < 0.42
    page.keyboard.press("Escape")
    assert not border.is_visible()


@pytest.mark.slow
def test_a_narrow_page_keeps_the_nesting(opened: Opened) -> None:
    page = opened(RACE, width=420)
    indents = [
        page.locator(f"#row-{number} .trace-what").bounding_box()["x"] for number in (3, 4)
    ]  # fmt: skip
    assert indents[1] - indents[0] >= 12
    assert "application → kv" in page.locator("#row-4").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


@pytest.mark.slow
def test_a_long_report_draws_only_what_is_in_sight(opened: Opened) -> None:
    page = opened(report(*(row(number, f"GET k{number}") for number in range(1, 5001))))
    assert page.locator("[role=option]").count() < 120
    page.evaluate("location.hash = '#row-4321'")
    page.locator("#row-4321").wait_for()
    assert page.locator("#row-4321").bounding_box()["y"] < 800
    assert page.locator("[role=option]").count() < 120
    assert page.locator("#row-4321").get_attribute("aria-posinset") == "4321"


@pytest.mark.slow
def test_names_of_lanes_are_shown_whole_beside_open_details(opened: Opened) -> None:
    names = ["callback_capture", "kv_server", "vector_index"]
    page = opened(
        report(*(row(number, peer=name) for number, name in enumerate(names, 1))), "#row-1"
    )
    heads = page.locator(".trace-head")
    assert sorted(set(heads.all_inner_texts()) & set(names)) == names
    assert heads.evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth)") == []
    assert heads.first.evaluate("one => getComputedStyle(one).textOverflow") == "clip"


@pytest.mark.slow
def test_nothing_is_cut_without_a_word(opened: Opened) -> None:
    cut = {"line": "POST /", "headers": [], "body": "x" * 20, "cut": 30_002}
    encoded = {"line": "POST /", "headers": [], "body": '"e30="', "decoded": {}}
    page = opened(report(row(1, request=cut, response=encoded)), "#row-1")
    text = page.locator(".trace-pane").inner_text()
    assert "Only the first 20 characters of 30,002 bytes are in this report." in text
    assert "Raw body" in text


@pytest.mark.slow
def test_rows_have_their_marks_and_only_an_answer_that_did_something_is_green(
    opened: Opened,
) -> None:
    rows = [row(1, "SET a 1", marks=["touched"], writer=True), row(2, "GET b", marks=["linked"]),
            row(3, "SETNX a 1", marks=["touched", "refused"]),
            row(4, "INCR a", marks=["touched", "refused"], ok=False)]  # fmt: skip
    statement = {"text": f"The failing statement read a {EVIL}", "headline": ""}
    page = opened({**report(*rows), "statement": statement})
    assert page.locator("p.statement").inner_text() == statement["text"]
    above = page.locator("pre.assertion").bounding_box()
    assert above["y"] + above["height"] <= page.locator("p.statement").bounding_box()["y"]
    for number, marks in enumerate(["touched", "linked", "refused", "refused"], 1):
        assert page.locator(f"#row-{number}.trace-{marks}").count() == 1
    assert "led to what the statement read" in page.locator("#row-1").inner_text()
    greens = [page.locator(f"#row-{number} .trace-ok").count() for number in range(1, 5)]
    assert greens == [1, 1, 0, 0]
    assert page.locator("#row-4 .trace-bad").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_cloud_is_shown_in_light_and_dark(
    cloud: Cloud, tab: Any, tmp_path: Path, scheme: str
) -> None:
    fill(cloud)
    path = written(cloud, tmp_path, test="tests/test_shop.py::test_checkout", failure=CHECKOUT)
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.emulate_media(color_scheme=scheme)
    tab.goto(path.as_uri())
    assert tab.title() == "tests/test_shop.py::test_checkout"
    heads = tab.locator(".trace-head").all_inner_texts()
    assert heads[:4] == ["test", "client", "kv_server", "broker"]
    tab.get_by_role("option").filter(has_text="attempt 2").first.click()
    assert tab.locator(".span-bar.kind-delivery").count() == 2
    folder = os.environ.get("PYTEST_FAKECLOUD_SCREENSHOTS")
    if folder:
        tab.evaluate("scrollTo(0, 0)")
        tab.mouse.move(0, 0)
        tab.screenshot(path=str(Path(folder) / f"timeline-{scheme}.png"))


@pytest.mark.slow
@pytest.mark.skipif(not Path(AXE).is_file(), reason="axe-core is not installed")
@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened: Opened, scheme: str, width: int) -> None:
    page = opened(RACE, "#row-5", width=width, scheme=scheme)
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    results = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [
        (violation["id"], [node["html"][:200] for node in violation["nodes"]])
        for violation in results["violations"]
    ] == []
