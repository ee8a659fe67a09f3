"""Endpoints for the data of a fake: its view, its lists in pages, and what happened in a queue.

Requests to these endpoints are not recorded, get no faults, and do not count as use of the fake.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...core.errors import ContractError
from ...core.wording import unknown_name
from ...faults.plan import fault_kinds
from ...handle import Handle
from ...http.messages import Request
from ...http.routing import Route
from ...services import find, view_of
from ..browse.pages import LARGEST_PAGE, PAGE, PAGING, Listing, NotFound, Wanted, whole_number
from . import PREFIX, Refused, contract, named
from .shapes import Attempt, DeadLetter, Message

if TYPE_CHECKING:
    from ...cloud import Cloud

_MODULES = {"kv_server": "kv", "vector_index": "vector", "broker": "broker", "queue": "queue"}
"""For each fixture, the module of ``browse`` that shows the data of its fake."""


class DataRoutes:
    """Endpoints that return the data of a fake, and that run what waits in a queue."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def routes(self) -> list[Route]:
        base = f"{PREFIX}/handles/{{name}}"
        return [
            Route("GET", f"{base}/view", "view", self.get_view),
            Route("GET", f"{base}/lists", "lists", self.lists),
            Route("GET", f"{base}/lists/{{list}}", "list", self.page),
            Route("GET", f"{base}/lists/{{list}}/{{id}}", "item", self.item),
            Route("POST", f"{base}/messages/{{id}}/deliver", "deliver_now", self.deliver_now),
            Route("POST", f"{base}/schedules/{{id}}/run", "run_schedule", self.run_schedule),
            Route("GET", f"{base}/attempts", "attempts", self.get_attempts),
            Route("GET", f"{base}/dead-letters", "dead_letters", self.get_dead_letters),
            Route("POST", f"{base}/dead-letters/{{id}}", "retry", self.retry_dead_letter),
        ]

    def get_view(self, request: Request) -> dict[str, Any]:
        """Return the data of a fake as plain JSON."""
        return view(named(self._cloud, request))

    # -- lists -----------------------------------------------------------------------------------

    def lists(self, request: Request) -> object:
        """Return the lists of a fake, each with its number of items."""
        handle, module = self._browsed(request)
        return module.counts(handle)

    def page(self, request: Request) -> object:
        """Return a page of a list: ``items``, counts (``total`` and ``matching``) and two cursors.

        ``?search=`` finds text, ``?limit=`` is at most 500, ``?after=`` and ``?before=`` take the
        ``next`` and ``previous`` cursors of another page. Each list has its own filters.
        """
        handle, listing = self._listing(request)
        return listing.page(handle, _wanted(request, listing))

    def item(self, request: Request) -> object:
        """Return one item of a list in full. The elements of a key's value are paged."""
        handle, listing = self._listing(request)
        if listing.item is None:
            raise NotFound(
                f"the list {request.params['list']} has no views of single items: its pages are complete"
            )
        id = unquote(request.params["id"], errors="surrogateescape")
        return listing.item(handle, id, _wanted(request, listing))

    def _listing(self, request: Request) -> tuple[Handle, Listing]:
        handle, module = self._browsed(request)
        name = request.params["list"]
        if name not in module.LISTS:
            raise NotFound(unknown_name("list", name, module.LISTS))
        return handle, module.LISTS[name]

    def _browsed(self, request: Request) -> tuple[Handle, Any]:
        handle = named(self._cloud, request)
        if handle.fixture not in _MODULES:
            raise NotFound(f"{handle.name} has no lists: use its `view`")
        return handle, _browse(handle)

    # -- queues ----------------------------------------------------------------------------------

    def deliver_now(self, request: Request) -> object:
        """Make a pending message of a queue due now."""
        queue, module = self._queue(request)
        return module.deliver_now(queue, request.segment("id"))

    def run_schedule(self, request: Request) -> object:
        """Run a schedule now; its next planned run does not change."""
        queue, module = self._queue(request)
        return module.run_schedule(queue, request.segment("id"))

    def get_attempts(self, request: Request) -> list[Attempt]:
        """Return the attempts of all messages, or of the message with ``?id=``."""
        queue, module = self._queue(request)
        wanted = request.query("id")
        attempts = queue.attempts(**({"id": wanted} if wanted else {}))
        return [module.attempt_view(attempt) for attempt in attempts]

    def get_dead_letters(self, request: Request) -> list[DeadLetter]:
        """Return the dead letters of a queue."""
        queue, module = self._queue(request)
        return [module.dead_letter_view(letter) for letter in queue.dead_letters()]

    def retry_dead_letter(self, request: Request) -> Message:
        """Retry a dead letter."""
        queue, module = self._queue(request)
        with contract():
            view: Message = module.retry_dead_letter(queue, request.segment("id"))
        return view

    def _queue(self, request: Request) -> tuple[Any, Any]:
        handle = named(self._cloud, request)
        if handle.fixture != "queue":
            raise Refused(422, f"{handle.name} is not a queue")
        return self._browsed(request)


def view(handle: Handle) -> dict[str, Any]:
    """Return the data of a fake, or only its identity if its service has no view."""
    if handle.fixture in _MODULES:
        content = _browse(handle).content(handle)
    else:
        show = view_of(find(handle.fixture))
        content = {} if show is None else show(handle)
    return {
        "name": handle.name,
        "service": handle.service,
        "fixture": handle.fixture,
        "fault_kinds": fault_kinds(type(handle.faults)),
        **content,
    }


def _browse(handle: Handle) -> Any:
    # Imported late, because a server without a queue does not need the queue's engine.
    return import_module(f"..browse.{_MODULES[handle.fixture]}", __package__)


def _wanted(request: Request, listing: Listing) -> Wanted:
    given = dict(request.query_items())
    known = {*PAGING, *listing.filters}
    if unknown := [name for name in given if name not in known]:
        raise ContractError(unknown_name("parameter of this list", unknown[0], sorted(known)))
    limit = whole_number("limit", given.get("limit"))
    if limit is not None and not 1 <= limit <= LARGEST_PAGE:
        raise ContractError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit}")
    search, after, before = (given.get(name, "") for name in ("search", "after", "before"))
    filters = {name: given[name] for name in listing.filters if name in given}
    return Wanted(search, after, before, PAGE if limit is None else limit, filters)
