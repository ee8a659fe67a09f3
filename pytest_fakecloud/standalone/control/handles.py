"""Endpoints of the fakes of a cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...http.messages import Request
from ...http.routing import Route
from ..browse.routes import BrowseRoutes
from ..views import describe, view
from .calls import CallRoutes
from .requests import PREFIX, Refused, contract, fields, named
from .shapes import Closed, HandleEntry

if TYPE_CHECKING:
    from ...cloud import Cloud


class HandleRoutes:
    """Endpoints that start, describe and close fakes, return their data, and send them requests."""

    def __init__(self, cloud: Cloud, calls: CallRoutes) -> None:
        self._cloud = cloud
        self._calls = calls

    def routes(self) -> list[Route]:
        handle = f"{PREFIX}/handles/{{name}}"
        return [
            Route("POST", f"{PREFIX}/handles", "start_handle", self.start_handle),
            Route("GET", handle, "handle", self.get_handle),
            Route("DELETE", handle, "close_handle", self.close_handle),
            Route("GET", f"{handle}/view", "view", self.get_view),
            *BrowseRoutes(handle, lambda request: named(self._cloud, request)).routes(),
            Route("POST", f"{handle}/requests", "send", self.send_request, lingers=True),
        ]

    def start_handle(self, request: Request) -> HandleEntry:
        """Start another fake: ``{"fixture": "kv_server", "settings": {…}}``."""
        body = fields(request, "fixture", "settings")
        settings = {} if body.get("settings") is None else body["settings"]
        if not isinstance(settings, dict):
            raise Refused(422, f"settings must be an object, got {settings!r}")
        settings = {key: self._calls.decoded(value, "settings") for key, value in settings.items()}
        fixture = body.get("fixture")
        if not isinstance(fixture, str):
            raise Refused(422, f"fixture must be the name of a fixture, got {fixture!r:.200}")
        with contract():
            try:
                return describe(self._cloud.start(fixture, settings))
            except OSError as error:
                raise Refused(422, f"{fixture} cannot start at this address: {error}") from error

    def get_handle(self, request: Request) -> HandleEntry:
        """Return one fake: its address, credentials and environment variables."""
        return describe(named(self._cloud, request))

    def close_handle(self, request: Request) -> Closed:
        """Close a fake."""
        named(self._cloud, request).close()
        return {"closed": True}

    def get_view(self, request: Request) -> dict[str, Any]:
        """Return the data of a fake as plain JSON."""
        return view(named(self._cloud, request))

    def send_request(self, request: Request) -> dict[str, Any]:
        """Send a request to a fake like a client: ``{"method", "target", "headers", "body"}``.

        The request carries the fake's credentials unless ``headers`` sets others, is subject to
        injected faults, and is recorded. A string ``body`` is sent unchanged, any other value as
        JSON. Returns ``{"status", "headers", "body"}``, or ``{"broken"}`` if a fault broke the
        connection.
        """
        from ..console import send

        body = fields(request, "method", "target", "headers", "body")
        with contract():
            return send(named(self._cloud, request), **body)
