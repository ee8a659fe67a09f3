import pytest
from qstash import Receiver


class Hook:
    """Runs behind a proxy, which calls it at an internal URL."""

    def __init__(self, queue):
        self.receiver = Receiver(queue.current_signing_key, queue.next_signing_key)
        self.seen = []

    def __call__(self, environ, start_response):
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
        url = f"http://hooks.internal:8000{environ['PATH_INFO']}"
        try:
            self.receiver.verify(signature=environ["HTTP_UPSTASH_SIGNATURE"], body=body, url=url)
        except Exception as error:
            start_response("401 Unauthorized", [("Content-Type", "text/plain")])
            return [f"refused: {error}".encode()]
        self.seen.append(body)
        start_response("204 No Content", [])
        return []


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1, env=True)
def test_what_the_queue_sends_is_trusted(queue):
    hook = Hook(queue)
    queue.destinations.wsgi("https://hooks.example.com", hook)
    queue.publish("https://hooks.example.com/paid", json={"order": 7}, retries=0)
    queue.run_until_idle()
    assert hook.seen == ['{"order": 7}']
