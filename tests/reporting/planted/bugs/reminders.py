import json

import pytest


class Reminders:
    def __init__(self, redis, queue):
        self.redis, self.queue = redis, queue
        self.sent = []

    def plan(self, user, text):
        number = self.redis.incr("reminders")
        self.redis.set("reminder", json.dumps({"user": user, "text": text}))
        self.queue.message.publish_json(
            url="https://app.example.com/remind", body={"number": number}, delay="1h"
        )

    def remind(self, request):
        reminder = json.loads(self.redis.get("reminder"))
        self.sent.append((reminder["user"], reminder["text"]))


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_each_user_gets_their_own_reminder(kv_server, queue):
    reminders = Reminders(kv_server.client(), queue.client())
    queue.destinations.call("https://app.example.com/remind", reminders.remind)
    reminders.plan("ada", "tea")
    reminders.plan("bob", "rent")
    queue.run_until_idle()
    assert reminders.sent == [("ada", "tea"), ("bob", "rent")]
