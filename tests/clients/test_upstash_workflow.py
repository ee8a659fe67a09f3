# mypy: disable-error-code="import-untyped"
"""Test the official Python workflow client in a Flask and a FastAPI application behind a queue.

The clock is a fake one, so a workflow that sleeps for days ends within milliseconds.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import fastapi
import flask
import httpx
import pytest
import upstash_workflow
from qstash import AsyncQStash, QStash, Receiver
from upstash_workflow import AsyncWorkflowContext, WorkflowContext
from upstash_workflow.fastapi import Serve as FastapiServe
from upstash_workflow.flask import Serve as FlaskServe
from upstash_workflow.workflow_types import _AsyncRequest, _SyncRequest

from pytest_fakecloud import Cloud, DeliveredRequest
from pytest_fakecloud.inspect.data import PageQuery
from pytest_fakecloud.queue.inspect.data import LISTS

APP = "https://app.example.com"
THIRD = "https://third.example.com"
NOW = "2026-03-02T10:00:00Z"


class World:
    """A queue, and an application with one workflow at `/flow`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.cloud = Cloud(now=NOW, seed=1, delivery="driven")
        self.queue: Any = self.cloud.queue()
        self.events: list[Any] = []
        keys = (self.queue.current_signing_key, self.queue.next_signing_key)
        self.receiver = Receiver(*keys)
        token, url = self.queue.token, self.queue.url
        if kind == "flask":
            self.client: Any = QStash(token, base_url=url, retry=False)
            self.app: Any = flask.Flask("app")
            self.queue.destinations.wsgi(APP, self.app)
        else:
            self.client = AsyncQStash(token, base_url=url, retry=False)
            self.app = fastapi.FastAPI(lifespan=self._lifespan)
            self.queue.destinations.asgi(APP, self.app)

    def serve(self, body: Callable[..., Any], **options: Any) -> None:
        """Serve `body(world, context, step)`, a generator of steps, as a workflow.

        Each yielded step is `(name of a context method, arguments...)`, and its result is sent
        back, so one body works with the synchronous and the asynchronous context.
        """
        defaults = {"qstash_client": self.client, "receiver": self.receiver, "url": f"{APP}/flow"}
        options = {**defaults, **options}
        if self.kind == "flask":

            def flow(context: Any) -> None:
                steps = body(context)
                result = None
                while True:
                    try:
                        name, *args = steps.send(result)
                    except StopIteration:
                        return
                    result = getattr(context, name)(*args[:-1], **args[-1])

            FlaskServe(self.app).route("/flow", **options)(flow)
        else:

            async def aflow(context: Any) -> None:
                steps = body(context)
                result = None
                while True:
                    try:
                        name, *args = steps.send(result)
                    except StopIteration:
                        return
                    if name == "run":
                        function = args[1]

                        async def step(function: Any = function) -> Any:
                            return function()

                        args[1] = step
                    result = await getattr(context, name)(*args[:-1], **args[-1])

            FastapiServe(self.app).post("/flow", **options)(aflow)

    def start(self, payload: Any, **settings: Any) -> None:
        self.queue.publish(f"{APP}/flow", json=payload, **settings)

    def run(self, body: Callable[..., Any], payload: Any = None, **options: Any) -> None:
        """Serve a workflow and run it once until nothing is left to do."""
        self.serve(body, **options)
        self.start({} if payload is None else payload)
        self.queue.run_until_idle()

    def get(self, path: str) -> Any:
        answer = httpx.get(self.queue.url + path, headers=self.queue.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def runs(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.get("/v2/workflows/events")["runs"]
        return runs

    def close(self) -> None:
        if self.kind == "flask":
            self.client.http._client.close()
        self.cloud.close()

    @asynccontextmanager
    async def _lifespan(self, app: fastapi.FastAPI) -> AsyncIterator[None]:
        yield
        # The connections belong to the event loop in which the application ran.
        await self.client.http._client.aclose()


@pytest.fixture(params=["flask", "fastapi"])
def world(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.CRITICAL, "upstash_workflow")
    made = World(request.param)
    yield made
    made.close()


def step_names(run: dict[str, Any]) -> list[str]:
    return [step.get("stepName", "next") for group in run["steps"] for step in group["steps"]]


def test_run_sleep_sleep_until_and_call(world: World) -> None:
    calls = world.queue.destinations.respond(THIRD, (200, {"third": True}, {"X-A": "1"}))
    until = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)

    def flow(context: Any) -> Any:
        first = yield "run", "first", lambda: {"got": context.request_payload}, {}
        yield "sleep", "nap", 3600, {}
        yield "sleep", "day", "1d", {}
        yield "sleep_until", "date", until, {}
        answer = yield (
            "call",
            "third",
            {
                "url": THIRD + "/x", "method": "PUT", "body": {"q": 1}, "headers": {"X-Own": "2"},
                "retries": 2, "timeout": 30,
            },
        )  # fmt: skip
        world.events.append((first, answer.status, answer.body, answer.header["X-A"]))

    world.run(flow, {"order": 7})
    assert world.events == [({"got": {"order": 7}}, 200, {"third": True}, ["1"])]
    assert world.cloud.clock.now() == until
    (request,) = calls.deliveries
    assert (request.method, request.json(), request.headers.get("X-Own")) == ("PUT", {"q": 1}, "2")
    assert world.cloud.violations() == []
    (run,) = world.runs()
    assert run["workflowState"] == "RUN_SUCCESS"
    assert step_names(run) == ["init", "first", "nap", "day", "date", "third"]


def test_each_step_runs_once_and_its_result_stays(world: World) -> None:
    def flow(context: Any) -> Any:
        def note(name: str, value: int) -> int:
            world.events.append(name)
            return value

        first = yield "run", "one", lambda: note("one", 1), {}
        two = yield "run", "two", lambda: note("two", first + 1), {}
        yield "run", "three", lambda: world.events.append(two), {}

    world.run(flow)
    assert world.events == ["one", "two", 2]


def test_a_step_that_fails_is_retried_and_the_run_goes_on(world: World) -> None:
    def flow(context: Any) -> Any:
        def flaky() -> str:
            world.events.append("try")
            if len(world.events) < 3:
                raise ValueError("not yet")
            return "done"

        done = yield "run", "flaky", flaky, {}
        yield "run", "after", lambda: world.events.append(done), {}

    world.run(flow)
    assert world.events == ["try", "try", "try", "done"]


def test_a_rejected_step_leaves_a_violation(world: World) -> None:
    def flow(context: Any) -> Any:
        yield "sleep", "nap", "soon", {}

    world.run(flow)
    (run,) = world.runs()
    assert run["workflowState"] == "RUN_STARTED"
    violation = world.cloud.violations().only()
    assert violation.kind == "rejected_step"
    assert "item 1 of a batch" in violation.text
    assert 'invalid delay: time: invalid duration "soon"' in violation.text
    world.cloud.allow("rejected_step", run_id=run["workflowRunId"])
    assert world.cloud.violations() == []


def test_a_call_that_fails_is_retried_and_its_status_is_the_result(world: World) -> None:
    calls = world.queue.destinations.respond(THIRD, (503, "no"), (500, "still no"), (404, "gone"))

    def flow(context: Any) -> Any:
        answer = yield "call", "third", {"url": THIRD, "retries": 2}
        world.events.append((answer.status, answer.body))

    world.run(flow)
    assert world.events == [(404, "gone")]
    assert len(calls.deliveries) == 3
    assert [run["workflowState"] for run in world.runs()] == ["RUN_SUCCESS"]


def test_a_failing_workflow_calls_its_failure_function(world: World) -> None:
    def flow(context: Any) -> Any:
        yield "run", "first", lambda: 1, {}
        raise ValueError("boom")

    def failed(context: Any, status: int, text: str, headers: dict[str, Any]) -> None:
        payload = context.request_payload
        world.events.append((status, text, payload, context.headers.get("x-user")))

    async def afailed(context: Any, status: int, text: str, headers: dict[str, Any]) -> None:
        failed(context, status, text, headers)

    world.serve(flow, failure_function=failed if world.kind == "flask" else afailed, retries=1)
    world.start({"order": 7}, headers={"X-User": "me"})
    world.queue.run_until_idle()
    (event,) = world.events
    assert event[:3] == (500, "boom", {"order": 7})
    (run,) = world.runs()
    assert run["workflowState"] == "RUN_FAILED"
    assert run["failureFunction"]["state"] == "CALLBACK_SUCCESS"
    (letter,) = world.get("/v2/dlq?source=workflow")["messages"]
    assert letter["workflowRunId"] == run["workflowRunId"]
    assert letter["dlqId"] == run["dlqId"]
    assert world.get("/v2/dlq?source=qstash")["messages"] == []


def test_a_failure_url_gets_the_failure_callback(world: World) -> None:
    capture: Any = world.cloud.callback_capture()

    def flow(context: Any) -> Any:
        yield "run", "first", lambda: 1, {}
        raise ValueError("boom")

    world.serve(flow, failure_url=capture.failure_url, retries=0)
    world.start({"order": 7})
    failure = capture.wait_for_failure()
    assert failure.verified
    assert failure.response_json()["message"] == "boom"
    assert failure.request_json() == {"order": 7}
    assert failure.payload["workflowRunId"] == world.runs()[0]["workflowRunId"]


def test_in_the_loop_of_the_test() -> None:
    async def main() -> list[Any]:
        made = World("fastapi")

        def flow(context: Any) -> Any:
            first = yield "run", "first", lambda: 1, {}
            yield "sleep", "nap", "3d", {}
            yield "run", "second", lambda: made.events.append(first), {}

        made.serve(flow)
        made.start({})
        await made.queue.aio.run_until_idle()
        assert [run["workflowState"] for run in made.runs()] == ["RUN_SUCCESS"]
        # The synchronous calls would run the application in another event loop.
        await made.client.http._client.aclose()
        made.cloud.close()
        return made.events

    assert asyncio.run(main()) == [1]


def test_what_is_not_from_the_queue_is_refused(world: World) -> None:
    def flow(context: Any) -> Any:
        yield "run", "first", lambda: world.events.append("ran"), {}

    other = Receiver("sig_" + "x" * 28, "sig_" + "y" * 28)
    world.serve(flow, receiver=other, retries=0)
    world.start({}, retries=0)
    world.queue.run_until_idle()
    assert world.events == []
    assert world.queue.attempts().only().status == 500
    assert "Failed to verify" in world.queue.attempts().only().body.decode()


def test_cancelling_a_run_stops_it(world: World) -> None:
    def flow(context: Any) -> Any:
        yield "sleep", "long", "2d", {}
        yield "run", "never", lambda: world.events.append("ran"), {}

    world.serve(flow)
    world.start({})
    world.queue.clock.advance("1h")
    (run,) = world.runs()
    assert run["workflowState"] == "RUN_STARTED"
    target = f"{world.queue.url}/v2/workflows/runs"
    response = httpx.delete(
        f"{target}/{run['workflowRunId']}?cancel=true", headers=world.queue.headers
    )
    assert response.status_code == 200
    again = httpx.delete(target, headers=world.queue.headers)
    assert again.json() == {"cancelled": 0}
    world.queue.run_until_idle()
    assert world.events == []
    assert world.runs()[0]["workflowState"] == "RUN_CANCELED"


def test_a_step_for_a_run_that_is_over_is_refused(world: World) -> None:
    def flow(context: Any) -> Any:
        def cancelled_meanwhile() -> None:
            for run in world.runs():
                httpx.delete(
                    f"{world.queue.url}/v2/workflows/runs/{run['workflowRunId']}",
                    headers=world.queue.headers,
                )

        yield "run", "first", cancelled_meanwhile, {}
        yield "run", "never", lambda: world.events.append("ran"), {}

    world.run(flow)
    assert world.events == []
    assert world.runs()[0]["workflowState"] == "RUN_CANCELED"


def test_the_payload_parser_and_the_base_url(world: World) -> None:
    def flow(context: Any) -> Any:
        world.events.append(context.request_payload)
        yield "run", "first", lambda: 1, {}

    world.serve(
        flow, initial_payload_parser=lambda text: text.upper(), url=None, base_url=APP, env={},
    )  # fmt: skip
    world.queue.publish(f"{APP}/flow", body="text")
    world.queue.run_until_idle()
    assert set(world.events) == {"TEXT"}
    assert world.runs()[0]["workflowUrl"] == f"{APP}/flow"


def test_several_runs_side_by_side(world: World) -> None:
    def flow(context: Any) -> Any:
        number = context.request_payload["n"]
        yield "sleep", "nap", 60 * (5 - number), {}
        yield "run", "end", lambda: world.events.append(number), {}

    world.serve(flow)
    for number in range(5):
        world.start({"n": number})
    world.queue.run_until_idle()
    assert world.events == [4, 3, 2, 1, 0]
    assert len({run["workflowRunId"] for run in world.runs()}) == 5


@pytest.mark.parametrize(
    ("fault", "pause", "state"),
    [
        ("crash_after_response", 0, "RUN_SUCCESS"),
        ("crash_after_response", 60, "RUN_FAILED"),
        ("duplicate", 60, "RUN_FAILED"),
    ],
)
def test_a_step_that_ran_twice_ends_a_run_that_has_not_completed(
    world: World, fault: str, pause: int, state: str
) -> None:
    def flow(context: Any) -> Any:
        yield "run", "first", lambda: world.events.append("first"), {}
        if pause:
            yield "sleep", "pause", pause, {}
        yield "run", "second", lambda: world.events.append("second"), {}

    world.serve(flow)
    getattr(world.queue.faults, fault)(times=1, skip=1)
    world.start({})
    world.queue.run_until_idle()
    (run,) = world.runs()
    assert run["workflowState"] == state
    assert step_names(run)[0] == "init"


@pytest.mark.parametrize("kind", ["serve", "async_serve"])
def test_serve_without_a_framework_and_what_it_redacts(kind: str) -> None:
    with Cloud(now=NOW, seed=1, delivery="driven") as cloud:
        queue: Any = cloud.queue()
        events: list[Any] = []
        options: dict[str, Any] = {
            "url": APP,
            "redact": {"body": True, "header": ["X-Secret"]},
            "retries": 1,
        }
        sync = QStash(queue.token, base_url=queue.url, retry=False)
        if kind == "serve":

            def flow(context: Any) -> None:
                context.run("first", lambda: events.append(context.headers["X-Secret"]))

            handler = upstash_workflow.serve(flow, qstash_client=sync, **options)["handler"]

            def handle(request: DeliveredRequest) -> Any:
                got = handler(_SyncRequest(request.text, dict(request.headers), {}, "POST", APP))
                return got.status, got.body

            queue.destinations.call(APP, handle)
        else:
            client = AsyncQStash(queue.token, base_url=queue.url, retry=False)

            async def step(value: str) -> None:
                events.append(value)

            async def aflow(context: Any) -> None:
                await context.run("first", lambda: step(context.headers["X-Secret"]))

            ahandler = upstash_workflow.async_serve(aflow, qstash_client=client, **options)[
                "handler"
            ]

            async def ahandle(request: DeliveredRequest) -> Any:
                async_request = _AsyncRequest(request.body, dict(request.headers), {}, "POST", APP)
                got = await ahandler(async_request)
                return got.status, got.body

            queue.destinations.call(APP, ahandle)
        queue.publish(APP, json={"a": 1}, headers={"X-Secret": "hush"})
        if kind == "serve":
            queue.run_until_idle()
        else:

            async def main() -> None:
                await queue.aio.run_until_idle()
                await client.http._client.aclose()

            asyncio.run(main())
        assert events == ["hush"]
        started = queue.messages()[1]
        assert started._record.settings.redaction.body
        shown: Any = sync.message.get(started.id)
        assert shown.body.startswith("REDACTED:")
        assert shown.headers["X-Secret"][0].startswith("REDACTED:")
        assert queue.attempts()[-1].status == 200
        sync.http._client.close()


def test_the_whole_public_surface_is_used_above() -> None:
    # A newer client with new public names fails this test.
    used = {"run", "sleep", "sleep_until", "call"}
    for context in (WorkflowContext, AsyncWorkflowContext):
        methods = {
            name
            for name, _ in inspect.getmembers(context, inspect.isfunction)
            if not name.startswith("_")
        }
        assert methods == used
    call = set(inspect.signature(WorkflowContext.call).parameters)
    assert call == {"self", "step_name", "url", "method", "body", "headers", "retries", "timeout"}
    options = {
        "qstash_client", "receiver", "url", "failure_function", "failure_url", "retries",
        "initial_payload_parser", "base_url", "env",
    }  # fmt: skip
    for serve in (FlaskServe.route, FastapiServe.post):
        assert set(inspect.signature(serve).parameters) == {"self", "path", *options}
    for function in (upstash_workflow.serve, upstash_workflow.async_serve):
        expected = {"route_function", "redact", *options}
        assert set(inspect.signature(function).parameters) == expected
    names = {name for name in upstash_workflow.__all__ if name[0].isupper()}
    assert names == EXPORTS


EXPORTS = {
    "AsyncWorkflowContext", "CallResponse", "WorkflowAbort", "WorkflowContext", "WorkflowError",
}  # fmt: skip


# -- the steps of a run over time, as the console shows them ----------------------------------------


def only_run(world: World) -> dict[str, Any]:
    """Return the only run as the console shows it; the list has the same number of steps."""
    (listed,) = LISTS["runs"].page(world.queue, PageQuery())["items"]
    show = LISTS["runs"].item
    assert show is not None
    run = show(world.queue, listed["id"], PageQuery())
    assert listed["steps"] == len(run["steps"])
    return run


def spans_of(run: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Return the name, the state and the spans of each step."""
    return [
        (
            step["name"],
            step["state"],
            [
                f"{span['kind']} {span['start'][11:19]}-{span['end'][11:19]}"
                + (" failed" if span["failed"] else "")
                for span in step["spans"]
            ],
        )
        for step in run["steps"]
    ]


def test_steps_have_spans_of_runs_sleeps_calls_and_retries(world: World) -> None:
    world.queue.destinations.respond(THIRD, 200)
    tries: list[int] = []

    def charge() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise RuntimeError("card declined")
        return "paid"

    def ship() -> str:
        raise RuntimeError("no courier")

    def body(context: Any) -> Any:
        yield "run", "reserve", lambda: 1, {}
        yield "sleep", "nap", "2h", {}
        yield "run", "charge", charge, {}
        yield "call", "ask", {"url": f"{THIRD}/stock", "method": "POST"}
        yield "run", "ship", ship, {}

    world.run(body, retries=1)
    run = only_run(world)
    assert spans_of(run) == [
        ("reserve", "done", ["step 10:00:00-10:00:00"]),
        ("nap", "done", ["sleep 10:00:00-12:00:00"]),
        ("charge", "done", ["step 12:00:00-12:00:00 failed", "wait 12:00:00-12:00:12",
                            "step 12:00:12-12:00:12"]),
        ("ask", "done", ["call 12:00:12-12:00:12"]),
        ("step after ask", "failed", ["step 12:00:12-12:00:12 failed", "wait 12:00:12-12:00:24",
                                      "step 12:00:24-12:00:24 failed"]),
    ]  # fmt: skip
    last = run["steps"][-1]
    assert (last["tries"], last["retries"]) == (2, 1)
    assert ["no courier" in error["reason"] for error in last["errors"]] == [True, True]
    assert run["input_is_whole"]


def test_a_step_that_waits_has_its_event_and_its_end(world: World) -> None:
    def body(context: Any) -> Any:
        yield "sleep", "nap", "1h", {}

    world.serve(body)
    world.start({})
    world.cloud.clock.advance("10m")
    run = only_run(world)
    (step,) = run["steps"]
    assert (step["state"], step["event"]) == ("pending", "")
    assert step["wait_ends"] == "2026-03-02T11:00:00+00:00"
    assert spans_of(run) == [("nap", "pending", ["sleep 10:00:00-11:00:00"])]
