"""Check the requests of the catalogue. The generated page of requests also lists what has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from docs.generate.scenarios import (
    COMMANDS_NOT_SENT,
    ENDPOINTS_NOT_SENT,
    TARGETS,
    commands_without_request,
    endpoints_without_request,
)
from pytest_fakecloud.kv.table.registry import EVERYTHING
from pytest_fakecloud.verify.catalogue.scenarios import COMPARISONS
from pytest_fakecloud.verify.run import plan

from ..kv.table import WITHOUT_SERVER

MOST_REQUESTS = {"kv": 1000, "vector": 250, "queue": 150, "broker": 50}
"""Limits of the free plans: 10,000 commands or queries per day, 1,000 messages, 10,000 records."""
WRITES = {"SET", "MSET", "HSET", "RPUSH", "LPUSH", "SADD", "ZADD", "XADD", "JSON.SET", "PFADD"}
PUBLISHES = ("/v2/publish/", "/v2/enqueue/", "/v2/trigger/")


def steps(service: str) -> Iterator[Any]:
    for scenario in plan(TARGETS[service]):
        yield from scenario.steps


def test_what_has_a_reason_not_to_be_sent_is_not_sent() -> None:
    commands = commands_without_request()
    for name in COMMANDS_NOT_SENT:
        assert any(command == name or command.startswith(f"{name} ") for command in commands), name
    for service, reasons in ENDPOINTS_NOT_SENT.items():
        assert reasons.keys() <= {*endpoints_without_request(service)}


OF_SERVERS = frozenset(
    {"string", "bitmap", "list", "set", "sorted set", "geo", "hyperloglog", "stream", "keys"}
)
"""The beginnings of titles whose commands real servers have, nearly all."""


@pytest.mark.completeness
def test_no_line_depends_on_a_write_that_real_servers_reject() -> None:
    """A server that rejects a write has other data afterwards, and other replies."""
    for scenario in plan(TARGETS["kv"]):
        changed: set[bytes] = set()
        for step in scenario.steps:
            argv = [str(word).encode() for word in step.json or ()]
            spec = EVERYTHING.find(argv) if step.is_command and argv else None
            if spec is None or scenario.title.partition(":")[0] not in OF_SERVERS:
                continue
            keys = {argv[at] for at, _ in spec.key_positions(argv)}
            assert spec.name in WITHOUT_SERVER or not keys & changed, (
                f"move `{step}` before the lines that change its key and that no real server "
                f"accepts, in the title {scenario.title} of kv.txt"
            )
            if spec.write and spec.name in WITHOUT_SERVER:
                changed |= keys


@pytest.mark.parametrize("service", TARGETS)
def test_a_free_plan_is_enough(service: str) -> None:
    scenarios = plan(TARGETS[service])
    asked = sum(len(scenario.steps) + len(scenario.cleanup) for scenario in scenarios)
    assert 20 < asked < MOST_REQUESTS[service]


@pytest.mark.parametrize("service", TARGETS)
def test_everything_has_the_prefix_of_the_run(service: str) -> None:
    """The prefix of a name identifies the data that the run wrote and must delete."""
    for step in steps(service):
        assert step.compare in COMPARISONS
        if service == "queue" and step.path.startswith(PUBLISHES):
            # "soon" is rejected: nothing is published without a delay.
            assert step.headers["Upstash-Delay"] in ("1h", "soon"), step
        if service == "kv" and step.is_command and step.subject in WRITES and len(step.json) > 2:
            assert "{p}" in step.json[1], step
        if service == "vector" and step.method != "GET" and step.path.count("/") == 2:
            assert "{p}" in step.path, step
