import pytest


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if not path.endswith("/"):
        start_response("308 Permanent Redirect", [("Location", f"{path}/")])
        return [b""]
    start_response("200 OK", [])
    return [b"ok"]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_event_arrives(queue):
    queue.destinations.wsgi("https://app.example.com", application)
    queue.publish("https://app.example.com/events", json={"n": 1}, retries=1)
    queue.run_until_idle()
    queue.assert_delivered("https://app.example.com/events")
