"""A queue engine without HTTP, on a frozen clock, with a function as its destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.queue.engine.engine import Engine
from pytest_fakecloud.queue.model import SECOND, Delivery, FaultDecisions, Outcome, SigningKeys
from pytest_fakecloud.queue.settings import QueueConfig
from pytest_fakecloud.queue.signatures import Signer

URL = "https://app.example.com/hook"
CALLBACK = "https://app.example.com/callback"


class FakeSigner(Signer):
    """Signs without PyJWT, and lists the URL, the body, the key and the age of each signature."""

    def __init__(self) -> None:
        keys = SigningKeys("current", "next", lambda: "new")
        super().__init__(keys, lambda: 0.0, Ids(1).stream("x"))
        self.signatures: list[tuple[str, bytes, str | None, float]] = []

    def sign(self, url: str, body: bytes, *, key: str | None = None, age: float = 0.0) -> str:
        self.signatures.append((url, body, key, age))
        return "token"


class Bench:
    """An engine whose deliveries ``answer`` responds to. ``sent`` lists the deliveries, ``reports`` the
    descriptions of endless loops.
    """

    def __init__(self, **options: Any) -> None:
        self.clock = Timekeeper(now="2026-01-01T00:00:00Z")
        self.start_us = self.clock.now_us()
        self.sent: list[Delivery] = []
        self.sent_us: list[int] = []
        self.answer: Callable[[Delivery], Outcome] = lambda delivery: Outcome(200)
        self.signer = FakeSigner()
        self.reports: list[str] = []
        self.engine = Engine(
            self.clock,
            Ids(1),
            perform=self.perform,
            keys=self.signer.keys,
            in_background=options.pop("in_background", False),
            settings=QueueConfig(**options),
            report=lambda kind, text, **fields: self.reports.append(text),
        )
        self.engine.deliveries.intercept(self.signer)

    def inject(self, faults: FaultDecisions) -> None:
        self.engine.interceptors.faults.add(faults)

    async def perform(self, delivery: Delivery, in_loop: bool = False) -> Outcome:
        self.sent.append(delivery)
        self.sent_us.append(self.clock.now_us())
        return self.answer(delivery)

    def publish(self, url: str = URL, body: bytes = b"x", **headers: str) -> str:
        pairs = [(f"Upstash-{name.replace('_', '-')}", value) for name, value in headers.items()]
        return self.engine.publisher.publish(url, pairs, body).accepted[0].message_id

    def publish_on_delivery(self, **headers: str) -> None:
        """Publish another message on every delivery, as a handler in this process does."""

        def answer(delivery: Delivery) -> Outcome:
            self.publish(**headers)
            return Outcome(200)

        self.answer = answer

    def times(self) -> list[float]:
        return [(at_us - self.start_us) / SECOND for at_us in self.sent_us]

    def state(self, message_id: str) -> str:
        return self.engine.data.messages[message_id].state
