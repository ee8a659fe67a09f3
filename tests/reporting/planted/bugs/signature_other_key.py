import os

import pytest
from qstash import Receiver


def application(environ, start_response):
    receiver = Receiver(
        os.environ["QSTASH_CURRENT_SIGNING_KEY"], os.environ["QSTASH_NEXT_SIGNING_KEY"]
    )
    length = int(environ["CONTENT_LENGTH"] or 0)
    try:
        receiver.verify(
            signature=environ["HTTP_UPSTASH_SIGNATURE"],
            body=environ["wsgi.input"].read(length).decode(),
        )
    except Exception:
        start_response("403 Forbidden", [("Content-Type", "text/html")])
        return [
            b"<html><head><title>403 Forbidden</title></head><body><p>Go away</p></body></html>"
        ]
    start_response("200 OK", [])
    return [b"ok"]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_hook_is_taken(queue, monkeypatch):
    monkeypatch.setenv("QSTASH_CURRENT_SIGNING_KEY", "sig_of_the_staging_account")
    monkeypatch.setenv("QSTASH_NEXT_SIGNING_KEY", "sig_of_the_staging_account_too")
    queue.destinations.wsgi("https://app.example.com", application)
    queue.publish("https://app.example.com/hook", json={"n": 1}, retries=0)
    queue.run_until_idle()
    queue.assert_delivered("https://app.example.com/hook")
