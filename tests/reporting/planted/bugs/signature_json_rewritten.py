import json

import pytest
from qstash import Receiver


class Hook:
    def __init__(self, queue, url):
        self.receiver = Receiver(queue.current_signing_key, queue.next_signing_key)
        self.url, self.seen = url, []

    def handle(self, request):
        data = json.loads(request.body)
        try:
            self.receiver.verify(
                signature=request.headers.get("Upstash-Signature"),
                body=json.dumps(data),
                url=self.url,
            )
        except Exception:
            return 401, {"error": "bad signature"}
        self.seen.append(data)
        return 200


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1, env=True)
def test_a_signed_hook_is_taken(queue):
    url = "https://app.example.com/hook"
    hook = Hook(queue, url)
    queue.destinations.call(url, hook.handle)
    queue.publish(url, body='{"order":7}', retries=0)
    queue.run_until_idle()
    assert hook.seen == [{"order": 7}]
