import pytest
from upstash_vector import Vector


class Prompts:
    def __init__(self, index):
        self.index = index

    def add(self, id, vector, version):
        self.index.upsert([Vector(id, vector, metadata={"prompt": str(version)})])

    def nearest(self, vector, version):
        found = self.index.query(vector, top_k=3, filter=f"prompt = {version}")
        return [one.id for one in found]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_prompts_of_a_version_are_found(vector_index):
    prompts = Prompts(vector_index.client())
    prompts.add("greeting", [0.1, 0.9], 1)
    prompts.add("farewell", [0.9, 0.1], 2)
    assert prompts.nearest([0.1, 0.9], 1) == ["greeting"]
