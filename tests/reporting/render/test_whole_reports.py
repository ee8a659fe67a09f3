"""Complete reports of scenes with every kind of row, as text and as JSON."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.services import SERVICES, fake_class, services_by_word
from pytest_fakecloud.process.applications import ServedRequest
from pytest_fakecloud.reporting.accesses import EVERY_KIND, SubjectKind
from pytest_fakecloud.reporting.model import APPLICATION, CLIENT, CONSOLE, TEST, Kind, Mark
from pytest_fakecloud.reporting.render.as_json import as_json, write
from pytest_fakecloud.reporting.render.text import text
from pytest_fakecloud.reporting.report import report_of

from ...notations import golden
from ..shown import deliver

TEXTS = Path(__file__).parents[1] / "expected"
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs/reference/report.schema.json").read_text(encoding="utf-8")
)
HOOK = "https://app.example.com/hook?from=shop"
BACK = "https://app.example.com/back"


def publishes(cloud: Cloud) -> None:
    """Make attempts that fail in several ways, with bodies, headers, callbacks and logged
    exceptions.
    """
    queue, capture = cloud.queue(), cloud.callback_capture()
    answers = iter([500, (422, {"error": "no customer"}), (302, ""), 200])

    def take(request: Any) -> Any:
        logging.getLogger("shop").error("no order", exc_info=KeyError("customer"))
        return next(answers)

    queue.destinations.call("https://app.example.com/hook", take)
    queue.destinations.respond(BACK, 500, 200)
    for body, headers in (
        (b'{"customer": {}}', {"X-Tenant": "acme", "X-Other": "1"}),
        (b"", {"X-Tenant": "acme"}),
        (b"text", {}),
        (b"text", {}),
    ):
        sent = {f"Upstash-Forward-{name}": value for name, value in headers.items()}
        wants = {
            "Upstash-Retries": "0",
            "Upstash-Callback": BACK,
            "Content-Type": "application/json",
        }
        wants["Upstash-Failure-Callback"] = capture.callback_url
        url = f"{queue.url}/v2/publish/{HOOK}"
        httpx.post(url, content=body, headers={**queue.headers, **sent, **wants})
        queue.run_until_idle()


def delivers_to_fakes(cloud: Cloud) -> None:
    """Make deliveries to the cloud's own fakes: accepted, rejected and duplicated, with nested
    calls.
    """
    queue, kv = cloud.queue(), cloud.kv_server()
    destination = cloud.destination()
    answers = iter([(200, "fine"), (503, "closed"), (200, "")])

    def take(request: Any) -> Any:
        from werkzeug import Response

        httpx.post(kv.url, json=["INCR", "n"], headers=kv.headers)
        status, text = next(answers)
        return Response(text, status)

    destination.server.expect_request("/orders").respond_with_handler(take)
    for headers in ({}, {"X-Tenant": "acme"}, {}):
        deliver(queue, f"{destination.url}/orders?n=1", json={"n": 1}, retries=0, headers=headers)
    deliver(queue, "https://nobody.example.com", retries=0)


def groups(cloud: Cloud) -> None:
    """Make events in a consumer group: some belong to the row of the call that caused them, others
    have rows of their own.
    """
    broker = cloud.broker(topics={"t": 2})
    client = broker.client()

    def ask(path: str, body: Any = None) -> None:
        client.post(path, json=body)

    broker.produce("t", "one", key="k")
    ask("consume/g/a", {"topic": "t"})
    ask("produce", {"topic": "t", "value": "v"})
    ask("consume/g/b", {"topic": "t"})
    ask("commit/g/a", {"topic": "t", "partition": 0, "offset": 0})
    ask("produce/nowhere")
    ask("delete-consumer/g/a")
    cloud.clock.advance("5m")
    broker.group("g").rebalance()


def commands(cloud: Cloud) -> None:
    """Send commands: single, in a script, with a fault, rejected, with the answer in Base64."""
    server = cloud.kv_server()

    def ask(body: Any, path: str = "", **headers: str) -> None:
        sent = {**server.headers, **{name.replace("_", "-"): it for name, it in headers.items()}}
        with suppress(httpx.TransportError):
            httpx.post(f"{server.url}/{path}", json=body, headers=sent)

    ask(["SET", "a", "x" * 500])
    ask(["GET", "a"], Upstash_Encoding="base64")
    ask(["EVAL", "return redis.call('GET', KEYS[1])", "1", "a"])
    ask(["INCR", "a"])
    ask([["SET", "b", "1"], ["INCR", "a"]], "pipeline")
    ask(["GET", "a"], Authorization="Bearer of-somebody-else")
    ask([{"no": "command"}])
    for fault in ("lose_response", "drop", "truncate"):
        getattr(server.faults, fault)(times=1)
        ask(["SET", "c", "1"])
    server.faults.call(lambda: ask(["SET", "e", "other"]), command="GET", times=1)
    ask(["GET", "e"])


SCENES: list[Callable[[Cloud], None]] = [publishes, delivers_to_fakes, groups, commands]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_report_shows_what_happened(cloud: Cloud, scene: Callable[[Cloud], None]) -> None:
    scene(cloud)
    report = report_of(cloud, test="test_a.py::test_it", failure="E   assert False")
    actual = re.sub(r"(127\.0\.0\.1| ):\d{4,5}\b", r"\1:10000", text(report, width=100)) + "\n"
    golden(TEXTS / f"{scene.__name__}.txt", actual)
    data = json.loads(json.dumps(as_json(report)))
    assert list(wrong(data, SCHEMA)) == []
    assert len(data["rows"]) == len(report.rows)


def wrong(value: Any, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield the parts of a value that do not match a schema. Supports only the keywords in our
    schema.
    """
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
             "null": type(None)}  # fmt: skip
    wanted = schema.get("type", [])
    types = tuple(kinds[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted))
    if types and type(value) not in types:
        yield f"{at} is {value!r}, not {wanted}"
        return
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{at} is {value!r}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at} is {value!r}"
    for number, item in enumerate(value if isinstance(value, list) else ()):
        yield from wrong(item, schema.get("items", {}), f"{at}[{number}]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        missing = set(schema.get("required", ())) - set(value)
        yield from (f"{at}.{name} is missing" for name in missing)
        for name, member in value.items():
            yield from wrong(member, properties.get(name, {}), f"{at}.{name}")
            if properties and name not in properties:
                yield f"{at}.{name} is not in the schema"


@pytest.mark.parametrize("name", ["subject", "accessed"])
def test_the_schema_lists_the_kinds_of_subjects(name: str) -> None:
    kinds = SCHEMA["$defs"][name]["properties"]["kind"]["enum"]
    modules = [
        import_module(f"pytest_fakecloud.{word}.report.accesses") for word in services_by_word()
    ]
    constants = [value for module in modules for value in vars(module).values()]
    everything = [EVERY_KIND.name] if name == "accessed" else []
    assert kinds == everything + [kind.name for kind in constants if isinstance(kind, SubjectKind)]


def test_the_schema_lists_the_kinds_and_marks_of_rows() -> None:
    properties = SCHEMA["$defs"]["row"]["properties"]
    assert properties["kind"]["enum"] == [*get_args(Kind)]
    assert properties["marks"]["items"]["enum"] == [*get_args(Mark)]


def test_the_schema_names_the_services_and_actors_of_rows() -> None:
    properties = SCHEMA["$defs"]["row"]["properties"]
    services = [fake_class(service).service for service in SERVICES.values()]
    assert f": {', '.join(services)};" in properties["service"]["description"]
    actors = [CLIENT, APPLICATION, TEST, CONSOLE]
    assert f": {', '.join(actors)} or " in properties["actor"]["description"]


def test_the_schema_rejects_what_is_not_a_report() -> None:
    assert list(wrong({"version": 4, "rows": [{}], "other": 1}, SCHEMA))


def test_the_json_is_written_beside_the_page(cloud: Cloud, tmp_path: Path) -> None:
    server = cloud.kv_server()
    httpx.post(server.url, json=["SET", "lock:a", server.token, "PX", "60"], headers=server.headers)
    written = write(report_of(cloud, test="test_it"), tmp_path / "a.json")
    raw = written.read_text(encoding="utf-8")
    assert server.token not in raw
    (row,) = json.loads(raw)["rows"]
    assert row["findings"] == [0]
    assert row["text"]["what"] == "SET lock:a *** PX 60"
    assert row["request"]["decoded"] == ["SET", "lock:a", "***", "PX", "60"]
    assert row["subjects"] == [{"kind": "key", "name": "lock:a", "fake": "kv_server"}]


def test_actions_on_topics_and_groups_are_shown_as_the_test_writes_them(
    cloud: Cloud, tmp_path: Path
) -> None:
    broker = cloud.broker(topics={"t": 1})
    broker.topic("t").add_partitions(2)
    broker.topic("t").delete_records(before=1, partition=0)
    broker.join("g", "i", ["t"]).rebalance()
    broker.faults.redeliver("g", topic="t")
    broker.faults.crash("g", "i")
    broker.group("g").expire(instance="i")
    broker.topic("t").delete()
    written = write(report_of(cloud, test="test_it"), tmp_path / "a.json")
    rows = json.loads(written.read_text(encoding="utf-8"))["rows"]
    assert [
        (
            row["text"]["what"],
            " ".join(f"{subject['kind']}={subject['name']}" for subject in row["subjects"]),
        )
        for row in rows
        if row["kind"] == "action"
    ] == [
        ("broker.topic('t').add_partitions(2)", "topic=t"),
        ("broker.topic('t').delete_records(before=1, partition=0)", "topic=t"),
        ("broker.join('g', 'i', ['t'])", "group=g"),
        ("broker.group('g').rebalance()", "group=g"),
        ("broker.faults.redeliver('g', topic='t')", "topic=t group=g"),
        ("broker.faults.crash('g', 'i')", "group=g"),
        ("broker.group('g').expire(instance='i')", "group=g"),
        ("broker.topic('t').delete()", "topic=t"),
    ]


def request(**more: Any) -> ServedRequest:
    defaults = {"began": 0, "at_us": 0, "target": "GET /a", "framework": "Flask", "environ": None}
    return ServedRequest(
        **{**defaults, "thread": 0, "ended": 9, "status": 200, "path": "/a", **more}
    )


SERVED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["GET /a True", "  SET True", "SET True"]),
    ({"status": 400}, ["GET /a False", "  SET True", "SET True"]),
    ({"status": None, "raised": "oh"}, ["GET /a False", "  SET True", "SET True"]),
    ({"overlaps": [request(began=1, ended=9)]}, ["GET /a True", "SET True", "SET True"]),
    ({"idle": True}, ["SET True", "SET True"]),
    ({"idle": True, "status": 500}, ["SET True", "SET True", "GET /a False"]),
]


