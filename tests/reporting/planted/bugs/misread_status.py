import pytest


class Translations:
    """The callback tells what the model answered, and whether it did."""

    def __init__(self, redis):
        self.redis = redis

    def done(self, request):
        about = request.json()
        name = about["url"].rpartition("/")[2]
        if about.get("statusCode", 200) < 400:
            self.redis.sadd("translated", name)
        else:
            self.redis.sadd("failed", name)


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_refused_text_counts_as_failed(queue, kv_server):
    queue.destinations.answers("https://llm.example.com/greeting", (400, {"error": "too long"}))
    queue.destinations.call("https://app.example.com/done", Translations(kv_server.client()).done)
    queue.client().message.publish_json(
        url="https://llm.example.com/greeting",
        body={"text": "hello"},
        retries=0,
        callback="https://app.example.com/done",
    )
    queue.run_until_idle()
    assert kv_server.value("failed") == {"greeting"}
