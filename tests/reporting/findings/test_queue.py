"""Findings about messages, and similar cases without a finding."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx

from pytest_fakecloud import Cloud, Response

from ..shown import deliver
from .cases import HOOK, Inject, Scene, answered, check, fails_afterwards, logs, loses_answer

CALLBACK = "https://app.example.com/callback"
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


def restarts(*requests: Request, deletes: bool = False) -> Scene:
    """Send publish requests twice, as an application does at each start; delete what the first
    start created if ``deletes``.
    """

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        send(queue, *requests)
        for schedule in queue.schedules() if deletes else ():
            url = f"{queue.url}/v2/schedules/{schedule.id}"
            httpx.delete(url, headers=queue.headers).raise_for_status()
        send(queue, *requests)

    return run


def to(path: str, body: Any = "x", **headers: str) -> Request:
    return (
        f"{path}/{HOOK}",
        body,
        {f"Upstash-{name.replace('_', '-')}": value for name, value in headers.items()},
    )


def batch(*ids: str, body: str = "x") -> Request:
    one = {"destination": HOOK, "body": body}
    return "batch", [{**one, "headers": {"Upstash-Deduplication-Id": id}} for id in ids], {}


def writes(*of_delivery: str, duplicate: bool = True, delay: bool = False) -> Scene:
    """Deliver a duplicated message to a receiver that runs the given commands at each delivery."""

    def run(cloud: Cloud) -> None:
        server, queue = cloud.kv_server(), cloud.queue()
        answered(200)(cloud)
        if duplicate:
            queue.faults.duplicate(times=1)
        if delay:
            queue.faults.delay("1s", url=HOOK, times=1)
        left = iter(of_delivery)

        def take(request: Any) -> int:
            for command in filter(None, next(left).split(" & ")):
                httpx.post(server.url, json=command.split(), headers=server.headers)
            return 200

        queue.destinations.call(HOOK, take)
        deliver(queue, HOOK, retries=0)

    return run


def retried(*answers: int) -> Scene:
    """Publish two messages to one URL, one after the other."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.destinations.respond(HOOK, *answers)
        for _ in range(2):
            httpx.post(f"{queue.url}/v2/publish/{HOOK}", headers=queue.headers)
            cloud.clock.advance("1s")
        queue.run_until_idle()

    return run


def called_back(*answers: int, receiver: str = "INCR failed") -> Scene:
    """Deliver a message whose callbacks make a receiver run a command."""

    def run(cloud: Cloud) -> None:
        queue, server = cloud.queue(), cloud.kv_server()
        callback = CALLBACK
        queue.destinations.respond(HOOK, *answers)

        def take(request: object) -> int:
            httpx.post(server.url, json=receiver.split(), headers=server.headers)
            return 200

        queue.destinations.call(callback, take)
        deliver(queue, HOOK, retries=len(answers) - 1, callback=callback)

    return run


def loses(*answers: int, fault: str = "crash_after_response") -> Scene:
    """Deliver a message of whose first attempt a fault loses the answer."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.destinations.respond(HOOK, *answers)
        getattr(queue.faults, fault)(times=1)
        deliver(queue, HOOK, retries=2)

    return run


def redirects(
    url: str, status: int, location: str = "", callback: object = None, **options: Any
) -> Scene:
    """Deliver a message with a callback; the handler at one of the URLs answers with a location."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        for one in (HOOK, CALLBACK):
            body = callback if one == HOOK else None
            headers = {"Location": location} if location else {}
            answer = Response(status, body, headers=headers) if one == url else Response(200)
            queue.destinations.respond(one, answer)
        deliver(queue, HOOK, callback=CALLBACK, **{"retries": 0, **options})

    return run


def says(body: object) -> Scene:
    """Deliver a message that is answered 200 with a body."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.destinations.respond(HOOK, (200, body))
        deliver(queue, HOOK, retries=0)

    return run


def uses(use: Callable[[Cloud, Any], object]) -> Scene:
    """Deliver a message whose callback's handler does something with the fields of the callback."""

    def run(cloud: Cloud) -> None:
        queue, log = cloud.queue(), logging.getLogger("app")
        callback = "https://app.example.com/callback"
        queue.destinations.respond(HOOK, (200, {"text": "short"}))

        def take(request: Any) -> int:
            try:
                use(cloud, request.json())
            except ValueError:
                log.exception("no text")
            return 200

        queue.destinations.call(callback, take)
        deliver(queue, HOOK, body="a long text", callback=callback)

    return run


def publish(cloud: Cloud, value: str) -> None:
    queue = cloud.queue(name="next")
    httpx.post(f"{queue.url}/v2/publish/{HOOK}/next", json={"text": value}, headers=queue.headers)


