"""Run the official JavaScript clients of the key-value service in Node.

The same test file runs in memory and in front of each installed server. Skipped if Node or the
packages are missing: `npm ci` in `tests/clients/js` installs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_fakecloud.handle import Context
from pytest_fakecloud.kv.handle import KVServer
from tests.kv.backing import BINARIES, MISSING, OWN, started

from . import node

pytestmark = pytest.mark.slow

NAMES = ("single", "scripts", "several", "auto", "messages", "limits")
NEEDED = ("HEXPIRE", "JSON.SET")
"""Commands that some servers lack; tests that need one name it."""
TESTS = 19
IN_MEMORY = "memory"
ENGINES = [IN_MEMORY, OWN, *(BINARIES or [pytest.param("none", marks=MISSING)])]

Make = Callable[[Context, str], KVServer]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make(engine: str) -> Iterator[Make]:
    """Return a function that opens named servers in front of one engine."""
    if engine == IN_MEMORY:
        yield lambda context, name: KVServer(context, name=name)
        return
    pytest.importorskip("redis")
    real = started(engine)
    try:

        def made(context: Context, name: str) -> KVServer:
            # SCRIPT FLUSH and FUNCTION affect a whole server, so only a fake without isolation may
            # run them.
            options: dict[str, Any] = {"isolation": "none"} if name == "scripts" else {}
            return KVServer(context, name=name, engine=real.url, **options)

        yield made
    finally:
        real.close()


def lacking(server: KVServer, engine: str) -> dict[str, str]:
    """Return the commands of the list that a server lacks, each with the reason."""
    if engine == IN_MEMORY:
        return {}
    known = zip(NEEDED, server.execute("COMMAND", "INFO", *NEEDED), strict=True)
    return {name: f"{engine} has no {name}" for name, found in known if not found}


def test_the_javascript_clients(make: Make, engine: str) -> None:
    node.need("@upstash/redis", "@upstash/ratelimit")
    context = Context.alone(seed=1)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(make(context, name)) for name in NAMES}
        connections = {
            name: {
                "url": server.url,
                "token": server.token,
                "readOnlyToken": server.read_only_token,
            }
            for name, server in servers.items()
        }
        lacks = lacking(servers["single"], engine)
        environment = {"FAKE_KV_SERVERS": connections, "FAKE_KV_LACKS": lacks}
        outcome = node.run(
            "redis.test.mjs", {name: json.dumps(value) for name, value in environment.items()}
        )
        assert outcome.passed + len(outcome.skipped) >= TESTS
        # Every exclusion has a reason, and everything else that the engine has is included.
        assert set(outcome.skipped.values()) == set(lacks.values())
        assert context.problems == []
        # Commands of one tick were sent together.
        assert [call.route for call in servers["auto"].journal.calls()] == ["pipeline"] * 2
        routes = [call.route for call in servers["messages"].journal.calls()]
        assert {"subscribe", "psubscribe"} <= set(routes)
        assert servers["messages"].execute("PUBSUB", "CHANNELS") == []
