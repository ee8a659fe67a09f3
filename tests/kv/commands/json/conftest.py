"""A JSON document in a key, and a reader of its paths."""

from __future__ import annotations

import json

import pytest

from tests.kv.conftest import Run

DOCUMENT = {
    "a": 2,
    "f": 1.5,
    "s": "text",
    "t": True,
    "n": None,
    "o": {"a": 4, "deep": {"a": "x"}},
    "list": [1, "two", 3.0, [4], {"a": 5}],
}


@pytest.fixture
def doc(run: Run) -> Run:
    run("JSON.SET", "d", "$", json.dumps(DOCUMENT))
    return run


def value(run: Run, path: str = "$", key: str = "d") -> object:
    """Return what a path of the document matches."""
    return json.loads(run("JSON.GET", key, path))
