import pytest


class Catalogue:
    def __init__(self, index, redis):
        self.index, self.redis = index, redis

    def add(self, sku, name, price):
        self.redis.set(f"price:{sku}", price)
        self.index.upsert([(sku, [len(name), 1.0], {"name": name, "price": price})])

    def reprice(self, sku, price):
        self.redis.set(f"price:{sku}", price)
        self.index.update(id=sku, metadata={"price": price})

    def search(self, name):
        hits = self.index.query(vector=[len(name), 1.0], top_k=1, include_metadata=True)
        return [hit.metadata for hit in hits]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_search_shows_names_and_prices(vector_index, kv_server):
    catalogue = Catalogue(vector_index.client(), kv_server.client())
    catalogue.add("tea-1", "Assam", 390)
    catalogue.add("tea-2", "Darjeeling", 450)
    catalogue.reprice("tea-2", 410)
    found = catalogue.search("Darjeeling")
    assert found == [{"name": "Darjeeling", "price": 410}]
