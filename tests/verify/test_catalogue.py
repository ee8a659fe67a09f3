"""Check that the catalogue has every command and endpoint, or a reason for its absence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate.scenarios import TARGETS
from pytest_fakecloud import Cloud
from pytest_fakecloud.http.routing import RouteTable
from pytest_fakecloud.kv.table.registry import COMMANDS, EVERYTHING, spec_of
from pytest_fakecloud.verify import catalogue
from pytest_fakecloud.verify.catalogue.scenarios import COMPARISONS
from pytest_fakecloud.verify.run import plan

from ..kv.table import WITHOUT_SERVER
from ..notations import complete

CATALOGUE = Path(str(catalogue.__file__)).parent
GROUPS_NOT_ASKED = {
    "search": "an index is no key, and a run only deletes its keys",
    **dict.fromkeys(("transactions", "pubsub", "connection"), "they need a connection"),
    **dict.fromkeys(("server", "cluster"), "they concern every user of the server"),
}
"""Groups of which no command has to be asked, with the reasons."""
NOT_ASKED = {
    "RANDOMKEY": "names keys of others",
    "MOVE": "needs a second database",
    "MIGRATE": "needs a second server",
    "WAIT": "is about replicas",
    "WAITAOF": "is about persistence",
    "PFDEBUG": "shows the inside of a server",
    "PFSELFTEST": "shows the inside of a server",
    **dict.fromkeys(("FUNCTION", "SCRIPT FLUSH"), "changes what every user of the server has"),
    **dict.fromkeys(("SCRIPT DEBUG", "SCRIPT KILL"), "is about running scripts"),
    **dict.fromkeys(("OBJECT FREQ", "OBJECT IDLETIME"), "depends on settings or on the time"),
}
MOST_REQUESTS = {"kv": 1000, "vector": 250, "queue": 150, "broker": 50}
"""Limits of the free plans: 10,000 commands or queries per day, 1,000 messages, 10,000 records."""
WRITES = {"SET", "MSET", "HSET", "RPUSH", "LPUSH", "SADD", "ZADD", "XADD", "JSON.SET", "PFADD"}
PUBLISHES = ("/v2/publish/", "/v2/enqueue/", "/v2/trigger/")
ENDPOINTS_NOT_ASKED = {
    "kv": {"subscribe": "a stream", "psubscribe": "a stream", "monitor": "shows others' commands"},
    "vector": {
        "upsert-data": "needs an embedding model",
        "query-data": "needs an embedding model",
        "resumable-query-data": "needs an embedding model",
        "list-namespaces": "names what others made",
        "rename-namespace": "of the fake and newer services only",
        "random": "chance decides",
    },
    "queue": {
        "chat": "a language model answers, for money",
        "rotate_keys": "changes what every user of the service has",
        "list_schedules": "names what others made",
        "list_groups": "names what others made",
    },
    "broker": {"consumers": "names what others made", "webhook": "writes what a third party sends"},
}


def steps(service: str) -> Iterator[Any]:
    for scenario in plan(TARGETS[service]):
        yield from scenario.steps


@pytest.mark.completeness
def test_every_data_command_is_asked() -> None:
    lines = [[str(word) for word in step.json or ()] for step in steps("kv") if step.path == "/"]
    asked = {spec.name for line in lines if line and (spec := spec_of(line)) is not None}
    offered = {
        spec.name
        for spec in COMMANDS.values()
        if not (spec.group in GROUPS_NOT_ASKED or spec.subcommands or spec.name.endswith(" HELP"))
    }
    excused = {name for name in offered if {name, name.split()[0]} & NOT_ASKED.keys()}
    complete(
        CATALOGUE / "kv.txt",
        (
            f"at the end of a title (##) about the group {COMMANDS[name].group}: {name} @a"
            for name in sorted(offered - asked - excused)
        ),
        "NOT_ASKED of tests/verify/test_catalogue.py",
    )
    assert offered - asked == excused


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


@pytest.mark.completeness
@pytest.mark.parametrize("service", TARGETS)
def test_every_endpoint_is_asked(service: str) -> None:
    table, names = _table(service), set()
    not_asked = ENDPOINTS_NOT_ASKED[service]
    for step in steps(service):
        path = step.path.partition("?")[0].replace("{", "").replace("}", "")
        match = table.find(step.method, path)
        if isinstance(match, tuple):
            names.add(match[0].name)
    # The service has removed the v1 endpoints of the queue.
    routes = [route for route in table.routes if not route.pattern.startswith("/v1/")]
    complete(
        CATALOGUE / f"{service}.txt",
        (
            f"below a title (##), old or new: {route.methods.split()[0]} {route.pattern}"
            for route in routes
            if route.name not in names | not_asked.keys()
        ),
        "ENDPOINTS_NOT_ASKED of tests/verify/test_catalogue.py",
    )
    assert {route.name for route in routes} - names == not_asked.keys()


def _table(service: str) -> RouteTable:
    with Cloud() as cloud:
        fixture = {"kv": "kv_server", "vector": "vector_index"}.get(service, service)
        table: RouteTable = getattr(cloud, fixture)()._app.table
        return table


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
