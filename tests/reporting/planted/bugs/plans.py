import pytest
from flask import Flask
from upstash_workflow.flask import Serve

SITE = "https://notes.example.com"


def create_app(redis, client):
    app = Flask(__name__)

    @Serve(app).route("/trial", qstash_client=client, receiver=None, url=f"{SITE}/trial")
    def trial(context):
        name = context.request_payload["name"]
        account = context.run("account", lambda: redis.hgetall(f"account:{name}"))
        context.sleep("trial", "14d")

        def charge():
            redis.hset("invoices", name, account["plan"])

        context.run("charge", charge)

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_invoice_is_for_the_plan_at_the_end_of_the_trial(kv_server, queue, monkeypatch):
    monkeypatch.setattr("upstash_workflow.workflow_parser._nanoid", lambda: "1")
    redis = kv_server.client()
    queue.destinations.wsgi(SITE, create_app(redis, queue.client()))
    redis.hset("account:ada", "plan", "solo")
    queue.client().message.publish_json(url=f"{SITE}/trial", body={"name": "ada"})
    queue.clock.advance("5d")
    redis.hset("account:ada", "plan", "team")
    queue.run_until_idle()
    assert kv_server.value("invoices") == {"ada": "team"}
