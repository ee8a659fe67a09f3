"""Test every setting of a publish request, every filter, and endpoints that need more than a scenario.

The tests ``test_every_…_has_a_row`` compare the rows with the code. A new setting needs a scenario in
``tests/queue/scenarios/headers.txt``, a new filter a row here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest

from pytest_fakecloud.http.routing import Route
from pytest_fakecloud.queue.delivery.destinations import route_to
from pytest_fakecloud.queue.wire import headers, records

from ..scenarios import expanded, parts, play, scenarios
from ..scene import CALLBACK, DEST, NOW_MS, Scene

Settings = Mapping[str, str]


HEADERS = {name: lines for name, (_, lines) in scenarios("headers").items()}
EFFECTS = {
    name: [line for line in lines if not line.startswith("refused")]
    for name, lines in HEADERS.items()
    if not name.endswith(" in a callback")
}
REFUSED = [line for lines in HEADERS.values() for line in lines if line.startswith("refused")]


def spelled(line: str, prefix: str) -> str:
    """Return a line whose settings begin with another prefix if it publishes."""
    if not line.startswith("publish"):
        return line
    return line.replace("publish", "POST /v2/publish/DEST", 1).replace(" | -", f" | {prefix}-")


def as_query(line: str) -> str:
    """Return a line whose settings are query keys if it publishes."""
    if not line.startswith("publish"):
        return line
    request, *rest = re.split("( < | => )", line, maxsplit=1)
    headers = request.split(" | ")[1:]
    settings = [header[1:].split(": ", 1) for header in headers if header[0] == "-"]
    query = "&".join(f"upstash-{name.lower()}={quote(value)}" for name, value in settings)
    remaining = [header for header in headers if header[0] != "-"]
    return " | ".join([f"POST /v2/publish/DEST?{query}", *remaining]) + "".join(rest)


@pytest.mark.parametrize("prefix", ["Upstash", "Service", "upstash"])
@pytest.mark.parametrize("name", EFFECTS)
def test_a_header_has_its_effect(name: str, prefix: str) -> None:
    play({}, [spelled(line, prefix) for line in EFFECTS[name]])


@pytest.mark.parametrize("name", sorted(EFFECTS.keys() - {"content-type"}))
def test_a_header_may_be_a_query_key(name: str) -> None:
    play({}, [as_query(line) for line in EFFECTS[name]])


ITEM = {"destination": DEST, "url": DEST, "headers": {"Upstash-Deduplication-Id": "once"}}


@pytest.mark.parametrize(
    ("path", "status", "repeated"),
    [
        (f"/v2/publish/{DEST}", 200, 202),
        ("/v2/publish/group", 200, 202),
        (f"/v2/publish/{DEST}?upstash-cron=*+*+*+*+*", 200, 202),
        (f"/v2/enqueue/q/{DEST}", 200, 202),
        (f"/v2/schedules/{DEST}?upstash-cron=*+*+*+*+*", 200, 202),
        ("/v2/batch", 200, 200),
        (f"/v2/trigger/{DEST}", 200, 200),
        ("/v2/batch/trigger", 201, 201),
        (f"/v1/publish/{DEST}", 201, 202),
        (f"/v1/publish/{DEST}?upstash-cron=*+*+*+*+*", 201, 201),
    ],
)
def test_the_status_of_a_request_that_publishes(
    scene: Scene, path: str, status: int, repeated: int
) -> None:
    scene.ok("POST", "/v2/topics/group/endpoints", json={"endpoints": [{"url": DEST}]})
    sent = {"json": [ITEM]} if "batch" in path else {"headers": ITEM["headers"]}
    assert scene.request("POST", path, **sent).status == status
    assert scene.request("POST", path, **sent).status == repeated


@pytest.mark.parametrize("line", REFUSED)
def test_a_malformed_header_is_refused(scene: Scene, line: str) -> None:
    request, _, reply = expanded(line).partition(" => ")
    sent = dict(parts(request)[1])
    status, text = reply.split(" ", 1)
    item = {"destination": DEST, "headers": sent, "body": "x"}
    (refused,) = scene.ok("POST", "/v2/batch", json=[item]).json()
    assert refused["status"] == int(status)
    assert text in refused["error"]
    if not any(" " in name for name in sent):
        response = scene.request("POST", f"/v2/publish/{DEST}", sent)
        assert (response.status, response.json()) == (int(status), {"error": refused["error"]})
    assert scene.queue.messages() == []
    assert scene.get("/v2/schedules") == []


@pytest.mark.parametrize(("kind", "status"), [("Callback", "200"), ("Failure-Callback", "500")])
@pytest.mark.parametrize("name", sorted(HEADERS.keys() - EFFECTS.keys()))
def test_a_header_configures_a_callback(name: str, kind: str, status: str) -> None:
    lines = (line.replace("KIND", kind).replace("STATUS", status) for line in HEADERS[name])
    play({}, [spelled(line, "Upstash") for line in lines])


def test_every_header_has_a_row() -> None:
    read = set(headers._SETTINGS) | {
        *("callback-*", "failure-callback-*", "forward-*", "telemetry-*", "workflow-*"),
        *("content-type", "feature-set"),
    }
    assert {name.partition(":")[0] for name in EFFECTS} == read


GROUP = {"endpoints": [{"url": DEST, "name": "main"}, {"url": DEST + "2"}]}


def add_group(scene: Scene) -> None:
    scene.ok("POST", "/v2/topics/news/endpoints", json=GROUP)


def dead_letter(scene: Scene, **headers: str) -> str:
    scene.fail()
    message_id = scene.publish({"Upstash-Retries": "0", **headers}, b"payload")
    scene.queue.deliver_due()
    match = next(letter for letter in scene.queue.dead_letters() if letter.message.id == message_id)
    return match.id


@pytest.mark.parametrize("prefix", ["Upstash", "Service"])
@pytest.mark.parametrize(
    ("defaults", "sent", "shown"),
    [
        ({"Retries": "1"}, {}, {"maxRetries": 1}),
        ({"Retries": "1"}, {"Retries": "2"}, {"maxRetries": 2}),
        ({"Delay": ["10s"]}, {}, {"notBefore": NOW_MS + 10_000}),
        ({"Not-Before": "1767225700"}, {"Delay": "10s"}, {"notBefore": NOW_MS + 10_000}),
        ({"Delay": "10s"}, {"Not-Before": "1767225700"}, {"notBefore": NOW_MS + 100_000}),
        ({"Header-Forward": "true"}, {}, {"header": {"X-Plain": ["mine"]}}),
        ({"Header-Forward": "true"}, {"Header-Forward": "false"}, {"header": {}}),
        (
            {"Header-Forward": "true", "Forward-X-Plain": "group", "Forward-X-More": "m"},
            {},
            {"header": {"X-Plain": ["mine"], "X-More": ["m"]}},
        ),
        (
            {"Forward-X-Plain": "group"},
            {"Header-Forward": "true"},
            {"header": {"X-Plain": ["mine"]}},
        ),
        (
            {"Flow-Control-Key": "k", "Flow-Control-Value": "rate=3"},
            {"Flow-Control-Value": "rate=9"},
            {"flowControlKey": "k", "rate": 9},
        ),
        (
            {"Flow-Control-Key": "k", "Flow-Control-Value": "rate=3"},
            {},
            {"flowControlKey": "k", "rate": 3},
        ),
        ({"Label": "group", "Timeout": "5s"}, {"Label": "own"}, {"label": "own", "timeout": 5000}),
        (
            {"Callback": CALLBACK, "Callback-Retries": "1", "Callback-Forward-X": "g"},
            {"Callback-Forward-X": "own"},
            {"callback": CALLBACK, "callbackHeader": {"Retries": ["1"], "X": ["own"]}},
        ),
    ],
)
def test_default_headers_of_a_group_count_as_sent_and_what_was_sent_wins(
    scene: Scene, prefix: str, defaults: Settings, sent: Settings, shown: dict[str, Any]
) -> None:
    add_group(scene)
    named = {f"{prefix}-{name}": value for name, value in defaults.items()}
    scene.ok("PATCH", "/v2/topics/news", json={"headers": named})
    own = {"X-Plain": "mine", **{f"{prefix}-{name}": value for name, value in sent.items()}}
    batch = [{"destination": "news", "headers": own}]
    for answers in (
        scene.ok("POST", "/v2/publish/news", headers=own).json(),
        scene.ok("POST", "/v2/publish/news", headers=own | {"Upstash-Queue-Name": "line"}).json(),
        scene.ok("POST", "/v2/batch", json=batch).json()[0],
    ):
        assert len(answers) == 2
        for answer in answers:
            message = scene.get(f"/v2/messages/{answer['messageId']}")
            assert {name: message[name] for name in shown} == shown


def test_get_keys(scene: Scene) -> None:
    keys = scene.get("/v2/keys")
    assert keys == {
        "current": scene.queue.current_signing_key,
        "next": scene.queue.next_signing_key,
    }
    assert keys["current"].startswith("sig_")


def test_rotate_keys(scene: Scene) -> None:
    before = scene.get("/v2/keys")
    rotated = scene.ok("POST", "/v2/keys/rotate").json()
    assert rotated["current"] == before["next"]
    assert rotated["next"] not in before.values()
    assert scene.get("/v2/keys/rotate")["current"] == rotated["next"]


def with_flow(scene: Scene, value: str, count: int = 1, key: str = "k") -> list[str]:
    sent = {"Upstash-Flow-Control-Key": key, "Upstash-Flow-Control-Value": value}
    return [scene.publish(sent) for _ in range(count)]


@pytest.mark.parametrize("again", ["resetRate", "reset", "pin?rate=2&period=60"])
def test_a_fresh_period_counts_who_was_let_through_and_has_not_started(
    scene: Scene, again: str
) -> None:
    with_flow(scene, "rate=2,period=60s", 8)
    scene.queue.clock.advance(30)
    scene.ok("POST", "/v2/flowControl/k/resetRate")
    scene.ok("POST", f"/v2/flowControl/k/{again}")
    shown = scene.get("/v2/flowControl/k")
    assert (shown["rateCount"], shown["waitListSize"]) == (2, 4)
    scene.queue.run_until_idle()
    assert scene.times == [0, 0, 30, 30, 90, 90, 150, 150]


def test_chat(scene: Scene) -> None:
    path = "/llm/v1/chat/completions"
    stub = scene.queue.destinations.respond(
        "api/llm",
        (200, b'{"choices": []}', {"Content-Type": "application/json", "X-Model": "m"}),
        (429, "slow down", {"x-ratelimit-limit-requests": "5"}),
        (200, b"data: [DONE]\n\n", {"Content-Type": "text/event-stream"}),
        ConnectionError("cut"),
    )
    sent = {"Content-Type": "application/json", "X-Own": "1", "Connection": "keep-alive"}
    first = scene.ok("POST", path, headers=sent, json={"model": "m"})
    assert (first.json(), first.headers["X-Model"]) == ({"choices": []}, "m")
    (came,) = stub.deliveries
    assert (came.method, came.json()) == ("POST", {"model": "m"})
    assert came.url == "https://qstash.upstash.io/llm/v1/chat/completions"
    assert came.headers.get("X-Own") == "1"
    assert came.headers.get("Authorization") is None
    limited = scene.request("POST", path, json={})
    assert (limited.status, limited.headers["x-ratelimit-limit-requests"]) == (429, "5")
    streamed = scene.ok("POST", path, json={"stream": True})
    assert streamed.headers["Content-Type"] == "text/event-stream"
    assert streamed.body == b"data: [DONE]\n\n"
    broken = scene.request("POST", path, json={})
    assert (broken.status, broken.body) == (500, b"Internal Server Error")


def path_of(route: Route, name: str) -> str:
    """Return a path of a route whose parameters are a destination and a name."""
    path = route.pattern.replace("{destination*}", DEST)
    return re.sub(r"\{\w+\}", name, path)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("api/llm", "https://qstash.upstash.io/llm/v1/chat/completions"),
        ("api/email", "https://api.resend.com/emails"),
    ],
)
@pytest.mark.parametrize("by", ["name", "url"])
@pytest.mark.parametrize("way", ["/v2/publish/", "/v2/enqueue/line/", "/v2/schedules/", "batch"])
def test_a_destination_that_has_a_name(
    scene: Scene, name: str, url: str, by: str, way: str
) -> None:
    stub = scene.queue.destinations.respond(name if by == "name" else url, 200)
    headers = {"Upstash-Callback": CALLBACK, "Upstash-Forward-X-Api-Key": "k"}
    if way == "batch":
        scene.ok("POST", "/v2/batch", json=[{"destination": name, "headers": headers}])
    else:
        cron = {"Upstash-Cron": "* * * * *"} if "schedules" in way else {}
        scene.ok("POST", way + name, headers=headers | cron)
    scene.queue.clock.advance("1m")
    (came,) = stub.deliveries
    assert (came.url, came.headers.get("X-Api-Key")) == (url, "k")
    assert route_to(scene.queue.destinations, name) is stub
    assert scene.to(CALLBACK)[0].json()["url"] == url


def test_a_named_destination_without_a_handler() -> None:
    with Scene() as scene:
        scene.queue.destinations.clear()
        scene.publish({"Upstash-Retries": "0"}, url="api/email")
        (attempt,) = scene.queue.deliver_due()
        assert "https://api.resend.com/emails" in str(attempt.exception)
        refused = scene.request("POST", "/llm/v1/chat/completions", json={})
        assert refused.status == 502
        assert "no handler for POST https://qstash.upstash.io/llm" in refused.error
        kinds = [violation.kind for violation in scene.violations]
        assert kinds == ["unstubbed", "unstubbed"]
        unknown = scene.request("POST", "/v2/publish/api/fax")
        assert unknown.status == 400
        assert "endpoint has invalid scheme" in unknown.error
        assert "api/llm and api/email" in unknown.error


def test_a_stand_in_for_the_language_model_that_fails_its_test(scene: Scene) -> None:
    def fail(request: Any) -> None:
        pytest.fail("no such model")

    scene.queue.destinations.call("api/llm", fail)
    assert scene.request("POST", "/llm/v1/chat/completions", json={}).status == 500
    (violation,) = scene.violations
    assert "no such model" in violation.text
    assert scene.get("/v2/keys")["current"]


def test_a_v1_message_to_a_topic_is_found_by_its_id(scene: Scene) -> None:
    add_group(scene)
    message_id = scene.ok("POST", "/v1/publish/news").json()["messageId"]
    assert scene.queue.message(message_id).url == DEST


def test_every_endpoint_wants_the_token(scene: Scene) -> None:
    for route in scene.queue._app.table.routes:
        if "hooks" in route.pattern:
            continue
        path = path_of(route, "x")
        for verb in route.methods.split():
            response = scene.request(verb, path, token="wrong")
            assert (response.status, response.error) == (
                401,
                "unable to authenticate: invalid token",
            )
        verb = next(
            method
            for method in ("PUT", "PATCH", "GET", "OPTIONS")
            if method not in route.methods.split()
        )
        other = scene.request(verb, path)
        if other.status == 405:
            assert other.body == b"Method Not Allowed"
            assert other.headers["Content-Type"].startswith("text/plain")


def test_the_read_only_token_may_only_get(scene: Scene) -> None:
    message = scene.publish({"Upstash-Delay": "1h"})
    key = scene.queue.current_signing_key
    token = scene.queue.read_only_token
    shown = scene.request("GET", f"/v2/messages/{message}", token=token)
    assert (shown.status, shown.json()["messageId"]) == (200, message)
    changes = 0
    for route in scene.queue._app.table.routes:
        if "hooks" in route.pattern:
            continue
        path = path_of(route, message)
        for verb in route.methods.split():
            response = scene.request(verb, path, token=token)
            if verb == "GET" and not route.changes:
                # A request without a required parameter of the query gets a 400.
                assert response.status in (200, 400, 404), f"GET {path}: {response}"
                continue
            changes += 1
            assert response.status == 403
            assert response.error.startswith("forbidden: the read-only token can only GET")
            assert scene.request(verb, f"{path}?qstash_token={token}", token="").status == 403
    assert changes > 40
    assert scene.queue.current_signing_key == key
    assert [message.id for message in scene.queue.pending()] == [message]
    assert scene.request("PUT", "/v2/nowhere", token=token).status == 403
    old = scene.queue.token, token
    scene.queue.rotate_token()
    assert not {scene.queue.token, scene.queue.read_only_token} & set(old)
    assert [scene.request("GET", "/v2/keys", token=token).status for token in old] == [401, 401]


def test_the_token_may_be_in_the_query(scene: Scene) -> None:
    path = f"/v2/keys?qstash_token={scene.queue.token}"
    assert scene.request("GET", path, token="").status == 200


OTHER = "https://other.example.org:8443/path/x?q=1"


RUN = {
    "Upstash-Workflow-Init": "true",
    "Upstash-Workflow-RunId": "wfr_a",
    "Upstash-Workflow-Url": DEST,
}


def fill(scene: Scene, delay: str = "0s", run: Mapping[str, str] = RUN) -> dict[str, str]:
    """Publish two messages that differ in every property, and fail unless delayed; return ids."""
    scene.answer = lambda request: 404 if request.url == DEST else 500
    add = scene.ok
    add("POST", "/v2/topics/group-a/endpoints", json={"endpoints": [{"url": DEST}]})
    a = add(
        "POST",
        "/v2/publish/group-a",
        headers={
            "Upstash-Queue-Name": "queue-a",
            "Upstash-Label": "red,round",
            "Upstash-Retries": "0",
            "Upstash-Delay": delay,
            "Upstash-Flow-Control-Key": "flow-a",
            "Upstash-Flow-Control-Value": "rate=9",
            **run,
        },
    ).json()[0]["messageId"]
    scene.queue.deliver_due()
    settings = {"Upstash-Retries": "0", "Upstash-Delay": delay}
    scene.queue.schedule(OTHER, "* * * * *", id="schedule-b", settings=settings)
    scene.queue.clock.advance("1m")
    scene.ok("DELETE", "/v2/schedules/schedule-b")
    return {"a": a, "b": scene.queue.messages(url=OTHER).only().id}


# Filter -> (value that matches only the first message, value that matches only the second).
FILTERS: dict[str, tuple[str, str]] = {
    "messageId": ("{a}", "{b}"),
    "messageIds": ("{a}", "{b}"),
    "url": (DEST, OTHER),
    "topicName": ("group-a", ""),
    "urlGroup": ("group-a", ""),
    "queueName": ("queue-a", ""),
    "scheduleId": ("", "schedule-b"),
    "label": ("round", ""),
    "labels": ("red", ""),
    "flowControlKey": ("flow-a", ""),
    "callerIp": ("", ""),
    "callerIP": ("", ""),
    "workflowRunId": ("wfr_a", ""),
    "workflowUrl": (DEST, ""),
    "workflowCreatedAt": (str(NOW_MS), ""),
    "source": ("workflow", "qstash"),
    "failureFunctionState": ("", ""),
    "responseStatus": ("404", "500"),
    "dlqId": ("{dlq_a}", "{dlq_b}"),
    "dlqIds": ("{dlq_a}", "{dlq_b}"),
    "host": ("app.example.com", "other.example.org:8443"),
    "path": ("/hook", "/path/x"),
    "fromDate": ("", str(NOW_MS + 60_000)),
    "toDate": (str(NOW_MS + 59_999), ""),
    "state": ("", ""),
    "cursor": ("", ""),
    "count": ("", ""),
    "order": ("", ""),
}
# Filters with tests of their own, because they do not select one of the two messages.
ALONE = {"callerIp", "callerIP", "state", "cursor", "count", "order", "failureFunctionState"}
# Filters that match no log entry, because the messages of workflow runs are not in this log.
OF_RUNS = {"workflowRunId", "workflowUrl", "workflowCreatedAt"}


def cases(filters: frozenset[str]) -> list[Any]:
    return [
        pytest.param(name, which, FILTERS[name][index], id=f"{name}-{which}")
        for name in sorted(filters - ALONE)
        for index, which in enumerate("ab")
        if FILTERS[name][index]
    ]


def value_of(scene: Scene, ids: Mapping[str, str], template: str) -> str:
    letters = zip(("dlq_a", "dlq_b"), scene.queue.dead_letters(), strict=False)
    named = ids | {name: letter.id for name, letter in letters}
    return quote(template.format(**named), safe="")


@pytest.mark.parametrize(("name", "which", "template"), cases(records.FOR_DEAD_LETTERS))
def test_a_filter_of_dead_letters(scene: Scene, name: str, which: str, template: str) -> None:
    ids = fill(scene)
    events = scene.get(f"/v2/dlq?{name}={value_of(scene, ids, template)}")["messages"]
    assert [event["messageId"] for event in events] == [ids[which]]
    deleted = scene.ok("DELETE", f"/v2/dlq?{name}={value_of(scene, ids, template)}")
    assert deleted.json() == {"deleted": 1}
    assert scene.queue.dead_letters().only().message.id != ids[which]


@pytest.mark.parametrize(
    ("name", "which", "template"), cases(records.FOR_LOGS - OF_RUNS - {"source"})
)
def test_a_filter_of_logs(scene: Scene, name: str, which: str, template: str) -> None:
    ids = fill(scene, run={})
    events = scene.get(f"/v2/events?{name}={value_of(scene, ids, template)}")["events"]
    assert {event["messageId"] for event in events} == {ids[which]}


@pytest.mark.parametrize(
    ("name", "which", "template"), cases(frozenset({*OF_RUNS, "source", "messageId"}))
)
def test_no_filter_of_logs_selects_messages_of_runs(
    scene: Scene, name: str, which: str, template: str
) -> None:
    ids = fill(scene)
    events = scene.get(f"/v2/events?{name}={value_of(scene, ids, template)}")["events"]
    assert {event["messageId"] for event in events} == ({ids["b"]} if which == "b" else set())


@pytest.mark.parametrize(("name", "which", "template"), cases(records.FOR_MESSAGES))
def test_a_filter_of_cancelling(scene: Scene, name: str, which: str, template: str) -> None:
    ids = fill(scene, delay="1h")
    path = f"/v2/messages?{name}={value_of(scene, ids, template)}"
    assert scene.ok("DELETE", path).json() == {"cancelled": 1}
    assert scene.queue.messages(state="cancelled").only().id == ids[which]


@pytest.mark.completeness
def test_every_filter_has_a_row() -> None:
    filters = records.FOR_DEAD_LETTERS | records.FOR_LOGS | records.FOR_MESSAGES
    assert set(FILTERS) == filters


@pytest.mark.parametrize("path", ["/v2/events", "/v2/logs"])
def test_a_page_of_logs_holds_a_thousand_at_most(scene: Scene, path: str) -> None:
    scene.ok("POST", "/v2/batch", json=[{"destination": DEST}] * 2500)
    for query, size in (("", 1000), ("?count=2000", 1000), ("?count=101", 101)):
        first = scene.get(path + query)
        assert len(first["events"]) == size
    sizes, seen, cursor = [], set(), ""
    while cursor is not None:
        page = scene.get(path + (f"?cursor={cursor}" if cursor else ""))
        sizes.append(len(page["events"]))
        seen |= {row["messageId"] for row in page["events"]}
        cursor = page.get("cursor")
    assert (sizes, len(seen)) == ([1000, 1000, 500], 2500)


def test_a_thousand_bulk_actions_are_in_progress_at_most() -> None:
    with Scene(bulk_action_time="1m") as scene:
        message_id = scene.publish({"Upstash-Delay": "1h"})
        for number in range(1000):
            scene.queue._engine.bulk_actions.cancel(
                "qstash", {"label": [str(number)]}, [message_id], asynchronous=True, count=None
            )
        assert scene.request("DELETE", "/v2/messages?label=999&async=true").status == 202
        for path in ("/v2/messages", "/v2/workflows/runs"):
            for query in ("?label=other", "?label=other&async=true"):
                refused = scene.request("DELETE", path + query)
                assert refused.status == 412
                assert refused.error == "quota maxBulkActions exceeded, current limit: 1000"
        scene.queue.clock.advance("1m")
        assert scene.request("DELETE", "/v2/messages?label=other").status == 202


@pytest.mark.parametrize("template", ["%s", '"%s"', '["%s"]', ' "%s" \n', "%s\n"])
def test_an_id_by_itself_is_a_body_of_a_bulk_operation(scene: Scene, template: str) -> None:
    message_id = scene.publish({"Upstash-Delay": "1h"})
    message = scene.publish({"Upstash-Delay": "1h"})
    cancelled = scene.ok("DELETE", "/v2/messages", body=(template % message).encode())
    assert cancelled.json() == {"cancelled": 1}
    assert [message.id for message in scene.queue.pending()] == [message_id]
    first, second, last = dead_letter(scene), dead_letter(scene), dead_letter(scene)
    deleted = scene.ok("DELETE", "/v2/dlq", body=(template % first).encode())
    assert deleted.json() == {"deleted": 1}
    retried = scene.ok("POST", "/v2/dlq/retry", body=(template % second).encode())
    assert len(retried.json()["responses"]) == 1
    of_runs = scene.ok("DELETE", "/v2/workflows/dlq", body=(template % last).encode())
    assert of_runs.json() == {"deleted": 0}
    run = {"Upstash-Workflow-RunId": "wfr_1", "Upstash-Workflow-Init": "true"}
    scene.publish(run | {"Upstash-Delay": "1h"})
    ended = scene.ok("DELETE", "/v2/workflows/runs", body=(template % "wfr_1").encode())
    assert ended.json() == {"cancelled": 1}
    assert [letter.id for letter in scene.queue.dead_letters()] == [last]


@pytest.mark.parametrize("path", ["/v2/messages", "/v2/dlq", "/v2/workflows/runs"])
def test_a_body_without_an_id_never_means_all(scene: Scene, path: str) -> None:
    scene.publish({"Upstash-Workflow-RunId": "r", "Upstash-Workflow-Init": "true"})
    letter = dead_letter(scene)
    assert set(scene.ok("DELETE", path, body=b"[]").json().values()) == {0}
    for body in (
        *(b'""', b'[""]', b"[null]", b'"  "', b"null", b"true", b"17", b"1.5e", b"[{}]", b"[[1]]"),
        *(b'"', b"msg_a b", b"text", b'"text"', b"\xff", b'["msg_a", 1]'),
    ):
        assert scene.request("DELETE", path, body=body).status == 400
    assert [letter.id for letter in scene.queue.dead_letters()] == [letter]
    assert scene.get("/v2/workflows/events")["runs"][0]["workflowState"] == "RUN_STARTED"
