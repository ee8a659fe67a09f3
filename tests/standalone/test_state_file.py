"""Test state files: the data that they load, errors about invalid ones, and their JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.core.json_schema import violations
from pytest_fakecloud.faults.plan import injector_of
from pytest_fakecloud.standalone import state_file
from pytest_fakecloud.standalone.saving import saved_state
from pytest_fakecloud.standalone.state_file import SCHEMA, load_state, read_state
from tests.harness import wait_until

ROOT = Path(__file__).parents[2]
NOON = "2026-01-01T12:00:00Z"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now=NOON, delivery="driven") as opened:
        opened.kv_server()
        opened.vector_index()
        opened.broker()
        opened.queue()
        yield opened


def by_service(cloud: Cloud) -> tuple[Any, Any, Any, Any]:
    kv, vector, broker, queue = cloud.fakes()
    return kv, vector, broker, queue


def written(folder: Path, content: object) -> Path:
    file = folder / "state.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_everything_is_put_in(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"id": "a", "vector": [1, 2]}\n', encoding="utf-8")
    (tmp_path / "orders.jsonl").write_text('"one"\n\n{"value": "two", "key": "k"}\n', "utf-8")
    file = written(
        tmp_path,
        {
            "kv": {
                "values": {
                    "s": "1",
                    "h": {"f": "v"},
                    "l": ["a", "b"],
                    "z": [["ann", 1], ["bob", 2]],
                },
                "commands": [["SADD", "set", "x"], ["EXPIRE", "s", 60]],
            },
            "vector": {"": "records.jsonl", "other": [{"id": "b", "vector": [3, 4]}]},
            "broker": {"orders": "orders.jsonl", "payments": ["three"], "empty": []},
            "queue": {
                "url_groups": {"all": ["https://a.example", "https://b.example"]},
                "messages": [{"url": "https://app.example/x", "delay": "1h"}],
            },
        },
    )
    load_state(cloud, read_state(file), tmp_path)
    kv, vector, broker, queue = by_service(cloud)
    assert kv.contents() == {
        "s": "1", "h": {"f": "v"}, "l": ["a", "b"], "set": {"x"}, "z": [("ann", 1.0), ("bob", 2.0)],
    }  # fmt: skip
    assert kv.ttl("s") == 60
    assert [item["id"] for item in vector.vectors()] == ["a"]
    assert [item["id"] for item in vector.vectors("other")] == ["b"]
    assert [(record.value, record.key) for record in broker.records("orders")] == [
        ("one", None),
        ("two", "k"),
    ]
    assert broker.records("empty") == []
    assert [message.url for message in queue.messages()] == ["https://app.example/x"]


def test_stubs_answer_and_faults_fire(cloud: Cloud, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {
            "destinations": {
                "https://turns.example": [503, {"status": 200, "body": {"ok": 1}, "after": "2s"}],
                "https://ends.example": ["refuse", "hang", 200],
                "https://once.example/hook": 201,
                "https://*.wild.example/*": {"status": 202, "headers": {"X-A": "b"}},
                "https://hang.example": "hang",
                "https://dead.example": "refuse",
            },
            "faults": {"kv": [{"kind": "respond", "args": [503], "times": 1, "command": "SET"}]},
        },
    )
    load_state(cloud, read_state(file), tmp_path)
    kv, _, _, queue = by_service(cloud)
    queue.publish("https://turns.example/x", retries=1)
    attempts = queue.run_until_idle()
    assert [attempt.status for attempt in attempts] == [503, 200]
    assert attempts[1].body == b'{"ok": 1}'
    queue.publish("https://ends.example/x", retries=2)
    refused, hung, answered = queue.run_until_idle()
    assert isinstance(refused.exception, ConnectionRefusedError)
    assert isinstance(hung.exception, TimeoutError)
    assert answered.status == 200
    for url, status in (
        ("https://once.example/hook", 201), ("https://a.wild.example/", 202),
        ("https://hang.example", 0), ("https://dead.example", 0),
    ):  # fmt: skip
        queue.publish(url, retries=0)
        assert (queue.run_until_idle().only().status or 0) == status, url
    (fault,) = kv.faults
    assert "[times=1, command='SET'], 0 hits, set over a state file" in repr(fault)


def test_it_tells_how_far_it_is(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_file, "AT_ONCE", 2)
    content = {
        "kv": {"values": dict.fromkeys("abcde", "v")},
        "broker": {"t": ["1", "2", "3"]},
        "queue": {"queues": {"mails": {}}},
    }
    progress: list[tuple[str, int, int]] = []
    load_state(cloud, content, tmp_path, lambda *step: progress.append(step))
    assert progress == [
        ("kv", 2, 5), ("kv", 4, 5), ("kv", 5, 5), ("broker", 2, 3), ("broker", 3, 3), ("queue", 1, 1),
    ]  # fmt: skip


WRONG = [
    ([], "the state file is []; pass an object"),
    (
        {"broke": {}},
        "'broke' is not a field of the state file; did you mean 'broker'? Known fields: kv, ",
    ),
    ({"kv": {"vaules": {}}}, "'vaules' is not a field of kv; did you mean 'values'?"),
    ({"kv": {"values": []}}, "kv.values is []; pass an object"),
    ({"kv": {"commands": [["SET"], []]}}, "kv.commands[1] is empty; pass at least 1"),
    ({"vector": {"": 5}}, "vector.'' is 5; pass an array"),
    ({"broker": {"orders": True}}, "broker.orders is True; pass an array"),
    ({"queue": {"message": []}}, "'message' is not a field of queue; did you mean 'messages'?"),
    ({"destinations": {"https://a": 42}}, "destinations.'https://a' is 42; pass 100 to 599"),
    ({"destinations": {"https://a": []}}, "destinations.'https://a' is empty; pass at least 1"),
    (
        {"destinations": {"https://a": {"staus": 200}}},
        "destinations.'https://a' has no field 'status'",
    ),
    ({"faults": {"kv": [{"args": []}]}}, "faults.kv[0] has no field 'kind'"),
    ({"faults": {"nobody": []}}, "'nobody' is not a field of faults"),
]


@pytest.mark.parametrize(("content", "text"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, content: Any, text: str) -> None:
    with pytest.raises(ContractError) as caught:
        read_state(written(tmp_path, content))
    assert text in str(caught.value).replace("; give", ", give")


DEFERRED = {"url": "https://app.example", "delay": "1h"}
REFUSED = [
    ({"kv": {"commands": [["SET", "k"]]}}, "kv.commands: ERR wrong number of arguments"),
    ({"vector": {"": [{"id": "a"}]}}, "vector.'': "),
    ({"vector": {"": "none.jsonl"}}, "vector.'': "),
    ({"broker": {"orders": "none.jsonl"}}, "broker.'orders': cannot read "),
    ({"queue": {"messages": [{"ulr": "https://a"}]}}, "queue.messages: "),
    ({"destinations": {"app.example": 200}}, "destinations.'app.example': 'app.example' is not a"),
    (
        {"faults": {"kv": [{"kind": "respnd"}]}},
        "faults.kv[0]: 'respnd' is not a fault; did you mean",
    ),
    ({"faults": {"kv": [{"kind": "respond", "comand": "SET"}]}}, "faults.kv[0]: "),
]


@pytest.mark.parametrize(("content", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_fake_refuses_is_named_with_its_place(
    cloud: Cloud, tmp_path: Path, content: Any, text: str
) -> None:
    state = read_state(written(tmp_path, content))
    with pytest.raises(ContractError) as caught:
        load_state(cloud, state, tmp_path)
    assert str(caught.value).startswith(text)


def _with_numbers(state: dict[str, Any]) -> None:
    state["saved"]["queue"]["data"] |= {"sequence": 10**6, "dead_letter_count": 10**6}


def _with_commands(state: dict[str, Any]) -> None:
    state["saved"]["kv"]["commands"] += [["SET", "k", "v"], ["SET", "k"]]


LATE = [
    *((content, "") for content, _ in REFUSED),
    ({"kv": {"values": {"k": "v"}}, "vector": {"": [{"id": "a"}]}}, ""),
    ({"queue": {"queues": {"q": {}}, "messages": [DEFERRED] * 2500 + [{"url": 5}]}}, ""),
    ({"queue": {"messages": [DEFERRED]}, "destinations": {"https://a": 200, "x": 200}}, ""),
    ({"queue": {"messages": [DEFERRED]}, "faults": {"kv": [{"kind": "down"}, {"kind": "x"}]}}, ""),
    ({"destinations": {"https://a": 200}, "faults": {"queue": [{"kind": "down", "x": 1}]}}, ""),
    ({"kv": {"values": {"k": "v"}}, "vector": {"": "none.jsonl"}}, "numbers"),
    ({"faults": {"broker": [{"kind": "respond", "args": ["x"]}]}}, "numbers"),
    ({"destinations": {"x": 200}}, "numbers"),
    ({}, "commands"),
]
"""States that are refused after a part of them could be loaded, and a change of their saved data."""
CHANGES = {"numbers": _with_numbers, "commands": _with_commands}


@pytest.mark.parametrize(("content", "change"), LATE, ids=range(len(LATE)))
def test_a_refused_state_changes_nothing(
    cloud: Cloud, tmp_path: Path, content: dict[str, Any], change: str
) -> None:
    kv, _, broker, queue = by_service(cloud)
    kv.load({"a": "1"})
    broker.load({"orders": ["one"]})
    queue.destinations.respond("https://app.example", 500)
    queue.publish("https://app.example", retries=0)
    queue.run_until_idle()
    queue.publish("https://app.example", delay="1h")
    kv.faults.respond(503, command="GET", times=2)
    before = saved_state(cloud)
    state = content
    if change:
        state = {**deepcopy(before), **content}
        CHANGES[change](state)
    faults = [repr(fault) for fake in cloud.fakes() for fault in injector_of(fake.faults).all]
    with httpx.Client(base_url=kv.url, headers=kv.headers) as client:
        stays = client.get("/ping").extensions["network_stream"]
        with pytest.raises(ContractError):
            load_state(cloud, read_state(written(tmp_path, state)), tmp_path)
        # No fault has closed the connection.
        assert client.get("/ping").extensions["network_stream"] is stays
    after = saved_state(cloud)
    assert {**after, "clock": None} == {**before, "clock": None}
    assert [
        repr(fault) for fake in cloud.fakes() for fault in injector_of(fake.faults).all
    ] == faults


def test_no_message_of_a_refused_state_is_delivered(tmp_path: Path) -> None:
    message = {"url": "https://app.example"}
    with Cloud(delivery="background") as cloud:
        cloud.kv_server()
        queue = cloud.queue()
        delivered: list[object] = []
        queue.destinations.call("https://app.example", delivered.append)
        for refused in (
            {"queue": {"messages": [message] * 2500 + [{"url": 5}]}},
            {"kv": {"commands": [["SET", "k"]]}},
            {"destinations": {"x": 200}},
            {"faults": {"kv": [{"kind": "x"}]}},
        ):
            state = {"queue": {"messages": [message]}, **refused}
            with pytest.raises(ContractError):
                load_state(cloud, read_state(written(tmp_path, state)), tmp_path)
        load_state(cloud, {"queue": {"messages": [message]}}, tmp_path)
        wait_until(lambda: delivered)
        assert len(delivered) == 1


def test_a_part_without_its_fake(tmp_path: Path) -> None:
    with Cloud() as cloud:
        cloud.kv_server()
        for content in (
            {"broker": {"t": ["1"]}}, {"destinations": {"https://a": 200}},
            {"faults": {"queue": [{"kind": "drop"}]}},
        ):  # fmt: skip
            with pytest.raises(ContractError, match="no such fake is open: start it too"):
                load_state(cloud, content, tmp_path)


@pytest.mark.parametrize(
    ("text", "error"), [("{", "is not JSON: .*, line 1 column"), (None, "cannot read")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str | None, error: str) -> None:
    file = tmp_path / "state.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ContractError, match=error):
        read_state(file)


def test_another_reader_of_schemas_agrees(tmp_path: Path) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator(SCHEMA)
    validator.check_schema(SCHEMA)
    for content, _ in WRONG:
        assert not validator.is_valid(content)
    for content, _ in REFUSED:
        assert validator.is_valid(content)


def test_the_files_of_the_repository_load(cloud: Cloud) -> None:
    folder = ROOT / "docker"
    load_state(cloud, read_state(folder / "state.json"), folder)
    kv, _, broker, queue = by_service(cloud)
    assert kv.value("greeting") == "hello"
    assert broker.records("orders").only().value == "one kettle"
    assert [schedule.id for schedule in queue.schedules()] == ["nightly"]
    guide = (ROOT / "docs" / "guides" / "server.md").read_text(encoding="utf-8")
    example = json.loads(guide.partition("```json\n")[2].partition("```")[0])
    assert not list(violations(example, SCHEMA, "the guide"))
