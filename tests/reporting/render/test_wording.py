"""The wording of each kind of call, and of calls with malformed bodies."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import flask
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upstash_workflow.flask import Serve

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.bodies import scalar
from pytest_fakecloud.core.characters import shortened
from pytest_fakecloud.kv.report import wording
from pytest_fakecloud.process.applications import ServedRequest
from pytest_fakecloud.queue.report.lookups import message_name
from pytest_fakecloud.reporting.lookups import lookups_of
from pytest_fakecloud.reporting.render.text import section, text
from pytest_fakecloud.reporting.report import report_of

from ...notations import golden
from ..findings.cases import commands
from ..shown import lines, shown

EXPECTED = Path(__file__).parents[1] / "expected" / "rows.txt"
SHOP = "https://shop.example.com"
HOOK = "https://app.example.com/hook"


def judge(name: str, actual: list[str]) -> None:
    golden(EXPECTED, actual, name)


# -- key-value server ------------------------------------------------------------------------------

COMMANDS: list[list[Any]] = [
    ["set", "k", "v"], ["GET", "k"], ["INCR", "n"], ["SET", "two words", ""],
    ["LRANGE", "l", 0, -1], ["LPUSH", "l"], ["SET", "k", '{"a": 1}'],
    ["EVALSHA", "f" * 40, 1, "k", "a"], ["EVAL", "return 1", 0],
    ["AUTH", "somebody", "their password"], ["EVAL", "return 1", 1, "k"],
    ["eval", "return ARGV[1]", 0, "a"], ["EVAL", "return ARGV[1]", 2, "k", "l", "a", "b"],
    ["EVAL", "return 1", "x"], ["SET", "k", "[1, 2"], ["SET", "k", "[1,   2]"], ["MGET", "a", "b"],
]  # fmt: skip


def test_commands(cloud: Cloud) -> None:
    for command in COMMANDS:
        kv = cloud.kv_server()
        httpx.post(kv.url, json=command, headers=kv.headers)
    judge("kv", lines(cloud))


@pytest.mark.parametrize(
    ("command", "date"),
    [
        ("SET k v PXAT 1782896400000", "(2026-07-01 09:00:00Z)"),
        ("SET exat v px 5 exat 1782896400", "(2026-07-01 09:00:00Z)"),
        ("GETEX k EXAT 1782896400", "(2026-07-01 09:00:00Z)"),
        ("EXPIREAT spx:1 1782896400", "(2026-07-01 09:00:00Z)"),
        ("PEXPIREAT k 1782896400000", "(2026-07-01 09:00:00Z)"),
        ("HGETEX h EXAT 1782896400 FIELDS 1 f", "(2026-07-01 09:00:00Z)"),
        ("HEXPIREAT h 1782896400 FIELDS 1 f", "(2026-07-01 09:00:00Z)"),
        ("HGETEX h PERSIST FIELDS 2 EXAT 1782896400", ""),
        ("RPUSH q x EXAT 1782896400", ""),
        ("EXPIREAT k", ""),
    ],
)
def test_an_absolute_expiry_is_shown_as_a_date(command: str, date: str) -> None:
    shown = wording.command_text(command.split())
    assert shown == f"{command} {date}".rstrip()


@pytest.mark.parametrize(
    ("milliseconds", "expected"), [(60, "0.06 s"), (600, "0.6 s"), (3600, "3.6 s")]
)
def test_a_duration_of_a_finding(cloud: Cloud, milliseconds: int, expected: str) -> None:
    commands(f"SET k 1 PX {milliseconds}")(cloud)
    assert f"PX {milliseconds} of k is {expected}" in section(cloud)


def test_a_pipeline_of_one_command_is_shown_as_the_command(cloud: Cloud) -> None:
    commands("pipeline: SET a 1")(cloud)
    (row,) = shown(cloud)
    assert (row.words.what, row.words.answer, row.words.below) == ("SET a 1", "OK", ())


def test_of_a_long_pipeline_the_first_and_all_errors_are_told(cloud: Cloud) -> None:
    commands(f"pipeline: {' & '.join(f'SET k{index} v' for index in range(40))} & INCR k0")(cloud)
    judge("pipeline", [shown(cloud)[0].line, *shown(cloud)[0].words.below])


def test_a_repeated_explanation_of_a_row_without_answer_is_not_shown_again(cloud: Cloud) -> None:
    raised = f"the handler raised KeyError: {'x' * 60}"
    served = [
        ServedRequest(n, n, f"GET /{n}", "Flask", None, 0, ended=n + 1, raised=raised)
        for n in (10, 20)
    ]
    shown_text = text(report_of(cloud, served=served))
    assert shown_text.count("x" * 60) == 1
    assert "GET /20 (Flask) (as above)" in shown_text


def test_a_command_with_many_arguments_says_how_many(cloud: Cloud) -> None:
    commands(f"DEL {' '.join(f'key:{number}' for number in range(500))}")(cloud)
    (line,) = lines(cloud)
    assert line.endswith(" key:34 ... (500 arguments, 35 shown) <-- 0")


def test_a_script_is_shown_once(cloud: Cloud) -> None:
    script = shlex.quote("local n = redis.call('INCR', KEYS[1])\nreturn n")
    commands(f"EVAL {script} 1 a | EVAL {script} 1 b")(cloud)
    text = section(cloud)
    assert text.count("local n = redis.call('INCR', KEYS[1])") == 1
    assert text.count("EVAL ") == 2


def test_a_long_script_is_cut_with_the_number_of_its_lines(cloud: Cloud) -> None:
    script = "\n".join(f"local v{number} = {number}" for number in range(23))
    commands(f"EVAL '{script}' 0")(cloud)
    text = section(cloud)
    assert "local v19 = 19\n" in text
    assert "... 3 more lines" in text
    assert "v20" not in text


def test_removed_faults_are_a_row(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv.faults.respond(503)
    kv.faults.clear()
    kv.client().ping()
    assert "kv_server faults cleared" in section(cloud)


def test_a_holding_block_has_two_rows(cloud: Cloud) -> None:
    with cloud.vector_index(dimension=2).holding():
        pass
    assert "vector_index.holding() began; vector_index.holding() ended" in section(cloud)


# -- findings --------------------------------------------------------------------------------------


# -- vector index ----------------------------------------------------------------------------------

VECTORS: list[tuple[str, Any]] = [
    ("upsert", {"id": "b", "vector": [0, 1]}),
    ("upsert", [{"id": "b", "vector": [0, 1], "metadata": {"n": "1", "m": 1}},
                {"id": 7, "vector": [1, 1]}]),
    ("query", {"vector": [1, 0], "topK": 1}),
    ("query/space", {"vector": [1, 0], "filter": "n = 1"}),
    ("query", {"vector": [1, 0], "includeMetadata": True}),
    ("fetch", {"ids": ["a", "z"]}),
    ("delete", ["a", "z"]),
    ("list-namespaces", None),
    ("reset", None),
    ("upsert", None),
    ("upsert", {"id": "", "vector": [0, 1]}),
    ("upsert", {"id": "b", "vector": [0, 1], "data": "two words",
                "metadata": {"a": None, "b": [1]}}),
    ("update", {"id": "a", "metadata": {"n": "y"}}),
    ("delete", {"metadata": {"n": "y"}}),
    ("no-such-route", {"id": "a"}),
    ("delete", {"prefix": "a"}),
    ("delete", {"filter": "n = 1"}),
    ("fetch", {"ids": []}),
    ("fetch", {"ids": ["z"]}),
    ("fetch", {"ids": ["a"], "includeVectors": True, "includeData": False,
               "includeMetadata": True}),
    ("range", {"cursor": "0", "limit": 10}),
    ("query", [{"vector": [1, 0], "topK": 1}, {"vector": [1, 0], "filter": "n = 1"}]),
    ("resumable-query", {"vector": [1, 0], "topK": 1}),
    ("query", {"vector": [1, 0, 0]}),
    ("query", {"data": "two words", "queryMode": "DENSE"}),
]  # fmt: skip


def test_vectors(cloud: Cloud) -> None:
    for path, body in VECTORS:
        index = cloud.vector_index()
        index.load([{"id": "a", "vector": [1, 0], "metadata": {"n": "x"}}])
        httpx.post(f"{index.url}/{path}", json=body, headers=index.headers)
    judge("vector", lines(cloud))


def test_the_info_of_an_index_has_its_counts_first(cloud: Cloud) -> None:
    index = cloud.vector_index(ready_after="5s")
    index.load([{"id": "a", "vector": [1, 0]}], namespace="globex")
    for name in ("a", "b"):
        body = {"id": name, "vector": [1, 0]}
        httpx.post(f"{index.url}/upsert/acme", json=body, headers=index.headers)
    httpx.get(f"{index.url}/info", headers=index.headers)
    judge("info", lines(cloud)[2:])


# -- broker ----------------------------------------------------------------------------------------

POSITION = {"topic": "t", "partition": 0, "offset": 1}
BROKER: list[tuple[str, Any]] = [
    ("produce/t", {"value": "v", "key": "k"}),
    ("produce", [{"topic": "t", "value": "1"}]),
    ("produce", [{"topic": "t", "value": "x"}, {"topic": "u", "value": "y"}]),
    ("consume/g/i", {"topic": "t"}),
    ("commit/g/i", POSITION),
    ("commit/g/i", POSITION | {"offset": 9}),
    ("commit/g/i", None),
    ("fetch", POSITION),
    ("committed/g/i", [{"topic": "t", "partition": 0}]),
    ("committed/g/i", {"topic": "t", "partition": 0}),
    ("commit/g/i", []),
    ("commit/g/i", POSITION | {"offset": 2}),
    ("commit/g/i", [POSITION, POSITION | {"offset": 2}]),
    ("produce/t", None),
    ("produce/t", {"value": "v", "partition": 0}),
    ("produce/t", [{"value": str(number)} for number in range(7)]),
    ("consume/g/i", {"topics": ["t", "u"]}),
    ("fetch", {"topic": "u", "partition": 0, "offset": 0}),
    ("fetch", {"topicPartitionOffsets": [POSITION, {"topic": "u", "partition": 0, "offset": 0}]}),
    ("fetch", {**POSITION, "topicPartitionOffsets": [{"topic": "u", "partition": 0, "offset": 0}]}),
]


def test_the_broker(cloud: Cloud) -> None:
    texts = []
    for number, (path, body) in enumerate(BROKER):
        broker = cloud.broker(topics={"t": 1, "u": 1}, name=f"broker{number}")
        broker.produce("t", "one", key="bob")
        broker.produce("t", "2")
        client, earliest = broker.client(), {"Kafka-Auto-Offset-Reset": "earliest"}
        if path.startswith("commit"):
            client.get("/consume/g/i/t", headers=earliest)
        client.post(path, json=body, headers=earliest)
        texts.append([row.line for row in shown(cloud) if row.row.kind == "call"][-1])
    judge("broker", texts)


def test_a_value_may_be_long_and_its_topic_have_partitions(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"wide": 2})
    for sent in ({"value": "v" * 81}, {"value": "v", "partition": 1}, {"value": "v", "key": "k"}):
        broker.client().post("/produce/wide", json=sent)
    calls = [row.words.what for row in shown(cloud)]
    assert calls[0].startswith('produce wide no key: "vvv')
    assert len(calls[0].partition("key: ")[2]) == 79
    assert calls[1:] == ['produce wide-1 "v"', 'produce wide key k "v"']


# -- queue -----------------------------------------------------------------------------------------


def test_the_queue(cloud: Cloud) -> None:
    queue = cloud.queue()
    url = "https://app.example.com/hook"

    def publish(path: str, body: Any, **settings: str) -> None:
        headers = {f"Upstash-{name.replace('_', '-')}": value for name, value in settings.items()}
        httpx.post(f"{queue.url}/v2/{path}", json=body, headers={**queue.headers, **headers})

    publish(f"publish/{url}", {"n": 1}, Delay="2h", Deduplication_Id="o-1", Retries="3")
    cloud.clock.advance("5s")
    publish(f"publish/{url}", {"n": 1}, Deduplication_Id="o-1", Method="PUT")
    publish(f"enqueue/mails/{url}", {"n": 2})
    publish("batch", [{"destination": url, "body": "x", "headers": {"Upstash-Delay": "1m"}}])
    judge("queue", [part for row in shown(cloud) for part in (row.line, *row.words.below)])


PUBLISHED: list[tuple[str, dict[str, str], Any]] = [
    (f"publish/{HOOK}", {"Content-Type": "text/html"}, "<html><body><h1>Oh no</h1></body></html>"),
    (
        f"publish/{HOOK}",
        {"Content-Based-Deduplication": "true", "Forward-X-Tenant": "acme", "Label": "a"},
        "x",
    ),
    (f"publish/{HOOK}", {"Retries": "many"}, "x"),
    (f"schedules/{HOOK}", {"Cron": "0 9 * * *", "Schedule-Id": "s"}, "x"),
    (f"schedules/{HOOK}", {"Cron": "CRON_TZ=Europe/Berlin 0 9 * * *", "Schedule-Id": "s"}, ""),
    (f"enqueue/mails/{HOOK}", {"Method": "GET"}, ""),
    ("publish/group", {}, "x"),
    ("batch", {}, "[]"),
    ("batch", {}, [{"destination": "group", "body": "x"}, {"destination": HOOK}]),
    (
        "batch",
        {},
        [{"destination": HOOK, "cron": "* * * * *"}, {"destination": HOOK, "queue": "mails"}],
    ),
    (f"publish/{HOOK}", {"Not-Before": "1782896400"}, ""),
    (f"publish/{HOOK}", {"Not-Before": "soon"}, ""),
    # A long body makes room for the settings.
    (f"publish/{HOOK}", {}, "x" * 500),
    (f"publish/{HOOK}", {"Callback": f"{HOOK}/{'c' * 60}", "Label": "l" * 40}, "x" * 500),
]


def test_publish_requests(cloud: Cloud) -> None:
    for path, headers, body in PUBLISHED:
        queue = cloud.queue()
        sent = {n if n == "Content-Type" else f"Upstash-{n}": v for n, v in headers.items()}
        endpoints = {"endpoints": [{"url": HOOK}, {"url": f"{HOOK}/2"}]}
        httpx.post(f"{queue.url}/v2/topics/group/endpoints", json=endpoints, headers=queue.headers)
        content = body if isinstance(body, str) else json.dumps(body)
        httpx.post(f"{queue.url}/v2/{path}", content=content, headers={**queue.headers, **sent})
    judge("publish", [line for line in lines(cloud) if "endpoints" not in line])


def test_the_messages_of_a_batch_have_lines_of_their_own(cloud: Cloud) -> None:
    queue = cloud.queue()
    items = [
        {"destination": HOOK, "headers": {"upstash-method": "PUT", "Upstash-Retries": "2"}},
        {"destination": HOOK, "body": "y" * 61},
        {"destination": HOOK, "body": json.dumps(
            {"stepId": 2, "stepName": "cool", "stepType": "SleepFor", "out": "1", "sleepFor": "1d"}
        )},
        {"destination": HOOK, "body": json.dumps(
            {"stepId": 0, "stepName": "pack", "stepType": "Run", "targetStep": 3}
        )},
    ]  # fmt: skip
    httpx.post(f"{queue.url}/v2/batch", json=items, headers=queue.headers)
    first, second, third, fourth = shown(cloud)[0].words.below
    assert third == 'step 2 "cool" (SleepFor) result 1'
    assert fourth == 'plan of step 3 "pack" (Run)'
    assert first == f"PUT {HOOK} retries 2"
    assert "…" in second
    assert len(second) <= len(HOOK) + 61


def test_values_in_base64_are_decoded_where_the_client_asked_for_it(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    lines_of_a_pipeline = [
        ["SET", "a", "x"], ["GET", "a"], ["HSET", "h", "f", "v"], ["HGETALL", "h"],
        ["INCR", "a"], ["LPUSH", "a"], ["EVAL", "return 1", 0],
    ]  # fmt: skip
    for path, body in (("pipeline", lines_of_a_pipeline), ("", ["GET", "a"])):
        headers = {**kv.headers, "Upstash-Encoding": "base64"}
        httpx.post(f"{kv.url}/{path}", json=body, headers=headers)
    httpx.post(kv.url, json=["SET", "b", "b2s="], headers=kv.headers)
    httpx.post(kv.url, json=["GET", "b"], headers=kv.headers)
    pipeline = shown(cloud)[0]
    judge("Base64", [*lines(cloud), *pipeline.words.below])
    assert pipeline.words.script == ("e0e1f9fa", "return 1")


# -- texts -----------------------------------------------------------------------------------------


@given(st.text(), st.text(), st.integers(12, 80))
def test_what_is_shortened_stays_different(first: str, second: str, most: int) -> None:
    assert len(shortened(first, most)) <= most
    if shortened(first, most) == shortened(second, most) and len(first) <= most:
        assert first == second


@given(st.text() | st.integers() | st.none() | st.booleans() | st.floats(allow_nan=False))
def test_scalars_of_different_types_differ(value: Any) -> None:
    shown_value = scalar(value)
    others = (None, True, False, 0, 1, "", "0", "null", "true")
    assert all(scalar(other) != shown_value for other in others if type(other) is not type(value))


@pytest.mark.parametrize("body", [b"[1,2", b"{}", b"[[]]", b"7", b'"x"', b"[null]", b"\xff", b""])
def test_no_body_keeps_a_report_from_being_made(cloud: Cloud, body: bytes) -> None:
    kv, index, queue = cloud.kv_server(), cloud.vector_index(), cloud.queue()
    broker = cloud.broker(topics={"t": 1})
    capture = cloud.callback_capture()
    for fake, paths in (
        (kv, ("", "pipeline", "multi-exec")),
        (index, ("upsert", "query", "fetch", "delete", "range")),
        (queue, ("v2/batch", "v2/publish/https://a.b/", "v2/schedules/https://a.b")),
        (broker, ("produce", "produce/t", "fetch", "commit/g/i", "committed/g/i", "consume/g/i")),
        (capture, ("callback", "failure")),
    ):
        for path in paths:
            httpx.post(f"{fake.url}/{path}", content=body, headers=fake.headers)
    text = section(cloud)
    assert "cannot be shown" not in text
    assert "cannot be described" not in text
    assert len(shown(cloud)) >= 19


@pytest.mark.parametrize(
    ("score", "shown"), [(1, "1"), (0.5, "0.5"), (0.99994, "0.9999"), (0.9999909, "0.99999")]
)
def test_a_score_close_to_one_is_not_shown_as_one(score: float, shown: str) -> None:
    from pytest_fakecloud.vector.report.wording import _score

    assert _score(score) == shown


@pytest.mark.parametrize("length", [1, 20, 45, 200])
def test_an_arrow_stays_with_its_answer(cloud: Cloud, length: int) -> None:
    client = cloud.kv_server().client()
    client.set("key", "v" * length)
    client.get("key")
    for width in range(40, 100):
        lines = section(cloud, width=width).splitlines()
        assert not [line for line in lines if line.endswith("<--")]
        assert [line for line in lines if "<-- v" in line]


# -- workflow runs ---------------------------------------------------------------------------------


def test_the_steps_of_a_workflow_run(cloud: Cloud) -> None:
    """A delivery that fails is the same step in its next attempt; the last one executes none. A
    callback after which the run waits for a retry belongs to the step that it reports on.
    """
    queue = cloud.queue()
    tries: list[int] = []
    app = flask.Flask("shop")

    @Serve(app).route(
        "/flow", url=f"{SHOP}/flow", qstash_client=queue.client(), receiver=None, retries=1
    )
    def flow(context: Any) -> None:
        def charge() -> Any:
            tries.append(1)
            if len(tries) == 1:
                raise RuntimeError("declined")
            return {"charged": context.request_payload["price"]}

        context.sleep("cool down", 60)
        context.run("charge", charge)
        context.call("tell", url=f"{SHOP}/told", method="PUT", body={"id": 7}, retries=1)

    queue.destinations.respond(f"{SHOP}/told", 503, (200, "yes"))
    queue.destinations.wsgi(f"{SHOP}/flow", app)
    settings = {"Upstash-Workflow-Init": "true", "Upstash-Workflow-RunId": "wfr_7-of-ada"}
    settings |= {"Upstash-Workflow-Url": f"{SHOP}/flow"}
    headers = {"Upstash-Workflow-Sdk-Version": "1"}
    queue.publish(f"{SHOP}/flow", json={"price": 9}, settings=settings, headers=headers)
    queue.run_until_idle()
    with httpx.Client(base_url=queue.url, headers=queue.headers) as client:
        wait = {"stepId": 4, "stepName": "paid", "stepType": "Wait", "concurrent": 1}
        client.post("/v2/wait/paid-7", json={"url": f"{SHOP}/flow", "step": wait})
    rows = [row for row in shown(cloud) if row.row.service == "queue" or row.row.kind == "delivery"]
    judge("workflow", [text for row in rows for text in (row.line, *row.below, *row.remarks[:1])])
    [failed] = [row for row in rows if row.words.answer.startswith("500")]
    assert failed.row.source.delivery is not None
    lookups = lookups_of(cloud, list(cloud.journal.entries), [])
    assert message_name(failed.row.source.delivery.message_id, lookups).endswith('(step "charge")')
    assert failed.row.attempt == 1
