"""Reminders that a message queue delivers later, and what became of them."""

import json
from dataclasses import dataclass, field
from typing import Any

from qstash import QStash, Receiver


@dataclass
class Reminders:
    """Sends reminders through the queue and keeps book of their fate."""

    queue: QStash
    receiver: Receiver
    mailer_url: str
    callback_url: str
    failure_url: str
    sent: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)

    def remind(self, user: str, text: str, *, delay: str = "24h") -> str:
        """Plan a reminder; its message id."""
        response = self.queue.message.publish_json(
            url=self.mailer_url,
            body={"to": user, "text": text},
            delay=delay,
            retries=5,
            callback=self.callback_url,
            failure_callback=self.failure_url,
        )
        return str(response.message_id)

    def on_callback(self, body: str, signature: str, url: str) -> None:
        """What the queue says after an attempt: only a 2xx means that the reminder went out."""
        result = self._verified(body, signature, url)
        if 200 <= result["status"] < 300:
            self.sent.add(result["sourceMessageId"])

    def on_failure(self, body: str, signature: str, url: str) -> None:
        """What the queue says when it gave up."""
        self.given_up.add(self._verified(body, signature, url)["sourceMessageId"])

    def _verified(self, body: str, signature: str, url: str) -> dict[str, Any]:
        self.receiver.verify(body=body, signature=signature, url=url)
        result: dict[str, Any] = json.loads(body)
        return result
