import json
import logging

import flask
import pytest

log = logging.getLogger("summaries")


def create_app(redis):
    app = flask.Flask("summaries")

    @app.post("/done")
    def done():
        about = flask.request.get_json()
        try:
            text = json.loads(about["body"])["text"]
            redis.set(f"summary:{about['sourceMessageId']}", text)
        except ValueError:
            log.exception("no summary")
        return "", 200

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_summary_is_kept(queue, kv_server):
    queue.destinations.respond("https://llm.example.com/summarise", (200, {"text": "short"}))
    queue.destinations.wsgi("https://app.example.com", create_app(kv_server.client()))
    sent = queue.client().message.publish_json(
        url="https://llm.example.com/summarise",
        body={"text": "a long text"},
        callback="https://app.example.com/done",
    )
    queue.run_until_idle()
    assert kv_server.value(f"summary:{sent.message_id}") == "short"
