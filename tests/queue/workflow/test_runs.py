"""Test workflow runs over HTTP: endpoints and cases that the official clients do not show."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.handle import Context
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.queue.delivery.replies import DeliveredRequest
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.handle import Queue
from pytest_fakecloud.queue.wire.text import json_headers
from pytest_fakecloud.queue.workflow.model import RunStep

APP = "https://app.example.com/flow"
FEATURES = "LazyFetch,InitialBody,WF_TriggerOnConfig"
TOO_DEEP = b"[" * 100_000
"""JSON that is nested too deeply for Python's parser."""


class Wire:
    """A queue, an application that records its deliveries, and an HTTP client for the queue."""

    def __init__(self, **options: Any) -> None:
        self.queue = Queue(Context.alone(now="2026-03-02T10:00:00Z"), **options)
        self.route = self.queue.destinations.accept("*")
        self.http = httpx.Client(base_url=self.queue.url, headers=self.queue.headers)

    def close(self) -> None:
        self.http.close()
        self.queue.close()

    def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        answer = self.http.request(method, path, **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def publish(
        self, run: str, body: object = b"", status: int = 201, url: str = APP, **headers: str
    ) -> Any:
        sent = {
            "Upstash-Workflow-RunId": run,
            "Upstash-Workflow-Init": "false",
            "Upstash-Workflow-Url": APP,
            "Upstash-Feature-Set": FEATURES,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", f"/v2/publish/{url}", status, content=data, headers=sent)

    def start(self, run: str = "r", body: object = b"first", url: str = APP, **headers: str) -> Any:
        return self.publish(run, body, 201, url, **{"Upstash_Workflow_Init": "true", **headers})

    def start_and_deliver(self, *arguments: Any, **options: Any) -> None:
        self.start(*arguments, **options)
        self.queue.run_until_idle()

    def runs(self, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", f"/v2/workflows/events?{query}")["runs"]
        return found

    @property
    def delivered(self) -> list[DeliveredRequest]:
        return self.route.deliveries


@pytest.fixture
def wire() -> Iterator[Wire]:
    with closing(Wire()) as wire:
        yield wire


def bodies(request: DeliveredRequest) -> list[bytes]:
    listed = request.json()
    assert all(set(one) == {"messageId", "body", "callType"} for one in listed)
    return [base64.b64decode(one["body"]) for one in listed]


def step(number: int, **more: Any) -> dict[str, Any]:
    return {"stepId": number, "stepName": f"s{number}", "stepType": "Run", "concurrent": 1, **more}


# -- the list of steps -----------------------------------------------------------------------------


def test_a_delivery_is_the_list_up_to_its_step(wire: Wire) -> None:
    wire.start_and_deliver()
    wire.publish("r", b"second")
    wire.queue.run_until_idle()
    assert [bodies(request) for request in wire.delivered] == [[b"first"], [b"first", b"second"]]
    assert wire.delivered[1].json()[1]["callType"] == "step"
    assert wire.delivered[1].headers.get("Upstash-Workflow-RunId") == "r"


def test_the_signature_is_about_the_list(wire: Wire) -> None:
    from qstash import Receiver

    wire.start_and_deliver()
    (request,) = wire.delivered
    keys = (wire.queue.current_signing_key, wire.queue.next_signing_key)
    signature = request.headers.get("Upstash-Signature") or ""
    Receiver(*keys).verify(signature=signature, body=request.text, url=APP)


def test_a_step_joins_when_it_is_delivered_and_once(wire: Wire) -> None:
    wire.start_and_deliver()
    wire.publish("r", b"slow", Upstash_Delay="1h")
    wire.publish("r", b"quick")
    wire.queue.destinations.answers(APP, 200, 500, 200)
    wire.queue.run_until_idle()
    route = wire.queue.destinations.routes[0]
    assert [bodies(request) for request in route.deliveries] == [
        [b"first", b"quick"],
        [b"first", b"quick", b"slow"],
        [b"first", b"quick", b"slow"],
    ]


@pytest.mark.parametrize("call_type", ["toCallback", "fromCallback", "failureCall"])
def test_other_call_types_are_delivered_as_they_are(wire: Wire, call_type: str) -> None:
    version = "Upstash-Workflow-Sdk-Version"
    wire.start(Upstash_Forward_Upstash_Workflow_Sdk_Version="1", Upstash_Forward_X_A="b")
    wire.publish("r", b"raw", Upstash_Workflow_CallType=call_type)
    wire.queue.run_until_idle()
    assert wire.delivered[1].body == b"raw"
    # With the version header, the client would treat the delivery as a step.
    assert [one.headers.get(version) for one in wire.delivered] == ["1", None]
    assert [one.headers.get("X-A") for one in wire.delivered] == ["b", "b"]
    assert len(wire.ask("GET", "/v2/workflows/runs/r")) == 1
    wire.publish("r", b"step")
    wire.queue.run_until_idle()
    assert wire.delivered[2].headers.get(version) == "1"


def test_steps_can_be_fetched_until_the_run_is_over(wire: Wire) -> None:
    wire.start_and_deliver()
    (only,) = wire.ask("GET", "/v2/workflows/runs/r")
    assert base64.b64decode(only["body"]) == b"first"
    wire.ask("DELETE", "/v2/workflows/runs/r?cancel=false", content=b'"result"')
    assert wire.runs()[0]["workflowRunResponse"] == '"result"'
    for run in ("r", "unknown"):
        for method in ("GET", "DELETE"):
            refused = wire.ask(method, f"/v2/workflows/runs/{run}", 404)
            assert refused["error"] == f"workflow run {run} not found"


@pytest.mark.parametrize(("features", "empty"), [(FEATURES, True), ("InitialBody", False)])
def test_a_long_list_is_left_out_when_the_client_can_fetch_it(features: str, empty: bool) -> None:
    wire = Wire(limits={"message_size": 1000})
    try:
        wire.start_and_deliver(body=b"x" * 900, Upstash_Feature_Set=features)
        assert (wire.delivered[0].body == b"") is empty
        assert len(wire.ask("GET", "/v2/workflows/runs/r")) == 1
    finally:
        wire.close()


def test_a_list_that_just_fits_is_sent(wire: Wire) -> None:
    wire.start_and_deliver(body=b"x" * 900)
    whole = len(wire.delivered[0].body)
    for size, sent in ((whole, whole), (whole - 1, 0)):
        tight = Wire(limits={"message_size": size})
        tight.start(body=b"x" * 900)
        tight.queue.run_until_idle()
        assert len(tight.delivered[0].body) == sent
        tight.close()


def test_a_step_that_is_delivered_again_has_the_list_up_to_itself(wire: Wire) -> None:
    wire.start_and_deliver()
    route = wire.queue.destinations.answers(APP, 500, 200, 200)
    wire.publish("r", b"slow", Upstash_Retry_Delay="60000")
    wire.publish("r", b"quick")
    wire.queue.run_until_idle()
    assert [bodies(request) for request in route.deliveries] == [
        [b"first", b"slow"], [b"first", b"slow", b"quick"], [b"first", b"slow"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call_type", "state", "told"),
    [
        ("step", "RUN_FAILED", 1),
        ("toCallback", "RUN_STARTED", 1),
        # A failed failure call has no further failure callback.
        ("failureCall", "RUN_STARTED", 0),
    ],
)
def test_a_call_that_failed_fails_no_run(wire: Wire, call_type: str, state: str, told: int) -> None:
    wire.queue.destinations.answers("https://third.example.com", 500)
    sent = {"Upstash_Workflow_CallType": call_type, "Upstash_Retries": "0"}
    for run, delay in (("over", "1m"), ("r", "0s")):
        wire.start(run, Upstash_Failure_Callback=f"{APP}/failed")
        wire.publish(run, url="https://third.example.com", **sent, Upstash_Delay=delay)
    wire.queue.deliver_due()
    assert [one.url for one in wire.delivered].count(f"{APP}/failed") == told
    wire.ask("DELETE", "/v2/workflows/runs/over?cancel=false")
    wire.queue.run_until_idle()
    runs = {run["workflowRunId"]: run for run in wire.runs()}
    states = {name: run["workflowState"] for name, run in runs.items()}
    assert states == {"r": state, "over": "RUN_SUCCESS"}
    assert ("failureFunction" in runs["r"]) is (call_type == "step")


def test_a_callback_is_tried_as_often_as_the_run_says(wire: Wire) -> None:
    named = {"Upstash_Callback_Workflow_RunId": "r", "Upstash_Callback_Feature_Set": FEATURES}
    wire.start(Upstash_Retries="5")
    for own in ({}, {"Upstash_Callback_Retries": "2"}):
        more = {"Upstash_Retries": "1", "Upstash_Callback": APP, **named, **own}
        wire.publish("r", b"call", Upstash_Workflow_CallType="toCallback", **more)
    wire.queue.run_until_idle()
    assert [one.max_retries for one in wire.queue.messages(kind="callback")] == [5, 2]
    wire.queue.destinations.answers(APP, 500, 500, 200)
    for mark in ({}, {"Upstash_Failure_Callback_Retries": "2"}):
        about = {name.replace("Callback", "Failure_Callback", 1): it for name, it in named.items()}
        more = {"Upstash_Retries": "0", "Upstash_Failure_Callback": f"{APP}/no", **about, **mark}
        wire.publish("r", b"call", Upstash_Workflow_CallType="toCallback", **more)
    wire.queue.run_until_idle()
    assert [one.max_retries for one in wire.queue.messages(kind="failure_callback")] == [5, 2]


def test_the_url_of_a_run_is_what_its_client_says(wire: Wire) -> None:
    wire.publish("r", url=f"{APP}/first", Upstash_Workflow_Init="true")
    plain = {"Upstash-Workflow-RunId": "plain", "Upstash-Workflow-Init": "true"}
    wire.ask("POST", f"/v2/publish/{APP}/only", 201, headers=plain)
    urls = {run["workflowRunId"]: run["workflowUrl"] for run in wire.runs()}
    assert urls == {"r": APP, "plain": f"{APP}/only"}
    assert [run["workflowRunId"] for run in wire.runs("callerIp=127.0.0.1")] == ["plain", "r"]


def test_a_run_id_is_taken_while_the_run_lives(wire: Wire) -> None:
    first = wire.start()
    again = wire.ask(
        "POST",
        f"/v2/publish/{APP}",
        202,
        headers={"Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "true"},
    )
    assert again["messageId"] == first["messageId"]
    assert again["deduplicated"] is True
    wire.ask("DELETE", "/v2/workflows/runs/r")
    assert wire.start()["messageId"] != first["messageId"]


def test_steps_for_runs_that_do_not_live_are_refused(wire: Wire) -> None:
    assert "run nobody not found" in wire.publish("nobody", status=400)["error"]
    wire.start()
    wire.ask("DELETE", "/v2/workflows/runs/r")
    (run,) = wire.runs()
    ended = 1000 * int(wire.queue.clock.now().timestamp())
    assert (run["workflowRunCompletedAt"], run.get("workflowRunResponse")) == (ended, None)
    assert "already finished: RUN_CANCELED" in wire.publish("r", status=400)["error"]
    (item,) = wire.ask(
        "POST",
        "/v2/batch",
        json=[{"destination": APP, "headers": {"Upstash-Workflow-RunId": "nobody"}}],
    )
    assert item["status"] == 400


def rejected(wire: Wire) -> list[dict[str, Any]]:
    problems = wire.queue._context.problems
    return [one.facts for one in problems if one.kind == "rejected_step"]


def test_a_rejected_step_in_a_batch_is_a_problem(wire: Wire) -> None:
    wire.start()
    of_run = {"Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "false"}
    answers = wire.ask(
        "POST",
        "/v2/batch",
        json=[
            {"destination": APP, "headers": of_run},
            {"destination": APP, "headers": {**of_run, "Upstash-Delay": "soon"}},
            {"destination": "nowhere"},
        ],
    )
    assert ["error" in one for one in answers] == [False, True, True]
    (problem,) = wire.queue._context.problems
    assert (problem.kind, problem.facts) == (
        "rejected_step",
        {"run_id": "r", "url": APP, "handle": "queue"},
    )
    assert problem.text.startswith(
        f"queue: rejected item 2 of a batch, a step of workflow run r at {APP}:"
        f" 400 {answers[1]['error']}"
    )


@pytest.mark.parametrize(
    ("item", "run_id", "url"),
    [
        ({"destination": "x", "headers": {"Service-Workflow-RunId": "r"}}, "r", "x"),
        ({"destination": 5, "headers": {"upstash-workflow-runid": ["r", "s"]}}, "r", "5"),
        ({"headers": {"Upstash-Workflow-RunId": 7}}, "7", "None"),
        ({"destination": APP, "headers": {"Upstash-Workflow-RunId": "new"}, "body": 5}, "new", APP),
    ],
)
def test_a_malformed_step_is_a_problem_too(wire: Wire, item: Any, run_id: str, url: str) -> None:
    (answer,) = wire.ask("POST", "/v2/batch", json=[item])
    assert answer["status"] == 400
    assert rejected(wire) == [{"run_id": run_id, "url": url, "handle": "queue"}]


@pytest.mark.parametrize(
    "item",
    [
        7,
        None,
        {},
        {"headers": []},
        {"headers": None},
        {"headers": {"Upstash-Workflow-RunId": []}},
        {"headers": {"Upstash-Workflow-RunId": ""}},
    ],
)
def test_a_rejected_item_of_no_run_is_no_problem(wire: Wire, item: Any) -> None:
    wire.ask("POST", "/v2/batch", json=[item])
    assert rejected(wire) == []


def test_a_rejected_step_with_half_a_character_can_be_reported(wire: Wire) -> None:
    body = b'[{"destination": "\\ud800", "headers": {"Upstash-Workflow-RunId": "\\ud800"}}]'
    wire.ask("POST", "/v2/batch", content=body)
    (problem,) = wire.queue._context.problems
    assert problem.text.encode()


@pytest.mark.parametrize("end", ["cancel=true", "cancel=false"])
def test_a_step_of_an_ended_run_refuses_its_whole_batch(wire: Wire, end: str) -> None:
    wire.start_and_deliver()
    wire.ask("DELETE", f"/v2/workflows/runs/r?{end}")
    of_run = {"Service-Workflow-RunId": "r", "Upstash-Workflow-Url": APP}
    items: list[Any] = [
        {"destination": APP},
        {"destination": "nowhere"},
        7,
        {"destination": APP, "headers": of_run, "queue": "line"},
    ]
    assert "already finished" in wire.ask("POST", "/v2/batch", 400, json=items)["error"]
    wire.queue.run_until_idle()
    assert len(wire.delivered) == 1
    assert wire.ask("GET", "/v2/queues") == []
    # The id may be used for a new run, together with its first step.
    anew = {"destination": APP, "headers": {**of_run, "Upstash-Workflow-Init": "true"}}
    answers = wire.ask("POST", "/v2/batch", json=[anew, items[-1]])
    assert all("messageId" in one for one in answers)


@pytest.mark.parametrize("first", ["cancel=true", "cancel=false"])
def test_an_ended_run_may_be_told_to_be_done_again(wire: Wire, first: str) -> None:
    wire.start()
    wire.ask("DELETE", f"/v2/workflows/runs/r?{first}", content=b'"one"')
    ended = wire.runs()
    for _ in range(2):
        wire.ask("DELETE", "/v2/workflows/runs/r?cancel=false", content=b'"other"')
    assert wire.runs() == ended
    wire.ask("DELETE", "/v2/workflows/runs/unknown?cancel=false", 404)


# -- settings of the trigger that apply to the whole run ---------------------------------------------


def test_the_triggers_settings_hold_for_every_step(wire: Wire) -> None:
    wire.start(
        Upstash_Retries="1",
        Upstash_Retry_Delay="5000",
        Upstash_Forward_X_User="me",
        Upstash_Forward_X_Own="trigger",
        Upstash_Label="lab",
        Upstash_Flow_Control_Key="flow",
        Upstash_Flow_Control_Value="parallelism=1",
        Upstash_Failure_Callback="https://app.example.com/failed",
        Upstash_Failure_Callback_Forward_X_Fail="1",
    )
    wire.queue.run_until_idle()
    wire.queue.destinations.answers(APP, 500)
    wire.publish("r", b"step", Upstash_Forward_X_Own="step")
    attempts = wire.queue.run_until_idle()
    tries = wire.queue.destinations.routes[0].deliveries
    assert [request.headers.get("X-User") for request in tries] == ["me", "me"]
    assert [request.headers.get("X-Own") for request in tries] == ["step", "step"]
    own = tries[0].headers.getlist("x-own")
    assert own == ["step"]
    assert attempts[1].waited.total_seconds() == 5
    failure = wire.delivered[-1]
    assert failure.url == "https://app.example.com/failed"
    assert failure.headers.get("X-Fail") == "1"
    letter = wire.queue.dead_letters().only()
    assert wire.ask("GET", f"/v2/dlq/{letter.id}")["labels"] == ["lab"]
    (run,) = wire.runs()
    ended = 1000 * int(attempts[1].at.timestamp())
    assert (run["workflowState"], run["workflowRunCompletedAt"]) == ("RUN_FAILED", ended)


def test_a_steps_own_settings_win(wire: Wire) -> None:
    wire.start(
        Upstash_Retries="1",
        Upstash_Timeout="10s",
        Upstash_Flow_Control_Key="flow",
        Upstash_Flow_Control_Value="parallelism=1",
        Upstash_Failure_Callback="https://app.example.com/failed",
        Upstash_Failure_Callback_Forward_X_Fail="1",
    )
    wire.queue.run_until_idle()
    wire.queue.destinations.answers(APP, 500)
    own = "https://app.example.com/own"
    wire.publish(
        "r",
        b"step",
        Upstash_Retries="0",
        Upstash_Timeout="3s",
        Upstash_Flow_Control_Key="mine",
        Upstash_Flow_Control_Value="parallelism=2",
        Upstash_Failure_Callback=own,
    )
    wire.queue.run_until_idle()
    failure = wire.delivered[-1]
    assert (failure.url, failure.headers.get("X-Fail")) == (own, None)
    letter = wire.ask("GET", f"/v2/dlq/{wire.queue.dead_letters().only().id}")
    assert (letter["maxRetries"], letter["timeout"]) == (0, 3000)
    assert letter["flowControlKey"] == "mine"


def test_without_the_feature_a_step_stands_for_itself(wire: Wire) -> None:
    wire.start(Upstash_Retries="0", Upstash_Forward_X_User="me")
    wire.publish("r", b"step", Upstash_Feature_Set="LazyFetch")
    wire.queue.run_until_idle()
    assert wire.delivered[1].headers.get("X-User") is None


def test_the_failure_callback_carries_the_first_body_and_the_run(wire: Wire) -> None:
    capture = "https://app.example.com/failed"
    wire.start("other", Upstash_Feature_Set="LazyFetch")
    wire.start_and_deliver(body=b"first body", Upstash_Failure_Callback=capture)
    wire.queue.destinations.answers(APP, (500, "broken"))
    wire.publish("r", b"step", Upstash_Retries="0")
    wire.queue.run_until_idle()
    body = wire.delivered[-1].json()
    assert body["workflowRunId"] == "r"
    (run, _) = wire.runs()
    assert body["workflowCreatedAt"] == run["workflowRunCreatedAt"]
    assert base64.b64decode(body["sourceBody"]) == b"first body"
    assert base64.b64decode(body["body"]) == b"broken"
    assert run["workflowRunResponse"] == "broken"
    # A client without the InitialBody feature gets the body of the step.
    asked = {"Upstash_Retries": "0", "Upstash_Failure_Callback": capture}
    wire.publish("other", b"step", Upstash_Feature_Set="LazyFetch", **asked)
    wire.queue.run_until_idle()
    assert base64.b64decode(wire.delivered[-1].json()["sourceBody"]) == b"step"


def test_callbacks_about_a_cancelled_run_are_dropped(wire: Wire) -> None:
    def cancel(request: DeliveredRequest) -> None:
        wire.ask("DELETE", "/v2/workflows/runs/r")

    wire.queue.destinations.call("https://third.example.com", cancel)
    wire.start()
    wire.publish(
        "r",
        b"call",
        url="https://third.example.com/x",
        Upstash_Workflow_CallType="toCallback",
        Upstash_Callback=APP,
        Upstash_Callback_Workflow_RunId="r",
        Upstash_Callback_Workflow_CallType="fromCallback",
    )
    wire.queue.run_until_idle()
    assert [request.url for request in wire.delivered] == [APP]


# -- triggers --------------------------------------------------------------------------------------


def test_trigger(wire: Wire) -> None:
    answer = wire.ask("POST", f"/v2/trigger/{APP}?x=1", 201, content=b"body")
    assert answer["workflowRunId"].startswith("wfr_")
    wire.queue.run_until_idle()
    (request,) = wire.delivered
    assert request.url == APP + "?x=1"
    assert bodies(request) == [b"body"]
    assert request.headers.get("Upstash-Workflow-Sdk-Version") == "1"
    assert request.headers.get("Upstash-Workflow-RunId") == answer["workflowRunId"]


def test_the_query_of_a_trigger_loses_the_queues_own_keys(wire: Wire) -> None:
    query = f"qstash_token={wire.queue.token}&a=1&upstash-retries=1&upstash-workflow-runid=mine"
    answer = wire.ask("POST", f"/v2/trigger/{APP}?{query}", 201)
    assert answer["workflowRunId"] == "mine"
    wire.queue.run_until_idle()
    (request,) = wire.delivered
    assert request.url == APP + "?a=1"
    assert wire.queue.messages().only().max_retries == 1
    assert wire.runs()[0]["workflowUrl"] == APP + "?a=1"


def test_a_trigger_starts_one_run_at_one_url(wire: Wire) -> None:
    endpoints = [{"url": APP}, {"url": APP + "2"}]
    wire.ask("POST", "/v2/topics/g/endpoints", json={"endpoints": endpoints})
    assert "invalid scheme" in wire.ask("POST", "/v2/trigger/g", 400)["error"]
    cron = {"Upstash-Cron": "* * * * *"}
    assert "schedule" in wire.ask("POST", f"/v2/trigger/{APP}", 400, headers=cron)["error"]
    items = [{"url": "g"}, {"url": APP, "headers": cron}]
    answers = wire.ask("POST", "/v2/batch/trigger", 201, json=items)
    assert [one["status"] for one in answers] == [400, 400]
    assert wire.ask("GET", "/v2/schedules") == wire.runs() == wire.queue.messages() == []


def test_a_trigger_repeated_by_its_deduplication_id_names_the_first_run(wire: Wire) -> None:
    headers = {"Upstash-Deduplication-Id": "once"}
    first = wire.ask("POST", f"/v2/trigger/{APP}", 201, headers=headers)
    again = wire.ask("POST", f"/v2/trigger/{APP}", 201, headers=headers)
    assert again == {**first, "deduplicated": True}
    assert len(wire.runs()) == 1


def test_a_trigger_under_the_other_prefix(wire: Wire) -> None:
    headers = {
        "Service-Workflow-RunId": "mine",
        "Service-Workflow-Init": "false",
        "Service-Feature-Set": "LazyFetch",
    }
    answer = wire.ask("POST", f"/v2/trigger/{APP}", 201, headers=headers)
    assert answer["workflowRunId"] == "mine"
    assert [run["workflowRunId"] for run in wire.runs()] == ["mine"]
    wire.queue.run_until_idle()
    assert wire.delivered[0].headers.get("Upstash-Feature-Set") == "LazyFetch"
    headers = {"Service-Workflow-RunId": "mine"}
    asked = {"url": APP, "step": step(1)}
    wire.ask("POST", "/v2/wait/e", json=asked, headers=headers)


def test_trigger_many(wire: Wire) -> None:
    answers = wire.ask(
        "POST",
        "/v2/batch/trigger",
        201,
        json=[
            {"url": APP, "body": {"a": 1}, "headers": {"Upstash-Workflow-RunId": "mine"}},
            {"destination": APP, "body": "text"},
            {"body": "nowhere"},
            {"url": "ftp://x"},
            7,
        ],
    )
    assert answers[0]["workflowRunId"] == "mine"
    assert [one.get("status") for one in answers] == [None, None, 400, 400, 400]
    wire.queue.run_until_idle()
    assert [bodies(request) for request in wire.delivered] == [[b'{"a": 1}'], [b"text"]]
    again = wire.ask(
        "POST", "/v2/batch/trigger", 201, json=[{"url": APP, "headers": {}, "body": None}]
    )
    assert len(again) == 1


# -- events ----------------------------------------------------------------------------------------


def wait(wire: Wire, event: str, status: int = 200, run: str = "r", **more: Any) -> Any:
    asked = {"url": APP, "step": step(1, stepType="Wait"), "timeout": "1h", **more}
    return wire.ask(
        "POST", f"/v2/wait/{event}", status, json=asked, headers={"Upstash-Workflow-RunId": run}
    )


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("2h", 7200), (90, 90), ("90", 90), (None, 7 * 86_400), ("", 7 * 86_400), ("1d1s", 86_401)],
)
def test_a_wait_times_out(wire: Wire, timeout: object, seconds: int) -> None:
    wire.start_and_deliver()
    start = wire.queue.clock.now_us()
    late = f"{APP}/late"
    given = {"Upstash-Delay": ["5s"], "Upstash-Label": ["l"]}
    message = wait(wire, "e", timeout=timeout, timeoutUrl=late, timeoutHeaders=given)["messageId"]
    assert wire.queue.message(message).labels == ("l",)
    (waiter,) = wire.ask("GET", "/v2/waiters/e")
    assert (waiter["url"], waiter["timeoutUrl"]) == (APP, late)
    assert waiter["headers"]["Upstash-Workflow-Runid"] == ["r"]
    assert waiter["deadline"] == start // 1_000_000 + seconds
    wire.queue.run_until_idle()
    assert wire.queue.clock.now_us() - start == seconds * 1_000_000
    timed_out = json.loads(bodies(wire.delivered[-1])[-1])
    assert (timed_out["waitTimeout"], timed_out["waitEventId"]) == (True, "e")
    assert "out" not in timed_out
    assert (wire.delivered[-1].message_id, wire.delivered[-1].url) == (message, late)
    assert wire.ask("GET", "/v2/waiters/e") == []


def test_a_notification_wakes_those_who_wait(wire: Wire) -> None:
    for run in ("r", "s"):
        wire.start(run)
    wire.queue.run_until_idle()
    wait(wire, "e", run="r")
    wait(wire, "e", run="s")
    wait(wire, "other", run="s")
    told = wire.ask("POST", "/v2/notify/e", 201, content=b"data")
    assert [(one["waiter"]["url"], one["error"]) for one in told] == [(APP, "")] * 2
    assert wire.ask("POST", "/v2/notify/e", 201, content=b"again") == []
    wire.queue.deliver_due()
    woken = [json.loads(bodies(request)[-1]) for request in wire.delivered[-2:]]
    assert [base64.b64decode(one["out"]) for one in woken] == [b"data", b"data"]
    assert [one["waitEventId"] for one in woken] == ["e", "e"]
    assert "(notified of e)" in wire.queue.message(told[0]["messageId"]).timeline
    assert len(wire.ask("GET", "/v2/waiters/other")) == 1


def test_internal_messages_do_not_count_as_requests() -> None:
    wire = Wire(limits={"burst": 1})
    wire.start()
    wait(wire, "e")
    wire.queue.run_until_idle()
    assert len(wire.delivered) == 2
    invocation = {"workflowRunId": "r", "workflowUrl": APP, "step": step(1)}
    wire.start("child", invocation, Upstash_Workflow_Invoke="true")
    wire.ask("DELETE", "/v2/workflows/runs/child?cancel=false")
    wire.queue.run_until_idle()
    assert len(wire.delivered) == 4
    assert wire.delivered[-1].headers.get("Upstash-Workflow-RunId") == "r"
    wire.close()


def test_a_notification_comes_too_late_for_a_timeout_on_its_way(wire: Wire) -> None:
    wire.start_and_deliver()
    wire.queue.destinations.answers(APP, 500, 200)
    wait(wire, "e", timeout="10s")
    wire.queue.advance("10s")
    assert wire.ask("GET", "/v2/waiters/e") == []
    assert wire.ask("POST", "/v2/notify/e", 201, content=b"late") == []
    wire.queue.run_until_idle()
    tries = [json.loads(bodies(one)[-1]) for one in wire.queue.destinations.routes[0].deliveries]
    assert [one["waitTimeout"] for one in tries] == [True, True]


def test_a_notified_step_keeps_its_place_in_its_queue(wire: Wire) -> None:
    wire.start_and_deliver()
    wire.publish("r", b"before", Upstash_Queue_Name="q", Upstash_Delay="1m")
    wait(wire, "e", timeoutHeaders={"Upstash-Queue-Name": ["q"]})
    (woken,) = wire.ask("POST", "/v2/notify/e", 201, content=b"now")
    wire.queue.advance("30s")
    assert len(wire.delivered) == 1
    wire.queue.advance("30s")
    assert [one.message_id for one in wire.delivered[2:]] == [woken["messageId"]]
    assert json.loads(bodies(wire.delivered[-1])[-1])["waitTimeout"] is False


def test_a_notification_for_one_run_may_come_first(wire: Wire) -> None:
    wire.start("r")
    wire.start("s")
    assert wire.ask("POST", "/v2/notify/r/e", 201, content=b"early") == []
    wait(wire, "e", run="s")
    wait(wire, "e", run="r")
    wire.queue.deliver_due()
    out = json.loads(bodies(wire.delivered[-1])[-1])["out"]
    assert base64.b64decode(out) == b"early"
    assert len(wire.ask("GET", "/v2/waiters/e")) == 1
    wire.ask("POST", "/v2/notify/nobody/e", 404)
    # A waiter is notified once, whether it was registered before the notification or after.
    for _ in range(2):
        wait(wire, "e", run="r")
        assert len(wire.ask("GET", "/v2/waiters/e")) == 2
        assert len(wire.ask("POST", "/v2/notify/r/e", 201, content=b"late")) == 1


def test_a_finished_run_has_no_waiters(wire: Wire) -> None:
    for run in ("r", "s"):
        wire.start(run)
    wire.queue.run_until_idle()
    wait(wire, "both", run="r")
    wait(wire, "both", run="s")
    wait(wire, "one", run="r")
    wire.ask("POST", "/v2/notify/r/early", 201, content=b"kept for it")
    wire.ask("DELETE", "/v2/workflows/runs/r")
    (left,) = wire.ask("GET", "/v2/waiters/both")
    assert left["url"] == APP
    (message,) = wire.queue.messages(state="pending")
    wire.ask("DELETE", f"/v2/messages/{message.id}")
    wire.queue.advance("1h")
    assert wire.ask("GET", "/v2/waiters/both") == []
    assert wire.ask("GET", "/v2/waiters/one") == []
    assert wire.ask("POST", "/v2/notify/one", 201, content=b"late") == []
    # A later run with the same id does not see notifications to the first.
    wire.start("r")
    wait(wire, "early", run="r")
    assert len(wire.ask("GET", "/v2/waiters/early")) == 1


@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        ({"run": "nobody"}, 404, "workflow run nobody not found"),
        ({"step": "x"}, 400, "invalid body: a wait needs a url and a step"),
        ({"url": None}, 400, "invalid body: a wait needs a url and a step"),
        ({"timeout": "soon"}, 400, "invalid timeout: 'soon' is not a duration"),
        ({"timeout": "²"}, 400, "invalid timeout: '²' is not a duration"),
        ({"timeout": "9" * 5000}, 400, "invalid timeout: '9999"),
        ({"timeout": -1}, 400, "invalid timeout: '-1' is not an integer"),
        ({"timeout": [1]}, 400, "invalid timeout: [1], expected seconds or a duration"),
        ({"timeout": True}, 400, "invalid timeout: True, expected seconds or a dur"),
        ({"url": "empty"}, 400, "invalid workflow url: endpoint has invalid scheme"),
        (
            {"timeoutHeaders": {"Upstash-Cron": ["* * * * *"]}},
            400,
            "invalid headers: a step of a workflow run cannot be scheduled",
        ),
        (
            {"timeoutHeaders": {"Upstash-Forward-X": [None]}},
            400,
            "invalid header Upstash-Forward-X: expected a string",
        ),
    ],
)
def test_a_wait_that_makes_no_sense(
    wire: Wire, more: dict[str, Any], status: int, text: str
) -> None:
    wire.start()
    wire.ask("POST", "/v1/topics", json={"name": "empty"})
    assert wait(wire, "e", status, **more)["error"].startswith(text)
    assert wire.ask("GET", "/v2/waiters/e") == []
    assert len(wire.queue.messages()) == 1


@pytest.mark.parametrize("timeout", ["1e999", "NaN", "-Infinity"])
def test_a_wait_for_a_number_that_is_none(wire: Wire, timeout: str) -> None:
    wire.start()
    body = f'{{"url": "{APP}", "step": {{}}, "timeout": {timeout}}}'
    headers = {"Upstash-Workflow-RunId": "r"}
    answer = wire.ask("POST", "/v2/wait/e", 400, content=body, headers=headers)
    assert "invalid timeout" in answer["error"]


def test_headers_of_a_wait_are_utf8(wire: Wire) -> None:
    wire.start_and_deliver()
    wait(wire, "e", url=APP + "/ä", timeoutHeaders={"Upstash-Forward-X": ["é", "日"]})
    wire.queue.run_until_idle()
    came = wire.delivered[-1]
    assert came.delivery.url == (APP + "/ä").encode().decode("latin-1")
    assert came.headers.getlist("X") == [text.encode().decode("latin-1") for text in ("é", "日")]


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
def test_a_wait_without_an_object(wire: Wire, body: bytes) -> None:
    assert "invalid body" in wire.ask("POST", "/v2/wait/e", 400, content=body)["error"]


def test_a_webhook_needs_no_token_and_everything_else_does(wire: Wire) -> None:
    wire.start()
    wait(wire, "hook")
    url = wire.queue.url
    answer = httpx.put(
        f"{url}/v2/workflows/hooks/user/r/hook?x=%2F", content=b"\x00", headers={"X-A": "1"}
    )
    assert answer.status_code == 200
    assert httpx.get(f"{url}/v2/workflows/events").status_code == 401
    wire.queue.deliver_due()
    out = json.loads(bodies(wire.delivered[-1])[-1])["out"]
    event = json.loads(base64.b64decode(out))
    assert (event["method"], event["url"]) == ("PUT", "/v2/workflows/hooks/user/r/hook?x=%2F")
    assert base64.b64decode(event["body"]) == b"\x00"
    assert event["header"]["X-A"] == ["1"]
    assert event["host"] == url.removeprefix("http://")


# -- listings and dead letters ---------------------------------------------------------------------


def test_runs_in_pages_and_by_filter(wire: Wire) -> None:
    for number in range(5):
        wire.start(f"r{number}", Upstash_Label=f"l{number % 2}")
        wire.queue.advance("1m")
    wire.ask("DELETE", "/v2/workflows/runs/r0")
    page = wire.ask("GET", "/v2/workflows/events?count=2")
    assert [run["workflowRunId"] for run in page["runs"]] == ["r4", "r3"]
    rest = wire.runs(f"cursor={page['cursor']}&count=50")
    assert [run["workflowRunId"] for run in rest] == ["r2", "r1", "r0"]
    created = wire.runs("workflowRunId=r2")[0]["workflowRunCreatedAt"]
    for query, found in (
        ("state=RUN_CANCELED", ["r0"]),
        ("state=RUN_CANCELLED", ["r0"]),
        ("callerIP=127.0.0.1&state=RUN_FAILED,RUN_CANCELED", ["r0"]),
        ("label=l1", ["r3", "r1"]),
        (f"workflowUrl={APP}&label=l0", ["r4", "r2", "r0"]),
        ("workflowUrl=https://app.example.com", []),
        (f"fromDate={created}", ["r4", "r3", "r2"]),
        (f"toDate={created}", ["r2", "r1", "r0"]),
        (f"workflowCreatedAt={created}", ["r2"]),
        ("host=app.example.com&path=/flow&callerIp=127.0.0.1&count=1", ["r4"]),
        ("workflowRunId=r1,r3", ["r3", "r1"]),
        ("groupBy=workflowRunId&trimBody=0&workflowRunId=r1", ["r1"]),
    ):
        assert [run["workflowRunId"] for run in wire.runs(query)] == found, query
    assert wire.ask("GET", "/v2/workflows/logs?workflowRunId=r1")["runs"] == wire.runs(
        "workflowRunId=r1"
    )
    for wanted, found in (
        ("r1,r3", ["r3", "r1"]),
        ("r1&workflowRuns=r0", ["r1", "r0"]),
        (f"r2@{created},r1@{created},r3", ["r3", "r2"]),
        (f"r2%40{created}", ["r2"]),
    ):
        listed = wire.ask("GET", f"/v2/workflows/logs?workflowRuns={wanted}")["runs"]
        assert [run["workflowRunId"] for run in listed] == found
    for wanted in ("", "true"):
        assert len(wire.ask("GET", f"/v2/workflows/logs?workflowRuns={wanted}")["runs"]) == 5
    for query in (
        "nonsense=1",
        "cursor=x",
        "count=0",
        "fromDate=x",
        "state=HAPPY",
        "state=RUN_STARTED,",
        "groupBy=workflowUrl",
    ):
        wire.ask("GET", f"/v2/workflows/events?{query}", 400)


def test_bulk_cancelling(wire: Wire) -> None:
    for name in ("a", "b", "c", "d"):
        wire.start(name, Upstash_Delay="1h")
    target = "/v2/workflows/runs"
    assert wire.ask("DELETE", f"{target}?workflowRunIds=a&workflowRunIds=b")["cancelled"] == 2
    exact = f"{target}?workflowUrl=https://app.example.com&workflowUrlExactMatch=true"
    assert wire.ask("DELETE", exact)["cancelled"] == 0
    prefix = f"{target}?workflowUrl=https://app.example.com&count=1"
    one = wire.ask("DELETE", prefix)
    assert one["cancelled"] == 1
    assert "cursor" in one
    wire.ask("DELETE", f"{target}?state=HAPPY", 400)
    # With ids, all other filters are ignored.
    others = {"label": "none", "toDate": 1, "workflowUrl": "https://none.example.com"}
    body = wire.ask("DELETE", target, json={"workflowRunIds": ["d"], **others})
    assert body == {"cancelled": 1}
    assert wire.ask("DELETE", target) == {"cancelled": 0}
    wire.queue.run_until_idle()
    assert wire.delivered == []
    wire.ask("DELETE", target, 400, content=b"{")


def failed_run(wire: Wire, run: str = "r", body: object = b"first", **headers: str) -> str:
    route = wire.queue.destinations.answers(APP, 200, 500)
    wire.start_and_deliver(run, body, **headers)
    wire.publish(run, step(1), Upstash_Retries="0")
    wire.queue.run_until_idle()
    route.remove()
    dlq_id: str = wire.runs(f"workflowRunId={run}")[0]["dlqId"]
    return dlq_id


def test_dead_letters_of_runs(wire: Wire) -> None:
    dlq_id = failed_run(wire)
    letter = wire.ask("GET", f"/v2/workflows/dlq/{dlq_id}")
    assert (letter["workflowRunId"], letter["workflowUrl"]) == ("r", APP)
    created = wire.runs()[0]["workflowRunCreatedAt"]
    shown = [wire.ask("GET", f"/v2/messages/{one.id}") for one in wire.queue.messages()]
    assert [one["workflowCreatedAt"] for one in [letter, *shown]] == [created] * 3
    assert wire.ask("GET", "/v2/workflows/dlq?workflowRunId=r")["messages"] == [letter]
    assert wire.ask("GET", "/v2/workflows/dlq?workflowRunId=other")["messages"] == []
    wire.queue.destinations.answers("https://plain.example.com", 500)
    wire.queue.publish("https://plain.example.com", retries=0)
    wire.queue.run_until_idle()
    assert len(wire.ask("GET", "/v2/dlq")["messages"]) == 2
    assert len(wire.ask("GET", "/v2/workflows/dlq")["messages"]) == 1
    plain = wire.queue.dead_letters(url="https://plain.example.com").only().id
    for method, path in (
        ("GET", f"/v2/workflows/dlq/{plain}"),
        ("DELETE", f"/v2/workflows/dlq/{plain}"),
        ("POST", f"/v2/workflows/dlq/resume/{plain}"),
        ("GET", "/v2/workflows/dlq/none"),
        ("POST", "/v2/workflows/dlq/callback/none"),
        ("DELETE", "/v2/workflows/dlq/callback/none"),
    ):
        wire.ask(method, path, 404)
    for method, text in (("POST", "no failed failure callback"), ("DELETE", "no failure callback")):
        answer = wire.ask(method, f"/v2/workflows/dlq/callback/{dlq_id}", 400)
        assert text in answer["error"]
    assert wire.ask("DELETE", f"/v2/workflows/dlq/{dlq_id}") == {"deleted": 1}
    assert wire.ask("DELETE", "/v2/workflows/dlq") == {"deleted": 0}
    assert wire.ask("POST", "/v2/workflows/dlq/resume?dlqIds=") == {"workflowRuns": []}


FAILURE = "https://app.example.com/failed"
NAMED = {
    "Upstash_Failure_Callback_Workflow_RunId": "r",
    "Upstash_Failure_Callback_Workflow_Url": APP,
    "Upstash_Failure_Callback_Workflow_Init": "false",
    "Upstash_Failure_Callback_Workflow_CallType": "failureCall",
}


def infos(wire: Wire, *listings: str) -> list[Any]:
    """Return ``failureCallbackInfo`` in each listing and in the dead letter itself."""
    listings = listings or ("/v2/workflows/dlq", "/v2/dlq?source=workflow")
    found = []
    for path in listings:
        (row,) = wire.ask("GET", path)["messages"]
        own = wire.ask("GET", f"/v2/workflows/dlq/{row['dlqId']}")
        assert own == wire.ask("GET", f"/v2/dlq/{row['dlqId']}") == row
        info = row.get("failureCallbackInfo")
        assert row.get("failureFunctionState") == (info and info["state"])
        found.append(info)
    return found


@pytest.mark.parametrize("headers", [{}, NAMED])
def test_a_failure_callback_that_fails_shows_in_the_dead_letter_of_the_run(
    wire: Wire, headers: dict[str, str]
) -> None:
    answer = (500, b"broken\xff", {"Content-Type": "text/plain"})
    failing = wire.queue.destinations.answers("https://app.example.com", answer)
    wire.start(Upstash_Retries="0", Upstash_Failure_Callback=FAILURE, **headers)
    wire.queue.advance("3s")
    expected = {
        "state": "CALLBACK_FAIL",
        "responseStatus": 500,
        "responseBody": "broken\ufffd",
        "responseHeaders": {"Content-Type": ["text/plain"]},
    }
    assert infos(wire) == [expected, expected]
    (row,) = wire.ask("GET", "/v2/workflows/dlq?failureFunctionState=CALLBACK_FAIL")["messages"]
    assert wire.runs()[0]["failureFunction"]["state"] == "CALLBACK_FAIL"
    failing.remove()
    wire.ask("POST", f"/v2/workflows/dlq/callback/{row['dlqId']}")
    assert [one["state"] for one in infos(wire)] == ["CALLBACK_INPROGRESS"] * 2
    wire.queue.run_until_idle()
    assert [one["state"] for one in infos(wire)] == ["CALLBACK_SUCCESS"] * 2
    done = wire.ask("GET", "/v2/workflows/dlq?failureFunctionState=CALLBACK_SUCCESS")["messages"]
    assert [one["dlqId"] for one in done] == [row["dlqId"]]
    wire.ask("DELETE", f"/v2/workflows/dlq/callback/{row['dlqId']}", 400)


@pytest.mark.parametrize("headers", [{}, NAMED])
def test_a_failure_callback_is_given_up(wire: Wire, headers: dict[str, str]) -> None:
    failing = wire.queue.destinations.answers("https://app.example.com", 500)
    wire.start(
        Upstash_Retries="0",
        Upstash_Failure_Callback=FAILURE,
        Upstash_Failure_Callback_Retries="1",
        **headers,
    )
    wire.queue.deliver_due()
    (row,) = wire.ask("GET", "/v2/workflows/dlq")["messages"]
    path = f"/v2/workflows/dlq/callback/{row['dlqId']}"
    assert wire.ask("DELETE", path) == {"deleted": 1}
    assert infos(wire)[0]["state"] == "CALLBACK_CANCELED"
    wire.ask("DELETE", path, 400)
    wire.queue.run_until_idle()
    assert len(failing.deliveries) == 2


def test_a_failed_failure_callback_is_forgotten_and_its_run_is_not(wire: Wire) -> None:
    wire.queue.destinations.answers("https://app.example.com", 500)
    wire.start_and_deliver(Upstash_Retries="0", Upstash_Failure_Callback=FAILURE)
    assert len(wire.ask("GET", "/v2/dlq")["messages"]) == 2
    (row,) = wire.ask("GET", "/v2/workflows/dlq")["messages"]
    path = f"/v2/workflows/dlq/callback/{row['dlqId']}"
    assert wire.ask("DELETE", path) == {"deleted": 1}
    assert len(wire.ask("GET", "/v2/dlq")["messages"]) == 1
    assert infos(wire) == [None, None]
    for verb in ("POST", "DELETE"):
        wire.ask(verb, path, 400)


@pytest.mark.parametrize("verb", ["resume", "restart"])
@pytest.mark.parametrize(
    ("headers", "status"), [({"Upstash-Retries": "x"}, 400), ({"Upstash-Retries": "99"}, 412)]
)
def test_a_run_that_cannot_go_on_leaves_no_other_behind(
    wire: Wire, verb: str, headers: dict[str, str], status: int
) -> None:
    dlq_id = failed_run(wire)
    wire.ask("POST", f"/v2/workflows/dlq/{verb}/{dlq_id}", status, headers=headers)
    wire.ask("POST", f"/v2/workflows/dlq/{verb}", status, headers=headers)
    assert [run["workflowRunId"] for run in wire.runs()] == ["r"]
    assert len(wire.ask("GET", "/v2/workflows/dlq")["messages"]) == 1


def test_no_ids_never_mean_all(wire: Wire) -> None:
    failed_run(wire)
    wire.start("other")
    for body in ({"workflowRunIds": []}, {"workflowRunIds": None}, {"workflowRunId": ""}):
        assert wire.ask("DELETE", "/v2/workflows/runs", json=body) == {"cancelled": 0}
    assert wire.ask("DELETE", "/v2/workflows/runs?workflowRunIds=") == {"cancelled": 0}
    for body in ({"dlqIds": []}, {"dlqId": None}):
        assert wire.ask("DELETE", "/v2/workflows/dlq", json=body) == {"deleted": 0}
        for verb in ("resume", "restart"):
            answer = wire.ask("POST", f"/v2/workflows/dlq/{verb}", json=body)
            assert answer == {"workflowRuns": []}
    assert wire.ask("DELETE", "/v2/workflows/runs", json={"state": "RUN_STARTED"})["cancelled"] == 1
    assert len(wire.ask("GET", "/v2/workflows/dlq")["messages"]) == 1


def test_resume_goes_on_where_the_run_failed(wire: Wire) -> None:
    dlq_id = failed_run(wire)
    resumed = wire.ask(
        "POST", f"/v2/workflows/dlq/resume/{dlq_id}", headers={"Upstash-Retries": "7"}
    )
    wire.queue.run_until_idle()
    request = wire.delivered[-1]
    assert [bodies(request)[0], json.loads(bodies(request)[1])] == [b"first", step(1)]
    assert request.headers.get("Upstash-Workflow-RunId") == resumed["workflowRunId"] != "r"
    assert wire.ask("GET", f"/v2/messages/{request.message_id}")["maxRetries"] == 7
    assert wire.queue.dead_letters() == []
    # The newest run is first; the new run keeps the caller and the URL of the old one.
    runs = wire.runs("callerIp=127.0.0.1")
    assert [run["workflowRunId"] for run in runs] == [resumed["workflowRunId"], "r"]
    assert runs[0]["workflowUrl"] == APP
    wire.queue.destinations.answers(APP, 500, 200)
    wire.publish(resumed["workflowRunId"], step(2), Upstash_Retries="0")
    wire.queue.run_until_idle()
    wire.ask("POST", "/v2/workflows/dlq/restart")
    wire.queue.run_until_idle()
    assert bodies(wire.queue.destinations.routes[0].deliveries[-1]) == [b"first"]


def test_a_resumed_run_is_still_of_the_one_that_invoked_it(wire: Wire) -> None:
    asked = {"workflowRunId": "parent", "workflowUrl": APP, "step": step(1)}
    dlq_id = failed_run(wire, "child", asked, Upstash_Workflow_Invoke="true")
    resumed = wire.ask("POST", f"/v2/workflows/dlq/resume/{dlq_id}")["workflowRunId"]
    new, old = wire.runs()
    assert (new["workflowRunId"], new["invoker"]) == (resumed, old["invoker"])
    assert new["invoker"]["workflowRunId"] == "parent"


def test_a_run_that_is_forgotten_takes_what_was_kept_for_it_along() -> None:
    wire = Wire(history="1h")
    wire.start_and_deliver()
    wire.ask("POST", "/v2/notify/r/early", 201, content=b"for the first")
    wire.queue.advance("1h")
    assert wire.runs() == []
    wire.start()
    wait(wire, "early")
    assert len(wire.ask("GET", "/v2/waiters/early")) == 1
    wire.close()


def test_a_run_whose_first_messages_are_forgotten() -> None:
    wire = Wire(history="1h")
    resumed = wire.ask("POST", f"/v2/workflows/dlq/resume/{failed_run(wire)}")["workflowRunId"]
    wire.ask("POST", f"/v2/notify/{resumed}/never", 201, content=b"x")
    (began,) = {run["steps"][0]["steps"][0]["createdAt"] for run in wire.runs()}
    wire.publish(resumed, step(2), Upstash_Delay="2h", Upstash_Retries="0")
    wire.queue.advance("1h")
    (run,) = wire.runs()
    assert [one["createdAt"] for group in run["steps"][:1] for one in group["steps"]] == [began]
    wire.queue.destinations.answers(APP, 500)
    wire.queue.advance("1h")
    (row,) = wire.ask("GET", "/v2/workflows/dlq")["messages"]
    refused = wire.ask("POST", f"/v2/workflows/dlq/restart/{row['dlqId']}", 404)
    assert refused["error"] == f"first message of workflow run {resumed} not found"
    wire.close()


def test_resuming_a_run_that_failed_at_once_starts_it_again(wire: Wire) -> None:
    route = wire.queue.destinations.answers(APP, 500)
    wire.start_and_deliver(Upstash_Retries="0")
    route.remove()
    (made,) = wire.ask("POST", "/v2/workflows/dlq/resume")["workflowRuns"]
    wire.queue.run_until_idle()
    assert bodies(wire.delivered[-1]) == [b"first"]
    assert {run["workflowRunId"] for run in wire.runs()} == {"r", made["workflowRunId"]}


def test_restart_begins_with_the_first_body(wire: Wire) -> None:
    dlq_id = failed_run(wire)
    (made,) = wire.ask("POST", f"/v2/workflows/dlq/restart?dlqIds={dlq_id}")["workflowRuns"]
    wire.queue.run_until_idle()
    assert bodies(wire.delivered[-1]) == [b"first"]
    assert wire.delivered[-1].headers.get("Upstash-Workflow-RunId") == made["workflowRunId"]


def test_restart_of_a_run_whose_beginning_was_no_step(wire: Wire) -> None:
    route = wire.queue.destinations.answers(APP, 500)
    wire.start_and_deliver(Upstash_Retries="0", Upstash_Workflow_CallType="fromCallback")
    route.remove()
    wire.ask("POST", "/v2/workflows/dlq/restart")
    wire.queue.run_until_idle()
    assert wire.delivered[-1].body == b"first"


def test_restart_keeps_labels_and_the_wait_between_tries(wire: Wire) -> None:
    wire.queue.destinations.answers(APP, 500)
    wire.start_and_deliver(Upstash_Retries="1", Upstash_Retry_Delay="5000", Upstash_Label="a,b")
    dlq_id = wire.runs()[0]["dlqId"]
    (made,) = wire.ask("POST", f"/v2/workflows/dlq/restart?dlqIds={dlq_id}")["workflowRuns"]
    attempts = wire.queue.run_until_idle()
    assert attempts[-1].waited.total_seconds() == 5
    again = wire.runs(f"workflowRunId={made['workflowRunId']}")[0]
    letter = wire.ask("GET", f"/v2/workflows/dlq/{again['dlqId']}")
    assert (letter["labels"], letter["retryDelayExpression"]) == (["a", "b"], "5000")


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("verb", ["resume", "restart"])
def test_settings_given_with_a_resume_or_restart_are_those_of_the_new_run(
    wire: Wire, verb: str, single: bool
) -> None:
    dlq_id = failed_run(wire, Upstash_Label="old", Upstash_Failure_Callback=FAILURE)
    wire.queue.run_until_idle()
    before = len(wire.delivered)
    given = {
        "upstash-label": "new,second",
        "Service-Delay": "5m",
        "Upstash-Failure-Callback": f"{FAILURE}/new",
        "Upstash-Failure-Callback-Method": "PUT",
        "Upstash-Flow-Control-Key": "slow",
        "Upstash-Flow-Control-Value": "parallelism=1",
        "Upstash-Retries": "1",
        "Upstash-Retry-Delay": "2000",
    }
    path = f"/v2/workflows/dlq/{verb}" + (f"/{dlq_id}" if single else f"?dlqIds={dlq_id}")
    made = wire.ask("POST", path, headers=given)
    run_id = (made if single else made["workflowRuns"][0])["workflowRunId"]
    waiting = wire.queue.pending().only()
    assert waiting.labels == ("new", "second")
    wire.queue.advance("299s")
    assert len(wire.delivered) == before
    wire.queue.advance("1s")
    assert len(wire.delivered) == before + 1
    assert wire.runs(f"workflowRunId={run_id}")[0]["labels"] == ["new", "second"]
    # Later steps of the new run keep these settings, except for the delay.
    wire.queue.destinations.answers(APP, 500)
    later = wire.publish(run_id, step(5))["messageId"]
    shown = wire.ask("GET", f"/v2/messages/{later}")
    assert (shown["labels"], shown["flowControlKey"]) == (["new", "second"], "slow")
    assert (shown["maxRetries"], shown["retryDelayExpression"]) == (1, "2000")
    assert shown["notBefore"] == shown["createdAt"]
    wire.queue.run_until_idle()
    assert (wire.delivered[-1].url, wire.delivered[-1].method) == (f"{FAILURE}/new", "PUT")


@pytest.mark.parametrize("verb", ["resume", "restart"])
def test_a_resumed_or_restarted_run_keeps_its_settings(wire: Wire, verb: str) -> None:
    kept = {
        "Upstash_Label": "old",
        "Upstash_Flow_Control_Key": "slow",
        "Upstash_Flow_Control_Value": "parallelism=1",
        "Upstash_Timeout": "7s",
        "Upstash_Failure_Callback": FAILURE,
        "Upstash_Method": "PUT",
        "Upstash_Redact_Fields": "header[X-A]",
        "Upstash_Forward_X_A": "secret",
    }
    dlq_id = failed_run(wire, **kept)
    wire.queue.run_until_idle()
    wire.ask("POST", f"/v2/workflows/dlq/{verb}/{dlq_id}")
    again = wire.queue.pending().only()
    shown = wire.ask("GET", f"/v2/messages/{again.id}")
    assert (shown["label"], shown["flowControlKey"]) == ("old", "slow")
    assert shown["failureCallback"] == FAILURE
    if verb == "restart":
        assert (shown["timeout"], shown["method"]) == (7_000, "PUT")
        assert shown["header"]["X-A"][0].startswith("REDACTED:")
    wire.queue.run_until_idle()
    assert wire.delivered[-1].headers.get("X-A") == "secret"


def test_a_restart_of_a_resumed_run_keeps_what_the_resume_changed(wire: Wire) -> None:
    dlq_id = failed_run(wire, Upstash_Label="old")
    wire.queue.destinations.answers(APP, 500)
    changed = {"Upstash-Label": "new", "Upstash-Retries": "0"}
    wire.ask("POST", f"/v2/workflows/dlq/resume/{dlq_id}", headers=changed)
    wire.queue.run_until_idle()
    (restarted,) = wire.ask("POST", "/v2/workflows/dlq/restart")["workflowRuns"]
    assert wire.runs(f"workflowRunId={restarted['workflowRunId']}")[0]["labels"] == ["new"]


def test_retrying_the_dead_letter_itself_reopens_the_run(wire: Wire) -> None:
    dlq_id = failed_run(wire)
    wire.queue.retry_dead_letter(dlq_id)
    wire.queue.run_until_idle()
    assert len(bodies(wire.delivered[-1])) == 2
    assert wire.runs()[0]["workflowState"] == "RUN_STARTED"
    assert "workflowRunCompletedAt" not in wire.runs()[0]
    wire.ask("DELETE", "/v2/workflows/runs/r?cancel=false")
    (run,) = wire.runs()
    ended = 1000 * int(wire.queue.clock.now().timestamp())
    assert (run["workflowState"], run["workflowRunCompletedAt"]) == ("RUN_SUCCESS", ended)


# -- state -----------------------------------------------------------------------------------------


def test_snapshot_and_restore(wire: Wire) -> None:
    wire.start_and_deliver()
    wait(wire, "e")
    wire.ask("POST", "/v2/notify/r/early", 201, content=b"kept")
    saved = wire.queue.snapshot()
    wire.ask("POST", "/v2/notify/e", 201, content=b"x")
    wire.queue.run_until_idle()
    wire.ask("DELETE", "/v2/workflows/runs/r?cancel=false")
    wire.queue.restore(saved)
    assert len(wire.ask("GET", "/v2/workflows/runs/r")) == 1
    assert len(wire.ask("GET", "/v2/waiters/e")) == 1
    wait(wire, "early")
    assert wire.ask("GET", "/v2/waiters/early") == []
    wire.ask("POST", "/v2/notify/e", 201, content=b"y")
    wire.queue.run_until_idle()
    out = json.loads(bodies(wire.delivered[-1])[-1])["out"]
    assert base64.b64decode(out) == b"y"
    wire.queue.reset()
    assert wire.runs() == []


def test_an_invocation_that_is_none(wire: Wire) -> None:
    for body in (b"", b"[]", b"{}", b'{"workflowRunId": 1}', TOO_DEEP):
        answer = wire.publish(
            "r", body, 400, Upstash_Workflow_Init="true", Upstash_Workflow_Invoke="true"
        )
        assert answer["error"] == "invalid body: expected the invocation of a workflow"
    for name, value in (
        ("workflowRunCreatedAt", "1e999"),
        ("workflowUrl", '"nowhere"'),
        ("headers", '{"Upstash-Retries": "many"}'),
        ("headers", '{"Upstash-Cron": "* * * * *"}'),
    ):
        fields = {"workflowRunId": '"p"', "workflowUrl": f'"{APP}"', "step": "{}", name: value}
        inner = ", ".join(f'"{key}": {text}' for key, text in fields.items())
        answer = wire.publish(
            "r",
            f"{{{inner}}}".encode(),
            400,
            Upstash_Workflow_Init="true",
            Upstash_Workflow_Invoke="true",
        )
        assert "invalid" in answer["error"]
    assert wire.runs() == []


def test_a_run_ends_even_where_its_invoker_cannot_be_told() -> None:
    wire = Wire(limits={"daily_messages": 3})
    wire.start("parent")
    invocation = {"workflowRunId": "parent", "workflowUrl": APP, "step": step(1)}
    wire.start("child", json.dumps(invocation).encode(), Upstash_Workflow_Invoke="true")
    wire.publish("parent", b"third")
    wire.ask("DELETE", "/v2/workflows/runs/child?cancel=false")
    assert [run["workflowState"] for run in wire.runs()] == ["RUN_SUCCESS", "RUN_STARTED"]
    assert "daily rate limit" in wire.queue.messages()[1].timeline
    (problem,) = wire.queue._context.problems
    assert problem.facts == {"run_id": "parent", "url": APP, "handle": "queue"}
    assert problem.text.startswith(
        "queue: rejected the result of a run that it invoked, a step of workflow run parent at"
        f" {APP}: 429 Exceeded daily rate limit."
    )
    wire.close()


def test_a_run_that_is_over_is_told_of_no_run_it_invoked(wire: Wire) -> None:
    wire.start("parent")
    headers = {"Upstash-Workflow-RunId": ["parent"]}
    invocation = {"workflowRunId": "parent", "workflowUrl": APP, "step": step(1)}
    for child in ("first", "second"):
        body = json.dumps({**invocation, "headers": headers}).encode()
        wire.start(child, body, Upstash_Workflow_Invoke="true")
    wire.queue.run_until_idle()
    assert [bodies(request) for request in wire.delivered[1:]] == [[b""], [b""]]
    invoker = {"workflowRunId": "parent", "workflowUrl": APP, "workflowRunCreatedAt": 0}
    assert wire.runs("workflowRunId=first")[0]["invoker"] == invoker
    wire.ask("DELETE", "/v2/workflows/runs/first?cancel=false", content=b"\xff")
    wire.queue.run_until_idle()
    told = wire.delivered[-1]
    assert told.headers.get("Upstash-Workflow-RunId") == "parent"
    result = json.loads(bodies(told)[-1])
    out = {"body": "\ufffd", "isFailed": False, "isCanceled": False}
    assert (result["stepName"], json.loads(result["out"])) == ("s1", out)
    body = json.dumps({**invocation, "headers": headers}).encode()
    wire.start("cancelled", body, Upstash_Workflow_Invoke="true")
    wire.ask("DELETE", "/v2/workflows/runs/cancelled")
    wire.start("failed", body, url=f"{APP}/no", Upstash_Workflow_Invoke="true", Upstash_Retries="0")
    wire.queue.destinations.answers(f"{APP}/no", (500, "broken"))
    wire.queue.run_until_idle()
    told = wire.delivered[-1]
    assert [json.loads(json.loads(one)["out"]) for one in bodies(told)[-2:]] == [
        {"body": "", "isFailed": False, "isCanceled": True},
        {"body": "broken", "isFailed": True, "isCanceled": False},
    ]
    wire.ask("DELETE", "/v2/workflows/runs/parent?cancel=false")
    wire.ask("DELETE", "/v2/workflows/runs/second?cancel=false")
    count = len(wire.delivered)
    wire.queue.run_until_idle()
    assert len(wire.delivered) == count


def test_an_invocation_with_half_a_character(wire: Wire) -> None:
    wire.start("parent")
    body = {"workflowRunId": "parent", "workflowUrl": APP, "step": step(1), "body": "\ud83d"}
    wire.start_and_deliver("child", json.dumps(body).encode(), Upstash_Workflow_Invoke="true")
    assert bodies(wire.delivered[-1]) == ["\ud83d".encode("utf-8", "surrogatepass")]


def test_steps_of_any_shape_are_listed(wire: Wire) -> None:
    wire.start_and_deliver()
    for odd in (
        {"stepType": "Call", "concurrent": "many", "stepId": "0", "out": "[1]"},
        {"stepType": [1], "concurrent": None, "stepId": {}},
        {"stepType": "Run", "concurrent": [2], "stepId": 0, "out": 5},
        {"stepType": "Call", "concurrent": 1, "stepId": 1, "out": TOO_DEEP.decode()},
    ):
        wire.publish("r", odd)
        wire.queue.run_until_idle()
    groups = wire.runs()[0]["steps"]
    assert [one["type"] for one in groups] == ["sequential"] * 5
    assert [one["steps"][0]["concurrent"] for one in groups] == [1] * 5


@pytest.mark.parametrize("depth", [400, 600, 940, 960, 970, 979, 985, 990, 995])
def test_json_that_can_be_parsed_but_not_written(wire: Wire, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    wire.start_and_deliver()
    wire.publish(
        "r", f'{{"stepType": "Run", "stepId": 1, "stepName": "s1", "out": {deep}}}'.encode()
    )
    call = {"stepType": "Call", "stepId": 2, "stepName": "s2", "out": f'{{"body": {deep}}}'}
    wire.publish("r", call)
    wire.queue.run_until_idle()
    (run,) = wire.runs()
    assert len(run["steps"]) == 3
    wait = f'{{"url": "{APP}", "step": {{"stepName": "w"}}, "timeoutBody": {deep}}}'
    invocation = f'{{"workflowRunId": "r", "workflowUrl": "{APP}", "step": {{"a": {deep}}}}}'
    init = {"Upstash-Workflow-Init": "true", "Upstash-Workflow-Invoke": "true"}
    for path, body, headers in (
        ("wait/event", wait, {"Upstash-Workflow-RunId": "r"}),
        ("batch/trigger", f'[{{"url": "{APP}", "body": {deep}}}]', {}),
        (f"publish/{APP}", invocation, init | {"Upstash-Workflow-RunId": "invoked"}),
        ("batch", deep, {}),
    ):
        answer = wire.http.post(f"/v2/{path}", content=body, headers=headers)
        assert answer.status_code < 500, (path, answer.text)
    assert len(wire.ask("GET", "/v2/waiters/event")) == (depth < 500)
    if depth < 500:
        assert wire.ask("DELETE", "/v2/workflows/runs/invoked?cancel=false") == {"cancelled": 0}
        wire.queue.run_until_idle()


def test_parallel_steps_stand_side_by_side(wire: Wire) -> None:
    wire.start_and_deliver()
    for planned in (1, 2):
        wire.publish("r", step(0, concurrent=2, targetStep=planned))
    wire.queue.run_until_idle()
    for number in (1, 2):
        wire.publish("r", step(number, concurrent=2, out="1"))
        wire.queue.run_until_idle()
    groups = wire.runs()[0]["steps"]
    shown = [(one["type"], [each["stepName"] for each in one["steps"]]) for one in groups]
    assert shown[1:] == [("parallel", ["s1", "s2"])]


def test_the_token_may_be_in_the_query_of_every_endpoint(wire: Wire) -> None:
    del wire.http.headers["Authorization"]
    query = f"?qstash_token={wire.queue.token}&source=workflow"
    for method, path in (
        ("GET", "events"),
        ("GET", "logs"),
        ("GET", "dlq"),
        ("DELETE", "dlq"),
        ("POST", "dlq/resume"),
        ("POST", "dlq/restart"),
        ("DELETE", "runs"),
    ):
        mark = "&source" if path in ("events", "logs", "runs") else "&none"
        wire.ask(method, f"/v2/workflows/{path}{query.partition(mark)[0]}")


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"a": 1}', b'"x"', TOO_DEEP])
def test_a_first_body_is_no_step(body: bytes) -> None:
    assert RunStep("m", body, 0).read() == {}


def test_headers_given_as_lists() -> None:
    given = {"A": ["1", "2"], "B": "3", "a": ["4"], "C": 5}
    assert json_headers(given, first_spelling=True) == [
        ("A", "1"),
        ("A", "2"),
        ("B", "3"),
        ("C", "5"),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = ["url", "step", "timeout", "timeoutUrl", "timeoutHeaders", "body", "headers", "destination"]


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6))
def test_no_body_makes_the_queue_fail(asked: dict[str, Any]) -> None:
    with Queue(Context.alone(now="2026-03-02T10:00:00Z")) as queue:
        queue.publish(
            APP, settings={"Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "true"}
        )
        headers = {**queue.headers, "Upstash-Workflow-RunId": "r"}
        for path, body in (("wait/e", asked), ("batch/trigger", [asked])):
            sent = json.dumps(body).encode()
            answer = queue._app.answer(Request("POST", f"/v2/{path}", [*headers.items()], sent))
            assert isinstance(answer, Answer)
            assert answer.status < 500, answer
        assert queue._context.problems == []


def test_errors_are_the_queues_own() -> None:
    queue = Queue(Context.alone())
    with pytest.raises(QueueError, match="workflow run r not found"):
        queue.publish(APP, settings={"Upstash-Workflow-RunId": "r"})
    queue.close()


def test_a_refused_step_leaves_no_queue_behind(wire: Wire) -> None:
    sent = {"Upstash-Workflow-RunId": "nobody", "Upstash-Workflow-Init": "false"}
    wire.ask("POST", f"/v2/enqueue/steps/{APP}", 400, headers=sent)
    wire.publish("nobody", status=400, Upstash_Queue_Name="others")
    # A callback that is dropped because its run does not exist creates no queue either.
    nested = {"RunId": "nobody", "Init": "false"}
    headers = {f"Upstash-Callback-Workflow-{name}": value for name, value in nested.items()}
    headers |= {"Upstash-Callback": APP + "/callback", "Upstash-Callback-Queue-Name": "callbacks"}
    wire.ask("POST", f"/v2/publish/{APP}", 201, headers=headers)
    wire.queue.run_until_idle()
    assert wire.ask("GET", "/v2/queues") == []
    wire.start(Upstash_Queue_Name="steps")
    assert [one["name"] for one in wire.ask("GET", "/v2/queues")] == ["steps"]


def test_dead_letters_of_which_one_is_refused_are_retried_all_or_none(wire: Wire) -> None:
    failed_run(wire)
    wire.queue.destinations.answers(APP, 200, 500)
    wire.start_and_deliver("over")
    wire.publish("over", b"step", Upstash_Retries="0")
    wire.queue.run_until_idle()
    wire.start("over")
    wire.ask("DELETE", "/v2/workflows/runs/over")
    letters, messages = wire.queue.dead_letters(), wire.queue.messages()
    runs = wire.runs()
    assert len(letters) == 2
    assert "already finished" in wire.ask("POST", "/v2/dlq/retry", 400)["error"]
    assert [one.id for one in wire.queue.dead_letters()] == [one.id for one in letters]
    assert wire.queue.messages() == messages
    assert wire.runs() == runs


@pytest.mark.parametrize("verb", ["resume", "restart"])
def test_runs_that_the_day_has_no_room_for_are_started_anew_all_or_none(verb: str) -> None:
    wire = Wire(limits={"daily_messages": 5})
    try:
        for run in ("one", "two"):
            wire.queue.destinations.answers(APP, 200, 500)
            wire.start_and_deliver(run)
            wire.publish(run, b"step", Upstash_Retries="0")
            wire.queue.run_until_idle()
        runs = wire.runs()
        wire.ask("POST", f"/v2/workflows/dlq/{verb}", 429)
        assert len(wire.queue.dead_letters()) == 2
        assert wire.runs() == runs
    finally:
        wire.close()


# -- the endpoints of workflows --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [(b"{", "invalid batch: "), (b"{}", "expected a JSON array"), (b"3", "expected a JSON array")],
)
def test_a_batch_of_triggers_is_a_list(wire: Wire, body: bytes, told: str) -> None:
    assert told in wire.ask("POST", "/v2/batch/trigger", 400, content=body)["error"]
    assert wire.runs() == []


def test_runs_are_cancelled_by_the_beginning_of_their_url(wire: Wire) -> None:
    for number, (url, exact, count) in enumerate(
        [
            (APP, "", 1),
            (APP[:-2], "", 1),
            ("https://other.example.com", "", 0),
            (APP, "&workflowUrlExactMatch=true", 1),
            (APP[:-2], "&workflowUrlExactMatch=true", 0),
        ]
    ):
        wire.start(f"r{number}")
        query = f"workflowUrl={quote(url, safe='')}{exact}"
        assert wire.ask("DELETE", f"/v2/workflows/runs?{query}")["cancelled"] == count, url
        wire.ask("DELETE", f"/v2/workflows/runs?workflowUrl={quote(APP, safe='')}")


def test_a_step_may_be_any_json(wire: Wire) -> None:
    wire.start("r")
    for body in (b"[1]", b"null", b"no json", step(1, concurrent="two"), step(0, concurrent=2)):
        wire.publish("r", body)
    wire.queue.run_until_idle()
    [run] = wire.runs()
    # The last step is the plan of a parallel step, not a step that ran.
    assert [len(group["steps"]) for group in run["steps"]] == [1] * 5
