"""Test that a filter whose cost grows with its length and the index stops at its budget."""

from __future__ import annotations

import httpx
import pytest

from pytest_fakecloud.core import budget
from pytest_fakecloud.handle import Context
from pytest_fakecloud.vector.handle import VectorIndex

FILTERS = {
    "tests": " OR ".join(["a = 1"] * 200),
    "CONTAINS": " OR ".join(["list CONTAINS 1"] * 20),
    "GLOB": "text GLOB '*" + "?b" * 500 + "c*'",
    "HAS": " OR ".join(["HAS FIELD x"] * 200),
}


@pytest.mark.parametrize("filter", FILTERS.values(), ids=FILTERS)
def test_a_filter_stops_at_its_budget(filter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"a": 0, "list": [0] * 50, "text": "b" * 2000}
    with VectorIndex(Context.alone(), dimension=2) as index:
        index.load([{"id": str(n), "vector": [1, n], "metadata": metadata} for n in range(50)])
        asked = [
            ("query", {"vector": [1, 1], "topK": 3, "filter": filter}),
            ("delete", {"filter": filter}),
        ]
        with httpx.Client(base_url=index.url, headers=index.headers, trust_env=False) as http:
            monkeypatch.setattr(budget, "STEPS", 20_000)
            for path, body in asked:
                answer = http.post(f"/{path}", json=body)
                assert answer.status_code == 422
                assert "it takes more than" in answer.json()["error"]
            assert http.get("/info").json()["result"]["vectorCount"] == 50
