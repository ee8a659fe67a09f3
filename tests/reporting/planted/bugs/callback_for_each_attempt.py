import base64
import json

import pytest


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_one_report_is_stored(queue, kv_server):
    redis = kv_server.client()

    def report(request):
        about = request.json()
        answer = json.loads(base64.b64decode(about["body"]))
        redis.rpush("reports", answer.get("result", "none"))

    url = "https://llm.example.com/generate"
    queue.destinations.answers(url, (503, {"error": "busy"}), (200, {"result": "a poem"}))
    queue.destinations.call("https://app.example.com/report", report)
    queue.client().message.publish_json(
        url=url, body={"prompt": "a poem"}, callback="https://app.example.com/report"
    )
    queue.run_until_idle()
    assert kv_server.value("reports") == ["a poem"]
