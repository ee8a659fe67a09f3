"""Functions of a test whose annotations name types that only type checkers import.

A module without ``from __future__ import annotations`` can contain such functions since Python 3.14,
which does not evaluate annotations before they are read. Here, older versions get strings instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from pytest_fakecloud import BrokenPromiseError, Cloud, ContractError, Response, never

QUOTE = "" if sys.version_info >= (3, 14) else '"'
SOURCE = """
def predicate(value: ?Unknown?) -> ?Unknown?:
    return bool(value)

def respond(request: ?Unknown?) -> ?Unknown?:
    return Response(418)

def embed(text: ?Unknown?) -> ?Unknown?:
    return [1.0, float(len(text))]

def receive(environ: ?Unknown?, start_response: ?Unknown?) -> ?Unknown?:
    start_response("202 Accepted", [])
    return [b""]
""".replace("?", QUOTE)


@pytest.fixture(scope="module")
def functions() -> dict[str, Callable[..., Any]]:
    names: dict[str, Any] = {"Response": Response}
    exec(compile(SOURCE, "test_shop", "exec", dont_inherit=True), names)
    return names


def test_a_predicate_and_a_fault(functions: dict[str, Any]) -> None:
    with Cloud(1) as cloud:
        kv = cloud.kv_server()
        kv.faults.call(functions["respond"])
        answer = httpx.get(f"{kv.url}/get/k", headers=kv.headers, trust_env=False)
        assert answer.status_code == 418
        kv.assert_called(status=functions["predicate"], times=1)


def test_an_embedding(functions: dict[str, Any]) -> None:
    with Cloud(1) as cloud:
        index = cloud.vector_index(embedding=functions["embed"])
        index.load([{"id": "a", "data": "text"}])
        assert index.vectors().only()["vector"] == [1.0, 4.0]


def test_an_application_that_receives_deliveries(functions: dict[str, Any]) -> None:
    with Cloud(1, delivery="driven") as cloud:
        queue = cloud.queue()
        with pytest.raises(ContractError, match=r"use \.wsgi\(\)"):
            queue.destinations.asgi("https://app.example.com", functions["receive"])
        queue.destinations.wsgi("https://app.example.com", functions["receive"])
        queue.publish("https://app.example.com/hook", json={})
        queue.run_until_idle()
        assert queue.attempts().only().status == 202


def test_a_promise(functions: dict[str, Any]) -> None:
    with Cloud(1) as cloud:
        client = cloud.kv_server().client()
        with pytest.raises(BrokenPromiseError):
            cloud.explore(lambda: client.incr("k"), never(functions["predicate"]))
