"""Endpoints of the snapshots that a server keeps."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...core.wording import unknown_name
from ...http.messages import Request
from ...http.readers import decode_segment
from ...http.routing import Route
from .requests import PREFIX, Refused, fields
from .shapes import Snapshot

if TYPE_CHECKING:
    from ...cloud import Cloud, CloudSnapshot


class SnapshotRoutes:
    """Endpoints that take, list, restore and delete snapshots of the data of all fakes."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._snapshots: dict[str, CloudSnapshot] = {}
        self._numbers = itertools.count(1)

    def routes(self) -> list[Route]:
        snapshots = f"{PREFIX}/snapshots"
        return [
            Route("GET", snapshots, "snapshots", self.get_snapshots),
            Route("POST", snapshots, "take_snapshot", self.take_snapshot),
            Route("POST", f"{snapshots}/{{id}}", "restore_snapshot", self.restore_snapshot),
            Route("DELETE", f"{snapshots}/{{id}}", "drop_snapshot", self.drop_snapshot),
        ]

    def get_snapshots(self, request: Request) -> list[Snapshot]:
        """Return the snapshots that the server keeps."""
        return [{"id": name} for name in self._snapshots]

    def take_snapshot(self, request: Request) -> Snapshot:
        """Take a snapshot of all fakes. ``{"id": name}`` names it; the default name is a number."""
        wanted = fields(request, "id").get("id")
        if wanted is not None and (type(wanted) not in (int, str) or wanted == ""):
            raise Refused(
                422, f"the id of a snapshot must be a string or an integer, got {wanted!r}"
            )
        name = str(next(self._numbers) if wanted is None else wanted)
        self._snapshots[name] = self._cloud.snapshot()
        return {"id": name}

    def _snapshot(self, request: Request) -> str:
        name = decode_segment(request.params["id"])
        if name not in self._snapshots:
            raise Refused(404, unknown_name("snapshot", name, self._snapshots))
        return name

    def restore_snapshot(self, request: Request) -> Snapshot:
        """Restore a snapshot."""
        name = self._snapshot(request)
        self._cloud.restore(self._snapshots[name])
        return {"id": name}

    def drop_snapshot(self, request: Request) -> Snapshot:
        """Delete a snapshot."""
        name = self._snapshot(request)
        del self._snapshots[name]
        return {"id": name}
