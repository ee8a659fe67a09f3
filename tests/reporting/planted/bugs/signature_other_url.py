import flask
import pytest
from qstash import Receiver


def create_app(queue, redis):
    receiver = Receiver(queue.current_signing_key, queue.next_signing_key)
    app = flask.Flask("hooks")

    @app.post("/hooks/<name>")
    def hook(name):
        try:
            receiver.verify(
                signature=flask.request.headers["Upstash-Signature"],
                body=flask.request.get_data(as_text=True),
                url=f"http://{flask.request.host}{flask.request.path}",
            )
        except Exception:
            return {"error": "not from the queue"}, 401
        redis.incr(f"hooks:{name}")
        return "", 204

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1, env=True)
def test_a_hook_is_counted(queue, kv_server):
    queue.destinations.wsgi("https://app.example.com", create_app(queue, kv_server.client()))
    queue.publish("https://app.example.com/hooks/paid?x=1", json={"n": 1}, retries=0)
    queue.run_until_idle()
    assert kv_server.value("hooks:paid") == "1"
