"""Hands changed keys on to blocked clients, client-side caching, notifications and search indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .blocking import Waiters
    from .client import Client
    from .keyspace import Keyspace
    from .notifications import Notifications
    from .tracking import Tracking


class Changes:
    """Makes keyspaces record changed keys, while a client or index depends on them."""

    def __init__(
        self,
        databases: list[Keyspace],
        waiters: Waiters,
        tracking: Tracking,
        notifications: Notifications,
    ) -> None:
        self._databases = databases
        self._waiters = waiters
        self._tracking = tracking
        self._notifications = notifications
        self.followed = False
        """Whether keyspaces currently record changed keys."""

    def follow(self) -> None:
        """Start or stop recording, whenever something that depends on it is added or removed."""
        self.followed = bool(
            self._waiters
            or self._tracking
            or self._notifications
            or any(keyspace.indexes is not None for keyspace in self._databases)
        )
        for keyspace in self._databases:
            if not self.followed:
                keyspace.touched = None
            elif keyspace.touched is None:
                keyspace.touched = set()
            if not self._tracking:
                keyspace.changed = None
            elif keyspace.changed is None:
                keyspace.changed = {}

    def hand_on(self, writer: Client | None, now_ms: int) -> None:
        """Send invalidation messages for changed keys, and retry the commands blocked on them."""
        if self._tracking:
            self._tracking.invalidate_changed(writer)
            self._tracking.keep_within_bounds()
            self._notifications.plan()
        if self._waiters:
            self.serve_waiters(now_ms)
        else:
            for keyspace in self._databases:
                if keyspace.touched:
                    keyspace.touched.clear()

    def serve_waiters(self, now_ms: int) -> None:
        self._waiters.serve(self._databases, now_ms, self._tracking.invalidate_changed)
