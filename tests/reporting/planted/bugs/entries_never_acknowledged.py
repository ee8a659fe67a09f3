import pytest
import redis


class Worker:
    def __init__(self, client):
        self.client, self.done = client, []

    def work(self, name):
        for _, _, entries in [(0, *one) for one in self.claimed(name) + self.new(name)]:
            self.done += [fields["job"] for _, fields in entries]

    def claimed(self, name):
        found = self.client.xautoclaim("jobs", "workers", name, min_idle_time=60_000)
        return [("jobs", found[1])]

    def new(self, name):
        return self.client.xreadgroup("workers", name, {"jobs": ">"}) or []


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_each_job_is_done_once(kv_server, fakecloud):
    with redis.Redis.from_url(kv_server.database_url, protocol=2, decode_responses=True) as client:
        client.xgroup_create("jobs", "workers", "0", mkstream=True)
        client.xadd("jobs", {"job": "resize"})
        worker = Worker(client)
        worker.work("w1")
        fakecloud.clock.advance("5m")
        worker.work("w1")
    assert worker.done == ["resize"]
