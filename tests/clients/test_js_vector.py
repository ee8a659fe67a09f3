"""Run the official JavaScript client of the vector index in Node.

Skipped if Node or the package is missing: `npm ci` in `tests/clients/js` installs it.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_fakecloud.handle import Context
from pytest_fakecloud.vector.handle import VectorIndex

from . import node

pytestmark = pytest.mark.slow

KINDS: dict[str, dict[str, Any]] = {
    "dense": {"kind": "dense", "dimension": 2},
    "sparse": {"kind": "sparse"},
    "hybrid": {"kind": "hybrid", "dimension": 2},
    "dense with embedding": {"kind": "dense", "embedding": True},
    "hybrid with embedding": {"kind": "hybrid", "embedding": True},
}


def test_the_javascript_client() -> None:
    node.need("@upstash/vector")
    context = Context.alone(seed=1)
    with ExitStack() as stack:
        indexes = {
            kind: stack.enter_context(VectorIndex(context, **settings))
            for kind, settings in KINDS.items()
        }
        connections = {
            kind: {"url": index.url, "token": index.token} for kind, index in indexes.items()
        }
        outcome = node.run("vector.test.mjs", {"FAKE_VECTOR_INDEXES": json.dumps(connections)})
        assert outcome.passed >= 21
        # Only the request to the bare address has no route.
        assert [problem.kind for problem in context.problems] == ["unrouted"]
        indexes["hybrid"].assert_queried(top_k=1, times=1)