@pytest.mark.parametrize(("served", "expected"), SERVED)
def test_calls_are_nested_in_the_request_that_made_them(
    cloud: Cloud, served: dict[str, Any], expected: list[str]
) -> None:
    served, server = dict(served), cloud.kv_server()
    reserve = cloud.journal._recorder.reserve
    numbers = []
    for _ in range(2):
        numbers.append(reserve())
        httpx.post(server.url, json=["SET", "a", 1], headers=server.headers)
    numbers += [reserve(), reserve()]
    began, ended = numbers[2:] if served.pop("idle", False) else numbers[:2]
    rows = report_of(cloud, served=[request(began=began, ended=ended, **served)]).rows
    assert [f"{'  ' * row.depth}{row.operation} {row.ok}" for row in rows] == expected
    assert {row.actor for row in rows if row.depth} <= {"application"}


def test_a_request_made_by_a_fault_is_nested_in_the_call_it_ran_for(cloud: Cloud) -> None:
    server = cloud.kv_server()
    reserve = cloud.journal._recorder.reserve
    first, second = request(target="POST /1"), request(target="POST /2")
    first.overlaps, second.overlaps = [second], [first]

    def ask(key: str) -> None:
        httpx.post(server.url, json=["GET", key], headers=server.headers)

    def meanwhile() -> None:
        second.began = reserve()
        ask("inner")
        second.ended = reserve()

    server.faults.call(meanwhile, times=1)
    first.began = reserve()
    ask("outer")
    first.ended = reserve()
    rows = report_of(cloud, served=[first, second]).rows
    assert [(row.operation, row.depth, row.actor) for row in rows] == [
        ("add_fault", 0, "test"), ("POST /1", 0, "client"), ("GET", 1, "application"),
        ("POST /2", 2, "client"), ("GET", 3, "application"),
    ]  # fmt: skip


