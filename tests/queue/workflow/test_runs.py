"""Test workflow runs over HTTP, beside ``tests/queue/scenarios/runs.txt``."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest, Response
from pytest_fakecloud.queue.errors import NO_WORKFLOW, OLD_CLIENT
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.inspect.steps import StepView, cause_of, steps_of
from pytest_fakecloud.queue.model import PublishSettings
from pytest_fakecloud.queue.rest import workflow_runs
from pytest_fakecloud.queue.workflow import runs
from pytest_fakecloud.queue.workflow.model import WorkflowRun, read_step
from pytest_fakecloud.queue.workflow.runs import wire_pairs

from ..scene import Scene

APP = "https://app.example.com/flow"
FEATURES = "LazyFetch,InitialBody,WF_TriggerOnConfig,WF_StepConfig"
TOO_DEEP = b"[" * 100_000
"""JSON that is nested too deeply for Python's parser."""


class RunScene(Scene):
    """A queue and requests about workflow runs, whose steps are delivered to ``APP``."""

    def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        answer = self.request(method, path, **options)
        assert answer.status == status, answer
        return answer.json() if answer.body else None

    def send(
        self, run: str, body: object = b"", status: int = 200, url: str = APP, **headers: str
    ) -> Any:
        """Publish a step of a run."""
        sent = {
            "Upstash-Workflow-RunId": run,
            "Upstash-Workflow-Init": "false",
            "Upstash-Workflow-Url": APP,
            "Upstash-Feature-Set": FEATURES,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", f"/v2/publish/{url}", status, headers=sent, body=data)

    def start(self, run: str = "r", body: object = b"first", url: str = APP, **headers: str) -> Any:
        return self.send(run, body, 200, url, **{"Upstash_Workflow_Init": "true", **headers})

    def start_and_deliver(self, *arguments: Any, **options: Any) -> None:
        self.start(*arguments, **options)
        self.queue.run_until_idle()

    def runs(self, query: str = "") -> list[dict[str, Any]]:
        run_records: list[dict[str, Any]] = self.ask("GET", f"/v2/workflows/events?{query}")["runs"]
        return run_records


@pytest.fixture
def scene() -> Iterator[RunScene]:
    with RunScene() as scene:
        yield scene


def bodies(request: DeliveredRequest) -> list[bytes]:
    listed = request.json()
    assert all(set(listed_step) == {"messageId", "body", "callType"} for listed_step in listed)
    return [base64.b64decode(listed_step["body"]) for listed_step in listed]


def step(number: int, **more: Any) -> dict[str, Any]:
    return {"stepId": number, "stepName": f"s{number}", "stepType": "Run", "concurrent": 1, **more}


def test_the_signature_is_about_the_list(scene: RunScene) -> None:
    from qstash import Receiver

    scene.start_and_deliver()
    (request,) = scene.came
    keys = (scene.queue.current_signing_key, scene.queue.next_signing_key)
    signature = request.headers.get("Upstash-Signature") or ""
    Receiver(*keys).verify(signature=signature, body=request.text, url=APP)


def test_a_list_that_just_fits_is_sent(scene: RunScene) -> None:
    scene.start_and_deliver(body=b"x" * 900)
    whole = len(scene.came[0].body)
    for size, sent in ((whole, whole), (whole - 1, 0)):
        with RunScene(limits={"message_size": size}) as tight:
            tight.start(body=b"x" * 900)
            tight.queue.run_until_idle()
            assert len(tight.came[0].body) == sent


@pytest.mark.parametrize(
    ("call_type", "state", "count"),
    [
        ("step", "RUN_FAILED", 1),
        ("toCallback", "RUN_STARTED", 1),
        # A failed failure call has no further failure callback.
        ("failureCall", "RUN_STARTED", 0),
    ],
)
def test_a_call_that_failed_fails_no_run(
    scene: RunScene, call_type: str, state: str, count: int
) -> None:
    scene.queue.destinations.respond("https://third.example.com", 500)
    sent = {"Upstash_Workflow_CallType": call_type, "Upstash_Retries": "0"}
    for run, delay in (("over", "1m"), ("r", "0s")):
        scene.start(run, Upstash_Failure_Callback=f"{APP}/failed")
        scene.send(run, url="https://third.example.com", **sent, Upstash_Delay=delay)
    scene.queue.deliver_due()
    assert [request.url for request in scene.came].count(f"{APP}/failed") == count
    scene.ask("DELETE", "/v2/workflows/runs/over?cancel=false")
    scene.queue.run_until_idle()
    runs = {run["workflowRunId"]: run for run in scene.runs()}
    states = {name: run["workflowState"] for name, run in runs.items()}
    assert states == {"r": state, "over": "RUN_SUCCESS"}
    assert ("failureFunction" in runs["r"]) is (call_type == "step")


def test_a_callback_is_tried_as_often_as_the_run_says(scene: RunScene) -> None:
    named = {"Upstash_Callback_Workflow_RunId": "r", "Upstash_Callback_Feature_Set": FEATURES}
    scene.start(Upstash_Retries="5")
    for own in ({}, {"Upstash_Callback_Retries": "2"}):
        more = {"Upstash_Retries": "1", "Upstash_Callback": APP, **named, **own}
        scene.send("r", b"call", Upstash_Workflow_CallType="toCallback", **more)
    scene.queue.run_until_idle()
    assert [message.max_retries for message in scene.queue.messages(kind="callback")] == [5, 2]
    scene.queue.destinations.respond(APP, 500, 500, 200)
    for mark in ({}, {"Upstash_Failure_Callback_Retries": "2"}):
        about = {name.replace("Callback", "Failure_Callback", 1): it for name, it in named.items()}
        more = {"Upstash_Retries": "0", "Upstash_Failure_Callback": f"{APP}/no", **about, **mark}
        scene.send("r", b"call", Upstash_Workflow_CallType="toCallback", **more)
    scene.queue.run_until_idle()
    assert [message.max_retries for message in scene.queue.messages(kind="failure_callback")] == [
        5,
        2,
    ]


def test_a_rejected_step_in_a_batch_is_a_violation(scene: RunScene) -> None:
    scene.start()
    of_run = {"Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "false"}
    answers = scene.ask(
        "POST",
        "/v2/batch",
        json=[
            {"destination": APP, "headers": of_run},
            {"destination": APP, "headers": {**of_run, "Upstash-Delay": "soon"}},
            {"destination": "nowhere"},
        ],
    )
    assert ["error" in answer for answer in answers] == [False, True, True]
    (violation,) = scene.violations
    assert (violation.kind, violation.facts) == (
        "rejected_step",
        {"run_id": "r", "url": APP, "fake": "queue"},
    )
    assert violation.text.startswith(
        f"queue: rejected item 2 of a batch, a step of workflow run r at {APP}:"
        f" 400 {answers[1]['error']}"
    )


def test_a_rejected_step_with_half_a_character_can_be_reported(scene: RunScene) -> None:
    body = b'[{"destination": "\\ud800", "headers": {"Upstash-Workflow-RunId": "\\ud800"}}]'
    scene.ask("POST", "/v2/batch", body=body)
    (violation,) = scene.violations
    assert violation.text.encode()


def test_callbacks_about_a_cancelled_run_are_dropped(scene: RunScene) -> None:
    def cancel(request: DeliveredRequest) -> None:
        scene.ask("DELETE", "/v2/workflows/runs/r")

    scene.queue.destinations.call("https://third.example.com", cancel)
    scene.start()
    scene.send(
        "r",
        b"call",
        url="https://third.example.com/x",
        Upstash_Workflow_CallType="toCallback",
        Upstash_Callback=APP,
        Upstash_Callback_Workflow_RunId="r",
        Upstash_Callback_Workflow_CallType="fromCallback",
    )
    scene.queue.run_until_idle()
    assert [request.url for request in scene.came] == [APP]


def wait(scene: RunScene, event: str, status: int = 200, run: str = "r", **more: Any) -> Any:
    asked = {"url": APP, "step": step(1, stepType="Wait"), "timeout": "1h", **more}
    return scene.ask(
        "POST", f"/v2/wait/{event}", status, json=asked, headers={"Upstash-Workflow-RunId": run}
    )


def test_the_timeline_of_a_notified_step_says_so(scene: RunScene) -> None:
    scene.start_and_deliver()
    wait(scene, "e")
    (notified,) = scene.ask("POST", "/v2/notify/e", 201, body=b"data")
    scene.queue.deliver_due()
    assert "(notified of e)" in scene.queue.message(notified["messageId"]).timeline


def test_headers_of_a_wait_are_utf8(scene: RunScene) -> None:
    scene.start_and_deliver()
    wait(scene, "e", url=APP + "/ä", timeoutHeaders={"Upstash-Forward-X": ["é", "日"]})
    scene.queue.run_until_idle()
    came = scene.came[-1]
    assert came.delivery.url == (APP + "/ä").encode().decode("latin-1")
    assert came.headers.getlist("X") == [text.encode().decode("latin-1") for text in ("é", "日")]


def test_a_webhook_needs_no_token_and_everything_else_does(scene: RunScene) -> None:
    scene.start()
    wait(scene, "hook")
    path = "/v2/workflows/hooks/user/r/hook?x=%2F"
    scene.ask("PUT", path, headers={"X-A": "1"}, body=b"\x00", token="")
    scene.ask("GET", "/v2/workflows/events", 401, token="")
    scene.queue.deliver_due()
    out = json.loads(bodies(scene.came[-1])[-1])["out"]
    event = json.loads(base64.b64decode(out))
    assert (event["method"], event["url"]) == ("PUT", path)
    assert base64.b64decode(event["body"]) == b"\x00"
    assert event["header"]["X-A"] == ["1"]
    assert event["host"] == scene.queue.url.removeprefix("http://")


def failed_run(scene: RunScene, run: str = "r", body: object = b"first", **headers: str) -> str:
    route = scene.queue.destinations.respond(APP, 200, 500)
    scene.start_and_deliver(run, body, **headers)
    scene.send(run, step(1), Upstash_Retries="0")
    scene.queue.run_until_idle()
    route.remove()
    dlq_id: str = scene.runs(f"workflowRunId={run}")[0]["dlqId"]
    return dlq_id


FAILURE = "https://app.example.com/failed"


def test_a_run_whose_first_messages_are_forgotten() -> None:
    with RunScene(history="1h") as scene:
        resumed = scene.ask("POST", f"/v2/workflows/dlq/resume/{failed_run(scene)}")[
            "workflowRunId"
        ]
        scene.ask("POST", f"/v2/notify/{resumed}/never", 201, body=b"x")
        (began,) = {run["steps"][0]["steps"][0]["createdAt"] for run in scene.runs()}
        scene.send(resumed, step(2), Upstash_Delay="2h", Upstash_Retries="0")
        scene.queue.clock.advance("1h")
        (run,) = scene.runs()
        assert [
            listed_step["createdAt"] for group in run["steps"][:1] for listed_step in group["steps"]
        ] == [began]
        scene.queue.destinations.respond(APP, 500)
        scene.queue.clock.advance("1h")
        (row,) = scene.ask("GET", "/v2/workflows/dlq")["messages"]
        refused = scene.ask("POST", f"/v2/workflows/dlq/restart/{row['dlqId']}", 404)
        assert refused["error"] == f"first message of workflow run {resumed} not found"


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("verb", ["resume", "restart"])
def test_settings_given_with_a_resume_or_restart_are_those_of_the_new_run(
    scene: RunScene, verb: str, single: bool
) -> None:
    dlq_id = failed_run(scene, Upstash_Label="old", Upstash_Failure_Callback=FAILURE)
    scene.queue.run_until_idle()
    before = len(scene.came)
    headers = {
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
    made = scene.ask("POST", path, headers=headers)
    run_id = (made if single else made["workflowRuns"][0])["workflowRunId"]
    waiting = scene.queue.pending().only()
    assert waiting.labels == ("new", "second")
    scene.queue.clock.advance("299s")
    assert len(scene.came) == before
    scene.queue.clock.advance("1s")
    assert len(scene.came) == before + 1
    assert scene.runs(f"workflowRunId={run_id}")[0]["labels"] == ["new", "second"]
    # Later steps of the new run keep these settings, except for the delay.
    scene.queue.destinations.respond(APP, 500)
    later = scene.send(run_id, step(5))["messageId"]
    shown = scene.ask("GET", f"/v2/messages/{later}")
    assert (shown["labels"], shown["flowControlKey"]) == (["new", "second"], "slow")
    assert (shown["maxRetries"], shown["retryDelayExpression"]) == (1, "2000")
    assert shown["notBefore"] == shown["createdAt"]
    scene.queue.run_until_idle()
    assert (scene.came[-1].url, scene.came[-1].method) == (f"{FAILURE}/new", "PUT")


@pytest.mark.parametrize("verb", ["resume", "restart"])
def test_a_resumed_or_restarted_run_keeps_its_settings(scene: RunScene, verb: str) -> None:
    settings = {
        "Upstash_Label": "old",
        "Upstash_Flow_Control_Key": "slow",
        "Upstash_Flow_Control_Value": "parallelism=1",
        "Upstash_Timeout": "7s",
        "Upstash_Failure_Callback": FAILURE,
        "Upstash_Method": "PUT",
        "Upstash_Redact_Fields": "header[X-A]",
        "Upstash_Forward_X_A": "secret",
    }
    dlq_id = failed_run(scene, **settings)
    scene.queue.run_until_idle()
    scene.ask("POST", f"/v2/workflows/dlq/{verb}/{dlq_id}")
    again = scene.queue.pending().only()
    shown = scene.ask("GET", f"/v2/messages/{again.id}")
    assert (shown["label"], shown["flowControlKey"]) == ("old", "slow")
    assert shown["failureCallback"] == FAILURE
    if verb == "restart":
        assert (shown["timeout"], shown["method"]) == (7_000, "PUT")
    assert shown["header"]["X-A"][0].startswith("REDACTED:")
    scene.queue.run_until_idle()
    assert scene.came[-1].headers.get("X-A") == "secret"


def play_with_secrets(scene: RunScene, redacted: dict[str, str]) -> list[Any]:
    """Play a run with every kind of step, with secrets in all places; return what the API shows."""
    third = "https://third.example.com"
    failing = {third}
    answer = Response(500, b"hush-body answer", {"X-Secret": "hush-header"})
    scene.answer = lambda request: answer if request.url in failing else 200
    secret = {"Upstash_Forward_X_Secret": "hush-header"}
    shown: list[Any] = []
    scene.start(
        "r", b"hush-body first", **redacted, **secret, Upstash_Failure_Callback=FAILURE,
        Upstash_Failure_Callback_Forward_X_Secret="hush-header",
        Upstash_Failure_Callback_Retries="0",
    )  # fmt: skip
    scene.queue.run_until_idle()
    scene.send("r", step(1, out="hush-body"))
    scene.send(
        "r", b"hush-body request", url=third, **secret, Upstash_Workflow_CallType="toCallback",
        Upstash_Retries="0", Upstash_Callback=APP, Upstash_Callback_Workflow_RunId="r",
        Upstash_Callback_Workflow_CallType="fromCallback",
        Upstash_Callback_Failure_Callback_Forward_X_Secret="hush-header",
        Upstash_Callback_Forward_Upstash_Workflow_StepId="2",
    )  # fmt: skip
    shown.append(scene.runs())
    scene.queue.run_until_idle()
    called = {"status": 500, "body": "hush-body", "header": {"X-Secret": ["hush-header"]}}
    scene.send("r", step(2, out=json.dumps(called)) | {"stepType": "Call"})
    waiting = {
        "url": APP,
        "step": step(3) | {"stepType": "Wait"},
        "timeoutBody": "hush-body",
        "timeoutHeaders": {"Upstash-Forward-X-Secret": ["hush-header"]},
    }
    headers = {"Upstash-Workflow-RunId": "r", "Upstash-Forward-X-Secret": "hush-header"}
    scene.ask("POST", "/v2/wait/e", headers=headers, json=waiting)
    shown.append(scene.ask("GET", "/v2/waiters/e"))
    shown.append(scene.ask("POST", "/v2/notify/e", 201, body=b"hush-body event"))
    invocation = {
        "workflowRunId": "r",
        "workflowUrl": APP,
        "step": step(4) | {"stepType": "Invoke"},
        "body": "hush-body",
    }
    scene.start("child", invocation, Upstash_Workflow_Invoke="true", **redacted, **secret)
    scene.ask("DELETE", "/v2/workflows/runs/child?cancel=false", body=b"hush-body result")
    scene.queue.run_until_idle()
    failing |= {APP, FAILURE}
    scene.send("r", step(5, out="hush-body"), Upstash_Retries="0")
    scene.queue.run_until_idle()
    for listing in ("logs", "events", "dlq", "workflows/dlq", "workflows/logs", "workflows/events"):
        shown.append(scene.ask("GET", f"/v2/{listing}"))
    shown += [scene.ask("GET", f"/v2/messages/{message.id}") for message in scene.queue.messages()]
    for letter in scene.queue.dead_letters():
        shown.append(scene.ask("GET", f"/v2/dlq/{letter.id}"))
    return shown


def secrets_of(value: Any, name: str = "") -> set[str]:
    """Return the secrets in a JSON value, as ``hush-header`` and ``hush-body``, also in Base64."""
    if isinstance(value, dict):
        return set().union(*(secrets_of(item, key) for key, item in value.items()))
    if isinstance(value, list):
        return set().union(*(secrets_of(part, name) for part in value))
    text = str(value)
    with suppress(ValueError):
        text += base64.b64decode(text, validate=True).decode("latin-1")
    secrets = {"hush-body"} if "hush-body" in text else set()
    # A body may repeat headers, which only the redaction of bodies hides.
    return secrets | (
        {"hush-header"} if name.endswith("X-Secret") and "hush-header" in text else set()
    )


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ("", {"hush-body", "hush-header"}),
        ("body", {"hush-header"}),
        ("header", {"hush-body"}),
        ("body, header[x-secret]", set()),
    ],
)
def test_the_redaction_of_a_run_hides_all_its_secrets_from_every_reader(
    scene: RunScene, fields: str, left: set[str]
) -> None:
    shown = play_with_secrets(scene, {"Upstash_Redact_Fields": fields} if fields else {})
    assert set().union(*map(secrets_of, shown)) == left
    sent = [request.body + str(request.headers).encode() for request in scene.came]
    assert any(b"hush-header" in body for body in sent)
    first = scene.queue.messages()[0]
    assert (first.body, first.headers.get("X-Secret")) == (b"hush-body first", "hush-header")


def test_a_reset_forgets_the_runs(scene: RunScene) -> None:
    scene.start()
    scene.queue.reset()
    assert scene.runs() == []


def test_a_run_ends_even_where_its_invoker_cannot_be_told() -> None:
    with RunScene(limits={"daily_messages": 3}) as scene:
        scene.start("parent")
        invocation = {"workflowRunId": "parent", "workflowUrl": APP, "step": step(1)}
        scene.start("child", json.dumps(invocation).encode(), Upstash_Workflow_Invoke="true")
        scene.send("parent", b"third")
        scene.ask("DELETE", "/v2/workflows/runs/child?cancel=false")
        assert [run["workflowState"] for run in scene.runs()] == ["RUN_SUCCESS", "RUN_STARTED"]
        assert "daily rate limit" in scene.queue.messages()[1].timeline
        (violation,) = scene.violations
        assert violation.facts == {"run_id": "parent", "url": APP, "fake": "queue"}
        assert violation.text.startswith(
            "queue: rejected the result of a run that it invoked, a step of workflow run parent at"
            f" {APP}: 429 Exceeded daily rate limit."
        )


def test_an_invocation_with_half_a_character_and_a_utf8_url(scene: RunScene) -> None:
    scene.start("parent")
    url = f"{APP}/ä"
    body = {"workflowRunId": "parent", "workflowUrl": url, "step": step(1), "body": "\ud83d"}
    scene.start_and_deliver("child", json.dumps(body).encode(), Upstash_Workflow_Invoke="true")
    assert bodies(scene.came[-1]) == ["\ud83d".encode("utf-8", "surrogatepass")]
    child = scene.ask("GET", "/v2/workflows/events?workflowRunId=child")["runs"][0]
    assert child["invoker"]["workflowUrl"] == url


@pytest.mark.parametrize("depth", [400, 600, 940, 960, 970, 979, 985, 990, 995])
def test_json_that_can_be_parsed_but_not_written(scene: RunScene, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    scene.start_and_deliver()
    scene.send("r", f'{{"stepType": "Run", "stepId": 1, "stepName": "s1", "out": {deep}}}'.encode())
    call = {"stepType": "Call", "stepId": 2, "stepName": "s2", "out": f'{{"body": {deep}}}'}
    scene.send("r", call)
    scene.queue.run_until_idle()
    (run,) = scene.runs()
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
        answer = scene.request("POST", f"/v2/{path}", headers, body.encode())
        assert answer.status < 500, (path, answer)
    assert len(scene.ask("GET", "/v2/waiters/event")) == (depth < 500)
    if depth < 500:
        assert scene.ask("DELETE", "/v2/workflows/runs/invoked?cancel=false") == {"cancelled": 0}
        scene.queue.run_until_idle()


def test_the_token_may_be_in_the_query_of_every_endpoint(scene: RunScene) -> None:
    query = f"?qstash_token={scene.queue.token}&source=workflow"
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
        scene.ask(method, f"/v2/workflows/{path}{query.partition(mark)[0]}", token="")


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"a": 1}', b'"x"', TOO_DEEP])
def test_a_first_body_is_no_step(body: bytes) -> None:
    assert read_step(body) == {}


def test_headers_given_as_lists() -> None:
    headers = {"A": ["1", "2"], "B": "3", "a": ["4"], "C": 5}
    assert wire_pairs(headers) == [("A", "1"), ("A", "2"), ("B", "3"), ("C", "5")]


OTHER_FILTERS = {
    "workflowRunId": "other",
    "workflowRunIds": "",
    "workflowUrl": "https://none.example.com",
    "state": "RUN_FAILED",
    "label": "none",
    "labels": "none",
    "workflowCreatedAt": "1",
    "messageId": "none",
    "callerIp": "10.0.0.1",
    "callerIP": "10.0.0.1",
    "host": "none.example.com",
    "path": "/none",
    "flowControlKey": "none",
    "fromDate": "9999999999999",
    "toDate": "1",
}


@pytest.mark.parametrize("name", OTHER_FILTERS)
@pytest.mark.parametrize("filters", ["workflowRunIds=r", "workflowRuns=r@{created}"])
def test_runs_that_are_named_are_found_whatever_else_is_asked(
    scene: RunScene, filters: str, name: str
) -> None:
    scene.start()
    scene.start("other")
    ids = filters.format(created=scene.runs()[0]["workflowRunCreatedAt"])
    for query in (f"{ids}&{name}={OTHER_FILTERS[name]}", f"{name}={OTHER_FILTERS[name]}&{ids}"):
        assert [run["workflowRunId"] for run in scene.runs(query)] == ["r"]
        assert scene.ask("GET", f"/v2/workflows/logs?{query}&count=1")["runs"]
    path = f"/v2/workflows/runs?{ids}&{name}={OTHER_FILTERS[name]}"
    assert scene.ask("DELETE", path) == {"cancelled": 1}


def test_every_filter_of_runs_has_a_row() -> None:
    named = {"workflowRuns", "count", "cursor"}
    assert OTHER_FILTERS.keys() == workflow_runs._FILTERS - named


DETECTING = {"Upstash-Feature-Set": "LazyFetch,InitialBody,WF_DetectTrigger"}
STARTING = {"Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "true"}
TRIGGERS: list[tuple[str, dict[str, str], Any]] = [
    (f"trigger/{APP}", DETECTING, None),
    # A trigger without features has those of the JavaScript client.
    (f"trigger/{APP}", {}, None),
    ("batch/trigger", {}, [{"url": APP, "headers": DETECTING}]),
    (f"publish/{APP}", DETECTING | STARTING, None),
    (f"enqueue/q/{APP}", DETECTING | STARTING, None),
    ("batch", {}, [{"destination": APP, "headers": DETECTING | STARTING}]),
]
"""Requests that start a run and ask for the detection: path, headers, body."""


def no_workflows(scene: RunScene) -> list[dict[str, Any]]:
    violations = scene.violations
    return [violation.facts for violation in violations if violation.kind == "no_workflow"]


@pytest.mark.parametrize("status", [200, 202, 204, 299])
@pytest.mark.parametrize(("path", "headers", "body"), TRIGGERS)
def test_a_trigger_of_something_else_than_a_workflow_fails_the_run(
    scene: RunScene, path: str, headers: dict[str, str], body: Any, status: int
) -> None:
    scene.queue.destinations.respond(APP, (status, "" if status == 204 else "welcome"))
    failing = {"Upstash-Failure-Callback": FAILURE} if body is None else {}
    scene.ok("POST", f"/v2/{path}", headers={**headers, **failing}, json=body)
    attempts = scene.queue.run_until_idle()
    (run,) = scene.runs()
    assert run["workflowState"] == "RUN_FAILED"
    following = run["steps"][1]
    (failed,) = following["steps"]
    asked = "trigger" in path
    error = OLD_CLIENT if asked else NO_WORKFLOW
    assert (failed["state"], [row["error"] for row in failed["errors"]]) == ("STEP_FAILED", [error])
    assert scene.ask("GET", "/v2/events")["events"] == []
    assert scene.ask("GET", f"/v2/dlq/{run['dlqId']}")["error"] == error
    assert attempts.where(url=APP)[0].state == "failed"
    (letter,) = scene.ask("GET", "/v2/workflows/dlq")["messages"]
    assert (letter["dlqId"], letter["responseStatus"]) == (run["dlqId"], status)
    assert [request.url for request in scene.came] == ([FAILURE] if failing else [])
    assert error in scene.queue.messages(url=APP)[0].timeline
    (violation,) = scene.violations
    facts = {"run_id": run["workflowRunId"], "url": APP, "fake": "queue"}
    assert (violation.kind, violation.facts) == ("no_workflow", facts)
    client = "served by a workflow client of version 1.0 or later" if asked else "a workflow"
    assert violation.text.startswith(f"queue: {APP} is not {client}: it answered {status} ")


def starts_another_run(scene: RunScene) -> dict[str, str]:
    scene.start("other")
    return {"Upstash-Workflow-Sdk-Version": "1"}


def executes_a_step(scene: RunScene) -> dict[str, str]:
    scene.send("r", step(1))
    return {"Upstash-Workflow-Sdk-Version": "1", "Upstash-Workflow-Sdk": "v0.3.0-rc1"}


@pytest.mark.parametrize("answer", [starts_another_run, executes_a_step])
@pytest.mark.parametrize("path", ["trigger", "batch/trigger"])
def test_a_client_before_version_1_fails_a_run_that_a_request_triggers(
    scene: RunScene, path: str, answer: Callable[[RunScene], dict[str, str]]
) -> None:
    def old_client(request: DeliveredRequest) -> Any:
        is_question = "Upstash-Workflow-Unknown-Sdk" in request.headers
        return 200, "", answer(scene) if is_question else {}

    scene.queue.destinations.call(APP, old_client)
    headers = {"Upstash-Workflow-RunId": "r", "Upstash-Failure-Callback": FAILURE}
    if path == "trigger":
        scene.ask("POST", f"/v2/trigger/{APP}", headers=headers)
    else:
        scene.ask("POST", "/v2/batch/trigger", 201, json=[{"url": APP, "headers": headers}])
    scene.queue.run_until_idle()
    (run,) = scene.runs("workflowRunId=r")
    assert (run["workflowState"], run["failureFunction"]["url"]) == ("RUN_FAILED", FAILURE)
    assert scene.ask("GET", f"/v2/dlq/{run['dlqId']}")["error"] == OLD_CLIENT
    assert [facts["run_id"] for facts in no_workflows(scene)] == ["r"]


def answer_of_a_client(scene: RunScene) -> Any:
    headers = {**DETECTING, **STARTING, "upstash-workflow-trigger-by-sdk": "true"}
    item = {"destination": APP, "headers": headers, "body": "input"}
    return scene.request("POST", "/v2/batch", json=[item])


@pytest.mark.parametrize("status", [200, 500])
def test_a_client_that_is_asked_again_starts_no_second_run(scene: RunScene, status: int) -> None:
    statuses, answers = [status, 200], []

    def client(request: DeliveredRequest) -> Any:
        assert bodies(request) == [b"input"]
        if "Upstash-Workflow-Unknown-Sdk" in request.headers:
            answers.append(answer_of_a_client(scene).json()[0])
            return statuses.pop(0), "", {"Upstash-Workflow-Sdk": "v1.3.2"}
        return 200, "", {"Upstash-Workflow-Sdk-Version": "1"}

    scene.queue.destinations.call(APP, client)
    headers = {"Upstash-Workflow-RunId": "r"}
    scene.ask("POST", f"/v2/trigger/{APP}", headers=headers, body=b"input")
    scene.queue.run_until_idle()
    (run,) = scene.runs()
    assert run["workflowState"] == "RUN_STARTED"
    (group,) = run["steps"]
    assert [logged["messageId"] for logged in group["steps"]] == [answers[0]["messageId"]]
    repeated = [answer.get("deduplicated", False) for answer in answers]
    assert repeated == ([False] if status == 200 else [False, True])
    assert list(scene.ask("GET", "/v2/workflows/runs/r")) == [
        {"messageId": answers[0]["messageId"], "body": "aW5wdXQ=", "callType": "step"}
    ]
    engine = scene.queue._engine
    assert steps_of(engine, engine.workflow.runs["r"]) == []


def test_a_question_that_fails_after_its_answer_does_not_fail_the_run(scene: RunScene) -> None:
    def client(request: DeliveredRequest) -> Any:
        if "Upstash-Workflow-Unknown-Sdk" in request.headers:
            answer_of_a_client(scene)
            return 500
        return 200, "", {"Upstash-Workflow-Sdk-Version": "1"}

    scene.queue.destinations.call(APP, client)
    headers = {"Upstash-Workflow-RunId": "r", "Upstash-Retries": "0"}
    scene.ask("POST", f"/v2/trigger/{APP}", headers=headers, body=b"input")
    scene.queue.deliver_due()
    assert [run["workflowState"] for run in scene.runs()] == ["RUN_STARTED"]


@pytest.mark.parametrize("cancel", ["true", "false"])
def test_an_answer_does_not_continue_a_run_that_has_ended(scene: RunScene, cancel: str) -> None:
    scene.ask("POST", f"/v2/trigger/{APP}", headers={"Upstash-Workflow-RunId": "r"})
    scene.ask("DELETE", f"/v2/workflows/runs/r?cancel={cancel}")
    assert answer_of_a_client(scene).status == 400
    assert [run["workflowState"] != "RUN_STARTED" for run in scene.runs()] == [True]


@pytest.mark.parametrize("again", ["restart", "resume", "retry"])
def test_an_answer_whose_delivery_fails_can_be_repeated(scene: RunScene, again: str) -> None:
    def client(request: DeliveredRequest) -> Any:
        if "Upstash-Workflow-Unknown-Sdk" in request.headers:
            answer_of_a_client(scene)
            return 200, "", {"Upstash-Workflow-Sdk": "v1.3.2"}
        return 200 if request.headers.get("Upstash-Workflow-Is-Failure") else 500

    scene.queue.destinations.call(APP, client)
    headers = {"Upstash-Workflow-RunId": "r", "Upstash-Retries": "0"}
    scene.ask("POST", f"/v2/trigger/{APP}", headers=headers, body=b"input")
    scene.queue.run_until_idle()
    (failed,) = scene.runs()
    assert failed["workflowState"] == "RUN_FAILED"
    scene.queue.destinations.respond(
        APP, (200, "", {"Upstash-Workflow-Sdk": "v1.3.2", "Upstash-Workflow-Sdk-Version": "1"})
    )
    path = "/v2/dlq/retry" if again == "retry" else f"/v2/workflows/dlq/{again}"
    scene.ok("POST", f"{path}/{failed['dlqId']}")
    scene.queue.run_until_idle()
    states = {run["workflowRunId"]: run["workflowState"] for run in scene.runs()}
    if again == "retry":
        assert states == {"r": "RUN_STARTED"}
    else:
        assert states.pop("r") == "RUN_FAILED"
        assert list(states.values()) == ["RUN_STARTED"]
    assert no_workflows(scene) == []


@pytest.mark.parametrize("again", ["restart", "resume", "retry"])
def test_a_trigger_that_is_repeated_is_checked_again(scene: RunScene, again: str) -> None:
    scene.ask("POST", f"/v2/trigger/{APP}")
    scene.queue.run_until_idle()
    (failed,) = scene.runs()
    path = "/v2/dlq/retry" if again == "retry" else f"/v2/workflows/dlq/{again}"
    scene.ok("POST", f"{path}/{failed['dlqId']}")
    scene.queue.run_until_idle()
    assert {run["workflowState"] for run in scene.runs()} == {"RUN_FAILED"}
    assert len(no_workflows(scene)) == 2


def ends(scene: RunScene) -> None:
    scene.ask("DELETE", "/v2/workflows/runs/r?cancel=false")


def is_cancelled(scene: RunScene) -> None:
    scene.ask("DELETE", "/v2/workflows/runs/r")


def publishes(scene: RunScene) -> None:
    scene.send("r", step(1), Upstash_Delay="1h")


def calls(scene: RunScene) -> None:
    scene.send("r", b"x", url="https://third.example.com", Upstash_Workflow_CallType="toCallback")


def waits_for_an_event(scene: RunScene) -> None:
    wait(scene, "event")


def invokes(scene: RunScene) -> None:
    invocation = {"workflowRunId": "r", "workflowUrl": APP, "step": step(1)}
    scene.start("child", invocation, f"{APP}/other", Upstash_Workflow_Invoke="true")


@pytest.mark.parametrize("act", [ends, is_cancelled, publishes, calls, waits_for_an_event, invokes])
def test_a_handler_that_acts_for_its_run_is_a_workflow(
    scene: RunScene, act: Callable[[RunScene], None]
) -> None:
    scene.queue.destinations.call(APP, lambda request: act(scene))
    headers = DETECTING | {"Upstash-Workflow-RunId": "r"}
    scene.ask("POST", f"/v2/trigger/{APP}", headers=headers)
    scene.queue.deliver_due()
    (run,) = scene.runs("workflowRunId=r")
    assert run["workflowState"] != "RUN_FAILED"
    assert no_workflows(scene) == []


def test_a_message_cancelled_during_its_delivery_is_no_failed_trigger(scene: RunScene) -> None:
    made = scene.ask("POST", f"/v2/trigger/{APP}")
    path = f"/v2/messages/{made['messageId']}"
    scene.queue.destinations.call(APP, lambda request: scene.ask("DELETE", path) and 200)
    scene.queue.run_until_idle()
    assert [run["workflowState"] for run in scene.runs()] == ["RUN_STARTED"]
    assert no_workflows(scene) == []


def test_runs_that_invoke_each_other_have_a_depth_of_at_most_100(scene: RunScene) -> None:
    scene.start("r1")
    for depth in range(2, 102):
        invocation = {"workflowRunId": f"r{depth - 1}", "workflowUrl": APP, "step": step(1)}
        headers = STARTING | {
            "Upstash-Workflow-RunId": f"r{depth}",
            "Upstash-Workflow-Invoke": "true",
        }
        answer = scene.request("POST", f"/v2/publish/{APP}", json=invocation, headers=headers)
        assert answer.status == (200 if depth <= 100 else 429)
    assert answer.error == "EXCEEDS_LIMIT: a workflow has at most 100 runs that invoke each other"
    assert len(scene.queue._engine.workflow.runs) == 100


@pytest.mark.parametrize("status", [200, 500])
def test_runs_that_invoke_one_too_many_fail(
    scene: RunScene, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Also if the handler ignores the error."""
    monkeypatch.setattr(runs, "MOST_INVOCATIONS", 2)
    rejected = []

    def answer(request: DeliveredRequest) -> object:
        if request.url != APP:
            return 200
        run_id = request.headers["Upstash-Workflow-RunId"]
        invocation = {"workflowRunId": run_id, "workflowUrl": APP, "step": step(1)}
        headers = STARTING | {
            "Upstash-Workflow-RunId": f"{run_id}+",
            "Upstash-Workflow-Invoke": "true",
            "Upstash-Failure-Callback": FAILURE,
        }
        made = scene.request("POST", f"/v2/publish/{APP}", json=invocation, headers=headers)
        if made.status == 429:
            rejected.append(made.error)
            return status
        return 200

    scene.answer = answer
    scene.start_and_deliver("r")
    states = {run["workflowRunId"]: run["workflowState"] for run in scene.runs()}
    assert states == {"r": "RUN_FAILED", "r+": "RUN_FAILED"}
    assert len(rejected) == 1
    letters = scene.ask("GET", "/v2/workflows/dlq")["messages"]
    assert {letter["error"] for letter in letters} == set(rejected)
    assert [request.url for request in scene.came if request.url != APP] == [FAILURE]
    # A run that is retried may do something else.
    scene.answer = lambda request: 200
    (last,) = [letter for letter in letters if letter["workflowRunId"] == "r+"]
    scene.ok("POST", f"/v2/dlq/retry/{last['dlqId']}")
    scene.queue.run_until_idle()
    states = {run["workflowRunId"]: run["workflowState"] for run in scene.runs()}
    assert states == {"r": "RUN_FAILED", "r+": "RUN_STARTED"}


def test_a_retried_run_returns_its_result_to_the_same_invoker(scene: RunScene) -> None:
    scene.start_and_deliver("r")
    invocation = {"workflowRunId": "r", "workflowUrl": APP, "body": "given", "step": step(1)}
    scene.answer = lambda request: 500 if request.url.endswith("/other") else 200
    scene.start("child", invocation, f"{APP}/other", Upstash_Workflow_Invoke="true")
    scene.queue.run_until_idle()
    (letter,) = scene.ask("GET", "/v2/workflows/dlq")["messages"]
    scene.answer = lambda request: 200
    scene.ok("POST", f"/v2/dlq/retry/{letter['dlqId']}")
    scene.queue.run_until_idle()
    assert bodies(scene.came[-1]) == [b"given"]
    (run,) = scene.runs("workflowRunId=child&state=RUN_STARTED")
    assert run["invoker"]["workflowRunId"] == "r"


def test_a_run_with_too_large_results_fails(
    scene: RunScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_CONTEXT", 1000)
    scene.start_and_deliver("r", "x" * 600)
    headers = {"Upstash-Workflow-RunId": "r", "Upstash-Failure-Callback": FAILURE}
    answer = scene.request("POST", f"/v2/publish/{APP}", body=b"y" * 600, headers=headers)
    assert (answer.status, answer.error[:13]) == (429, "EXCEEDS_LIMIT")
    scene.queue.deliver_due()
    (run,) = scene.runs()
    assert run["workflowState"] == "RUN_FAILED"
    assert [request.url for request in scene.came if request.url == FAILURE] == [FAILURE]


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
            answer = queue._app.respond(Request("POST", f"/v2/{path}", [*headers.items()], sent))
            assert isinstance(answer, Answer)
            assert answer.status < 500, answer
        assert queue._context.violations == []


def test_a_run_can_have_many_former_ones() -> None:
    latest = None
    for number in range(5000):
        run = WorkflowRun("r", APP, number, "m", PublishSettings())
        run.former, latest = latest, run
    assert latest is not None
    copied: WorkflowRun | None = latest.copy()
    latest.steps.clear()
    times = []
    while copied is not None:
        times.append(copied.created_us)
        copied = copied.former
    assert times == list(reversed(range(5000)))


# -- the steps of a run over time, as the console shows them ----------------------------------------


def only_steps(scene: RunScene) -> list[StepView]:
    """Return the steps of the only run."""
    engine = scene.queue._engine
    (run,) = engine.workflow.runs.values()
    return steps_of(engine, run)


def shown_steps(scene: RunScene) -> list[tuple[str, str, list[str]]]:
    """Return the name, the state and the spans of each step of the only run."""
    return [
        (
            view["name"],
            view["state"],
            [
                f"{span['kind']} {span['start'][11:19]}-{span['end'][11:19]}"
                for span in view["spans"]
            ],
        )
        for view in only_steps(scene)
    ]


def test_parallel_steps_keep_their_spans_and_their_order_when_they_end(scene: RunScene) -> None:
    scene.start_and_deliver()
    parallel = [
        {"stepName": "nap", "stepType": "SleepFor", "sleepFor": 3},
        {"stepName": "pay", "stepType": "Run"},
        {"stepName": "ask", "stepType": "Call"},
        {"stepName": "ask again", "stepType": "Call"},
        {"stepName": "paper", "stepType": "Wait", "waitEventId": "paper"},
    ]
    # The delivery of each plan runs its step, that of a sleep is delayed.
    for number, planned in enumerate(parallel, 1):
        plan = {"stepId": 0, "concurrent": len(parallel), "targetStep": number, **planned}
        scene.send("r", plan, Upstash_Delay="3s" if "sleepFor" in planned else "0s")
    scene.queue.clock.advance("1s")

    def result(number: int) -> dict[str, Any]:
        return {"stepId": number, "concurrent": len(parallel), **parallel[number - 1]}

    headers = {"Upstash-Workflow-RunId": ["r"], "Upstash-Workflow-Url": [APP]}
    wait = {"url": APP, "timeout": "1h", "step": result(5), "timeoutHeaders": headers}
    scene.ask("POST", "/v2/wait/paper", headers={"Upstash-Workflow-RunId": "r"}, json=wait)
    for number, delay in ((3, "1s"), (4, "0s")):
        scene.send(
            "r", url=f"{APP}/{number}", Upstash_Workflow_CallType="toCallback", Upstash_Delay=delay,
            Upstash_Callback_Forward_Upstash_Workflow_StepId=str(number),
        )  # fmt: skip
    scene.send("r", result(2))
    scene.queue.clock.advance("500ms")
    assert shown_steps(scene) == [
        ("nap", "pending", ["sleep 00:00:00-00:00:03"]),
        ("pay", "done", ["step 00:00:00-00:00:00"]),
        ("ask", "pending", ["step 00:00:00-00:00:00"]),
        ("ask again", "pending", ["step 00:00:00-00:00:00", "call 00:00:01-00:00:01"]),
        ("paper", "pending", ["step 00:00:00-00:00:00", "sleep 00:00:01-01:00:01"]),
    ]
    scene.queue.clock.advance("90m")
    for number in (4, 3, 1):
        scene.send("r", result(number))
    scene.queue.run_until_idle()
    assert shown_steps(scene) == [
        ("nap", "done", ["sleep 00:00:00-00:00:03", "step 00:00:03-00:00:03"]),
        ("pay", "done", ["step 00:00:00-00:00:00"]),
        ("ask", "done", ["step 00:00:00-00:00:00", "call 00:00:02-00:00:02"]),
        ("ask again", "done", ["step 00:00:00-00:00:00", "call 00:00:01-00:00:01"]),
        ("paper", "done", ["step 00:00:00-00:00:00", "sleep 00:00:01-01:00:01"]),
    ]
    groups = {view["group"] for view in only_steps(scene)}
    assert len(groups) == 1
    assert "" not in groups


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ('{"error": "WorkflowError", "message": "Error submitting steps to QStash in partial parallel '
         'step execution: Error: card declined: no money\\nmore"}', "card declined: no money"),
        ("WorkflowError: run: TypeError: x is undefined", "TypeError: x is undefined"),
        ("Error: plain", "plain"),
        ("TypeError: top", "TypeError: top"),
        ("ConnectionRefusedError(111, 'refused')", "ConnectionRefusedError(111, 'refused')"),
        ('{"message": 7}', "7"),
        ("  \n", ""),
    ],
)  # fmt: skip
def test_the_cause_of_an_error_is_its_innermost_message(reason: str, cause: str) -> None:
    assert cause_of(reason) == cause