def store(cloud: Cloud, value: str) -> None:
    server = cloud.kv_server()
    httpx.post(server.url, json=["HSET", "done", "text", value], headers=server.headers)


def raises(*answers: int) -> Scene:
    """Deliver a message whose handler raises an exception instead of answering 500."""

    def run(cloud: Cloud) -> None:
        queue, left = cloud.queue(), iter(answers)

        def take(request: object) -> int:
            if (status := next(left)) == 500:
                raise KeyError("id")
            return status

        queue.destinations.call(HOOK, take)
        deliver(queue, HOOK, retries=len(answers) - 1)

    return run


def in_a_run(*deliveries: str) -> Scene:
    """Deliver messages of one workflow run, whose handler sends commands or submits a step."""

    def run(cloud: Cloud) -> None:
        queue, server, left = cloud.queue(), cloud.kv_server(), iter(deliveries)
        queue.destinations.accept(f"{HOOK}/next")

        def take(request: object) -> int:
            for line in next(left).split(" & "):
                if line in ("step", "sleep"):
                    step = {
                        "stepId": 1,
                        "stepName": "a",
                        "stepType": "Run" if line == "step" else "SleepFor",
                    }
                    item = {"destination": f"{HOOK}/next", "body": json.dumps(step)}
                    httpx.post(f"{queue.url}/v2/batch", json=[item], headers=queue.headers)
                elif line:
                    httpx.post(server.url, json=line.split(), headers=server.headers)
            return 200

        queue.destinations.call(HOOK, take)
        for _ in deliveries:
            deliver(queue, HOOK, headers={"Upstash-Workflow-RunId": "wfr_1"})

    return run


