"""Endpoints specific to queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...http.messages import Request
from ...http.readers import decode_segment
from ...http.routing import Route
from ..views import attempt_view, dead_letter, message_view
from .requests import PREFIX, Refused, contract, named
from .shapes import Attempt, DeadLetter, Message

if TYPE_CHECKING:
    from ...cloud import Cloud


class QueueRoutes:
    """Endpoints that list attempts and dead letters, and retry dead letters."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def routes(self) -> list[Route]:
        handle = f"{PREFIX}/handles/{{name}}"
        return [
            Route("GET", f"{handle}/attempts", "attempts", self.get_attempts),
            Route("GET", f"{handle}/dead-letters", "dead_letters", self.get_dead_letters),
            Route("POST", f"{handle}/dead-letters/{{id}}", "retry", self.retry_dead_letter),
        ]

    def _queue(self, request: Request) -> Any:
        handle = named(self._cloud, request)
        if handle.service != "queue" or not hasattr(handle, "dead_letters"):
            raise Refused(422, f"{handle.name} is not a queue")
        return handle

    def get_attempts(self, request: Request) -> list[Attempt]:
        """Return the attempts of all messages, or of the message with ``?id=``."""
        wanted = request.query("id")
        attempts = self._queue(request).attempts(**({"id": wanted} if wanted else {}))
        return [attempt_view(attempt) for attempt in attempts]

    def get_dead_letters(self, request: Request) -> list[DeadLetter]:
        """Return the dead letters of a queue."""
        return [dead_letter(letter) for letter in self._queue(request).dead_letters()]

    def retry_dead_letter(self, request: Request) -> Message:
        """Retry a dead letter."""
        handle = self._queue(request)
        with contract():
            return message_view(handle.retry_dead_letter(decode_segment(request.params["id"])))
