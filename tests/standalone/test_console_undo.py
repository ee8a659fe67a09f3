"""Test in the console that each action that changes data can be undone by the notice that follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ..harness import wait_until
from .conftest import Server
from .test_console import CHROMIUM, at, browser, holds, page, sent, window
from .test_console_restore import UNDO
from .test_console_work import kv, listed, press, typed
from .test_sending import workflow

__all__ = ["browser", "page", "window", "workflow"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
URL = "https://app.example/hook"


class Action(NamedTuple):
    """An action of the console: the address of its page, and what a user does there."""

    address: str
    act: Callable[[Any], object]
    selector: str = "#view .tools"


def stream(server: Server) -> None:
    for number in (1, 2, 3):
        kv(server, "XADD", "orders", f"{number}-0", "item", "kettle")
    kv(server, "XGROUP", "CREATE", "orders", "mailers", "0")
    kv(server, "XREADGROUP", "GROUP", "mailers", "ada", "COUNT", "2", "STREAMS", "orders", ">")


def topic(server: Server) -> None:
    sent(server, "broker", "/produce", {"topic": "orders", "value": "tea", "partition": 0})
    consumed = {"method": "GET", "target": "/consume/billing/one/orders"}
    consumed["headers"] = {"Kafka-Auto-Offset-Reset": "earliest"}  # type: ignore[assignment]
    server.ask("POST", "/fakes/broker/requests", consumed)


def letter(server: Server) -> None:
    server.ask("POST", "/fakes/queue/destinations", {"url": URL, "answer": 503})
    sent(server, "queue", f"/v2/publish/{URL}", "in", Upstash_Retries="0")
    wait_until(lambda: listed(server, "queue/lists/dead-letters"))
    sent(server, "queue", "/v2/publish/https://app.example/later", "in", Upstash_Delay="1h")
    sent(
        server, "queue", f"/v2/schedules/{URL}", Upstash_Cron="0 3 * * *", Upstash_Schedule_Id="s1"
    )
    server.ask(
        "POST", "/fakes/queue/requests", {"target": "/v2/queues", "body": {"queueName": "q"}}
    )
    endpoint = {"endpoints": [{"url": URL, "name": "a"}]}
    group = {"target": "/v2/topics/g/endpoints", "body": endpoint}
    server.ask("POST", "/fakes/queue/requests", group)


def vectors(server: Server) -> None:
    sent(server, "vector_index", "/upsert/films", [{"id": "v1", "vector": [1, 2]}])
    sent(server, "vector_index", "/upsert", [{"id": "v0", "vector": [1, 2]}])


def first(page: Any) -> None:
    """Open the first item of a list."""
    page.click("table.rows tbody tr td.mono")
    page.locator(".detail .tools").first.wait_for()


def of_first(page: Any, *labels: str, sure: bool = False) -> None:
    first(page)
    for label in labels:
        page.locator(f".detail button:text-is('{label}')").first.click()
    if sure:
        page.click("dialog button[value=yes]")


def commands(page: Any, *lines: str) -> None:
    page.fill("#command", "\n".join(lines))
    page.click(".prompt button")


ACTIONS: dict[str, tuple[Callable[[Server], None], Action]] = {
    "key": (stream, Action("kv_server/keys", lambda p: typed(p, "New key", key="k", value="v"))),
    "key with a TTL": (
        stream,
        Action("kv_server/keys", lambda p: typed(p, "New key", key="k", value="v", ttl="60")),
    ),
    "group claim": (
        stream,
        Action(
            "kv_server/keys/orders",
            lambda p: typed(p, "Claim entries of mailers", consumer="bob", idle="0"),
        ),
    ),
    "claim": (
        stream,
        Action("kv_server/pending", lambda p: (first(p), typed(p, "Claim", consumer="bob"))),
    ),
    "acknowledge": (stream, Action("kv_server/pending", lambda p: of_first(p, "Acknowledge"))),
    "acknowledge several": (
        stream,
        Action(
            "kv_server/pending",
            lambda p: (p.check("[data-key='choose all']"), press(p, "Acknowledge 2…", sure=True)),
        ),
    ),
    "commands": (
        stream,
        Action("kv_server/commands", lambda p: commands(p, "DEL orders", "SET x 1"), "#command"),
    ),
    "topic": (topic, Action("broker/topics", lambda p: typed(p, "Create a topic", name="late"))),
    "produce": (
        topic,
        Action("broker/topics/orders", lambda p: typed(p, "Produce", value="x", partition="1")),
    ),
    "partitions": (
        topic,
        Action("broker/topics/orders", lambda p: typed(p, "Add partitions", count="2")),
    ),
    "records": (
        topic,
        Action("broker/topics", lambda p: of_first(p, "Delete all records…", sure=True)),
    ),
    "delete topic": (
        topic,
        Action("broker/topics", lambda p: of_first(p, "Delete topic…", sure=True)),
    ),
    "consume": (
        topic,
        Action("broker/records", lambda p: typed(p, "Consume", group="g", topic="orders")),
    ),
    "member": (topic, Action("broker/groups", lambda p: of_first(p, "Remove…", sure=True))),
    "commit": (
        topic,
        Action(
            "broker/groups/billing",
            lambda p: typed(p, "Set a committed offset", partition="orders-0", offset="0"),
        ),
    ),
    "upsert": (
        vectors,
        Action("vector_index/vectors", lambda p: typed(p, "Upsert", id="v9", what="1, 2")),
    ),
    "all vectors": (
        vectors,
        Action(
            "vector_index/namespaces/films",
            lambda p: press(p, "Delete all vectors…", sure=True),
            ".detail h2",
        ),
    ),
    "namespace": (
        vectors,
        Action(
            "vector_index/namespaces/films",
            lambda p: press(p, "Delete namespace…", sure=True),
            ".detail h2",
        ),
    ),
    "publish": (
        letter,
        Action("queue/messages", lambda p: typed(p, "Publish a message", to=URL, delay="2h")),
    ),
    "deliver": (
        letter,
        Action("queue/messages?state=pending", lambda p: of_first(p, "Deliver now")),
    ),
    "cancel": (
        letter,
        Action("queue/messages?state=pending", lambda p: of_first(p, "Cancel…", sure=True)),
    ),
    "retry": (letter, Action("queue/dead-letters", lambda p: of_first(p, "Retry"))),
    "delete letter": (
        letter,
        Action("queue/dead-letters", lambda p: of_first(p, "Delete…", sure=True)),
    ),
    "delete letters": (
        letter,
        Action(
            "queue/dead-letters",
            lambda p: (p.check("[data-key='choose all']"), press(p, "Delete 1…", sure=True)),
        ),
    ),
    "send again and delete": (
        letter,
        Action(
            "queue/dead-letters",
            lambda p: (first(p), typed(p, "Edit and send again", body="x", letter="delete")),
        ),
    ),
    "schedule": (
        letter,
        Action(
            "queue/schedules", lambda p: typed(p, "Create a schedule", to=URL, cron="1 1 * * *")
        ),
    ),
    "run schedule": (letter, Action("queue/schedules/s1", lambda p: of_first(p, "Run now"))),
    "pause schedule": (letter, Action("queue/schedules/s1", lambda p: of_first(p, "Pause"))),
    "delete schedule": (
        letter,
        Action("queue/schedules", lambda p: of_first(p, "Delete…", sure=True)),
    ),
    "queue": (letter, Action("queue/queues", lambda p: typed(p, "Create a queue", name="more"))),
    "endpoint": (
        letter,
        Action("queue/url-groups", lambda p: typed(p, "Add an endpoint", group="g", url=URL + "2")),
    ),
    "remove endpoint": (letter, Action("queue/url-groups", lambda p: of_first(p, "Remove"))),
    "destination": (letter, Action("queue/destinations", lambda p: press(p, "Remove"), "table")),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_what_an_action_changed_is_undone(page: Any, server: Server, name: str) -> None:
    prepare, action = ACTIONS[name]
    prepare(server)
    server.ask("POST", "/snapshots", {"id": "before"})
    destinations = server.ask("GET", "/fakes/queue/destinations")[1]

    def changes() -> Any:
        found = server.ask("GET", "/snapshots/before/changes")[1]["changes"]
        now = server.ask("GET", "/fakes/queue/destinations")[1]
        return [*found, *([now] if now != destinations else [])]

    at(page, f"fake/{action.address}", action.selector)
    action.act(page)
    page.locator(UNDO).wait_for()
    wait_until(changes)
    page.click(UNDO)
    # What has happened since, such as a delivery, is taken back after a question.
    page.locator("dialog button[value=yes], #notice:has-text('Undone.')").first.wait_for()
    if page.locator("dialog button[value=yes]").count():
        page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="Undone.").wait_for()
    wait_until(lambda: not changes())


def test_the_form_of_an_element_is_at_its_row(page: Any, server: Server) -> None:
    for number in range(12):
        kv(server, "HSET", "h", f"field:{number}", str(number))
    at(page, "fake/kv_server/keys/h", ".detail h2")
    page.click("button[aria-label='Edit field:7']")
    form = page.locator("form[aria-label='Edit field:7']")
    holds(page, "document.activeElement.name === 'value'")
    page.keyboard.type("8")
    at_row = (
        """(form) => form.closest("tr").previousElementSibling.innerText.startsWith("field:7")"""
    )
    assert form.evaluate(at_row)
    # The question shows the table as it is now, and the form stays.
    kv(server, "HSET", "h", "field:7", "x")
    page.keyboard.press("Enter")
    sure = page.locator("dialog button[value=yes]")
    assert (sure.inner_text(), sure.get_attribute("class")) == ("Overwrite h", "primary")
    page.click("dialog button:text-is('Cancel')")
    assert form.evaluate(at_row)
    page.keyboard.press("Escape")
    page.click("dialog button:text-is('Discard')")
    form.wait_for(state="detached")
    page.locator(".detail td", has_text="x").first.wait_for()


def test_a_reset_is_undone(page: Any, server: Server) -> None:
    stream(server)
    vectors(server)
    at(page, "overview", "h2")
    page.click("#reset")
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="All fakes are reset.").wait_for()
    assert kv(server, "DBSIZE") == 0
    page.click(UNDO)
    page.locator("#notice", has_text="Undone.").wait_for()
    assert kv(server, "KEYS", "*") == ["orders"]
    assert [one["id"] for one in listed(server, "vector_index/lists/vectors")] == ["v0"]


def test_a_rerun_of_a_workflow_is_undone(
    page: Any, server: Server, workflow: tuple[str, list[Any]]
) -> None:
    url, received = workflow
    header = {"Upstash_Forward_Upstash_Workflow_Sdk_Version": "1"}
    run_id = sent(server, "queue", f"/v2/trigger/{url}", "in", **header)["workflowRunId"]
    wait_until(lambda: len(received) == 3)
    at(page, f"fake/queue/runs/{run_id}", ".span-item")
    page.click(".span-item summary:has-text('step 1')")
    typed(page, "Rerun from step 1", result="other")
    page.locator("#notice a[href*=runs]").wait_for()
    wait_until(lambda: len(received) == 5)
    page.click(UNDO)
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="Undone.").wait_for()
    assert [run["id"] for run in listed(server, "queue/lists/runs")] == [run_id]


def test_the_row_of_a_change_takes_back_its_fields_alone(page: Any, server: Server) -> None:
    kv(server, "HSET", "user:1", "plan", "free", "visits", "3")
    kv(server, "HSET", "user:1", "plan", "pro", "city", "Graz")
    row = server.ask("GET", "/journal")[1][-1]["number"]
    kv(server, "HINCRBY", "user:1", "visits", "1")
    at(page, f"activity/{row}", ".row-changes button:text-is('Undo only this…')")
    page.click(".row-changes button:text-is('Undo only this…')")
    assert "visits" not in page.inner_text("dialog .preview table")
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="is undone").wait_for()
    assert kv(server, "HGETALL", "user:1") == ["plan", "free", "visits", "4"]


def test_what_has_changed_since_stays_when_a_row_is_undone_alone(page: Any, server: Server) -> None:
    kv(server, "HSET", "user:1", "plan", "free", "visits", "3")
    kv(server, "HSET", "user:1", "plan", "pro", "visits", "10", "note", "first")
    row = server.ask("GET", "/journal")[1][-1]["number"]
    kv(server, "HINCRBY", "user:1", "visits", "5")
    kv(server, "HSET", "user:1", "note", "later")
    at(page, f"activity/{row}", ".row-changes button:text-is('Undo only this…')")
    page.click(".row-changes button:text-is('Undo only this…')")
    page.locator("dialog #question", has_text="what has changed since: note.").wait_for()
    page.click("dialog button[value=yes]")
    page.locator("#notice", has_text="is undone").wait_for()
    kept = ["plan", "free", "visits", "8", "note", "later"]
    assert kv(server, "HGETALL", "user:1") == kept
    kv(server, "HSET", "user:1", "plan", "new", "visits", "many")
    page.click(".row-changes button:text-is('Undo only this…')")
    page.locator("#notice", has_text="plan, visits, note of user:1 has changed since").wait_for()


def test_json_is_not_replaced_by_what_is_none_without_a_question(page: Any, server: Server) -> None:
    kv(server, "SET", "user", '{"name": "ada"}')
    at(page, "fake/kv_server/keys/user", ".detail h2")
    page.click("summary:text-is('Edit the value')")
    typed(page, "Edit the value", value='{"name":')
    page.locator("dialog", has_text="was JSON, and is not any more").wait_for()
    page.click("dialog button:text-is('Cancel')")
    page.locator(
        "form[aria-label='Edit the value'] .out .soft", has_text="Nothing was changed"
    ).wait_for()
    assert kv(server, "GET", "user") == '{"name": "ada"}'
    typed(page, "Edit the value", value='{"name": "bob"}')
    wait_until(lambda: kv(server, "GET", "user") == '{"name": "bob"}')


def test_an_element_of_a_list_is_removed_and_put_back(page: Any, server: Server) -> None:
    kv(server, "RPUSH", "letters", "a", "b", "a")
    at(page, "fake/kv_server/keys/letters", ".detail h2")
    page.click("button[aria-label='Remove 2']")
    page.locator("#notice", has_text="Removed 2.").wait_for()
    assert kv(server, "LRANGE", "letters", "0", "-1") == ["a", "b"]
    page.click(UNDO)
    wait_until(lambda: kv(server, "LRANGE", "letters", "0", "-1") == ["a", "b", "a"])


def test_a_schedule_is_edited_and_its_other_settings_stay(page: Any, server: Server) -> None:
    sent(
        server, "queue", f"/v2/schedules/{URL}", "in", Upstash_Cron="0 9 * * *",
        Upstash_Schedule_Id="report", Upstash_Retries="1", Upstash_Timeout="30s",
        Upstash_Forward_X_Trace="7",
    )  # fmt: skip
    at(page, "fake/queue/schedules/report", ".detail h2")
    page.click(".detail summary:text-is('Edit…')")
    typed(page, "Edit…", cron="0 10 * * *", body="out")
    page.locator("#notice", has_text="Overwrote").wait_for()
    [schedule] = listed(server, "queue/lists/schedules")
    assert (schedule["cron"], schedule["body"]) == ("0 10 * * *", "out")
    headers = schedule["publish_headers"]
    assert (headers["Upstash-Retries"], headers["Upstash-Timeout"]) == ("1", "30s")
    assert headers["Upstash-Forward-X-Trace"] == "7"
    page.click(UNDO)
    wait_until(lambda: listed(server, "queue/lists/schedules")[0]["cron"] == "0 9 * * *")
