import pytest


class Jobs:
    def __init__(self, redis):
        self.redis = redis

    def work(self, run):
        while (job := self.redis.lpop("jobs")) is not None:
            try:
                run(job)
            except ConnectionError:
                return
            self.redis.incr("done")


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_job_is_done_after_a_failure(kv_server):
    kv_server.load({"jobs": ["resize", "mail"]})
    jobs = Jobs(kv_server.client())

    def offline(job):
        raise ConnectionError("no network")

    jobs.work(offline)
    jobs.work(print)
    assert kv_server.value("done") == "2"
