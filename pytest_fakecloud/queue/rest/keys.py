"""Endpoints for the keys that sign deliveries."""

from __future__ import annotations

from ...http.messages import Request
from .family import QueueRoute, RouteFamily


class KeyRoutes(RouteFamily):
    """Endpoints that show and rotate the signing keys."""

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        return [
            cls.route("GET", "/v2/keys", "get_keys", cls.get_keys),
            cls.route("POST GET", "/v2/keys/rotate", "rotate_keys", cls.rotate_keys, changes=True),
            cls.route("GET", "/v1/keys", "get_keys_v1", cls.get_keys),
            cls.route(
                "POST GET", "/v1/keys/rotate", "rotate_keys_v1", cls.rotate_keys, changes=True
            ),
        ]

    def get_keys(self, request: Request) -> object:
        return {"current": self.engine.keys.current, "next": self.engine.keys.next}

    def rotate_keys(self, request: Request) -> object:
        self.engine.rotate_keys()
        return self.get_keys(request)
