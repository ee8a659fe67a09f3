"""The official JavaScript clients of the key-value service, from npm, run by Node.

Skipped where Node or the packages are missing: `npm ci` in `tests/clients/js` installs them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_fakecloud.kernel.handle import Context
from pytest_fakecloud.kv.handle import KVServer

HERE = Path(__file__).parent / "js"
NODE = shutil.which("node")
PACKAGES = ("redis", "ratelimit")
NAMES = ("single", "scripts", "several", "auto", "messages", "limits")


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.skipif(
    not all((HERE / "node_modules" / "@upstash" / name).is_dir() for name in PACKAGES),
    reason="@upstash/redis or @upstash/ratelimit is not installed: `npm ci` in tests/clients/js",
)
def test_the_javascript_clients() -> None:
    context = Context.alone(seed=1)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(KVServer(context, name=name)) for name in NAMES}
        connections = {
            name: {
                "url": server.url,
                "token": server.token,
                "readOnlyToken": server.read_only_token,
            }
            for name, server in servers.items()
        }
        result = subprocess.run(
            [str(NODE), "--test", "--test-reporter=spec", "redis.test.mjs"],
            cwd=HERE,
            env={**os.environ, "FAKE_KV_SERVERS": json.dumps(connections)},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-4_000:]
        passed = re.search(r"pass (\d+)", result.stdout)
        assert passed is not None
        assert int(passed[1]) >= 17
        assert context.problems == []
        # Commands of one tick went together: documents are a group of their own in the client.
        assert [call.route for call in servers["auto"].journal.calls()] == ["pipeline"] * 2
        routes = [call.route for call in servers["messages"].journal.calls()]
        assert {"subscribe", "psubscribe"} <= set(routes)
        assert servers["messages"].execute("PUBSUB", "CHANNELS") == []
