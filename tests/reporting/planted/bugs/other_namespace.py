import pytest


class Docs:
    def __init__(self, index):
        self.index = index

    def add(self, tenant, id, vector):
        self.index.upsert([(id, vector)], namespace=f"tenant-{tenant}")

    def search(self, tenant, vector):
        return [one.id for one in self.index.query(vector, top_k=5, namespace=tenant)]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_tenant_finds_its_documents(vector_index):
    docs = Docs(vector_index.client())
    docs.add("acme", "contract", [1.0, 0.0])
    assert docs.search("acme", [1.0, 0.0]) == ["contract"]
