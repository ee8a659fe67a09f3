import pytest


class Pipeline:
    def __init__(self, client, redis):
        self.client, self.redis = client, redis

    def split(self, request):
        for part in request.json()["parts"]:
            self.client.message.publish_json(
                url="https://app.example.com/part", body={"part": part}, retries=0
            )
        self.redis.set("open", len(request.json()["parts"]))

    def part(self, request):
        if self.redis.decr("left") == 0:
            self.redis.set("state", "done")


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_all_parts_end_the_job(queue, kv_server):
    pipeline = Pipeline(queue.client(), kv_server.client())
    queue.destinations.call("https://app.example.com/split", pipeline.split)
    queue.destinations.call("https://app.example.com/part", pipeline.part)
    queue.publish("https://app.example.com/split", json={"parts": ["a", "b"]})
    queue.run_until_idle()
    assert kv_server.value("state") == "done"
