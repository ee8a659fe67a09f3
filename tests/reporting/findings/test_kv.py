"""Findings about keys, and similar cases without a finding."""

from __future__ import annotations

import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud

from .cases import (
    Scene,
    check,
    connected,
    kv,
    pipelined,
    read_only,
    timed,
    two_clients,
)


def loaded(data: dict[str, Any], *commands: list[Any]) -> Scene:
    """A server that has data before its first command."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        server.load(data)
        for command in commands:
            httpx.post(server.url, json=command, headers=server.headers)

    return run


def in_base64(*steps: str) -> Scene:
    """A wallet of 10 that two clients read and write, with values in Base64."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        server.load({"w": "10"})
        headers = {**server.headers, "Upstash-Encoding": "base64"}
        with ExitStack() as stack:
            clients = {
                name: stack.enter_context(httpx.Client(headers=headers))
                for name in dict.fromkeys(step.split()[0] for step in steps)
            }
            for step in steps:
                name, *command = step.split()
                clients[name].post(server.url, json=command)

    return run


def stream_refused(path: str, accept: str | None, *, fault: bool = False) -> Scene:
    """A request for a stream that is rejected; ``accept`` is its Accept header, or None."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        if fault:
            server.faults.answer(400)
        httpx.post(server.url, json=["PING"], headers=server.headers)
        headers = server.headers | ({"Accept": accept} if accept else {})
        request = urllib.request.Request(f"{server.url}/{path}", method="POST", headers=headers)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=5)

    return run


def taken_by(*owners: str) -> list[list[Any] | str]:
    """Several owners take the lock, each after it has expired."""
    steps: list[list[Any] | str] = []
    for owner in owners:
        steps += ["31s", ["SET", "lock:a", owner, "NX", "EX", 30]]
    return steps


def vector_read_only(cloud: Cloud) -> None:
    index = cloud.vector_index()
    headers = {"Authorization": f"Bearer {index.read_only_token}"}
    httpx.post(f"{index.url}/upsert", json={"id": "a", "vector": [1, 0]}, headers=headers)


def queue_read_only(cloud: Cloud) -> None:
    queue = cloud.queue()
    headers = {"Authorization": f"Bearer {queue.read_only_token}"}
    httpx.delete(f"{queue.url}/v2/messages/msg_none", headers=headers)


def long_answer(one: redis.Redis, two: redis.Redis) -> None:
    one.set("big", "x" * 200_000)
    one.get("big")


def session(times: int) -> Scene:
    """A key that is not a counter and gets a TTL of a minute at each use."""
    steps: list[list[Any] | str] = [["SET", "s", 1, "KEEPTTL"], ["EXPIRE", "s", 60], "30s"]
    return timed(*steps * times)


def counts_by(command: list[Any], times: int) -> Scene:
    steps: list[list[Any] | str] = [command, ["EXPIRE", "hits", 60], "30s"]
    return timed(*steps * times)


CASES: dict[str, Scene] = {
    "a lock let go and taken at once": pipelined(
        "pipeline", ["DEL", "lock:a"], ["SET", "lock:a", "me", "NX"]
    ),
    "the second key that nobody wrote": kv(
        ["DEL", "user:ada"],
        ["HSET", "cart:ada", "tea", 1],
        ["GET", "user:ada"],
        ["HGETALL", "carts:ada"],
    ),
    "a write of vectors": vector_read_only,
    "a write of the queue": queue_read_only,
    "the first and the last of three owners": timed(
        *taken_by("one", "two", "three"), ["DEL", "lock:a"]
    ),
    "a subscription to a pattern": stream_refused("psubscribe/n*", "application/json"),
    "a monitor without the header": stream_refused("monitor", None),
    "milliseconds taken": timed(["SET", "s", "a", "PX", 60_000], "59s", ["SET", "s", "b"]),
    "a key with the name of an option": timed(["SET", "ex", 1, "EX", 60], "30s", ["SET", "ex", 2]),
    "a span that came of its own": kv(["SET", "s", "a"], ["EXPIRE", "s", 60], ["SET", "s", "b"]),
    "an expiry that was kept and then taken": kv(
        ["SET", "s", "a", "EX", 60], ["SET", "s", "b", "KEEPTTL"], ["SET", "s", "c"]
    ),
    "an expiry taken after a SET that was refused": kv(
        ["SET", "s", "a", "EX", 60], ["SET", "s", "b", "NX"], ["SET", "s", "c"]
    ),
    "a counter of more than one": counts_by(["INCRBY", "hits", 5], 3),
    "None in a key that was read": kv(["GET", "user:None"]),
    "an update in base64": in_base64("shop GET w", "phone GET w", "phone SET w 7", "shop SET w 6"),
    "an update after a command without a key": two_clients(
        "shop PING", "shop GET w", "phone SET w 7", "shop SET w 6"
    ),
    "a lock that is unlinked and written": kv(
        ["SET", "lock:a", 1, "NX"], ["UNLINK", "lock:a"], ["SET", "lock:a", 2]
    ),
    "a list with the name of a lock": kv(["RPUSH", "lock:a", "me"]),
    "a key that was deleted is not written": kv(["DEL", "cart:ada"], ["GET", "carts:ada"]),
    "a key that was there before": loaded(
        {"carts:ada": "1"}, ["SET", "cart:ada", 1], ["GET", "carts:ada"]
    ),
    "names that are not near": kv(["SET", "cart:ada", 1], ["GET", "basket:ada"]),
    "a read with the read-only token": read_only(["GET", "k"]),
    "an owner's own write": kv(
        ["SET", "lock:a", "one", "NX"], ["SET", "lock:a", "two"], ["DEL", "lock:a"]
    ),
    "a stream that a fault refused": stream_refused("subscribe/news", None, fault=True),
    "an expiry that a command took on purpose": kv(
        ["SET", "s", "a", "EX", 60], ["APPEND", "s", "b"], ["PERSIST", "s"]
    ),
    "an expiry that came at that moment": timed(
        ["SET", "s", "a", "EX", 60], "60s", ["SET", "s", "b"]
    ),
    "a session that is used": session(3),
    "a counter that is read within its span": timed(["INCR", "hits"], ["GET", "hits"]),
    "a counter that ends when its next span begins": timed(
        *[["INCR", "hits"], ["EXPIRE", "hits", 60], "60s"] * 4
    ),
    "a text that was set and not used": kv(["SET", "open", "yes"], ["DECR", "left"]),
    "a number that was set twice": kv(["SET", "open", 2], ["SET", "open", 3], ["DECR", "left"]),
    "a counter of nothing that was set": kv(
        ["SET", "left", 0], ["SET", "open", 2], ["DECR", "left"]
    ),
    "a counter that was there before": loaded({"left": "5"}, ["SET", "open", 2], ["DECR", "left"]),
    "another answer of -1": kv(["SET", "open", 2], ["SET", "name", "x"], ["TTL", "name"]),
    "an answer of which not all was kept": connected(long_answer),
}


test_findings = check("kv", CASES)
