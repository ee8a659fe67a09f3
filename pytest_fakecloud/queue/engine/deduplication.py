"""Deduplication of published messages.

Decided here: a duplicate has the same deduplication id or, with content-based deduplication, the same
destination, body, content type and forwarded headers. Endpoints of a URL group are compared
separately.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import islice

from ..model import PublishSettings
from .data import QueueData

_SWEEP = 64
"""Maximum number of deduplication keys that are examined for expiry at a time."""


def deduplication_key(
    settings: PublishSettings,
    body: bytes,
    url: str,
    topic_name: str | None = None,
    *,
    by_endpoint: bool = False,
    run: str = "",
) -> str | None:
    """Return the key that a duplicate has in common with the first message, or None.

    With ``by_endpoint``, a deduplication id applies to each endpoint of a URL group separately. The
    content of a message includes the workflow run that it is part of.
    """
    if settings.deduplication_id is not None:
        return f"id:{settings.deduplication_id}" + (f":{url}" if by_endpoint else "")
    if not settings.content_based_deduplication:
        return None
    headers = sorted(f"{name.lower()}:{value}" for name, value in settings.forward)
    parts = (topic_name or "", run, url, settings.content_type or "", *headers, "")
    content = "\0".join(parts).encode("utf-8", "surrogatepass") + body
    return f"content:{sha256(content).hexdigest()}"


class Deduplication:
    """The keys of earlier messages and schedules. ``keys`` has for each of them when it expires, and the
    id that duplicates get. The oldest are first, because all are kept for the same time.
    """

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self.keys: dict[str, tuple[int, str]] = {}

    def earlier_id(self, key: str | None, now: int) -> str | None:
        expires, earlier_id = self.keys.get(key or "", (0, None))
        return earlier_id if expires > now else None

    def remember(self, key: str | None, given_id: str, now: int) -> None:
        if key is not None:
            self.keys.pop(key, None)
            self.keys[key] = (now + self._data.settings.dedup_window_us, given_id)

    def forget_expired(self, now: int) -> None:
        oldest = islice(self.keys.items(), _SWEEP)
        for key in [key for key, (expires, _) in oldest if expires <= now]:
            del self.keys[key]

    def forget(self, key: str, given_id: str) -> None:
        """Forget a key that was remembered for this id."""
        if self.keys.get(key, (0, ""))[1] == given_id:
            del self.keys[key]
