"""Run ``redis.search`` of the official JavaScript client in Node.

Skipped if Node or the package is missing: `npm ci` in `tests/clients/js` installs it.
"""

from __future__ import annotations

import json

from pytest_fakecloud.handle import Context
from pytest_fakecloud.kv.handle import KVServer

from . import node

TESTS = 17


def test_the_javascript_client() -> None:
    node.need("@upstash/redis")
    context = Context.alone(seed=1)
    with KVServer(context) as server:
        connection = {"url": server.url, "token": server.token}
        outcome = node.run("search.test.mjs", {"FAKE_KV_SERVER": json.dumps(connection)})
        assert outcome.passed == TESTS
        assert context.problems == []
