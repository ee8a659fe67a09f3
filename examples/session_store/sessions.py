"""Login sessions in a key-value store: they slide while used and end when idle."""

import json
import secrets

from upstash_redis import Redis

IDLE_SECONDS = 30 * 60


class Sessions:
    """Sessions of users; every visit prolongs one, silence ends it."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def login(self, user: str) -> str:
        """Start a session and return its id."""
        session_id = secrets.token_urlsafe(16)
        key = f"session:{session_id}"
        self._redis.set(key, json.dumps({"user": user, "visits": 0}), ex=IDLE_SECONDS)
        self._redis.sadd(f"sessions-of:{user}", session_id)
        return session_id

    def visit(self, session_id: str) -> str | None:
        """The user of a live session, whose idle time starts anew; None when it has ended."""
        key = f"session:{session_id}"
        stored = self._redis.get(key)
        if stored is None:
            return None
        session = json.loads(stored)
        session["visits"] += 1
        # XX: a session that ended between the two commands must not come back.
        if not self._redis.set(key, json.dumps(session), ex=IDLE_SECONDS, xx=True):
            return None
        return str(session["user"])

    def logout_everywhere(self, user: str) -> int:
        """End all sessions of a user, as one transaction; how many there were."""
        ids = self._redis.smembers(f"sessions-of:{user}")
        if not ids:
            return 0
        transaction = self._redis.multi()
        transaction.delete(*[f"session:{session_id}" for session_id in ids])
        transaction.delete(f"sessions-of:{user}")
        return int(transaction.exec()[0])
