import pytest


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_mail_is_sent(queue):
    sent = []
    queue.destinations.call("https://mail.example.com/send", lambda request: sent.append(request))
    queue.client().message.publish_json(
        url="https://mail.example.com/send", body={"to": "ada@example.com"}
    )
    assert len(sent) == 1
