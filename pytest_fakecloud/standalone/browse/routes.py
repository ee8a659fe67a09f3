"""Endpoints of the control API that list the data of a fake in pages.

Requests to these endpoints are not recorded, are not subject to injected faults, and do not count
as use of the fake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ...core.errors import ContractError
from ...core.wording import unknown_name
from ...handle import Handle
from ...http.messages import Request
from ...http.routing import Route
from .pages import LARGEST_PAGE, Listing, NotFound, Wanted

_MODULES = {"kv_server": "kv", "vector_index": "vector", "broker": "broker", "queue": "queue"}
"""For each fixture, the module of this package that lists the data of its fake."""
_PAGING = ("search", "after", "before", "limit")


class BrowseRoutes:
    """Endpoints for the data of one fake; ``named`` returns the handle that a request refers to."""

    def __init__(self, prefix: str, named: Callable[[Request], Handle]) -> None:
        self._prefix = prefix
        self._named = named

    def routes(self) -> list[Route]:
        base = self._prefix
        return [
            Route("GET", f"{base}/lists", "lists", self.lists),
            Route("GET", f"{base}/lists/{{list}}", "list", self.page),
            Route("GET", f"{base}/lists/{{list}}/{{id}}", "item", self.item),
            Route("POST", f"{base}/messages/{{id}}/deliver", "deliver_now", self.deliver_now),
            Route("POST", f"{base}/schedules/{{id}}/run", "run_schedule", self.run_schedule),
        ]

    def lists(self, request: Request) -> object:
        """Return the lists of a fake, each with its number of items."""
        handle, module = self._browsed(request)
        return module.counts(handle)

    def page(self, request: Request) -> object:
        """Return a page of a list: ``items``, counts (``total`` and ``matching``) and two cursors.

        ``?search=`` finds text, ``?limit=`` is at most 500, ``?after=`` and ``?before=`` take the
        ``next`` and ``previous`` cursors of another page. Each list has its own filters.
        """
        handle, module = self._browsed(request)
        listing = _listing(module.LISTS, request.params["list"])
        return listing.page(handle, _wanted(request, listing))

    def item(self, request: Request) -> object:
        """Return one item of a list in full. The elements of a key's value are paged."""
        handle, module = self._browsed(request)
        listing = _listing(module.LISTS, request.params["list"])
        if listing.item is None:
            raise NotFound(
                f"the list {request.params['list']} has no views of single items: its pages are complete"
            )
        return listing.item(handle, request.params["id"], _wanted(request, listing))

    def deliver_now(self, request: Request) -> object:
        """Make a pending message of a queue due now."""
        return self._queue(request).deliver_now(self._named(request), request.params["id"])

    def run_schedule(self, request: Request) -> object:
        """Run a schedule now; its next planned run does not change."""
        return self._queue(request).run_schedule(self._named(request), request.params["id"])

    def _browsed(self, request: Request) -> tuple[Handle, Any]:
        handle = self._named(request)
        if handle.fixture not in _MODULES:
            raise NotFound(f"{handle.name} has no lists: use its `view`")
        # Imported late, because a server without a queue does not need the queue's engine.
        return handle, import_module(f".{_MODULES[handle.fixture]}", __package__)

    def _queue(self, request: Request) -> Any:
        handle, module = self._browsed(request)
        if handle.fixture != "queue":
            raise ContractError(f"{handle.name} is not a queue")
        return module


def _listing(lists: Mapping[str, Listing], name: str) -> Listing:
    if name not in lists:
        raise NotFound(unknown_name("list", name, lists))
    return lists[name]


def _wanted(request: Request, listing: Listing) -> Wanted:
    given = dict(request.query_items())
    known = {*_PAGING, *listing.filters}
    if unknown := [name for name in given if name not in known]:
        raise ContractError(unknown_name("parameter of this list", unknown[0], sorted(known)))
    wanted = Wanted(
        given.get("search", ""),
        given.get("after", ""),
        given.get("before", ""),
        filters={name: given[name] for name in listing.filters if name in given},
    )
    limit = Wanted(filters=given).number("limit")
    if limit is None:
        return wanted
    if not 1 <= limit <= LARGEST_PAGE:
        raise ContractError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit}")
    return wanted._replace(limit=limit)
