import json
import logging

import pytest

log = logging.getLogger("shop")


def charge(amount):
    return {"EUR": 1.0}[amount["currency"]] * amount["value"]


def application(environ, start_response):
    try:
        length = int(environ["CONTENT_LENGTH"] or 0)
        charge(json.loads(environ["wsgi.input"].read(length)))
    except Exception:
        log.exception("charge failed")
        start_response("422 Unprocessable Entity", [("Content-Type", "application/json")])
        return [b'{"error": "could not charge"}']
    start_response("200 OK", [])
    return [b"ok"]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_charge_is_made(queue):
    queue.destinations.wsgi("https://pay.example.com", application)
    queue.client().message.publish_json(
        url="https://pay.example.com/charge", body={"value": 5, "currency": "USD"}, retries=0
    )
    queue.run_until_idle()
    queue.assert_delivered("https://pay.example.com/charge")
