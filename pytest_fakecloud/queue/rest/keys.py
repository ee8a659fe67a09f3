"""Endpoints for the keys that sign deliveries."""

from __future__ import annotations

from ...http.messages import Request
from ..engine.engine import Engine
from .routing import QueueRoute


def get_keys(engine: Engine, request: Request) -> object:
    return {"current": engine.keys.current, "next": engine.keys.next}


def rotate_keys(engine: Engine, request: Request) -> object:
    engine.keys.rotate()
    return get_keys(engine, request)


ROUTES = [
    QueueRoute("GET", "/v2/keys", "get_keys", get_keys),
    QueueRoute("POST GET", "/v2/keys/rotate", "rotate_keys", rotate_keys, changes=True),
]
