"""The official JavaScript client of the vector index, from npm, run by Node.

Skipped where Node or the package is missing: `npm ci` in `tests/clients/js` installs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.kernel.handle import Context
from pytest_fakecloud.vector.handle import VectorIndex

HERE = Path(__file__).parent / "js"
NODE = shutil.which("node")
KINDS: dict[str, dict[str, Any]] = {
    "dense": {"kind": "dense", "dimension": 2},
    "sparse": {"kind": "sparse"},
    "hybrid": {"kind": "hybrid", "dimension": 2},
    "dense with embedding": {"kind": "dense", "embedding": True},
    "hybrid with embedding": {"kind": "hybrid", "embedding": True},
}


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.skipif(
    not (HERE / "node_modules" / "@upstash" / "vector").is_dir(),
    reason="@upstash/vector is not installed: run `npm ci` in tests/clients/js",
)
def test_the_javascript_client() -> None:
    context = Context.alone(seed=1)
    with ExitStack() as stack:
        indexes = {
            kind: stack.enter_context(VectorIndex(context, **settings))
            for kind, settings in KINDS.items()
        }
        connections = {
            kind: {"url": index.url, "token": index.token} for kind, index in indexes.items()
        }
        result = subprocess.run(
            [str(NODE), "--test", "--test-reporter=spec", "vector.test.mjs"],
            cwd=HERE,
            env={**os.environ, "FAKE_VECTOR_INDEXES": json.dumps(connections)},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-4_000:]
        passed = re.search(r"pass (\d+)", result.stdout)
        assert passed is not None
        assert int(passed[1]) >= 21
        # The one request to the bare address is the only one without a route.
        assert [problem.kind for problem in context.problems] == ["unrouted"]
        indexes["hybrid"].assert_queried(top_k=1, times=1)
