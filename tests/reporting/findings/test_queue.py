"""Findings about messages, and similar cases without a finding."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.lookups import lookups_of
from pytest_fakecloud.reporting.render.wording import sentence

from .cases import HOOK, Inject, Scene, check, found, kinds

Request = tuple[str, Any, dict[str, str]]


def publishes(*requests: Request, fault: Inject = lambda faults: None) -> Scene:
    """Send publish requests (path, body, headers) after injecting a fault."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        fault(queue.faults)
        send(queue, *requests)

    return run


def send(queue: Any, *requests: Request) -> None:
    for path, body, headers in requests:
        with suppress(httpx.TransportError):
            sent = {**queue.headers, **headers}
            httpx.post(f"{queue.url}/v2/{path}", json=body, headers=sent)


def to(path: str, body: Any = "x", **headers: str) -> Request:
    return (
        f"{path}/{HOOK}",
        body,
        {f"Upstash-{name.replace('_', '-')}": value for name, value in headers.items()},
    )


CASES: dict[str, Scene] = {
    "a retry delay of a schedule in seconds": publishes(
        (f"schedules/{HOOK}", "x", {"Upstash-Retry-Delay": "30", "Upstash-Cron": "0 0 1 1 *"})
    ),
    "a retry delay of milliseconds": publishes(to("publish", Retry_Delay="30")),
    "a retry delay of a minute": publishes(to("publish", Retry_Delay="60000")),
    "a retry delay that grows": publishes(to("publish", Retry_Delay="30 * 1000")),
    "a delay in milliseconds": publishes(to("publish", Delay="60000s")),
    "a delay of a minute": publishes(to("publish", Delay="60s")),
    "a delay of a day": publishes(to("publish", Delay="1d")),
    "a timeout in milliseconds": publishes(to("publish", Timeout="30000s")),
    "a timeout of half a minute": publishes(to("publish", Timeout="30s")),
}


test_findings = check("queue", CASES)


def price_of(plan: str) -> int:
    return {"solo": 9}[plan]


def workflow(context: Any) -> None:
    plan = context.run("plan", lambda: context.request_payload["plan"])
    if context.request_payload["where"] == "outside":
        price_of(plan)
    context.run("charge", lambda: price_of(plan))


def test_exceptions_of_workflow_code_outside_of_steps() -> None:
    flask = pytest.importorskip("flask")
    serve = pytest.importorskip("upstash_workflow.flask").Serve
    with Cloud(seed=1, transport="inprocess") as cloud:
        queue, app = cloud.queue(), flask.Flask("plans")
        client = queue.client()
        serve(app).route("/hook", qstash_client=client, url=HOOK, retries=1)(workflow)
        queue.destinations.wsgi("https://app.example.com", app)
        for where in ("outside", "inside"):
            client.message.publish_json(url=HOOK, body={"plan": "team", "where": where})
        queue.run_until_idle()
        [finding] = found(cloud)
        text = sentence(finding, lookups_of(cloud, list(cloud.journal.entries), []))
    line = price_of.__code__.co_firstlineno + 1
    assert (finding.kind, len(finding.row_numbers)) == ("raised_outside_step", 2)
    _, _, raised = text.partition(" failed because workflow code raised ")
    file = "tests/reporting/findings/test_queue.py"
    assert raised == f"KeyError: 'team' outside of a step, at {file}:{line} in price_of"


def test_a_step_whose_exception_the_workflow_logged_is_no_code_outside_of_steps() -> None:
    flask = pytest.importorskip("flask")
    serve = pytest.importorskip("upstash_workflow.flask").Serve

    def logs(context: Any) -> None:
        try:
            context.run("charge", lambda: price_of("team"))
        except KeyError:
            logging.getLogger(__name__).exception("not charged")

    with Cloud(seed=1, transport="inprocess") as cloud:
        queue, app = cloud.queue(), flask.Flask("plans")
        serve(app).route("/hook", qstash_client=queue.client(), url=HOOK, retries=1)(logs)
        app.after_request(lambda response: flask.Response("busy", 503))
        queue.destinations.wsgi("https://app.example.com", app)
        run = {"Upstash-Workflow-Init": "true", "Upstash-Workflow-RunId": "wfr_1"}
        send(queue, (f"publish/{HOOK}", "x", run))
        queue.run_until_idle()
        assert [event.data["logged"] for event in queue.journal.events("attempt")]
        assert kinds(cloud) == []
