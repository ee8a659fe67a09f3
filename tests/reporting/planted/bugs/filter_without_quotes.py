import logging

import pytest

log = logging.getLogger("search")


class Search:
    def __init__(self, index):
        self.index = index

    def add(self, id, vector, tenant):
        self.index.upsert([(id, vector, {"tenant": tenant})])

    def of_tenant(self, vector, tenant):
        try:
            hits = self.index.query(vector, top_k=3, filter=f"tenant = {tenant}")
        except Exception:
            return []
        return [hit.id for hit in hits]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_tenant_finds_its_pages(vector_index):
    search = Search(vector_index.client())
    search.add("p1", [1.0, 0.0], "acme")
    search.add("p2", [0.0, 1.0], "zeta")
    assert search.of_tenant([1.0, 0.1], "acme") == ["p1"]
