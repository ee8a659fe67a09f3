"""Test that failed rows have the advice of their class, and none if the answer says all itself."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from ..harness import wait_until
from .conftest import Server, fetch, message
from .test_history import kv
from .test_sending import row, send


def advice(server: Server, number: int) -> str:
    return str(row(server, number).get("advice", ""))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["LPUSH", "text", "y"], "holds a value of another type"),
        (["GET"], "GET has too few or too many arguments"),
        (["NOSUCH", "a"], "The fake has no such command"),
        (["SET", "a", "1", "SOON"], "An option of SET is misspelled"),
        (["INCR", "text"], "A number was expected"),
        (["EVALSHA", "0" * 40, "0"], "The script was not loaded"),
        (["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"], "Create the consumer group"),
        (["XADD", "s", "0-0", "a", "b"], ""),
        (["GET", "text"], ""),
    ],
)
def test_a_rejected_command_has_the_advice_of_its_error(
    server: Server, words: list[str], expected: str
) -> None:
    kv(server, "SET", "text", "x")
    number = kv(server, *words)
    assert expected in advice(server, number)
    assert bool(advice(server, number)) == bool(expected)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/query", {"vector": [1, 2], "topK": 1}, "as many numbers as the index has dimensions"),
        ("/query", {"vector": [1], "topK": 1, "filter": "year >"}, "Correct the filter"),
        ("/query-data", {"data": "tea", "topK": 1}, "The index has no embedding model"),
        ("/query", {"topK": 1}, "Send vectors of the kind of the index"),
        ("/query", {"vector": [1], "topK": 0}, ""),
    ],
)
def test_a_rejected_request_to_a_vector_index_has_the_advice_of_its_error(
    server: Server, path: str, body: object, expected: str
) -> None:
    send(server, "vector_index", "/upsert", [{"id": "a", "vector": [1]}])
    answer = send(server, "vector_index", path, body)
    found = advice(server, answer["row"])
    assert expected in found
    assert bool(found) == bool(expected)
    assert answer.get("advice", "") == found


def test_an_invalid_filter_of_a_list_has_the_advice_of_a_query(server: Server) -> None:
    send(server, "vector_index", "/upsert", [{"id": "a", "vector": [1]}])
    answer = server.ask("GET", "/fakes/vector_index/lists/vectors?filter=year")
    assert "Correct the filter at the position" in message(answer)


def test_an_error_in_a_pipeline_has_its_advice(server: Server) -> None:
    number = send(server, "kv_server", "/pipeline", [["SET", "a", "x"], ["INCR", "a"]])["row"]
    assert "A number was expected" in advice(server, number)


def test_a_rejected_token_and_password_have_advice(server: Server) -> None:
    fake = server.fake("kv_server")
    other = server.fake("vector_index")["headers"]
    for headers in ({}, {"Authorization": "Bearer wrong"}, other):
        fetch("POST", fake["url"], json=["GET", "a"], headers=headers)
    with redis.Redis.from_url(fake["env"]["REDIS_URL"]) as client:
        client.ping()
        with pytest.raises(redis.AuthenticationError):
            client.execute_command("AUTH", "default", "wrong")
    rows = server.ask("GET", "/journal")[1]
    found = [row["advice"] for row in rows if row["operation"] in ("GET", "AUTH") and not row["ok"]]
    beginnings = (
        "The request has no token",
        "No fake has",
        "The token belongs to vector",
        "No fake",
    )
    for text, beginning in zip(found[-4:], beginnings, strict=True):
        assert text.startswith(beginning)


def test_advice_names_the_place_that_helps(server: Server) -> None:
    fetch("POST", server.fake("kv_server")["url"], json=["GET", "a"])
    rejected = max(one["number"] for one in server.ask("GET", "/journal")[1])
    places = [row(server, number).get("advice_at") for number in (kv(server, "GET"), rejected)]
    commands = {"place": "commands", "fake": "kv_server"}
    assert places == [commands, {"place": "connect", "fake": None}]
    assert "advice_at" not in row(
        server, kv(server, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (500, "The handler failed"), (404, "no such path"), (422, "rejected the body"),
        (401, "signing keys"), (418, ""), ("refuse", "Start your application"), (200, ""),
    ],
)  # fmt: skip
def test_a_failed_delivery_has_the_advice_of_its_answer(
    server: Server, answer: object, expected: str
) -> None:
    destination = {"url": "https://app.example", "answer": answer}
    server.ask("POST", "/fakes/queue/destinations", destination)
    headers = {"Upstash-Retries": "0"}
    send(server, "queue", "/v2/publish/https://app.example/mail", "{}", **headers)

    def attempts() -> list[str]:
        rows = server.ask("GET", "/journal")[1]
        return [str(row.get("advice", "")) for row in rows if row["kind"] == "delivery"]

    wait_until(attempts)
    assert expected in attempts()[0]
    assert bool(attempts()[0]) == bool(expected)


def test_a_violation_has_the_advice_of_its_kind(server: Server) -> None:
    headers = {"Upstash-Retries": "0"}
    send(server, "queue", "/v2/publish/https://ada:pw@app.example:8443/mail", "{}", **headers)
    send(server, "queue", "/v2/nowhere", "{}")

    def causes() -> dict[str, Any]:
        found = server.ask("GET", "/problems")[1]["causes"]
        return {cause["violations"][0]["kind"]: cause for cause in found}

    wait_until(lambda: {"unstubbed", "unrouted"} <= causes().keys())
    unstubbed, unrouted = causes()["unstubbed"], causes()["unrouted"]
    codes = [line["code"] for line in unstubbed["advice"]]
    assert "--forward https://app.example:8443=http://127.0.0.1:3000" in codes[1]
    assert unstubbed["unanswered"] == "https://app.example:8443"
    assert unrouted["advice"][-1]["at"] == {"place": "connect", "fake": None}
    assert unrouted["unanswered"] is None


def test_an_error_that_clients_expect_says_why(server: Server) -> None:
    kv(server, "XADD", "s", "*", "a", "b")
    kv(server, "XGROUP", "CREATE", "s", "g", "0")
    numbers = [
        kv(server, "XGROUP", "CREATE", "s", "g", "0"),
        kv(server, "CLIENT", "MAINT_NOTIFICATIONS", "ON"),
        *(send_get(server, target) for target in ("/v2/messages/none", "/v2/nowhere/none")),
        kv(server, "XGROUP", "CREATE", "none", "g", "0"),
    ]
    expected = [bool(row(server, number).get("expected")) for number in numbers]
    assert expected == [True, True, True, False, False]
    assert "exists already" in advice(server, numbers[0])
    assert "no such path" in advice(server, numbers[3])


def send_get(server: Server, target: str) -> int:
    request = {"method": "GET", "target": target}
    return int(server.ask("POST", "/fakes/queue/requests", request)[1]["row"])
