"""Test in the console that recorded calls are changed and sent again, with links to the outcome."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from ..harness import wait_until
from .conftest import Server
from .test_console import CHROMIUM, at, browser, fake, holds, page, sent, window
from .test_console_work import kv, listed, typed
from .test_sending import workflow

__all__ = ["browser", "page", "window", "workflow"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
AGAIN = "Edit and send again"
_IN_VIEW = """() => {
  const [bar, head, {top, bottom}] = [".trace-top", ".trace-pane-head", ".sent-again h4"].map(
    (selector) => document.querySelector(selector).getBoundingClientRect());
  const isWhole = bar.bottom <= head.top && head.bottom <= top + 1;
  return isWhole && bottom <= innerHeight ? "visible" : "hidden";
}"""


def opened(page: Any, text: str) -> None:
    at(page, "activity", ".trace-row")
    page.locator(".trace-row", has_text=text).last.click()
    page.locator(".trace-pane h3", has_text=text).wait_for()


def followed(page: Any, link: str, selector: str, text: str) -> None:
    page.locator(".sent-again a", has_text=link).click()
    page.locator(selector, has_text=text).first.wait_for()


def test_every_kind_of_call_is_changed_and_sent_again(page: Any, server: Server) -> None:
    kv(server, "SET", "colour", "red")
    opened(page, "SET colour red")
    typed(page, AGAIN, body='["SET", "colour", "blue"]')
    followed(page, "Open its row", ".trace-pane h3", "SET colour blue")
    assert kv(server, "GET", "colour") == "blue"
    with redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"]) as client:
        client.set("over the port", "1")
    opened(page, 'SET "over the port" 1')
    typed(page, AGAIN, commands='SET "over the port" 2\nINCR "over the port"')
    page.locator(".sent-again pre[aria-label=replies]", has_text='"OK"\n3').wait_for()
    typed(page, AGAIN, commands='LPUSH "over the port" 2')
    page.locator(".sent-again p.bad", has_text="with an error").wait_for()
    vectors = [{"id": "v1", "vector": [1, 2]}]
    sent(server, "vector_index", "/upsert", vectors)
    opened(page, "upsert")
    typed(page, AGAIN, body='[{"id": "v2", "vector": [2, 1]}]')
    page.locator(".sent-again p.ok", has_text="Status 200").wait_for()
    assert [vector["id"] for vector in listed(server, "vector_index/lists/vectors")] == ["v1", "v2"]
    sent(server, "broker", "/produce", {"topic": "orders", "value": "tea", "partition": 0})
    opened(page, "produce")
    typed(page, AGAIN, headers="{}")
    followed(page, "Open its row", ".trace-pane h3", "tea")
    sent(server, "queue", "/v2/publish/http://127.0.0.1:9/hook", "first")
    opened(page, "attempt 1")
    typed(page, AGAIN, body="second")
    followed(page, "Open the message", ".detail pre[aria-label=body]", "second")
    opened(page, "publish http://127.0.0.1:9/hook first")
    typed(page, AGAIN)
    followed(page, "Open the message", ".detail pre[aria-label=body]", "first")


def test_a_call_that_was_sent_again_and_its_original_link_to_each_other(
    page: Any, server: Server
) -> None:
    kv(server, "SET", "colour", "red")
    [original] = [row["number"] for row in server.ask("GET", "/journal")[1]]
    opened(page, "SET colour red")
    typed(page, AGAIN, body='["SET", "colour", "blue"]')
    followed(page, "Open its row", ".trace-pane h3", "SET colour blue")
    page.click(f"a:text-is('Sent again: the original is #{original}')")
    page.locator(".trace-pane h3", has_text="SET colour red").wait_for()
    page.locator(".trace-pane a", has_text="Sent again as #").click()
    page.locator(".trace-pane h3", has_text="SET colour blue").wait_for()


def test_a_message_and_the_retry_of_its_dead_letter_link_to_each_other(
    page: Any, server: Server
) -> None:
    url = "/v2/publish/http://127.0.0.1:9/hook"
    failed = sent(server, "queue", url, "in", Upstash_Retries="0")["messageId"]
    wait_until(lambda: listed(server, "queue/lists/dead-letters"))
    at(page, "fake/queue/dead-letters", "table.rows tbody tr")
    page.click("table.rows tbody tr")
    page.click(".detail button:text-is('Retry')")
    page.click(".facts div:has(dt:text-is('retry of')) a")
    page.wait_for_url(f"**/messages/{failed}")
    page.locator(".facts div:has(dt:text-is('retried as')) a").wait_for()


def test_a_dead_letter_that_is_edited_and_sent_again_is_replaced_by_its_message(
    page: Any, server: Server
) -> None:
    url = "/v2/publish/http://127.0.0.1:9/hook"
    failed = sent(server, "queue", url, "in", Upstash_Retries="0")["messageId"]
    wait_until(lambda: listed(server, "queue/lists/dead-letters"))
    at(page, "fake/queue/dead-letters", "table.rows tbody tr")
    page.click("table.rows tbody tr")
    page.click(".detail summary:text-is('Edit and send again')")
    typed(page, "Edit and send again", delay="10m", letter="delete")
    page.locator("#notice a[href*='/messages/']").wait_for()
    page.click(".facts div:has(dt:text-is('resent from')) a")
    page.wait_for_url(f"**/messages/{failed}")
    page.locator(".facts div:has(dt:text-is('resent as')) a").wait_for()
    # Its state agrees with the list of dead letters.
    page.locator("tr.chosen", has_text="failed").locator("a", has_text="…").wait_for()
    assert listed(server, "queue/lists/dead-letters") == []


def test_a_call_that_a_text_names_is_a_link(page: Any, server: Server) -> None:
    kv(server, "SET", "a", "1")
    at(page, "activity", ".trace-row")
    [number] = [row["number"] for row in server.ask("GET", "/journal")[1]]
    text = f"The data is not known: call {number} received a different answer."
    page.evaluate("async (text) => (await import('/console/dom.js')).say(text)", text)
    page.click(f"#notice a:text-is('call {number}')")
    page.locator(".trace-pane h3").wait_for()


def test_what_is_typed_stays_while_rows_arrive(page: Any, server: Server) -> None:
    kv(server, "SET", "colour", "red")
    opened(page, "SET colour red")
    page.click(f"summary:text-is('{AGAIN}')")
    page.fill(f"form[aria-label='{AGAIN}'] [name=body]", "typed")
    kv(server, "GET", "colour")
    page.locator(".trace-row", has_text="GET colour").wait_for()
    assert page.input_value(f"form[aria-label='{AGAIN}'] [name=body]") == "typed"
    page.evaluate("for (const one of document.querySelectorAll('form')) one.dataset.typed = 'no'")


def test_an_answer_and_the_place_of_a_reader_stay_while_rows_arrive(
    page: Any, server: Server
) -> None:
    kv(server, "SET", "colour", "red")
    opened(page, "SET colour red")
    typed(page, AGAIN, body='["SET", "colour", "blue"]')
    page.locator(".sent-again p.ok", has_text="Status 200").wait_for()
    page.locator(".trace-pane").evaluate("(pane) => { pane.scrollTop = 40; }")
    kv(server, "GET", "colour")
    # The links of the row count the new ones.
    page.locator(".trace-links", has_text="key colour · 3 rows").wait_for()
    assert page.is_visible(".sent-again p.ok")
    assert page.locator(".trace-pane").evaluate("(pane) => pane.scrollTop") == 40


def test_a_workflow_is_rerun_from_a_step(
    page: Any, server: Server, workflow: tuple[str, list[Any]]
) -> None:
    url, received = workflow
    header = {"Upstash_Forward_Upstash_Workflow_Sdk_Version": "1"}
    run_id = sent(server, "queue", f"/v2/trigger/{url}", "in", **header)["workflowRunId"]
    wait_until(lambda: len(received) == 3)
    at(page, f"fake/queue/runs/{run_id}", ".span-item")
    page.click(".span-item summary:has-text('step 1')")
    assert page.locator("form[aria-label='Rerun from step 1'] [name=input]").is_hidden()
    typed(page, "Rerun from step 1", result="{other")
    page.locator("dialog", has_text="The result begins like JSON, but is not.").wait_for()
    page.click("dialog button:text-is('Cancel')")
    typed(page, "Rerun from step 1", result="other")
    page.locator("#notice", has_text="goes on from").wait_for()
    page.locator(".detail pre[aria-label=result]", has_text="other+").wait_for()
    assert received[-1] == ["in", "other", "other+"]
    # The new run shows where its steps come from, first what differs, and the runs link to each other.
    compared = page.locator("[aria-label='compared runs'] tbody tr")
    assert compared.all_inner_texts() == [
        "step 1 goes on here\tin+\tother", "step 2\tin++\tother+", "result\tin++\tother+",
        "input\tin\tin",
    ]  # fmt: skip
    assert compared.locator("mark").count() == 6
    child = page.url
    page.click(f".detail .facts a:text-is('{run_id}')")
    # The earlier run is compared with its rerun.
    page.locator(".detail summary:text-is('Compared with its last rerun')").wait_for()
    assert compared.nth(2).inner_text() == "result\tin++\tother+"
    page.click(".facts div:has(dt:text-is('rerun as')) a")
    page.wait_for_url(child)
    at(page, "fake/queue/runs", "table.rows")
    for result in ("other+", "in++"):
        page.locator("table.rows tbody tr", has_text=result).wait_for()
    marks = page.locator("table.rows tbody tr").all_inner_texts()
    assert f"rerun of …{run_id[-6:]}" in marks[0]
    assert f"rerun as …{child[-6:]}" in marks[1]
    assert ("other+" in marks[0], "in++" in marks[1]) == (True, True)
    # A step that runs again has no result to give, but an input: that of the run, or a step's result.
    at(page, f"fake/queue/runs/{run_id}", ".span-item")
    page.click(".span-item summary:has-text('step 2')")
    again = page.locator("form[aria-label='Rerun from step 2']")
    page.click("summary:text-is('Rerun from step 2')")
    again.locator("[name=how]").select_option("again")
    assert again.locator("[name=result]").is_hidden()
    again.locator("label", has_text="input of the step, the result of step 1").wait_for()


def test_what_became_due_is_linked(page: Any, server: Server) -> None:
    for number in range(3):
        url = f"/v2/publish/http://127.0.0.1:9/{number}"
        sent(server, "queue", url, Upstash_Delay="1m", Upstash_Retries="0")
    page.click("[data-by='1h']")
    page.click("#notice a:text-is('3 events became due')")
    shown = page.locator("[aria-label='events that became due'] tbody tr")
    holds(page, "document.querySelectorAll('[data-name=row] a').length === 3")
    for number in range(3):
        shown.filter(has_text=f"delivery: POST 127.0.0.1:9/{number}").wait_for()
    shown.last.locator("[data-name=row] a").click()
    page.locator(".trace-pane h3", has_text="attempt 1").wait_for()


def test_what_a_call_that_is_sent_again_changes_is_shown_in_place(
    page: Any, server: Server
) -> None:
    kv(server, "SET", "colour", "red")
    opened(page, "SET colour red")
    typed(page, AGAIN, body='["SET", "colour", "blue"]')
    out = page.locator(".sent-again")
    out.locator("p", has_text="SET colour blue → OK").wait_for()
    # The data of the call that was sent first is folded below it.
    page.locator("summary", has_text="which was sent first").wait_for()
    assert page.locator(".row-changes:visible").count() == 1
    assert page.evaluate(_IN_VIEW) == "visible"
    out.locator(".trace-state tr", has_text="blue").first.wait_for()
    text = out.locator(".row-changes").inner_text()
    assert "red" in text
    assert "blue" in text
    out.locator("button", has_text="Restore colour to before this…").click()
    page.click("dialog button[value=yes]")
    wait_until(lambda: kv(server, "GET", "colour") == "red")


def test_a_step_without_a_result_shows_null(page: Any, server: Server) -> None:
    url = "http://127.0.0.1:9/flow"
    version = {"Upstash_Forward_Upstash_Workflow_Sdk_Version": "1"}
    run_id = sent(server, "queue", f"/v2/trigger/{url}", "in", **version)["workflowRunId"]
    step = {"stepId": 1, "stepName": "charge", "stepType": "Run", "concurrent": 1, "out": None}
    sent(
        server, "queue", f"/v2/publish/{url}", step, Upstash_Workflow_RunId=run_id,
        Upstash_Workflow_CallType="step", Upstash_Workflow_Url=url,
    )  # fmt: skip
    at(page, f"fake/queue/runs/{run_id}", ".span-item")
    page.locator(".span-item summary:has-text('charge')", has_text="→ null").wait_for()
    page.click(".span-item summary:has-text('charge')")
    page.locator("pre[aria-label='result of the step']:text-is('null')").wait_for()
    page.locator("pre[aria-label='input of the step']:text-is('in')").first.wait_for()
    page.click("summary:text-is('Rerun from charge')")
    assert page.input_value("form[aria-label='Rerun from charge'] [name=result]") == "null"
