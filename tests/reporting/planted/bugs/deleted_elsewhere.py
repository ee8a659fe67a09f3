import pytest


class Knowledge:
    def __init__(self, index):
        self.index = index

    def learn(self, customer, id, vector):
        self.index.upsert([(id, vector)], namespace=customer)

    def forget(self, customer, id):
        self.index.delete([id])

    def recall(self, customer, vector):
        return [one.id for one in self.index.query(vector, top_k=3, namespace=customer)]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_what_was_forgotten_is_not_found(vector_index):
    knowledge = Knowledge(vector_index.client())
    knowledge.learn("acme", "address", [1.0, 0.0])
    knowledge.forget("acme", "address")
    assert knowledge.recall("acme", [1.0, 0.0]) == []
