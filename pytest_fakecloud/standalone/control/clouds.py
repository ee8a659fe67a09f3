"""Endpoints of the isolated clouds of a server."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from ...http.messages import Request
from ...http.readers import decode_segment
from ...http.routing import Route
from .requests import PREFIX, Refused, contract, fields
from .shapes import Closed, CloudEntry, NewCloud

if TYPE_CHECKING:
    from ...serving import Served

MOST_CLOUDS = 1000
Opener = Callable[[Mapping[str, Any]], AbstractContextManager["Served"]]
"""Serves a cloud for a with-block; raises ``ContractError`` for invalid options."""


class IsolatedClouds:
    """Endpoints that start, list and close clouds that share nothing with each other."""

    def __init__(self, opener: Opener) -> None:
        self._open = opener
        self._served: dict[str, tuple[Served, ExitStack]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def routes(self) -> list[Route]:
        return [
            Route("GET", f"{PREFIX}/clouds", "clouds", self.get_clouds),
            Route("POST", f"{PREFIX}/clouds", "new_cloud", self.new_cloud),
            Route("DELETE", f"{PREFIX}/clouds/{{id}}", "end_cloud", self.end_cloud),
        ]

    def get_clouds(self, request: Request) -> list[CloudEntry]:
        """Return the isolated clouds, oldest first."""
        with self._lock:
            served = list(self._served.items())
        return [
            {"id": id, "url": one.url, "handles": [handle.name for handle in one.cloud.handles]}
            for id, (one, _) in served
        ]

    def new_cloud(self, request: Request) -> NewCloud:
        """Start a cloud with its own clock, fakes, ports, credentials and journal.

        ``{"services": {"kv": {…}}, "seed", "now", "clock"}``; an omitted option has the value that
        the server was started with. ``PYTEST_FAKECLOUD_URL`` and ``PYTEST_FAKECLOUD_TOKEN`` in
        ``env`` belong to the new cloud's own control API.
        """
        wanted = fields(request, "services", "seed", "now", "clock")
        with ExitStack() as stack, contract(), self._lock:
            if len(self._served) >= MOST_CLOUDS:
                raise Refused(
                    422,
                    f"there are {MOST_CLOUDS} clouds, the maximum: close unused ones with DELETE",
                )
            served = stack.enter_context(self._open(wanted))
            id = str(next(self._numbers))
            made: NewCloud = {"id": id, "seed": served.cloud.seed, "env": served.env}
            self._served[id] = served, stack.pop_all()
        return made

    def end_cloud(self, request: Request) -> Closed:
        """Close an isolated cloud, with its fakes and its control API."""
        id = decode_segment(request.params["id"])
        with self._lock:
            found = self._served.pop(id, None)
        if found is None:
            raise Refused(404, f"there is no cloud {id!r:.100}: GET {PREFIX}/clouds lists them")
        found[1].close()
        return {"closed": True}

    def close(self) -> None:
        """Close all isolated clouds. Called before the server closes."""
        with self._lock:
            stacks = [stack for _, stack in self._served.values()]
            self._served.clear()
        for stack in stacks:
            stack.close()
