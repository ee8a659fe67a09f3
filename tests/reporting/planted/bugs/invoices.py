import flask
import pytest


def create_app(redis, queue):
    app = flask.Flask("invoices")

    @app.post("/lines")
    def add_line():
        line = flask.request.json
        redis.hset(f"invoice:{line['invoice']}", line["article"], line["cents"])
        return "", 204

    @app.post("/send/<number>")
    def send(number):
        lines = redis.hgetall(f"invoice:{number}")
        total = sum(int(cents) for cents in lines.values())
        queue.message.publish_json(
            url="https://mail.example.com/invoices", body={"number": number, "total": total}
        )
        return "", 202

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_an_invoice_contains_all_lines(kv_server, queue):
    queue.destinations.accept("https://mail.example.com")
    client = create_app(kv_server.client(), queue.client()).test_client()
    client.post("/lines", json={"invoice": "7", "article": "tea", "cents": 390})
    client.post("/lines", json={"invoice": "7", "article": "tea", "cents": 390})
    client.post("/send/7")
    queue.run_until_idle()
    assert [message.json()["total"] for message in queue.messages()] == [780]
