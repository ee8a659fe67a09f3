import pytest
from upstash_vector import Vector


class Recipes:
    def __init__(self, index):
        self.index = index

    def add(self, name, vector, tags):
        self.index.upsert([Vector(name, vector, metadata={"tags": tags})])

    def with_tag(self, vector, tag):
        found = self.index.query(vector, top_k=5, filter=f"tags = '{tag}'")
        return sorted(one.id for one in found)


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_vegan_recipes_are_found(vector_index):
    recipes = Recipes(vector_index.client())
    recipes.add("dal", [0.2, 0.8], ["vegan", "quick"])
    recipes.add("pie", [0.7, 0.3], ["slow"])
    assert recipes.with_tag([0.5, 0.5], "vegan") == ["dal"]
