"""Deduplication, which recognises publish requests that repeat earlier ones.

Decided here: a duplicate has the same deduplication id or, with content-based deduplication, the
same destination, body, content type and forwarded headers. Endpoints of a URL group are compared
separately.
"""

from __future__ import annotations

import hashlib
from itertools import islice

from ..model import PublishSettings

_SWEEP = 64
"""Maximum number of entries that are examined for expiry at a time."""


class Deduplication:
    """The deduplication keys of a queue, each with its expiry and the id of the first message or
    schedule that had it.

    ``window_us`` is the time for which a key is kept, in microseconds.
    """

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self.seen: dict[str, tuple[int, str]] = {}

    def earlier_id(self, key: str | None, now: int) -> str | None:
        if key is None or key not in self.seen:
            return None
        expires, found = self.seen[key]
        return found if expires > now else None

    def remember(self, key: str | None, given_id: str, now: int) -> None:
        if key is not None:
            self.seen.pop(key, None)
            self.seen[key] = (now + self._window_us, given_id)

    def forget_expired(self, now: int) -> None:
        # Examine the oldest entries only, because all are kept for the same time.
        expired = [key for key, seen in islice(self.seen.items(), _SWEEP) if seen[0] <= now]
        for key in expired:
            del self.seen[key]


def deduplication_key(
    settings: PublishSettings,
    body: bytes,
    url: str,
    topic_name: str | None = None,
    *,
    by_endpoint: bool = False,
) -> str | None:
    """Return the key that a duplicate has in common with the first message, or None.

    With ``by_endpoint``, a deduplication id applies to each endpoint of a URL group separately.
    """
    if settings.deduplication_id is not None:
        return f"id:{settings.deduplication_id}" + (f":{url}" if by_endpoint else "")
    if not settings.content_based_deduplication:
        return None
    digest = hashlib.sha256()
    for part in (
        topic_name or "",
        url,
        settings.content_type or "",
        *sorted(f"{name.lower()}:{value}" for name, value in settings.forward),
    ):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\x00")
    digest.update(body)
    return f"content:{digest.hexdigest()}"
