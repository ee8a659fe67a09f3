"""The HTTP request of a delivery: its headers, its signature, and injected faults of both."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..model import SECOND, Delivery, HeaderList, Message, Sign, SigningKeys, first


def delivery_of(message: Message, body: bytes, now: int, *, prefix: str, region: str) -> Delivery:
    """Return the unsigned delivery of a message.

    ``prefix`` begins the names of the queue's own headers, such as ``Upstash``.
    """
    settings = message.settings
    own: HeaderList = list(settings.workflow)
    if settings.content_type is not None:
        own.append(("Content-Type", settings.content_type))
    own += [
        (f"{prefix}-Message-Id", message.public_id),
        (f"{prefix}-Retried", str(message.retried)),
        (f"{prefix}-Caller-Ip", message.caller_ip),
        (f"{prefix}-Region", region),
    ]
    if message.topic_name is not None:
        own.append((f"{prefix}-Topic-Name", message.topic_name))
    if message.schedule_id is not None:
        own.append((f"{prefix}-Schedule-Id", message.schedule_id))
    headers = list(settings.forward)
    if headers:
        # Drop headers that a workflow has copied from its own delivery, including the old
        # signature.
        taken = {name.lower() for name, _ in own} | {f"{prefix}-signature".lower()}
        headers = [pair for pair in headers if pair[0].lower() not in taken]
    if first(headers, "User-Agent") is None:
        headers.append(("User-Agent", "Upstash-QStash"))
    return Delivery(
        message_id=message.public_id,
        url=message.url,
        method=settings.method,
        headers=headers + own,
        body=body,
        attempt=message.retried,
        at_us=now,
        timeout_us=message.timeout_us,
        kind=message.kind,
        sub=message.url,
    )


class DeliverySigner:
    """Signs deliveries with ``sign`` and the current key, unless a fault changes that.

    ``new_key`` returns a key that no receiver knows.
    """

    def __init__(self, sign: Sign, keys: SigningKeys, new_key: Callable[[], str]) -> None:
        self.sign = sign
        self._keys = keys
        self._new_key = new_key

    def signed(self, delivery: Delivery, faults: Collection[str]) -> Delivery:
        """Return a delivery with its signature, changed by injected faults."""
        if not faults:
            return delivery._replace(headers=delivery.headers + self.sign(delivery, None, 0))
        signature: HeaderList = []
        if "unsigned" not in faults:
            key: str | None = None
            if "wrong_key" in faults:
                key = self._new_key()
            elif "next_key" in faults:
                key = self._keys.next
            age = 3600 * SECOND if "expired" in faults else 0
            signature = self.sign(delivery, key, age)
        return delivery._replace(
            headers=delivery.headers + signature,
            body=delivery.body + b"tampered" if "tamper" in faults else delivery.body,
            signed="unsigned" not in faults,
        )