def test_a_subject_names_every_row_that_it_is_about(cloud: Cloud) -> None:
    redis = pytest.importorskip("redis")
    server, broker, queue = cloud.kv_server(), cloud.broker(), cloud.queue()
    broker.create_topic("orders", partitions=1)
    broker.produce("orders", "x")
    broker.join("g", "w", ["orders"])
    queue.destinations.accept("https://app.example.com")
    headers = {**queue.headers, "Upstash-Cron": "0 13 * * *"}
    httpx.post(f"{queue.url}/v2/schedules/https://app.example.com/", headers=headers)
    queue.run_until_idle()
    cloud.clock.advance("2h")
    cloud.vector_index(dimension=1).client().upsert([("a", [1.0])], namespace="docs")
    with redis.Redis.from_url(server.database_url) as client:
        pipeline = client.pipeline()
        pipeline.hset("prices", "tea", "3").publish("news", "tea").execute()
        with client.pubsub() as listener:
            listener.subscribe("news")
            assert listener.get_message(timeout=30)
    rows: dict[str, list[str]] = {}
    for row in report_of(cloud).rows:
        for subject in row.subjects:
            rows.setdefault(f"{subject.kind.name} {subject.name[:4]}", []).append(row.operation)
    assert rows.pop("topic orde") == ["create_topic", "produce"]
    assert rows.pop("group g")[0] == "join"
    assert rows.pop("namespace docs") == ["upsert"]
    assert rows.pop("key pric") == ["EXEC"]
    assert rows.pop("channel news") == ["EXEC", "SUBSCRIBE"]
    assert rows.pop("schedule scd_") == ["create_schedule", "attempt"]
    assert [name[:7] for name in rows] == ["message"]
