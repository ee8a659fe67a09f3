import pytest


class Exports:
    def __init__(self, client, redis):
        self.client, self.redis = client, redis
        client.queue.upsert("exports", parallelism=1)

    def order(self, name):
        self.client.message.enqueue_json(
            queue="exports", url="https://worker.example.com/export", body={"name": name}, retries=3
        )

    def export(self, request):
        name = request.json()["name"]
        if not name.isalpha():
            raise ValueError(f"no such table: {name}")
        self.redis.sadd("done", name)


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_one_bad_name_holds_up_nobody(queue, kv_server):
    exports = Exports(queue.client(), kv_server.client())
    queue.destinations.call("https://worker.example.com/export", exports.export)
    for name in ("users", "or ders", "items", "prices"):
        exports.order(name)
    queue.clock.advance("10s")
    assert kv_server.value("done") == {"users", "items", "prices"}