def waits(*requests: str) -> Scene:
    """Wait for events in a workflow run, and notify them."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.destinations.accept(HOOK)
        headers = {**queue.headers, "Upstash-Workflow-RunId": "wfr_1"}
        init = {**headers, "Upstash-Workflow-Init": "true", "Upstash-Workflow-Url": HOOK}
        httpx.post(f"{queue.url}/v2/publish/{HOOK}", headers=init)
        queue.deliver_due()
        wait = {"url": HOOK, "timeout": "1d", "step": {"stepId": 1}}
        for path in requests:
            body = wait if path.startswith("wait") else {}
            httpx.post(f"{queue.url}/v2/{path}", json=body, headers=headers)

    return run


def to_group(cloud: Cloud) -> None:
    """Publish to a URL group twice, in a batch, with the same deduplication ID."""
    message = {"destination": "group", "headers": {"Upstash-Deduplication-Id": "a"}}
    endpoints = {"endpoints": [{"url": HOOK}, {"url": f"{HOOK}/2"}]}
    publishes(("topics/group/endpoints", endpoints, {}), *[("batch", [message], {})] * 2)(cloud)


CASES: dict[str, Scene] = {
    "a retry after a later message": retried(500, 200, 200),
    "two messages in order": retried(200, 500, 200),
    "a schedule that was created twice": publishes(*[to("schedules", Cron="0 2 * * *")] * 2),
    "a schedule of each start of an application": restarts(
        to("schedules", {"report": "daily"}, Cron="CRON_TZ=Europe/Zurich 30 6 * * *")
    ),
    "two schedules of each start, one with an id": restarts(
        to("schedules", Cron="0 2 * * *", Schedule_Id="nightly"),
        to("schedules", Cron="@hourly", Retries="0"),
    ),
    "a schedule that is deleted before the next start": restarts(
        to("schedules", Cron="0 2 * * *"), deletes=True
    ),
    "schedules at other times": publishes(
        to("schedules", Cron="0 2 * * *"), to("schedules", Cron="0 3 * * *")
    ),
    "schedules with other bodies": publishes(
        to("schedules", "a", Cron="0 2 * * *"), to("schedules", "b", Cron="0 2 * * *")
    ),
    "a schedule with an id": publishes(
        *[to("schedules", Cron="0 2 * * *", Schedule_Id="nightly")] * 2
    ),
    "an earlier message of a queue": publishes(*[to("enqueue/mails", Deduplication_Id="a")] * 2),
    "another body of the same id": publishes(
        to("publish", "one", Deduplication_Id="a"), to("publish", "two", Deduplication_Id="a")
    ),
    "the same content": publishes(*[to("publish", content_based_deduplication="true")] * 2),
    "one of a batch": publishes(to("publish", Deduplication_Id="a"), batch("a", "b")),
    "a batch to a URL group": to_group,
    "the only message of a batch": publishes(
        to("publish", Deduplication_Id="a"), batch("a", body='"x"')
    ),
    "another body of the only message of a batch": publishes(
        to("publish", "one", Deduplication_Id="a"), batch("a")
    ),
    "the same content in a batch": publishes(
        *[
            (
                "batch",
                [{"destination": HOOK, "headers": {"Upstash-Content-Based-Deduplication": "true"}}],
                {},
            )
        ]
        * 2
    ),
    "a publish after other calls": publishes(
        ("batch", "no list", {}), *[to("publish", Deduplication_Id="a")] * 2
    ),
    "a request that came again": publishes(*[to("publish")] * 2, fault=loses_answer),
    "a request to a queue that came again": publishes(
        *[to("enqueue/mails")] * 2, fault=fails_afterwards
    ),
    "a request that came again although a fault only changed its answer": publishes(
        *[to("publish")] * 2,
        fault=lambda faults: faults.call(lambda: Response(body={}), "after", times=1),
    ),
    "a request that came again after one with an id": publishes(
        to("publish"), to("publish", Deduplication_Id="a"), to("publish"), fault=loses_answer
    ),
    "a header of a publish": publishes((f"publish/{HOOK}", "x", {"X-Tenant": "acme"})),
    "headers of a message in a queue": publishes(
        (f"enqueue/mails/{HOOK}", "x", {"x-tenant": "acme", "X-Trace": "1"})
    ),
    "a header of a schedule": publishes(
        (f"schedules/{HOOK}", "x", {"X-Tenant": "acme", "Upstash-Cron": "0 0 1 1 *"})
    ),
    "a retry delay of a schedule in seconds": publishes(
        (f"schedules/{HOOK}", "x", {"Upstash-Retry-Delay": "30", "Upstash-Cron": "0 0 1 1 *"})
    ),
    "a header that is forwarded": publishes(to("publish", Forward_X_Tenant="acme")),
    "headers of another request": publishes(("publish/nowhere", "x", {"X-Tenant": "acme"})),
    "the second of two answers": answered(200, 300),
    "a redirect to a login page": redirects(HOOK, 302, "/login"),
    "a redirect of each attempt to the URL with a slash": redirects(HOOK, 308, "/hook/", retries=2),
    "a redirect of a callback to HTTPS": redirects(CALLBACK, 301, CALLBACK),
    "an answer with a location": redirects(HOOK, 201, "/orders/1"),
    "an error with a location": redirects(HOOK, 404, "/login"),
    "a redirect that a callback reports": redirects(HOOK, 200, callback={"status": 302}),
    "one write twice": writes("INCR n", "INCR n"),
    "an element added twice": writes("RPUSH l a", "RPUSH l a"),
    "a value set twice": writes("SET k 1", "SET k 1"),
    "two writes twice": writes(*["INCR n & INCR m"] * 2),
    "twice and late": writes("INCR n", "INCR n", delay=True),
    "an exception that was logged": logs(299),
    "exceptions that were logged by two deliveries": logs(200, 202),
    "two bodies without an id": publishes(to("publish", "one"), to("publish", "two")),
    "a request with another body": publishes(
        to("publish", "one"), to("publish", "two"), fault=loses_answer
    ),
    "a request with an id that came again": publishes(
        *[to("publish", Deduplication_Id="a")] * 2,
        fault=lambda faults: faults.lose_response(times=2),
    ),
    "other writes of the second delivery": writes("INCR n", "INCR m"),
    "no write of the second delivery": writes("INCR n", ""),
    "no write at all": writes("", ""),
    "two writes of one delivery": writes("INCR n & INCR n", duplicate=False),
    "two publishings": publishes(
        to("publish", Deduplication_Id="a"), to("publish", Deduplication_Id="b")
    ),
    "callbacks of two attempts": called_back(500, 200),
    "callbacks of two attempts that append": called_back(500, 200, receiver="RPUSH log failed"),
    "callbacks of two attempts that add to a field": called_back(
        500, 200, receiver="HINCRBY stats failed 1"
    ),
    "callbacks of two attempts that only read": called_back(500, 200, receiver="GET failed"),
    "callbacks of two attempts that set a value": called_back(500, 200, receiver="SET failed 1"),
    "the callback of one attempt": called_back(200),
    "a repetition answered 409": loses(200, 409, 409),
    "a repetition answered 404": loses(201, 404, 200),
    "a repetition answered 422": loses(204, 500, 422),
    "a repetition answered 200": loses(200, 200),
    "a repetition after a failure": loses(500, 409, 200),
    "a delivery that came twice": loses(200, 409, fault="duplicate"),
    **{
        f"a delivery answered 200 with {name}": says(body)
        for name, body in {
            "a tuple": [{"error": "busy"}, 503],
            "a tuple with headers": ["busy", 429, {"Retry-After": "1"}],
            "an error": {"error": "no stock"},
            "no success": {"success": False},
            "a status of its own": {"statusCode": 500},
            "no error": {"error": None, "errors": [], "ok": True, "status": "open"},
            "numbers": [200, 404],
            "a list of pairs": [["a", 503]],
            "text": "error 503",
        }.items()
    },
    "a body of a callback stored in Base64": uses(lambda cloud, sent: store(cloud, sent["body"])),
    "a source body of a callback published in Base64": uses(
        lambda cloud, sent: publish(cloud, sent["sourceBody"])
    ),
    "a body of a callback parsed in Base64": uses(lambda cloud, sent: json.loads(sent["body"])),
    "a body of a callback stored as text": uses(
        lambda cloud, sent: store(cloud, base64.b64decode(sent["body"]).decode())
    ),
    "a callback stored as a whole": uses(lambda cloud, sent: store(cloud, json.dumps(sent))),
    "another text parsed by the handler of a callback": uses(lambda *_: json.loads("short")),
    "an id of a callback published": uses(
        lambda cloud, sent: publish(cloud, sent["sourceMessageId"])
    ),
    "a retry delay of milliseconds": publishes(to("publish", Retry_Delay="30")),
    "a retry delay of a minute": publishes(to("publish", Retry_Delay="60000")),
    "a retry delay that grows": publishes(to("publish", Retry_Delay="30 * 1000")),
    "a delay in milliseconds": publishes(to("publish", Delay="60000s")),
    "a delay of a minute": publishes(to("publish", Delay="60s")),
    "a delay of a day": publishes(to("publish", Delay="1d")),
    "a timeout in milliseconds": publishes(to("publish", Timeout="30000s")),
    "a timeout of half a minute": publishes(to("publish", Timeout="30s")),
    "an exception that was raised": raises(500),
    "an exception before a retry": raises(500, 200),
    "an exception that was logged before an error": logs(422),
    "an error without an exception": answered(500),
    **{
        f"a workflow run that writes {name}": in_a_run(*deliveries)
        for name, deliveries in {
            "outside of its steps": ("INCR n", "INCR n", "INCR n"),
            "a list outside of its steps": ("RPUSH l a", "RPUSH l a"),
            "before its step and after it": ("HINCRBY h f 1 & step", "HINCRBY h f 1"),
            "in each step": ("INCR n & step", "INCR n & step", ""),
            "once": ("step", "INCR n"),
            "a value": ("SET a 1", "SET a 1"),
            "before it sleeps": ("INCR n & sleep", "INCR n & step"),
            "an id made anew": ("SET order:5ad6f71e 1 & step", "SET order:77ab01c2 1"),
            "a time made anew": ("HSET o at t-1772366400 & step", "RPUSH l t-1772366401 & step"),
            "a UUID made anew": (
                "HSET locks a lock/0b5c9e52-8f6d-4c8e-9d1c-1f2a3b4c5d6e & step",
                "SADD open lock/1b5c9e52-8f6d-4c8e-9d1c-1f2a3b4c5d6e",
            ),
            "an id of two deliveries": ("SET order:5ad6f71e 1 & step", "GET order:5ad6f71e"),
            "parts with numbers": ("SET part:1 1 & step", "SET part:2 1 & step"),
            "ids of other things": ("SET order:5ad6f71e 1 & step", "SET user:77ab01c2 1"),
            "after another step of one delivery": ("step & step", ""),
            "between two steps of one delivery": ("step & SET k 1 & step", ""),
            "before two steps of one delivery": ("INCR n & step & step", ""),
            "what it has read": ("GET k & SET k 1 & step", "GET k"),
            "a field that it has read": ("HGET h f & HSET h f 1 & step", "HGET h f"),
            "a list whose length it has read": ("LLEN l & RPUSH l a & step", "LLEN l"),
            "nothing that it reads": ("GET k & step", "GET k & SET m 1"),
            "between two reads": ("GET k & SET k 1 & GET k & step", ""),
            "and reads something else": ("GET k & SET k 1 & step", "GET m"),
            "two ids in one step": ("SET a:5ad6f71e 1 & SET a:77ab01c2 1 & step", ""),
        }.items()
    },
    **{
        f"a workflow run that waits for {name}": waits(*requests)
        for name, requests in {
            "another event": ("wait/order-paid-7", "notify/paid-7"),
            "an event that came before": ("notify/paid", "wait/paid"),
            "one of two events": ("wait/a", "wait/b", "notify/a", "notify/c"),
            "an event that comes": ("wait/paid", "notify/paid"),
            "an event that comes twice": ("wait/paid", "notify/paid", "notify/paid"),
            "nothing": ("notify/paid",),
        }.items()
    },
}


test_findings = check("queue", CASES)
